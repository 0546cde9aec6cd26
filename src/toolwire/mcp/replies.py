"""Answers over HTTP: one JSON document, or an event stream."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeAlias

from ..wire.mcp.notices import DISCARDABLE
from ..wire.mcp.rpc import Failure, Notification, RpcMessage, write
from .peer import SendMessage

__all__ = ["AsgiSend", "Headers", "ReplyWriter"]

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]
AsgiSend: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]

_JSON = (b"content-type", b"application/json")
_EVENTS: Headers = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
_KEEP_ALIVE = 15.0
_MOST_WAITING = 4096


class ReplyWriter:
    """The response to one HTTP request. The first message before the answer turns it into an event stream."""

    def __init__(self, send: AsgiSend) -> None:
        self.streams = True
        self._send = send
        self._waiting: deque[bytes] = deque()
        self._more = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self._over = False
        self._closed = asyncio.Event()

    def emit(self, message: RpcMessage) -> None:
        """Send a message before the answer. Ignored if the client does not accept event streams.

        Progress and log messages are dropped while too many messages are unread.
        """
        if self._over or not (self.streams or self._pump):
            return
        if len(self._waiting) >= _MOST_WAITING and isinstance(message, Notification) and message.method in DISCARDABLE:
            return
        self._waiting.append(b"event: message\ndata: %b\n\n" % write(message))
        self._more.set()
        if self._pump is None:
            self._pump = asyncio.create_task(self._pumped())

    async def _pumped(self) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": list(_EVENTS)})
        while True:
            while self._waiting:
                await self._send({"type": "http.response.body", "body": self._waiting.popleft(), "more_body": True})
            if self._over:
                await self._send({"type": "http.response.body", "body": b""})
                return
            self._more.clear()
            await self._more.wait()

    async def finish(self, sent: SendMessage) -> None:
        """Send the answer: as a document, or as the last event of the stream."""
        if self._pump is None:
            await self.alone(sent.message, sent.status)
            return
        self.emit(sent.message)
        await self.end()

    async def end(self) -> None:
        """End the stream without an answer: the request was cancelled, or the stream has no answer."""
        self._over = True
        self._more.set()
        if self._pump is None:
            self._pump = asyncio.create_task(self._pumped())
        await self._pump

    async def keep_alive(self) -> None:
        """Keep the stream open until it is cancelled or closed, or its client stops reading.

        Comments are sent at intervals, so that proxies and clients do not consider the stream dead.
        """
        try:
            while len(self._waiting) < _MOST_WAITING:
                self._waiting.append(b":\n\n")
                self._more.set()
                if self._pump is None:
                    self._pump = asyncio.create_task(self._pumped())
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
        self._over = True
        if self._pump is not None:
            self._pump.cancel()

    async def alone(self, message: Failure | RpcMessage, status: int = 200, headers: Headers = ()) -> None:
        assert not isinstance(message, Notification)
        await self._document(write(message), status, headers)

    async def raw(self, body: bytes | None) -> None:
        """Send the answers to a batch, or 202 if none of its messages has an answer."""
        if body is None:
            await self.empty(202)
        else:
            await self._document(body, 200, ())

    async def _document(self, body: bytes, status: int, headers: Headers) -> None:
        length = (b"content-length", str(len(body)).encode())
        await self._send({"type": "http.response.start", "status": status, "headers": [_JSON, length, *headers]})
        await self._send({"type": "http.response.body", "body": body})

    async def empty(self, status: int) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
        await self._send({"type": "http.response.body", "body": b""})
