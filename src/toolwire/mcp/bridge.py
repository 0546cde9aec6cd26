"""Bridge an MCP server from one transport to the other, message by message: stdio to a URL, HTTP to a process.

The bridge interprets as little as possible: eras, capabilities and results pass through unchanged. It only supplies
the features that one transport has and the other lacks: headers and sessions of HTTP, and separate ids and progress
tokens for several clients that share one process.

    await stdio_to_http(spec)                      on standard input and output, for a client that starts commands
    app = BridgeApp(spec)                          an ASGI app, for clients that connect to URLs
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ..asgi.access import AccessDenied, Guard
from ..asgi.request import DisconnectWatch, find_path, parse_headers, read_request_body
from ..ir.errors import ToolwireError
from ..ir.pointer import Object
from ..net.http.client import HttpTransport
from ..stream.framing import NDJSONDecoder
from ..wire.mcp import decode_tools
from .client.config import ServerSpec
from .client.http import Authorizer, HttpLink
from .client.link import LISTEN
from .client.negotiation import ClientIdentity, NegotiatedProtocol
from .client.stdio import StdioLink
from .protocol.discovery import ServerCard
from .protocol.headers import SESSION, HeaderArguments, find_header_arguments
from .protocol.meta import PROGRESS_TOKEN, PROTOCOL_VERSION
from .protocol.notifications import CANCELLED, PROGRESS
from .protocol.rpc import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    LIMIT,
    Failure,
    Notification,
    RequestId,
    Result,
    RpcError,
    RpcMessage,
    RpcRequest,
    failure_from,
    read,
)
from .server.output import OutputStream, is_full, open_output, reserve_stdout, write_line
from .server.protocol import SendMessage
from .server.reply_writer import ReplyWriter

_log = logging.getLogger("toolwire.mcp")
_MAX_SESSIONS = 64
"""Maximum number of sessions. Each session is a process."""
_GRACE = 5.0  # seconds to write the rest of the output to a client that still reads
# Seconds between two looks at a full output buffer; short beside a message, and long beside a turn of the event loop.
_PAUSE = 0.005


def _make_failure(request: RpcRequest, error: Exception) -> Failure:
    return Failure(request.id, INTERNAL_ERROR, str(error))


class StdioBridge:
    """Forward the messages of one client to a URL. `emit` writes the messages that come back."""

    def __init__(self, spec: ServerSpec, emit: Callable[[RpcMessage], None], login: Authorizer | None = None) -> None:
        self._transport = HttpTransport(resends=False)
        self._link = HttpLink(spec, emit, self._transport, ClientIdentity({}), login)
        self._emit = emit
        self._tasks: dict[RequestId, asyncio.Task[None]] = {}
        self._subscriptions: set[RequestId] = set()
        self._header_arguments: dict[str, HeaderArguments] = {}  # by tool name
        self._greeting: NegotiatedProtocol | None = None

    def receive(self, message: RpcMessage) -> None:
        """Handle a message of the client. Requests run concurrently; a cancellation cancels the task of its request."""
        if isinstance(message, RpcRequest):
            if message.method == LISTEN:
                self._subscriptions.add(message.id)
            self._start(message.id, self._forward_request(message))
        elif isinstance(message, Notification) and message.method == CANCELLED:
            task = self._tasks.get(message.params.get("requestId", ""))
            if task is not None:
                task.cancel()  # the link notifies the server, as its era requires
        else:
            self._start(secrets.token_hex(8), self._forward_message(message))

    def _start(self, number: RequestId, work: Any) -> None:
        task = self._tasks[number] = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._tasks.pop(number, None))

    async def _forward_request(self, request: RpcRequest) -> None:
        """Send a request to the URL and write its answer. A failed connection becomes a JSON-RPC error answer."""
        name = request.params.get("name")
        try:
            header_arguments = (
                self._header_arguments.get(name) if request.method == "tools/call" and type(name) is str else None
            )
            answer: Result | Failure = await self._link.send_request(request, header_arguments)
        except (ToolwireError, OSError) as error:
            answer = _make_failure(request, error)
        if isinstance(answer, Result):
            self._record_negotiation(request, answer.result)
        self._emit(answer)

    def _record_negotiation(self, request: RpcRequest, result: Object) -> None:
        """Remember the state that later requests need: the agreed version, and arguments that are sent as headers."""
        if request.method == "initialize" and type(result.get("protocolVersion")) is str:
            self._greeting = NegotiatedProtocol(result["protocolVersion"], ServerCard())
        for raw in result.get("tools") or () if request.method == "tools/list" else ():
            try:
                (tool,) = decode_tools([raw])
                self._header_arguments[tool.name] = find_header_arguments(tool.input_schema)
            except ToolwireError:
                continue  # the client receives the declaration unchanged and reports the problem

    async def _forward_message(self, message: Notification | Result | Failure) -> None:
        """Send a message without an answer. After `initialized`, also open the stream for messages by the server."""
        try:
            await self._link.send(message)
            if isinstance(message, Notification) and message.method == "notifications/initialized" and self._greeting:
                await self._link.set_protocol(self._greeting, listen=True)
        except (ToolwireError, OSError) as error:
            _log.warning("cannot deliver a message to the server: %s", error)

    async def close(self, *, now: bool = False) -> None:
        """Answer pending requests first, or cancel them if the client is gone (`now`). A subscription has no answer."""
        for number in self._tasks if now else self._subscriptions & self._tasks.keys():
            self._tasks[number].cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self._link.close()
        await self._transport.aclose()


async def stdio_to_http(spec: ServerSpec, login: Authorizer | None = None) -> None:
    """Forward messages between standard input and output and a URL, until the input ends or the output is closed."""
    with reserve_stdout() as output:
        sink, lost = await open_output(output)
        bridge = StdioBridge(spec, partial(write_line, sink), login)
        reader_task = asyncio.create_task(_read_lines(bridge, sink))
        try:
            await asyncio.wait({reader_task, lost}, return_when=asyncio.FIRST_COMPLETED)
            if reader_task.done():
                reader_task.result()  # raises if the input cannot be read
        finally:
            reader_task.cancel()
            await bridge.close(now=lost.done())
            sink.close()
            await asyncio.wait({lost}, timeout=_GRACE)


async def _read_lines(bridge: StdioBridge, sink: OutputStream) -> None:
    """Pass the messages of standard input to the bridge, and pause while the output buffer is full (back-pressure).

    A line that is not a message is answered with an error.
    """
    lines, source = NDJSONDecoder(LIMIT), await _open_standard_input()
    while data := await source.read(65536):
        for line in lines.feed(data):
            try:
                bridge.receive(read(line))
            except RpcError as error:
                write_line(sink, failure_from(error))
        while is_full(sink) and not sink.is_closing():  # noqa: ASYNC110  # transports do not signal a drained buffer
            await asyncio.sleep(_PAUSE)


async def _open_standard_input() -> asyncio.StreamReader:
    """Return a reader for standard input. asyncio cannot poll a regular file, so a file is read at once in a thread."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    try:
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    except ValueError:  # a file
        reader.feed_data(await asyncio.to_thread(sys.stdin.buffer.read))
        reader.feed_eof()
    return reader


class _Process:
    """A process that several requests share.

    Ids and progress tokens are replaced by unique ones on the way in and restored on the way out. Messages that
    belong to no request go to the first listener.
    """

    def __init__(self, spec: ServerSpec) -> None:
        self._link = StdioLink(spec, self._on_message, lambda _: None)
        self._ids = itertools.count(1)
        self._is_open = False
        self._open_lock = asyncio.Lock()
        self._tokens: dict[RequestId, tuple[RequestId, Callable[[RpcMessage], None]]] = {}
        self._running: dict[RequestId, asyncio.Task[Any]] = {}  # by the id of the client
        self.listeners: list[Callable[[RpcMessage], None]] = []
        self.last_used = time.monotonic()

    @property
    def is_gone(self) -> bool:
        return self._link.is_gone

    @property
    def is_in_use(self) -> bool:
        return bool(self.listeners)

    async def send_request(self, request: RpcRequest, emit: Callable[[RpcMessage], None]) -> Result | Failure | None:
        """Start the process if necessary, send a request, and return its answer; None if the client cancelled it.

        Clients choose the same ids, so the process gets a new one. `emit` receives the messages before the answer.
        """
        await self._ensure_open()
        number = next(self._ids)
        renumbered = self._renumber(request, number, emit)
        task = self._running[request.id] = asyncio.ensure_future(self._link.send_request(renumbered))
        self.listeners.append(emit)
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            self._tokens.pop(number, None)
            self._running.pop(request.id, None)
            self.listeners.remove(emit)
            self.last_used = time.monotonic()
        if task.cancelled():
            return None
        answer = task.result()
        if isinstance(answer, Result):
            return Result(request.id, answer.result)
        return Failure(request.id, answer.code, answer.message, answer.data)

    def _renumber(self, request: RpcRequest, number: int, emit: Callable[[RpcMessage], None]) -> RpcRequest:
        """Replace the id and the progress token. `_tokens` keeps the original token and its client's `emit`."""
        meta = request.params.get("_meta")
        if type(meta) is not dict or PROGRESS_TOKEN not in meta:
            return RpcRequest(number, request.method, request.params)
        self._tokens[number] = meta[PROGRESS_TOKEN], emit
        return RpcRequest(number, request.method, {**request.params, "_meta": {**meta, PROGRESS_TOKEN: number}})

    async def send(self, message: Notification | Result | Failure) -> None:
        await self._ensure_open()
        await self._link.send(message)

    def cancel(self, number: RequestId) -> None:
        task = self._running.get(number)
        if task is not None:
            task.cancel()

    def _on_message(self, message: RpcMessage) -> None:
        """Pass progress to its client with the original token, and any other message to the first listener."""
        if isinstance(message, Notification) and message.method == PROGRESS:
            token, emit = self._tokens.get(message.params.get("progressToken", ""), (None, None))
            if emit is not None:
                emit(Notification(PROGRESS, {**message.params, "progressToken": token}))
        elif self.listeners:
            self.listeners[0](message)

    async def _ensure_open(self) -> None:
        async with self._open_lock:
            if not self._is_open:
                await self._link.open()
                self._is_open = True

    async def close(self) -> None:
        await self._link.close()


class BridgeApp:
    """HTTP in front of a command. Stateless requests share one process; a session has one of its own."""

    def __init__(self, spec: ServerSpec, *, path: str = "/mcp", guard: Guard | None = None) -> None:
        self._spec = spec
        self._path = path
        self._guard = guard or Guard()
        self._shared = _Process(spec)
        self._sessions: dict[tuple[str, str], _Process] = {}  # by owner and session id

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._handle_lifespan(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, ReplyWriter(send))

    async def _handle_lifespan(self, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self.close()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    async def close(self) -> None:
        await asyncio.gather(
            self._shared.close(), *(session_process.close() for session_process in self._sessions.values())
        )

    async def _serve(self, scope: Mapping[str, Any], receive: Any, reply: ReplyWriter) -> None:
        """Check path, address and access, then dispatch the request. Every refusal is sent as a JSON-RPC error."""
        try:
            if find_path(scope).rstrip("/") != self._path.rstrip("/"):
                raise AccessDenied(404, f"MCP is served at {self._path}")
            self._guard.check_address(scope.get("server"))
            headers = parse_headers(scope["headers"])
            session = (self._guard.admit(headers), headers.get(SESSION, ""))
            await self._dispatch_method(scope["method"], session, headers, receive, reply)
        except AccessDenied as denied:
            await reply.send_document(
                failure_from(RpcError(INVALID_REQUEST, denied.reason)), denied.status, denied.headers
            )
        except RpcError as error:
            await reply.send_document(failure_from(error), error.status if error.status != 200 else 400)
        finally:
            reply.abandon()

    async def _dispatch_method(
        self, method: str, session: tuple[str, str], headers: Mapping[str, str], receive: Any, reply: ReplyWriter
    ) -> None:
        """Serve POST (a message), DELETE (end a session) or GET (listen). `session` is (owner, session id).

        Raise AccessDenied for another method.
        """
        if method == "POST":
            await self._post(
                read(await read_request_body(headers, receive, LIMIT)), session, DisconnectWatch(receive), reply
            )
        elif method == "DELETE" and session[1]:
            process = await self._find(session)
            del self._sessions[session]
            await process.close()
            await reply.send_empty(200)
        elif method == "GET" and session[1]:
            await DisconnectWatch(receive).run_while_connected(self._listen(await self._find(session), reply))
        else:
            raise AccessDenied(405, "method not allowed; send messages by POST", ((b"allow", b"POST, GET, DELETE"),))

    async def _listen(self, process: _Process, reply: ReplyWriter) -> None:
        process.listeners.insert(0, reply.emit)
        try:
            await reply.keep_alive()
        finally:
            process.listeners.remove(reply.emit)

    async def _post(
        self, message: RpcMessage, session: tuple[str, str], watch: DisconnectWatch, reply: ReplyWriter
    ) -> None:
        """Route a message: to a new session, to the shared process (stateless), or to the process of its session."""
        if isinstance(message, RpcRequest) and message.method == "initialize" and not session[1]:
            await self._open_session(message, session[0], watch, reply)
            return
        stateless = isinstance(message, (RpcRequest, Notification)) and _has_version(message)
        process = await (self._live_process() if stateless else self._find(session))
        if not isinstance(message, RpcRequest):
            await self._forward_message(process, message)
            await reply.send_empty(202)
            return
        answer = await self._answer(process, message, watch if stateless else None, reply.emit)
        await (reply.end() if answer is None else reply.finish(SendMessage(answer)))

    async def _forward_message(self, process: _Process, message: Notification | Result | Failure) -> None:
        if not isinstance(message, Notification) or message.method != CANCELLED:
            await process.send(message)
        elif process is not self._shared:  # ids in the shared process are not unique; there a disconnect cancels
            process.cancel(message.params.get("requestId", ""))

    async def _open_session(self, request: RpcRequest, owner: str, watch: DisconnectWatch, reply: ReplyWriter) -> None:
        """Start a process for a new session. Close it again unless `initialize` succeeds."""
        await self._evict_idle_sessions()
        session = (owner, secrets.token_urlsafe(24))
        process = self._sessions[session] = _Process(self._spec)
        answer: Result | Failure | None = None
        try:
            async with asyncio.timeout(self._spec.timeout):
                answer = await self._answer(process, request, watch, lambda _: None)
        except TimeoutError:
            reason = f"{self._spec.name} did not answer initialize within {self._spec.timeout:g} seconds"
            answer = Failure(request.id, INTERNAL_ERROR, reason)
        finally:
            if not isinstance(answer, Result):
                del self._sessions[session]
                await process.close()
        if answer is not None:
            await reply.send_document(
                answer, 200, ((SESSION.encode(), session[1].encode()),) if session in self._sessions else ()
            )

    async def _evict_idle_sessions(self) -> None:
        """Make room for a session: close idle ones, or ones whose process has exited, the least recently used first.

        AccessDenied (503) if all are in use.
        """
        idle = sorted(
            (
                key
                for key, session_process in self._sessions.items()
                if session_process.is_gone or not session_process.is_in_use
            ),
            key=lambda key: self._sessions[key].last_used,
        )
        if len(self._sessions) >= _MAX_SESSIONS and not idle:
            raise AccessDenied(503, f"all {_MAX_SESSIONS} sessions are in use; try again later")
        surplus = [self._sessions.pop(key) for key in idle[: max(0, len(self._sessions) + 1 - _MAX_SESSIONS)]]
        await asyncio.gather(*(session_process.close() for session_process in surplus))

    async def _answer(
        self, process: _Process, request: RpcRequest, watch: DisconnectWatch | None, emit: Callable[[RpcMessage], None]
    ) -> Result | Failure | None:
        """Return the answer of the process, an error of its own if that failed, or None if the request was cancelled.

        With `watch`, as in the stateless era, a disconnect of the client cancels the request.
        """
        pending_answer = process.send_request(request, emit)
        try:
            answer: Result | Failure | None = await (
                pending_answer if watch is None else watch.run_while_connected(pending_answer)
            )
        except ToolwireError as error:
            return _make_failure(request, error)
        return answer

    async def _live_process(self) -> _Process:
        """Return the shared process. Replace it if it has exited."""
        exited = self._shared
        if exited.is_gone:
            self._shared = _Process(self._spec)
            await exited.close()
        return self._shared

    async def _find(self, session: tuple[str, str]) -> _Process:
        """Return the process of a session. Raise RpcError (404) if the session is unknown or its process has exited."""
        process = self._sessions.get(session)
        if process is not None and process.is_gone:
            del self._sessions[session]
            await process.close()
            process = None
        if process is None:
            raise RpcError(INVALID_REQUEST, "session not found; send initialize again", status=404)
        return process


def _has_version(message: RpcRequest | Notification) -> bool:
    meta = message.params.get("_meta")
    return type(meta) is dict and PROTOCOL_VERSION in meta
