"""WebSockets (RFC 6455) of our own server: frames without I/O, and ASGI's `websocket` scope on a switched connection.

    bytes of the client → WebSocketFrames → messages → receive ─┐
                                                                ├─ the application
    bytes for the client ← WebSocketFrames ← text and close ← send ┘

The states of a connection:

    connecting   the handshake is valid, and the application has not decided; early data of the client is parsed, but
                 its messages and the pongs wait
    refusing     the application has begun an answer to the handshake over HTTP
    open         after `websocket.accept`
    closing      a close frame or a refusal was sent: input is parsed for the client's close frame, and otherwise
                 dropped, until the client closes, or for five seconds
    closed       the connection is lost

Rules: 1. Received data is bounded: one message by `limits.body`, complete messages that the application has not taken by
`_HIGH_WATER` (reading pauses), and the parts of messages of all connections together by `_MAX_PARTIAL`, because a part
belongs to no request yet, and no reservation of memory covers it. 2. Sent data is bounded, since `send` waits while the
client reads too slowly; an `UnreadTimer` of the connection ends that wait. Pongs do not wait: a client that sends pings and
does not read their answers is disconnected above `_HIGH_WATER`. 3. Every state has a time limit: pings find dead clients, and a part of a message is complete within `slow_client`.

A handshake that is not valid is not switched: the request is served over HTTP, where the application can answer 426.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from logging import getLogger
from typing import TYPE_CHECKING, Literal, TypeAlias

from websockets.frames import CloseCode
from websockets.utils import accept_key

from .server_exchange import encode_answer, encode_switch
from .websocket_frames import WebSocketFrames

if TYPE_CHECKING:
    from .http_exchange import HeaderPairs
    from .request import AsgiMessage, Scope
    from .server_context import OpenConnection

_Stage: TypeAlias = Literal["connecting", "refusing", "open", "closing", "closed"]

_log = getLogger("toolwire.asgi")
# Frames that are parsed in a turn of the event loop. Each takes 10 µs and may have 6 bytes, so the 256 KB that are received at
# once would delay all other clients by half a second.
_MAX_FRAMES = 500
_SLICE = (
    8192  # bytes that are parsed before the frames are counted: up to 1,365 frames, and few slices for a large message
)
_HIGH_WATER = 64 * 1024  # bytes of messages that the application has not taken before reading pauses; as `connection`
_MAX_PARTIAL = 256 * 1024 * 1024  # bytes of incomplete messages of all connections: eight of the largest
_PING_INTERVAL = 30.0  # seconds of silence; half of the minute after which nginx and most balancers close a connection
_CLOSE_TIMEOUT = 5.0  # seconds for the client's close frame and for its end of the connection; as a lingering close
_KEY = re.compile(r"[A-Za-z0-9+/]{21}[AQgw]==").fullmatch  # 16 bytes in Base64 (RFC 6455, 4.1)


class ServerWebSocket:
    """A connection of our server as ASGI's `websocket` scope: the application runs in a task, with `receive` and `send`."""

    __slots__ = (
        *("_accept", "_code", "_connection", "_event", "_frames", "_has_connected", "_is_pinging", "_is_read_paused"),
        "_loop",
        *("_messages", "_partial", "_partial_since", "_received_at", "_refusal", "_refusal_body", "_scope"),
        *("_state", "_tick", "_timer", "_unparsed", "_unread", "task"),
    )

    partial_total = 0  # bytes of incomplete messages of all connections: the bound is for the process, like its memory

    def __init__(self, connection: OpenConnection, scope: Scope, key: str) -> None:
        limits = connection.context.limits()
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._frames = WebSocketFrames(limits.body)
        self._accept = accept_key(key).encode()  # of the handshake
        self._refusal: tuple[int, HeaderPairs] = (403, [])  # status and headers
        self._refusal_body = b""
        self._state: _Stage = "connecting"
        self._has_connected = False  # the application has received the handshake
        self._messages: deque[str | bytes] = deque()  # complete, and not taken by the application
        self._unread = 0  # bytes of them
        self._unparsed = b""  # received data that waits for the next turn of the event loop
        self._is_read_paused = False  # by us
        self._partial = 0  # bytes of an incomplete message, as counted in `partial_total`
        self._partial_since = self._received_at = self._loop.time()
        self._is_pinging = False  # a ping was sent, and nothing has arrived since
        self._event: asyncio.Event | None = None  # set when a message or the end arrives; only if the application waits
        self._code = 0  # of the end, once it has come
        self._tick = min(_PING_INTERVAL, limits.slow_client)
        self._timer = self._loop.call_later(self._tick, self._check_time)
        self._scope: Scope = {
            **scope,
            "type": "websocket",
            "scheme": "wss" if scope["scheme"] == "https" else "ws",
            "subprotocols": _find_subprotocols(scope["headers"]),
            "extensions": {"websocket.http.response": {}},
        }
        connection.context.exchanges.add(self)
        self.task: asyncio.Task[None] | None = self._loop.create_task(self._run())

    async def _run(self) -> None:
        """Run the application. A connection that it leaves open is closed: with 1000, or 1011 if the application failed."""
        context = self._connection.context
        code, status = CloseCode.NORMAL_CLOSURE, 500
        try:
            await context.app(self._scope, self.receive, self.send)
        except asyncio.CancelledError:  # the server stops
            code, status = CloseCode.GOING_AWAY, 503
        except Exception as error:  # noqa: BLE001  # whatever an application raises, the client learns that it failed
            _log.error("Exception in the ASGI application", exc_info=error)
            code = CloseCode.INTERNAL_ERROR
        finally:
            context.exchanges.discard(self)
        if self._state in ("connecting", "refusing"):
            self._refuse(status, [], b"")
        elif self._state == "open":
            self._close(code, "")

    # The events of the connection.

    def data_received(self, data: bytes, /) -> None:
        """Parse data, unless earlier data still waits."""
        self._received_at, self._is_pinging = self._loop.time(), False
        if self._unparsed:
            self._unparsed += data
        else:
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        """Parse data, queue its messages, and answer its control frames.

        After `_MAX_FRAMES`, the rest waits for the next turn of the event loop, and reading pauses.
        """
        last = self._frames.count + _MAX_FRAMES
        position = 0
        while position < len(data) and self._frames.count < last:
            self._take(self._frames.receive(data[position : position + _SLICE] if len(data) > _SLICE else data))
            position += _SLICE
        self._count_pongs()
        if self._state != "connecting":
            self._flush()
        self._unparsed = data[position:]
        if self._unparsed:
            self._loop.call_soon(self._parse_rest)
        self._pause_or_resume_reading()

    def _parse_rest(self) -> None:
        data, self._unparsed = self._unparsed, b""
        if self._state != "closed":
            self._parse(data)

    def _take(self, messages: list[str | bytes]) -> None:
        """Queue messages for the application, and count them and the incomplete one."""
        if self._state in ("connecting", "open"):
            self._messages += messages
            self._unread += sum(map(_size_in_memory, messages))
            self._count_partial()
            if messages and self._event is not None:
                self._event.set()

    def _pause_or_resume_reading(self) -> None:
        """Read while the application takes the messages, and no data waits to be parsed."""
        is_paused = self._unread > _HIGH_WATER or bool(self._unparsed)
        if is_paused != self._is_read_paused and not self._connection.transport.is_closing():
            self._is_read_paused = is_paused
            if is_paused:
                self._connection.transport.pause_reading()
            else:
                self._connection.transport.resume_reading()

    def _count_partial(self) -> None:
        """Count the bytes of the incomplete message. Close the connection if all connections together have too many."""
        previous, self._partial = self._partial, self._frames.partial_size
        ServerWebSocket.partial_total += self._partial - previous
        if not previous:
            self._partial_since = self._received_at
        if self._partial > previous and self.partial_total > _MAX_PARTIAL:
            self._frames.fail(CloseCode.TRY_AGAIN_LATER, "too many incomplete messages; send this one again later")

    def _count_pongs(self) -> None:
        """Close the connection if too many answers to pings wait, for the handshake or for a client that does not read."""
        if self._state != "connecting" and not self._connection.is_write_paused:
            self._frames.pong_size = 0
        elif self._frames.pong_size > _HIGH_WATER:
            self._frames.fail(CloseCode.POLICY_VIOLATION, "too many pings whose answers were not read")

    def connection_lost(self, error: Exception | None, /) -> None:
        self._frames.receive_end()
        self._end("closed")
        self._timer.cancel()

    def shutdown(self) -> None:
        """Do nothing: an application that stops closes its connections itself; else its task is cancelled in the end."""

    def _end(self, state: _Stage) -> None:
        """Drop the messages that wait, and report the end to the application."""
        self._state = state
        self._code = self._code or self._frames.close_code
        self._messages.clear()
        ServerWebSocket.partial_total -= self._partial
        self._partial = 0
        if self._event is not None:
            self._event.set()

    # The messages of the application.

    async def receive(self) -> AsgiMessage:
        """Receive the handshake, then messages, and in the end a disconnect, also after a close by the application."""
        if not self._has_connected:
            self._has_connected = True
            return {"type": "websocket.connect"}
        while not self._messages:
            if self._code:
                return {"type": "websocket.disconnect", "code": self._code, "reason": self._frames.close_reason}
            self._event = self._event or asyncio.Event()
            self._event.clear()
            await self._event.wait()
        message = self._messages.popleft()
        self._unread -= _size_in_memory(message)
        self._pause_or_resume_reading()
        return {"type": "websocket.receive", "text" if isinstance(message, str) else "bytes": message}

    async def send(self, message: AsgiMessage) -> None:
        """Send a message, after the client has read enough. After the end, it is dropped."""
        kind = message["type"]
        if kind == "websocket.send" and self._connection.is_write_paused:
            await self._connection.drain()
        if self._state in ("closing", "closed"):
            return
        step = _STEPS.get((self._state, kind))
        if step is None:
            raise RuntimeError(f"unexpected ASGI message {kind!r}, the connection is {self._state}")
        step(self, message)

    def _send_accept(self, message: AsgiMessage) -> None:
        """Write the answer to the handshake, and the frames that wait for it."""
        headers = [(b"upgrade", b"websocket"), (b"connection", b"Upgrade"), (b"sec-websocket-accept", self._accept)]
        if message.get("subprotocol"):
            headers.append((b"sec-websocket-protocol", message["subprotocol"].encode()))
        self._connection.transport.write(encode_switch([*headers, *message.get("headers", ())]))
        self._state = "open"
        self._flush()

    def _send_message(self, message: AsgiMessage) -> None:
        text = message.get("text")
        self._frames.send(message["bytes"] if text is None else text)
        self._flush()

    def _send_close(self, message: AsgiMessage) -> None:
        self._close(message.get("code") or CloseCode.NORMAL_CLOSURE, message.get("reason") or "")

    def _close(self, code: int, reason: str) -> None:
        self._code = code
        self._frames.close(code, reason)
        self._flush()

    def _start_refusal(self, message: AsgiMessage) -> None:
        self._state, self._refusal = "refusing", (message["status"], list(message.get("headers", ())))

    def _end_refusal(self, message: AsgiMessage) -> None:
        self._refusal_body += message.get("body", b"")
        if not message.get("more_body", False):
            self._refuse(*self._refusal, self._refusal_body)

    def _refuse(self, status: int, headers: HeaderPairs, body: bytes) -> None:
        """Refuse the handshake over HTTP. Data after it may be frames or a request, so the connection closes."""
        headers = [(name, value) for name, value in headers if name not in (b"content-length", b"connection")]
        headers = headers or [(b"content-type", b"text/plain")]
        date = self._connection.context.date_line()
        self._connection.transport.write(encode_answer(status, date, headers, body, keep_alive=False))
        self._code = CloseCode.ABNORMAL_CLOSURE
        self._finish()

    def _flush(self) -> None:
        """Write the encoded frames. After the last one, wait for the client to close the connection."""
        data, is_end = self._frames.take()
        if data:
            self._connection.transport.write(data)
        if is_end:
            self._finish()
        elif not self._frames.is_open and self._state == "open":
            self._wait_for_close()

    def _finish(self) -> None:
        """End our side of the connection. It closes when the client has read all, and has closed its side (RFC 6455, 7.1.1).

        One that is closed with unread data is reset, which can destroy the close frame (RFC 9112, 9.6).
        """
        transport = self._connection.transport
        if self._state != "closed" and transport.can_write_eof():  # not for TLS
            with suppress(OSError):  # the client has reset the connection
                transport.write_eof()
            self._wait_for_close()
        else:
            self._end("closing")
            self._connection.close()

    def _wait_for_close(self) -> None:
        """Report the end to the application, and limit the time in which the client closes the connection."""
        self._end("closing")
        self._unread = 0
        self._pause_or_resume_reading()
        self._timer.cancel()
        self._timer = self._loop.call_later(_CLOSE_TIMEOUT, self._connection.close)

    def _check_time(self) -> None:
        """Ping a client that is silent, and end a connection that does not answer, or has an incomplete message for too long.

        A connection whose reading is paused by us is not silent.
        """
        now = self._loop.time()
        self._timer = self._loop.call_later(self._tick, self._check_time)
        if self._partial and now - self._partial_since >= self._connection.context.limits().slow_client:
            self._frames.fail(CloseCode.POLICY_VIOLATION, "the message did not arrive in time")
        elif now - self._received_at < self._tick or self._is_read_paused or self._state != "open":
            return
        elif self._is_pinging:
            self._connection.transport.abort()
            return
        else:
            self._frames.ping()
            self._is_pinging = True
        self._flush()


_STEPS: dict[tuple[_Stage, str], Callable[[ServerWebSocket, AsgiMessage], None]] = {
    ("connecting", "websocket.accept"): ServerWebSocket._send_accept,
    ("connecting", "websocket.close"): lambda socket, _: socket._refuse(403, [], b""),
    ("connecting", "websocket.http.response.start"): ServerWebSocket._start_refusal,
    ("refusing", "websocket.http.response.body"): ServerWebSocket._end_refusal,
    ("open", "websocket.send"): ServerWebSocket._send_message,
    ("open", "websocket.close"): ServerWebSocket._send_close,
}


def open_websocket(connection: OpenConnection, scope: Scope) -> ServerWebSocket | None:
    """Open the connection of a handshake, or return None if it is not valid (RFC 6455, 4.2.1), or has a body."""
    headers = dict(scope["headers"])
    key = headers.get(b"sec-websocket-key", b"").decode("latin-1")
    is_valid = (
        scope["method"] == "GET"
        and scope["http_version"] == "1.1"
        and headers.get(b"sec-websocket-version") == b"13"
        and headers.get(b"content-length", b"0") == b"0"
        and b"transfer-encoding" not in headers
        and _KEY(key) is not None
        and sum(name.startswith(b"sec-websocket-key") for name, _ in scope["headers"]) == 1
    )
    return ServerWebSocket(connection, scope, key) if is_valid else None


def _size_in_memory(message: str | bytes) -> int:
    """Return about as many bytes as a message takes, so that many empty ones do not count as nothing."""
    return len(message) + 64


def _find_subprotocols(headers: HeaderPairs) -> list[str]:
    values = b",".join([value for name, value in headers if name == b"sec-websocket-protocol"])
    return [name.strip() for name in values.decode("latin-1").split(",") if name.strip()]
