"""OpenAI Responses over a WebSocket: `GET /v1/responses` with an upgrade, as Codex and the OpenAI SDK use it.

A client sends `response.create` with the body of `POST /v1/responses`, and gets the events of the stream as text messages.
There is no second implementation of answers: each `response.create` is a request of its own, which the gateway answers as if
it had arrived over HTTP with `"stream": true`, so limits, logs, usage, state and fallbacks are the same. `LaneRequest` is
its exchange: the events of the stream become messages, and a refusal becomes an error event with its status.

    connection ──┬── lane (no stream_id)  one response at a time, in order
                 ├── lane "a"             the same, beside the others; its events have "stream_id": "a"
                 └── …

Only the server and violations of the protocol close a connection. Every mistake in a message is answered with an error
event, after which the connection goes on:

    1000   no request for an hour
    1001   the gateway stops; everything that was received is answered before
    1008   the key was revoked

`previous_response_id` refers to responses that are stored, as over HTTP, and to those of the connection that are stored
nowhere (`"store": false`, as Codex sends): their items are kept here, and sent with the request. Codex sends only new items
with every request, beginning with a response that generates nothing (`"generate": false`), and repeats everything after an
error `previous_response_not_found`. Steering of a running response is refused with its own event.

Sources: openai-python, `lib/responses_websocket/README.md` and `types/responses/responses_client_event.py` (3.51.0); traffic of
Codex 0.169.0.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable
from logging import getLogger
from typing import Any

import msgspec
from msgspec.structs import replace

from ...asgi.admission import Admission
from ...asgi.http_exchange import BodyTooLarge, HeaderPairs, HttpExchange, header_pairs
from ...asgi.offload import ClientOffload
from ...asgi.request import AsgiApp, AsgiMessage, Receive, Scope, Send
from ...ir.errors import ToolwireError
from ...ir.response import Fault, UpstreamError, fault_from
from ...ir.text import to_bytes
from ...stream.framing import SSEDecoder
from ..faults import SHUTDOWN_FAULT, Overloaded, RateLimited
from ..memory import MemoryReservation
from ..request.routes import INGRESSES, WRAPPER, AnswerRequest, Route
from .messages import (
    Continued,
    CreateRequest,
    Fields,
    InvalidMessage,
    KeptResponses,
    decode_fields,
    parse_message,
    read_create,
)

_log = getLogger("toolwire.gateway")
_MAX_ACTIVE = 16  # responses of a connection at a time; as OpenAI's service
_MAX_QUEUED = 16  # further requests of a connection; a client that needs more opens another connection
_COPIES = 2  # of the items of a conversation: `input`, and the body with it
_IDLE = 3600.0  # seconds without a request; OpenAI ends every connection after 60 minutes
_INGRESS = INGRESSES["openai_responses"]
_CREATE, _PREPARE = Route("generate", _INGRESS), Route("prepare", _INGRESS)
_TYPE = re.compile(rb'\s*{\s*"type"\s*:\s*"([^"]*)"')
_TERMINAL_EVENTS = frozenset({b"response.completed", b"response.incomplete"})
# of the handshake, not of its requests: each of them has a body and an id of its own
_HANDSHAKE_HEADERS = frozenset(
    {b"connection", b"upgrade", b"content-length", b"content-type", b"content-encoding", b"x-request-id"}
)
_WEBSOCKET_BETA = b"responses_websockets="
_ERROR_HEADERS = frozenset({b"retry-after", b"x-request-id"})
_STOPPED = (1001, "the gateway is shutting down")
_INCOMPLETE_FAULT = Fault("server", "the answer is incomplete; the gateway's log has the cause", 502)


class TooManyResponses(RateLimited):
    """A connection has too many responses in progress."""

    code = "websocket_stream_limit_reached"


class LaneRequest:
    """A `response.create` as a request over HTTP: its body, and the answer, whose events become messages."""

    __slots__ = ("_body", "_continued", "_decoder", "_error", "_headers", "_socket", "_status", "create", "is_ended")

    def __init__(self, socket: ResponsesSocket, create: CreateRequest, continued: Continued, body: bytes) -> None:
        self.create = create
        self.is_ended = False
        self._socket = socket
        self._continued = continued
        self._body: bytes | None = body
        self._status = 0
        self._headers: HeaderPairs = []
        self._decoder = SSEDecoder()
        self._error = b""  # a refusal, as far as it was written

    async def receive(self) -> AsgiMessage:
        """Receive the body, and after it the end of the connection."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._socket.ended.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: AsgiMessage) -> None:
        """Send the events of a part of the answer, or an error event for a refusal."""
        if message["type"] == "http.response.start":
            self._status, self._headers = message["status"], message["headers"]
            return
        body, is_last = message.get("body", b""), not message.get("more_body", False)
        if self._status == 200:  # a stream
            for name, payload in self._decoder.feed(body):
                if payload.startswith(b"{"):  # some servers end with [DONE]
                    await self._send_event(name or _find_type(payload), payload)
        else:
            self._error += body
            if is_last:
                await self._socket.send_error(self._status, self._headers, self._error, self.create.stream_id)
        self.is_ended = is_last

    async def _send_event(self, name: bytes, payload: bytes) -> None:
        """Send an event. Keep the items of a response that ends, before the client can continue it."""
        if name == b"error":  # flat in a stream, and nested on a WebSocket
            await self._socket.send_error(502, [], b'{"error":%b}' % payload, self.create.stream_id)
            return
        if name in _TERMINAL_EVENTS:
            self._socket.kept.keep(self.create, self._continued, payload)
        await self._socket.send_event(payload, self.create.stream_id)


def _find_type(payload: bytes) -> bytes:
    """Return the type of an event from a server that does not name its events."""
    match = _TYPE.match(payload)
    return b"" if match is None else match[1]


class ResponsesSocket:
    """A connection of a client. `answer` is the gateway's handler of requests.

    `memory` is for the requests that wait and for kept responses. `offload` runs work on large messages in threads.
    `max_bytes` limits the kept responses, and the body of a request with the conversation that it continues.
    """

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        answer: AnswerRequest,
        admission: Admission,
        memory: MemoryReservation,
        offload: ClientOffload,
        max_bytes: int,
    ) -> None:
        self.ended = asyncio.Event()  # nothing can be sent any more
        self._scope = scope
        self._receive = receive
        self._send = send
        self._answer = answer
        self._admission = admission
        self._memory = memory
        self._offload = offload
        self._max_bytes = max_bytes
        self.kept = KeptResponses(memory, max_bytes)
        self._headers = [(name, value) for name, value in scope["headers"] if not _is_own_header(name, value)]
        self._lanes: dict[str | None, deque[CreateRequest]] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # one for each lane
        self._active: set[asyncio.Task[None]] = set()  # those with a response in progress
        self._slots = asyncio.Semaphore(_MAX_ACTIVE)
        self._close_reason: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
        self._is_draining = False
        self._is_stopping = False

    async def serve(self) -> None:
        """Serve the connection until the client or `close` ends it."""
        reader = asyncio.ensure_future(self._read())
        ends: set[asyncio.Future[Any]] = {reader, self._close_reason}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # the server stops: responses in progress end with an error event
            self._is_stopping = True
            for task in self._active:
                task.cancel()
            await self._wait_for_lanes()
            self.close(*_STOPPED)
        finally:
            reader.cancel()
            self.ended.set()
        try:
            await self._wait_for_lanes()
        finally:
            self._memory.release()  # not earlier: each lane frees its requests, and may keep a last response
        if self._close_reason.done():
            code, reason = self._close_reason.result()
            await self._send({"type": "websocket.close", "code": code, "reason": reason})
        else:
            reader.result()

    async def _wait_for_lanes(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)

    def drain(self) -> None:
        """Answer the requests that were received, refuse others, and close the connection, because the gateway stops."""
        self._is_draining = True
        if not self._lanes:
            self.close(*_STOPPED)

    def close(self, code: int, reason: str) -> None:
        """Close the connection. Responses in progress are given up."""
        if not self._close_reason.done():
            self._close_reason.set_result((code, reason))

    async def _read(self) -> None:
        """Receive messages until the connection ends, or is idle for too long."""
        while True:
            try:
                async with asyncio.timeout(_IDLE):
                    message = await self._receive()
            except TimeoutError:
                if self._lanes:
                    continue
                self.close(1000, "no request for an hour")
                return
            if message["type"] == "websocket.disconnect":
                return
            await self._take_message(message.get("text"))

    async def _take_message(self, text: str | None) -> None:
        """Put a request into its lane. Answer a mistake with an error event."""
        stream_id = None
        try:
            kind, fields = await self._offload.run(len(text or ""), parse_message, text)
            if kind == "response.create":
                create = read_create(fields)
                stream_id = create.stream_id
                self._enqueue(create)
            elif kind == "response.steer":
                await self._refuse_steering(fields)
            elif kind != "response.processed":  # an acknowledgement of earlier versions of Codex
                message, hint = f"unknown message type {kind[:100]!r}", "send response.create"
                raise InvalidMessage(message, hint=hint, pointer="/type")
        except ToolwireError as error:
            await self._send_fault(fault_from(error), stream_id)

    def _enqueue(self, create: CreateRequest) -> None:
        """Add a request to its lane. Raise an error if there are too many, or if the gateway stops."""
        if self._is_draining:
            raise UpstreamError(SHUTDOWN_FAULT)
        if sum(map(len, self._lanes.values())) >= _MAX_ACTIVE + _MAX_QUEUED:
            raise TooManyResponses(
                f"{_MAX_ACTIVE + _MAX_QUEUED} responses of this connection are in progress or wait",
                retry_after=1.0,
                hint="wait for the end of a response, or open another connection",
            )
        self._memory.add(create.size)
        queue = self._lanes.get(create.stream_id)
        if queue is not None:
            queue.append(create)
            return
        self._lanes[create.stream_id] = deque([create])
        task = asyncio.ensure_future(self._run_lane(create.stream_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_lane(self, stream_id: str | None) -> None:
        """Answer the requests of a lane in order. The last lane of a connection that drains closes it."""
        queue = self._lanes[stream_id]
        while queue and not self.ended.is_set():
            async with self._slots:
                await self._respond(queue[0])
            self._memory.subtract(queue.popleft().size)
        del self._lanes[stream_id]
        if self._is_draining and not self._lanes:
            self.close(*_STOPPED)

    async def _respond(self, create: CreateRequest) -> None:
        """Answer a request by the gateway's handler."""
        if self._is_stopping:
            await self._send_fault(SHUTDOWN_FAULT, create.stream_id)
            return
        if self._admission.is_excess():
            await self._send_fault(fault_from(Overloaded()), create.stream_id)
            return
        continued = self.kept.find(create.previous_id)
        copied = _COPIES * continued.size
        try:
            if create.size + continued.size > self._max_bytes:
                message = (
                    f"the request has {create.size + continued.size} bytes with the conversation that it continues"
                )
                raise BodyTooLarge(f"{message}; the limit is {self._max_bytes}", hint="begin a shorter conversation")
            self._memory.add(copied)
        except ToolwireError as error:
            await self._send_fault(fault_from(error), create.stream_id)
            return
        try:
            await self._handle(create, continued)
        finally:
            self._memory.subtract(copied)

    async def _handle(self, create: CreateRequest, continued: Continued) -> None:
        """Run the gateway's handler for a request. Memory for the items of its conversation is reserved."""
        task = asyncio.current_task()
        assert task is not None
        body = create.encode(continued)
        # without its items: they may be dropped while the request runs, and their memory is then no longer reserved
        request = LaneRequest(self, create, replace(continued, pieces=()), body)
        scope = {
            **self._scope,
            "type": "http",
            "method": "POST",
            "scheme": "https" if self._scope.get("scheme") == "wss" else "http",
            "headers": [
                *self._headers,
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(body)),
            ],
        }

        async def handle(scope: Scope, receive: Receive, send: Send) -> None:
            exchange = HttpExchange(scope, receive, send)
            await self._answer(exchange, scope, _CREATE if create.generates else _PREPARE)

        wrap: Callable[[AsgiApp], AsgiApp] = self._scope.get(WRAPPER) or (lambda app: app)
        self._active.add(task)
        try:
            await wrap(handle)(scope, request.receive, request.send)
        except Exception:  # noqa: BLE001  # a bug ends only this response
            _log.exception("a response over a WebSocket failed")
        finally:
            self._active.discard(task)
        if not request.is_ended and not self.ended.is_set():
            await self._send_fault(_INCOMPLETE_FAULT, create.stream_id)

    # The messages to the client.

    async def send_event(self, payload: bytes, stream_id: str | None) -> None:
        """Send an event, a JSON object, with the id of its lane."""
        if self.ended.is_set():
            return
        if stream_id is not None:
            payload = b'%b,"stream_id":"%b"}' % (payload.rstrip()[:-1], stream_id.encode())
        try:
            await self._send({"type": "websocket.send", "text": payload.decode()})
        except OSError:  # of a server that reports a lost connection to the sender first
            self.ended.set()

    async def send_error(self, status: int, headers: HeaderPairs, body: bytes, stream_id: str | None) -> None:
        """Send the error in the body of a refusal as an event."""
        error = decode_fields(body).get("error", b"null")
        sent = {name.decode(): value.decode("latin-1") for name, value in headers if name in _ERROR_HEADERS}
        event = b'{"type":"error","status":%d,"error":%b,"headers":%b}' % (status, error, to_bytes(sent))
        await self.send_event(event, stream_id)

    async def _send_fault(self, fault: Fault, stream_id: str | None) -> None:
        status, body, headers = _INGRESS.codec.encode_error(fault)
        await self.send_error(status, header_pairs(headers), to_bytes(body), stream_id)

    async def _refuse_steering(self, fields: Fields) -> None:
        """Return the input of a `response.steer` in its own event: the upstream's answer goes on without it.

        Most wires have no counterpart: it would have to stop the model, and to ask again.
        """
        error = {
            "type": "invalid_request_error",
            "code": "steering_not_supported",
            "message": "the gateway does not support steering: send the input with the next response.create",
        }
        steer = {name: fields[name] for name in ("previous_response_id", "input") if name in fields}
        event = {"type": "response.steer.failed", "sequence_number": 0, "steer": steer, "error": error}
        await self.send_event(msgspec.json.encode(event), None)


def _is_own_header(name: bytes, value: bytes) -> bool:
    """Check whether a header belongs to the handshake, and not to the requests of the connection."""
    is_beta = name == b"openai-beta" and value.startswith(_WEBSOCKET_BETA)
    return name in _HANDSHAKE_HEADERS or name.startswith(b"sec-websocket-") or is_beta
