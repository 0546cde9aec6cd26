"""Accept the connections that wait, up to 32 of them in each turn of the event loop.

libuv accepts a single connection per turn (libuv/libuv#3696, since version 1.45), and a turn of a busy server lasts long: with
1,000 clients, a health check on a new connection waited for seconds.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Sized
from logging import getLogger
from selectors import EVENT_READ, DefaultSelector
from ssl import SSLContext
from typing import Any

BATCH = 32
"""Connections that are accepted at once, so that requests in progress do not wait for a burst of them."""
_log = getLogger("toolwire.asgi")
_RETRY_DELAY = 1.0  # seconds after an error of the system, such as too many open files; as asyncio


def has_unread_data(transport: asyncio.BaseTransport) -> bool:
    """Return whether the system has received data, or the end of a connection, that the event loop has not read yet."""
    connection = transport.get_extra_info("socket")
    if connection is None:
        return False
    with DefaultSelector() as selector:
        selector.register(connection.fileno(), EVENT_READ)
        return bool(selector.select(0))


class BatchListener:
    """Accept connections from a socket.

    `connections` are the open ones of the server, of which there are at most about `limit`; those in a TLS handshake are not among
    them. If there are more of both, the oldest handshake ends: clients that send nothing would take all descriptors.
    """

    def __init__(
        self,
        listener: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        connections: Sized,
        limit: int,
        ssl: SSLContext | None,
    ) -> None:
        self._socket = listener
        self._socket.setblocking(False)
        self._make_protocol = make_protocol
        self._connections = connections
        self._limit = limit
        self._ssl = ssl
        self._loop = asyncio.get_running_loop()
        self._connecting: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._is_open = False
        self._timer: asyncio.TimerHandle | None = None  # until the next try to accept

    def start(self) -> None:
        self._is_open = True
        self._loop.add_reader(self._socket, self._on_connection)

    def close(self) -> None:
        """Stop accepting, and take the connections that wait, which would be reset."""
        if self._stop():
            self._accept_all()
            self._socket.close()

    def _stop(self) -> bool:
        """Stop accepting. Return False if that was done before."""
        if not self._is_open:
            return False
        self._is_open = False
        self._loop.remove_reader(self._socket)
        if self._timer is not None:
            self._timer.cancel()
        return True

    async def wait_closed(self) -> None:
        """Wait for the connections that were accepted before `close`, and whose protocol has not begun."""
        while self._connecting:
            await asyncio.wait(self._connecting)

    def _on_connection(self) -> None:
        self._accept(BATCH)

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._socket)
        self._timer = self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._timer = None
        self._loop.add_reader(self._socket, self._on_connection)

    def _accept_all(self) -> None:
        while self._accept(BATCH):
            continue

    def _accept(self, count: int) -> bool:
        """Accept up to `count` connections, and start the protocol of each in a task. Return whether more may wait.

        Errors are logged; without a free descriptor or memory, accepting pauses. With TLS, the oldest handshake is
        cancelled if there are too many connections.
        """
        for _ in range(count):
            try:
                connection, _ = self._socket.accept()
            except ConnectionAbortedError:  # the client left while its connection was queued
                continue
            except (BlockingIOError, InterruptedError):
                return False
            except OSError as error:
                _log.error("cannot accept connections: %s", error.strerror)
                if self._is_open and error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._pause(_RETRY_DELAY)
                return False
            connection.setblocking(False)
            task = self._loop.create_task(self._connect(connection))
            self._connecting[task] = None
            task.add_done_callback(lambda task: self._connecting.pop(task, None))
            if self._ssl is not None and len(self._connections) + len(self._connecting) > self._limit:
                oldest = next(iter(self._connecting))
                del self._connecting[oldest]
                oldest.cancel()
        return True

    async def _connect(self, connection: socket.socket) -> None:
        """Start the protocol of a connection. A failed TLS handshake ends it."""
        protocol: Any
        try:
            _, protocol = await self._loop.connect_accepted_socket(self._make_protocol, connection, ssl=self._ssl)
        except OSError:  # of the connection or its TLS handshake
            connection.close()
            return
        if not self._is_open:
            protocol.shutdown()  # the server did this for the connections that it knew when it began to stop
