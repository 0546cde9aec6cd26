"""An HTTP exchange with a client over ASGI: read the request within limits, write the answer, watch the connection.

Steps that need not wait are synchronous, if the server offers a `DirectExchange`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from io import BytesIO
from typing import TypeAlias
from urllib.parse import parse_qsl

from ..ir.errors import ToolwireError
from .interruption import Interruption
from .request import AsgiMessage, Receive, Scope, Send, find_path

# Synchronous access to the HTTP exchange of a server, for steps that need not wait.
#
# ASGI needs a coroutine and a dictionary for every message. Most requests have arrived when the application starts,
# and most answers fit into the socket's buffer. A server passes the methods of its exchange as `receive` and `send`,
# so an application that is called without middleware finds the exchange there.


class DirectExchange:
    """The server's side of an exchange. A method that would have to wait does nothing, and reports that."""

    on_disconnect: Callable[[], object] | None = None  # called at a disconnect before the answer is complete

    def take_whole_body(self) -> bytes | None:
        """Return the body if all of it has arrived and none of it was received yet."""
        raise NotImplementedError

    def try_respond(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> bool:
        """Write a whole answer with its content-length. Return False if it has to be sent as messages."""
        raise NotImplementedError

    def try_start(self, status: int, headers: list[tuple[bytes, bytes]]) -> bool:
        """Write the head of a stream. Return False if it has to be sent as a message."""
        raise NotImplementedError

    def try_write(self, data: bytes) -> bool:
        """Write a piece of a stream that has begun. Return False if it has to be sent as a message."""
        raise NotImplementedError

    def try_end(self) -> bool:
        """Write the end of a stream. Return False if it has to be sent as a message."""
        raise NotImplementedError

    def watch(self, on_disconnect: Callable[[], object]) -> None:
        """Call a function when the client disconnects before the answer is complete, also if it has done so already."""
        raise NotImplementedError


def find_direct_exchange(receive: Receive, send: Send) -> DirectExchange | None:
    """Return the exchange whose methods these are, or None if middleware or another server is in between."""
    exchange = getattr(send, "__self__", None)
    is_direct = isinstance(exchange, DirectExchange) and getattr(receive, "__self__", None) is exchange
    return exchange if is_direct else None


# A client that disconnects interrupts the task that serves it, so that the upstream connection is released at once.


HeaderPairs: TypeAlias = list[tuple[bytes, bytes]]

_WATCH_DELAY = 0.02  # seconds; answers without a model are faster, and the task would cost more than they do
_PIECE = 64 * 1024  # bytes written at once; the server then waits for a slow client


def _no_reservation(size: int) -> None:
    """Reserve nothing: the memory of this request is not counted."""


class BodyTooLarge(ToolwireError):
    """The body exceeds the limit."""

    default_status = 413


class BodyTimeout(ToolwireError):
    """The body did not arrive in time."""

    default_status = 408


class ClientGone(Exception):
    """The client closed the connection before its answer was complete."""


class HttpExchange:
    """A request, and the methods to answer it. `interruption` ends the task that serves it."""

    status = 0  # of the answer; 0 before it starts
    started = False  # the head of the answer was sent
    ended = False  # the whole answer was sent
    disconnected = False  # the client closed the connection
    _changed_pieces: AsyncIterator[bytes] | None = None  # of a body that is changed while it is read
    _deadline = 0.0  # of the next piece of it
    _is_cut = False  # a write of several pieces did not end
    _watch: asyncio.TimerHandle | asyncio.Task[None] | None = None  # the delay before it, or the task

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.root_path: str = scope.get("root_path") or ""  # the prefix at which the application is mounted
        self.path: str = find_path(scope) if self.root_path else scope["path"]
        query = scope["query_string"]
        self.query = dict(parse_qsl(query.decode("latin-1"))) if query else {}
        self.headers = headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        length = headers.get("content-length", "")
        self.declared_length = int(length) if length.isdecimal() else 0  # of the body, in its header
        self.answer_headers: HeaderPairs = []  # added to the head of the answer, or of an error
        self.interruption = Interruption()
        self._receive = receive
        self._send = send
        self._direct = find_direct_exchange(receive, send)

    def take_body(self) -> bytes | None:
        """Return the whole body if it has arrived, or None if it must be read with `read_body`."""
        return None if self._direct is None else self._direct.take_whole_body()

    async def read_body(self, limit: int, seconds: float, reserve: Callable[[int], None] = _no_reservation) -> bytes:
        """Read the whole body. `reserve` is called with the size of every part, and may raise an error.

        Raise BodyTooLarge above `limit` bytes, BodyTimeout after `seconds`, and ClientGone at a disconnect.
        """
        if self.declared_length > limit:
            raise BodyTooLarge(f"the body has {self.declared_length} bytes; the limit is {limit}")
        body, has_more = self.take_body() if self._changed_pieces is None else None, False
        if body is None:
            deadline = asyncio.get_running_loop().time() + seconds
            body, has_more = await self.read_piece(seconds)
            seconds = deadline - asyncio.get_running_loop().time()
        reserve(len(body))
        if has_more:
            return await self.read_remaining_body(body, limit, seconds, reserve)
        if len(body) > limit:
            raise BodyTooLarge(f"the body has more than {limit} bytes")
        return body

    async def read_remaining_body(
        self, first: bytes, limit: int, seconds: float, reserve: Callable[[int], None]
    ) -> bytes:
        """Read the rest of a body whose `first` piece has arrived, and return all of it. Raise as `read_body` does.

        `seconds` limits all pieces together. One growing buffer fragments the memory less than a list of pieces.
        """
        buffer, size = BytesIO(), len(first)
        buffer.write(first)
        deadline = asyncio.get_running_loop().time() + seconds
        has_more = True
        while has_more:
            piece, has_more = await self.read_piece(deadline - asyncio.get_running_loop().time())
            size += len(piece)
            if size > limit:
                raise BodyTooLarge(f"the body has more than {limit} bytes")
            reserve(len(piece))
            buffer.write(piece)
        return buffer.getvalue()

    async def read_piece(self, seconds: float) -> tuple[bytes, bool]:
        """Return the next piece of the body, and whether more will follow.

        Raise BodyTimeout after `seconds`, also if a changed piece needs many received ones, and ClientGone at a disconnect.
        """
        if self._changed_pieces is None:
            return await self._read_raw_piece(seconds)
        self._deadline = asyncio.get_running_loop().time() + seconds
        async for piece in self._changed_pieces:
            return piece, True
        return b"", False

    def change_body(self, change: Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]]) -> None:
        """Change the body while it is read, such as decompress it. Its length is then not known before."""
        self.declared_length = 0
        self.headers.pop("content-length", None)
        self.headers["transfer-encoding"] = "chunked"
        self._changed_pieces = change(self._changed_pieces or self._raw_pieces())

    async def _raw_pieces(self) -> AsyncIterator[bytes]:
        clock, has_more = asyncio.get_running_loop().time, True
        while has_more:
            piece, has_more = await self._read_raw_piece(self._deadline - clock())
            if piece:
                yield piece
            await asyncio.sleep(0)  # other requests run between two pieces, also if they are not changed into any

    async def _read_raw_piece(self, seconds: float) -> tuple[bytes, bool]:
        message = await self._receive_within(seconds)
        if message["type"] == "http.disconnect":
            self.disconnected = True
            raise ClientGone
        return message.get("body", b""), message.get("more_body", False)

    async def _receive_within(self, seconds: float) -> AsgiMessage:
        """Wait for the next message, in the task of the request or in another one. Raise BodyTimeout after `seconds`."""
        try:
            if seconds <= 0:
                raise TimeoutError  # `timeout` does not end a step that need not wait
            async with asyncio.timeout(seconds):
                return await self._receive()
        except TimeoutError:
            raise BodyTimeout("the body did not arrive in time") from None

    def bounded_receive(self, seconds: float, reserve: Callable[[int], None] = _no_reservation) -> Receive:
        """Return `receive` for a mounted app; a body that is incomplete at the deadline counts as a disconnect.

        `reserve` is called with the size of every part, and may raise an error.
        """
        is_complete = False
        deadline = asyncio.get_running_loop().time() + seconds

        async def receive() -> AsgiMessage:
            """Receive a message, until the deadline while the body is incomplete. Reserve its size, note a disconnect."""
            nonlocal is_complete
            if is_complete:
                return await self._receive()
            try:
                message = await self._receive_within(deadline - asyncio.get_running_loop().time())
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
        """Interrupt the running task if the client disconnects. It may be called repeatedly.

        A task that receives messages starts after a delay, because most answers are faster.
        """
        self.interruption.attach()
        if self._direct is not None:
            if self._direct.on_disconnect is None:
                self._direct.watch(self._lose_client)
        elif self._watch is None:
            self._watch = asyncio.get_running_loop().call_later(_WATCH_DELAY, self._start_watching)

    def _start_watching(self) -> None:
        self._watch = asyncio.ensure_future(self._wait_for_disconnect())

    async def _wait_for_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._lose_client()

    def _lose_client(self) -> None:
        """Interrupt the task, because the client has disconnected."""
        if self.ended:
            return  # a server also reports a disconnect after the whole answer was sent
        self.disconnected = True
        self.interruption.interrupt("client_gone")

    def unwatch(self) -> None:
        """Stop watching the connection. It may be called repeatedly."""
        if self._direct is not None:
            self._direct.on_disconnect = None
        elif self._watch is not None:
            self._watch.cancel()
            self._watch = None

    async def respond(self, status: int, headers: HeaderPairs, body: bytes) -> None:
        """Write a whole answer, with `answer_headers` in its head and without its body for HEAD."""
        if self.answer_headers:
            headers, self.answer_headers = [*headers, *self.answer_headers], []
        if self._direct is not None and len(body) <= _PIECE and self._direct.try_respond(status, headers, body):
            self.started = self.ended = True
            self.status = status
            return
        await self.start(status, [*headers, (b"content-length", b"%d" % len(body))])
        if self.method == "HEAD":
            body = b""
        elif len(body) > _PIECE:
            await self.write(body)
            body = b""
        await self._send({"type": "http.response.body", "body": body})
        self.ended = True

    async def start(self, status: int, headers: HeaderPairs) -> None:
        """Write the head of an answer; `write` and `end` write the rest."""
        if self.answer_headers:
            headers = [*headers, *self.answer_headers]
        if self._direct is None or not self._direct.try_start(status, headers):
            await self._send({"type": "http.response.start", "status": status, "headers": headers})
        self.started = True  # not earlier: a task cancelled while it waits may still send another answer
        self.status = status

    def try_write(self, data: bytes) -> bool:
        """Write a small piece at once; return False if `write` has to wait for the client or to split it."""
        direct = self._direct
        return direct is not None and len(data) <= _PIECE and not self._is_cut and direct.try_write(data)

    async def write(self, data: bytes) -> None:
        """Write data in pieces: the server waits before a piece while the client has not read the previous ones.

        Nothing more is written after a write that was cancelled between two pieces.
        """
        if self._is_cut or self.try_write(data):
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
        if self._direct is None or not self._direct.try_end():
            await self._send({"type": "http.response.body", "body": b""})
        self.ended = True


class InFlight:
    """A count of in-flight requests."""

    __slots__ = ("_count", "_idle")

    def __init__(self) -> None:
        self._count = 0
        self._idle: asyncio.Event | None = None  # for tasks that wait until there are none

    def begin(self) -> None:
        self._count += 1

    def end(self) -> None:
        self._count -= 1
        if not self._count and self._idle is not None:
            self._idle.set()
            self._idle = None

    async def wait_until_idle(self) -> None:
        """Wait until there are none."""
        if self._count:
            self._idle = self._idle or asyncio.Event()
            await self._idle.wait()


def header_pairs(headers: Mapping[str, str]) -> HeaderPairs:
    """Encode headers as ASGI needs them."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
