"""The gateway as an ASGI application: clients and upstreams may use any wire.

app = Gateway(load(Path("toolwire.toml")))          # uvicorn module:app, or `toolwire serve`
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from logging import getLogger
from secrets import token_hex
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ..ir.errors import ToolwireError
from ..ir.pointer import JSON, Object
from ..ir.response import Fault
from ..ir.text import to_bytes
from ..net.http import Transport
from ..net.runner import Runner
from ..net.transports import open_transport
from ..run.observe import Retriever
from ..stream.strict import parse_object
from ..wire import get
from .answering import Answering, Means
from .asgi import Call, Receive, Scope, Send, uncancel
from .asked import Asked
from .cache import AnswerCache
from .faults import Refused, fault_from
from .fronts import FRONTS, Front, Place, dialect_of, methods_of, place_of
from .guard import Guard
from .keys import Caller, Keys
from .limits import InProcess, Limiter
from .listing import VERSION, count_reply, model_entry, model_list
from .memory import Memory, in_memory
from .routing import Router, UnknownModel
from .settings import LimitsRow, Settings
from .turn import Opening, Sink, Turn
from .under_way import UnderWay
from .upstreams import Upstream, from_environment

if TYPE_CHECKING:
    from ..mcp.server import Server
    from .published import Published

__all__ = ["Gateway", "OwnTools"]

_log = getLogger("toolwire.gateway")
_JSON = {"content-type": "application/json"}
_LAST_WORDS = 1.0  # seconds
_PROCESS = token_hex(8)
_numbers = count()
_MCP = "/mcp"
_LARGE = 64 * 1024  # bytes
_GONE = 499  # nginx's status for a client that closed the connection


class OwnTools(Struct, frozen=True):
    """Tools run by the gateway, by model pattern, and the server for MCP clients at `/mcp`."""

    runners: Mapping[str, Runner] = {}
    publish: Server | None = None
    publish_for: str = "*"  # the model pattern that a key must allow to use it


class Gateway:
    """The ASGI application for the upstreams of `settings`. Every sink is called at the end of every request.

    `transports` replaces the transport of an upstream, by name, for example with a model in this process. `runners` are
    tools run by the gateway, by model pattern. `retriever` chooses among a client's tools for a model with `retrieve`.
    `publish` is the server for MCP clients at `/mcp`. `publish_for` is the model pattern that a key must allow to use
    it.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        environment: Mapping[str, str] | None = None,
        transports: Mapping[str, Transport] | None = None,
        sinks: Sequence[Sink] = (),
        limiter: Limiter | None = None,
        memory: Memory | None = None,
        metrics: Callable[[], bytes] | None = None,
        runners: Mapping[str, Runner] | None = None,
        retriever: Retriever | None = None,
        publish: Server | None = None,
        publish_for: str = "*",
    ) -> None:
        self._environment = os.environ if environment is None else environment
        self._http = open_transport(self._environment, connections=settings.limits.connections)
        self._transports = transports or {}
        self._sinks = tuple(sinks)
        self._openings = tuple(sink.begin for sink in sinks if isinstance(sink, Opening))
        self._metrics = metrics
        self._limiter: Limiter = InProcess(time.monotonic) if limiter is None else limiter
        self._memory: Memory = in_memory(settings.state) if memory is None else memory
        self._runners = runners or {}
        self._retriever = retriever
        self._publish_for = publish_for
        self._published = None if publish is None else self._publish(publish)
        self._replaced: list[Published] = []
        self._is_up = False
        self._under_way, self._era = UnderWay(), UnderWay()
        self._draining = False
        self.apply(settings)

    def apply(self, settings: Settings, own: OwnTools | None = None) -> None:
        """Apply new settings to future requests; on ConfigError the old ones stay in place.

        `own` replaces the gateway's tools. The old tools can be closed after `settled` returns.
        """
        rows = settings.upstreams or from_environment(self._environment)
        upstreams = {
            name: Upstream(name, row, self._transports.get(name, self._http), self._environment)
            for name, row in rows.items()
        }
        router = Router(upstreams, settings.models, cooldown=settings.limits.cooldown, clock=time.monotonic)
        keys = Keys(settings.keys)
        server = settings.server
        self._settings, self._keys, self._router = settings, keys, router
        if own is not None:
            self._runners = own.runners
            self._publish_for = own.publish_for
            self._replace_published(own.publish)
        self._guard = Guard(server.hosts, server.origins, open_to_all=len(keys) > 0 and not server.hosts)
        cache = AnswerCache(time.monotonic)  # requests on the old settings keep the old cache
        self._means = Means(
            router, self._memory, settings.limits, time.monotonic, cache, self._runners, self._retriever
        )

    def _replace_published(self, server: Server | None) -> None:
        before = self._published
        if server is (None if before is None else before.server):
            return
        if before is not None:
            self._replaced.append(before)
        self._published = None if server is None else self._publish(server)
        if self._published is not None and self._is_up:
            self._published.start()

    async def settled(self) -> None:
        """Wait until the current requests are over, then close the replaced servers."""
        era, self._era = self._era, UnderWay()
        replaced, self._replaced = self._replaced, []
        for published in replaced:
            await published.end_sessions()
        await era.over.wait()
        for published in replaced:
            await published.aclose()

    @property
    def upstreams(self) -> list[str]:
        """The names of the available upstreams."""
        return self._router.upstreams

    @property
    def limits(self) -> LimitsRow:
        """The current limits."""
        return self._settings.limits

    def drain(self) -> None:
        """Fail the readiness probe from now on; requests are still answered."""
        self._draining = True
        if self._published is not None:
            self._ending = asyncio.ensure_future(self._published.end_sessions())

    def _publish(self, server: Server) -> Published:
        from .published import Published

        return Published(server, lambda: (self._guard, self._keys, self._publish_for))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if self._published is not None and scope["path"].rstrip("/") == _MCP:
                await self._mcp_request(self._published, scope, receive, send)
                return
            await self._http_request(Call(scope, receive, send), scope)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._is_up = True
                if self._published is not None:
                    self._published.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self._until_idle()
                if self._published is not None:
                    await self._published.aclose()
                await self._http.aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _mcp_request(self, published: Published, scope: Scope, receive: Receive, send: Send) -> None:
        call = Call(scope, receive, send)
        turn = Turn(_request_id(call), time.time(), "mcp", action="mcp")
        with self._counted(call, turn):
            try:
                caller = self._keys.known(call.headers)
                if caller is not None and caller.name:
                    turn.caller = caller.name
                    await self._limiter.admit(caller)
                await published(scope, call.received_within(self._settings.limits.slow_client), call.sent)
                if call.gone:
                    turn.status, turn.error = _GONE, "client_gone"
            except ToolwireError as error:
                await self._refuse(call, FRONTS["openai_chat"], turn, fault_from(error))
            except asyncio.CancelledError:
                if not self._draining:
                    raise
                uncancel()  # a stream that stays open as long as the server runs

    @contextmanager
    def _counted(self, call: Call, turn: Turn) -> Iterator[None]:
        """Count a request while it is answered, then notify the sinks."""
        began = time.perf_counter()
        era = self._era
        era.begin()
        self._under_way.begin()
        try:
            yield
        finally:
            era.end()
            self._under_way.end()
            call.unwatch()
            turn.seconds = time.perf_counter() - began
            turn.status = turn.status or call.status
            self._tell(turn)

    async def _until_idle(self) -> None:
        """Give cancelled requests time to write their final event."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                await self._under_way.over.wait()

    async def _http_request(self, call: Call, scope: Scope) -> None:
        front = dialect_of(call.path, call.headers)
        turn = Turn(_request_id(call), time.time(), front.wire)
        with self._counted(call, turn):
            try:
                self._guard.check(scope["headers"])
                place = self._place(call)
                front, turn.front, turn.action = place.front, place.front.wire, place.action
                await self._handle(call, place, turn)
            except asyncio.CancelledError:
                if not call.gone:
                    turn.error = "cancelled"
                    raise
                turn.status, turn.error = _GONE, "client_gone"
                uncancel()
            except ToolwireError as error:
                await self._refuse(call, front, turn, fault_from(error))
            except Exception:  # noqa: BLE001  # a bug of ours ends only this request
                _log.exception("request %s failed", turn.id)
                await self._refuse(call, front, turn, Fault("server", "the gateway failed; see its log", 500))

    def _tell(self, turn: Turn) -> None:
        for sink in self._sinks:
            try:
                sink(turn)
            except Exception:  # noqa: BLE001  # a failing sink must not affect the request
                _log.exception("a sink failed at the end of request %s", turn.id)

    def _begin(self, turn: Turn, asked: Asked, headers: Mapping[str, str]) -> None:
        turn.begun = True
        for begin in self._openings:
            try:
                begin(turn, asked, headers)
            except Exception:  # noqa: BLE001  # a failing sink must not affect the request
                _log.exception("a sink failed at the beginning of request %s", turn.id)

    def _place(self, call: Call) -> Place:
        place = place_of(call.method, call.path, call.headers)
        if place is not None:
            return place
        methods = methods_of(call.path)
        if methods:
            raise Refused(f"{call.method} is not allowed for this path", hint=f"use {' or '.join(methods)}", status=405)
        raise UnknownModel("unknown path", hint="see docs/gateway.md for the paths")

    async def _handle(self, call: Call, place: Place, turn: Turn) -> None:
        if place.action == "alive":
            await call.respond(200, _JSON, b'{"status":"ok"}')
        elif place.action == "ready":
            await call.respond(
                503 if self._draining else 200,
                _JSON,
                b'{"status":"draining"}' if self._draining else b'{"status":"ready"}',
            )
        else:
            caller = self._keys.caller(call.headers, call.query)
            turn.caller = caller.name
            try:
                if place.action == "generate":
                    await self._generate(call, place, caller, turn)
                else:
                    await self._look_up(call, place, caller)
            except UnknownModel as error:
                error.pointer, error.hint = place.model_at, error.hint or place.where_models_are
                raise

    async def _generate(self, call: Call, place: Place, caller: Caller, turn: Turn) -> None:
        asked = await self._read(call, place)
        turn.model, turn.stream = asked.model, asked.stream
        caller.check(asked.model)
        if caller.name:
            await self._limiter.admit(caller)
        self._begin(turn, asked, call.headers)
        call.watch()
        try:
            await Answering(self._means, call, asked, turn).run()
        finally:
            call.unwatch()
            if caller.name and turn.usage is not None:
                await self._limiter.spend(caller, turn.usage.total)

    async def _read(self, call: Call, place: Place) -> Asked:
        limits = self._settings.limits
        return Asked(place, await call.body(limits.body, limits.slow_client), call.headers, call.query)

    async def _look_up(self, call: Call, place: Place, caller: Caller) -> None:
        if place.action == "metrics" and self._metrics is not None:
            await call.respond(200, {"content-type": "text/plain; version=0.0.4; charset=utf-8"}, self._metrics())
            return
        if place.action == "count":
            asked = await self._read(call, place)
            caller.check(asked.model)
            if caller.name:
                await self._limiter.admit(caller)
            body: Object = count_reply(place.front.wire, _estimated(asked.body))
        elif place.action == "version":
            body = {"version": VERSION}
        elif place.action == "models":
            body = model_list(place.front.wire, self._names(caller))
        else:
            body = await self._entry(call, place, caller)
        await call.respond(200, _JSON, to_bytes(body))

    async def _entry(self, call: Call, place: Place, caller: Caller) -> Object:
        name = place.model or ""
        if place.front.wire == "ollama":
            limits = self._settings.limits
            document = parse_object(await call.body(limits.body, limits.slow_client))
            named: JSON = document.get("model", document.get("name"))
            name = named if isinstance(named, str) else ""
        caller.check(name)
        self._router.plan(name, tools=False)  # raises UnknownModel if no upstream has it
        return model_entry(place.front.wire, name)

    def _names(self, caller: Caller) -> list[str]:
        return [name for name in self._router.names if caller.may_use(name)]

    async def _refuse(self, call: Call, front: Front, turn: Turn, fault: Fault) -> None:
        turn.error = fault.kind
        if call.started or call.gone:
            return  # the connection is closed, so the client sees that the answer is incomplete
        status, body, headers = get(front.wire).encode_error(replace(fault, request_id=turn.id))
        await call.respond(status, {**_JSON, "x-request-id": turn.id, **headers}, to_bytes(body))


def _estimated(body: bytes) -> int:
    """Estimate tokens without the provider's tokenizer; for a large body, from its size only."""
    if len(body) > _LARGE:
        return len(body) // 4
    from ..audit.tokens import count_tokens

    return count_tokens(body.decode("utf-8"))


def _request_id(call: Call) -> str:
    given: str = call.headers.get("x-request-id", "")
    if given and len(given) <= 64 and given.isascii() and given.replace("-", "").replace("_", "").isalnum():
        return given
    return f"{_PROCESS}{next(_numbers):08x}"
