"""One HTTP/1.1 connection: it writes a request and reads the response as a stream, with back-pressure both ways.

    idle ──begin, write──▶ sent ──head──▶ body ──its end──▶ complete ──end──▶ idle
                            └──────────────┴──deadline, broken framing, lost connection──▶ failed

The server is not trusted. Its response must be framed in one way only. The head with all interim responses is limited
to 64 KiB, and so are the chunk extensions and trailers after it. Bytes after a complete response close the connection,
so that they are never read as the response to the next request.

A failure is stored until the reader asks: pieces that arrived before it are read first, so that a client sees as much
of a stream as the server sent. A deadline is set once for many requests (`net.deadlines`), and checks the current one. A
compressed body is decompressed on reading and not on arrival: its size is limited then, whatever the ratio.
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections.abc import Sequence
from copy import copy
from typing import Any, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from ..deadlines import Deadlines

# Bytes that have not been read yet; above it the server has to wait, so a slow reader costs no memory.
_MAX_BUFFERED = 256 * 1024
# Bytes of compressed data at once: zlib copies the input that it did not use, for each piece of output.
_SLICE = 16 * 1024
_MAX_OVERHEAD = 64 * 1024  # bytes of a response that are not body; as much as a client's head may have in `asgi`
_PIECE_OVERHEAD = 32  # bytes around a piece of the body that are not counted: the size of a chunk and line breaks
_MAX_HEADERS = 256  # far more than providers send; each costs more memory than its bytes
_SWITCHING_PROTOCOLS = 101  # RFC 9110, 15.2.2; no request asks for it
# Seconds; an idle connection that the server has closed is reset within a round trip, before any work.
_STALE_WINDOW = 0.1
_CONTENT_CODINGS = {"gzip": 31, "x-gzip": 31, "deflate": 15}  # zlib's wbits


class StaleConnection(ConnectionError):
    """A reused connection that was closed immediately, before the server could have processed the request."""


class HttpConnection(asyncio.Protocol):
    """A connection. Its `status`, `headers` and `read` belong to the current response."""

    __slots__ = (
        "_deadline",
        "_deadlines",
        "_decompressor",
        "_error",
        "_expects_body",
        "_fields",
        "_has_compressed_data",
        "_has_received",
        "_is_complete",
        "_is_reading_paused",
        "_is_writing_paused",
        "_keeps_alive",
        "_loop",
        "_overhead",
        "_parser",
        "_pieces",
        "_sent_at",
        "_size",
        "_slot",
        "_transport",
        "_waiter",
        "_write_waiter",
        "has_head",
        "headers",
        "idle_since",
        "is_reused",
        "on_body",
        "status",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pieces: list[bytes] = []  # unread body, before decompression
        self.on_body = self._pieces.append  # a callback of the parser; `data_received` counts the new pieces
        self._parser = HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None  # the reader that waits for data
        self._write_waiter: asyncio.Future[None] | None = None  # the writer that waits until the buffer is smaller
        self._is_writing_paused = False
        self._sent_at = 0.0  # time of the last request
        self._deadline: float | None = None
        self._deadlines = Deadlines.of_running_loop()
        self._slot: int | None = None  # of the deadline, or of an earlier one
        self.idle_since = 0.0
        self.is_reused = False
        self.status = 0
        self.headers: dict[str, str] = {}
        self._fields: list[tuple[bytes, bytes]] = []  # headers of the response that is being parsed, and trailers
        self.has_head = False
        self._size = 0  # bytes in `_pieces`
        self._overhead = 0  # bytes that are not body
        self._expects_body = True
        self._is_complete = False
        self._keeps_alive = False  # the server keeps the connection open
        self._has_received = False  # any bytes for this request
        self._is_reading_paused = False
        self._error: Exception | None = None
        self._decompressor: Any = None
        self._has_compressed_data = False

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def begin(self, deadline: float, *, expects_body: bool = True) -> None:
        """Begin a request, and set its deadline. `expects_body`: False for HEAD, whose response has none."""
        if self.is_reused:  # `end` found no error and no unread bytes; the head sets the rest
            self.has_head = self._is_complete = self._has_received = self._has_compressed_data = False
            self._overhead, self._decompressor = 0, None
        self._expects_body = expects_body
        self._sent_at = self._loop.time()
        self._deadline = deadline
        self._slot = self._deadlines.set(self, self._slot, deadline)

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    async def write_chunk(self, pieces: Sequence[bytes]) -> None:
        """Write a part of a streamed body, and wait while the server does not read."""
        # Joined, because `writelines` of asyncio never pauses the writer in Python 3.12.0 to 3.12.8, 3.13.0 and 3.13.1
        # (CVE-2024-12254): the whole body would be buffered in memory.
        self.write(b"".join(pieces))
        while self._is_writing_paused and self._error is None and self.is_open:
            self._write_waiter = self._loop.create_future()
            try:
                await self._write_waiter
            finally:
                self._write_waiter = None

    def end(self) -> bool:
        """End the response, and return whether the connection can be used again.

        No deadline applies to an idle connection. Its slot stays, for the next request.
        """
        self._deadline = None
        self.idle_since = self._loop.time()
        is_whole = self._is_complete and self._error is None and not self._pieces
        transport = self._transport
        is_open = transport is not None and not transport.is_closing()
        self.is_reused = is_reused = is_whole and self._keeps_alive and is_open
        return is_reused

    def refuse_reuse(self) -> None:
        """Close the connection after this response, because the request was not sent completely."""
        self._keeps_alive = False

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def fail(self, error: Exception) -> None:
        """End an incomplete response with an error."""
        if self._error is None and not self._is_complete:
            self._error = error
            self._wake(self._waiter)
            self._wake(self._write_waiter)

    def check_time(self) -> None:
        """Fail the response at its deadline."""
        self._slot = None
        if self._deadline is None:
            return
        if self._deadline > self._loop.time():
            self._slot = self._deadlines.set(self, None, self._deadline)
        else:
            self.fail(TimeoutError("the deadline passed"))

    async def read_head(self) -> None:
        """Wait for the head of the response. Raise the error of a failed response."""
        while not self.has_head and self._error is None:
            self._waiter = self._loop.create_future()
            await self._waiter
        if self._error is not None:
            raise copy(self._error)  # whose traceback keeps the frames of the request alive

    async def read(self) -> bytes:
        """Wait for bytes, and return all that have arrived, decompressed, or b"" at the end of the response.

        Raise the error of a failed response, and ConnectionError for invalid or truncated compressed data.
        """
        data = b""
        while not data:
            while not self._pieces:
                if self._is_complete:
                    if self._has_compressed_data and not self._decompressor.eof:
                        raise ConnectionError("the compressed response is truncated")
                    return b""
                if self._error is not None:
                    raise copy(self._error)
                self._waiter = self._loop.create_future()
                await self._waiter
            data = b"".join(self._pieces)  # one piece is not copied
            self._pieces.clear()
            self._size = 0
            if self._decompressor is not None:
                data = self._decompress(data)
            if self._is_reading_paused:
                self._resume_reading()
        return data

    def _resume_reading(self) -> None:
        """Resume reading if the buffer, which was full, is empty."""
        if not self._pieces and self._transport is not None:
            self._is_reading_paused = False
            self._transport.resume_reading()

    def _decompress(self, data: bytes) -> bytes:
        """Return decompressed data of bounded size. The remaining compressed bytes wait in `_pieces`.

        The input is taken in slices, because the end of a compressed member copies the rest of its slice.
        """
        self._has_compressed_data = True
        pieces: list[bytes] = []
        size = 0
        for start in range(0, len(data), _SLICE):
            part = data[start : start + _SLICE]
            while part:
                if size >= _MAX_BUFFERED:
                    remaining = part + data[start + _SLICE :]
                    self._pieces.append(remaining)
                    self._size = len(remaining)
                    return b"".join(pieces)
                piece, part = self._decompress_part(part, _MAX_BUFFERED - size)
                pieces.append(piece)
                size += len(piece)
        return b"".join(pieces)

    def _decompress_part(self, part: bytes, limit: int) -> tuple[bytes, bytes]:
        """Decompress at most `limit` bytes of one member. Return them, and the bytes that are still compressed.

        Raise ConnectionError for invalid data; then the connection is not reused.
        """
        decompressor = self._decompressor
        try:
            piece = decompressor.decompress(part, limit)
        except zlib.error:
            self._keeps_alive = False
            raise ConnectionError("the response does not match its content-encoding") from None
        if decompressor.eof and decompressor.unused_data:  # several compressed members
            self._decompressor = zlib.decompressobj(_CONTENT_CODINGS[self.headers["content-encoding"].lower()])
            return piece, decompressor.unused_data
        return piece, decompressor.unconsumed_tail

    def _closed_error(self) -> Exception:
        if self.is_reused and not self._has_received and self._loop.time() - self._sent_at < _STALE_WINDOW:
            return StaleConnection("the connection was closed")
        return ConnectionError("the connection was closed before the end of the response")

    @staticmethod
    def _wake(waiter: asyncio.Future[None] | None) -> None:
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # callbacks of the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's class does not derive from it

    def data_received(self, data: bytes) -> None:
        """Parse data, and wake the reader. Invalid HTTP, and too many bytes that are not body, fail the response."""
        if self._is_complete:
            self.abort()  # unsolicited data, which must not be read as the next response (response splitting)
            return
        self._has_received = True
        self._overhead += len(data)
        pieces = self._pieces
        known = len(pieces)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._refuse("the server switched to another protocol")
        except HttpParserError as error:
            self._refuse(f"not HTTP: {error}")  # no effect on a complete response
        # a small response that is complete needs no accounts
        if not self._expects_body or self._size + len(data) > _MAX_BUFFERED or not self._is_complete:
            if len(pieces) > known:
                self._count_body(known)
            if self._overhead > _MAX_OVERHEAD and not self._is_complete:
                self._refuse("the head, the trailers or the chunk extensions of the response exceed 64 KiB")
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _count_body(self, known: int) -> None:
        """Count the pieces of the body after the first `known` ones, and pause reading while too many are unread.

        Drop them if the response should have no body.
        """
        if not self._expects_body:
            del self._pieces[known:]
            return
        new_pieces = self._pieces[known:] if known else self._pieces
        size = sum(map(len, new_pieces))
        self._size += size
        self._overhead = max(0, self._overhead - size - _PIECE_OVERHEAD * len(new_pieces))
        if self._size > _MAX_BUFFERED and not self._is_reading_paused and self._transport is not None:
            self._is_reading_paused = True
            self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """Drop the deadline, and end the response: normally if it ends with its connection, else with an error."""
        self._deadlines.drop(self, self._slot)
        ends_at_close = self.has_head and not {"content-length", "transfer-encoding"} & self.headers.keys()
        if ends_at_close and error is None and self._error is None:
            self._is_complete = True
        self.fail(_tls_error(error) if isinstance(error, ssl.SSLError) else self._closed_error())
        self._wake(self._waiter)
        self._wake(self._write_waiter)

    def pause_writing(self) -> None:
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self._wake(self._write_waiter)

    # callbacks of the parser

    def on_message_begin(self) -> None:
        """Begin a response: the first, or the one after an interim response.

        Raise ConnectionError for a response without a request.
        """
        if self._is_complete:
            raise ConnectionError("a response without a request")
        self._fields = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header. A trailer arrives too late to have an effect."""
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """Note the status, the headers and keep-alive, and refuse invalid ones. An interim response is not the head."""
        status = self.status = self._parser.get_status_code()
        if not 200 <= status < 600:
            if status == _SWITCHING_PROTOCOLS:
                self._refuse("the server switched to another protocol")
            elif not 100 <= status < 200:
                self._refuse(f"not HTTP: the status of the response is {status}")
            return
        self.has_head = True
        self._overhead = 0
        fields = self._fields
        headers = self.headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in fields}
        if len(fields) > _MAX_HEADERS:
            self._refuse(f"the response has more than {_MAX_HEADERS} headers")
        if "transfer-encoding" in headers:
            self._check_transfer_coding(headers["transfer-encoding"])
        if "content-encoding" in headers:
            self._begin_decompression(headers["content-encoding"].lower())
        self._keeps_alive = self._parser.should_keep_alive()
        if not self._expects_body:  # the parser does not know that, and would wait for the body
            self._is_complete, self._keeps_alive = True, False

    def _check_transfer_coding(self, coding: str) -> None:
        """Refuse codings that would not be decoded, and any in HTTP/1.0, where it has no meaning (RFC 9112, 6.1)."""
        is_repeated = sum(name.lower() == b"transfer-encoding" for name, _ in self._fields) > 1
        if is_repeated or coding.lower() != "chunked" or self._parser.get_http_version() != "1.1":
            self._refuse("the response has an unsupported transfer coding")

    def _begin_decompression(self, encoding: str) -> None:
        """Decompress the body, or fail: some servers compress although the request asks for identity."""
        if encoding in _CONTENT_CODINGS:
            self._decompressor = zlib.decompressobj(_CONTENT_CODINGS[encoding])
        elif encoding != "identity":
            self.fail(ConnectionError(f"the response has an unsupported content-encoding: {encoding[:40]!r}"))

    def on_message_complete(self) -> None:
        self._is_complete = self.has_head and self._error is None

    def _refuse(self, message: str) -> None:
        self.fail(ConnectionError(message))
        self.abort()


def _tls_error(error: ssl.SSLError) -> ConnectionError:
    """Convert an alert of the server, such as the alert for a missing client certificate."""
    return ConnectionError(f"TLS failed: {(error.reason or 'unknown reason').replace('_', ' ').lower()}")
