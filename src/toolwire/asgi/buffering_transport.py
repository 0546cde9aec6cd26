"""Combine the writes of one iteration of the event loop.

uvicorn writes the head of an answer and its body separately; they need not be two system calls. The transports of uvloop
combine them by themselves, except for TLS.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Transport
from typing import Any

__all__ = ["BufferingTransport", "combines_writes"]

_MAX_PENDING = 64 * 1024  # bytes; the transport then pauses an app that writes without waiting for anything else


class BufferingTransport:
    """A transport that combines the writes of one loop iteration.

    It has the methods of the transport that it wraps.
    """

    __slots__ = ("_loop", "_pending", "_pending_size", "_transport", "is_closing", "pause_reading", "resume_reading")

    def __init__(self, transport: Transport, loop: AbstractEventLoop) -> None:
        self._transport = transport
        # of the methods that are not changed, the most frequent ones
        self.is_closing = transport.is_closing
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading
        self._loop = loop
        self._pending: list[bytes] = []
        self._pending_size = 0  # bytes

    def write(self, data: bytes) -> None:
        if not self._pending:
            self._loop.call_soon(self._flush)
        self._pending.append(data)
        self._pending_size += len(data)
        if self._pending_size > _MAX_PENDING:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            data = b"".join(self._pending)
            self._pending, self._pending_size = [], 0
            self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def write_eof(self) -> None:
        self._flush()
        self._transport.write_eof()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + self._pending_size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def combines_writes(transport: Transport) -> bool:
    """Return whether a transport combines writes by itself."""
    return type(transport).__module__ == "uvloop.loop" and transport.get_extra_info("sslcontext") is None
