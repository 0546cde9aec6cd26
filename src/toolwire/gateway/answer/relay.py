"""Relay a stream without keeping the event loop busy: in pieces, with other requests in between.

A chunk of an upstream may contain thousands of events, and compressed data yields chunk after chunk without waiting for
the network. So data is fed in pieces, and the relay yields to the event loop after each. An event that is itself large
is decoded in a worker thread, and so are the pieces of a large call, because one of them ends it: then all of its
arguments are parsed, converted and encoded.

A provider sends its start events before the model has produced anything, and may still fail: an overloaded Anthropic
sends `message_start`, then `overloaded_error`. If another target could answer, the output is held back until it has
content of the model (`max_start`), so that it depends on the answer, and not on the timing of packets, whether a
fallback is possible.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from ...asgi.offload import LARGE, ClientOffload
from ...bridge.emulation.retries import RejectedAnswer
from ...ir.response import Fault
from ...net.http.transport import Reply
from ..memory import UNCOUNTED, StreamMemory
from ..observe.answer_stats import AnswerStats
from ..request.client_request import CALL_MARKS

__all__ = ["PIECE", "Stream", "StreamRelay"]

PIECE = 8 * 1024
"""Bytes that are fed at once: at most about a thousand events. A chunk with few lines is fed whole."""
_FEW_LINES = 600  # an event of a provider has two to four lines
_WORK_PER_CALL = 1024  # bytes of text that take as long as the start and the end of a call
_ONE_CALL = 256  # bytes of a piece that starts or ends one call, or a few
_FRAMES_PER_WORK = 4  # a fragment of arguments has a frame of many times its size
_REPEATS_PER_WORK = 8  # a request that is repeated in an event is only copied
_TAIL = max(map(len, CALL_MARKS)) - 1  # bytes; a mark may be split


class Stream(Protocol):
    """A stream in transit: the upstream's bytes in, the client's bytes out."""

    @property
    def fault(self) -> Fault | None: ...
    @property
    def ended(self) -> bool:
        """True if the answer is complete."""
        ...

    @property
    def should_stop(self) -> bool:
        """True if further data is irrelevant, so that the upstream can be released."""
        ...

    @property
    def rejected(self) -> RejectedAnswer | None:
        """Set at the end of an answer whose calls cannot be parsed: another request continues the client's stream."""
        ...

    @property
    def content_bytes(self) -> int:
        """The bytes of the answer so far: of texts, arguments and whole parts."""
        ...

    @property
    def item_count(self) -> int:
        """The number of texts and calls so far."""
        ...

    def feed(self, data: bytes) -> bytes:
        """Convert data to whole events, so that other events may be inserted between two results."""
        ...

    def close(self) -> bytes: ...

    def fail(self, fault: Fault) -> bytes:
        """Encode the error event for a fault in transit."""
        ...


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
        self._stream = stream
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
        stream = self._stream
        return stream.ended or stream.should_stop or stream.rejected is not None

    def has_failed(self) -> bool:
        return self._stream.fault is not None

    async def read(self) -> bytes:
        """Return the next piece of the reply; b"" at its end."""
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
        """Convert a piece to output for the client."""
        stream, held = self._stream, self._held + len(piece)
        self.item_count = stream.item_count
        self._memory.grow(piece, held, stream.content_bytes, self.item_count)
        self._held = held
        size = held + self._repeated_work + self._size_of_calls(piece)
        if size <= LARGE:
            output = stream.feed(piece)
        else:
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
        """End the stream, and return the last output for the client."""
        start, self._start = b"".join(self._start or ()), None
        try:
            return start + await self._offload.run(
                self._held + self._repeated_work + self._size_of_calls(b""), self._stream.close
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
            self._memory.shrink(self._stream.content_bytes, self._stream.item_count)
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
