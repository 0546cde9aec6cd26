"""Try one target: send the request, and deliver the answer, whole or as a stream.

The steps of an attempt, in order:

    prepare    the client's request in the form of the target (`answer.preparation`), and check it against the window
    send       one request; the head of the reply decides about its meaning (`net.model.upstream_exchange`)
    relay      read a whole answer, or write a stream piece by piece, all but its end
    store      the turn, and the response of a client of OpenAI Responses
    deliver    the whole answer, or the end of the stream

After `relay`, three things can lead back to `send`, with the same target: a rejected answer of emulated calls, calls of
the gateway's own tools, and a refused key or context size. They are requests of the same attempt, because the client
gets one answer from them.

These must hold:

- A fault is returned only before any output of the model was sent; the caller then tries another target. Later faults
  are events of the stream, and the attempt counts as delivered.
- The answer is stored before its end is sent. A client may continue the conversation as soon as it has the end, at
  another process or machine, which then must find the turn.
- The headers about the target are set (`_announce`) when it is certain that this target answers, and not before, because
  a fallback would have others.
- The trial of a target after its cooldown ends in every case: by a reply, or by `release_trial` if nothing was sent.

`run` owns the waits and the conversion of errors to faults. `answer.work` owns memory, threads, times and the log of an
attempt. The steps between them only order the work.
"""

from __future__ import annotations

import asyncio
from logging import getLogger

from msgspec import Struct

from ...asgi.http_exchange import HeaderPairs
from ...bridge.emulation.retries import RejectedAnswer
from ...ir.errors import EncodeError, ProtocolError
from ...ir.losses import LossError, require_lossless
from ...ir.response import Fault, UpstreamError
from ...net.http.transport import Reply
from ...net.model.key_command import KeyCommandError
from ...net.model.replies import drain, forwarded_headers, read_reply_body, transport_losses
from ...net.model.upstream_exchange import ReplyMeaning, UpstreamExchange
from ...wire.documents import AnswerSummary
from ..config.settings import LimitsRow
from ..faults import IDLE_FAULT, key_fault_of, network_fault_of
from ..responses.pending_response import PendingResponse
from ..routing.router import Target
from .delivery import AnswerContext, AnswerState, StreamDelivery
from .preparation import OutboundRequest, Stream
from .work import StreamRelay

_log = getLogger("toolwire.gateway")
BYTES_OF_TOKEN = 4  # as in ir.prompt_size; a shorter body is not counted, because its prompt is rarely too long
SUMMARISED_AT_ONCE = 256 * 1024  # bytes of an answer, as for counting values (`gateway.memory`)
NO_LOSSES = (b"x-toolwire-losses", b"0")
# Bytes of output without content that are held back: the start events of all providers have less than 4 kB, apart from
# the request, which Responses repeats in two of them.
_MAX_START = 64 * 1024
# For `limits.values`: up to 20 objects of each text and call are kept until a stream ends, besides strings. A full garbage
# collection with the objects of 200,000 calls stops the process for 1.8 seconds.
_VALUES_PER_ITEM = 32
_REPEATED_IN_START = 2  # `response.created` and `response.in_progress` contain the request


class BegunAttempt(Struct, eq=False):
    """A request that `usual_request` has sent, with its outcome: an error, a fault, or the bytes of an answer."""

    out: OutboundRequest
    sent_at: float  # by the clock of the dependencies
    reply_headers: HeaderPairs  # for the client
    error: BaseException | None
    failure: Fault | None
    data: bytes
    summary: AnswerSummary | None  # of an answer whose delivery has begun


class Attempt(Struct, eq=False):
    """One attempt to answer, at one target."""

    _context: AnswerContext
    _state: AnswerState
    _target: Target
    _deadline: float  # of all attempts, by the clock of the dependencies
    _sent_at: float
    _is_only_target: bool = False  # no fallback could answer, so nothing is held back
    _has_other_target: bool = False  # that could answer instead of this one now
    _is_waiting: bool = False  # for the first byte, and another target could answer
    _out: OutboundRequest | None = None  # the last request
    _reply_headers: HeaderPairs = []  # of the upstream, for the client
    _pending_end: bytes = b""  # the end of a stream, held back until the work before it is done
    _is_fully_sent: bool = False  # the client has received everything up to the last event

    async def run(self, begun: BegunAttempt | None = None) -> Fault | None:
        """Prepare, send and deliver. Return None if the answer was delivered, else the fault before any output.

        `begun` was sent already. Raise LossError if the client accepts no losses, and CancelledError if the whole request is
        interrupted.
        """
        context, target = self._context, self._target
        if begun is None:
            try:
                out = await context.work.prepare(target)
            except BaseException:
                target.health.release_trial(self._sent_at)
                raise
            context.http_exchange.answer_headers = []  # without the headers of a failed target
            self._reply_headers = [*target.headers]
            if self._state.stream_delivery is not None or self._has_other_target:
                self._begin_wait()
        else:
            out = self._out = begun.out
            self._reply_headers = begun.reply_headers
        try:
            if begun is not None:
                return await self._finish_begun(target, begun)
            window = target.window
            overflow = None if window is None else await self._find_overflow(out, window)
            return await self._send(target, out) if overflow is None else overflow
        except asyncio.CancelledError:
            return await self._handle_interruption(out)
        except (TimeoutError, ConnectionError) as error:
            return network_fault_of(error, target.upstream.name, target.endpoint.origin)
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
            if self._is_waiting or self._out is None:
                self._end_wait()
            context.http_exchange.answer_headers = self._reply_headers  # for an error; the head of an answer is sent
            await context.work.end_attempt(out)

    async def _find_overflow(self, out: OutboundRequest, window: int) -> Fault | None:
        """Return the fault of a prompt that is certainly too long."""
        is_long = len(out.body) > window * BYTES_OF_TOKEN
        return await self._context.work.find_overflow(out, window) if is_long else None

    async def _finish_begun(self, target: Target, begun: BegunAttempt) -> Fault | None:
        if begun.summary is not None:
            begun.out.stats.add_summary(begun.summary)
            self._state.delivery.advance("respond")
        if begun.error is not None:
            raise begun.error
        if begun.failure is not None:
            return begun.failure
        await self._context.work.decode_answer(target, begun.out, begun.data)
        await self._finish_answer(target, begun.out, begun.data)
        return None

    def _begin_wait(self) -> None:
        """Let the request go to another target if this one hangs, or does not begin its stream in time."""
        context, delivery = self._context, self._state.stream_delivery
        if delivery is not None:
            delivery.note_activity()  # the silence of earlier targets does not count for this one
        if not self._has_other_target or context.client_request.upload is not None:
            return
        self._is_waiting = True
        context.dependencies.router.watch(self._target, context.http_exchange.interruption)
        if delivery is not None:
            delivery.expect_first_event(self._target.first_event)

    def _end_wait(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self._target.health.end_wait(self._context.http_exchange.interruption)
        if self._out is None:  # nothing was sent: the prompt is too long, or the client has left
            self._target.health.release_trial(self._sent_at)

    async def _handle_interruption(self, out: OutboundRequest) -> Fault | None:
        """Return the fault of an attempt whose upstream was silent, or None if the client left after the last event.

        Raise any other interruption again. A client that leaves while it waits counts against the target's health.
        """
        context = self._context
        interruption, delivery = context.http_exchange.interruption, self._state.stream_delivery
        if context.http_exchange.disconnected:
            if self._is_fully_sent and interruption.caught("client_gone"):
                return None  # the client has the last event and did not wait for the end of the connection
            out.stats.abandoned = True
            if self._is_waiting or (self._has_other_target and delivery is not None and not delivery.has_output):
                context.dependencies.router.depart(self._target, self._sent_at, is_stream=delivery is not None)
        elif interruption.caught("upstream_idle"):
            if delivery is None:
                return IDLE_FAULT
            delivery.start_timer()
            if self._state.stream is None or not delivery.has_output:
                return IDLE_FAULT
            return await self._fail_stream(self._state.stream.fail(IDLE_FAULT), self._state.stream, delivery)
        raise asyncio.CancelledError

    async def _send(self, target: Target, out: OutboundRequest) -> Fault | None:
        """Send a request and deliver its answer. Return a fault that occurred before any output, or None.

        It is sent again with a new key or context size. A retry of a rejected answer, and a request with the results of
        the gateway's tools, are sent by a further call.
        """
        context, endpoint, self._out = self._context, out.endpoint, out
        forwarded = context.log_writer.log.forward_headers
        headers = {**out.headers, **forwarded} if forwarded else out.headers
        stream = context.client_request.stream
        exchange, url = UpstreamExchange(out, stream), endpoint.url(stream=stream)
        data: bytes | None = None  # of a whole answer
        rejected: RejectedAnswer | None = None
        meaning: ReplyMeaning = "resend"
        while meaning == "resend":
            secrets = (
                endpoint.secrets
                if endpoint.has_fixed_secrets
                else await endpoint.authorise("POST", url, headers, out.body)  # an upload is never signed
            )
            seconds = min(self._deadline - context.dependencies.clock(), target.upstream.row.timeout)
            body = out.body if out.upload is None else out.upload
            async with target.upstream.transport.post(url, headers, secrets, body, seconds) as reply:
                target.health.is_heard = True
                if self._is_waiting:
                    self._end_wait()
                meaning = exchange.receive_head(reply.status, reply.headers, secrets)
                self._reply_headers = [*target.headers, *forwarded_headers(reply, endpoint)]
                meaning = meaning if out.upload is None else self._open_late_delivery(meaning, reply)
                if meaning == "whole":
                    self._add_transport_losses(out, reply)
                    data = await read_reply_body(reply, context.dependencies.limits.answer, context.work.reserve)
                    if target.row.emulate is not None:
                        rejected = await context.work.reject_answer(out, data)
                elif meaning == "stream":
                    fault, rejected = await self._relay_stream(target, out, reply)
                    if fault is not None or (self._state.stream is not None and self._state.stream.fault is not None):
                        return fault
                elif meaning != "resend":
                    failure = await context.work.read_fault(exchange, meaning, reply)
                    if not out.resize_context(failure):
                        return failure
                    meaning = "resend"
        if rejected is not None:
            await self._write_pending_end()
            return await self._send_retry(target, out, rejected)
        if data is not None and not (len(data) <= SUMMARISED_AT_ONCE and out.accept(data)):
            await context.work.decode_answer(target, out, data)
        following = None if context.preparation.gateway_tools is None else await self._run_tools(out)
        if following is not None:
            return await self._send(target, following)
        await self._finish_answer(target, out, data)
        return None

    def _open_late_delivery(self, meaning: ReplyMeaning, reply: Reply) -> ReplyMeaning:
        """Open the client's stream if the reply to a streamed body is a stream by its media type, and log which it is.

        Return the meaning of the reply: "fault" instead of "resend", because such a body cannot be sent again.
        """
        context = self._context
        media_type = context.client_request.ingress.framing.media_type
        if meaning == "stream" and not reply.headers.get("content-type", "").lower().startswith(media_type):
            meaning = "whole"
        context.http_exchange.watch()  # the upload has ended, perhaps early
        is_stream = meaning == "stream" or (meaning == "whole" and context.client_request.is_stream_required)
        if is_stream:
            self._state.open_stream(context)
        context.log_writer.set_stream(is_stream=is_stream)
        return "fault" if meaning == "resend" else meaning

    def _add_transport_losses(self, out: OutboundRequest, reply: Reply) -> None:
        """Add the losses that a model in this process reports. Raise LossError if the client accepts none."""
        if out.endpoint.vendor.transport is None:
            return
        out.losses.extend(transport_losses(reply))
        if self._context.client_request.strict:
            require_lossless(out.losses)

    # further requests to the same target

    async def _send_retry(self, target: Target, out: OutboundRequest, rejected: RejectedAnswer) -> Fault | None:
        """Ask once more instead of accepting an answer: the repair model, and the same model if that fails.

        Return the fault of the last one, or None.
        """
        context = self._context
        if target.row.repair_model is not None:
            repair_target = context.dependencies.router.plan(target.row.repair_model, tools=True)[0]
            repair = await context.work.make_retry(out, rejected, repair_target)
            try:
                fault = await self._send(repair_target, repair)
            except (TimeoutError, ConnectionError) as error:
                fault = network_fault_of(error, repair_target.upstream.name, repair_target.endpoint.origin)
            except UpstreamError as error:
                fault = error.fault
            if fault is None:
                return None
            _log.warning(
                "request %s: repair by %s failed: %s", context.log_writer.log.id, repair_target.label, fault.kind
            )
        return await self._send(target, await context.work.make_retry(out, rejected))

    async def _run_tools(self, out: OutboundRequest) -> OutboundRequest | None:
        """Run the gateway's tools that the answer calls, and write the output so far.

        Return the request with their results, or None if the answer is final.
        """
        delivery = self._state.stream_delivery
        if delivery is not None:
            delivery.suspend_idle_timeout()  # the upstream is idle while the tools run
        try:
            prepare = await out.run_tools()
        finally:
            if delivery is not None:
                delivery.note_activity()
        if delivery is not None:
            self._pending_end += await self._context.work.release_events(out, self._state.streamed_bytes)
        if prepare is None:
            return None
        following = await self._context.work.prepare_following(out, prepare)
        await self._write_pending_end()
        return following

    # the end of an answer

    async def _finish_answer(self, target: Target, out: OutboundRequest, data: bytes | None) -> None:
        """Store, cache and write a whole answer, or store and end a stream. `data` is the upstream's whole answer."""
        context = self._context
        if self._state.stream_delivery is not None:
            await self._end_stream(target, out, self._state.stream_delivery, data)
            return
        written = out.encode_answer() if out.is_passed_through else await context.work.encode_answer(out, data or b"")
        # `stats.turn` is also set for an answer with the gateway's tools, whose own turn is stored instead.
        if out.stats.turn is not None or context.client_request.pending_response is not None:
            await self._store(target, out, written, len(data or b""))
        if self._state.cache_answer is not None:
            self._state.cache_answer(written)
        self._announce()
        await self._state.delivery.respond(context.response_headers(), written)

    async def _end_stream(
        self, target: Target, out: OutboundRequest, delivery: StreamDelivery, data: bytes | None
    ) -> None:
        """Store the answer, and write the rest of its stream. `data` is a whole answer that the upstream sent for it."""
        context = self._context
        if data is not None:
            self._pending_end = await context.work.encode_stream(out, data)
        await self._store(target, out, self._pending_end, len(data or b"") or self._state.streamed_bytes)
        await self._write_pending_end()
        if not delivery.has_output:
            self._announce()
        await delivery.end()

    async def _store(self, target: Target, out: OutboundRequest, written: bytes, answer_size: int) -> None:
        """Store the turn of an answer, and an answer of OpenAI Responses, before its end is sent."""
        context = self._context
        tools = context.preparation.gateway_tools
        turn = out.stats.turn if tools is None else tools.turn
        if turn is not None:
            out.stats.turn = None
            await context.work.save_turn(turn, out, answer_size)
        pending = context.client_request.pending_response
        if pending is not None:
            await self._store_response(pending, target, out, written)

    async def _store_response(
        self, pending: PendingResponse, target: Target, out: OutboundRequest, written: bytes
    ) -> None:
        """Store a complete answer of OpenAI Responses, or the upstream that stores it itself."""
        context, client_request = self._context, self._context.client_request
        responses, tools = context.dependencies.responses, context.preparation.gateway_tools
        if out.recorder is not None:
            await responses.save_answer(pending, out.recorder, out.endpoint, written)
        elif out.endpoint.wire.name == client_request.wire.name:
            offer = None if tools is None else tools.offer
            await responses.save_pin(
                pending,
                out.stats.id,
                target.upstream,
                wants_store=client_request.wants_store,
                offered=None if offer is None else offer.list_names(out.stats.calls),
                last_id="" if tools is None else tools.last_id,
            )

    def _announce(self) -> None:
        """Add the headers about this target to the head of the answer, which is certain from here on.

        A target that was failing counts as working from now on. The headers are the upstream's headers, the number of losses, and the numbers of offered and declared tools.
        """
        health = self._target.health
        if health.state != "closed":  # else `AttemptPlan.succeed` is early enough
            self._context.dependencies.router.succeed(self._target, self._sent_at)
        losses = () if self._out is None else self._out.losses
        headers = [*self._reply_headers, (b"x-toolwire-losses", b"%d" % len(losses)) if losses else NO_LOSSES]
        counts = self._context.preparation.tool_counts
        if counts is not None:
            headers.append((b"x-toolwire-tools", b"%d/%d" % (counts.offered, counts.declared)))
        self._context.http_exchange.answer_headers = headers

    async def _write(self, data: bytes, delivery: StreamDelivery) -> None:
        if not delivery.has_output:
            self._announce()
        await delivery.write(data)

    async def _write_pending_end(self) -> None:
        delivery = self._state.stream_delivery
        if self._pending_end and delivery is not None:
            pending, self._pending_end = self._pending_end, b""
            await self._write(pending, delivery)

    # streams

    async def _relay_stream(
        self, target: Target, out: OutboundRequest, reply: Reply
    ) -> tuple[Fault | None, RejectedAnswer | None]:
        """Relay a stream except its end. Return a fault that occurred before any output, or a rejected answer."""
        context, delivery = self._context, self._state.stream_delivery
        assert delivery is not None
        self._add_transport_losses(out, reply)
        max_start = 0 if self._is_only_target or delivery.has_output else self._start_limit()
        relay = await context.work.open_relay(target, out, reply, max_start)
        stream = self._state.stream = relay.stream
        if not max_start:
            self._announce()
        fault = await self._relay_pieces(relay, stream, delivery, target, out)
        if fault is not None or relay.has_failed():
            return fault, None
        if stream.ended or stream.rejected is not None:
            await drain(reply)
        last = await relay.close()
        if relay.has_failed():
            return await self._fail_stream(self._pending_end + last, stream, delivery), None
        self._pending_end += last
        return None, stream.rejected

    def _start_limit(self) -> int:
        """Return the size of the output that is held back before the first content: 0 if no retry is possible."""
        client_request = self._context.client_request
        if client_request.upload is not None or self._context.has_run_tools:
            return 0
        repeats = _REPEATED_IN_START if client_request.ingress.stores_responses else 0
        return _MAX_START + repeats * len(client_request.body)

    async def _relay_pieces(
        self, relay: StreamRelay, stream: Stream, delivery: StreamDelivery, target: Target, out: OutboundRequest
    ) -> Fault | None:
        """Relay pieces until the stream needs no more, ends or fails. Return a fault before any output, or None."""
        context = self._context
        limits = context.dependencies.limits
        remaining, max_items = limits.answer, limits.values // _VALUES_PER_ITEM
        while True:
            try:
                data = await relay.read()
            except TimeoutError as error:
                fault = network_fault_of(error, context.log_writer.log.upstream)
                return await self._fail_stream(stream.fail(fault), stream, delivery)
            except ConnectionError:
                return None  # the decoder decides whether the stream was complete
            if not data:
                return None
            target.health.is_heard = True
            size = len(data)
            remaining -= size
            self._state.streamed_bytes += size
            if remaining < 0 or relay.item_count > max_items:
                output = stream.fail(_too_large_fault(limits, max_items, is_too_long=remaining < 0))
            else:
                output = await relay.feed(data)
            if stream.fault is not None:
                return await self._fail_stream(output, stream, delivery)
            if relay.is_finished():
                await self._end_pieces(output, stream, target, out)
                return None
            if not output:
                delivery.note_activity()
            elif not delivery.try_write(output):
                await self._write(output, delivery)  # which notes the activity, too

    async def _end_pieces(self, output: bytes, stream: Stream, target: Target, out: OutboundRequest) -> None:
        """Write the last piece after the answer was stored, unless our tools run next, or a retry follows."""
        context = self._context
        self._pending_end = output
        if context.preparation.gateway_tools is None and stream.rejected is None:
            await self._store(target, out, output, self._state.streamed_bytes)
            await self._write_pending_end()
            self._is_fully_sent = stream.ended and not context.client_request.as_array

    async def _fail_stream(self, last: bytes, stream: Stream, delivery: StreamDelivery) -> Fault | None:
        """Log the fault and end the stream with `last`, or return the fault for another target if nothing was sent."""
        if not delivery.has_output:
            return stream.fault
        if stream.fault is not None:
            self._context.log_writer.fail(stream.fault.kind, stream.fault.code)
        await delivery.write(last)
        await delivery.end()
        return None


def _too_large_fault(limits: LimitsRow, max_items: int, *, is_too_long: bool) -> Fault:
    excess = f"{limits.answer} bytes (limits.answer)" if is_too_long else f"{max_items} texts and calls (limits.values)"
    return Fault("server", f"the stream has more than {excess}", 502, "too_large", retryable=False)
