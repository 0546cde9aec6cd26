"""A limit on the time in which a client reads.

A transport keeps its buffered data until the peer has read it, also after `close`, and without a time limit.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys

_BYTES_ACKED = struct.Struct("@120xQ")  # of `struct tcp_info` in linux/tcp.h, since Linux 4.1


class UnreadTimer:
    """Aborts a connection if its client reads nothing for `timeout` seconds, from `start` to `stop`."""

    __slots__ = ("_handle", "_loop", "_timeout", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, timeout: float) -> None:
        self._transport = transport
        self._loop = loop
        self._timeout = timeout
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Limit the time in which the client has to read a part of the buffered data, from now on."""
        self.stop()
        self._handle = self._loop.call_later(self._timeout, self._check, self._measure())

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _check(self, previous: int) -> None:
        """Abort the connection if the client has read nothing since the timer was set."""
        self._handle = None
        if self._measure() > previous:
            self.start()
        else:
            self._transport.abort()

    def _measure(self) -> int:
        """Return a number that grows while the client reads, and no data is added.

        The size of the buffer is not exact: a TLS transport passes on all of its buffer at once, to a transport whose buffer
        it does not report.
        """
        acknowledged = _count_acknowledged(self._transport.get_extra_info("socket"))
        return -self._transport.get_write_buffer_size() if acknowledged is None else acknowledged


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
