"""Abort the connection of a client that does not read.

A transport keeps its buffered data until the peer has read it, also after `close`, and without a time limit. Every part of
the server, uvicorn included, closes connections through this class, so that each end of a connection has the limit.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle, Transport
from typing import Any

__all__ = ["ClientTransport"]


class ClientTransport:
    """A transport that aborts its connection if the client reads nothing for `timeout` seconds.

    The time is limited between `start_timer` and `stop_timer`, and after `close`. It has the methods of the transport that
    it wraps.
    """

    __slots__ = (
        "_loop",
        "_timeout",
        "_timer",
        "_transport",
        "get_write_buffer_size",
        "is_closing",
        "pause_reading",
        "resume_reading",
        "write",
    )

    def __init__(self, transport: Transport, loop: AbstractEventLoop, timeout: float) -> None:
        self._transport = transport
        # of the methods that are not changed, the most frequent ones
        self.write = transport.write
        self.is_closing = transport.is_closing
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading
        self.get_write_buffer_size = transport.get_write_buffer_size
        self._loop = loop
        self._timeout = timeout
        self._timer: TimerHandle | None = None

    def close(self) -> None:
        """Close the connection when the client has read the buffered data.

        The timer also starts without such data, because a TLS transport does not report all of it.
        """
        if not self.is_closing():
            self._transport.close()
            self.start_timer()

    def start_timer(self) -> None:
        """Limit the time in which the client has to read a part of the buffered data, from now on."""
        self.stop_timer()
        self._set_timer()

    def stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        self._timer = self._loop.call_later(self._timeout, self._check_progress, self.get_write_buffer_size())

    def _check_progress(self, previous_size: int) -> None:
        """Abort the connection if the client has read nothing since the timer was set."""
        self._timer = None
        if self.get_write_buffer_size() >= previous_size:
            self._transport.abort()
        else:
            self._set_timer()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
