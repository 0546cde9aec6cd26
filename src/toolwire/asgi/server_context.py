"""The state that the connections of a server share: the application, limits, open connections, running requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import TYPE_CHECKING, Protocol

from .admission import AdmissionGate, ConnectionCounts, ConnectionLimits, DefaultLimits

if TYPE_CHECKING:
    from .request import AsgiApp, Scope


class OpenConnection(Protocol):
    """A connection, as the server and the protocol of an upgrade use it."""

    transport: asyncio.Transport
    is_write_paused: bool

    @property
    def context(self) -> ServerContext: ...

    async def drain(self) -> None: ...

    def shutdown(self) -> None: ...

    def close(self) -> None: ...


class SwitchedProtocol(Protocol):
    """The protocol of a connection after an upgrade. It writes to the `transport`, and ends with `close`."""

    def data_received(self, data: bytes, /) -> None: ...

    def connection_lost(self, error: Exception | None, /) -> None: ...

    def shutdown(self) -> None:
        """End soon, because the server stops."""
        ...


class RunningExchange(Protocol):
    """A request whose application runs in a task."""

    task: asyncio.Task[None] | None


class ServerContext:
    """`upgrade` is called for a WebSocket handshake, with its connection and the scope of its request.

    It returns the protocol that takes the connection, or None to ignore the upgrade.
    """

    def __init__(
        self,
        app: AsgiApp,
        *,
        limits: Callable[[], ConnectionLimits] = DefaultLimits,
        counts: ConnectionCounts | None = None,
        gate: AdmissionGate | None = None,
        keep_alive: float = 5.0,  # seconds; clients that have many requests send them faster
        upgrade: Callable[[OpenConnection, Scope], SwitchedProtocol | None] | None = None,
    ) -> None:
        self.app = app
        self.limits = limits
        self.counts = counts or ConnectionCounts.from_descriptors()
        self.gate = gate
        self.keep_alive = keep_alive
        self.upgrade = upgrade
        self.app_state: dict[str, object] = {}
        self.connections: set[OpenConnection] = set()
        self.exchanges: set[RunningExchange] = set()
        self.has_no_connections = asyncio.Event()
        self._second = 0  # of `_date_line`
        self._date_line = b""

    def add(self, connection: OpenConnection) -> int:
        """Add a connection, and return the number of all."""
        self.connections.add(connection)
        self.has_no_connections.clear()
        return len(self.connections)

    def remove(self, connection: OpenConnection) -> None:
        self.connections.discard(connection)
        if not self.connections:
            self.has_no_connections.set()

    def date_line(self) -> bytes:
        """Return the header line with the current time."""
        now = time.time()
        if not self._second <= now < self._second + 1:
            self._second = int(now)
            self._date_line = b"date: %b\r\n" % formatdate(now, usegmt=True).encode()
        return self._date_line
