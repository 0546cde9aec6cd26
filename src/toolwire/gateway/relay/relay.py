"""Relay requests besides chats to an upstream of the same API: both bodies are passed on while they arrive.

    the key         its limits, and whether it may use the model
    the targets     by the model, by the owner of the ids in the request, or the only upstream with this API
    the attempts    in turn, until one answers; a body that was sent on, and a POST about objects, are never repeated
    the answer      its bytes as they are; documents about objects are read, because their ids get an owner

Nothing is held but one piece in each direction: a side that reads slowly pauses the other one, and the end of one side ends
the other one. An upstream that neither reads nor writes for its `idle` seconds counts as failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from time import perf_counter
from typing import NamedTuple

from msgspec import Struct

from ...asgi.access import RequestRefused
from ...asgi.http_exchange import HeaderPairs, HttpExchange
from ...asgi.request import Scope
from ...ir.errors import ProtocolError, ToolwireError
from ...ir.pointer import Object
from ...ir.response import Fault, UpstreamError
from ...ir.text import to_bytes
from ...net.http.transport import Reply, RequestBody, StreamedBody
from ...net.model.endpoint_request import parse_or_raw, redact_secrets
from ...net.model.key_command import KeyCommandError
from ...net.model.replies import forwarded_headers, read_reply_body
from ...net.model.upstream_exchange import ERROR_LIMIT, resolve_retry_after
from ...stream.strict import parse_object
from ..answer.request_handler import AttemptPlan
from ..config.settings import RelayRow
from ..faults import as_gateway_fault, key_fault_of, network_fault_of
from ..keys import Caller, Limiter
from ..memory import MemoryReservation
from ..observe.request_log import RequestLogWriter
from ..request.dependencies import Dependencies
from ..request.reader import RequestReader
from ..routing.health import HealthTable
from ..routing.router import Target
from ..routing.upstreams import UpstreamTransports
from ..websocket.open_sockets import OpenSockets
from .bodies import BodyReader, UploadedBody
from .objects import ObjectOwners, created_ids, listed_ids, owned_page
from .paths import RelayRoute
from .realtime import REALTIME, QueryBody, RealtimeRelay
from .targets import RelayRequest, RelayTargets
from .upstream_form import Addressed, EmbeddingTranslation, address_of, renamed_document
from .usage import UsageScan

_MAX_SECONDS = 24 * 3600.0  # of a transfer that makes progress: 2 GiB in a day are 24 KB a second
_RETRYABLE_OBJECT_FAULTS = frozenset({"rate_limit", "overloaded", "timeout", "server"})
_MAX_PAGES = 20  # of an upstream's list, for one page of a client: 2,000 objects of other clients
_SCANNED_TYPES = ("application/json", "text/event-stream", "application/x-ndjson", "application/jsonl")
_KEPT_HEADERS = ("content-type", "content-disposition", "cache-control", "content-range", "accept-ranges")
_NO_STORE = 'set store in [responses], as in store = "objects.db": it keeps which key owns an object'


class RelayFailure(Struct):
    """A failed attempt. `was_sent` is False if the upstream certainly got nothing."""

    fault: Fault
    was_sent: bool = True


class RelayLinks(NamedTuple):
    """The connections of a gateway, which outlive its settings."""

    transports: UpstreamTransports
    health: HealthTable
    sockets: OpenSockets


class RelayApi:
    """The relay on one version of the settings. `owners` is None without a persistent store."""

    def __init__(
        self,
        dependencies: Dependencies,
        reader: RequestReader,
        limiter: Limiter,
        links: RelayLinks,
        row: RelayRow,
        owners: ObjectOwners | None,
    ) -> None:
        self._dependencies = dependencies
        self._limiter = limiter
        self._transports = links.transports
        self._owners = owners
        self._realtime = RealtimeRelay(links.transports, limiter, links.sockets)
        self._targets = RelayTargets(dependencies.router, links.health, row, owners, reader)
        self._bodies = BodyReader(dependencies.limits, row.max_bytes, reader)

    async def answer(
        self,
        http_exchange: HttpExchange,
        route: RelayRoute,
        caller: Caller,
        memory: MemoryReservation,
        log_writer: RequestLogWriter,
        scope: Scope,
    ) -> None:
        """Answer a request within the limits of its key. Raise UpstreamError, and the errors of the request."""
        relay = route.relay
        if route.collection and self._owners is None:
            raise RequestRefused("this gateway keeps no objects of clients", hint=_NO_STORE, status=501)
        if relay.runs_models and not caller.has_all_models:
            message = f"the key {caller.name!r} allows only some models, and the model is not in the request"
            raise RequestRefused(message, hint="use a key for all models")
        if caller.name:
            await self._limiter.admit(caller)
        if route is REALTIME:
            query = QueryBody(http_exchange.query)
            session = RelayRequest(http_exchange, route, caller, memory, log_writer, scope, query)
            log_writer.set_relay(query.model or "")
            await self._realtime.run(session, (await self._targets.find(session))[0])
            return
        needs_model = relay.model in ("required", "optional")
        # JSON that is sent on while it arrives would reach the upstream before the owners of its ids are known.
        may_stream = not relay.is_embedding and self._owners is None
        body = await self._bodies.open(
            http_exchange, memory, caller, route.path_model, needs_model=needs_model, may_stream=may_stream
        )
        request = RelayRequest(http_exchange, route, caller, memory, log_writer, scope, body)
        log_writer.set_relay(request.model or "")
        log_writer.begin()
        try:
            await self._try_targets(request, await self._targets.find(request))
        finally:
            usage = log_writer.log.usage
            if usage is not None and caller.name:
                await self._limiter.spend(caller, usage.total)

    # The attempts.

    async def _try_targets(self, request: RelayRequest, targets: Sequence[Target]) -> None:
        """Try the targets in turn. Raise UpstreamError with the last fault if none answers."""
        dependencies, log_writer = self._dependencies, request.log_writer
        plan = AttemptPlan(targets, dependencies.router, dependencies.clock)
        fault: Fault | None = None
        while True:
            target = plan.next_target()
            if target is None:
                wait = None if fault is None else plan.wait_after_refusal(fault)
                if wait is None:
                    raise UpstreamError(fault or plan.refusal())
                await asyncio.sleep(wait)
                continue
            log_writer.count_attempt()
            started = perf_counter()
            try:
                failed = await self._attempt(request, target, started)
            except BaseException:
                target.health.release_trial(plan.sent_at)
                raise
            if failed is None:
                plan.succeed(target, failed_late=False)
                return
            fault = as_gateway_fault(failed.fault, target.upstream.name)
            log_writer.fail_attempt(target.upstream.name, failed.fault.kind)
            wait = self._wait_after(request, plan, target, failed)
            if wait is None:
                raise UpstreamError(fault)
            await asyncio.sleep(wait)

    def _wait_after(
        self, request: RelayRequest, plan: AttemptPlan, target: Target, failed: RelayFailure
    ) -> float | None:
        """Return the seconds until the next attempt, or None if the fault is final. Note it for the target's health.

        An answer about an object, such as a 404, is no failure of the upstream.
        """
        if request.route.collection and failed.fault.kind not in _RETRYABLE_OBJECT_FAULTS:
            plan.succeed(target, failed_late=False)
            return None
        wait = plan.wait_after(failed.fault, target)
        may_repeat = not request.body.is_sent and not (request.changes_objects and failed.was_sent)
        return wait if may_repeat and not request.http_exchange.started else None

    async def _attempt(
        self, request: RelayRequest, target: Target, started: float, *, may_renew_key: bool = True
    ) -> RelayFailure | None:
        """Send the request to a target, and pass its answer on. Return the failure before the answer began, or None.

        A refused key of a command, or of AWS, is renewed once, and a body that is held is sent again, as in chats: the
        upstream has done nothing. Raise the same errors after it has begun: then the client's connection is closed.
        """
        exchange, route, endpoint = request.http_exchange, request.route, target.endpoint
        translation = EmbeddingTranslation(request, target) if request.is_translated_at(target) else None
        if translation is None:
            address = address_of(route, target, request.scope["query_string"], exchange.headers)
        else:
            address = translation.address
        request.log_writer.start_attempt(target, True, started)
        loop, row = asyncio.get_running_loop(), target.upstream.row
        transport = self._transports.of(target.upstream.name, row)
        try:
            body = _body_for(request, target) if translation is None else translation.body
            if endpoint.signing is not None and isinstance(body, StreamedBody):
                message = f"the upstream {target.upstream.name} signs requests, and a streamed body cannot be signed"
                return RelayFailure(Fault("server", message, 501, retryable=False), was_sent=False)
            signed = body if isinstance(body, bytes) else b""
            secrets = await endpoint.authorise(exchange.method, address.url, address.headers, signed)
            if request.changes_objects and isinstance(body, bytes):
                body = StreamedBody(_once(body), len(body))  # on a connection of its own, and never sent again
            async with asyncio.timeout(row.timeout) as limit:
                if isinstance(request.body, UploadedBody):
                    request.body.on_piece = lambda: limit.reschedule(loop.time() + row.timeout)
                async with transport.send(
                    exchange.method, address.url, address.headers, secrets, body, _MAX_SECONDS
                ) as reply:
                    exchange.watch()
                    if reply.status >= 300:
                        is_dropped = may_renew_key and endpoint.drop_key(reply.status, secrets)
                        if not is_dropped or request.body.is_sent:
                            return RelayFailure(await _read_fault(target, reply))
                    else:
                        answer = RelayedAnswer(request, target, address, reply, limit, row.idle)
                        if translation is not None:
                            await answer.respond(*await translation.read_answer(reply, self._dependencies.limits))
                        else:
                            await (self._answer_document(answer) if request.is_document else answer.pass_on())
                        return None
        except (TimeoutError, ConnectionError) as error:
            fault = network_fault_of(error, target.upstream.name, endpoint.origin)
            if exchange.started:
                self._dependencies.router.fail(target, self._dependencies.clock(), fault)
                raise UpstreamError(fault) from None
            return RelayFailure(fault, not isinstance(error, ConnectionRefusedError))
        except KeyCommandError as error:
            return RelayFailure(key_fault_of(error, target.upstream.name), was_sent=False)
        return await self._attempt(request, target, started, may_renew_key=False)

    # Answers about objects.

    async def _answer_document(self, answer: RelayedAnswer) -> None:
        """Give the objects of an answer an owner, and pass the answer on without the objects of other clients."""
        request, owners, client = answer.request, self._owners, answer.request.caller.name
        assert owners is not None
        limits, collection = self._dependencies.limits, request.route.collection
        data = await read_reply_body(answer.reply, limits.answer, request.memory.add)
        is_deletion = request.http_exchange.method == "DELETE"
        try:
            document: Object = {} if is_deletion and not data else parse_object(data)  # 204 has no body
        except ToolwireError:
            raise UpstreamError(Fault("server", "the upstream's answer is not a JSON object", 502)) from None
        if is_deletion:
            # A path below the object deletes a member of it; `"deleted": false` reports that the object still exists.
            if request.route.path.endswith(f"/{request.route.entry_id}") and document.get("deleted") is not False:
                await owners.drop(client, request.route.entry_id)
        elif collection == "list":
            data = to_bytes(await self._own_page(answer, owners, document))
        else:
            if request.has_own_ids(document):
                await owners.save(client, created_ids(document), answer.target.upstream.name)
            if isinstance(document.get("results_url"), str):  # of Anthropic, whose SDK sends its key there
                scheme, batch_id = request.scope.get("scheme", "http"), str(document.get("id"))
                url = answer.address.results_url(request.http_exchange, scheme, batch_id)
                data = to_bytes({**document, "results_url": url})
        await answer.respond(data)

    async def _own_page(self, answer: RelayedAnswer, owners: ObjectOwners, document: Object) -> Object:
        """Return the objects of the client in a page of the upstream's list, or in the first later page that has any.

        SDKs end a list at an empty page, also if others follow.
        """
        client, target = answer.request.caller.name, answer.target
        transport = self._transports.of(target.upstream.name, target.upstream.row)
        for _ in range(_MAX_PAGES):
            ids = listed_ids(document)
            page = owned_page(document, await owners.find(client, ids), target.upstream.name)
            await owners.save_new(client, page, target.upstream.name)
            if page["data"] or not document.get("has_more") or not ids:
                return page
            url = answer.address.following_url(
                ids[-1], "after_id" if target.endpoint.wire.name == "anthropic" else "after"
            )
            headers = answer.address.headers
            secrets = await target.endpoint.authorise("GET", url, headers, b"")
            async with transport.send("GET", url, headers, secrets, b"", target.upstream.row.timeout) as reply:
                if reply.status >= 300:
                    raise UpstreamError(as_gateway_fault(await _read_fault(target, reply), target.upstream.name))
                data = await read_reply_body(reply, self._dependencies.limits.answer, answer.request.memory.add)
            document = parse_object(data)
        return page


class RelayedAnswer(NamedTuple):
    """An answer of an upstream. `limit` ends the attempt after `idle` seconds without a byte."""

    request: RelayRequest
    target: Target
    address: Addressed
    reply: Reply
    limit: asyncio.Timeout
    idle: float

    def headers(self) -> HeaderPairs:
        reply = self.reply
        pairs = [(name, reply.headers[name]) for name in _KEPT_HEADERS if name in reply.headers]
        kept = [(name.encode(), value.encode("latin-1", "replace")) for name, value in pairs]
        own = (b"x-request-id", self.request.log_writer.log.id.encode())
        return [*kept, own, *self.target.headers, *forwarded_headers(reply, self.target.endpoint)]

    async def respond(self, data: bytes, more: HeaderPairs | None = None) -> None:
        self.limit.reschedule(None)  # the server limits the time of a slow client
        await self.request.http_exchange.respond(self.reply.status, [*self.headers(), *(more or ())], data)

    async def pass_on(self) -> None:
        """Write the bytes of the answer as they arrive, and note the usage that they report."""
        exchange, reply, loop = self.request.http_exchange, self.reply, asyncio.get_running_loop()
        headers = self.headers()
        if "content-length" in reply.headers and "content-encoding" not in reply.headers:
            headers.append((b"content-length", reply.headers["content-length"].encode("latin-1")))
        media_type = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
        scan = UsageScan() if media_type in _SCANNED_TYPES else None
        self.limit.reschedule(loop.time() + self.idle)
        await exchange.start(reply.status, headers)
        try:
            while data := await reply.read():
                if scan is not None:
                    scan.feed(data)
                self.limit.reschedule(None)
                await exchange.write(data)
                self.limit.reschedule(loop.time() + self.idle)
            self.limit.reschedule(None)
            await exchange.end()
        finally:
            if scan is not None:
                self.request.log_writer.set_relay_usage(scan.find())


def _body_for(request: RelayRequest, target: Target) -> RequestBody:
    document = renamed_document(request.route, request.body.document, target.model)
    if document is not None:
        return to_bytes(document)
    return request.body.for_model(target.model if request.body.model else None)


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def _read_fault(target: Target, reply: Reply) -> Fault:
    """Read an error of the upstream, without its secrets."""
    endpoint, headers = target.endpoint, dict(reply.headers)
    if reply.status < 400:
        return Fault("server", "the upstream redirects the request", 502, "redirect", retryable=False)
    try:
        data = await read_reply_body(reply, ERROR_LIMIT)
    except ProtocolError:
        data = b""
    fault = endpoint.wire.decode_error(reply.status, parse_or_raw(data), headers)
    return resolve_retry_after(redact_secrets(endpoint.known_secrets, fault), headers)
