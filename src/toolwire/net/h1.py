"""HTTP/1.1 on the event loop itself: for model clients, and for who makes thousands of requests a second.

The same face as `HttpTransport`, without its crossing between threads: a third of the cost of a request, a stream's pieces
taken as many at a time as there are, and whoever is cancelled closes the connection at once, answer or not. It speaks TLS; it
knows no proxy and no HTTP/2. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from ..ir.errors import ConfigError, MissingExtra
from .h1_connection import Connection, Lost
from .http import Reply

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["H1Transport"]

_NEXT_ADDRESS = 0.25  # seconds
_IDLE = 50.0  # seconds; servers close what is idle for a minute
_SMALL = 64 * 1024  # bytes that are copied rather than written apart
_ALWAYS = ("user-agent: toolwire", "accept-encoding: identity")
_UNFIT = re.compile(r"[\r\n\0]").search


class Origin(NamedTuple):
    host: str
    port: int
    tls: bool


class Unconnected(ConnectionRefusedError, TimeoutError):
    """There was no connection in time: nothing was sent."""


class H1Transport:
    """Connections by origin, at most so many in use at a time at each. `roots`: certificates in PEM beside the system's own.

    `resends`: a request on a connection that turns out to be gone is sent once more on a fresh one. Not for what must not happen
    twice. Connections belong to the event loop that they were opened in, and end with it.
    """

    def __init__(
        self,
        *,
        connections: int = 256,
        connect_timeout: float = 10.0,
        roots: Sequence[bytes] = (),
        resends: bool = True,
    ) -> None:
        _needs_httptools()
        self.resends = resends
        self.connections = connections
        self.connect_timeout = connect_timeout
        self.roots = tuple(roots)
        self.pools: dict[asyncio.AbstractEventLoop, Pool] = {}
        self._head_of = lru_cache(256)(_head_of)  # most requests have the head of an earlier one

    def post(
        self, url: str, headers: Mapping[str, str], secrets: Mapping[str, str], body: bytes, seconds: float
    ) -> AbstractAsyncContextManager[Reply]:
        return self.send("POST", url, headers, secrets, body, seconds)

    def send(
        self, method: str, url: str, headers: Mapping[str, str], secrets: Mapping[str, str], body: bytes, seconds: float
    ) -> AbstractAsyncContextManager[Reply]:
        """`post`, by any method. ConnectionRefusedError where there was no connection, so that nothing was sent."""
        origin, head = self._head_of(method, url, (*headers.items(), *secrets.items()))
        length = b"content-length: %d\r\n\r\n" % len(body) if body or method == "POST" else b"\r\n"
        return _Post(self, origin, head + length, body, seconds)

    async def pool(self, loop: asyncio.AbstractEventLoop) -> Pool:
        """A new one, for this loop."""
        self.pools = {one: pool for one, pool in self.pools.items() if not one.is_closed()}
        pool = self.pools[loop] = Pool(self, loop)
        await anext(pool.tending)
        return pool

    async def aclose(self) -> None:
        """What is under way comes to its end, and is closed then."""
        here, pools = asyncio.get_running_loop(), self.pools
        self.pools = {}
        for loop, pool in pools.items():
            if loop is here:
                await pool.tending.aclose()
            elif not loop.is_closed():
                loop.call_soon_threadsafe(pool.close)
        await asyncio.sleep(0)  # for the loop to close them


class Pool:
    """The connections of one event loop."""

    __slots__ = ("_idle", "_is_closed", "_loop", "_rooms", "_transport", "tending")

    def __init__(self, transport: H1Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._rooms: dict[Origin, asyncio.Semaphore] = {}
        self._idle: dict[Origin, list[tuple[float, Connection]]] = {}
        self._is_closed = False
        self.tending = self._tended()

    async def _tended(self) -> AsyncGenerator[None, None]:
        """A loop that ends closes its generators, and so these connections."""
        try:
            yield
        finally:
            self.close()

    def close(self) -> None:
        self._is_closed = True
        for waiting in self._idle.values():
            for _, connection in waiting:
                connection.abort()
        self._idle.clear()

    def room_at(self, origin: Origin) -> asyncio.Semaphore:
        found = self._rooms.get(origin)
        if found is None:
            found = self._rooms[origin] = asyncio.Semaphore(self._transport.connections)
        return found

    async def take(self, origin: Origin, deadline: float, *, fresh: bool = False) -> Connection:
        """A connection to `origin`, one that has been used before if there is one."""
        loop = self._loop
        waiting = self._idle.get(origin, [])
        while waiting:
            since, connection = waiting.pop()
            if not fresh and connection.is_open and loop.time() - since < _IDLE:
                connection.used = True
                return connection
            connection.abort()
        left = min(self._transport.connect_timeout, deadline - loop.time())
        try:
            async with asyncio.timeout(left):
                _, connection = await loop.create_connection(
                    lambda: Connection(loop),
                    origin.host,
                    origin.port,
                    ssl=_context(self._transport.roots) if origin.tls else None,
                    server_hostname=origin.host if origin.tls else None,
                    **_options(loop),
                )
        except TimeoutError:
            raise Unconnected("no connection in time") from None
        except OSError as error:
            raise ConnectionRefusedError(_words(error)) from None
        return connection

    def give_back(self, origin: Origin, connection: Connection) -> None:
        if connection.is_reusable and not self._is_closed:
            self._idle.setdefault(origin, []).append((self._loop.time(), connection))
        else:
            connection.abort()


class _Post:
    """A request on its way."""

    __slots__ = ("_body", "_connection", "_free", "_head", "_origin", "_pool", "_seconds", "_transport")

    def __init__(self, transport: H1Transport, origin: Origin, head: bytes, body: bytes, seconds: float) -> None:
        self._transport = transport
        self._origin = origin
        self._head = head
        self._body = body
        self._seconds = seconds
        self._connection: Connection | None = None

    async def __aenter__(self) -> Reply:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max(self._seconds, 0.001)
        pool = self._pool = self._transport.pools.get(loop) or await self._transport.pool(loop)
        free = self._free = pool.room_at(self._origin)
        if free.locked():
            await _in_turn(free, deadline)
        else:
            await free.acquire()
        try:
            try:
                return await self._ask(deadline)
            except Lost:
                if not self._transport.resends:
                    raise
                # a connection that the server had closed while it was idle, as it shows at once
                return await self._ask(deadline, fresh=True)
        except BaseException:
            self._leave()
            raise

    async def _ask(self, deadline: float, *, fresh: bool = False) -> Connection:
        connection = self._connection = await self._pool.take(self._origin, deadline, fresh=fresh)
        connection.limit(deadline)
        if len(self._body) <= _SMALL:
            connection.write(self._head + self._body)
        else:
            connection.write(self._head)
            connection.write(self._body)
        await connection.head()
        return connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        if self._connection is not None:
            self._connection.limit(None)
            self._pool.give_back(self._origin, self._connection)
            self._connection = None
        self._free.release()


async def _in_turn(free: asyncio.Semaphore, deadline: float) -> None:
    try:
        async with asyncio.timeout_at(deadline):
            await free.acquire()
    except TimeoutError:
        raise Unconnected("no connection was free in time") from None


def _options(loop: asyncio.AbstractEventLoop) -> dict[str, Any]:
    """A host of several addresses is not given up for one of them that does not answer; uvloop knows no such thing."""
    return {"happy_eyeballs_delay": _NEXT_ADDRESS} if isinstance(loop, asyncio.BaseEventLoop) else {}


@lru_cache(16)
def _context(roots: tuple[bytes, ...]) -> ssl.SSLContext:
    context = ssl.create_default_context()
    for pem in roots:
        context.load_verify_locations(cadata=pem.decode("ascii"))
    return context


def _head_of(method: str, url: str, fields: tuple[tuple[str, str], ...]) -> tuple[Origin, bytes]:
    """Where a request goes, and its head but for the length of its body."""
    origin, target, host = _split(url)
    lines = [f"{method} {target} HTTP/1.1", f"host: {host}", *_ALWAYS, *(f"{name}: {value}" for name, value in fields)]
    if any(map(_UNFIT, lines)):
        raise ConfigError("a header with a line break in it")
    return origin, ("\r\n".join(lines) + "\r\n").encode("latin-1", "replace")


def _split(url: str) -> tuple[Origin, str, str]:
    """(where, what to ask for there, the name to ask under)."""
    if _UNFIT(url) or " " in url:
        raise ConfigError("a URL that cannot be used")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"a URL that cannot be used: {error}") from None
    tls = parts.scheme == "https"
    if parts.hostname is None or parts.scheme not in ("http", "https"):
        raise ConfigError("a URL that cannot be used", hint="http(s)://host/path")
    origin = Origin(parts.hostname, port or (443 if tls else 80), tls)
    target = parts.path or "/"
    return origin, f"{target}?{parts.query}" if parts.query else target, parts.netloc


def _words(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not to be trusted: {error.verify_message}"
    # what asyncio writes into it is the call and not the reason
    return os.strerror(error.errno) if error.errno is not None and error.errno > 0 else error.strerror or str(error)


def _needs_httptools() -> None:
    try:
        import httptools  # noqa: F401
    except ImportError:
        raise MissingExtra("this needs httptools", hint="pip install 'toolwire[net]'") from None
