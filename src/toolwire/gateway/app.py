"""The gateway as an ASGI application: clients and upstreams may use any wire.

app = Gateway(load_settings(Path("toolwire.toml"))) # uvicorn module:app, or `toolwire serve`
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from logging import getLogger
from typing import TYPE_CHECKING, Literal, NoReturn

from msgspec.structs import replace

from ..asgi.access import OriginPolicy
from ..asgi.admission import Admission, max_requests
from ..asgi.cors import CrossOrigin
from ..asgi.http_exchange import BodyTooLarge, ClientGone, HeaderPairs, HttpExchange, InFlight, header_pairs
from ..asgi.offload import ClientOffload, Offload
from ..asgi.request import Receive, Scope, Send, find_path, serve_lifespan
from ..bridge.conversation.reasoning_envelope import ReasoningEnvelopes
from ..bridge.conversation.turns import InMemoryTurns, TurnStore
from ..ir.errors import ToolwireError
from ..ir.response import Fault, fault_from
from ..ir.text import to_bytes
from ..net.http.transport import Transport
from ..net.model.endpoint_settings import load_capability_rows
from ..net.model.translation_cache import TranslationCache
from ..net.tools.runner import Runner
from .config.credentials import configured_metrics_key, configured_secrets, make_secret
from .config.settings import LimitsRow, Settings, StateRow
from .faults import INTERNAL_FAULT, SHUTDOWN_FAULT, Overloaded
from .gateway_tools import ToolBindings
from .hosted_tools import HostedService
from .keys import Caller, ClientKeys, InProcessLimiter, Limiter, MetricsAccess
from .memory import MemoryBound, MemoryReservation
from .metadata_api import MetadataApi
from .observe.metrics import Metrics
from .observe.request_ids import choose_request_id
from .observe.request_log import BeginSink, RequestLogWriter, Sink
from .relay.objects import ObjectOwners
from .relay.paths import RelayRoute, find_route, relayed_methods
from .relay.realtime import is_realtime, serve_realtime
from .relay.relay import RelayApi, RelayLinks
from .request.body import EnvelopeFound
from .request.client_request import ClientRequest, KnownTools, ModelMissing
from .request.dependencies import AnswerCache, Dependencies, open_response
from .request.reader import RequestReader
from .request.routes import (
    INGRESSES,
    UPGRADE_HEADERS,
    UPGRADE_REQUIRED,
    Ingress,
    Route,
    encode_overload,
    guess_ingress,
    match_route,
    unknown_path_error,
)
from .responses.records import interaction_not_stored
from .responses.state import ResponseState
from .responses.store import ResponseStore
from .retrieval.tool_ranker import ToolRanker, find_encoder
from .routing.health import HealthTable
from .routing.media_descriptions import MediaDescriptions
from .routing.router import Router, UnknownModel
from .routing.upstreams import ConfiguredUpstream, UpstreamTransports, upstreams_from_environment
from .state.opening import open_responses
from .stored.background import BackgroundRuns, is_background
from .stored.responses_api import ResponsesApi
from .usual_request import answer
from .websocket.open_sockets import SWITCHED, OpenSockets

if TYPE_CHECKING:
    from ..mcp.server.server import Server
    from ..retrieve.vectors import Encoder
    from .mcp_mount import McpMount


_log = getLogger("toolwire.gateway")
_JSON: HeaderPairs = [(b"content-type", b"application/json")]
_PROBES = ("alive", "ready", "metrics")  # they are served under overload, too
_SHUTDOWN_GRACE = 1.0  # seconds; a final event takes milliseconds, unless the client does not read
_MCP = "/mcp"


class Gateway:
    """The ASGI application for the upstreams of `settings`. Every sink is called at the end of every request.

    `transports` replaces the transport of an upstream, by name, for example with a model in this process. `runners` are
    tools run by the gateway, by model pattern. `limiter` counts the requests and tokens of keys, and `turn_store` has
    turns that clients cannot return in full; without them, this gateway has its own. `metrics` renders the page
    `/metrics`; without client keys and a metrics key, everyone can read it. `environment` has the keys of upstreams; by
    default, the process's own. `responses` stores conversations of OpenAI Responses; without it, the store of the
    settings is opened. `cooldowns` shares the cooldowns of failed
    targets; without it, this gateway has its own. `encoder` compares the meanings of tools and requests for models with
    `retrieve`; None compares keywords only. `publish` is the server for MCP clients at `/mcp`. `publish_for` is the
    model pattern that a key must allow to use it. `on_key` is called with every key that a key command prints, for
    redaction. `requires_key` rejects clients without a key even if the settings have no keys. `secret` signs reasoning
    for clients if the settings have no secret; without it, this gateway makes its own, which no other process knows.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        environment: Mapping[str, str] | None = None,
        transports: Mapping[str, Transport] | None = None,
        sinks: Sequence[Sink] = (),
        limiter: Limiter | None = None,
        turn_store: TurnStore | None = None,
        responses: ResponseStore | None = None,
        cooldowns: HealthTable | None = None,
        metrics: Callable[[], bytes] | None = None,
        runners: Mapping[str, Runner] | None = None,
        hosted: Mapping[str, HostedService] | None = None,
        encoder: Encoder | Literal["installed"] | None = "installed",
        publish: Server | None = None,
        publish_for: str = "*",
        on_key: Callable[[str], None] | None = None,
        requires_key: bool = False,
        secret: str | None = None,
    ) -> None:
        self._on_key = on_key
        self._secret = make_secret() if secret is None else secret
        self._environment = os.environ if environment is None else environment
        self._http = UpstreamTransports(self._environment, settings)
        self._transports = transports or {}
        self._sinks = tuple(sinks)
        self._begin_sinks = tuple(sink.begin for sink in sinks if isinstance(sink, BeginSink))
        self._sinks_read_requests = any(getattr(sink, "reads_requests", False) for sink in sinks)
        self._metrics = metrics
        self._limiter: Limiter = InProcessLimiter(time.monotonic) if limiter is None else limiter
        self._turn_store: TurnStore = _open_turn_store(settings.state) if turn_store is None else turn_store
        self._responses = open_responses(settings.responses, self._environment) if responses is None else responses
        self._health = HealthTable(time.monotonic) if cooldowns is None else cooldowns
        self._health.processes = settings.server.workers
        self._translations = TranslationCache(settings.limits.translations)
        self._owns_responses = responses is None
        self._responses_row = settings.responses  # not reloaded, like the store itself
        self._runners = runners or {}
        self._hosted = hosted or {}
        self._encoder = encoder
        self._ranker: ToolRanker | None = None
        self.retrieval = ""  # a description of the selection of tools, once the settings need it
        self._publish_for = publish_for
        self._mcp_mount = None if publish is None else self._make_mcp_mount(publish)
        self._retired: list[McpMount] = []  # replaced servers, not yet closed
        self._generation = InFlight()  # the requests since the last reload
        self._older_generations: list[InFlight] = []  # replaced ones with requests in flight
        self._draining = False  # shutdown has begun
        self._offload = Offload()
        self.admission = Admission(
            settings.limits.requests or max_requests(settings.server.workers),
            settings.limits.loop_delay,
        )
        for sink in sinks:
            if isinstance(sink, Metrics):
                sink.watch_health(self._health)
                sink.watch_translations(self._translations)
                sink.watch_load(self.admission, lambda: self._http.waiting)
        self._memory_bound = MemoryBound(settings.limits.memory)
        self._sockets = OpenSockets(self._answer, self.admission, self._memory_bound, self._offload)
        self._runs = BackgroundRuns(self._answer, self._memory_bound, self._offload)
        self._reader = RequestReader(
            self._offload, self.admission, self._translations, may_stream=not self._sinks_read_requests
        )
        self._keys = ClientKeys(settings.keys, is_required=requires_key)
        self.apply(settings)

    def apply(self, settings: Settings, tool_bindings: ToolBindings | None = None, secret: str | None = None) -> None:
        """Apply new settings to future requests. Raise ConfigError if they are invalid; the old ones then stay in place.

        A gateway that has had keys goes on to require one: without the last key it rejects every client.
        `tool_bindings` replaces the gateway's tools. The old tools can be closed after `drain_previous` returns.
        `secret` replaces the secret that is used for settings without their own.
        """
        rows = settings.upstreams or upstreams_from_environment(self._environment)
        self._http.reload(rows)
        capability_rows = () if settings.capabilities_file is None else load_capability_rows(settings.capabilities_file)
        upstreams = {
            name: ConfiguredUpstream(
                name,
                row,
                self._transports.get(name) or self._http.for_answers(name, row),
                self._environment,
                on_key=self._on_key,
                capability_rows=capability_rows,
            )
            for name, row in rows.items()
        }
        router = Router(
            upstreams,
            settings.models,
            cooldown=settings.limits.cooldown,
            health=self._health,
        )
        keys = ClientKeys(settings.keys, is_required=self._keys.is_required)
        server = settings.server
        self._secret = self._secret if secret is None else secret
        envelopes = ReasoningEnvelopes(configured_secrets(server, self._environment) or [self._secret])
        metrics_key = configured_metrics_key(server, self._environment)
        self._settings, self._keys, self._router = settings, keys, router
        self._metrics_access = MetricsAccess(keys, metrics_key)
        if tool_bindings is not None:
            self._runners, self._hosted = tool_bindings.runners, tool_bindings.hosted
            self._publish_for = tool_bindings.publish_for
            self._replace_mcp_mount(tool_bindings.publish)
        self._origin_policy = OriginPolicy(
            server.hosts, server.origins, open_to_all=keys.is_required and not server.hosts
        )
        self._cross_origin = CrossOrigin(server.origins) if server.cors else None
        cache = AnswerCache(time.monotonic)  # requests on the old settings keep the old cache
        self._memory_bound.limit = settings.limits.memory
        self.admission.max_delay = self._offload.max_delay = settings.limits.loop_delay
        self._translations.max_bytes = settings.limits.translations
        state = ResponseState(self._responses, self._responses_row, settings.limits, time.time)
        self._dependencies = Dependencies(
            router,
            self._turn_store,
            settings.limits,
            time.monotonic,
            cache,
            state,
            self._offload,
            KnownTools(),
            self._open_ranker(settings),
            envelopes,
            MediaDescriptions(router, time.monotonic),
            self._runners,
            self._hosted,
        )
        self._sockets.close_revoked(keys)
        self._responses_api = ResponsesApi(
            self._dependencies, self._reader, self._limiter, self._http, self._runs, self._answer
        )
        owners = ObjectOwners(self._responses) if self._responses_row.is_persistent else None
        links = RelayLinks(self._http, self._health, self._sockets)
        self._relay_api = RelayApi(self._dependencies, self._reader, self._limiter, links, settings.relay, owners)
        self._metadata_api = MetadataApi(
            self._dependencies, self._reader, self._limiter, self._metrics, has_mcp=self._mcp_mount is not None
        )

    def _open_ranker(self, settings: Settings) -> ToolRanker:
        """Return the tool ranker, which reloads share. The first settings with `retrieve` load the encoder and log it."""
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

    async def drain_previous(self) -> None:
        """End the sessions of replaced MCP servers, wait until the current requests are over, and close the servers."""
        generation, self._generation = self._generation, InFlight()
        self._older_generations.append(generation)
        replaced, self._retired = self._retired, []
        for mcp_mount in replaced:
            await mcp_mount.end_sessions()
        await generation.wait_until_idle()
        self._older_generations.remove(generation)
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
    def requires_key(self) -> bool:
        """Return whether clients need a key."""
        return self._keys.is_required

    @property
    def limits(self) -> LimitsRow:
        """The current limits."""
        return self._settings.limits

    def drain(self) -> None:
        """Fail the readiness probe from now on; requests are still answered."""
        self._draining = True
        self._sockets.drain()
        if self._mcp_mount is not None:
            self._end_sessions_task = asyncio.ensure_future(self._mcp_mount.end_sessions())

    def _make_mcp_mount(self, server: Server) -> McpMount:
        from .mcp_mount import McpMount

        return McpMount(server, lambda: (self._origin_policy, self._keys, self._publish_for))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve an ASGI connection. The MCP server is at `/mcp`, and WebSockets are served at `/v1/responses`."""
        if scope["type"] == "http":
            if self._cross_origin is not None:
                allowed = self._cross_origin.preflight(scope)
                if allowed is not None:
                    await HttpExchange(scope, receive, send).respond(200, allowed, b"")
                    return
                send = self._cross_origin.wrap(scope, send)
            if self._mcp_mount is not None and find_path(scope).rstrip("/") == _MCP:
                await self._mcp_request(self._mcp_mount, scope, receive, send)
                return
            http_exchange = HttpExchange(scope, receive, send)
            route = match_route(http_exchange.method, http_exchange.path, http_exchange.headers)
            if route is None and self._settings.relay.enabled:
                route = find_route(
                    http_exchange.method, http_exchange.path, http_exchange.headers, self._settings.relay.paths
                )
            await self._answer(http_exchange, scope, route)
        elif scope["type"] == "lifespan":
            await serve_lifespan(self.lifespan(), receive, send)
        elif scope["type"] == "websocket":
            if self._settings.relay.enabled and is_realtime(find_path(scope)):
                await serve_realtime(scope, receive, send, self._answer)
            else:
                await self._sockets.serve(scope, receive, send, self._keys, self._settings.limits.body)

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """Close the gateway at the end of an application that mounts it, which alone gets the server's events.

        Requests in flight have a second to end.

        app = Starlette(routes=[Mount("/llm", app=gateway)], lifespan=gateway.lifespan)
        """
        try:
            yield
        finally:
            await self._runs.aclose()
            await self._wait_until_idle()
            if self._ranker is not None:
                await self._ranker.aclose()
            if self._mcp_mount is not None:
                await self._mcp_mount.aclose()
            await self._http.aclose()
            if self._owns_responses:
                await self._responses.aclose()

    def encode_refusal(self, method: str, path: str, headers: HeaderPairs) -> tuple[int, HeaderPairs, bytes]:
        """Return an answer to a refused request in the client's protocol, with a request id like every other answer."""
        fields = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
        route = match_route(method, path, fields)
        status, pairs, body = encode_overload(guess_ingress(path, fields) if route is None else route.ingress)
        return status, [(b"x-request-id", choose_request_id(fields.get("x-request-id", "")).encode()), *pairs], body

    async def _mcp_request(self, mcp_mount: McpMount, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the MCP server within the limits of its key, and report a refusal to the client.

        The MCP server refuses unknown keys itself.
        """
        http_exchange = HttpExchange(scope, receive, send)
        log_writer = RequestLogWriter(http_exchange, "mcp", "mcp")
        memory = MemoryReservation(self._memory_bound)
        generation = self._generation
        generation.begin()
        self.admission.in_flight += 1
        try:
            if self.admission.in_flight > self.admission.limit:
                self._refuse_excess()
            caller = self._keys.identify_or_none(http_exchange.headers, {})
            if caller is not None and caller.name:
                memory.client = caller.name
                log_writer.set_caller(caller.name)
                await self._limiter.admit(caller)
            receive = http_exchange.bounded_receive(self._settings.limits.slow_client, memory.add)
            await mcp_mount(scope, receive, http_exchange.tracked_send)
            if http_exchange.disconnected:
                log_writer.lose_client()
        except ToolwireError as error:
            await self._respond_fault(http_exchange, INGRESSES["openai_chat"], log_writer, fault_from(error))
        except asyncio.CancelledError:
            http_exchange.interruption.attach()
            if not self._draining or not http_exchange.interruption.caught("server_stop"):
                raise  # else a stream that stays open as long as the server runs
        finally:
            self._end_request(generation, http_exchange, log_writer, memory)

    def _end_request(
        self, generation: InFlight, http_exchange: HttpExchange, log_writer: RequestLogWriter, memory: MemoryReservation
    ) -> None:
        """Free the memory of a request, count it as ended, stop watching its client, and notify the sinks."""
        memory.release()
        self.admission.in_flight -= 1
        generation.end()
        http_exchange.unwatch()
        request_log = log_writer.end(http_exchange.status)
        for sink in self._sinks:
            try:
                sink(request_log)
            except Exception:  # noqa: BLE001  # a failing sink must not affect the request
                _log.exception("a sink failed at the end of request %s", request_log.id)

    async def _wait_until_idle(self) -> None:
        """Give cancelled requests time to write their final event."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_SHUTDOWN_GRACE):
                for generation in (*self._older_generations, self._generation):
                    await generation.wait_until_idle()

    async def _answer(self, http_exchange: HttpExchange, scope: Scope, route: Route | None) -> None:
        """Answer and log a request, and notify the sinks. Every failure is written in the client's own protocol.

        For an unknown path, whose `route` is None, that protocol is a guess.
        """
        ingress = guess_ingress(http_exchange.path, http_exchange.headers) if route is None else route.ingress
        log_writer = RequestLogWriter(http_exchange, ingress.wire, "" if route is None else route.action)
        memory = MemoryReservation(self._memory_bound)
        generation = self._generation
        generation.begin()
        self.admission.in_flight += 1
        try:
            self._origin_policy.check(scope["headers"], scope.get("http_version", "1.1"))
            if route is None:
                relayed = relayed_methods(http_exchange.path) if self._settings.relay.enabled else []
                raise unknown_path_error(http_exchange, relayed)
            if self.admission.in_flight > self.admission.limit and route.action not in _PROBES:
                self._refuse_excess()
            if route.action == "generate":
                await self._generate(http_exchange, route, log_writer, memory)
            elif isinstance(route, RelayRoute):
                caller = self._identify(http_exchange, log_writer, memory)
                await self._relay_api.answer(http_exchange, route, caller, memory, log_writer, scope)
            else:
                await self._serve_other(http_exchange, route, log_writer, memory)
        except ClientGone:
            log_writer.lose_client()
        except asyncio.CancelledError:
            http_exchange.interruption.attach()
            if http_exchange.interruption.caught("client_gone"):
                log_writer.lose_client()
            elif self._draining and http_exchange.interruption.caught("server_stop"):
                await self._respond_fault(http_exchange, ingress, log_writer, SHUTDOWN_FAULT)
            else:
                log_writer.fail("cancelled")
                raise
        except ToolwireError as error:
            self._add_hint(error, route, http_exchange)
            await self._respond_fault(http_exchange, ingress, log_writer, fault_from(error))
        except Exception:  # noqa: BLE001  # a bug in the gateway ends only this request
            _log.exception("request %s failed", log_writer.log.id)
            await self._respond_fault(http_exchange, ingress, log_writer, INTERNAL_FAULT)
        finally:
            self._end_request(generation, http_exchange, log_writer, memory)

    def _refuse_excess(self) -> NoReturn:
        """Refuse a request because too many are in flight. Only `toolwire serve` does this before a request starts."""
        self.admission.refuse_excess()
        raise Overloaded

    def _notify_begin(
        self, log_writer: RequestLogWriter, client_request: ClientRequest, headers: Mapping[str, str]
    ) -> None:
        """Notify the sinks that also observe the beginning of a request, such as sinks for spans. Log their errors."""
        for begin in self._begin_sinks:
            try:
                begin(log_writer.log, client_request, headers)
            except Exception:  # noqa: BLE001  # a failing sink must not affect the request
                _log.exception("a sink failed at the beginning of request %s", log_writer.log.id)

    def _identify(self, http_exchange: HttpExchange, log_writer: RequestLogWriter, memory: MemoryReservation) -> Caller:
        """Identify the client by its key, for the memory and the log, too. Raise UnknownKey if it has none."""
        caller = self._keys.identify(http_exchange.headers, http_exchange.query)
        memory.client = caller.name
        log_writer.set_caller(caller.name)
        return caller

    async def _generate(
        self, http_exchange: HttpExchange, route: Route, log_writer: RequestLogWriter, memory: MemoryReservation
    ) -> None:
        """Answer a request for a model within the limits of its key. Its usage is charged even if it fails.

        A streamed body in which an envelope is found is read whole, and the request begins again.
        """
        caller, dependencies = self._identify(http_exchange, log_writer, memory), self._dependencies
        offload = ClientOffload(self._offload, caller.name, self._reader.refuse_late)
        client_request = await self._reader.read_request(http_exchange, route, memory, dependencies, caller, offload)
        log_writer.set_request(client_request)
        if not caller.has_all_models:
            await client_request.check_caller(caller, offload)
        if caller.name and not route.entry_id:  # the request that began a background response was admitted
            await self._limiter.admit(caller)
        log_writer.begin()
        if self._begin_sinks:
            if self._sinks_read_requests:
                await offload.run(client_request.work_size, client_request.decode)
            self._notify_begin(log_writer, client_request, http_exchange.headers)
        if route.ingress.stores_responses:
            if is_background(client_request) and not self._keeps_responses(client_request):
                await self._runs.start(http_exchange, client_request, caller.name, dependencies.responses)
                return
            await open_response(client_request, caller, memory, dependencies, offload, route.entry_id)
        if client_request.upload is None:  # else its end begins the watch
            http_exchange.watch()
        try:
            try:
                await answer(dependencies, http_exchange, client_request, log_writer, memory, offload)
            except EnvelopeFound:
                if client_request.upload is None:
                    raise
                client_request = await self._reader.read_whole_request(
                    client_request.upload, http_exchange, route, memory, dependencies, offload
                )
                log_writer.set_request(client_request)
                await client_request.check_caller(caller, offload)
                http_exchange.watch()
                await answer(dependencies, http_exchange, client_request, log_writer, memory, offload)
        finally:
            http_exchange.unwatch()
            if client_request.pending_response is not None:
                await dependencies.responses.close_response(client_request.pending_response)
            usage = log_writer.log.usage
            if usage is not None and caller.name:
                await self._limiter.spend(caller, usage.total)

    def _keeps_responses(self, client_request: ClientRequest) -> bool:
        """Return whether the first upstream of the model stores responses itself."""
        plan = self._dependencies.router.plan(client_request.model, tools=client_request.has_tools)
        return plan[0].upstream.keeps_responses

    async def _serve_other(
        self, http_exchange: HttpExchange, route: Route, log_writer: RequestLogWriter, memory: MemoryReservation
    ) -> None:
        """Answer a request that needs no model: probes without a key, and everything else with one."""
        if route.action == "alive" or route.action == "ready":
            await self._metadata_api.write_state(http_exchange, route, is_draining=self._draining)
        elif route.action == "metrics":
            self._metrics_access.check(http_exchange.headers, http_exchange.query)
            await self._metadata_api.write_metrics(http_exchange)
        else:
            caller = self._identify(http_exchange, log_writer, memory)
            if route.action == "connect":
                await http_exchange.start(SWITCHED, [])
            elif route.action == "prepare":
                await self._responses_api.prepare(http_exchange, route, caller, memory, log_writer)
            elif route.action == "stored_interaction":
                raise interaction_not_stored(route.entry_id)
            elif route.entry_id or route.action in ("create_conversation", "compact"):
                await self._responses_api.answer(http_exchange, route, caller, memory)
            else:
                await self._metadata_api.answer(http_exchange, route, caller, memory)

    def _add_hint(self, error: ToolwireError, route: Route | None, http_exchange: HttpExchange) -> None:
        """Set the hint, and for a model its pointer, of an error whose origin knows neither path nor settings."""
        if isinstance(error, (UnknownModel, ModelMissing)) and route is not None:
            caller = self._keys.identify_or_none(http_exchange.headers, http_exchange.query)
            models = ""
            if caller is not None and isinstance(error, UnknownModel):
                models = self._dependencies.router.describe_models(error.model, caller.may_use)
            error.pointer = route.model_pointer
            listing = f"GET {http_exchange.root_path}{route.ingress.models} lists the models"
            error.hint = f"{models}; {listing}" if models else listing
        elif isinstance(error, BodyTooLarge):
            error.hint = error.hint or "send less data; the gateway's operator can raise limits.body"

    async def _respond_fault(
        self, http_exchange: HttpExchange, ingress: Ingress, log_writer: RequestLogWriter, fault: Fault
    ) -> None:
        """Log a fault, and write it in the client's protocol if no answer has begun."""
        log_writer.confirm_model(self._settings.models)
        log_writer.fail(fault.kind, fault.code)
        if http_exchange.started or http_exchange.disconnected:
            return  # the connection is closed, so the client sees that the answer is incomplete
        status, body, headers = ingress.encode_error(replace(fault, request_id=log_writer.log.id))
        status = status if 400 <= status < 600 else 502  # a transport in this process may return any status
        # The headers of a protocol come last: some set their own request id.
        pairs = [*_JSON, *header_pairs({"x-request-id": log_writer.log.id, **headers})]
        if status == UPGRADE_REQUIRED:
            pairs += UPGRADE_HEADERS
        await http_exchange.respond(status, pairs, to_bytes(body))


def _open_turn_store(row: StateRow) -> TurnStore:
    return InMemoryTurns(row.turns, row.turn_bytes, row.turn_seconds, time.monotonic)
