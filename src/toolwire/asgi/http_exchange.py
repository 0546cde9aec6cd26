"""One HTTP exchange with a client over ASGI: read the request within limits, write the answer, watch the connection.

A client that disconnects cancels the task that serves it, so that the upstream connection is released at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from ..ir.errors import ToolwireError
from ..net.deadlines import DeadlineHandle, SharedTimers
from .types import AsgiMessage, Receive, Scope, Send

__all__ = [
    "BodyTimeout",
    "BodyTooLarge",
    "HttpExchange",
    "InFlight",
    "uncancel",
]

_CallLater: TypeAlias = Callable[[float, Callable[[], object]], "DeadlineHandle | asyncio.TimerHandle"]

_WATCH_DELAY = 0.02  # seconds
_PIECE = 64 * 1024  # bytes written at once; the server then waits for a slow client
_TIMERS = SharedTimers()


def _no_reservation(size: int) -> None:
    """Reserve nothing: the memory of this request is not counted."""


class BodyTooLarge(ToolwireError):
    """The body exceeds the limit."""

    default_status = 413


class BodyTimeout(ToolwireError):
    """The body did not arrive in time."""

    default_status = 408


class HttpExchange:
    """A request, and the methods to answer it."""

    __slots__ = (
        "_is_cut",
        "_receive",
        "_send",
        "_task",
        "_timer",
        "_watch",
        "disconnected",
        "ended",
        "headers",
        "method",
        "path",
        "query",
        "started",
        "status",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query = dict(parse_qsl(scope["query_string"].decode("latin-1"))) if scope["query_string"] else {}
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        self.status = 0  # of the answer; 0 before it starts
        self.started = False  # the head of the answer was sent
        self.ended = False  # the whole answer was sent
        self.disconnected = False  # the client closed the connection
        self._is_cut = False  # a write of several pieces did not end
        self._receive = receive
        self._send = send
        self._task: asyncio.Task[Any] | None = None  # the task to cancel at a disconnect
        self._timer: DeadlineHandle | None = None  # the delay before watching starts
        self._watch: asyncio.Task[None] | None = None

    async def read_body(self, limit: int, seconds: float, reserve: Callable[[int], None] = _no_reservation) -> bytes:
        """Read the whole body. `reserve` is called with the size of every part, and may raise an error."""
        declared_length = self.headers.get("content-length", "")
        if declared_length.isdigit() and int(declared_length) > limit:
            raise BodyTooLarge(f"the body has {declared_length} bytes; the limit is {limit}")
        message = await self._receive_within(seconds, _TIMERS.call_later)
        first: bytes = message.get("body", b"")
        reserve(len(first))
        if not message.get("more_body"):
            if len(first) > limit:
                raise BodyTooLarge(f"the body has more than {limit} bytes")
            return first
        return await self._read_remaining_body(first, limit, seconds, reserve)

    async def _read_remaining_body(
        self, first: bytes, limit: int, seconds: float, reserve: Callable[[int], None]
    ) -> bytes:
        """Read the rest of a body that arrives in several messages; `seconds` limits all of them together.

        One growing buffer fragments the memory less than a list of pieces.
        """
        buffer, size = BytesIO(), len(first)
        buffer.write(first)
        deadline = asyncio.get_running_loop().time() + seconds
        has_more = True
        while has_more:
            message = await self._receive_within(deadline - asyncio.get_running_loop().time())
            piece = message.get("body", b"")
            size += len(piece)
            if size > limit:
                raise BodyTooLarge(f"the body has more than {limit} bytes")
            reserve(len(piece))
            buffer.write(piece)
            has_more = message.get("more_body", False)
        return buffer.getvalue()

    async def _receive_within(self, seconds: float, call_later: _CallLater | None = None) -> AsgiMessage:
        message = await self._await_message(seconds, call_later)
        if message["type"] == "http.disconnect":
            self.disconnected = True
            raise asyncio.CancelledError
        return message

    async def _await_message(self, seconds: float, call_later: _CallLater | None = None) -> AsgiMessage:
        """Wait for the next ASGI message.

        Raise BodyTimeout after `seconds`. The timer cancels this task, and the flag distinguishes its
        cancellation from others.
        """
        task = asyncio.current_task()
        assert task is not None
        timed_out = False

        def on_timeout() -> None:
            nonlocal timed_out
            timed_out = True
            task.cancel()

        timer = (call_later or asyncio.get_running_loop().call_later)(seconds, on_timeout)
        try:
            return await self._receive()
        except asyncio.CancelledError:
            if not timed_out:
                raise
            task.uncancel()
            raise BodyTimeout("the body did not arrive in time") from None
        finally:
            timer.cancel()

    def bounded_receive(self, seconds: float, reserve: Callable[[int], None] = _no_reservation) -> Receive:
        """Return `receive` for a mounted app; a body that is incomplete at the deadline counts as a disconnect.

        `reserve` is called with the size of every part, and may raise an error.
        """
        is_complete = False
        deadline = asyncio.get_running_loop().time() + seconds

        async def receive() -> AsgiMessage:
            """Receive a message, with the deadline until the body is complete."""
            nonlocal is_complete
            if is_complete:
                return await self._receive()
            try:
                message = await self._await_message(deadline - asyncio.get_running_loop().time())
            except BodyTimeout:
                return {"type": "http.disconnect"}
            reserve(len(message.get("body", b"")))
            is_complete = not message.get("more_body", False)
            self.disconnected = message["type"] == "http.disconnect"
            return message

        return receive

    async def tracked_send(self, message: AsgiMessage) -> None:
        """Send a message of a mounted app, and note its status."""
        if message["type"] == "http.response.start":
            self.started, self.status = True, message["status"]
        await self._send(message)

    def watch(self) -> None:
        """Cancel the running task if the client disconnects; watch after a delay, because most answers are faster."""
        self._task = asyncio.current_task()
        self._timer = _TIMERS.call_later(_WATCH_DELAY, self._start_watching)

    def _start_watching(self) -> None:
        self._watch = asyncio.ensure_future(self._wait_for_disconnect())

    async def _wait_for_disconnect(self) -> None:
        """Cancel the watched task when the client disconnects before the answer has ended."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self.ended:
            return  # a server also reports a disconnect after the whole answer was sent
        self.disconnected = True
        if self._task is not None:
            self._task.cancel()

    def unwatch(self) -> None:
        """Stop watching the connection. It may be called repeatedly."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    async def respond(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Write a whole answer."""
        await self.start(status, {**headers, "content-length": str(len(body))})
        if self.method == "HEAD":
            body = b""
        elif len(body) > _PIECE:
            await self.write(body)
            body = b""
        await self._send({"type": "http.response.body", "body": body})
        self.ended = True

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Write the head of an answer; `write` and `end` write the rest."""
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})
        self.started = True  # not earlier: a task cancelled while it waits may still send another answer
        self.status = status

    async def write(self, data: bytes) -> None:
        """Write data in pieces: the server waits before a piece while the client has not read the previous ones."""
        if self._is_cut:
            return
        if len(data) <= _PIECE:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
            return
        self._is_cut = True  # until the last piece: a task cancelled in between has sent half of an event
        for start in range(0, len(data), _PIECE):
            await self._send({"type": "http.response.body", "body": data[start : start + _PIECE], "more_body": True})
            await asyncio.sleep(0)
        self._is_cut = False

    async def end(self) -> None:
        """End the answer; without this, the server closes the connection, and the client sees a truncated answer."""
        if self._is_cut:
            return
        await self._send({"type": "http.response.body", "body": b""})
        self.ended = True


class InFlight:
    """A count of in-flight requests. `idle` is set while there are none."""

    __slots__ = ("_count", "idle")

    def __init__(self) -> None:
        self._count = 0
        self.idle = asyncio.Event()
        self.idle.set()

    def begin(self) -> None:
        self._count += 1
        self.idle.clear()

    def end(self) -> None:
        self._count -= 1
        if not self._count:
            self.idle.set()


def uncancel() -> None:
    """Continue the running task after a cancellation that has been handled."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
