"""The client of OpenAI Responses over WebSockets, as a transport: a request is a message, its answer a stream of events.

    response.create → error event before any other            a reply with the status of the error
                    → events, up to the response's end        a reply whose body is the stream, or the whole response

A connection has one response at a time, and is used again after its end, for requests with the same URL and headers. A
server without WebSockets gets requests over HTTP. A request is sent once: a lost connection is an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from logging import getLogger
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ...stream.strict import parse_object
from .client import HttpTransport
from .head import Origin
from .transport import Reply, RequestBody, read_request_body
from .websocket_connection import HandshakeRequest, NoSockets, SocketConnection

if TYPE_CHECKING:
    from .connect import Connector

_log = getLogger("toolwire.net")
_MAX_IDLE = 64  # connections; a gateway seldom has more responses at a time that end together
_IDLE_SECONDS = 50.0  # as for connections of HTTP: servers and balancers close idle ones after a minute
# After a refused handshake. HTTP works as well, so it is not urgent to notice that a server has WebSockets again; and
# a handshake in five minutes costs nothing.
_HTTP_SECONDS = 300.0
# Headers of a request that a handshake for many requests does not have: they describe the body, or identify the request.
# OpenTelemetry adds `traceparent`, `tracestate` and `baggage`; with them, no connection could be used again.
_REQUEST_HEADERS = frozenset({"content-type", "accept", "traceparent", "tracestate", "baggage", "x-request-id"})


class WebSocketTransport:
    """Sends requests for responses over WebSockets, with the proxies and certificates of an HTTP client."""

    def __init__(self, http: HttpTransport) -> None:
        self._http = http
        self._idle: dict[SocketConnection, None] = {}  # the longest idle one first
        self._http_until: dict[str, float] = {}  # of URLs whose server refused a handshake, in the time of the loop
        self._is_closed = False

    @asynccontextmanager
    async def post(
        self, url: str, headers: Mapping[str, str], secrets: Mapping[str, str], body: RequestBody, seconds: float
    ) -> AsyncIterator[Reply]:
        """Send one request with a timeout of `seconds`. Leaving the context before the response's end closes the connection."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        connection = await self._connect(url, headers, secrets, deadline)
        if connection is None:
            async with self._http.post(url, headers, secrets, body, deadline - loop.time()) as reply:
                yield reply
            return
        try:
            document = parse_object(await read_request_body(body))
            connection.send(document, deadline)
            yield await connection.open_reply(is_stream=bool(document.get("stream")))
        finally:
            self._release(connection)

    def for_probes(self) -> HttpTransport:
        return self._http.for_probes()

    async def aclose(self) -> None:
        """Close the idle connections, and those in use after their response. The HTTP client belongs to the caller."""
        self._is_closed = True
        for connection in list(self._idle):
            connection.abort()
        self._idle.clear()

    async def _connect(
        self, url: str, headers: Mapping[str, str], secrets: Mapping[str, str], deadline: float
    ) -> SocketConnection | None:
        """Return a connection, or None if the server has no WebSockets at this URL."""
        now = asyncio.get_running_loop().time()
        if self._http_until.get(url, now) > now:
            return None
        fields = (*headers.items(), *secrets.items())
        handshake = HandshakeRequest(url, tuple(field for field in fields if field[0].lower() not in _REQUEST_HEADERS))
        try:
            return self._take_idle(handshake) or await self._open(handshake, deadline)
        except NoSockets as error:
            if self._http_until.get(url, now) <= now:  # else another request has logged it
                _log.warning("%s: %s; requests go over HTTP for %d s", urlsplit(url).netloc, error, _HTTP_SECONDS)
            self._http_until[url] = now + _HTTP_SECONDS
            return None

    async def _open(self, handshake: HandshakeRequest, deadline: float) -> SocketConnection:
        """Connect, and make the handshake. Raise NoSockets if the server refuses it, ConnectionError if it fails."""
        loop, parts = asyncio.get_running_loop(), urlsplit(handshake.url)
        tls = parts.scheme == "https"
        origin = Origin(parts.hostname or "", parts.port or (443 if tls else 80), tls)
        connection = SocketConnection(loop, handshake, self._forget)
        connector: Connector = self._http.connector
        await connector.connect(loop, origin, deadline - loop.time(), connection)
        try:
            async with asyncio.timeout_at(deadline):
                await connection.opened
        except BaseException:
            connection.abort()
            raise
        return connection

    # Idle connections. The most recently used one is used again, so that the others can time out.

    def _take_idle(self, handshake: HandshakeRequest) -> SocketConnection | None:
        """Return an idle connection with the same handshake. The search is short: there are at most `_MAX_IDLE`."""
        for connection in [idle for idle in reversed(self._idle) if idle.handshake == handshake]:
            del self._idle[connection]
            if connection.is_usable:
                connection.keep_open()
                return connection
            connection.abort()  # the server sent an event that belongs to no response
        return None

    def _release(self, connection: SocketConnection) -> None:
        """Keep a connection for other requests, or close it if it is not usable."""
        if self._is_closed or not connection.is_usable:
            connection.abort()
            return
        self._idle[connection] = None
        connection.close_in(_IDLE_SECONDS)
        if len(self._idle) > _MAX_IDLE:
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            oldest.abort()

    def _forget(self, connection: SocketConnection) -> None:
        """Drop a lost connection, which may be idle."""
        self._idle.pop(connection, None)
