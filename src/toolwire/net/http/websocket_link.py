"""A WebSocket to a server as messages in both directions, with back-pressure: for sessions such as OpenAI's Realtime.

    connecting ──101──▶ open ──close frame, invalid frame, end of TCP──▶ ended
        └── any other status ──▶ refused: SocketRefused with the server's response

Messages are whole. Reading pauses while the owner has many bytes of messages to take, and `send` waits while the server does
not read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from logging import getLogger
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from websockets.client import ClientProtocol
from websockets.exceptions import ProtocolError as InvalidFrame
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from .head import Origin

if TYPE_CHECKING:
    from .connect import Connector

_log = getLogger("toolwire.net")
_MAX_MESSAGE = 32 * 1024 * 1024  # bytes; an event of Realtime has at most 15 MB of audio
_MAX_UNREAD = 256 * 1024  # bytes of messages; above it, the server has to wait, as in `connection`
_OVERHEAD = 64  # bytes of memory of a message besides its text
_CLOSING_SECONDS = 5.0  # for the server to close TCP after a close frame; it has nothing else to do
_MAX_REASON = 123  # bytes of a close frame's reason (RFC 6455, 5.5)


class SocketRefused(Exception):
    """The server refused the handshake with a response over HTTP."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(f"the handshake was refused with status {status}")
        self.status = status
        self.headers = headers
        self.body = body


class SocketLink(asyncio.Protocol):
    """One connection. After the end, the server's `close_code` and `close_reason` are known."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, url: str, fields: Mapping[str, str], offered: Sequence[str]
    ) -> None:
        """`fields` are headers of the handshake, `offered` are subprotocols."""
        self.opened: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        parts = urlsplit(url)
        uri = parse_uri(parts._replace(scheme="wss" if parts.scheme == "https" else "ws").geturl())
        subprotocols = [Subprotocol(name) for name in offered] or None
        self._protocol = ClientProtocol(uri, max_size=_MAX_MESSAGE, logger=_log, subprotocols=subprotocols)
        self._request = self._protocol.connect()
        for name, value in fields.items():
            self._request.headers[name] = value
        self._transport: asyncio.Transport | None = None
        self._messages: deque[str | bytes] = deque()
        self._fragments = bytearray()  # of an incomplete message
        self._is_text = True
        self._size = 0  # of the messages that were not taken
        self._has_ended = False
        self._arrived = asyncio.Event()
        self._may_write = asyncio.Event()
        self._may_write.set()

    @property
    def subprotocol(self) -> str | None:
        return self._protocol.subprotocol

    @property
    def close_code(self) -> int:
        received = self._protocol.close_rcvd
        return int(CloseCode.ABNORMAL_CLOSURE) if received is None else int(received.code)

    @property
    def close_reason(self) -> str:
        received = self._protocol.close_rcvd
        return "" if received is None else received.reason

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._protocol.send_request(self._request)
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._protocol.receive_data(data)
        self._process()

    def eof_received(self) -> None:
        self._protocol.receive_eof()
        self._process()

    def connection_lost(self, error: Exception | None) -> None:
        self._protocol.receive_eof()
        self._process()
        if not self.opened.done():
            self.opened.set_exception(ConnectionResetError("the connection was closed in the handshake"))
        self._end()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def _process(self) -> None:
        """Handle everything that was received, and write the answers to control frames."""
        for event in self._protocol.events_received():
            if isinstance(event, Response):
                self._end_handshake(event)
            elif isinstance(event, Frame):
                self._take(event)
        error = self._protocol.handshake_exc
        if error is not None and not self.opened.done():
            self.opened.set_exception(ConnectionResetError(f"the handshake failed: {error}"))
        self._flush()
        if self._protocol.state in (State.CLOSING, State.CLOSED):
            self._end()

    def _end_handshake(self, response: Response) -> None:
        if self.opened.done():
            return
        if self._protocol.handshake_exc is None:
            self.opened.set_result(None)
        else:
            headers = {name.lower(): value for name, value in response.headers.raw_items()}
            self.opened.set_exception(SocketRefused(response.status_code, headers, bytes(response.body or b"")))

    def _take(self, frame: Frame) -> None:
        """Add a frame to its message, and queue a message that is complete."""
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return
        if frame.opcode is not Opcode.CONT:
            self._is_text = frame.opcode is Opcode.TEXT
        self._fragments += frame.data
        if not frame.fin:
            return
        data, self._fragments = bytes(self._fragments), bytearray()
        try:
            message: str | bytes = data.decode() if self._is_text else data
        except UnicodeDecodeError:
            self._protocol.fail(CloseCode.INVALID_DATA, "a text message is not UTF-8")
            return
        self._messages.append(message)
        self._size += len(data) + _OVERHEAD
        if self._size > _MAX_UNREAD and self._transport is not None:
            self._transport.pause_reading()
        self._arrived.set()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if self._transport is not None:
                if data:
                    self._transport.write(data)
                else:
                    self._transport.close()

    def _end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._loop.call_later(_CLOSING_SECONDS, self.abort)
        self._arrived.set()
        self._may_write.set()

    # messages

    async def receive(self) -> str | bytes | None:
        """Return the next message, or None after the end."""
        while not self._messages:
            if self._has_ended:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        message = self._messages.popleft()
        self._size -= (len(message.encode()) if isinstance(message, str) else len(message)) + _OVERHEAD
        if self._size <= _MAX_UNREAD and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        return message

    async def send(self, message: str | bytes) -> None:
        """Send a message, after the server has read enough. After the end, it is dropped."""
        await self._may_write.wait()
        if self._protocol.state is State.OPEN:
            if isinstance(message, str):
                self._protocol.send_text(message.encode())
            else:
                self._protocol.send_binary(message)
            self._flush()

    def close(self, code: int, reason: str) -> None:
        """Send a close frame, without a code that must not be sent."""
        if self._protocol.state is State.OPEN:
            with suppress(InvalidFrame):
                self._protocol.send_close(code, reason.encode()[:_MAX_REASON].decode(errors="ignore"))
            self._flush()
        self._end()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


async def open_link(
    connector: Connector, url: str, fields: Mapping[str, str], offered: Sequence[str], seconds: float
) -> SocketLink:
    """Connect to a server, and make the handshake.

    Raise SocketRefused if the server refuses it, ConnectionError and TimeoutError if it fails.
    """
    loop, parts = asyncio.get_running_loop(), urlsplit(url)
    tls = parts.scheme == "https"
    origin = Origin(parts.hostname or "", parts.port or (443 if tls else 80), tls)
    link = SocketLink(loop, url, fields, offered)
    deadline = loop.time() + seconds
    await connector.connect(loop, origin, seconds, link)
    try:
        async with asyncio.timeout_at(deadline):
            await link.opened
    except BaseException:
        link.abort()
        raise
    return link
