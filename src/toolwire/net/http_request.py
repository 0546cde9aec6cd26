"""Requests of the HTTP client: the part that is the same for many of them, and each one that is in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

from msgspec import Struct

from .http import Reply, RequestBody, StreamedBody
from .http_connection import HttpConnection, StaleConnection
from .http_head import Origin
from .http_pool import ClientPools, OriginPool
from .http_upload import BodyUpload, body_header

__all__ = ["PreparedRequest"]

_MAX_JOINED_BODY = 64 * 1024  # bytes; up to this size the body is copied and written together with the head
_MIN_SECONDS = 0.001


class PreparedRequest:
    """The head of requests that differ only in their body.

    `resends`: a request on a reused connection that the server has closed is sent once more.
    """

    __slots__ = ("_pools", "head", "method", "origin", "pool", "resends")

    def __init__(self, pools: ClientPools, method: str, origin: Origin, head: bytes, *, resends: bool) -> None:
        self._pools = pools
        self.method = method
        self.origin = origin
        self.head = head
        self.resends = resends
        self.pool: OriginPool | None = None  # of the event loop that used it last

    def send(self, body: RequestBody, seconds: float) -> AbstractAsyncContextManager[Reply]:
        """Send a request with this body, and a timeout of `seconds` for the whole response."""
        return _RequestInFlight(self, body, seconds)

    async def open_pool(self, loop: asyncio.AbstractEventLoop) -> OriginPool:
        """Return the connections of this loop."""
        self.pool = pool = await self._pools.pool_of(loop, self.origin)
        return pool


async def _refuse_read() -> bytes:
    raise ConnectionError("the reply was read after its request had ended")


class _RequestInFlight(Struct, eq=False):
    """A request in flight, and its reply."""

    _prepared: PreparedRequest
    _body: RequestBody
    _seconds: float
    _pool: OriginPool | None = None  # whose slot is in use
    _connection: HttpConnection | None = None
    status: int = 0
    headers: Mapping[str, str] = {}
    read: Callable[[], Coroutine[Any, Any, bytes]] = _refuse_read
    """Return the next chunk; b"" at the end. That of the connection, until it is released."""

    async def __aenter__(self) -> Reply:
        """Wait for a free slot, send the request, and return the reply once its head has arrived."""
        loop, prepared = asyncio.get_running_loop(), self._prepared
        now = loop.time()
        deadline = now + max(self._seconds, _MIN_SECONDS)
        pool = prepared.pool
        if pool is None or pool.loop is not loop or pool.pools.is_closed:
            pool = await prepared.open_pool(loop)
        if not pool.take_slot():
            await pool.wait_for_slot(deadline)
        self._pool = pool
        body = self._body
        try:
            if isinstance(body, StreamedBody):
                connection = await self._upload(pool, body, deadline)
            else:
                connection = pool.pop_idle(now) or await pool.connect(deadline)
                self._write(connection, body, deadline)
                try:
                    await connection.read_head()
                except StaleConnection:
                    if not prepared.resends:
                        raise
                    connection = await self._send_again(pool, connection, body, deadline)
        except BaseException:
            pool.release(self._connection)
            raise
        self.status, self.headers, self.read = connection.status, connection.headers, connection.read
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.read = _refuse_read
        if self._pool is not None:
            self._pool.release(self._connection)

    def _write(self, connection: HttpConnection, body: bytes, deadline: float) -> None:
        """Write the request, and a large body by itself, which is not copied."""
        self._connection = connection
        prepared, size = self._prepared, len(body)
        connection.begin(deadline, expects_body=prepared.method != "HEAD")
        if not size and prepared.method != "POST":
            connection.write(prepared.head + b"\r\n")
        elif size <= _MAX_JOINED_BODY:
            connection.write(b"%bcontent-length: %d\r\n\r\n%b" % (prepared.head, size, body))
        else:
            connection.write(b"%bcontent-length: %d\r\n\r\n" % (prepared.head, size))
            connection.write(body)

    async def _send_again(
        self, pool: OriginPool, stale: HttpConnection, body: bytes, deadline: float
    ) -> HttpConnection:
        """Use a new connection: the server closed the idle one at once, and probably the others of its age, too."""
        self._connection = None
        stale.abort()
        pool.close_idle()
        connection = await pool.connect(deadline)
        self._write(connection, body, deadline)
        await connection.read_head()
        return connection

    async def _upload(self, pool: OriginPool, body: StreamedBody, deadline: float) -> HttpConnection:
        """Send a streamed body on a new connection, because it could not be sent again after a stale one."""
        connection = self._connection = await pool.connect(deadline)
        connection.begin(deadline)
        connection.write(self._prepared.head + body_header(body))
        upload = BodyUpload(connection, body, pool.loop)
        try:
            await connection.read_head()
        finally:
            await upload.aclose()
        return connection
