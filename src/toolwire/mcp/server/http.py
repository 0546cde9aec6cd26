"""MCP over streamable HTTP, as an ASGI app: both eras at one URL.

    app = HttpApp(server)                        uvicorn.run(app), or mounted in another app

A request that states its version, in `_meta` or in a header, is stateless: it is served on its own, and cancelled
when its client disconnects. `initialize` opens a session (`Mcp-Session-Id`) of the handshake era. An answer without
preceding messages is plain JSON; if other messages come first (progress, logs, questions), the response is an event
stream.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from ...asgi.access import AccessDenied, Guard
from ...asgi.offload import LARGE, Offload
from ...asgi.request import (
    SLOW_CLIENT,
    DisconnectWatch,
    Receive,
    Scope,
    Send,
    find_path,
    parse_headers,
    read_request_body,
    serve_lifespan,
)
from ...stream.strict import count_values
from ...wire.mcp.versions import HANDSHAKE
from ..protocol.headers import SESSION, VERSION, check_headers
from ..protocol.meta import PROTOCOL_VERSION, Meta, read_meta
from ..protocol.rpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    LIMIT,
    Notification,
    RpcError,
    RpcMessage,
    RpcRequest,
    failure_from,
    is_batch,
    read,
)
from .conversation import make_listener, stateless_exchange
from .protocol import OpenSubscription, PeerAction, SendMessage, ServeRequest, serve_stateless
from .reply_writer import Headers, ReplyWriter
from .request_log import RequestRecord
from .server import Server
from .sessions import HttpSession, HttpSessions

__all__ = ["Guard", "HttpApp"]

# Of a message: each value takes 50 bytes or more as an object, so bytes alone do not bound the memory.
_MAX_VALUES = 100_000
_ALLOW: Headers = ((b"allow", b"POST, GET, DELETE"),)


class HttpApp:
    """`path` is the path to serve; None serves every path, for mounting in another app. `guard` controls access.

    `limit` is the maximum size of a message in bytes, `slow_client` the maximum time for sending it in seconds.
    """

    def __init__(
        self,
        server: Server,
        *,
        path: str | None = "/mcp",
        guard: Guard | None = None,
        limit: int = LIMIT,
        slow_client: float = SLOW_CLIENT,
    ) -> None:
        self.server = server
        self._slow_client = slow_client
        self._path = path
        self._guard = guard or Guard()
        self._limit = limit
        self._offload = Offload()
        self._sessions = HttpSessions(server)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await serve_lifespan(self.lifespan(), receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """End all sessions after an application that mounts this one.

        app = Starlette(routes=[Mount("/tools", app=mcp_app)], lifespan=mcp_app.lifespan)
        """
        try:
            yield
        finally:
            await self.close()

    async def close(self) -> None:
        """End all sessions."""
        await self._sessions.close()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check path, address and access, then dispatch the request. Every refusal is sent as a JSON-RPC error."""
        record = RequestRecord(with_arguments=self.server.log_arguments)
        reply = ReplyWriter(send, record)
        reply.address = str((scope.get("client") or ("",))[0])
        try:
            if self._path is not None and find_path(scope).rstrip("/") != self._path.rstrip("/"):
                raise AccessDenied(404, f"MCP is served at {scope.get('root_path') or ''}{self._path}")
            self._guard.check_address(scope.get("server"))
            headers = parse_headers(scope["headers"])
            principal = self._guard.admit(headers)
            if SESSION in headers:
                record.add_session(headers[SESSION])
            await self._dispatch_method(scope["method"], headers, principal, receive, reply)
        except AccessDenied as denied:
            error = RpcError(INVALID_REQUEST, denied.reason)
            await reply.send_document(failure_from(error), denied.status, denied.headers)
        except RpcError as error:
            await reply.send_document(failure_from(error), error.status if error.status != 200 else 400)
        finally:
            reply.abandon()
            if record.is_enabled():
                record.log(f"{scope['method']} {reply.status or 'disconnected'}")

    async def _dispatch_method(
        self, method: str, headers: Mapping[str, str], principal: str, receive: Receive, reply: ReplyWriter
    ) -> None:
        """Serve POST (a message), DELETE (end a session) or GET (the stream of a session).

        Raise AccessDenied for any other request.
        """
        if method == "POST":
            await self._post(headers, principal, receive, reply)
            return
        if method not in ("GET", "DELETE") or SESSION not in headers:
            raise AccessDenied(405, "method not allowed; send messages by POST", _ALLOW)
        session = self._sessions.find(headers[SESSION], principal)
        if method == "DELETE":
            await self._sessions.end(headers[SESSION])
            await reply.send_empty(200)
        else:
            await DisconnectWatch(receive).run_while_connected(session.stream(reply))

    async def _post(self, headers: Mapping[str, str], principal: str, receive: Receive, reply: ReplyWriter) -> None:
        """Check the content type and the accepted types, read the message, and handle it in its era.

        Raise AccessDenied for other types.
        """
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise AccessDenied(415, "content-type must be application/json")
        reply.accepts_stream = _accepts_type(headers.get("accept"), "text/event-stream")
        if not reply.accepts_stream and not _accepts_type(headers.get("accept"), "application/json"):
            raise AccessDenied(406, "accept must allow application/json or text/event-stream")
        body = await read_request_body(headers, receive, self._limit, self._slow_client)
        await self._check_values(body, principal)
        if is_batch(body) and SESSION in headers:
            await reply.send_batch(await self._sessions.find(headers[SESSION], principal).handle(body))
            return
        message = await self._offload.run(principal, len(body), read, body, limit=self._limit)
        reply.record.add_message(message)
        if _is_stateless(message, headers):
            await self._handle_stateless(message, headers, principal, DisconnectWatch(receive), reply)
        else:
            await self._handle_handshake(message, headers, principal, receive, reply)

    async def _check_values(self, body: bytes, principal: str) -> None:
        """Refuse a message or batch with many values, which would keep the server from its other clients."""
        if len(body) > LARGE:
            values = await self._offload.run(principal, len(body), count_values, body)
            if values > _MAX_VALUES:
                raise AccessDenied(413, f"message has {values:,} JSON values; the limit is {_MAX_VALUES:,}")

    async def _handle_stateless(
        self,
        message: RpcMessage,
        headers: Mapping[str, str],
        principal: str,
        watch: DisconnectWatch,
        reply: ReplyWriter,
    ) -> None:
        """Serve one request on its own; an error becomes an answer, and another message is only acknowledged.

        A disconnect cancels the request; then `sent` is None and there is nothing to answer.
        """
        if not isinstance(message, RpcRequest):
            await reply.send_empty(202 if isinstance(message, Notification) else 400)
            return
        try:
            action = self._check_and_dispatch(message, headers)
        except RpcError as error:
            action = SendMessage(failure_from(error, message.id), error.status)
        if isinstance(action, ServeRequest):
            work = action
            exchange = stateless_exchange(work, reply.emit, principal, is_remote=True)
            sent = await watch.run_while_connected(self.server.perform(work, exchange))
            if sent is not None:
                await reply.finish(sent)
        elif isinstance(action, OpenSubscription):
            await watch.run_while_connected(self._listen(action, reply))
        elif isinstance(action, SendMessage):
            await reply.send_document(action.message, action.status)

    def _check_and_dispatch(self, request: RpcRequest, headers: Mapping[str, str]) -> PeerAction:
        """Compare the headers with the body, then dispatch the request."""
        meta = _required_meta(request)
        tool = request.params.get("name") if request.method == "tools/call" else None
        header_arguments = self.server.catalog.header_arguments(tool) if type(tool) is str else None
        check_headers(headers, request, meta.version or "", header_arguments)
        return serve_stateless(self.server.catalog, request, meta)

    async def _listen(self, listen: OpenSubscription, reply: ReplyWriter) -> None:
        """Send notifications until the client disconnects."""
        listener = make_listener(listen, reply.emit)
        reply.emit(listen.acknowledgement)
        self.server.listeners.add(listener)
        try:
            await reply.keep_alive()
        finally:
            self.server.listeners.remove(listener)

    async def _handle_handshake(
        self, message: RpcMessage, headers: Mapping[str, str], principal: str, receive: Receive, reply: ReplyWriter
    ) -> None:
        """Serve a message within its session, or open one for `initialize`."""
        session, new_session_id = self._find_session(message, headers, principal, reply.address)
        reply.record.add_client(session.client)
        if not isinstance(message, RpcRequest):
            session.handle_one_way(session.peer.receive(message))
            await reply.send_empty(202)
            return
        action = session.peer.receive(message)
        if new_session_id is not None:
            await self._reply_initialize(session, action, new_session_id, reply)
        elif isinstance(action, ServeRequest):
            await DisconnectWatch(receive).run_while_connected(session.serve(action, reply))
        elif isinstance(action, SendMessage):
            await reply.send_document(action.message, action.status)

    async def _reply_initialize(
        self, session: HttpSession, action: PeerAction, new_session_id: str, reply: ReplyWriter
    ) -> None:
        """Answer `initialize` with the id of the new session, or end that session if `initialize` was refused."""
        assert isinstance(action, SendMessage)
        if session.peer.initialize_params is None:  # initialize was refused
            await self._sessions.end(new_session_id)
            await reply.send_document(action.message, action.status)
        else:
            await reply.send_document(action.message, action.status, ((SESSION.encode(), new_session_id.encode()),))

    def _find_session(
        self, message: RpcMessage, headers: Mapping[str, str], principal: str, address: str
    ) -> tuple[HttpSession, str | None]:
        """Return the session of a message; `initialize` opens one, and its id is returned, too.

        RpcError without a session, or for a version that sessions do not support.
        """
        if isinstance(message, RpcRequest) and message.method == "initialize" and SESSION not in headers:
            return self._sessions.open(principal, address)
        number = message.id if isinstance(message, RpcRequest) else None
        if SESSION not in headers:
            reason = "send initialize first and use its Mcp-Session-Id, or state the protocol version in _meta"
            raise RpcError(INVALID_REQUEST, reason, request_id=number)
        version = headers.get(VERSION)
        if version is not None and version not in HANDSHAKE:
            raise RpcError(INVALID_REQUEST, f"sessions do not support MCP version {version}", request_id=number)
        return self._sessions.find(headers[SESSION], principal), None


def _accepts_type(accept: str | None, wanted: str) -> bool:
    if not accept:
        return True
    kinds = {media_range.partition(";")[0].strip().lower() for media_range in accept.split(",")}
    return not kinds.isdisjoint({wanted, "*/*", f"{wanted.partition('/')[0]}/*"})


def _is_stateless(message: RpcMessage, headers: Mapping[str, str]) -> bool:
    """Return True if the message states its version in `_meta`, or a version without sessions in its header."""
    params = message.params if isinstance(message, (RpcRequest, Notification)) else {}
    meta = params.get("_meta")
    if type(meta) is dict and PROTOCOL_VERSION in meta:
        return True
    version = headers.get(VERSION)
    return version is not None and version not in HANDSHAKE and SESSION not in headers


def _required_meta(request: RpcRequest) -> Meta:
    """Return the `_meta` of a stateless request, in which the version is required. Raise RpcError without it."""
    try:
        meta = read_meta(request.params)
    except RpcError as error:
        raise error.with_request_id(request.id) from None
    if meta.version is None:
        raise RpcError(INVALID_PARAMS, f"_meta: {PROTOCOL_VERSION} is missing", status=400)
    return meta
