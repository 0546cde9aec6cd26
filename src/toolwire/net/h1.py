"""HTTP/1.1 directly on the event loop: for model clients, and for thousands of requests per second.

The interface is that of `HttpTransport`, without its switch between threads: a request costs a third, all chunks that
have arrived are read at once, and cancellation closes the connection immediately, even without a response. It
supports TLS, but no proxy and no HTTP/2. Redirects are not followed.
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
from .h1_connection import H1Connection, StaleConnection
from .http import Reply

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["H1Transport"]

_HAPPY_EYEBALLS_DELAY = 0.25  # seconds
_IDLE_TIMEOUT = 50.0  # seconds; servers close connections that are idle for a minute
_MAX_JOINED_BODY = 64 * 1024  # bytes; up to this size the body is copied and written together with the head
_DEFAULT_HEADERS = ("user-agent: toolwire", "accept-encoding: identity")
_FORBIDDEN_CHARACTERS = re.compile(r"[\r\n\0]").search


class Origin(NamedTuple):
    host: str
    port: int
    tls: bool


class ConnectFailed(ConnectionRefusedError, TimeoutError):
    """The connection was not established in time: nothing was sent."""


class H1Transport:
    """A pool of connections.

    `connections`: the maximum in use per origin. `roots`: PEM certificates that are trusted beside the system's own.
    `resends`: a request on a reused connection that the server has closed is sent once more on a new one. Do not use
    it for requests that must not be executed twice. `reuse`: False opens a connection for every request, so that none
    is sent on a connection that the server is about to close. Connections belong to the event loop that opened them,
    and are closed with it.
    """

    def __init__(
        self,
        *,
        connections: int = 256,
        connect_timeout: float = 10.0,
        roots: Sequence[bytes] = (),
        resends: bool = True,
        reuse: bool = True,
    ) -> None:
        _require_httptools()
        self.reuse = reuse
        self.resends = resends
        self.connections = connections
        self.connect_timeout = connect_timeout
        self.roots = tuple(roots)
        self.pools: dict[asyncio.AbstractEventLoop, Pool] = {}
        self._build_head_cached = lru_cache(256)(_build_head)  # most requests have the same head as an earlier one

    def post(
        self, url: str, headers: Mapping[str, str], secrets: Mapping[str, str], body: bytes, seconds: float
    ) -> AbstractAsyncContextManager[Reply]:
        return self.send("POST", url, headers, secrets, body, seconds)

    def send(
        self, method: str, url: str, headers: Mapping[str, str], secrets: Mapping[str, str], body: bytes, seconds: float
    ) -> AbstractAsyncContextManager[Reply]:
        """Send a request with any method. Raise ConnectionRefusedError if there was no connection: nothing was sent."""
        origin, head = self._build_head_cached(method, url, (*headers.items(), *secrets.items()))
        length = b"content-length: %d\r\n\r\n" % len(body) if body or method == "POST" else b"\r\n"
        return _PendingPost(self, origin, head + length, body, seconds)

    async def open_pool(self, loop: asyncio.AbstractEventLoop) -> Pool:
        """Create the pool of this loop."""
        self.pools = {known_loop: pool for known_loop, pool in self.pools.items() if not known_loop.is_closed()}
        pool = self.pools[loop] = Pool(self, loop)
        await anext(pool.lifetime)
        return pool

    async def aclose(self) -> None:
        """Close idle connections now, and those of in-flight requests when these end."""
        current_loop, pools = asyncio.get_running_loop(), self.pools
        self.pools = {}
        for loop, pool in pools.items():
            if loop is current_loop:
                await pool.lifetime.aclose()
            elif not loop.is_closed():
                loop.call_soon_threadsafe(pool.close)
        await asyncio.sleep(0)  # lets the loop close them


class Pool:
    """The connections of one event loop."""

    __slots__ = ("_idle", "_is_closed", "_loop", "_slots", "_transport", "lifetime")

    def __init__(self, transport: H1Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._slots: dict[Origin, asyncio.Semaphore] = {}  # limit the connections in use
        self._idle: dict[Origin, list[tuple[float, H1Connection]]] = {}  # (idle since, connection)
        self._is_closed = False
        self.lifetime = self._close_with_loop()

    async def _close_with_loop(self) -> AsyncGenerator[None, None]:
        """Close the connections when the loop ends: it closes its asynchronous generators."""
        try:
            yield
        finally:
            self.close()

    def close(self) -> None:
        self._is_closed = True
        for idle in self._idle.values():
            for _, connection in idle:
                connection.abort()
        self._idle.clear()

    def slots_at(self, origin: Origin) -> asyncio.Semaphore:
        found = self._slots.get(origin)
        if found is None:
            found = self._slots[origin] = asyncio.Semaphore(self._transport.connections)
        return found

    async def acquire(self, origin: Origin, deadline: float, *, fresh: bool = False) -> H1Connection:
        """Return a connection to `origin`, preferably an idle one."""
        loop = self._loop
        idle = self._idle.get(origin, [])
        while idle:
            idle_since, connection = idle.pop()
            if not fresh and connection.is_open and loop.time() - idle_since < _IDLE_TIMEOUT:
                connection.is_reused = True
                return connection
            connection.abort()
        remaining = min(self._transport.connect_timeout, deadline - loop.time())
        try:
            async with asyncio.timeout(remaining):
                _, connection = await loop.create_connection(
                    lambda: H1Connection(loop),
                    origin.host,
                    origin.port,
                    ssl=_make_ssl_context(self._transport.roots) if origin.tls else None,
                    server_hostname=origin.host if origin.tls else None,
                    **_connection_options(loop),
                )
        except TimeoutError:
            raise ConnectFailed("no connection was established in time") from None
        except OSError as error:
            raise ConnectionRefusedError(_error_text(error)) from None
        return connection

    def release(self, origin: Origin, connection: H1Connection) -> None:
        if connection.is_reusable and self._transport.reuse and not self._is_closed:
            self._idle.setdefault(origin, []).append((self._loop.time(), connection))
        else:
            connection.abort()


class _PendingPost:
    """An in-flight request."""

    __slots__ = ("_body", "_connection", "_head", "_origin", "_pool", "_seconds", "_semaphore", "_transport")

    def __init__(self, transport: H1Transport, origin: Origin, head: bytes, body: bytes, seconds: float) -> None:
        self._transport = transport
        self._origin = origin
        self._head = head
        self._body = body
        self._seconds = seconds
        self._connection: H1Connection | None = None

    async def __aenter__(self) -> Reply:
        """Wait for a free slot, send the request, and return the reply once its head has arrived."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max(self._seconds, 0.001)
        pool = self._pool = self._transport.pools.get(loop) or await self._transport.open_pool(loop)
        semaphore = self._semaphore = pool.slots_at(self._origin)
        if semaphore.locked():
            await _acquire_slot(semaphore, deadline)
        else:
            await semaphore.acquire()
        try:
            try:
                return await self._send_request(deadline)
            except StaleConnection:
                if not self._transport.resends:
                    raise
                # the server had closed the idle connection, which shows immediately
                return await self._send_request(deadline, fresh=True)
        except BaseException:
            self._release_connection()
            raise

    async def _send_request(self, deadline: float, *, fresh: bool = False) -> H1Connection:
        """Send the request and wait for the head of the response. `fresh`: do not use an idle connection."""
        connection = self._connection = await self._pool.acquire(self._origin, deadline, fresh=fresh)
        connection.set_deadline(deadline)
        if len(self._body) <= _MAX_JOINED_BODY:
            connection.write(self._head + self._body)
        else:
            connection.write(self._head)
            connection.write(self._body)
        await connection.read_head()
        return connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release_connection()

    def _release_connection(self) -> None:
        if self._connection is not None:
            self._connection.set_deadline(None)
            self._pool.release(self._origin, self._connection)
            self._connection = None
        self._semaphore.release()


async def _acquire_slot(semaphore: asyncio.Semaphore, deadline: float) -> None:
    try:
        async with asyncio.timeout_at(deadline):
            await semaphore.acquire()
    except TimeoutError:
        raise ConnectFailed("no connection became free in time") from None


def _connection_options(loop: asyncio.AbstractEventLoop) -> dict[str, Any]:
    """Enable happy eyeballs, so that one unreachable address of a host does not matter; uvloop does not support it."""
    return {"happy_eyeballs_delay": _HAPPY_EYEBALLS_DELAY} if isinstance(loop, asyncio.BaseEventLoop) else {}


@lru_cache(16)
def _make_ssl_context(roots: tuple[bytes, ...]) -> ssl.SSLContext:
    context = ssl.create_default_context()
    for pem in roots:
        context.load_verify_locations(cadata=pem.decode("ascii"))
    return context


def _build_head(method: str, url: str, fields: tuple[tuple[str, str], ...]) -> tuple[Origin, bytes]:
    """Return the origin of a request, and its head without the content length."""
    origin, target, host = _split_url(url)
    lines = [
        f"{method} {target} HTTP/1.1",
        f"host: {host}",
        *_DEFAULT_HEADERS,
        *(f"{name}: {value}" for name, value in fields),
    ]
    if any(map(_FORBIDDEN_CHARACTERS, lines)):
        raise ConfigError("a header must not contain a line break or a NUL character")
    return origin, ("\r\n".join(lines) + "\r\n").encode("latin-1", "replace")


def _split_url(url: str) -> tuple[Origin, str, str]:
    """Split a URL into origin, request target and Host header."""
    if _FORBIDDEN_CHARACTERS(url) or " " in url:
        raise ConfigError("invalid URL: it contains a space, a line break or a NUL character")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"invalid URL: {error}") from None
    tls = parts.scheme == "https"
    if parts.hostname is None or parts.scheme not in ("http", "https"):
        raise ConfigError("invalid URL", hint="use http(s)://host/path")
    origin = Origin(parts.hostname, port or (443 if tls else 80), tls)
    target = parts.path or "/"
    return origin, f"{target}?{parts.query}" if parts.query else target, parts.netloc


def _error_text(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    # the message of asyncio describes the call and not the reason
    return os.strerror(error.errno) if error.errno is not None and error.errno > 0 else error.strerror or str(error)


def _require_httptools() -> None:
    try:
        import httptools  # noqa: F401
    except ImportError:
        raise MissingExtra(
            "H1Transport needs the package httptools", hint="pip install -e '.[net]' in a checkout of toolwire"
        ) from None
