"""A connection of OpenAI Responses over WebSockets: one response at a time, as events.

    handshake ──101──▶ idle ──send──▶ response ──its last event──▶ idle
        │                │                │
        │                └────────────────┴── close frame, invalid frame, end of TCP ──▶ lost
        ├── 401, 429, 5xx … ──▶ refused: the reply of the request is the server's response to the handshake
        └── anything else ──▶ NoSockets

After a close frame, no event can follow, so the reader gets its error immediately, and not when the server closes TCP.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Mapping
from copy import copy
from logging import getLogger
from math import inf
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw, Struct
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import parse_uri

from ...ir.pointer import Object
from ...ir.text import to_bytes
from ..deadlines import Deadlines
from .transport import Reply

_log = getLogger("toolwire.net")
_MAX_MESSAGE = 64 * 1024 * 1024  # bytes of an event; as of a whole answer (`limits.answer`)
_MAX_UNREAD = 256 * 1024  # bytes of events; above it, the server has to wait, as in `connection`
_OVERHEAD = 64  # bytes of memory of an event besides its text
# Bytes of answers to pings and close frames that the server has not read; more than a server needs in an hour.
_MAX_UNSENT = 1024 * 1024
_CLOSING_SECONDS = 5.0  # for the server to close TCP after a close frame; it has nothing else to do

# Responses to a handshake by servers that have no WebSockets at this path. Starlette responds with 403 to a handshake
# for an unknown route, and with 404 or 405 to a request whose upgrade its server ignores. Nothing of the request was
# sent, so HTTP gets its true status in all these cases. Other errors are true for the request, too, such as a refused key.
_NO_SOCKETS = frozenset({400, 403, 404, 405, 426, 501})
_SWITCHING_PROTOCOLS = 101  # RFC 9110, 15.2.2
_MIN_UNSUCCESSFUL = 300  # RFC 9110, 15; a server that ignores the upgrade responds with 200
_TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})
_IGNORED_FIELDS = ("stream", "stream_options", "background")  # which a request over HTTP may have
_ENVELOPE = ("type", "status", "status_code", "headers", "error")  # of an error event
_JSON, _EVENTS = {"content-type": "application/json"}, {"content-type": "text/event-stream"}
_match_status = re.compile(rb'"?([45][0-9]{2})"?').fullmatch
_NOTHING = Raw(b"null")


class _ResponseEvent(Struct):
    type: str = ""
    response: Raw = _NOTHING


_decode_event = msgspec.json.Decoder(_ResponseEvent).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


class NoSockets(ConnectionRefusedError):
    """The server did not accept the handshake: nothing was sent."""


class HandshakeRequest(NamedTuple):
    """A request for a connection. Connections with the same handshake are interchangeable."""

    url: str
    fields: tuple[tuple[str, str], ...]


class SocketConnection(asyncio.Protocol):
    """A connection: messages in, events out. Reading pauses while the reader has many bytes of events to take."""

    __slots__ = (
        "_close_at",
        "_deadline",
        "_deadlines",
        "_error",
        "_events",
        "_fragments",
        "_has_begun",
        "_has_ended",
        "_is_writing_paused",
        "_loop",
        "_on_lost",
        "_protocol",
        "_refusal",
        "_request",
        "_size",
        "_slot",
        "_transport",
        "_unsent",
        "_waiter",
        "handshake",
        "opened",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, handshake: HandshakeRequest, on_lost: Callable[[SocketConnection], None]
    ) -> None:
        """`on_lost` is called when the connection cannot be used any more."""
        self.handshake = handshake
        self.opened: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._on_lost = on_lost
        parts = urlsplit(handshake.url)
        uri = parse_uri(parts._replace(scheme="wss" if parts.scheme == "https" else "ws").geturl())
        self._protocol = ClientProtocol(uri, max_size=_MAX_MESSAGE, logger=_log)
        self._request = self._protocol.connect()
        for name, value in handshake.fields:
            self._request.headers[name] = value
        self._transport: asyncio.Transport | None = None
        self._events: deque[bytes] = deque()
        self._fragments: list[bytes] = []  # of an incomplete event
        self._refusal: Response | None = None  # of the handshake
        self._size = 0  # of the events that were not read
        self._error: ConnectionError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._is_writing_paused = False
        self._unsent = 0  # bytes of answers to control frames, since writing was paused
        self._deadline = 0.0
        self._has_ended = True  # no response is in progress
        self._has_begun = False  # events of a response were sent, whose end was not
        self._deadlines = Deadlines.of_running_loop()
        self._slot: int | None = None
        self._close_at = inf

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._protocol.send_request(self._request)
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._protocol.receive_data(data)
        self._process()
        self._unsent += self._flush()
        if not self._is_writing_paused:
            self._unsent = 0
        elif self._unsent > _MAX_UNSENT:
            self.abort()  # a server that sends pings, and does not read their answers

    def pause_writing(self) -> None:
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        self._is_writing_paused = False

    def eof_received(self) -> None:
        self._protocol.receive_eof()  # the end of a response to the handshake without a length
        self._process()
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._protocol.receive_eof()  # as above, and after a reset, or an end that TLS does not report
        self._process(error)
        self._deadlines.drop(self, self._slot)

    def _process(self, error: Exception | None = None) -> None:
        """Handle everything that was received, and fail if nothing more can follow. `error` ended the connection."""
        for event in self._protocol.events_received():
            if isinstance(event, Response):
                self._end_handshake(event)
            elif isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                if self._close_at < inf:  # it is idle: the event belongs to no response
                    self.abort()
                    return
                if event.data:
                    self._fragments.append(bytes(event.data))
                if event.fin:
                    self._add(b"".join(self._fragments))
                    self._fragments.clear()
        if self._protocol.handshake_exc is not None:
            if not self.opened.done():
                self.opened.set_exception(NoSockets(f"the handshake failed: {self._protocol.handshake_exc}"))
        elif self._error is None and self._protocol.state in (State.CLOSING, State.CLOSED):
            self._fail(self._protocol.close_rcvd or error or self._protocol.parser_exc)
            self.close_in(_CLOSING_SECONDS)

    def _end_handshake(self, response: Response) -> None:
        if self.opened.done():
            return
        status = response.status_code
        if self._protocol.handshake_exc is None:
            self.opened.set_result(None)
        elif status in _NO_SOCKETS or status < _MIN_UNSUCCESSFUL:
            problem = "has invalid headers" if status == _SWITCHING_PROTOCOLS else f"has status {status}"
            self.opened.set_exception(NoSockets(f"the response to the handshake {problem}"))
        else:  # such as a refused key: the request over HTTP would get the same
            self._refusal = response
            self.opened.set_result(None)

    def _add(self, message: bytes) -> None:
        """Add an event, and pause reading while many bytes are unread."""
        self._events.append(message)
        self._size += len(message) + _OVERHEAD
        if self._size > _MAX_UNREAD and self._transport is not None:
            self._transport.pause_reading()
        self._wake()

    def _fail(self, reason: object) -> None:
        """Let the response in progress fail, after the events that have arrived."""
        self._error = ConnectionResetError(f"the connection was closed: {reason}")
        self._on_lost(self)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _flush(self) -> int:
        """Write the output of the protocol, and return its size in bytes."""
        size = 0
        for data in self._protocol.data_to_send():
            size += len(data)
            if self._transport is not None:
                if data:
                    self._transport.write(data)
                else:  # the end of the connection
                    self._transport.close()
        return size

    # the end of the connection

    @property
    def is_usable(self) -> bool:
        """True if another response can be requested."""
        is_alive = self._error is None and self._protocol.state is State.OPEN
        is_alive = is_alive and self._transport is not None and not self._transport.is_closing()
        return is_alive and self._has_ended and not self._has_begun and not self._events

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def close_in(self, seconds: float) -> None:
        """Close the connection after `seconds`, unless it is used before."""
        self._close_at = self._loop.time() + seconds
        self._slot = self._deadlines.set(self, self._slot, self._close_at)

    def keep_open(self) -> None:
        """Cancel `close_in`. The slot stays: most connections are idle again before its time."""
        self._close_at = inf

    def check_time(self) -> None:
        self._slot = None
        if self._close_at <= self._loop.time():
            self.abort()
        elif self._close_at < inf:
            self._slot = self._deadlines.set(self, None, self._close_at)

    # one response

    def send(self, document: Object, deadline: float) -> None:
        """Request a response, which must end before `deadline`. Raise ConnectionRefusedError if nothing was sent."""
        if self._error is not None:  # it was lost while the request body was read
            raise ConnectionRefusedError(str(self._error))
        self._deadline, self._has_ended = deadline, False
        kept = {name: value for name, value in document.items() if name not in _IGNORED_FIELDS}
        if self._refusal is None:
            self._protocol.send_text(to_bytes({"type": "response.create", **kept}))
            self._flush()

    async def open_reply(self, *, is_stream: bool) -> Reply:
        """Wait for the first event of a stream, or for the end of a whole response."""
        if self._refusal is not None:
            headers = {name.lower(): value for name, value in self._refusal.headers.raw_items()}
            return _WholeReply(self._refusal.status_code, headers, bytes(self._refusal.body or b""))
        while True:
            event, payload = await self._receive()
            if event.type == "error":
                return _error_reply(payload)
            if is_stream:
                return _StreamReply(self, _as_frame(event, payload))
            if event.type in _TERMINAL:
                return _WholeReply(200, _JSON, bytes(event.response))

    async def read_frame(self) -> bytes:
        """Return the next event as a server-sent one; b"" after the end of the response."""
        if self._has_ended:
            return b""
        return _as_frame(*await self._receive())

    async def _receive(self) -> tuple[_ResponseEvent, bytes]:
        """Return the next event. Raise ConnectionError if the connection is lost, and TimeoutError at the deadline."""
        while not self._events:
            if self._error is not None:
                raise copy(self._error)  # whose traceback keeps the frames of the request alive
            self._waiter = self._loop.create_future()
            async with asyncio.timeout_at(self._deadline):
                await self._waiter
        payload = self._events.popleft()
        self._size -= len(payload) + _OVERHEAD
        if self._size <= _MAX_UNREAD and self._transport is not None:
            self._transport.resume_reading()
        event = _read_event(payload)
        is_end = event.type in _TERMINAL
        self._has_ended = is_end or event.type == "error"
        # after an error in the middle, the end of the response may follow: the connection is not used again
        self._has_begun = not is_end and (self._has_begun or event.type != "error")
        return event, payload


class _WholeReply:
    """A whole answer."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self._body = body

    async def read(self) -> bytes:
        body, self._body = self._body, b""
        return body


class _StreamReply:
    """A stream, whose first event has arrived."""

    status = 200
    headers: Mapping[str, str] = _EVENTS

    def __init__(self, connection: SocketConnection, first: bytes) -> None:
        self._connection = connection
        self._first = first

    async def read(self) -> bytes:
        if self._first:
            first, self._first = self._first, b""
            return first
        return await self._connection.read_frame()


def _read_event(payload: bytes) -> _ResponseEvent:
    """Return the fields of an event. Raise ConnectionError if it is not one."""
    try:
        return _decode_event(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise ConnectionResetError("the server sent a message that is no event") from None


def _as_frame(event: _ResponseEvent, payload: bytes) -> bytes:
    """Return an event as a server-sent one. Outside of strings, JSON has line breaks only as space."""
    if event.type == "error":  # nested over WebSockets, and flat in a stream
        payload = msgspec.json.encode({**_read_error(_read_members(payload)), "type": Raw(b'"error"')})
    return b"event: %b\ndata: %b\n\n" % (event.type.encode(), payload.replace(b"\r", b" ").replace(b"\n", b" "))


# Error events. Servers differ in their members, and a wrong type must not hide the error, so only `type` is strict:
#   {"type": "error", "status": 429, "error": {"type", "code", "message", "param"}, "headers": {…}}    OpenAI
#   {"type": "error", "status_code": "429", "error": "slow down", "headers": null}                     compatible servers
#   {"type": "error", "code", "message", "param", "sequence_number"}                                   as in a stream


def _error_reply(payload: bytes) -> _WholeReply:
    members = _read_members(payload)
    matches = (_match_status(bytes(members.get(name, _NOTHING))) for name in ("status", "status_code"))
    status = next((int(match[1]) for match in matches if match), 502)
    body = msgspec.json.encode({"error": _read_error(members)})
    return _WholeReply(status, {**_read_headers(members.get("headers", _NOTHING)), **_JSON}, body)


def _read_error(members: Mapping[str, Raw]) -> dict[str, Raw]:
    """Return the members of the error, which may be the members of the event itself."""
    error = members.get("error", _NOTHING)
    nested = {"message": error} if bytes(error).startswith(b'"') else _read_members(error)
    return nested or {name: value for name, value in members.items() if name not in _ENVELOPE}


def _read_headers(raw: Raw) -> dict[str, str]:
    """Return the headers that are text or numbers, with names in lower case as in every reply."""
    try:
        values = msgspec.json.decode(raw, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {}
    texts = {name.lower(): str(value) for name, value in values.items() if type(value) in (str, int, float)}
    return {name: text for name, text in texts.items() if text.isprintable()}  # no line breaks


def _read_members(raw: bytes | Raw) -> dict[str, Raw]:
    """Return the members of an object; {} for any other value."""
    try:
        return _decode_members(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {}
