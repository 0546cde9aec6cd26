"""Pools of connections: those in use, limited for each origin, and the idle ones."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from logging import getLogger
from typing import TypeAlias

from .http import PoolExhausted
from .http_connection import HttpConnection
from .http_head import Origin

__all__ = ["ClientPools", "OriginPool"]

_log = getLogger("toolwire.net")
_MAX_IDLE = 512  # connections to an origin; thousands of past streams must not keep their descriptors
_REPORT_INTERVAL = 10.0  # seconds between two log lines
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
        """Return the connections of this loop to an origin."""
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
        """Close idle connections now, and those of in-flight requests when these end."""
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
        """Count a connection that will be used; False if too many are in use."""
        if self._in_use >= self._limit:
            return False
        self._in_use += 1
        return True

    async def wait_for_slot(self, deadline: float) -> None:
        """Wait until another request ends, which leaves its slot to this one. Raise PoolExhausted after `max_wait`."""
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
        """Return the connection that was used last, if one is still usable."""
        idle = self._idle
        while idle:
            connection = idle.pop()
            if now - connection.idle_since < _IDLE_TIMEOUT and connection.is_open:
                connection.reuse()
                return connection
            connection.abort()
        return None

    def connect(self, deadline: float) -> Awaitable[HttpConnection]:
        return self._connect(self.loop, self._origin, deadline - self.loop.time())

    def release(self, connection: HttpConnection | None) -> None:
        """Free the slot, and keep the connection for the next request if it can be reused."""
        if connection is not None:
            connection.end()
            if self._reuse and connection.is_reusable and not self.pools.is_closed:
                connection.idle_since = self.loop.time()
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
