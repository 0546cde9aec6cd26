"""Relay a stream without keeping the event loop busy: in pieces, with other requests in between.

A chunk of an upstream may contain thousands of events, and compressed data yields chunk after chunk without waiting for
the network. So data is fed in pieces, and the relay yields to the event loop after each. An event that is itself large
is decoded in a worker thread.
"""

from __future__ import annotations

import asyncio

from ...asgi.offload import LARGE, ClientOffload
from ...net.http import Reply
from .stream_memory import StreamMemory
from .streams import Stream

__all__ = ["PIECE", "StreamRelay"]

PIECE = 8 * 1024
"""Bytes that are fed at once: at most about a thousand events. More is fed if it has few."""
_FEW_LINES = 600  # an event of a provider has two to four lines


class StreamRelay:
    """Reads a reply in pieces, and feeds them to a stream. The kept part of the answer counts as memory in use."""

    def __init__(
        self,
        reply: Reply,
        stream: Stream,
        offload: ClientOffload,
        memory: StreamMemory,
        *,
        extra_work: int = 0,
    ) -> None:
        """Create the relay. `extra_work` is the size of the work for a piece besides its own size."""
        self._extra_work = extra_work
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
        output = await self._offload.run(held + self._extra_work, self._stream.feed, piece)
        if output:
            self._free_held()
        return output

    async def close(self) -> bytes:
        """End the stream, and return the last output for the client."""
        try:
            return await self._offload.run(self._held + self._extra_work, self._stream.close)
        finally:
            self._free_held()

    def _free_held(self) -> None:
        self._memory.shrink(self._stream.content_bytes)
        self._held = 0


def _has_few_events(chunk: bytes) -> bool:
    """Check by its lines whether a chunk can be fed at once."""
    size = len(chunk)
    return size <= PIECE or (size <= LARGE and chunk.count(b"\n") + chunk.count(b"\r") <= _FEW_LINES)
