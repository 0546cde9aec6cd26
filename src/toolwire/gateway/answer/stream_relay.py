"""Relay a stream without keeping the event loop busy: in pieces, with other requests in between.

A chunk of an upstream may contain thousands of events, and compressed data yields chunk after chunk without waiting for
the network. So data is fed in pieces, and the relay yields to the event loop after each. An event that is itself large
is decoded in a worker thread, and so are the pieces of a large call, because one of them ends it: then all of its
arguments are parsed, converted and encoded.
"""

from __future__ import annotations

import asyncio

from ...asgi.offload import LARGE, ClientOffload
from ...net.http import Reply
from .answer_stats import AnswerStats
from .client_request import CALL_MARKS
from .stream_memory import StreamMemory
from .streams import Stream

__all__ = ["PIECE", "StreamRelay"]

PIECE = 8 * 1024
"""Bytes that are fed at once: at most about a thousand events. More is fed if it has few."""
_FEW_LINES = 600  # an event of a provider has two to four lines
_WORK_PER_CALL = 1024  # bytes of text that take as long as the start and the end of a call
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
    ) -> None:
        """Create the relay.

        `repeated_work` is the size of the work for a request that the first and the last output repeat. `call_work` is
        the size of the work for a piece in which calls end, besides its own size. `is_emulated`: calls are in the text,
        where any piece may end one.
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
        self._held = 0  # bytes fed since the last output

    async def read(self) -> bytes:
        """Return the next piece of the reply; b"" at its end."""
        if self._since_yield >= PIECE:
            self._since_yield = 0
            await asyncio.sleep(0)
        if self._position >= len(self._chunk):
            self._chunk, self._position = await self._reply.read(), 0
            self._piece_size = len(self._chunk) if _has_few_events(self._chunk) else PIECE
        piece = self._chunk[self._position : self._position + self._piece_size]
        self._position += self._piece_size
        self._since_yield += len(piece)
        return piece

    async def feed(self, piece: bytes) -> bytes:
        """Convert a piece to output for the client."""
        held = self._held + len(piece)
        self._memory.grow(piece, held, self._stream.content_bytes)
        self._held = held
        size = held + self._repeated_work + self._size_of_calls(piece)
        output = await self._offload.run(size, self._stream.feed, piece)
        if self._stats.ended_calls != self._ended_calls:
            self._ended_calls, self._call_bytes = self._stats.ended_calls, 0
        if output:
            self._free_held()
            if not self._has_output:
                self._has_output = True
                self._repeated_work //= _REPEATS_PER_WORK
        return output

    async def close(self) -> bytes:
        """End the stream, and return the last output for the client."""
        try:
            return await self._offload.run(
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
            self._has_calls = any(mark in joined for mark in CALL_MARKS)
            if not self._has_calls:
                self._tail = joined[-_TAIL:]
                return 0
        self._call_bytes += len(piece)
        calls = len(self._stats.calls) + sum([piece.count(mark) for mark in CALL_MARKS])
        arguments = max(self._stats.open_call_bytes, self._call_bytes // _FRAMES_PER_WORK)
        return self._call_work + calls * _WORK_PER_CALL + arguments

    def _free_held(self) -> None:
        self._memory.shrink(self._stream.content_bytes)
        self._held = 0


def _has_few_events(chunk: bytes) -> bool:
    """Check by its lines whether a chunk can be fed at once."""
    size = len(chunk)
    return size <= PIECE or (size <= LARGE and chunk.count(b"\n") + chunk.count(b"\r") <= _FEW_LINES)
