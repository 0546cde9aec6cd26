"""One connection to an upstream: HTTP/1.1, parsed by httptools, on the event loop itself.

What goes wrong on the way is a built-in exception, with words that hold no secret: TimeoutError where the time is over,
ConnectionError for everything else. Who reads slowly makes the upstream wait; who leaves closes the connection at once,
whether its answer has begun or not.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from typing import Any, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

__all__ = ["Connection"]

_HEAD_LIMIT = 64 * 1024
_HIGH, _LOW = 256 * 1024, 64 * 1024  # bytes that wait to be read before the upstream has to wait, and until when
_PIECE = 64 * 1024
_ENCODINGS = {"gzip": 31, "x-gzip": 31, "deflate": 15}


class Connection(asyncio.Protocol):
    """An exchange after the other. `ask` begins one, `head` waits for its status and headers, `read` for its body."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.used = False  # for an exchange before this one
        self.heard = False  # a byte of this answer
        self.done = False  # the answer is whole
        self.reusable = False
        self.lost = False
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._parser: HttpResponseParser | None = None
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pieces: deque[bytes] = deque()
        self._waiting = self._head_size = 0
        self._headed = self._paused = self._until_closed = False
        self._inflate: Any = None

    # for the pool

    def ask(self, data: tuple[bytes, bytes], seconds: float) -> None:
        """Sends a request: all of the exchange has so many seconds."""
        self.status, self.headers = 0, {}
        self.heard = self.done = self.reusable = self._headed = self._until_closed = False
        self._head_size = self._waiting = 0
        self._pieces.clear()  # of an answer that nobody read to its end
        self._inflate = None
        self._parser = HttpResponseParser(self)
        self._timer = asyncio.get_running_loop().call_later(seconds, self._expire)
        self._transport.writelines(data)

    def release(self) -> None:
        """The exchange is over; what is not `reusable` is closed."""
        if self._timer is not None:
            self._timer.cancel()
        self.used = True
        self._parser = None
        if not self.reusable:
            self.abort()

    def abort(self) -> None:
        self.reusable = False
        self._transport.abort()

    # for the reader

    async def head(self) -> None:
        while not self._headed:
            await self._news()
        encoding = self.headers.get("content-encoding", "identity").lower()
        if encoding in _ENCODINGS:
            self._inflate = zlib.decompressobj(_ENCODINGS[encoding])
        elif encoding not in ("identity", ""):
            raise ConnectionError("the answer is compressed in a way that nobody asked for")

    async def read(self) -> bytes:
        """The next piece; nothing at the end."""
        while True:
            while not self._pieces:
                if self.done:
                    return b""
                await self._news()
            data = self._pieces.popleft()
            self._waiting -= len(data)
            if self._inflate is not None:
                data = self._inflated(data)
            if self._paused and self._waiting <= _LOW:
                self._paused = False
                self._transport.resume_reading()
            if data:
                return data

    def _inflated(self, data: bytes) -> bytes:
        """One piece of bounded size; what is left waits for the next read."""
        try:
            out: bytes = self._inflate.decompress(data, _PIECE)
        except zlib.error:
            raise ConnectionError("the answer is not compressed as it says") from None
        rest: bytes = self._inflate.unconsumed_tail
        if rest:
            self._pieces.appendleft(rest)
            self._waiting += len(rest)
        return out

    async def _news(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    # for the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.heard = True
        if self._parser is None or self.done:
            self.abort()  # nobody asked
            return
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            self._fail(ConnectionError("the answer is not HTTP"))
            return
        if not self._headed:
            self._count(len(data))
        if self._waiting > _HIGH and not self._paused and not self.done:
            self._paused = True
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost, self.reusable = True, False
        if self._until_closed and exc is None and self._error is None:
            self.done = True
        if not self.done:
            self._fail(ConnectionError("the connection was closed before the answer was whole"))
        self._wake()

    def _expire(self) -> None:
        self._fail(TimeoutError("the answer took too long"))

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        self.abort()
        self._wake()

    def _count(self, size: int) -> None:
        self._head_size += size
        if self._head_size > _HEAD_LIMIT:
            self._fail(ConnectionError("the head of the answer has no end"))

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # for the parser

    def on_message_begin(self) -> None:
        if self.done:
            raise ValueError("an answer to nothing")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status < 200:
            self.headers = {}
            return
        self.status = status
        framed = "content-length" in self.headers or "transfer-encoding" in self.headers
        self._until_closed = not framed and status not in (204, 304)
        self._headed = True
        self._wake()

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)
        self._waiting += len(data)
        self._wake()

    def on_message_complete(self) -> None:
        assert self._parser is not None
        if not self._headed:
            return  # a provisional answer
        self.done = True
        self.reusable = self._parser.should_keep_alive() and not self._until_closed
        self._wake()
