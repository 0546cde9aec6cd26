"""Connections to upstreams, used again where they can be.

The way to upstreams unless a proxy is in between, for which there is `net.http`: this one lets go of an upstream in the
moment in which the client goes away, even before the answer has begun.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit

from ..ir.errors import ConfigError
from ..net.http import Reply
from .http1 import Connection

__all__ = ["DirectTransport", "has_proxy"]

_PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


def has_proxy(environment: Mapping[str, str]) -> bool:
    """Whether HTTPS goes by way of somebody else here."""
    return any(environment.get(name) for name in _PROXIES)


class _Place(NamedTuple):
    """Whom to connect to."""

    host: str
    port: int
    tls: bool


class DirectTransport:
    """At most `connections` exchanges at a time. `roots`: certificates in PEM that are trusted besides the system's own."""

    def __init__(self, *, connections: int = 256, connect_timeout: float = 10.0, roots: Sequence[bytes] = ()) -> None:
        self._room = asyncio.Semaphore(connections)
        self._connect_timeout = connect_timeout
        self._roots = tuple(roots)
        self._context: ssl.SSLContext | None = None
        self._idle: dict[_Place, list[Connection]] = {}

    @asynccontextmanager
    async def post(
        self, url: str, headers: Mapping[str, str], secrets: Mapping[str, str], body: bytes, seconds: float
    ) -> AsyncIterator[Reply]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        place, first = _request_line(url)
        data = (_head(first, {**headers, **secrets}, len(body)), body)
        async with asyncio.timeout(seconds):
            await self._room.acquire()
        try:
            connection = await self._begun(place, data, deadline)
            try:
                yield connection
            finally:
                self._give_back(place, connection)
        finally:
            self._room.release()

    async def _begun(self, place: _Place, data: tuple[bytes, bytes], deadline: float) -> Connection:
        """A connection on which the answer has begun."""
        while True:
            connection = self._take(place) or await self._connect(place, deadline)
            again = connection.used
            connection.ask(data, max(deadline - asyncio.get_running_loop().time(), 0.001))
            try:
                await connection.head()
                return connection
            except ConnectionError:
                connection.release()
                # an upstream that hung up between two requests has not seen the second one
                if not again or connection.heard:
                    raise
            except BaseException:
                connection.abort()
                connection.release()
                raise

    def _take(self, place: _Place) -> Connection | None:
        idle = self._idle.get(place)
        while idle:
            connection = idle.pop()
            if connection.reusable:
                return connection
        return None

    def _give_back(self, place: _Place, connection: Connection) -> None:
        connection.release()
        if connection.reusable:
            idle = self._idle.setdefault(place, [])
            idle[:] = [one for one in idle if one.reusable]
            idle.append(connection)

    async def _connect(self, place: _Place, deadline: float) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(min(self._connect_timeout, deadline - loop.time())):
                context = self._tls() if place.tls else None
                _, connection = await loop.create_connection(Connection, place.host, place.port, ssl=context)
        except TimeoutError:
            raise TimeoutError("the connection took too long") from None
        except OSError as error:
            raise ConnectionError(f"no connection: {error.strerror or type(error).__name__}") from None
        return connection

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = ssl.create_default_context()
            for pem in self._roots:
                self._context.load_verify_locations(cadata=pem.decode("ascii"))
        return self._context

    async def aclose(self) -> None:
        for idle in self._idle.values():
            for connection in idle:
                connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # for the loop to close them


@lru_cache(1024)
def _request_line(url: str) -> tuple[_Place, bytes]:
    parts = urlsplit(url)
    if not parts.hostname or not url.isascii() or any(one <= " " for one in url):
        raise ConfigError("a URL that cannot be used")
    tls = parts.scheme == "https"
    target = parts.path or "/"
    if parts.query:
        target += f"?{parts.query}"
    place = _Place(parts.hostname, parts.port or (443 if tls else 80), tls)
    return place, f"POST {target} HTTP/1.1\r\nhost: {parts.netloc}\r\nuser-agent: toolwire\r\n".encode("ascii")


def _head(first: bytes, headers: Mapping[str, str], size: int) -> bytes:
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    if any("\n" in line[:-2] or "\r" in line[:-2] for line in lines):
        raise ConfigError("a header with a line break")
    tail = f"accept-encoding: identity\r\ncontent-length: {size}\r\n\r\n"
    return first + ("".join(lines) + tail).encode("latin-1")
