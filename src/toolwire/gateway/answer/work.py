"""The steps of an answer that need memory or time, each within the bounds of its request.

`AnswerWork` is the only part of an answer that knows the memory reservation and the threads of its request. For each
step it reserves the memory first, estimates the size of the work, and runs large work in a thread. So an attempt reads
as the plain order of its steps, and no step can forget a bound.

The sizes are estimates: bytes of JSON text whose parsing takes as long. They need not be exact, because the bound between
small and large work (`LARGE`) is far below a delay that clients notice, and a switch of threads more costs little.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from time import perf_counter

from msgspec import Struct

from ...asgi.offload import LARGE, ClientOffload
from ...bridge.conversation.restored_turns import turn_is_incomplete
from ...bridge.conversation.turns import MAX_TURN_BYTES, StoredTurn
from ...bridge.emulation.retries import RejectedAnswer
from ...ir.errors import ProtocolError
from ...ir.losses import require_lossless
from ...ir.prompt_size import least_tokens
from ...ir.response import Fault
from ...net.http.transport import Reply
from ...net.model.replies import read_reply_body
from ...net.model.upstream_exchange import ERROR_LIMIT, ReplyMeaning, UpstreamExchange
from ...net.tools.runner import Runner
from ..faults import overflow_fault
from ..gateway_tools import with_gateway_tools
from ..memory import UNCOUNTED, MemoryReservation, StreamMemory, admit_document
from ..observe.answer_stats import AnswerStats
from ..observe.request_log import RequestLogWriter
from ..request.client_request import CALL_MARKS, ClientRequest
from ..request.dependencies import Dependencies
from ..retrieval.offered_tools import OfferedClientTools, is_stored_elsewhere
from ..routing.media_descriptions import DescribedRequest
from ..routing.router import Target
from .preparation import (
    OutboundRequest,
    RequestPreparation,
    RestoredRequest,
    Stream,
    TurnMemory,
    encode_turn,
    leaves_context,
)

# Relay a stream without keeping the event loop busy: in pieces, with other requests in between.
#
# A chunk of an upstream may contain thousands of events, and compressed data yields chunk after chunk without waiting
# for the network. So data is fed in pieces, and the relay yields to the event loop after each. An event that is
# itself large is decoded in a worker thread, and so are the pieces of a large call, because one of them ends it: then
# all of its arguments are parsed, converted and encoded.
#
# A provider sends its start events before the model has produced anything, and may still fail: an overloaded
# Anthropic sends `message_start`, then `overloaded_error`. If another target could answer, the output is held back
# until it has content of the model (`max_start`), so that it depends on the answer, and not on the timing of packets,
# whether a fallback is possible.


PIECE = 8 * 1024  # bytes that are fed at once: about a thousand events at most; a chunk with few lines is fed whole
_FEW_LINES = 600  # an event of a provider has two to four lines
_WORK_PER_CALL = 1024  # bytes of text that take as long as the start and the end of a call
_ONE_CALL = 256  # bytes of a piece that starts or ends one call, or a few
_FRAMES_PER_WORK = 4  # a fragment of arguments has a frame of many times its size
_REPEATS_PER_WORK = 8  # a request that is repeated in an event is only copied
_TAIL = max(map(len, CALL_MARKS)) - 1  # bytes; a mark may be split


class StreamRelay:
    """Reads a reply in pieces, and feeds them to a stream. The kept part of the answer counts as memory in use."""

    def __init__(
        self,
        reply: Reply,
        stream: Stream,
        offload: ClientOffload,
        memory: StreamMemory,
        stats: AnswerStats,
        *,
        repeated_work: int = 0,
        call_work: int = 0,
        is_emulated: bool = False,
        max_start: int = 0,
    ) -> None:
        """Create the relay.

        `repeated_work` is the size of the work for a request that the first and the last output repeat. `call_work` is
        the size of the work for a piece in which calls end, besides its own size. `is_emulated`: calls are in the text,
        where any piece may end one. `max_start` is the size of the output before any content that is held back.
        """
        self._stats = stats
        self._repeated_work = repeated_work
        self._call_work = call_work
        self._has_calls = is_emulated
        self._has_output = False
        self._tail = b""  # the last bytes before the first call
        self._ended_calls = 0
        self._call_bytes = 0  # bytes fed since the last end of a call
        self._reply = reply
        self.stream = stream
        self._offload = offload
        self._memory = memory
        self._chunk = b""  # received, and not yet read to its end
        self._position = 0
        self._piece_size = PIECE
        self._since_yield = 0  # bytes
        self.item_count = 0  # texts and calls before the last piece
        self._held = 0  # bytes fed since the last output, for which memory is reserved
        self._max_start = max_start
        self._start: list[bytes] | None = [] if max_start else None  # the output without content that is held back

    def is_finished(self) -> bool:
        """Return whether the stream needs no further data."""
        stream = self.stream
        return stream.ended or stream.should_stop or stream.rejected is not None

    def has_failed(self) -> bool:
        return self.stream.fault is not None

    async def read(self) -> bytes:
        """Return the next piece of the reply, or b"" at its end. Let other tasks run after every `PIECE` bytes."""
        if self._since_yield >= PIECE:
            self._since_yield = 0
            await asyncio.sleep(0)
        if self._position >= len(self._chunk):
            chunk = await self._reply.read()
            size = len(chunk)
            if size <= PIECE:  # nearly all of them
                self._since_yield += size
                return chunk
            self._chunk, self._position = chunk, 0
            self._piece_size = size if _has_few_events(chunk) else PIECE
        piece = self._chunk[self._position : self._position + self._piece_size]
        self._position += self._piece_size
        self._since_yield += len(piece)
        return piece

    async def feed(self, piece: bytes) -> bytes:
        """Convert a piece to output for the client, in a thread if the work is large.

        Memory is reserved for the piece until output follows. Output without content is held back up to `max_start`.
        """
        stream, held = self.stream, self._held + len(piece)
        self.item_count = stream.item_count
        self._memory.grow(piece, held, stream.content_bytes, self.item_count)
        self._held = held
        size = held + self._repeated_work + self._size_of_calls(piece)
        output = await self._offload.run(size, stream.feed, piece)
        if self._stats.ended_calls != self._ended_calls:
            self._ended_calls, self._call_bytes = self._stats.ended_calls, 0
        if self._start is not None and output:
            output = self._hold_start(self._start, output)
        if output:
            self._free_held()
            if not self._has_output:
                self._has_output = True
                self._repeated_work //= _REPEATS_PER_WORK
        return output

    def _hold_start(self, start: list[bytes], output: bytes) -> bytes:
        """Return nothing while the output has no content, and then all of it. The end of an answer counts as content."""
        start.append(output)
        self._max_start -= len(output)
        if self._max_start >= 0 and not self._stats.has_content and not self.is_finished():
            return b""
        self._start = None
        return b"".join(start)

    async def close(self) -> bytes:
        """End the stream, and return the last output for the client with the output that was held back."""
        start, self._start = b"".join(self._start or ()), None
        try:
            return start + await self._offload.run(
                self._held + self._repeated_work + self._size_of_calls(b""), self.stream.close
            )
        finally:
            self._free_held()

    def _size_of_calls(self, piece: bytes) -> int:
        """Return the size of the work for the calls that this piece may end, and for the end of the answer.

        That is all of their arguments, which the stream may hold back. Text without calls makes no such work.
        """
        if not self._has_calls:
            joined = self._tail + piece
            self._has_calls = _has_call_mark(joined)
            if not self._has_calls:
                self._tail = joined[-_TAIL:]
                return 0
        size, stats = len(piece), self._stats
        self._call_bytes += size
        calls = len(stats.calls)
        calls += 1 if size <= _ONE_CALL else sum([piece.count(mark) for mark in CALL_MARKS])
        arguments = max(stats.open_call_bytes, self._call_bytes // _FRAMES_PER_WORK)
        return self._call_work + calls * _WORK_PER_CALL + arguments

    def _free_held(self) -> None:
        if self._held > UNCOUNTED:  # otherwise no memory was reserved for it
            self._memory.shrink(self.stream.content_bytes, self.stream.item_count)
        self._held = 0


def _has_few_events(chunk: bytes) -> bool:
    """Check by its lines whether a chunk can be fed at once."""
    if len(chunk) > LARGE:
        return False
    carriage_returns = chunk.count(b"\r") if b"\r" in chunk else 0  # a search is many times faster than a count
    return chunk.count(b"\n") + carriage_returns <= _FEW_LINES


def _has_call_mark(data: bytes) -> bool:
    for mark in CALL_MARKS:  # noqa: SIM110 - a generator costs more than the search
        if mark in data:
            return True
    return False


_WORK_PER_LOSS = 32  # bytes of text that take as long, as for a value (`gateway.memory`)
_SEARCHES_PER_WORK = 8  # a search for envelopes takes 1 ms for 1 MB, or 3 ms if many letters are escaped
_HASHES_PER_WORK = 8  # SHA-256 of 1 MB takes 1.4 ms, parsing it 8 ms
_LARGER_WINDOW = (
    "context-1m"  # `context-1m-2025-08-07`: 1,000,000 tokens instead of 200,000 for Claude Sonnet 4 and 4.5
)
# Requests that the provider shortens: by `truncation` of Responses, `context_management` of Anthropic and Responses,
# `transforms` and the plugin of OpenRouter (docs/features/message-transforms), `truncate_prompt_tokens` of vLLM.
_SHORTENED = re.compile(
    rb'"(?:truncation"\s*+:\s*+"auto"|context_management"\s*+:\s*+[\[{]|transforms"\s*+:\s*+\[\s*+"|context-compression"'
    rb'|truncate_prompt_tokens"\s*+:\s*+-?\d)'
)
_NOT_CUT = re.compile(rb'"truncate"\s*+:\s*+false')  # Ollama cuts every other prompt that is too long


class AnswerWork(Struct, frozen=True, eq=False):
    """The work for one request and its answer, within the request's memory and threads. Its time is in the log."""

    _client_request: ClientRequest
    _preparation: RequestPreparation
    _dependencies: Dependencies
    _log_writer: RequestLogWriter
    _memory: MemoryReservation
    _offload: ClientOffload
    reserve: Callable[[int], None]  # bytes that are received; MemoryExhausted if there are too few

    # before the first attempt

    async def decode_request(self) -> None:
        """Decode a request in a thread if it is large. Later uses of the decoded request are on the event loop."""
        size = self._client_request.work_size
        if size > LARGE:
            await self._offload.run(size, self._client_request.decode)

    async def hash_request(self, make_key: Callable[[], bytes | None]) -> bytes | None:
        return await self._offload.run(len(self._client_request.body) // _HASHES_PER_WORK, make_key)

    async def load_turns(self, targets: Sequence[Target]) -> None:
        """Load the stored turns of the conversation, for all targets. A large request is searched for envelopes first."""
        client_request, store = self._client_request, self._dependencies.turn_store
        size = len(client_request.body) // _SEARCHES_PER_WORK
        if size > LARGE:
            await self._offload.run(size, getattr, client_request, "has_envelopes")  # the property keeps the result
        if not store.has_any and not client_request.has_envelopes:
            return
        turns = TurnMemory(client_request, self._dependencies.envelopes)
        if store.has_any and (keys := await self._offload.run(client_request.work_size, turns.find_keys, targets)):
            turns.turns = await store.load(self._memory.client, keys)
        self._preparation.turns = turns if turns.found_any else None

    # the request to a target

    async def prepare(self, target: Target) -> OutboundRequest:
        """Return the request for a target, and log the attempt. From here on it waits for threads, and is not refused."""
        started_at = perf_counter()
        out = self._preparation.forward(target) or await self._prepare(target)
        self._offload.refuse = None
        self._log_writer.start_attempt(target, out.is_passed_through, started_at)
        return out

    async def _prepare(self, target: Target) -> OutboundRequest:
        """Prepare the request, in a thread if it is large or its tools are new. Its tools are known from then on.

        The context sizes of an Ollama server are requested first, and tools are selected if there are too many.
        """
        client_request, preparation = self._client_request, self._preparation
        known_tools, sizes = self._dependencies.known_tools, target.upstream.context_sizes
        is_same_wire = target.endpoint.wire.name == client_request.wire.name
        tools_key = known_tools.key(client_request, target.label)
        work_size = client_request.work_size if known_tools.has(tools_key) else LARGE + 1
        if is_same_wire:
            work_size = max(work_size, len(client_request.body))  # which may be parsed, also if its messages are known
        if preparation.turns is not None and preparation.turns.has_envelopes:
            work_size = max(work_size, LARGE + 1)  # a small envelope may contain much text
        if sizes is not None and (not is_same_wire or leaves_context(client_request, target)):
            await sizes.refresh(target.endpoint, target.upstream.transport)
        preparation.tool_count = None
        described = None
        if target.row.vision is not None and client_request.may_have_media():
            described = await self._describe_media(target, work_size)
        runner, offer = preparation.runner_for(target), None
        restored = None if described is None else (described.request, client_request.translations)
        if preparation.may_select_tools(target, runner):
            restored, offer = await self._select_tools(target, runner, work_size, restored)
        outbound = await self._offload.run(work_size, preparation.make_outbound, target, runner, restored, offer)
        known_tools.add(tools_key, client_request)
        if described is not None:
            outbound.losses.extend(described.losses)
            if client_request.strict:
                require_lossless(outbound.losses)
        return outbound

    async def _describe_media(self, target: Target, work_size: int) -> DescribedRequest | None:
        """Have another model describe the media that the target does not accept. Return None if there are none."""
        descriptions, caller = self._dependencies.descriptions, self._log_writer.log.caller
        request, _ = await self._offload.run(work_size, self._preparation.restore, target)
        kinds = descriptions.described_kinds(target)  # on the event loop: the plan may send probes
        size, model = len(self._client_request.body), target.row.vision or ""
        found = await self._offload.run(size, descriptions.find, request, model, kinds, caller)
        if not found.items:
            return None
        described = await descriptions.describe(request, target, found, self.reserve)
        self._log_writer.add_description(described.usage)
        return described

    async def _select_tools(
        self, target: Target, runner: Runner | None, work_size: int, described: RestoredRequest | None
    ) -> tuple[RestoredRequest | None, OfferedClientTools | None]:
        """Select among the tools of the client and of the gateway. `described` is the request if it has descriptions.

        Return the request with its stored turns, and the selection, or `described` and None if all tools are offered.
        Their number is noted if the conversation is stored elsewhere.
        """
        preparation, retrieval = self._preparation, target.row.retrieval
        ranker, client, offload = self._dependencies.ranker, self._memory.client, self._offload
        restored = await offload.run(work_size, preparation.restore, target) if described is None else described
        with_own = restored[0] if runner is None else with_gateway_tools(restored[0], runner)
        offer = None
        if preparation.may_defer(target):
            offer = await ranker.open_hosted_search(with_own, target.endpoint.wire, client, offload, work_size)
        if offer is None and retrieval is not None:
            pending = self._client_request.pending_response
            earlier = None if pending is None else pending.offered
            offer = await ranker.open_offer(with_own, retrieval, client, offload, work_size, earlier)
            if offer is None and is_stored_elsewhere(with_own):
                preparation.tool_count = len(with_own.tools)
        return (described, None) if offer is None else (restored, offer)

    async def find_overflow(self, out: OutboundRequest, window: int) -> Fault | None:
        """Return a fault if the prompt is certainly longer than the window. Other prompts are left to the upstream."""

        def count_tokens() -> int:
            request = None if _may_exceed_window(out) else out.sent_request
            return 0 if request is None else least_tokens(request)

        tokens = await self._offload.run(max(self._client_request.work_size, LARGE + 1), count_tokens)
        return overflow_fault(tokens, window) if tokens > window else None

    async def make_retry(
        self, out: OutboundRequest, rejected: RejectedAnswer, repair_target: Target | None = None
    ) -> OutboundRequest:
        """Prepare the request to send instead of accepting an answer, to the same model or to `repair_target`."""
        return await self._offload.run(self._client_request.work_size, out.make_retry, rejected, repair_target)

    async def prepare_following(self, out: OutboundRequest, prepare: Callable[[], OutboundRequest]) -> OutboundRequest:
        """Prepare the request after `out`, with the results of the gateway's tools."""
        return await self._offload.run(len(out.body), prepare)

    # its answer

    async def read_fault(self, exchange: UpstreamExchange, meaning: ReplyMeaning, reply: Reply) -> Fault:
        """Return the fault of an error response. A redirect is not followed, and an unreadable body is ignored."""
        if meaning == "redirect":
            message = "the upstream redirects to another address; the key is not sent there"
            return Fault("server", message, 502, "redirect", retryable=False)
        try:
            data = await read_reply_body(reply, ERROR_LIMIT, self.reserve)
        except (ProtocolError, TimeoutError, ConnectionError):
            data = b""  # the status is enough
        return await self._offload.run(len(data), exchange.receive_fault, data)

    async def reject_answer(self, out: OutboundRequest, data: bytes) -> RejectedAnswer | None:
        """Reject a whole answer if its emulated calls cannot be parsed."""
        await self._admit(data)
        return await self._offload.run(len(data) + self._client_request.work_size, out.reject_answer, data)

    async def decode_answer(self, target: Target, out: OutboundRequest, data: bytes) -> None:
        """Decode a whole answer, within the limits on its values and on the memory of all requests."""
        if target.row.emulate is None:  # else `reject_answer` has admitted it
            await self._admit(data)
        size = len(data) + self._calls_size(target, data)
        await self._offload.run(size, out.read_answer, data)

    async def _admit(self, data: bytes) -> None:
        await admit_document(data, self._dependencies.limits.values, self._offload, self._memory, status=502)

    async def open_relay(self, target: Target, out: OutboundRequest, reply: Reply, max_start: int) -> StreamRelay:
        """Open the relay of a streamed answer; `max_start` is the size of the output that may be held back."""
        client_request = self._client_request
        size = 0 if out.is_passed_through else client_request.work_size
        stream: Stream = await self._offload.run(size, out.open_stream)
        repeats_answer = client_request.ingress.stores_responses and not out.is_passed_through
        return StreamRelay(
            reply,
            stream,
            self._offload,
            StreamMemory(self._memory, repeats_answer=repeats_answer),
            out.stats,
            repeated_work=self._repeated_size(),
            call_work=self._repair_size(target),
            is_emulated=target.row.emulate is not None,
            max_start=max_start,
        )

    async def encode_answer(self, out: OutboundRequest, data: bytes) -> bytes:
        """Encode a whole answer for the client. `data` is the upstream's answer."""
        started_at, size = perf_counter(), len(data) + self._repeated_size()
        written = await self._offload.run(size, out.encode_answer)
        self._log_writer.add_overhead(started_at)
        return written

    async def release_events(self, out: OutboundRequest, size: int) -> bytes:
        """Return the events that waited for the gateway's tools to run; the stream had `size` bytes."""
        return await self._offload.run(size, out.release_events)

    async def encode_stream(self, out: OutboundRequest, data: bytes) -> bytes:
        """Encode a whole answer as the stream that the client requested."""
        return await self._offload.run(len(data) + self._repeated_size(), out.encode_stream)

    async def save_turn(self, turn: StoredTurn, out: OutboundRequest, answer_size: int) -> None:
        """Save the turn of an answer if the client cannot return it in full, unless it is too large for the store."""
        if turn_is_incomplete(turn, same_wire=out.endpoint.wire.name == self._client_request.wire.name):
            earlier = 0 if self._preparation.gateway_tools is None else len(out.body)  # the body has earlier rounds
            bound, keys, data = await self._offload.run(answer_size + earlier, encode_turn, turn, out.endpoint)
            if len(data) <= MAX_TURN_BYTES:
                await self._dependencies.turn_store.save(self._memory.client, keys, bound, data)

    async def end_attempt(self, out: OutboundRequest) -> None:
        """Log the answer of an attempt, its repairs, tools, usage and losses.

        The usage is estimated from the sizes if the upstream reported none.
        """
        log_writer, upload = self._log_writer, self._client_request.upload
        preparation = self._preparation
        log_writer.set_answer(out.stats, out.repairs, preparation.tool_counts)
        if preparation.gateway_tools is not None and preparation.gateway_tools.hosted is not None:
            log_writer.set_hosted_runs(dict(preparation.gateway_tools.hosted.started))
        if log_writer.log.usage is None:
            sent = out.body if upload is None else upload.size
            log_writer.set_estimate(await self._offload.run(len(out.body), out.stats.estimate, sent))
        if log_writer.log.description_usage is not None:
            log_writer.add_description(None)  # the usage above is the answer's
        if out.losses or log_writer.log.losses:  # the losses of an earlier attempt are replaced
            await self._offload.run(len(out.losses) * _WORK_PER_LOSS, log_writer.set_losses, out.losses)

    # sizes

    def _repeated_size(self) -> int:
        """Return the size of the work for the fields of the request that an answer repeats."""
        return self._client_request.work_size if self._client_request.ingress.stores_responses else 0

    def _calls_size(self, target: Target, data: bytes) -> int:
        """Return the size of the work for the calls in a whole answer; emulated ones are numbered after the request's."""
        size = self._repair_size(target)
        if target.row.emulate is not None:
            return self._client_request.work_size + size
        return size if size and any(mark in data for mark in CALL_MARKS) else 0

    def _repair_size(self, target: Target) -> int:
        """Return the size of the work for repairing calls: large, also for small schemas.

        It compiles the schemas of their tools. A cache has some of them, but a pattern of a few bytes may be too large
        for it.
        """
        if target.row.repair is None:
            return 0
        return LARGE + 1 if self._client_request.has_tools or self._preparation.gateway_tools is not None else 0


def _may_exceed_window(out: OutboundRequest) -> bool:
    """Return whether the provider shortens a long prompt itself, or has a larger window for this request.

    A field of the same name elsewhere in the body leaves the decision to the provider, too.
    """
    if _LARGER_WINDOW in out.headers.get("anthropic-beta", ""):
        return True
    if out.endpoint.wire.name == "ollama":
        return _NOT_CUT.search(out.body) is None
    return _SHORTENED.search(out.body) is not None
