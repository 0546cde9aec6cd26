"""Relay a stream without keeping the event loop busy: in pieces, with other requests in between.

A chunk of an upstream may contain thousands of events, and compressed data yields chunk after chunk without waiting for
the network. So data is fed in pieces, and the relay yields to the event loop after each. An event that is itself large
is decoded in a worker thread.
"""

from __future__ import annotations

import asyncio

from ...asgi.offload import ClientOffload
from ...net.http import Reply
from ..shared.memory_bound import MemoryReservation
from .streams import Stream

__all__ = ["PIECE", "StreamRelay"]

PIECE = 8 * 1024
"""Bytes that are fed at once: at most about a thousand events."""


class StreamRelay:
    """Reads a reply in pieces, and feeds them to a stream. Bytes of an incomplete event count as memory in use."""

    def __init__(self, reply: Reply, stream: Stream, offload: ClientOffload, memory: MemoryReservation) -> None:
        self._reply = reply
        self._stream = stream
        self._offload = offload
        self._memory = memory
        self._chunk = b""  # received, and not yet read to its end
        self._position = 0
        self._since_yield = 0  # bytes
        self._held = 0  # bytes fed since the last output

    async def read(self) -> bytes:
        """Return the next piece of the reply; b"" at its end."""
        if self._since_yield >= PIECE:
            self._since_yield = 0
            await asyncio.sleep(0)
        if self._position >= len(self._chunk):
            self._chunk, self._position = await self._reply.read(), 0
        piece = self._chunk if len(self._chunk) <= PIECE else self._chunk[self._position : self._position + PIECE]
        self._position += PIECE
        self._since_yield += len(piece)
        return piece

    async def feed(self, piece: bytes) -> bytes:
        """Convert a piece to output for the client."""
        held = self._held + len(piece)
        if held > PIECE:
            self._memory.add(held - max(self._held, PIECE))
        self._held = held
        output = await self._offload.run(held, self._stream.feed, piece)
        if output:
            self._free_held()
        return output

    async def close(self) -> bytes:
        """End the stream, and return the last output for the client."""
        try:
            return await self._offload.run(self._held, self._stream.close)
        finally:
            self._free_held()

    def _free_held(self) -> None:
        self._memory.subtract(max(0, self._held - PIECE))
        self._held = 0
