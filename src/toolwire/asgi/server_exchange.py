"""A request and its answer, as the server has them: one object with two doors.

    receive, send                the messages of ASGI; they wait, for the body or for a client that reads slowly
    take_whole_body, try_…       `DirectExchange`: the same steps without a coroutine, if nothing has to wait

Both doors end in the same few methods, so an application may use them in turns. The states of an answer, and how its
end is marked (RFC 9112, 6.3), which the status, the method, the version and the fields decide:

    waiting → started → complete
                 framing  none      HEAD, 204, 304: the answer ends with its head; a body is dropped
                          length    `content-length`, of the application or of a whole answer
                          chunked   HTTP/1.1 without a length
                          close     HTTP/1.0 without a length: the end of the connection

`disconnected` is beside these states: the client is gone, and everything that is sent is dropped.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from http import HTTPStatus
from logging import getLogger
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

from .http_exchange import DirectExchange

if TYPE_CHECKING:
    from .http_exchange import HeaderPairs
    from .request import AsgiApp, AsgiMessage, Scope
    from .server_context import ServerContext

Framing: TypeAlias = Literal["none", "length", "chunked", "close"]
_log = getLogger("toolwire.asgi")
# RFC 9110, 5.1 and 5.5: tokens, and values without control characters except tabs
_FORBIDDEN_IN_NAME = re.compile(rb"[^!#$%&'*+\-.^_`|~0-9A-Za-z]")
_FORBIDDEN_IN_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_FRAMING_FIELDS = (b"connection", b"content-length", b"transfer-encoding")
_WITHOUT_BODY = frozenset({204, 304})  # RFC 9110, 15.3.5 and 15.4.5
_COPIED = 4096  # bytes; a larger piece is passed to the transport by itself, a smaller one is cheaper in one write
# Bytes of memory for a request, besides its headers and body: the exchange, the scope and their parts. Not measured;
# it only has to keep many small pipelined requests from counting as nothing.
_REQUEST_OVERHEAD = 2048


class AnswerWriter(Protocol):
    """The connection, as an exchange uses it."""

    transport: asyncio.Transport
    is_read_paused: bool
    is_write_paused: bool

    @property
    def context(self) -> ServerContext: ...

    async def drain(self) -> None: ...

    def resume_reading(self) -> None: ...

    def end_answer(self, exchange: ServerExchange, /) -> None: ...

    def close(self) -> None: ...


class ServerExchange(DirectExchange):
    """One request of a connection. The connection adds the body; the application takes it and answers."""

    disconnected = False
    is_started = False  # the head of the answer was written
    is_complete = False
    task: asyncio.Task[None] | None = None
    _body: bytes | bytearray = b""  # as it arrived, or joined from several pieces
    _has_more = True
    _has_message = False  # a part of the body, or its end, has arrived since the last `receive`
    _event: asyncio.Event | None = None  # set with it; only if the application waits
    _framing: Framing = "none"
    _remaining = 0  # bytes until the declared length

    def __init__(self, connection: AnswerWriter, scope: Scope, keep_alive: bool, expects_continue: bool) -> None:
        self.scope = scope
        self.keep_alive = keep_alive  # after the answer, the connection serves another request
        self._connection = connection
        self._expects_continue = expects_continue

    async def run(self, app: AsgiApp) -> None:
        """Call the application. An answer that it does not complete is an error, and ends the connection."""
        try:
            result: object = await app(self.scope, self.receive, self.send)  # type: ignore[func-returns-value]
        except asyncio.CancelledError:  # the server stops
            await self._fail(503, b"the server is shutting down")
        except Exception as error:  # noqa: BLE001  # its client gets an answer, whatever an application raises
            _log.error("Exception in the ASGI application", exc_info=error)
            await self._fail(500, b"Internal Server Error")
        else:
            if result is not None or not (self.is_complete or self.disconnected):
                _log.error("the ASGI application returned %r; its answer is %s", result, self._state)
                await self._fail(500, b"Internal Server Error")
        finally:
            self._connection.context.exchanges.discard(self)

    async def _fail(self, status: int, reason: bytes) -> None:
        """Answer an error, or close the connection if an answer has begun: the client sees that it is truncated.

        After a complete answer, the connection may already belong to the next request.
        """
        if self.is_complete or self.disconnected:
            return
        if self.is_started:
            self._connection.close()
        else:
            headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
            headers.append((b"content-length", b"%d" % len(reason)))
            await self.send({"type": "http.response.start", "status": status, "headers": headers})
            await self.send({"type": "http.response.body", "body": reason})

    # The request: the connection adds, the application takes.

    def add_body(self, piece: bytes) -> int:
        """Add a piece of the body that has arrived, and return the size of the pieces that were not taken."""
        if not self._body:
            self._body = piece
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += piece
        self._expects_continue = False  # the client has not waited, or does not any more
        self._has_message = True
        if self._event is not None:
            self._event.set()
        return len(self._body)

    def end_body(self) -> None:
        """Note that the whole body has arrived."""
        self._has_more = False
        self._has_message = True
        if self._event is not None:
            self._event.set()

    def disconnect(self) -> None:
        """Note that nothing more can be sent, and notify the application, once."""
        if not self.disconnected and not self.is_complete:
            self.disconnected = True
            if self._event is not None:
                self._event.set()
            if self.on_disconnect is not None:
                self.on_disconnect()

    @property
    def can_keep_alive(self) -> bool:
        """Return whether the connection stays open after an answer that ignores the body."""
        return self.keep_alive and not self._expects_continue

    def size_in_memory(self) -> int:
        """Return the memory that a queued request takes, so far."""
        headers = self.scope["headers"]
        return _REQUEST_OVERHEAD + len(self._body) + sum([len(name) + len(value) for name, value in headers])

    def take_whole_body(self) -> bytes | None:
        """Take the body if `receive` would return all of it at once and write nothing, else return None."""
        if self._has_more or not self._has_message or self.disconnected:
            return None
        self._has_message = False
        if self._event is not None:
            self._event.clear()
        body, self._body = self._body, b""
        return bytes(body)  # the same object if it arrived in one piece

    async def receive(self) -> AsgiMessage:
        """Receive the body that has arrived, or wait for more of it, after `100 Continue` if the client expects that.

        After the answer, report a disconnect.
        """
        if not self.disconnected and not self.is_complete:
            if self._expects_continue and not self._has_message:
                self._connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                self._expects_continue = False
            self._connection.resume_reading()
            if not self._has_message:
                self._event = self._event or asyncio.Event()
                await self._event.wait()
        if self.disconnected or self.is_complete:
            return {"type": "http.disconnect"}
        self._has_message = False
        if self._event is not None:
            self._event.clear()
        body, self._body = self._body, b""
        return {"type": "http.request", "body": bytes(body), "more_body": self._has_more}

    def watch(self, on_disconnect: Callable[[], object]) -> None:
        """Call `on_disconnect` when the client disconnects, or soon if it has done so.

        Reading goes on, because only a connection that is read reports a disconnect.
        """
        self.on_disconnect = on_disconnect
        if self._connection.is_read_paused:
            self._connection.resume_reading()
        if self.disconnected:
            asyncio.get_running_loop().call_soon(self._report_disconnect)

    def _report_disconnect(self) -> None:
        if self.on_disconnect is not None:
            self.on_disconnect()

    # The answer.

    async def send(self, message: AsgiMessage) -> None:
        """Send a message of the application, after the client has read enough of the ones before."""
        if self._connection.is_write_paused and not self.disconnected:
            await self._connection.drain()
        if self.disconnected:
            return
        expected = "http.response.body" if self.is_started else "http.response.start"
        if self.is_complete or message["type"] != expected:
            raise RuntimeError(f"unexpected ASGI message {message['type']!r}, the answer is {self._state}")
        if self.is_started:
            self._write(message.get("body", b""), has_more=message.get("more_body", False))
        else:
            self._connection.transport.write(self._start(message["status"], list(message.get("headers", ())), None))

    @property
    def _state(self) -> str:
        return "complete" if self.is_complete else "started" if self.is_started else "not started"

    def try_respond(self, status: int, headers: HeaderPairs, body: bytes) -> bool:
        """Write a whole answer. Return False if that has to wait, or if an answer has begun."""
        if self.is_started or self.disconnected or self._connection.is_write_paused:
            return False
        head = self._start(status, headers, len(body))
        if self._framing == "none":
            self._connection.transport.write(head)
        elif self._remaining != len(body):
            raise RuntimeError("the body is not as long as the content-length of the answer")
        elif len(body) < _COPIED:
            self._connection.transport.write(head + body)
        else:
            self._connection.transport.writelines((head, body))
        self._complete()
        return True

    def try_start(self, status: int, headers: HeaderPairs) -> bool:
        """Write the head of a stream. Return False if that has to wait, or if an answer has begun."""
        if self.is_started or self.disconnected or self._connection.is_write_paused:
            return False
        self._connection.transport.write(self._start(status, headers, None))
        return True

    def try_write(self, data: bytes) -> bool:
        """Write a piece. Return False if that has to wait, or if it is empty, which would end the answer."""
        if self._framing != "chunked" or self._connection.is_write_paused or not self._can_continue or not data:
            return False
        self._write(data, has_more=True)
        return True

    def try_end(self) -> bool:
        """Write the end of a stream, and complete it. Return False if that has to wait, or is not possible."""
        if self._framing != "chunked" or self._connection.is_write_paused or not self._can_continue:
            return False
        self._write(b"", has_more=False)
        return True

    @property
    def _can_continue(self) -> bool:
        return self.is_started and not self.is_complete and not self.disconnected

    def _start(self, status: int, headers: HeaderPairs, length: int | None) -> bytes:
        """Decide how the end of the answer is marked, and return its head. `length`: of a whole body.

        A client that still waits for `100 Continue` may send no body after this answer, or a part of it, so its next bytes
        would be ambiguous (RFC 9110, 10.1.1): the connection is closed.
        """
        names, values = zip(*headers, strict=True) if headers else ((), ())
        layout = _lay_out(names)
        if _FORBIDDEN_IN_VALUE.search(b"".join(values)):
            name = next(name for name, value in headers if _FORBIDDEN_IN_VALUE.search(value))
            raise RuntimeError(f"the value of the header {name!r} has a control character")
        lines = layout.lines % values
        has_close = False
        if layout.framing:
            has_close, declared = _read_framing(layout, values)
            length = length if declared is None else declared
        elif status == 304:
            length = None  # it would be the length of another answer
        if status in _WITHOUT_BODY or self.scope["method"] == "HEAD":
            self._framing = "none"
            if status == 204:
                length = None  # RFC 9110, 8.6: not even 0
        elif length is not None:
            self._framing, self._remaining = "length", length
        elif self.scope["http_version"] == "1.1":
            self._framing = "chunked"
            lines += b"transfer-encoding: chunked\r\n"
        else:
            self._framing = "close"
        if length is not None:
            lines += b"content-length: %d\r\n" % length
        self.keep_alive = self.keep_alive and not (has_close or self._expects_continue)
        self._expects_continue = False
        if not (self.keep_alive or has_close):
            lines += b"connection: close\r\n"
        self.is_started = True
        return b"%b%b%b\r\n" % (status_line(status), self._connection.context.date_line(), lines)

    def _write(self, data: bytes, *, has_more: bool) -> None:
        """Write a piece of the body, and complete the answer after the last one. Raise RuntimeError for a wrong length."""
        write = self._connection.transport.write
        if self._framing == "chunked":
            end = b"" if has_more else b"0\r\n\r\n"
            if len(data) >= _COPIED:
                self._connection.transport.writelines((b"%x\r\n" % len(data), data, b"\r\n" + end))
            elif data:
                write(b"%x\r\n%b\r\n%b" % (len(data), data, end))
            elif end:
                write(end)
        elif self._framing != "none":
            if self._framing == "length":
                self._remaining -= len(data)
                if self._remaining < 0 or (self._remaining and not has_more):
                    raise RuntimeError("the body is not as long as the content-length of the answer")
            if data:
                write(data)
        if not has_more:
            self._complete()

    def _complete(self) -> None:
        self.is_complete = True
        if self._event is not None:
            self._event.set()
        self._connection.end_answer(self)


class _Layout(NamedTuple):
    """Header lines as a format with a place for each value, and the indexes of the fields that frame the answer."""

    lines: bytes
    framing: tuple[tuple[bytes, int], ...]


def _read_framing(layout: _Layout, values: Sequence[bytes]) -> tuple[bool, int | None]:
    """Return whether the fields announce a close, and the length that they declare."""
    has_close, length = False, None
    for name, index in layout.framing:
        if name == b"connection":
            has_close = has_close or b"close" in [token.strip() for token in values[index].lower().split(b",")]
        elif name == b"content-length":
            length = int(values[index])
    return has_close, length


@lru_cache(256)  # an application has few sets of names; upstreams may have many
def _lay_out(names: tuple[bytes, ...]) -> _Layout:
    """Return the layout of these fields. The length and the transfer coding are written by the server."""
    lines, framing = b"", []
    for index, name in enumerate([name.lower() for name in names]):
        if not name or _FORBIDDEN_IN_NAME.search(name):
            raise RuntimeError(f"invalid header name {name!r}")
        if name in _FRAMING_FIELDS:
            framing.append((name, index))
        is_written = name not in _FRAMING_FIELDS[1:]
        lines += b"%b: %%b\r\n" % name.replace(b"%", b"%%") if is_written else b"%.0b"
    return _Layout(lines, tuple(framing))


@lru_cache(600)  # there are as many
def status_line(status: int) -> bytes:
    try:
        reason = HTTPStatus(status).phrase
    except ValueError:
        reason = ""
    return b"HTTP/1.1 %d %b\r\n" % (status, reason.encode())


def encode_answer(
    status: int, date: bytes, headers: HeaderPairs, body: bytes, *, keep_alive: bool, is_head: bool = False
) -> bytes:
    """Encode a whole answer of the server itself, or of its gate."""
    names, values = zip(*headers, strict=True)
    end = b"" if keep_alive else b"connection: close\r\n"
    head = b"%b%b%bcontent-length: %d\r\n%b\r\n"
    head %= (status_line(status), date, _lay_out(names).lines % values, len(body), end)
    return head if is_head else head + body


def encode_switch(headers: HeaderPairs) -> bytes:
    """Encode the head of an answer that switches to another protocol."""
    names, values = zip(*headers, strict=True)
    return b"%b%b\r\n" % (status_line(101), _lay_out(names).lines % values)
