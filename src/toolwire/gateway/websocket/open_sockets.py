"""The WebSockets of a gateway, from their handshakes to their ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from ...asgi.admission import Admission
from ...asgi.http_exchange import HttpExchange
from ...asgi.offload import ClientOffload, Offload
from ...asgi.request import AsgiMessage, Receive, Scope, Send
from ..keys import ClientKeys
from ..memory import MemoryBound, MemoryReservation
from ..request.routes import INGRESSES, AnswerRequest, Route
from .connection import ResponsesSocket

SWITCHED = 101
"""The status of a handshake that is accepted."""
_PATHS = ("/v1/responses", "/responses")
_CONNECT = Route("connect", INGRESSES["openai_responses"])
_REVOKED = (1008, "the key was revoked")


class Handshake:
    """The handshake as a request over HTTP, whose answer 101 accepts it. `is_accepted` is set then."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.is_accepted = False
        self.subprotocol: str | None = None  # of the ones that the client offers
        self._can_refuse = "websocket.http.response" in (scope.get("extensions") or {})
        self._send = send

    async def send(self, message: AsgiMessage) -> None:
        """Accept or refuse the handshake. A server may let the application choose the status of a refusal, or answer 403."""
        kind, is_start = message["type"], message["type"] == "http.response.start"
        if self.is_accepted:
            return
        if is_start and message["status"] == SWITCHED:
            self.is_accepted = True
            accept = {"type": "websocket.accept", "headers": message["headers"]}
            await self._send(accept if self.subprotocol is None else {**accept, "subprotocol": self.subprotocol})
        elif self._can_refuse:
            await self._send({**message, "type": f"websocket.{kind}"})
        elif is_start:
            await self._send({"type": "websocket.close"})


class OpenSocket(Protocol):
    """A WebSocket that is accepted."""

    def close(self, code: int, reason: str) -> None: ...

    def drain(self) -> None: ...


class OpenSockets:
    """The WebSockets of a gateway."""

    def __init__(self, answer: AnswerRequest, admission: Admission, memory: MemoryBound, offload: Offload) -> None:
        self._answer = answer
        self._admission = admission
        self._memory = memory
        self._offload = offload
        self._sockets: dict[OpenSocket, HttpExchange] = {}  # with their handshakes
        self._is_draining = False

    async def serve(self, scope: Scope, receive: Receive, send: Send, keys: ClientKeys, max_bytes: int) -> None:
        """Answer a handshake by the handler of requests, and serve its connection until the end.

        `max_bytes`: of kept responses, and of the body of a request.
        """
        await receive()
        handshake = Handshake(scope, send)
        exchange = HttpExchange({**scope, "method": "GET"}, receive, handshake.send)
        await self._answer(exchange, scope, _CONNECT if exchange.path in _PATHS else None)
        if not handshake.is_accepted:
            return
        caller = keys.identify_or_none(exchange.headers, exchange.query)
        client = "" if caller is None else caller.name
        socket = ResponsesSocket(
            scope,
            receive,
            send,
            self._answer,
            self._admission,
            MemoryReservation(self._memory, client),
            ClientOffload(self._offload, client),
            max_bytes,
        )
        with self.keep(socket, exchange):
            await socket.serve()

    @contextmanager
    def keep(self, socket: OpenSocket, handshake: HttpExchange) -> Iterator[None]:
        """Close a socket when its key is revoked, and drain it when the gateway stops."""
        self._sockets[socket] = handshake
        try:
            if self._is_draining:
                socket.drain()
            yield
        finally:
            del self._sockets[socket]

    def close_revoked(self, keys: ClientKeys) -> None:
        """Close the connections whose key is none of `keys`."""
        for socket, handshake in self._sockets.items():
            if keys.identify_or_none(handshake.headers, handshake.query) is None:
                socket.close(*_REVOKED)

    def drain(self) -> None:
        """Close all connections after the responses in progress, because the gateway stops."""
        self._is_draining = True
        for socket in self._sockets:
            socket.drain()
