"""Open connections: directly, or through the tunnel of a proxy, with TLS to the proxy and to the server where needed."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from typing import Any, TypeVar, cast

from ...wire.loopback import is_address
from .connection import HttpConnection
from .connection_settings import ClientTls, HttpProxy, ProxySettings
from .head import Origin

_HAPPY_EYEBALLS_DELAY = 0.25  # seconds; the recommended Connection Attempt Delay of RFC 8305, section 5
# The server's side of a connection may disappear without a packet: its machine stops, or a NAT gateway forgets a connection
# that was idle for 350 seconds (docs.aws.amazon.com/vpc/latest/userguide/nat-gateway-troubleshooting.html). A whole answer
# takes minutes without a byte, and would wait for its timeout. So the kernel asks after 30 seconds, and gives up after 60.
_KEEP_ALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
_MAX_PROXY_HEAD = 16 * 1024  # bytes of the response to CONNECT: a status line and a few headers
_AUTHENTICATION_REQUIRED = 407  # RFC 9110, 15.5.8
_match_status = re.compile(rb"HTTP/1\.[01] ([0-9]{3})[ \r]").match


ConnectedProtocol = TypeVar("ConnectedProtocol", bound=asyncio.Protocol)


class ConnectFailed(ConnectionRefusedError, TimeoutError):
    """The connection was not established in time: nothing was sent."""


class ProxyFailed(ConnectionRefusedError):
    """The proxy did not open the tunnel: nothing was sent to the server."""


class Connector:
    """Opens connections, through the proxy of the environment where one is set. `timeout` is in seconds."""

    def __init__(self, proxies: ProxySettings, tls: ClientTls, timeout: float) -> None:
        self._proxies = proxies
        self._tls = tls
        self._timeout = timeout

    async def open(self, loop: asyncio.AbstractEventLoop, origin: Origin, seconds: float) -> HttpConnection:
        """Connect within `seconds` and the timeout. Raise ConnectionRefusedError if that fails: nothing was sent."""
        return await self.connect(loop, origin, seconds, HttpConnection(loop))

    async def connect(
        self, loop: asyncio.AbstractEventLoop, origin: Origin, seconds: float, connection: ConnectedProtocol
    ) -> ConnectedProtocol:
        """Like `open`, for a connection of any protocol."""
        proxy = self._proxies.proxy_for(origin.host, origin.port) if origin.tls else None
        route = "" if proxy is None else f" (through the proxy {proxy.url})"
        try:
            async with asyncio.timeout(min(self._timeout, seconds)):
                if proxy is not None:
                    return await _open_tunnel(loop, origin, proxy, self._tls, connection)
                context = self._tls.server_context() if origin.tls else None
                await _connect(loop, connection, origin.host, origin.port, context)
                return connection
        except TimeoutError:
            raise ConnectFailed(f"no connection was established in time{route}") from None
        except ProxyFailed:
            raise
        except OSError as error:
            raise ConnectionRefusedError(f"{_error_text(error)}{route}") from None


async def _connect(
    loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol, host: str, port: int, context: ssl.SSLContext | None
) -> None:
    """Connect `protocol` to a host, with TLS if `context` is given, and let the kernel check the idle connection."""
    options: dict[str, Any] = {} if context is None else {"ssl": context, "server_hostname": host}
    # One unreachable address of a name does not matter; not in uvloop. An address needs no race, and asyncio's race leaves its
    # socket open until the next garbage collection if it is cancelled.
    if isinstance(loop, asyncio.BaseEventLoop) and not is_address(host):
        options["happy_eyeballs_delay"] = _HAPPY_EYEBALLS_DELAY
    transport, _ = await loop.create_connection(lambda: protocol, host, port, **options)
    connected = transport.get_extra_info("socket")
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE:
        if hasattr(socket, name):  # Windows before 10 and macOS lack some of them
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


async def _open_tunnel(
    loop: asyncio.AbstractEventLoop, origin: Origin, proxy: HttpProxy, tls: ClientTls, connection: ConnectedProtocol
) -> ConnectedProtocol:
    """Ask the proxy for a tunnel (CONNECT, RFC 9110, 9.3.6), begin TLS with the server inside it for `connection`.

    Raise ProxyFailed if the proxy does not open the tunnel, and OSError if TLS fails.
    """
    reply = _TunnelReply(loop, proxy, origin)
    try:
        await _connect(loop, reply, proxy.host, proxy.port, tls.proxy_context() if proxy.tls else None)
    except OSError as error:
        if isinstance(error, TimeoutError):
            raise
        raise ProxyFailed(f"cannot connect to the proxy {proxy.url}: {_error_text(error)}") from None
    transport = reply.transport
    assert transport is not None
    try:
        transport.write(_connect_request(origin, proxy))
        await reply.opened
        encrypted = await loop.start_tls(transport, connection, tls.server_context(), server_hostname=origin.host)
    except BaseException:
        transport.abort()
        raise
    if encrypted is None:
        raise ConnectionResetError("the connection was closed during the TLS handshake")
    connection.connection_made(encrypted)
    return connection


def _connect_request(origin: Origin, proxy: HttpProxy) -> bytes:
    lines = [f"CONNECT {origin.authority} HTTP/1.1", f"host: {origin.authority}", "user-agent: toolwire"]
    if proxy.authorization is not None:
        lines.append(f"proxy-authorization: {proxy.authorization}")
    return "\r\n".join([*lines, "", ""]).encode("ascii")


class _TunnelReply(asyncio.Protocol):
    """Reads the response of a proxy to CONNECT. `opened` is done when the tunnel is open, or was refused."""

    def __init__(self, loop: asyncio.AbstractEventLoop, proxy: HttpProxy, origin: Origin) -> None:
        self.opened: asyncio.Future[None] = loop.create_future()
        self.transport: asyncio.Transport | None = None
        self._proxy = proxy
        self._origin = origin
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Collect the head, and set the result of `opened`, or ProxyFailed if the proxy refuses.

        Bytes after the head would be read as the server's, so a proxy that sends some is refused.
        """
        self._head += data
        head, end, excess = self._head.partition(b"\r\n\r\n")
        if not end:
            if len(self._head) > _MAX_PROXY_HEAD:
                self._refuse(f"the response of the proxy {self._proxy.url} exceeds {_MAX_PROXY_HEAD // 1024} KiB")
            return
        match = _match_status(head + b"\r\n")
        if match is None:
            self._refuse(f"the proxy {self._proxy.url} did not respond with HTTP")
        elif not 200 <= int(match[1]) < 300:
            self._refuse(self._describe_status(int(match[1])))
        elif excess:
            self._refuse(f"the proxy {self._proxy.url} sent data before the server could")
        elif not self.opened.done():
            if self.transport is not None:
                self.transport.pause_reading()  # the rest is for TLS
            self.opened.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._refuse(f"the proxy {self._proxy.url} closed the connection")

    def _describe_status(self, status: int) -> str:
        if status == _AUTHENTICATION_REQUIRED:
            problem = "rejected the credentials" if self._proxy.authorization else "requires credentials"
            return f"the proxy {self._proxy.url} {problem} (status 407): set user and password in its URL"
        return f"the proxy {self._proxy.url} refused a tunnel to {self._origin.authority} (status {status})"

    def _refuse(self, message: str) -> None:
        if not self.opened.done():
            self.opened.set_exception(ProxyFailed(message))


def _error_text(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):  # its errno is a number of OpenSSL: 1 is no "Operation not permitted"
        return f"the TLS handshake failed: {(error.reason or str(error)).replace('_', ' ').lower()}"
    # the message of asyncio describes the call and not the reason
    return os.strerror(error.errno) if error.errno is not None and error.errno > 0 else error.strerror or str(error)
