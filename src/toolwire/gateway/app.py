"""The gateway as an ASGI application: clients and upstreams may use any wire.

app = Gateway(load_settings(Path("toolwire.toml"))) # uvicorn module:app, or `toolwire serve`
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from logging import getLogger
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from ..asgi.http_exchange import HttpExchange, InFlight, uncancel
from ..asgi.offload import ClientOffload, Offload
from ..asgi.origin_policy import OriginPolicy, RequestRefused
from ..asgi.types import Receive, Scope, Send
from ..bridge.turns import InMemoryTurns, TurnStore
from ..ir.errors import ToolwireError
from ..ir.pointer import JSON, Object
from ..ir.response import Fault, fault_from
from ..ir.text import to_bytes
from ..net.capability_file import load_capability_rows
from ..net.http import Transport
from ..net.runner import Runner
from ..net.transports import open_transport
from ..stream.strict import parse_object
from ..wire import get
from ..wire.model_lists import model_entry, model_list
from .answer.cache import AnswerCache
from .answer.client_request import ClientRequest, read_client_request
from .answer.counted_body import find_counted_body
from .answer.document_limits import admit_document
from .answer.known_tools import KnownTools
from .answer.request_handler import Dependencies, RequestHandler
from .answer.response_records import WIRE
from .answer.response_state import ResponseState
from .answer.responses_api import ResponsesApi, StateRequest
from .answer.routing import Router, UnknownModel
from .observe.request_log import BeginSink, RequestLog, Sink, choose_request_id
from .retrieval.installed_encoder import find_encoder
from .retrieval.tool_ranker import ToolRanker
from .routes import (
    INGRESSES,
    VERSION,
    Ingress,
    Route,
    allowed_methods,
    count_reply,
    guess_ingress,
    match_route,
)
from .settings import LimitsRow, Settings, StateRow
from .shared.keys import Caller, ClientKeys
from .shared.limits import InProcessLimiter, Limiter
from .shared.memory_bound import MemoryBound, MemoryReservation
from .shared.response_store import ResponseStore
from .shared.response_stores import open_responses
from .upstreams import ConfiguredUpstream, upstreams_from_environment

if TYPE_CHECKING:
    from ..mcp.server.server import Server
    from ..retrieve.encoder import Encoder
    from .mcp_mount import McpMount

__all__ = ["Gateway", "ToolBindings"]

_log = getLogger("toolwire.gateway")
_JSON = {"content-type": "application/json"}
_SHUTDOWN_GRACE = 1.0  # seconds
_MCP = "/mcp"
_TOKENIZER_LIMIT = 64 * 1024  # bytes
_CLIENT_CLOSED_REQUEST = 499  # nginx's status for a client that closed the connection


class ToolBindings(Struct, frozen=True):
    """Tools run by the gateway, by model pattern, and the server for MCP clients at `/mcp`."""

    runners: Mapping[str, Runner] = {}
    publish: Server | None = None
    publish_for: str = "*"  # the model pattern that a key must allow to use it


class Gateway:
    """The ASGI application for the upstreams of `settings`. Every sink is called at the end of every request.

    `transports` replaces the transport of an upstream, by name, for example with a model in this process. `runners` are
    tools run by the gateway, by model pattern. `responses` stores conversations of OpenAI Responses; without it, the
    store of the settings is opened. `encoder` compares the meanings of tools and requests for models with `retrieve`;
    None compares keywords only.
    `publish` is the server for MCP clients at `/mcp`. `publish_for` is the model pattern that a key must allow to use
    it. `on_key` is called with every key that a key command prints, for redaction.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        environment: Mapping[str, str] | None = None,
        transports: Mapping[str, Transport] | None = None,
        sinks: Sequence[Sink] = (),
        limiter: Limiter | None = None,
        memory: TurnStore | None = None,
        responses: ResponseStore | None = None,
        metrics: Callable[[], bytes] | None = None,
        runners: Mapping[str, Runner] | None = None,
        encoder: Encoder | Literal["installed"] | None = "installed",
        publish: Server | None = None,
        publish_for: str = "*",
        on_key: Callable[[str], None] | None = None,
    ) -> None:
        self._on_key = on_key
        self._environment = os.environ if environment is None else environment
        self._http = open_transport(self._environment, connections=settings.limits.connections)
        self._transports = transports or {}
        self._sinks = tuple(sinks)
        self._begin_sinks = tuple(sink.begin for sink in sinks if isinstance(sink, BeginSink))
        self._metrics = metrics
        self._limiter: Limiter = InProcessLimiter(time.monotonic) if limiter is None else limiter
        self._memory: TurnStore = _new_memory(settings.state) if memory is None else memory
        self._responses = open_responses(settings.responses, self._environment) if responses is None else responses
        self._owns_responses = responses is None
        self._responses_row = settings.responses  # not reloaded, like the store itself
        self._runners = runners or {}
        self._encoder = encoder
        self._ranker: ToolRanker | None = None
        self.retrieval = ""  # a description of the selection of tools, once the settings need it
        self._publish_for = publish_for
        self._mcp_mount = None if publish is None else self._make_mcp_mount(publish)
        self._retired: list[McpMount] = []  # replaced servers, not yet closed
        self._started = False  # the ASGI server has sent its startup event
        self._in_flight, self._generation = InFlight(), InFlight()  # all requests; those since the last reload
        self._draining = False  # shutdown has begun
        self._offload = Offload()
        self._memory_bound = MemoryBound(settings.limits.memory)
        self.apply(settings)

    def apply(self, settings: Settings, tool_bindings: ToolBindings | None = None) -> None:
        """Apply new settings to future requests; on ConfigError the old ones stay in place.

        `tool_bindings` replaces the gateway's tools. The old tools can be closed after `drain_previous` returns.
        """
        rows = settings.upstreams or upstreams_from_environment(self._environment)
        capability_rows = () if settings.capabilities_file is None else load_capability_rows(settings.capabilities_file)
        upstreams = {
            name: ConfiguredUpstream(
                name,
                row,
                self._transports.get(name, self._http),
                self._environment,
                on_key=self._on_key,
                capability_rows=capability_rows,
            )
            for name, row in rows.items()
        }
        router = Router(upstreams, settings.models, cooldown=settings.limits.cooldown, clock=time.monotonic)
        keys = ClientKeys(settings.keys)
        server = settings.server
        self._settings, self._keys, self._router = settings, keys, router
        if tool_bindings is not None:
            self._runners = tool_bindings.runners
            self._publish_for = tool_bindings.publish_for
            self._replace_mcp_mount(tool_bindings.publish)
        self._origin_policy = OriginPolicy(server.hosts, server.origins, open_to_all=len(keys) > 0 and not server.hosts)
        cache = AnswerCache(time.monotonic)  # requests on the old settings keep the old cache
        self._memory_bound.limit = settings.limits.memory
        state = ResponseState(self._responses, self._responses_row, settings.limits, time.time)
        self._dependencies = Dependencies(
            router,
            self._memory,
            settings.limits,
            time.monotonic,
            cache,
            state,
            self._offload,
            KnownTools(),
            self._open_ranker(settings),
            self._runners,
        )
        self._responses_api = ResponsesApi(state, router, self._http, settings.limits.answer)

    def _open_ranker(self, settings: Settings) -> ToolRanker:
        """Return the selection of tools. The encoder is loaded only for settings with `retrieve`."""
        has_retrieval = any(row.retrieval is not None for row in settings.models.values())
        if has_retrieval and self._encoder == "installed":
            self._encoder, self.retrieval = find_encoder()
            _log.info("%s", self.retrieval)
            self._ranker = None
        if self._ranker is None:
            self._ranker = ToolRanker(None if self._encoder == "installed" else self._encoder, self._offload)
        return self._ranker

    def _replace_mcp_mount(self, server: Server | None) -> None:
        """Replace the MCP server.

        The old one is retired and is closed by `drain_previous`, after its requests have ended.
        """
        previous = self._mcp_mount
        if server is (None if previous is None else previous.server):
            return
        if previous is not None:
            self._retired.append(previous)
        self._mcp_mount = None if server is None else self._make_mcp_mount(server)
        if self._mcp_mount is not None and self._started:
            self._mcp_mount.start()

    async def drain_previous(self) -> None:
        """Wait until the current requests are over, then close the replaced servers."""
        generation, self._generation = self._generation, InFlight()
        replaced, self._retired = self._retired, []
        for mcp_mount in replaced:
            await mcp_mount.end_sessions()
        await generation.idle.wait()
        for mcp_mount in replaced:
            await mcp_mount.aclose()

    @property
    def upstreams(self) -> list[str]:
        """The names of the available upstreams."""
        return self._router.upstreams

    @property
    def ranker(self) -> ToolRanker:
        """The selection among clients' tools."""
        return self._dependencies.ranker

    @property
    def limits(self) -> LimitsRow:
        """The current limits."""
        return self._settings.limits

    def drain(self) -> None:
        """Fail the readiness probe from now on; requests are still answered."""
        self._draining = True
        if self._mcp_mount is not None:
            self._end_sessions_task = asyncio.ensure_future(self._mcp_mount.end_sessions())

    def _make_mcp_mount(self, server: Server) -> McpMount:
        from .mcp_mount import McpMount

        return McpMount(server, lambda: (self._origin_policy, self._keys, self._publish_for))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve an ASGI connection. The MCP server is at `/mcp`; WebSockets are not supported."""
        if scope["type"] == "http":
            if self._mcp_mount is not None and scope["path"].rstrip("/") == _MCP:
                await self._mcp_request(self._mcp_mount, scope, receive, send)
                return
            await self._http_request(HttpExchange(scope, receive, send), scope)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """Handle startup and shutdown of the ASGI server; shutdown waits briefly for in-flight requests."""
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._started = True
                if self._mcp_mount is not None:
                    self._mcp_mount.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self._wait_until_idle()
                if self._ranker is not None:
                    await self._ranker.aclose()
                if self._mcp_mount is not None:
                    await self._mcp_mount.aclose()
                await self._http.aclose()
                if self._owns_responses:
                    await self._responses.aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _mcp_request(self, mcp_mount: McpMount, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the MCP server within the limits of its key. The MCP server refuses unknown keys itself."""
        http_exchange = HttpExchange(scope, receive, send)
        request_log = self._begin_log(http_exchange, "mcp", "mcp")
        with self._track_request(http_exchange, request_log) as memory:
            try:
                caller = self._keys.identify_or_none(http_exchange.headers)
                if caller is not None and caller.name:
                    request_log.caller = memory.client = caller.name
                    await self._limiter.admit(caller)
                receive = http_exchange.bounded_receive(self._settings.limits.slow_client, memory.add)
                await mcp_mount(scope, receive, http_exchange.tracked_send)
                if http_exchange.disconnected:
                    request_log.status, request_log.error = _CLIENT_CLOSED_REQUEST, "client_gone"
            except ToolwireError as error:
                await self._respond_fault(http_exchange, INGRESSES["openai_chat"], request_log, fault_from(error))
            except asyncio.CancelledError:
                if not self._draining:
                    raise
                uncancel()  # a stream that stays open as long as the server runs

    def _begin_log(self, http_exchange: HttpExchange, ingress: str, action: str = "") -> RequestLog:
        method, path = http_exchange.method, http_exchange.path
        return RequestLog(choose_request_id(http_exchange), time.time(), ingress, action, method, path)

    @contextmanager
    def _track_request(self, http_exchange: HttpExchange, request_log: RequestLog) -> Iterator[MemoryReservation]:
        """Count a request and its memory while it is answered, then notify the sinks."""
        started_at = time.perf_counter()
        generation = self._generation
        generation.begin()
        self._in_flight.begin()
        memory = MemoryReservation(self._memory_bound)
        try:
            yield memory
        finally:
            memory.release()
            generation.end()
            self._in_flight.end()
            http_exchange.unwatch()
            request_log.seconds = time.perf_counter() - started_at
            request_log.status = request_log.status or http_exchange.status
            self._notify_sinks(request_log)

    async def _wait_until_idle(self) -> None:
        """Give cancelled requests time to write their final event."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_SHUTDOWN_GRACE):
                await self._in_flight.idle.wait()

    async def _http_request(self, http_exchange: HttpExchange, scope: Scope) -> None:
        """Answer a request; every failure is written in the client's own protocol.

        `ingress` is a guess until the route is known.
        """
        ingress = guess_ingress(http_exchange.path, http_exchange.headers)
        request_log = self._begin_log(http_exchange, ingress.wire)
        with self._track_request(http_exchange, request_log) as memory:
            try:
                self._origin_policy.check(scope["headers"], scope.get("http_version", "1.1"))
                route = self._find_route(http_exchange)
                ingress, request_log.ingress, request_log.action = route.ingress, route.ingress.wire, route.action
                await self._handle(http_exchange, route, request_log, memory)
            except asyncio.CancelledError:
                if not http_exchange.disconnected:
                    request_log.error = "cancelled"
                    raise
                request_log.status, request_log.error = _CLIENT_CLOSED_REQUEST, "client_gone"
                uncancel()
            except ToolwireError as error:
                await self._respond_fault(http_exchange, ingress, request_log, fault_from(error))
            except Exception:  # noqa: BLE001  # a bug of ours ends only this request
                _log.exception("request %s failed", request_log.id)
                await self._respond_fault(
                    http_exchange, ingress, request_log, Fault("server", "the gateway failed; see its log", 500)
                )

    def _notify_sinks(self, request_log: RequestLog) -> None:
        for sink in self._sinks:
            try:
                sink(request_log)
            except Exception:  # noqa: BLE001  # a failing sink must not affect the request
                _log.exception("a sink failed at the end of request %s", request_log.id)

    def _notify_begin(self, request_log: RequestLog, client_request: ClientRequest, headers: Mapping[str, str]) -> None:
        """Notify the sinks that also observe the beginning of a request, such as those for spans."""
        request_log.has_begun = True
        for begin in self._begin_sinks:
            try:
                begin(request_log, client_request, headers)
            except Exception:  # noqa: BLE001  # a failing sink must not affect the request
                _log.exception("a sink failed at the beginning of request %s", request_log.id)

    def _find_route(self, http_exchange: HttpExchange) -> Route:
        """Match the path; error 405 if it exists with other methods, 404 if it does not exist."""
        route = match_route(http_exchange.method, http_exchange.path, http_exchange.headers)
        if route is not None:
            return route
        methods = allowed_methods(http_exchange.path)
        if methods:
            raise RequestRefused(
                f"{http_exchange.method} is not allowed for this path", hint=f"use {' or '.join(methods)}", status=405
            )
        raise RequestRefused("unknown path", hint="see docs/gateway.md for the paths", status=404)

    async def _handle(
        self, http_exchange: HttpExchange, route: Route, request_log: RequestLog, memory: MemoryReservation
    ) -> None:
        """Answer probes without a key, and everything else with one. UnknownModel gets the pointer of this route."""
        if route.action == "alive":
            await http_exchange.respond(200, _JSON, b'{"status":"ok"}')
        elif route.action == "ready":
            await http_exchange.respond(
                503 if self._draining else 200,
                _JSON,
                b'{"status":"draining"}' if self._draining else b'{"status":"ready"}',
            )
        else:
            caller = self._keys.identify(http_exchange.headers, http_exchange.query)
            request_log.caller = memory.client = caller.name
            try:
                if route.action == "generate":
                    await self._generate(http_exchange, route, caller, request_log, memory)
                elif route.entry_id or route.action == "create_conversation":
                    await self._serve_state(http_exchange, route, caller, memory)
                else:
                    await self._serve_metadata(http_exchange, route, caller, memory)
            except UnknownModel as error:
                error.pointer, error.hint = route.model_pointer, error.hint or route.models_hint
                raise

    async def _generate(
        self,
        http_exchange: HttpExchange,
        route: Route,
        caller: Caller,
        request_log: RequestLog,
        memory: MemoryReservation,
    ) -> None:
        """Answer a request for a model within the limits of its key. Its usage is charged even if it fails."""
        client_request = await self._read_client_request(http_exchange, route, memory)
        request_log.model, request_log.stream = client_request.model, client_request.stream
        caller.check(client_request.model)
        if caller.name:
            await self._limiter.admit(caller)
        self._notify_begin(request_log, client_request, http_exchange.headers)
        await self._open_turn(client_request, caller, memory)
        http_exchange.watch()
        try:
            await RequestHandler(self._dependencies, http_exchange, client_request, request_log, memory).run()
        finally:
            http_exchange.unwatch()
            if client_request.turn is not None:
                await self._dependencies.responses.close_turn(client_request.turn)
            if caller.name and request_log.usage is not None:
                await self._limiter.spend(caller, request_log.usage.total)

    async def _open_turn(self, client_request: ClientRequest, caller: Caller, memory: MemoryReservation) -> None:
        """Resolve references of OpenAI Responses to stored state."""
        if client_request.wire.name != WIRE:
            return

        def may_keep() -> bool:
            plan = self._router.plan(client_request.model, tools=client_request.has_tools)
            return any(target.upstream.keeps_responses for target in plan)

        state, offload = self._dependencies.responses, ClientOffload(self._offload, caller.name)
        turn = await state.open_turn(
            state.access(caller.name, memory, offload),
            client_request.document,
            len(client_request.body),
            lambda: client_request.request,
            may_keep,
        )
        try:
            await offload.run(turn.size, client_request.continue_turn, turn)
        except BaseException:
            await state.close_turn(turn)
            raise

    async def _serve_state(
        self, http_exchange: HttpExchange, route: Route, caller: Caller, memory: MemoryReservation
    ) -> None:
        """Answer a request about stored responses or conversations, within the limits of its key."""
        if caller.name:
            await self._limiter.admit(caller)
        body, work_size = await self._read_document(http_exchange, memory)
        offload = ClientOffload(self._offload, caller.name)
        access = self._dependencies.responses.access(caller.name, memory, offload)
        state_request = StateRequest(access, route.entry_id, http_exchange.query, body, work_size)
        await http_exchange.respond(200, _JSON, await self._responses_api.answer(route.action, state_request))

    async def _read_client_request(
        self, http_exchange: HttpExchange, route: Route, memory: MemoryReservation
    ) -> ClientRequest:
        body, size = await self._read_document(http_exchange, memory)
        headers, query = http_exchange.headers, http_exchange.query
        return await self._offload.run(memory.client, size, read_client_request, route, body, headers, query, size)

    async def _read_document(self, http_exchange: HttpExchange, memory: MemoryReservation) -> tuple[bytes, int]:
        """Read a body that can be parsed within the limits on its size, its values and the memory of all requests.

        Return it with the size of the work that it makes.
        """
        limits = self._settings.limits
        body = await http_exchange.read_body(limits.body, limits.slow_client, memory.add)
        size = await admit_document(body, limits.values, ClientOffload(self._offload, memory.client), memory)
        return body, size

    async def _serve_metadata(
        self, http_exchange: HttpExchange, route: Route, caller: Caller, memory: MemoryReservation
    ) -> None:
        """Answer a request that needs no upstream: metrics, a token count, the version, or the models."""
        if route.action == "metrics" and self._metrics is not None:
            await http_exchange.respond(
                200, {"content-type": "text/plain; version=0.0.4; charset=utf-8"}, self._metrics()
            )
            return
        if route.action == "count":
            client_request = await self._read_client_request(http_exchange, route, memory)
            caller.check(client_request.model)
            if caller.name:
                await self._limiter.admit(caller)
            offload = ClientOffload(self._offload, caller.name)
            counted = await find_counted_body(client_request, self._router, self.ranker, caller.name, offload)
            body: Object = count_reply(route.ingress.wire, _estimate_tokens(counted))
        elif route.action == "version":
            body = {"version": VERSION}
        elif route.action == "models":
            body = model_list(route.ingress.wire, self._allowed_models(caller))
        else:
            body = await self._find_model_entry(http_exchange, route, caller, memory)
        await http_exchange.respond(200, _JSON, to_bytes(body))

    async def _find_model_entry(
        self, http_exchange: HttpExchange, route: Route, caller: Caller, memory: MemoryReservation
    ) -> Object:
        """Describe one model. Ollama's clients name it in the body, all others in the path."""
        name = route.model or ""
        if route.ingress.wire == "ollama":
            data, size = await self._read_document(http_exchange, memory)
            document = await self._offload.run(memory.client, size, parse_object, data)
            requested_model: JSON = document.get("model", document.get("name"))
            name = requested_model if isinstance(requested_model, str) else ""
        caller.check(name)
        self._router.plan(name, tools=False)  # raises UnknownModel if no upstream has it
        return model_entry(route.ingress.wire, name)

    def _allowed_models(self, caller: Caller) -> list[str]:
        return [name for name in self._router.names if caller.may_use(name)]

    async def _respond_fault(
        self, http_exchange: HttpExchange, ingress: Ingress, request_log: RequestLog, fault: Fault
    ) -> None:
        """Write a fault in the client's protocol, if no answer has begun."""
        request_log.error = fault.kind
        if http_exchange.started or http_exchange.disconnected:
            return  # the connection is closed, so the client sees that the answer is incomplete
        status, body, headers = get(ingress.wire).encode_error(replace(fault, request_id=request_log.id))
        await http_exchange.respond(status, {**_JSON, "x-request-id": request_log.id, **headers}, to_bytes(body))


def _new_memory(row: StateRow) -> TurnStore:
    return InMemoryTurns(row.turns, row.turn_bytes, row.turn_seconds, time.monotonic)


def _estimate_tokens(body: bytes) -> int:
    """Estimate tokens without the provider's tokenizer; for a large body, from its size only."""
    if len(body) > _TOKENIZER_LIMIT:
        return len(body) // 4
    from ..audit.tokens import count_tokens

    return count_tokens(body.decode("utf-8"))
