"""Answers over HTTP: one JSON document, or an event stream."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TypeAlias

from ...asgi.request import Send
from ..protocol.notifications import DISCARDABLE
from ..protocol.rpc import Failure, Notification, RpcMessage, write
from .protocol import SendMessage
from .request_log import RequestRecord

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]

_JSON = (b"content-type", b"application/json")
_EVENTS: Headers = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
_KEEP_ALIVE = 15.0  # seconds; proxies close streams that are silent for a minute (nginx, `proxy_read_timeout`) or less
_MAX_WAITING = 4096  # messages for a client that does not read; then progress and logs are dropped, which MCP allows


class ReplyWriter:
    """The response to one HTTP request. The first message before the answer turns it into an event stream."""

    def __init__(self, send: Send, record: RequestRecord | None = None) -> None:
        self.accepts_stream = True
        self.address = ""  # the client's address
        self.record = record or RequestRecord()
        self.status = 0  # the HTTP status; 0 until it is sent
        self._send = send
        self._queue: deque[bytes] = deque()
        self._has_more = asyncio.Event()  # wakes the writer task
        self._writer_task: asyncio.Task[None] | None = None
        self._is_over = False  # nothing may be queued any more
        self._closed = asyncio.Event()  # ends `keep_alive`

    def emit(self, message: RpcMessage) -> None:
        """Send a message before the answer. Ignored if the client does not accept event streams.

        Progress and log messages are dropped while too many messages are unread.
        """
        if self._is_over or not (self.accepts_stream or self._writer_task):
            return
        if len(self._queue) >= _MAX_WAITING and isinstance(message, Notification) and message.method in DISCARDABLE:
            return
        self._queue.append(b"event: message\ndata: %b\n\n" % write(message))
        self._has_more.set()
        if self._writer_task is None:
            self._writer_task = asyncio.create_task(self._write_events())

    async def _write_events(self) -> None:
        """Send queued events until the stream is over. This is a task, because `emit` cannot wait for the client."""
        self.status = 200
        await self._send({"type": "http.response.start", "status": 200, "headers": list(_EVENTS)})
        while True:
            while self._queue:
                await self._send({"type": "http.response.body", "body": self._queue.popleft(), "more_body": True})
            if self._is_over:
                await self._send({"type": "http.response.body", "body": b""})
                return
            self._has_more.clear()
            await self._has_more.wait()

    async def finish(self, sent: SendMessage) -> None:
        """Send the answer: as a document, or as the last event of the stream."""
        if self._writer_task is None:
            await self.send_document(sent.message, sent.status)
            return
        self.record.add_answer(sent.message)
        self.emit(sent.message)
        await self.end()

    async def end(self) -> None:
        """End the stream without an answer: the request was cancelled, or the stream has no answer."""
        self._is_over = True
        self._has_more.set()
        if self._writer_task is None:
            self._writer_task = asyncio.create_task(self._write_events())
        await self._writer_task

    async def keep_alive(self) -> None:
        """Keep the stream open until it is cancelled or closed, or its client stops reading.

        Comments are sent at intervals, so that proxies and clients do not consider the stream dead.
        """
        try:
            while len(self._queue) < _MAX_WAITING:
                self._queue.append(b":\n\n")
                self._has_more.set()
                if self._writer_task is None:
                    self._writer_task = asyncio.create_task(self._write_events())
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closed.wait(), _KEEP_ALIVE)
                    await self.end()
                    return
        finally:
            self.abandon()

    def close(self) -> None:
        """End `keep_alive`."""
        self._closed.set()

    def abandon(self) -> None:
        """Discard the stream, because the client has stopped reading."""
        self._is_over = True
        if self._writer_task is not None:
            self._writer_task.cancel()

    async def send_document(self, message: Failure | RpcMessage, status: int = 200, headers: Headers = ()) -> None:
        assert not isinstance(message, Notification)
        self.record.add_answer(message)
        await self._send_body(write(message), status, headers)

    async def send_batch(self, body: bytes | None) -> None:
        """Send the answers to a batch, or 202 if none of its messages has an answer."""
        if body is None:
            await self.send_empty(202)
        else:
            await self._send_body(body, 200, ())

    async def _send_body(self, body: bytes, status: int, headers: Headers) -> None:
        self.status = status
        length = (b"content-length", str(len(body)).encode())
        await self._send({"type": "http.response.start", "status": status, "headers": [_JSON, length, *headers]})
        await self._send({"type": "http.response.body", "body": body})

    async def send_empty(self, status: int) -> None:
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
        await self._send({"type": "http.response.body", "body": b""})
