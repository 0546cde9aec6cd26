"""A request and its answer on a connection of uvicorn, with less work for each than uvicorn's own class.

Most heads of answers are encoded at once, and a whole answer is written at once. An event is created only if the
application waits for a message. All other answers are sent by uvicorn's methods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache
from logging import getLogger
from typing import TYPE_CHECKING

from ..ir.text import to_bytes
from .http_exchange import DirectExchange
from .uvicorn_internals import HEADER_RE, HEADER_VALUE_RE, STATUS_LINE, FlowControl, RequestResponseCycle

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveEvent, HTTPScope


_FRAMING_FIELDS = frozenset({b"connection", b"content-length", b"transfer-encoding"})


def encode_fields(headers: list[tuple[bytes, bytes]]) -> bytes | None:
    """Encode header fields, or return None if uvicorn would refuse a field, change it, or frame the answer by it.

    One search in all values finds a forbidden character as a search in each of them does.
    """
    if not headers:
        return b""
    names, values = zip(*headers, strict=True)
    lines = _format_names(names)
    return None if lines is None or HEADER_VALUE_RE.search(b"".join(values)) else lines % values


@lru_cache(256)
def _format_names(names: tuple[bytes, ...]) -> bytes | None:
    """Return the header lines as a format with a place for each value, or None if uvicorn must write them."""
    all_names = b"".join(names)
    if not all_names.islower() or HEADER_RE.search(all_names) or not _FRAMING_FIELDS.isdisjoint(names):
        return None
    return b"".join([b"%b: %%b\r\n" % name.replace(b"%", b"%%") for name in names])


class RequestCycle(DirectExchange, RequestResponseCycle):
    """One request of a connection. It has the attributes of uvicorn's class, whose constructor is not called.

    `default_lines` are the encoded `default_headers`, as `encode_fields` returns them. There is no access log.
    """

    logger = getLogger("uvicorn.error")
    access_logger = getLogger("uvicorn.access")
    access_log = False
    disconnected = False
    body: bytes | bytearray = b""  # type: ignore[assignment]  # as it arrived, or joined from several pieces
    more_body = True
    response_started = False
    response_complete = False
    chunked_encoding: bool | None = None
    expected_content_length = 0
    _has_message = False  # part of the body, or its end, has arrived since the last `receive`
    _message_event: asyncio.Event | None = None  # set with it; only if the application waits

    def __init__(
        self,
        scope: HTTPScope,
        transport: asyncio.Transport,
        flow: FlowControl,
        default_headers: list[tuple[bytes, bytes]],
        default_lines: bytes | None,
        on_response: Callable[[], None],
        keep_alive: bool,  # by position, because this is called for each request
        expects_continue: bool,
    ) -> None:
        self.scope = scope
        self.transport = transport
        self.flow = flow
        self.default_headers = default_headers
        self._default_lines = default_lines
        self.on_response = on_response
        self.keep_alive = keep_alive
        self.waiting_for_100_continue = expects_continue

    @property
    def message_event(self) -> asyncio.Event:  # type: ignore[override]
        """The event that uvicorn sets at the end of an answer, and of the connection."""
        if self._message_event is None:
            self._message_event = asyncio.Event()
        return self._message_event

    def add_body(self, piece: bytes) -> None:
        """Add a piece of the body that has arrived, and wake an application that waits for it."""
        if not self.body:
            self.body = piece
        else:
            if isinstance(self.body, bytes):
                self.body = bytearray(self.body)
            self.body += piece
        self._has_message = True
        if self._message_event is not None:
            self._message_event.set()

    def end_body(self) -> None:
        """Note that the whole body has arrived."""
        self.more_body = False
        self._has_message = True
        if self._message_event is not None:
            self._message_event.set()

    def disconnect(self) -> None:
        """Note that the client disconnected before the answer was complete, and notify the application."""
        self.disconnected = True
        self._has_message = True
        if self._message_event is not None:
            self._message_event.set()
        if self.on_disconnect is not None:
            self.on_disconnect()

    def watch(self, on_disconnect: Callable[[], object]) -> None:
        """Call `on_disconnect` when the client disconnects, or soon if it has done so.

        Reading goes on, because only a connection that is read reports a disconnect.
        """
        self.on_disconnect = on_disconnect
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.disconnected:
            asyncio.get_running_loop().call_soon(self._report_disconnect)

    def _report_disconnect(self) -> None:
        if self.on_disconnect is not None:
            self.on_disconnect()

    async def receive(self) -> ASGIReceiveEvent:
        """Receive the body that has arrived, or wait for more of it, after `100 Continue` if the client expects that.

        After the answer, report a disconnect.
        """
        if self.waiting_for_100_continue and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.waiting_for_100_continue = False
        if not self.disconnected and not self.response_complete:
            self.flow.resume_reading()
            if not self._has_message:
                await self.message_event.wait()
            self._clear_message()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body, self.body = bytes(self.body), b""
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    def _clear_message(self) -> None:
        self._has_message = False
        if self._message_event is not None:
            self._message_event.clear()

    def take_whole_body(self) -> bytes | None:
        """Take the body if `receive` would return all of it at once and write nothing, else return None."""
        if (
            self.more_body
            or not self._has_message
            or self.disconnected
            or self.waiting_for_100_continue
            or self.flow.read_paused
        ):
            return None
        self._clear_message()
        body, self.body = bytes(self.body), b""
        return body

    def try_respond(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> bool:
        """Write a whole answer on a connection that stays open. Return False if uvicorn has to write it."""
        head = self._start_answer(status, headers)
        if head is None:
            return False
        self.transport.write(b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body))
        self._complete_answer()
        return True

    def try_start(self, status: int, headers: list[tuple[bytes, bytes]]) -> bool:
        """Write the head of a chunked answer. Return False if uvicorn has to, as for 204 and 304, which have no body."""
        head = None if status in (204, 304) else self._start_answer(status, headers)
        if head is None:
            return False
        self.chunked_encoding = True
        self.transport.write(head + b"transfer-encoding: chunked\r\n\r\n")
        return True

    def _start_answer(self, status: int, headers: list[tuple[bytes, bytes]]) -> bytes | None:
        """Mark the answer as started and return its status line and fields, or None if uvicorn has to write them."""
        if (
            self.response_started
            or self.disconnected
            or not self.keep_alive
            or self.flow.write_paused
            or self.scope["method"] == "HEAD"
        ):
            return None
        lines = encode_fields(headers)
        if lines is None or self._default_lines is None:
            return None
        self.response_started = True
        self.waiting_for_100_continue = False
        return STATUS_LINE[status] + self._default_lines + lines

    def try_write(self, data: bytes) -> bool:
        """Write a chunk. Return False if that has to wait, or if it is empty, which would end the answer."""
        if (
            not self.chunked_encoding
            or self.flow.write_paused
            or self.disconnected
            or self.response_complete
            or not data
        ):
            return False
        self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return True

    def try_end(self) -> bool:
        """Write the end of a chunked answer, and complete it. Return False if that has to wait, or is not possible."""
        if not self.chunked_encoding or self.flow.write_paused or self.disconnected or self.response_complete:
            return False
        self.transport.write(b"0\r\n\r\n")
        self._complete_answer()
        return True

    def _complete_answer(self) -> None:
        self.response_complete = True
        if self._message_event is not None:
            self._message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


# Bytes of memory for a request, besides its headers and body: the cycle, the scope and their parts. Not measured;
# it only has to keep many small pipelined requests from counting as nothing.
_REQUEST_OVERHEAD = 2048


class BoundedFlow(FlowControl):
    """uvicorn's flow control, which does not resume reading while `is_full`."""

    is_full = False

    def resume_reading(self) -> None:
        if not self.is_full:
            super().resume_reading()


def encode_early_refusal(status: int, message: str) -> bytes:
    """Encode an error in OpenAI's format, because the client's protocol is not known yet."""
    body = to_bytes({"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}})
    retry = b"retry-after: 1\r\n" if status == 503 else b""
    head = b"%bcontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n%b\r\n"
    return head % (STATUS_LINE[status], len(body), retry) + body


def size_in_memory(cycle: RequestCycle) -> int:
    """Return the memory that a queued request takes, so far."""
    return _REQUEST_OVERHEAD + len(cycle.body) + sum([len(name) + len(value) for name, value in cycle.scope["headers"]])
