"""One server, used.

    async with McpClient(ServerSpec.parse("toolwire", "mcp", "serve", "tools.py")) as client:
        client.tools                                       what it offers, by its own names
        await client.call(ToolCall("1", "get_weather", {"city": "Paris"}))
        await client.resources(); await client.read("notes://today")

A broken connection is opened again, a few times, by itself; what was under way is not sent again by itself, unless the
server runs a call with our idempotency key at most once (`meta.IDEMPOTENCY`). `trouble` says why a server cannot be used now.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeAlias

from msgspec.structs import replace

from ... import __version__
from ...ir.errors import ProtocolError, ToolwireError
from ...ir.parts import ToolCall, ToolResult
from ...ir.pointer import JSON, Object
from ...ir.tools import Tool
from ...net.h1 import H1Transport
from ...net.http import HttpTransport
from ...net.transports import open_transport
from ...wire.mcp.calls import InputRequired, call_request, read_result
from ...wire.mcp.errors import METHOD_NOT_FOUND, RpcError
from ...wire.mcp.headers import Mirrored, mirrored
from ...wire.mcp.lists import list_request
from ...wire.mcp.meta import Meta, Trace, with_meta
from ...wire.mcp.notices import PROGRESS, Progress, read_progress
from ...wire.mcp.rpc import Failure, Message, Notification, Request, RequestId
from ...wire.mcp.versions import LATEST_HANDSHAKE
from .config import ServerSpec
from .failures import AskedAgain, ServerGone, ServerRefused
from .greeting import Greeting, Me
from .http import Authorizer, HttpLink, Sender
from .introduce import introduce
from .link import Link
from .listing import Problem, read_tools, whole_list
from .questions import Handlers
from .stdio import StdioLink

__all__ = ["McpClient", "Watch"]

_log = logging.getLogger("toolwire.mcp")
_ROUNDS = 8
_PAUSE = 0.25
_MOST_QUESTIONS = 1000
Watch: TypeAlias = Callable[[str, Progress], None]
"""Called with the name of a tool and how far its call is."""
Build: TypeAlias = Callable[[int], Request]


class McpClient:
    """`handlers` answer the server's questions, `watch` hears of progress, `trace` says where in whose trace we are,
    `login` who we are. `changed` is called when the list of tools, or whether they can be used, is no longer what it was.
    """

    def __init__(
        self,
        spec: ServerSpec,
        *,
        handlers: Handlers | None = None,
        watch: Watch | None = None,
        trace: Callable[[], Trace | None] | None = None,
        login: Authorizer | None = None,
        sender: Sender | None = None,
        changed: Callable[[], None] | None = None,
    ) -> None:
        self.spec = spec
        self.tools: dict[str, Tool] = {}
        self.problems: list[Problem] = []
        self.greeting: Greeting | None = None
        self.trouble: str | None = "it is not connected"
        self._handlers = handlers or Handlers()
        self._me = Me({"name": "toolwire", "version": __version__}, self._handlers.capabilities)
        self._watch = watch
        self._trace = trace
        self._login = login
        self._sender = sender
        self._own: H1Transport | HttpTransport | None = None
        self._changed = changed or (lambda: None)
        self._ids = itertools.count(1)
        self._link: Link | None = None
        self._opening = asyncio.Lock()
        self._opener: asyncio.Task[Any] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._watched: dict[RequestId, str] = {}
        self._marks: dict[str, Mirrored] = {}
        self._stale = False
        self._lists = 0
        self._recovering = False
        self._closed = False

    async def __aenter__(self) -> Self:
        try:
            await self.connect()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """Opens the connection, finds out what the server speaks, and lists its tools."""
        self._closed = False
        await self._reopen(None)

    async def close(self) -> None:
        """Until `connect` nothing is opened again, whatever was under way."""
        self._closed = True
        self.trouble = "it is closed"
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._opener is None:
            await self._drop()
        elif self._link is not None:
            await self._link.close()  # who opens it fails at that, and drops it
        if self._own is not None:
            await self._own.aclose()
            self._own = self._sender = None

    async def restore(self) -> None:
        """Tries anew with a server that was given up."""
        await self._reopen(self._link)

    def withdraw(self, why: str) -> None:
        """The server's tools are not to be used any more; `restore` brings them back."""
        self.trouble = why
        self._changed()

    # the connection

    async def _reopen(self, broken: Link | None) -> None:
        """A new connection, unless somebody has opened one meanwhile."""
        async with self._opening:
            self._check_open()
            if self._link is not broken:
                return
            self._opener = asyncio.current_task()
            try:
                await self._drop()
                await self._open()
                self.trouble = None
            except BaseException as error:
                if not self._closed:
                    self.trouble = str(error) or type(error).__name__
                await self._drop()
                raise
            finally:
                self._opener = None
        self._changed()

    def _check_open(self) -> None:
        if self._closed:
            raise ServerGone(f"{self.spec.name} is not connected: it is closed", sent=False)

    async def _open(self) -> None:
        link, self.greeting = await self._greet()
        listens = bool(self._me.capabilities) or any(map(self.greeting.tells, ("tools", "resources", "prompts")))
        await link.agreed(self.greeting, listen=listens)
        await self._list()
        self._check_open()

    async def _started(self) -> Link:
        link = self._link = self._make()
        await link.open()
        self._check_open()
        return link

    def _make(self) -> Link:
        if self.spec.url is None:
            link = StdioLink(self.spec, self._hear, lambda gone: self.lost(gone, link))
            return link
        if self._sender is None:
            self._sender = self._own = open_transport(os.environ, resends=False)
        return HttpLink(self.spec, self._hear, self._sender, self._me, self._login)

    async def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def _greet(self) -> tuple[Link, Greeting]:
        try:
            async with asyncio.timeout(self.spec.timeout):
                link = await self._started()
                try:
                    return link, await introduce(link, self._ids, self._me, self.spec.protocol)
                except ServerGone:
                    if self.spec.protocol != "auto" or self.spec.url is not None:
                        raise
                # a server that dies of a question it does not know gets the older one, in a new life
                await link.close()
                self._check_open()
                link = await self._started()
                return link, await introduce(link, self._ids, self._me, LATEST_HANDSHAKE)
        except TimeoutError:
            raise ServerGone(f"{self.spec.name} did not greet within {self.spec.timeout:g} seconds") from None

    def lost(self, gone: ServerGone, link: Link | None = None) -> None:
        """The connection broke by itself. Its tools are withdrawn until it is there again."""
        if self._closed or self._recovering or self._opener is not None or link not in (None, self._link):
            return
        if self.trouble is None:
            self.trouble = gone.message
        self._recovering = True
        self._changed()
        self._spawn(self._reconnect())

    async def _reconnect(self) -> None:
        broken = self._link
        try:
            for attempt in range(self.spec.reconnects):
                await asyncio.sleep(_PAUSE * 2**attempt)
                try:
                    await self._reopen(broken)
                except ToolwireError as error:
                    _log.info("%s did not come back: %s", self.spec.name, error)
                    broken = self._link
                else:
                    return
        finally:
            self._recovering = False

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # what comes by itself

    def _hear(self, message: Message) -> None:
        if isinstance(message, Request):
            if len(self._tasks) >= _MOST_QUESTIONS:
                raise ProtocolError("more questions than anybody can answer", status=502)
            self._spawn(self._reply(message))
        elif isinstance(message, Notification):
            if message.method == "notifications/tools/list_changed" and not self._stale:
                self._stale = True
                self._spawn(self._relist())
            elif message.method == PROGRESS and self._watch is not None:
                self._progress(message)

    async def _reply(self, request: Request) -> None:
        answer = await self._handlers.reply(request)
        if self._link is not None:
            try:
                await self._link.tell(answer)
            except ToolwireError as error:
                _log.info("%s did not hear our answer: %s", self.spec.name, error)

    def _progress(self, message: Notification) -> None:
        try:
            progress = read_progress(message.params)
        except ProtocolError:
            return
        name = self._watched.get(progress.token)
        if name is None or self._watch is None:
            return
        try:
            self._watch(name, progress)
        except Exception:  # noqa: BLE001  # the author's own function
            _log.exception("who watches %s failed", name)

    async def _relist(self) -> None:
        try:
            await self._list()
        except ToolwireError as error:
            _log.warning("the new list of %s cannot be read: %s", self.spec.name, error)
        self._changed()

    # what is asked

    async def _list(self) -> None:
        self._stale = False
        self._lists = mine = self._lists + 1
        try:
            async with asyncio.timeout(self.spec.timeout):
                raw = await self._listed("tools") if self._has("tools") else []
        except TimeoutError:
            words = f"{self.spec.name} did not list its tools within {self.spec.timeout:g} seconds"
            raise ServerGone(words) from None
        if mine != self._lists:
            return  # somebody has begun to list anew meanwhile
        tools, problems = read_tools(raw, self.spec.name, trusted=self.spec.trusted)
        picked = self.spec.tools
        self.problems = problems
        if picked is not None:
            self.problems += [Problem(self.spec.name, name, "no such tool") for name in picked if name not in tools]
            tools = {name: tool for name, tool in tools.items() if name in picked}
        self.tools = tools
        self._marks = {name: mirrored(tool.input_schema) for name, tool in tools.items()}

    def _has(self, area: str) -> bool:
        return self.greeting is not None and self.greeting.offers(area)

    async def _listed(self, area: str, method: str | None = None) -> list[JSON]:
        asked = method or f"{area}/list"
        key = "resourceTemplates" if asked == "resources/templates/list" else area

        async def page(cursor: str | None) -> Object:
            return await self._ask(lambda number: list_request(number, asked, self._meta(), cursor))

        return await whole_list(page, key)

    async def resources(self) -> list[JSON]:
        """What it has to read, templates behind."""
        if not self._has("resources"):
            return []
        found = await self._listed("resources")
        try:
            return found + await self._listed("resources", "resources/templates/list")
        except RpcError as error:
            if error.code == METHOD_NOT_FOUND:  # templates are not everybody's
                return found
            raise

    async def prompts(self) -> list[JSON]:
        return await self._listed("prompts") if self._has("prompts") else []

    async def read(self, uri: str) -> list[JSON]:
        """The contents at an address, as MCP writes them."""
        contents = (await self._input("resources/read", {"uri": uri})).get("contents")
        if type(contents) is not list:
            raise ProtocolError("a resource without contents", pointer="/contents", status=502)
        return contents

    async def get_prompt(self, name: str, arguments: Object | None = None) -> Object:
        return await self._input("prompts/get", {"name": name, "arguments": arguments or {}})

    async def call(self, call: ToolCall, *, key: str | None = None, limited: bool = True) -> ToolResult:
        """What came of a call, under the server's own name of the tool. `key` is its idempotency key; who sets a limit of
        their own needs none of ours.

        RpcError is what the server says is wrong with the call, ServerGone that nobody knows; a tool that failed is a result.
        """
        again = key is not None and self.greeting is not None and self.greeting.is_idempotent
        answers: Object | None = None
        state: str | None = None
        for _ in range(_ROUNDS):
            meta = replace(self._meta(), idempotency_key=key)

            def build(
                number: int, meta: Meta = meta, answers: Object | None = answers, state: str | None = state
            ) -> Request:
                if self._watch is not None:
                    self._watched[number] = call.name
                    meta = replace(meta, progress_token=number)
                return call_request(number, call, meta, answers=answers, state=state)

            limit = self.spec.timeout if limited else None
            raw, resent = await self._sent(build, self._marks.get(call.name), limit, again=again)
            found = read_result(raw, call)
            if isinstance(found, ToolResult):
                if resent and found.is_error:  # an error of the second try does not tell what the first one did
                    raise AskedAgain(f"the connection broke, and {self.spec.name} was asked again: {found.text}")
                return found
            answers, state = await self._answered(found), found.state
        raise ProtocolError(f"{call.name} asks for input again and again", status=502)

    async def _input(self, method: str, params: Object) -> Object:
        """A request that may want input first."""
        given: Object = {}
        for _ in range(_ROUNDS):
            asked = {**params, **given}
            raw = await self._ask(lambda number, asked=asked: Request(number, method, with_meta(asked, self._meta())))  # type: ignore[misc]
            if raw.get("resultType") != "input_required":
                return raw
            wanted = InputRequired(raw.get("inputRequests") or {}, raw.get("requestState"))
            answers = await self._answered(wanted)
            given = {} if answers is None else {"inputResponses": answers}
            if wanted.state is not None:
                given["requestState"] = wanted.state
        raise ProtocolError(f"{method} asks for input again and again", status=502)

    async def _answered(self, wanted: InputRequired) -> Object | None:
        return await self._handlers.answer_all(wanted.requests) if wanted.requests else None

    def _meta(self) -> Meta:
        meta = self._me.meta(self.greeting.version) if self.greeting is not None else Meta()
        trace = None if self._trace is None else self._trace()
        return meta if trace is None else replace(meta, trace=trace)

    async def _ask(self, build: Build) -> Object:
        return (await self._sent(build, None, self.spec.timeout))[0]

    async def _sent(
        self, build: Build, marks: Mirrored | None, limit: float | None, *, again: bool = False
    ) -> tuple[Object, bool]:
        """The result of a request, and whether it left twice. It does so only where that does no harm (`again`); one that had
        surely not left is sent over a new connection in any case."""
        link = await self._ready()
        try:
            return await self._once(link, build, marks, limit), False
        except ServerGone as gone:
            if self._is_opening() or (gone.sent and not again) or not self.spec.reconnects:
                raise
            left = gone.sent
        try:
            await self._reopen(link)
        except ToolwireError as error:
            if isinstance(error, ServerRefused) and not left:
                raise
            raise ServerGone(error.message, sent=left) from None
        try:
            return await self._once(await self._ready(), build, marks, limit), left
        except ToolwireError as error:
            if not left:
                raise
            kind = ServerGone if isinstance(error, ServerGone) else AskedAgain
            raise kind(f"the connection broke, and {self.spec.name} was asked again: {error.message}") from error

    async def _ready(self) -> Link | None:
        """The connection. While one is being opened, only who opens it may speak: the others wait until it is greeted."""
        if self._opener is not None and not self._is_opening():
            async with self._opening:
                pass
        return self._link

    def _is_opening(self) -> bool:
        return asyncio.current_task() is self._opener

    async def _once(self, link: Link | None, build: Build, marks: Mirrored | None, limit: float | None) -> Object:
        if link is None:
            raise ServerGone(f"{self.spec.name} is not connected: {self.trouble}", sent=False)
        request = build(next(self._ids))
        try:
            async with asyncio.timeout(limit):
                answer = await link.ask(request, marks)
        except TimeoutError:
            raise ServerGone(f"{self.spec.name} did not answer in {self.spec.timeout:g} seconds") from None
        finally:
            self._watched.pop(request.id, None)
        if isinstance(answer, Failure):
            raise answer.error
        return answer.result
