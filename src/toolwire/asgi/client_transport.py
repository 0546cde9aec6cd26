"""Abort the connection of a client that does not read.

A transport keeps its buffered data until the peer has read it, also after `close`, and without a time limit. Every
part of the server, uvicorn included, closes connections through this class, so that each end of a connection has the
limit.

A connection that is closed while the client is still sending is reset, which can destroy an answer that the client has
not read yet. So its end is sent, and the rest of the request is read before it is closed (RFC 9112, 9.6).
"""

from __future__ import annotations

import socket
import struct
import sys
from asyncio import AbstractEventLoop, TimerHandle, Transport
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_LINGER = 5.0  # seconds until a client that still sends must have read the answer and closed its side; as nginx
_BYTES_ACKED = struct.Struct("@120xQ")  # of `struct tcp_info` in linux/tcp.h, since Linux 4.1


class ClientTransport:
    """A transport that aborts its connection if the client reads nothing for `timeout` seconds.

    The time is limited between `start_timer` and `stop_timer`, and after `close`. `discard_input` discards the data that
    arrives from now on, and returns whether any is expected. It has the methods of the transport that it wraps.
    """

    __slots__ = (
        "_discard_input",
        "_linger_timer",
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

    def __init__(
        self, transport: Transport, loop: AbstractEventLoop, timeout: float, discard_input: Callable[[], bool]
    ) -> None:
        self._transport = transport
        self._discard_input = discard_input
        # of the methods that are not changed, the most frequent ones
        self.write = transport.write
        self.is_closing = transport.is_closing
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading
        self.get_write_buffer_size = transport.get_write_buffer_size
        self._loop = loop
        self._timeout = timeout
        self._timer: TimerHandle | None = None
        self._linger_timer: TimerHandle | None = None

    def close(self) -> None:
        """Close the connection when the client has read the buffered data.

        While the client still sends, the end is sent and input is discarded, for up to five seconds. The timer also starts without such data, because a TLS transport does not report all of it.
        """
        if self.is_closing():
            return
        if self._discard_input():
            self.is_closing = _is_lingering
            if self._transport.can_write_eof():  # not for TLS
                with suppress(OSError):  # the client has reset the connection
                    self._transport.write_eof()
            self._linger_timer = self._loop.call_later(min(_LINGER, self._timeout), self._transport.close)
        else:
            self._transport.close()
        self.start_timer()

    def close_now(self) -> None:
        """Close the connection when the client has read the buffered data, and read nothing more."""
        self.stop_lingering()
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

    def stop_lingering(self) -> None:
        if self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None

    def _set_timer(self) -> None:
        self._timer = self._loop.call_later(self._timeout, self._check_progress, self._measure_progress())

    def _check_progress(self, previous: int) -> None:
        """Abort the connection if the client has read nothing since the timer was set."""
        self._timer = None
        if self._measure_progress() > previous:
            self._set_timer()
        else:
            self._transport.abort()

    def _measure_progress(self) -> int:
        """Return a number that grows while the client reads, and no data is added.

        The size of the buffer is not exact: a TLS transport passes on all of its buffer at once, to a transport whose buffer
        it does not report.
        """
        acknowledged = _count_acknowledged(self._transport.get_extra_info("socket"))
        return -self.get_write_buffer_size() if acknowledged is None else acknowledged

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def _is_lingering() -> bool:
    """Return True, as `is_closing` does for a transport that is being closed."""
    return True


def _count_acknowledged(connection: socket.socket | None) -> int | None:
    """Return the number of bytes that the client has acknowledged, or None where the system does not report it."""
    if connection is None or sys.platform != "linux":
        return None
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED.size)
    except OSError:  # not a TCP connection
        return None
    if len(info) < _BYTES_ACKED.size:
        return None
    [count] = _BYTES_ACKED.unpack(info)
    return count or None  # a sandbox of containers may not count them
