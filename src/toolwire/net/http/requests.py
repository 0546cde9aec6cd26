"""In-flight requests of the HTTP client, and the pools that lend them connections.

A `PreparedRequest` is the part that many requests share. Each in-flight request takes these steps:

    slot         At most `limit` requests to an origin at a time. Others wait in order: a request that ends hands its
                 slot to the first of them without freeing it, so that no new request can overtake.
    connection   The idle one that was used last, so that the others can time out; else a new one.
    write        The head and the body; a streamed body by a task of its own, because the server may answer before its
                 end.
    read         The head, then the body, by the caller.
    release      The connection becomes idle if the response is complete, nothing is unread and the server keeps it
                 open. Otherwise it is aborted, also on cancellation: reading a long answer to its end costs more.

A server may close an idle connection while a request is on its way. A client cannot know whether the request was
processed (RFC 9110, 9.2.2). So connections are dropped after 50 seconds, before most servers close them, and a request
is sent again only if a reused connection was closed at once without a byte (`StaleConnection`). It is then sent on a
new connection, once, because other idle connections are probably closed as well. A streamed body cannot be sent again,
so it always gets a new connection. `resends=False` and `reuse=False` are for requests that must not run twice.

Connections belong to an event loop. A loop closes its asynchronous generators when it ends, which closes the pools.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from logging import getLogger
from types import TracebackType
from typing import Any, TypeAlias

from msgspec import Struct

from ...ir.errors import ConfigError
from .connection import HttpConnection, StaleConnection
from .head import Origin
from .transport import PoolExhausted, Reply, RequestBody, StreamedBody

_log = getLogger("toolwire.net")
_MAX_IDLE = 512  # connections to an origin; thousands of past streams must not keep their descriptors
_REPORT_INTERVAL = 10.0  # seconds between two log lines: a full pool concerns every request
_IDLE_TIMEOUT = 50.0  # seconds; servers close connections that are idle for a minute


_Connect: TypeAlias = Callable[[asyncio.AbstractEventLoop, Origin, float], Awaitable[HttpConnection]]


class ClientPools:
    """The connections of a client. They belong to the event loop that opened them.

    `connect` opens a connection to an origin within a timeout in seconds. `limit`: the connections in use per origin.
    `max_wait`: seconds that a request waits for a connection if all are in use; None: as long as its own timeout.
    `waiting` is the number of requests that wait.
    """

    def __init__(self, connect: _Connect, limit: int, *, reuse: bool, max_wait: float | None = None) -> None:
        self.connect = connect
        self.limit = limit
        self.max_wait = max_wait
        self.waiting = 0
        self._reported_at = float("-inf")
        self.reuse = reuse
        self._by_loop: dict[asyncio.AbstractEventLoop, _LoopPools] = {}

    async def pool_of(self, loop: asyncio.AbstractEventLoop, origin: Origin) -> OriginPool:
        """Return the connections of this loop to an origin, and make them on first use. Forget closed loops."""
        pools = self._by_loop.get(loop)
        if pools is None:
            self._by_loop = {known: pools for known, pools in self._by_loop.items() if not known.is_closed()}
            pools = self._by_loop[loop] = _LoopPools(loop)
            await anext(pools.lifetime)
        pool = pools.by_origin.get(origin)
        if pool is None:
            pool = pools.by_origin[origin] = OriginPool(self, pools, origin)
        return pool

    def report_wait(self, origin: Origin) -> None:
        """Log that requests wait, at most every ten seconds."""
        now = time.monotonic()
        if now - self._reported_at >= _REPORT_INTERVAL:
            self._reported_at = now
            message = "all %d connections to %s are in use; waiting requests: %d (raise limits.connections)"
            _log.warning(message, self.limit, origin.authority, self.waiting)

    async def aclose(self) -> None:
        """Close idle connections of all loops now, and connections of in-flight requests when these end."""
        current_loop, by_loop = asyncio.get_running_loop(), self._by_loop
        self._by_loop = {}
        for loop, pools in by_loop.items():
            if loop is current_loop:
                await pools.lifetime.aclose()
            elif not loop.is_closed():
                loop.call_soon_threadsafe(pools.close)
        await asyncio.sleep(0)  # lets the loop close them


class _LoopPools:
    """The pools of one event loop, by origin. They are closed with the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.is_closed = False
        self.by_origin: dict[Origin, OriginPool] = {}
        self.lifetime = self._close_with_loop()

    async def _close_with_loop(self) -> AsyncGenerator[None, None]:
        """Close the connections when the loop ends: it closes its asynchronous generators."""
        try:
            yield
        finally:
            self.close()

    def close(self) -> None:
        """Close the idle connections; those in use are closed when they are released."""
        self.is_closed = True
        for pool in self.by_origin.values():
            pool.close_idle()


class OriginPool:
    """The connections to one origin. A connection is used by one request at a time."""

    __slots__ = ("_client", "_connect", "_idle", "_in_use", "_limit", "_origin", "_reuse", "_waiters", "loop", "pools")

    def __init__(self, client: ClientPools, pools: _LoopPools, origin: Origin) -> None:
        self.pools = pools
        self.loop = pools.loop
        self._client = client
        self._connect = client.connect
        self._limit = client.limit
        self._reuse = client.reuse
        self._origin = origin
        self._in_use = 0
        self._idle: deque[HttpConnection] = deque()  # the longest idle one first
        self._waiters: deque[asyncio.Future[None]] = deque()  # requests, while all connections are in use

    def take_slot(self) -> bool:
        """Count a connection that will be used. Return False if too many are in use."""
        if self._in_use >= self._limit:
            return False
        self._in_use += 1
        return True

    async def wait_for_slot(self, deadline: float) -> None:
        """Wait until another request leaves its slot to this one, and log that. Raise PoolExhausted after `max_wait`."""
        client = self._client
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._waiters.append(waiter)
        client.waiting += 1
        client.report_wait(self._origin)
        if client.max_wait is not None:
            deadline = min(deadline, self.loop.time() + client.max_wait)
        timer = self.loop.call_at(deadline, self._expire, waiter)
        try:
            await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._free_slot()  # cancelled after it was given the slot
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
            raise
        finally:
            client.waiting -= 1
            timer.cancel()

    def _expire(self, waiter: asyncio.Future[None]) -> None:
        if not waiter.done():
            waiter.set_exception(PoolExhausted(f"all {self._limit} connections stayed in use"))

    def pop_idle(self, now: float) -> HttpConnection | None:
        """Return the usable connection that was used last, or None. Abort others on the way."""
        idle = self._idle
        while idle:
            connection = idle.pop()
            if now - connection.idle_since < _IDLE_TIMEOUT and connection.is_open:
                return connection
            connection.abort()
        return None

    def connect(self, deadline: float) -> Awaitable[HttpConnection]:
        return self._connect(self.loop, self._origin, deadline - self.loop.time())

    def release(self, connection: HttpConnection | None) -> None:
        """Free the slot, or give it to a waiting request. Keep the connection if it can be reused, else abort it."""
        if connection is not None:
            if connection.end() and self._reuse and not self.pools.is_closed:
                self._idle.append(connection)
                if len(self._idle) > 1:
                    self._drop_oldest(connection.idle_since)
            else:
                connection.abort()
        if self._waiters:
            self._free_slot()
        else:
            self._in_use -= 1

    def _drop_oldest(self, now: float) -> None:
        """Drop the longest idle connection if there are too many, or if it has timed out."""
        if len(self._idle) > min(self._limit, _MAX_IDLE) or now - self._idle[0].idle_since > _IDLE_TIMEOUT:
            self._idle.popleft().abort()

    def close_idle(self) -> None:
        while self._idle:
            self._idle.pop().abort()

    def _free_slot(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._in_use -= 1


def body_header(body: StreamedBody) -> bytes:
    """Return the header that describes the body, and the end of the head."""
    if body.length is None:
        return b"transfer-encoding: chunked\r\n\r\n"
    return b"content-length: %d\r\n\r\n" % body.length


class BodyUpload:
    """A task that writes the body piece by piece, as fast as the server reads.

    A task of its own, because a server may respond, or close the connection, while the source of the body is silent.
    An error of the source becomes the error of the response.
    """

    def __init__(self, connection: HttpConnection, body: StreamedBody, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._body = body
        self._is_complete = False
        self._is_closing = False
        self._task = loop.create_task(self._run())

    async def aclose(self) -> None:
        """Stop the upload. A connection on which a part of the body was sent cannot be reused."""
        if self._is_complete:
            return
        self._is_closing = True
        self._connection.refuse_reuse()
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        """Send the body. An error or a cancellation of its source fails the response."""
        try:
            await self._send_chunks()
        except asyncio.CancelledError:
            if not self._is_closing:  # the source was cancelled, and not this task
                self._connection.fail(ConnectionError("the request body was cancelled"))
            raise
        except Exception as error:  # noqa: BLE001  # the source may raise anything, and the caller shall see it
            self._connection.fail(error)

    async def _send_chunks(self) -> None:
        """Write the pieces of the body, chunked if it has no length. Raise ConfigError if the length is wrong."""
        remaining = self._body.length
        async for chunk in self._body.chunks:
            if remaining is not None:
                remaining -= len(chunk)
                if remaining < 0:
                    raise ConfigError(f"the request body is longer than its length of {self._body.length} bytes")
            if chunk:
                await self._connection.write_chunk(_frame(chunk) if remaining is None else (chunk,))
        if remaining:
            raise ConfigError(f"the request body is {remaining} bytes shorter than its length of {self._body.length}")
        if remaining is None:
            await self._connection.write_chunk((b"0\r\n\r\n",))
        self._is_complete = True


def _frame(chunk: bytes) -> Sequence[bytes]:
    return b"%x\r\n" % len(chunk), chunk, b"\r\n"


_MAX_JOINED_BODY = 64 * 1024  # bytes; up to this size the body is copied and written together with the head
_MIN_SECONDS = 0.001  # a timeout of 0 would end a request before it has begun, without the reason


class PreparedRequest:
    """The head of requests that differ only in their body. `resends`: send once more after a stale connection."""

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
    """Return the next chunk, or b"" at the end: the connection's method, until it is released."""

    async def __aenter__(self) -> Reply:
        """Wait for a slot, send the request, again if its connection was stale, and return the reply with its head."""
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
        """Begin and write the request. A large body is written by itself, so that it is not copied."""
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
        """Send on a new connection, and close all idle ones, which the server has probably closed, too."""
        self._connection = None
        stale.abort()
        pool.close_idle()
        connection = await pool.connect(deadline)
        self._write(connection, body, deadline)
        await connection.read_head()
        return connection

    async def _upload(self, pool: OriginPool, body: StreamedBody, deadline: float) -> HttpConnection:
        """Send a streamed body on a new connection, since it cannot be sent again, and stop it when the head arrives."""
        connection = self._connection = await pool.connect(deadline)
        connection.begin(deadline)
        connection.write(self._prepared.head + body_header(body))
        upload = BodyUpload(connection, body, pool.loop)
        try:
            await connection.read_head()
        finally:
            await upload.aclose()
        return connection
