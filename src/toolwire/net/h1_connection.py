"""One HTTP/1.1 connection: it writes a request and reads the response as a stream, with back-pressure."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any, cast

__all__ = ["H1Connection", "StaleConnection"]

_MAX_BUFFERED = 256 * 1024  # bytes that have not been read yet
_MAX_HEAD = 64 * 1024
_STALE_WINDOW = 0.1  # seconds
_CONTENT_CODINGS = {"gzip": 31, "x-gzip": 31, "deflate": 15}  # zlib's wbits


class StaleConnection(ConnectionError):
    """A reused connection that was closed immediately, before the server could have processed the request."""


class H1Connection(asyncio.Protocol):
    """A connection that is also the reply: `status`, `headers`, `read`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        from httptools import HttpParserError, HttpResponseParser

        self.is_reused = False
        self.status = 0
        self.headers: dict[str, str] = {}
        self._loop = loop
        self._new_parser: Any = HttpResponseParser
        self._parser_error: Any = HttpParserError
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None  # the reader that waits for data
        self._sent_at = 0.0  # time of the last write
        self._deadline: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._check_at = 0.0  # time of the timer
        self._reset()

    def _reset(self) -> None:
        """Prepare for the next request on this connection."""
        self._parser = self._new_parser(self)
        self._pieces: list[bytes] = []  # unread body, before decompression
        self._size = 0  # bytes in `_pieces`
        self._head_size = 0  # bytes of a head or of trailers since the last body bytes, complete lines or not
        self._has_head = False
        self._is_complete = False
        self._keeps_alive = False  # the server keeps the connection open
        self._has_received = False  # any bytes for this request
        self._is_paused = False
        self._error: Exception | None = None
        self._decompressor: Any = None
        self._has_compressed_data = False

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_reusable(self) -> bool:
        return self.is_open and self._is_complete and self._keeps_alive and self._error is None and not self._pieces

    def write(self, data: bytes) -> None:
        if self._is_complete:
            self._reset()
        self._sent_at = self._loop.time()
        if self._transport is not None:
            self._transport.write(data)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def set_deadline(self, deadline: float | None) -> None:
        """Set the deadline of the response. The timer of an earlier deadline is reused: it checks, and waits on."""
        self._deadline = deadline
        if deadline is not None and (self._timer is None or self._check_at > deadline):
            self._schedule_check(deadline)

    def _schedule_check(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._check_at = deadline
        self._timer = self._loop.call_at(deadline, self._check_deadline)

    def _check_deadline(self) -> None:
        """Fail at the deadline. The timer may have been set for an earlier deadline, and then waits on."""
        self._timer = None
        if self._deadline is None:
            return
        if self._deadline > self._loop.time():
            self._schedule_check(self._deadline)
        else:
            self._fail(TimeoutError("the deadline passed"))

    async def read_head(self) -> None:
        """Wait for the head of the response."""
        while not self._has_head:
            self._raise_error()
            await self._wait_for_data()
        if self._error is not None:
            raise self._error

    async def read(self) -> bytes:
        """Return the bytes that have arrived since the last read; b"" at the end."""
        data = b""
        while not data:
            while not self._pieces:
                if self._is_complete:
                    if self._has_compressed_data and not self._decompressor.eof:
                        raise ConnectionError("the compressed response is truncated")
                    return b""
                self._raise_error()
                await self._wait_for_data()
            data = self._take_buffered()
        return data

    def _take_buffered(self) -> bytes:
        """Return the buffered bytes, decompressed, and resume reading if the buffer was full."""
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        if self._decompressor is not None:
            data = self._decompress(data)
        if self._is_paused and not self._pieces and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
        return data

    def _decompress(self, data: bytes) -> bytes:
        """Decompress a chunk of bounded size; the remaining compressed bytes wait."""
        self._has_compressed_data = True
        try:
            piece: bytes = self._decompressor.decompress(data, _MAX_BUFFERED)
        except zlib.error:
            raise ConnectionError("the response does not match its content-encoding") from None
        remaining: bytes = self._decompressor.unconsumed_tail
        if self._decompressor.eof and self._decompressor.unused_data:  # several compressed members
            remaining = self._decompressor.unused_data
            self._decompressor = zlib.decompressobj(_CONTENT_CODINGS[self.headers["content-encoding"].lower()])
        if remaining:
            self._pieces.append(remaining)
            self._size = len(remaining)
        return piece

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error
        if not self.is_open:
            raise self._closed_error()

    def _closed_error(self) -> Exception:
        if self.is_reused and not self._has_received and self._loop.time() - self._sent_at < _STALE_WINDOW:
            return StaleConnection("the connection was closed")
        return ConnectionError("the connection was closed before the end of the response")

    async def _wait_for_data(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake_reader(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: Exception) -> None:
        if self._error is None and not self._is_complete:
            self._error = error
            self._wake_reader()

    # callbacks of the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's class does not derive from it

    def data_received(self, data: bytes) -> None:
        """Parse data. Invalid HTTP and a head that is too large fail the response and close the connection."""
        if self._is_complete:
            self.abort()  # unsolicited data, which must not be read as the next response
            return
        self._has_received = True
        self._head_size += len(data)
        try:
            self._parser.feed_data(data)
        except self._parser_error as error:
            self._fail(ConnectionError(f"not HTTP: {error}"))  # no effect on a complete response
            self.abort()
        if self._head_size > _MAX_HEAD and not self._is_complete:
            self._fail(ConnectionError("the head of the response exceeds 64 KiB"))
            self.abort()
        self._wake_reader()

    def connection_lost(self, error: Exception | None) -> None:
        """End the response: normally if it has no length and ends with its connection, else with an error."""
        if self._timer is not None:
            self._timer.cancel()
        ends_at_close = self._has_head and not {"content-length", "transfer-encoding"} & self.headers.keys()
        if ends_at_close and error is None:
            self._is_complete = True  # a response that ends with its connection
        self._fail(self._closed_error())
        self._wake_reader()

    # callbacks of the parser

    def on_message_begin(self) -> None:
        if self._is_complete:
            raise ConnectionError("a response without a request")
        self.headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Note the status, the content coding and keep-alive. An interim response (1xx) is not the head."""
        self.status = self._parser.get_status_code()
        self._has_head = self.status >= 200  # 1xx is an interim response
        self._head_size = 0 if self._has_head else self._head_size
        encoding = self.headers.get("content-encoding", "identity").lower()
        if encoding in _CONTENT_CODINGS:  # some servers compress although we ask for identity
            self._decompressor = zlib.decompressobj(_CONTENT_CODINGS[encoding])
        elif encoding != "identity":
            self._fail(ConnectionError(f"the response has an unsupported content-encoding: {encoding[:40]}"))
        self._keeps_alive = self._parser.should_keep_alive()

    def on_body(self, data: bytes) -> None:
        """Buffer body bytes, and pause reading while too many are unread."""
        self._pieces.append(data)
        self._size += len(data)
        self._head_size = 0
        if self._size > _MAX_BUFFERED and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        self._is_complete = self._has_head
