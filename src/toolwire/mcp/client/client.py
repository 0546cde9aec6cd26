"""A client for one server, and its answers to questions of the server.

    async with McpClient(ServerSpec.parse("toolwire", "mcp", "serve", "tools.py")) as client:
        client.tools                                       its tools, by its own names
        await client.call(ToolCall("1", "get_weather", {"city": "Paris"}))
        await client.resources(); await client.read("notes://today")

    Handlers(elicit=ask_user, sample=ask_model, roots=lambda: [{"uri": "file:///work"}])

Each is answered by a function of yours, plain or async. Without the function the client does not declare the
capability, and a server that asks anyway gets an error.

    Handlers(elicit=ask_user, sample=ask_model, roots=lambda: [{"uri": "file:///work"}])

A broken connection is reopened automatically, a few times. In-flight requests are not sent again, unless the server
runs a call with an idempotency key at most once (`meta.IDEMPOTENCY`). `unavailable_reason` is the reason why a server
cannot be used now.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeAlias

from msgspec.structs import replace

from ... import __version__
from ...ir.errors import ProtocolError, ToolwireError
from ...ir.parts import ToolCall, ToolResult
from ...ir.pointer import JSON, Object
from ...ir.tools import Tool
from ...ir.value import Value
from ...net.threads import ThreadPool, call_in_thread
from ...run.values.results import error_text
from ..protocol.calls import InputRequired, call_request, read_result
from ..protocol.discovery import list_request
from ..protocol.meta import Meta, TraceContext, with_meta
from ..protocol.notifications import PROGRESS, Progress, read_progress
from ..protocol.rpc import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    Failure,
    Notification,
    RequestId,
    Result,
    RpcError,
    RpcMessage,
    RpcRequest,
    failure_from,
    unknown_method,
)
from .config import ServerSpec
from .connection import Build, ServerConnection
from .failures import AmbiguousRetry, ServerGone
from .http import Authorizer, Sender
from .link import Link, TrafficHandler
from .listing import ServerProblem, ToolList, fetch_all_pages
from .negotiation import ClientIdentity, NegotiatedProtocol

Handler: TypeAlias = Callable[[Object], "Object | Awaitable[Object]"]
_MAX_THREADS = 8  # a client's handlers that may block; questions to the user have a thread of their own
_METHODS = {"elicitation/create": "elicit", "sampling/createMessage": "sample"}


class Handlers(Value, frozen=True):
    """`elicit(params)` returns {"action": "accept", "content": …}, `sample(params)` a message, `roots()` a list."""

    elicit: Handler | None = None
    sample: Handler | None = None
    roots: Callable[[], list[Object]] | None = None

    @property
    def capabilities(self) -> Object:
        offered = (("elicitation", self.elicit), ("sampling", self.sample), ("roots", self.roots))
        return {name: {} for name, handler in offered if handler is not None}


class QuestionResponder:
    """Answers the questions of one server with the handlers.

    A handler that is not async runs in a thread, so that a person who thinks, or a slow model, does not stop the event
    loop. Questions to the user have one thread, because two of them on one terminal would be mixed.
    """

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers
        self._user_thread = ThreadPool(1)
        self._threads = ThreadPool(_MAX_THREADS)

    async def answer(self, method: str, params: Object) -> Object:
        """Return the answer to one question. Raise RpcError if there is no handler for it."""
        if method == "ping":
            return {}
        if method == "roots/list" and self._handlers.roots is not None:
            return {"roots": await call_in_thread(self._threads, self._handlers.roots)}
        handler: Handler | None = getattr(self._handlers, _METHODS.get(method, ""), None)
        if handler is None:
            raise unknown_method(method)
        threads = self._user_thread if method == "elicitation/create" else self._threads
        answer = await _call_handler(handler, params, threads)
        return fill_defaults(answer, params.get("requestedSchema")) if method == "elicitation/create" else answer

    async def reply(self, request: RpcRequest) -> Result | Failure:
        """Answer a request by the server. An exception of the handler becomes an error answer."""
        try:
            return Result(request.id, await self.answer(request.method, request.params))
        except RpcError as error:
            return failure_from(error, request.id)
        except Exception as error:  # noqa: BLE001  # the author's own function
            return Failure(request.id, INTERNAL_ERROR, error_text(error))

    async def answer_all(self, requests: Object) -> Object:
        """Answer the requests in an `InputRequired` result, by the server's names.

        Raise ProtocolError for a request without a method.
        """
        out: Object = {}
        for name, question in requests.items():
            if type(question) is not dict or type(question.get("method")) is not str:
                raise ProtocolError("the question has no method").within("inputRequests", name)
            params = question.get("params")
            out[name] = await self.answer(question["method"], params if type(params) is dict else {})
        return out


async def _call_handler(handler: Handler, params: Object, threads: ThreadPool) -> Object:
    """Call an async handler on the event loop, and any other one in a thread; TypeError if it returns no dict."""
    call = getattr(handler, "__call__", None)  # noqa: B004  # the method, of an object with an async one
    answer: Any
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call):
        answer = handler(params)
        answer = await answer
    else:
        answer = await call_in_thread(threads, handler, params)
    if type(answer) is not dict:
        raise TypeError(f"the handler must return a dict, got {type(answer).__name__}")
    return answer


def fill_defaults(answer: Object, schema: JSON) -> Object:
    """Complete an accepted form with the defaults of the fields that were left empty."""
    if answer.get("action") != "accept" or type(schema) is not dict or type(schema.get("properties")) is not dict:
        return answer
    content = answer.get("content") or {}
    defaults = {
        name: field["default"]
        for name, field in schema["properties"].items()
        if type(field) is dict and "default" in field
    }
    return {**answer, "content": {**defaults, **content}}


def accept_defaults(params: Object) -> Object:
    """Accept the server's defaults: an `elicit` for programs without a user."""
    return fill_defaults({"action": "accept", "content": {}}, params.get("requestedSchema"))


_log = logging.getLogger("toolwire.mcp")
_MAX_ROUNDS = 8  # a server asks once or twice (user, then model); one that asks without end is broken
_MAX_QUESTIONS = 1000  # tasks of a connection; a server that floods its client with requests is cut off
ProgressHandler: TypeAlias = Callable[[str, Progress], None]
"""Called with the name of a tool and the progress of its call."""


class McpClient:
    """`handlers` answer the server's questions, `watch` receives progress, `trace` returns the current trace context,
    `login` authorizes requests. `changed` is called when the list of tools, or their availability, has changed,
    `traffic` with every message in both directions.
    """

    def __init__(
        self,
        spec: ServerSpec,
        *,
        handlers: Handlers | None = None,
        watch: ProgressHandler | None = None,
        trace: Callable[[], TraceContext | None] | None = None,
        login: Authorizer | None = None,
        sender: Sender | None = None,
        changed: Callable[[], None] | None = None,
        traffic: TrafficHandler | None = None,
    ) -> None:
        self.spec = spec
        handlers = handlers or Handlers()
        self._responder = QuestionResponder(handlers)
        self._identity = ClientIdentity({"name": "toolwire", "version": __version__}, handlers.capabilities)
        self._watch = watch
        self._trace = trace
        self._on_change = changed or (lambda: None)
        self._watched_requests: dict[RequestId, str] = {}  # progress token → name of the tool
        self._follow_task: asyncio.Task[None] | None = None
        self.connection = ServerConnection(
            spec,
            self._identity,
            self._on_message,
            on_negotiated=self._load_tools,
            on_change=self._on_change,
            login=login,
            sender=sender,
            traffic=traffic,
        )
        self._list = ToolList(spec, self._fetch_tools, wait_ready=self.connection.wait_ready, on_change=self._on_change)

    async def __aenter__(self) -> Self:
        """Connect. On failure close the connection, because `__aexit__` is not called then."""
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

    @property
    def tools(self) -> dict[str, Tool]:
        """The tools that can be used, by the server's own names, as last listed."""
        return self._list.tools

    @property
    def problems(self) -> list[ServerProblem]:
        """The tools of the last listing that cannot be used, and why."""
        return self._list.problems

    @property
    def greeting(self) -> NegotiatedProtocol | None:
        """The server's description of itself, and the negotiated version; None before the first connection."""
        return self.connection.greeting

    @property
    def unavailable_reason(self) -> str | None:
        """The reason why the server cannot be used now, or None."""
        return self.connection.unavailable_reason

    async def connect(self) -> None:
        """Open the connection, find out the server's version, and list its tools."""
        await self.connection.open()
        await self._list.refresh()  # a change announced while the first listing was in progress

    async def close(self) -> None:
        """Close the connection. It is not reopened until `connect`, not even for in-flight requests."""
        await self.connection.close()

    async def restore(self) -> None:
        """Connect again to a server that was given up."""
        await self.connection.restore()
        await self._list.refresh()

    def withdraw(self, reason: str) -> None:
        """Mark the server's tools as unusable, until `restore`."""
        self.connection.withdraw(reason)

    def lost(self, gone: ServerGone) -> None:
        """Report that the connection broke. The tools are withdrawn until it is open again."""
        self.connection.report_lost(gone)

    # messages from the server

    def _on_message(self, message: RpcMessage, link: Link) -> None:
        """Answer a request by the server, follow a changed tool list, or report progress. Ignore other messages.

        ProtocolError if the server has too many unanswered requests.
        """
        if isinstance(message, RpcRequest):
            if len(self.connection.tasks) >= _MAX_QUESTIONS:
                raise ProtocolError("too many unanswered requests by the server", status=502)
            self.connection.spawn(self._reply(message, link))
        elif isinstance(message, Notification):
            if message.method == "notifications/tools/list_changed":
                self._follow_change()
            elif message.method == PROGRESS and self._watch is not None:
                self._on_progress(message)

    async def _reply(self, request: RpcRequest, link: Link) -> None:
        """Answer over the link of the question, because its id means nothing to another process or session."""
        answer = await self._responder.reply(request)
        try:
            await link.send(answer)
        except ToolwireError as error:
            _log.info("cannot deliver the answer to %s: %s", self.spec.name, error)

    def _on_progress(self, message: Notification) -> None:
        """Call `watch` with the progress of a running call. Ignore malformed messages and unknown tokens."""
        try:
            progress = read_progress(message.params)
        except ProtocolError:
            return
        name = self._watched_requests.get(progress.token)
        if name is None or self._watch is None:
            return
        try:
            self._watch(name, progress)
        except Exception:  # noqa: BLE001  # the author's own function
            _log.exception("the watch function failed for tool %s", name)

    def _follow_change(self) -> None:
        self._list.is_stale = True
        if self._follow_task is None or self._follow_task.done():
            self._follow_task = self.connection.spawn(self._list.follow_changes())

    # requests to the server

    async def _load_tools(self) -> None:
        await self._list.load()

    async def _fetch_tools(self) -> list[JSON]:
        return await self._fetch_list("tools") if self._offers("tools") else []

    def _offers(self, area: str) -> bool:
        return self.greeting is not None and self.greeting.offers(area)

    async def _fetch_list(self, area: str, method: str | None = None) -> list[JSON]:
        """Fetch all pages of a list. `method` is needed for templates, whose method and key differ from the area."""
        requested = method or f"{area}/list"
        key = "resourceTemplates" if requested == "resources/templates/list" else area

        async def page(cursor: str | None) -> Object:
            return await self._send_request(lambda number: list_request(number, requested, self._meta(), cursor))

        return await fetch_all_pages(page, key)

    async def resources(self) -> list[JSON]:
        """List the resources, followed by the resource templates. Raise RpcError if the server refuses.

        The list is empty if the server offers none.
        """
        if not self._offers("resources"):
            return []
        listed = await self._fetch_list("resources")
        try:
            return listed + await self._fetch_list("resources", "resources/templates/list")
        except RpcError as error:
            if error.code == METHOD_NOT_FOUND:  # not every server has templates
                return listed
            raise

    async def prompts(self) -> list[JSON]:
        return await self._fetch_list("prompts") if self._offers("prompts") else []

    async def read(self, uri: str) -> list[JSON]:
        """Read the contents of a URI, in MCP format. Raise ProtocolError if the answer has none."""
        contents = (await self._request_with_input("resources/read", {"uri": uri})).get("contents")
        if type(contents) is not list:
            raise ProtocolError("the resource has no contents", pointer="/contents", status=502)
        return contents

    async def get_prompt(self, name: str, arguments: Object | None = None) -> Object:
        return await self._request_with_input("prompts/get", {"name": name, "arguments": arguments or {}})

    async def call(self, call: ToolCall, *, key: str | None = None, limited: bool = True) -> ToolResult:
        """Return the result of a call, and answer the questions that the server asks before it.

        The tool has the server's own name. `key` is the idempotency key; a caller with a timeout of its own passes
        `limited=False`. Raise RpcError if the server rejects the call, ServerGone or AmbiguousRetry if the outcome is
        unknown, and ProtocolError for too many questions. A failed tool is a result.
        """
        may_resend = key is not None and self.greeting is not None and self.greeting.is_idempotent
        answers: Object | None = None
        state: str | None = None
        limit = self.spec.timeout if limited else None
        for _ in range(_MAX_ROUNDS):
            with self._watching(call, replace(self._meta(), idempotency_key=key), answers, state) as build:
                raw, resent = await self.connection.request_with_retry(
                    build, self._list.header_arguments.get(call.name), limit, may_resend=may_resend
                )
            reply = read_result(raw, call)
            if isinstance(reply, ToolResult):
                if resent and reply.is_error:  # an error of the second attempt does not reveal the effect of the first
                    raise AmbiguousRetry(f"{self.spec.name}: the connection broke, and the retry failed: {reply.text}")
                return reply
            answers, state = await self._answer_input(reply), reply.state
        raise ProtocolError(f"{call.name} still requires input after {_MAX_ROUNDS} rounds", status=502)

    @contextmanager
    def _watching(self, call: ToolCall, meta: Meta, answers: Object | None, state: str | None) -> Iterator[Build]:
        """Yield a function that builds the request of a call, and watch the progress of the requests it builds."""
        numbers: list[int] = []

        def build(number: int) -> RpcRequest:
            if self._watch is None:
                return call_request(number, call, meta, answers=answers, state=state)
            numbers.append(number)
            self._watched_requests[number] = call.name
            return call_request(number, call, replace(meta, progress_token=number), answers=answers, state=state)

        try:
            yield build
        finally:
            for number in numbers:
                del self._watched_requests[number]

    async def _request_with_input(self, method: str, params: Object) -> Object:
        """Send a request, answer the questions of the server, and return the result; ProtocolError for too many."""
        input_params: Object = {}
        for _ in range(_MAX_ROUNDS):
            requested = {**params, **input_params}
            raw = await self._send_request(
                lambda number, requested=requested: RpcRequest(number, method, with_meta(requested, self._meta()))  # type: ignore[misc]
            )
            if raw.get("resultType") != "input_required":
                return raw
            input_required = InputRequired(raw.get("inputRequests") or {}, raw.get("requestState"))
            answers = await self._answer_input(input_required)
            input_params = {} if answers is None else {"inputResponses": answers}
            if input_required.state is not None:
                input_params["requestState"] = input_required.state
        raise ProtocolError(f"{method} still requires input after {_MAX_ROUNDS} rounds", status=502)

    async def _answer_input(self, input_required: InputRequired) -> Object | None:
        return await self._responder.answer_all(input_required.requests) if input_required.requests else None

    def _meta(self) -> Meta:
        meta = self._identity.meta(self.greeting.version) if self.greeting is not None else Meta()
        trace = None if self._trace is None else self._trace()
        return meta if trace is None else replace(meta, trace=trace)

    async def _send_request(self, build: Build) -> Object:
        return (await self.connection.request_with_retry(build, None, self.spec.timeout))[0]
