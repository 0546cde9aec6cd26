"""Answer one request: try target after target until one accepts, then relay its answer, whole or as a stream.

Until the first byte of the answer has been sent, transient failures are retried, on other targets first. After that, a
failure is sent as an error event in the client's own protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from fnmatch import fnmatchcase
from logging import getLogger
from time import perf_counter

from msgspec import Struct
from msgspec.structs import replace

from ...asgi.http_exchange import HttpExchange, uncancel
from ...asgi.offload import LARGE, ClientOffload, Offload
from ...bridge.emulate_retry import RejectedAnswer
from ...bridge.turns import TurnStore
from ...ir.errors import EncodeError, ProtocolError, ToolwireError
from ...ir.events import ResponseStart, StreamFault
from ...ir.losses import LossError, require_lossless
from ...ir.response import Fault, UpstreamError, fault_from
from ...net.http import Reply
from ...net.key_command import KeyCommandError
from ...net.replies import drain, is_document, read_reply_body, transport_losses
from ...net.retry import RetryPolicy, resolve_retry_after
from ...net.runner import Runner
from ..faults import as_gateway_fault, is_gateway_fault, key_fault_of, network_fault_of
from ..observe.request_log import RequestLog
from ..retrieval.tool_ranker import ToolRanker
from ..settings import LimitsRow
from ..shared.memory_bound import MemoryReservation
from .cache import AnswerCache
from .client_request import CALL_MARKS, ClientRequest
from .document_limits import admit_document
from .downstream import ArrayFrames, Downstream
from .gateway_tools import GatewayTools
from .known_tools import KnownTools
from .outbound import OutboundRequest, PassThroughRequest
from .request_preparation import RequestPreparation
from .response_records import WIRE
from .response_state import ResponseState
from .routing import Router, Target, select_capable_targets
from .stream_memory import StreamMemory
from .stream_relay import StreamRelay
from .streams import Stream
from .turn_memory import TurnMemory
from .upstream_reply import open_reply

__all__ = ["Dependencies", "RequestHandler"]

_log = getLogger("toolwire.gateway")
_ERROR_LIMIT = 1024 * 1024
_FAILOVER_KINDS = frozenset({"rate_limit", "overloaded", "timeout", "server", "not_found"})

_WORK_PER_LOSS = 32  # bytes of text that take as long
_INTERNAL_FAULT = Fault("server", "the gateway failed; see its log", 500)
_IDLE_FAULT = Fault("timeout", "the upstream was silent for too long", 504, "timeout", retryable=True)
_SHUTDOWN_FAULT = Fault("overloaded", "the gateway is shutting down", 503, "stopping", retryable=True)


class Dependencies(Struct, frozen=True):
    """Dependencies shared by all requests."""

    router: Router
    memory: TurnStore
    limits: LimitsRow
    clock: Callable[[], float]
    cache: AnswerCache
    responses: ResponseState
    offload: Offload
    known_tools: KnownTools
    ranker: ToolRanker
    runners: Mapping[str, Runner] = {}  # tools run by the gateway, by model pattern

    def runner_for(self, model: str) -> Runner | None:
        return next((runner for pattern, runner in self.runners.items() if fnmatchcase(model, pattern)), None)


class RequestHandler:
    """One request in progress. `run` writes the answer, or raises if nothing has been written yet."""

    def __init__(
        self,
        dependencies: Dependencies,
        http_exchange: HttpExchange,
        client_request: ClientRequest,
        request_log: RequestLog,
        memory: MemoryReservation,
    ) -> None:
        self._dependencies = dependencies
        self._http_exchange = http_exchange
        self._client_request = client_request
        self._request_log = request_log
        self._memory = memory
        self._offload = ClientOffload(dependencies.offload, request_log.caller)
        self._plan: list[Target] = []
        self._deadline = 0.0
        self._turns = TurnMemory(dependencies.memory, client_request, request_log.caller, self._offload)
        self._stream: Stream | None = None  # the stream being relayed
        self._streamed_bytes = 0  # received in streams
        self._preparation = RequestPreparation(
            client_request,
            request_log.caller,
            self._turns,
            self._offload,
            dependencies.known_tools,
            dependencies.ranker,
            dependencies.runner_for,
        )
        self._pending_end = b""  # the end of a stream, held back until the work before it is done
        self._is_fully_sent = False  # the client has received everything up to the last event
        self._cache_key: bytes | None = None
        self._down: Downstream | None = None

    async def run(self) -> None:
        """Answer from the cache or from the targets.

        A failure after the answer has begun is written into it; an earlier one is raised. If the client has
        disconnected, the cancellation goes on.
        """
        await self._offload.run(self._client_request.work_size // 8, self._choose_targets)  # it only reads the request
        # each target has its own timeout, so a slow one leaves enough time for the next
        self._deadline = self._dependencies.clock() + sum(target.upstream.row.timeout for target in self._plan)
        self._down = self._open_downstream() if self._client_request.stream else None
        cached_answer = None if self._cache_key is None else self._dependencies.cache.get(self._cache_key)
        if cached_answer is not None:
            self._request_log.upstream, self._request_log.upstream_model = "cache", self._plan[0].model
            await self._http_exchange.respond(
                200, {**self._response_headers(), "x-toolwire-cache": "hit"}, cached_answer
            )
            return
        try:
            await self._turns.load(self._plan)
            await self._try_targets()
        except asyncio.CancelledError:
            if self._http_exchange.disconnected:
                raise
            uncancel()
            is_idle_timeout = self._down is not None and self._down.idle_timed_out
            await self._finish_with_fault(_IDLE_FAULT if is_idle_timeout else _SHUTDOWN_FAULT)
        except Exception as error:  # must be reported if a tool has run or output was sent
            has_begun = self._has_run_tools or (self._down is not None and self._http_exchange.started)
            if self._http_exchange.ended or not has_begun:
                raise
            await self._finish_with_fault(self._fault_for_error(error))
        finally:
            if self._down is not None:
                self._down.close()
                self._request_log.first_chunk_seconds = self._down.time_to_first_chunk

    @property
    def _gateway_tools(self) -> GatewayTools | None:
        return self._preparation.gateway_tools

    def _choose_targets(self) -> None:
        """List the targets, and hash the request if its answer may be cached."""
        client_request = self._client_request
        plan = self._dependencies.router.plan(client_request.model, tools=client_request.has_tools)
        self._plan = select_capable_targets(plan, client_request)
        self._cache_key = self._make_cache_key()

    @property
    def _has_run_tools(self) -> bool:
        return self._gateway_tools is not None and self._gateway_tools.has_run_tools

    def _fault_for_error(self, error: Exception) -> Fault:
        if isinstance(error, ToolwireError):
            return fault_from(error)
        _log.exception("request %s failed", self._request_log.id)
        return _INTERNAL_FAULT

    def _make_cache_key(self) -> bytes | None:
        """Return the key of a cacheable request.

        Streams and strict requests are not cached, nor is a model without `cache`, nor a turn of a conversation, which
        changes with every request.
        """
        client_request = self._client_request
        if client_request.turn is not None and client_request.turn.conversation_id is not None:
            return None
        if client_request.stream or client_request.strict or not self._plan[0].row.cache:
            return None
        return AnswerCache.key(
            self._request_log.caller,
            client_request.ingress.wire,
            client_request.model,
            client_request.headers,
            client_request.body,
        )

    def _open_downstream(self) -> Downstream:
        """Open the client's stream. A JSON array (`as_array`) is kept alive by spaces, which JSON ignores."""
        client_request = self._client_request
        headers = {
            "content-type": "application/json"
            if client_request.as_array
            else client_request.ingress.framing.media_type,
            "cache-control": "no-cache",
            "x-accel-buffering": "no",
            "x-request-id": self._request_log.id,
        }
        return Downstream(
            self._http_exchange,
            headers,
            b" " if client_request.as_array else client_request.ingress.ping,
            ping_interval=self._dependencies.limits.ping,
            idle_timeout=max(target.upstream.row.idle for target in self._plan),
            frames=ArrayFrames() if client_request.as_array else None,
        )

    async def _try_targets(self) -> None:
        """Try the targets in turn.

        After each round over all of them, wait as the retry policy demands. Stop at a final fault, at the deadline, or
        once a tool has run, because a retry would run it again.
        """
        plan, request_log = self._plan, self._request_log
        while True:
            target = plan[request_log.attempts % len(plan)]
            request_log.attempts += 1
            fault = await self._attempt(target)
            if fault is None:
                if request_log.error is None:
                    self._dependencies.router.end_cooldown(target)
                else:  # it failed after its first output
                    self._dependencies.router.start_cooldown(target)
                return
            request_log.failures += ((target.upstream.name, fault.kind),)
            final = fault.kind not in _FAILOVER_KINDS and not is_gateway_fault(fault)
            has_output = self._down is not None and self._down.has_written  # of an answer that was rejected
            if final or has_output or self._has_run_tools:
                break
            self._dependencies.router.start_cooldown(target, fault.retry_after)
            if self._remaining_seconds() <= 0:
                break  # the next target would get no time and be blamed for it
            if request_log.attempts % len(plan) == 0:
                rounds = request_log.attempts // len(plan) - 1
                wait = None
                if fault is not _IDLE_FAULT:  # it has used its time
                    wait = RetryPolicy(target.upstream.row.retries).next_delay(fault, rounds, self._remaining_seconds())
                if wait is None:
                    break
                await self._pause(wait)
        await self._finish_with_fault(as_gateway_fault(fault, target.upstream.name))

    async def _pause(self, seconds: float) -> None:
        if self._down is None:
            await asyncio.sleep(seconds)
            return
        with self._down.suspend_idle_timeout():
            await asyncio.sleep(seconds)

    def _remaining_seconds(self) -> float:
        return self._deadline - self._dependencies.clock()

    async def _attempt(self, target: Target) -> Fault | None:
        """Try one target. Return None if the answer was written, else the fault that occurred before any output."""
        started_at = perf_counter()
        out = await self._preparation.prepare(target)
        request_log = self._request_log
        request_log.upstream, request_log.upstream_model = target.upstream.name, target.model
        request_log.provider = target.upstream.row.provider or out.endpoint.wire.provider
        request_log.wire, request_log.passed_through = out.endpoint.wire.name, isinstance(out, PassThroughRequest)
        request_log.overhead += perf_counter() - started_at
        if self._down is not None:
            self._down.note_activity()  # the silence of earlier targets does not count for this one
        try:
            return await self._send_request(target, out)
        except asyncio.CancelledError:
            if self._http_exchange.disconnected and self._is_fully_sent:
                uncancel()  # the client has the last event and did not wait for the end of the connection
                return None
            if self._http_exchange.disconnected or self._down is None or not self._down.idle_timed_out:
                out.stats.abandoned = self._http_exchange.disconnected
                raise
            uncancel()
            self._down.restart_idle_timer()
            return await self._fail_idle(self._down)
        except (TimeoutError, ConnectionError) as error:
            return network_fault_of(error, target.upstream.name)
        except UpstreamError as error:
            return error.fault
        except KeyCommandError as error:
            return key_fault_of(error, target.upstream.name)
        except LossError:
            raise  # the client accepts no losses
        except (ProtocolError, EncodeError) as error:
            message = f"the upstream's answer cannot be passed on: {error.message}"
            return Fault("server", message, 502, "bad_answer", retryable=False)  # it was billed; a retry would be too
        finally:
            await self._record_stats(out)

    async def _record_stats(self, out: OutboundRequest) -> None:
        """Copy the statistics to the request log. Without reported usage, estimate it from the sizes."""
        request_log, stats = self._request_log, out.stats
        request_log.usage, request_log.stop, request_log.calls = stats.reported_usage(), stats.stop, tuple(stats.calls)
        request_log.answer_id, request_log.answer_model = stats.id, stats.model
        if request_log.usage is None:
            request_log.usage = await self._offload.run(len(out.body), stats.estimate, out.body)
            request_log.is_estimated = request_log.usage is not None
        request_log.losses, request_log.repairs = tuple(out.losses), tuple(out.repairs)
        counts = self._preparation.tool_counts
        if counts is not None:
            request_log.declared_tools, request_log.offered_tools = counts.declared, counts.offered
            request_log.tool_searches = counts.searches
        request_log.loss_counts = None
        await self._offload.run(len(out.losses) * _WORK_PER_LOSS, request_log.count_losses)

    async def _send_request(self, target: Target, out: OutboundRequest) -> Fault | None:
        """Send a request and relay its answer. Return a fault that occurred before any output.

        A retry of emulated calls, or the next turn after our own tools, is another request to the same target.
        """
        headers = (
            {**out.headers, **self._request_log.forward_headers} if self._request_log.forward_headers else out.headers
        )
        async with open_reply(
            target, out, headers, stream=self._client_request.stream, remaining=self._remaining_seconds
        ) as reply:
            if not 200 <= reply.status < 300:
                return await self._read_fault(reply, out)
            if out.endpoint.vendor.transport is not None:
                out.losses.extend(transport_losses(reply))
                if self._client_request.strict:
                    require_lossless(out.losses)
            if self._down is not None and not is_document(reply):
                self._stream = await self._offload.run(self._client_request.work_size, out.open_stream)
                fault = await self._relay(reply, self._stream, self._down, target, out)
                if fault is not None or self._stream.fault is not None:
                    return fault
                data, rejected = None, self._stream.rejected
            else:
                data = await self._read_whole_answer(reply)
                rejected = await self._reject_answer(target, out, data)
        if rejected is not None:
            await self._write_pending_end()
            return await self._send_retry(target, out, rejected)
        if data is not None:
            await self._offload.run(len(data) + self._answer_work(target, data), out.read_answer, data)
        next_outbound = await self._next_request(out)
        if next_outbound is not None:
            await self._write_pending_end()
            return await self._send_request(target, next_outbound)
        await self._finish_answer(target, out, buffered_size=None if data is None else len(data))
        return None

    async def _reject_answer(self, target: Target, out: OutboundRequest, data: bytes) -> RejectedAnswer | None:
        """Reject a whole answer whose emulated calls cannot be parsed."""
        if target.row.emulate is None:
            return None
        return await self._offload.run(len(data) + self._client_request.work_size, out.reject_answer, data)

    async def _send_retry(self, target: Target, out: OutboundRequest, rejected: RejectedAnswer) -> Fault | None:
        """Ask once more instead of accepting an answer: the repair model, and the same model if that fails."""
        size = self._client_request.work_size
        repair_model = target.row.repair_model
        if repair_model is not None:
            repair_target = self._dependencies.router.plan(repair_model, tools=True)[0]
            repair = await self._offload.run(size, out.make_retry, rejected, repair_target)
            try:
                fault = await self._send_request(repair_target, repair)
            except (TimeoutError, ConnectionError) as error:
                fault = network_fault_of(error, repair_target.upstream.name)
            except UpstreamError as error:
                fault = error.fault
            if fault is None:
                return None
            _log.warning("request %s: repair by %s failed: %s", self._request_log.id, repair_target.label, fault.kind)
        return await self._send_request(target, await self._offload.run(size, out.make_retry, rejected, None))

    async def _read_whole_answer(self, reply: Reply) -> bytes:
        """Read a whole answer, within the limits on its size, its number of values and the memory of all requests."""
        limits = self._dependencies.limits
        data = await read_reply_body(reply, limits.answer, self._memory.add)
        await admit_document(data, limits.values, self._offload, self._memory, status=502)
        return data

    def _answer_work(self, target: Target, data: bytes) -> int:
        """Return the size of the work for the calls in a whole answer; emulated ones are numbered after the request's."""
        if target.row.emulate is not None:
            return self._client_request.work_size + self._repair_work(target)
        return self._repair_work(target) if any(mark in data for mark in CALL_MARKS) else 0

    @property
    def _repeated_work(self) -> int:
        """The size of the work for the fields of the request that an answer repeats: only Responses does."""
        return self._client_request.work_size if self._client_request.wire.name == WIRE else 0

    def _repair_work(self, target: Target) -> int:
        """Return the size of the work for repairing calls: large, also for small schemas.

        It compiles the schemas of their tools. A cache has some of them, but a pattern of a few bytes may be too large
        for it.
        """
        has_tools = self._client_request.has_tools or self._gateway_tools is not None
        return LARGE + 1 if target.row.repair is not None and has_tools else 0

    async def _next_request(self, out: OutboundRequest) -> OutboundRequest | None:
        """Run our own tools. Return the request with their results, or None if the answer is final."""
        if self._gateway_tools is None:
            return None
        # the upstream is idle while our own tools run
        with nullcontext() if self._down is None else self._down.suspend_idle_timeout():
            prepare = await out.run_tools()
        return None if prepare is None else await self._offload.run(len(out.body), prepare)

    async def _finish_answer(self, target: Target, out: OutboundRequest, *, buffered_size: int | None) -> None:
        """Write the rest of a stream, or a whole answer.

        `buffered_size`: the size of a whole answer, also of one that the upstream sent for a stream.
        """
        if self._down is not None:
            if buffered_size is not None:
                size = buffered_size + self._repeated_work
                self._pending_end = await self._offload.run(size, out.encode_stream)
            await self._store_turn(out, buffered_size or self._streamed_bytes)
            await self._store_response(target, out, self._pending_end)
            await self._write_pending_end()
            await self._down.end()
            return
        started_at = perf_counter()
        written = await self._offload.run((buffered_size or 0) + self._repeated_work, out.encode_answer)
        self._request_log.overhead += perf_counter() - started_at
        await self._store_turn(out, buffered_size or 0)
        await self._store_response(target, out, written)
        if self._cache_key is not None:
            self._dependencies.cache.put(self._cache_key, written, self._plan[0].row.cache)
        headers = {**self._response_headers(), **self._report_headers(out)}
        await self._http_exchange.respond(200, headers, written)

    def _response_headers(self) -> dict[str, str]:
        return {"content-type": "application/json", "x-request-id": self._request_log.id}

    def _report_headers(self, out: OutboundRequest) -> dict[str, str]:
        """Return the headers about the translation: the number of losses, and of offered and declared tools."""
        headers, counts = {"x-toolwire-losses": str(len(out.losses))}, self._preparation.tool_counts
        return headers if counts is None else {**headers, "x-toolwire-tools": f"{counts.offered}/{counts.declared}"}

    async def _store_turn(self, out: OutboundRequest, answer_size: int) -> None:
        """Store the turn of an answer once, with the rounds of the gateway's own tools."""
        turn = out.stats.turn if self._gateway_tools is None else self._gateway_tools.turn
        if turn is not None:
            out.stats.turn = None
            size = answer_size + (0 if self._gateway_tools is None else len(out.body))  # which has earlier rounds
            await self._turns.save(turn, out.endpoint, size)

    async def _store_response(self, target: Target, out: OutboundRequest, written: bytes) -> None:
        """Store a complete answer of OpenAI Responses, or the upstream that stores it itself."""
        client_request = self._client_request
        if client_request.turn is None:
            return
        if out.recorder is not None:
            await self._dependencies.responses.save_answer(client_request.turn, out.recorder, out.endpoint, written)
        elif out.endpoint.wire.name == client_request.wire.name:
            offer = self._preparation.offer
            await self._dependencies.responses.save_pin(
                client_request.turn,
                out.stats.id,
                target.upstream,
                wants_store=client_request.wants_store,
                offered=None if offer is None else offer.list_names(out.stats.calls),
                last_id="" if self._gateway_tools is None else self._gateway_tools.last_id,
            )

    async def _write_pending_end(self) -> None:
        if self._pending_end and self._down is not None:
            pending, self._pending_end = self._pending_end, b""
            await self._down.write(pending)

    async def _relay(
        self, reply: Reply, stream: Stream, down: Downstream, target: Target, out: OutboundRequest
    ) -> Fault | None:
        """Relay the upstream's stream except its end. Return a fault if it failed before the first output."""
        down.headers.update(self._report_headers(out))
        remaining = self._dependencies.limits.answer
        repeats_answer = self._client_request.wire.name == WIRE and not isinstance(out, PassThroughRequest)
        relay = StreamRelay(
            reply,
            stream,
            self._offload,
            StreamMemory(self._memory, repeats_answer=repeats_answer),
            out.stats,
            repeated_work=self._repeated_work,
            call_work=self._repair_work(target),
            is_emulated=target.row.emulate is not None,
        )
        while not _is_finished(stream):
            try:
                data = await relay.read()
            except TimeoutError as error:
                fault = network_fault_of(error, self._request_log.upstream or "")
                return await self._fail_stream(stream.fail(fault), stream, down)
            except ConnectionError:
                data = b""  # the decoder decides whether the stream was complete
            if not data:
                break
            down.note_activity()
            remaining -= len(data)
            self._streamed_bytes += len(data)
            output = (
                await relay.feed(data)
                if remaining >= 0
                else stream.fail(_too_large_fault(self._dependencies.limits.answer))
            )
            if stream.fault is not None:
                return await self._fail_stream(output, stream, down)
            if _is_finished(stream):
                self._pending_end = output
                if self._gateway_tools is None and stream.rejected is None:  # else our tools run, or a retry follows
                    await self._store_turn(out, self._streamed_bytes)
                    await self._store_response(target, out, output)
                    await self._write_pending_end()
                    self._is_fully_sent = stream.ended and not self._client_request.as_array
            elif output:
                await down.write(output)
        if stream.ended or stream.rejected is not None:
            await drain(reply)
        last = await relay.close()
        if stream.fault is not None:
            return await self._fail_stream(self._pending_end + last, stream, down)
        self._pending_end += last
        return None

    async def _fail_stream(self, last: bytes, stream: Stream, down: Downstream) -> Fault | None:
        """End a failed stream, or return its fault for another target if nothing was sent yet."""
        if not down.has_written:
            return stream.fault
        self._request_log.error = None if stream.fault is None else stream.fault.kind
        await down.write(last)
        await down.end()
        return None

    async def _fail_idle(self, down: Downstream) -> Fault | None:
        if self._stream is None or not down.has_written:
            return _IDLE_FAULT
        return await self._fail_stream(self._stream.fail(_IDLE_FAULT), self._stream, down)

    async def _read_fault(self, reply: Reply, out: OutboundRequest) -> Fault:
        """Decode an error response. A redirect is not followed, and a body that cannot be read is ignored."""
        if 300 <= reply.status < 400:
            message = "the upstream redirects to another address; the key is not sent there"
            return Fault("server", message, 502, "redirect", retryable=False)
        try:
            data = await read_reply_body(reply, _ERROR_LIMIT, self._memory.add)
        except (ProtocolError, TimeoutError, ConnectionError):
            data = b""  # the status is enough
        headers = dict(reply.headers)
        fault = await self._offload.run(len(data), out.decode_fault, reply.status, data, headers)
        return resolve_retry_after(fault, headers)

    async def _finish_with_fault(self, fault: Fault) -> None:
        """Report a fault, as a status if that is still possible, else as an event."""
        if self._has_run_tools:
            fault = replace(fault, retryable=False, retry_after=None)  # a retry would run our tools again
        if self._down is None or not self._http_exchange.started:
            raise UpstreamError(fault)
        self._request_log.error = fault.kind
        if self._stream is not None and self._down.has_written:
            await self._down.write(self._stream.fail(fault))
        else:
            encoder = self._client_request.wire.stream_encoder(self._client_request.request_or_none)
            await self._down.write(encoder.feed(ResponseStart()) + encoder.feed(StreamFault(fault)))
        await self._down.end()


def _is_finished(stream: Stream) -> bool:
    return stream.ended or stream.should_stop or stream.rejected is not None


def _too_large_fault(limit: int) -> Fault:
    return Fault("server", f"the stream has more than {limit} bytes", 502, "too_large", retryable=False)
