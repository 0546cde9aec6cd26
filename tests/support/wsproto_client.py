"""A WebSocket client with wsproto, which is not the library of our server: it judges the server's frames."""

from __future__ import annotations

import json
import socket
from collections import deque
from typing import Any

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    CloseConnection,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)


class SocketClosed(Exception):
    """The server has closed the connection, with this code."""

    def __init__(self, code: int, reason: str | None) -> None:
        super().__init__(f"{code} {reason or ''}")
        self.code = code
        self.reason = reason


class Refused(Exception):
    """The handshake was refused."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"{status} {body[:300]!r}")
        self.status = status
        self.body = body


class WebSocketClient:
    """A connection, as a context. Its constructor raises Refused."""

    def __init__(self, address: Any, path: str = "/v1/responses", headers: dict[str, str] | None = None) -> None:
        self._socket = socket.create_connection(address)
        self._socket.settimeout(60)
        self._frames = WSConnection(ConnectionType.CLIENT)
        self._events: deque[Any] = deque()
        self._text = ""
        fields = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        self._socket.sendall(self._frames.send(Request("localhost", path, extra_headers=fields)))
        event = self._next()
        if isinstance(event, AcceptConnection):
            assert not event.extensions
            return
        assert isinstance(event, RejectConnection)
        body = b""
        while event.has_body if isinstance(event, RejectConnection) else not event.body_finished:
            event = self._next()
            assert isinstance(event, RejectData)
            body += bytes(event.data)
        self._socket.close()
        status = event.status_code if isinstance(event, RejectConnection) else self._status
        raise Refused(status, body)

    def __enter__(self) -> WebSocketClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _next(self) -> Any:
        while not self._events:
            data = self._socket.recv(65536)
            self._frames.receive_data(data or None)
            for event in self._frames.events():
                if isinstance(event, Ping):
                    self._socket.sendall(self._frames.send(event.response()))
                    continue
                if isinstance(event, RejectConnection):
                    self._status = event.status_code
                self._events.append(event)
        return self._events.popleft()

    def send(self, document: Any) -> None:
        """Send a document as JSON, or a text as it is."""
        text = document if isinstance(document, str) else json.dumps(document)
        self._socket.sendall(self._frames.send(TextMessage(text)))

    def receive(self) -> Any:
        """Return the next message, which is JSON. Raise SocketClosed at the end."""
        while True:
            event = self._next()
            if isinstance(event, CloseConnection):
                if self._frames.state.name == "REMOTE_CLOSING":
                    self._socket.sendall(self._frames.send(event.response()))
                raise SocketClosed(event.code, event.reason)
            assert isinstance(event, TextMessage), event
            self._text += event.data
            if event.message_finished:
                text, self._text = self._text, ""
                return json.loads(text)

    def receive_response(self, stream_id: str | None = None) -> list[Any]:
        """Return the events of a lane up to the end of a response; events of other lanes are an error."""
        events = []
        while not events or events[-1]["type"] not in ENDS:
            events.append(self.receive())
            assert events[-1].get("stream_id") == stream_id
        return events

    def close(self, code: int = 1000) -> int:
        """Close the connection, and return the code of the server's close frame."""
        self._socket.sendall(self._frames.send(CloseConnection(code)))
        while True:
            try:
                self.receive()
            except SocketClosed as closed:
                return closed.code


ENDS = ("response.completed", "response.failed", "response.incomplete", "error")
