"""Sessions of the handshake era over HTTP. They keep the outcome of `initialize` between requests."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict

from ..protocol.errors import INVALID_REQUEST, RpcError
from ..protocol.rpc import Failure, RpcMessage
from .conversation import Conversation
from .protocol import SendMessage, ServeRequest
from .reply_writer import ReplyWriter
from .server import Server

__all__ = ["HttpSession", "HttpSessions"]

_MAX_SESSIONS = 10_000
_IDLE_SECONDS = 3600.0


class HttpSession(Conversation):
    """One session. Messages that belong to no request go to the stream that the client opened with GET, if any."""

    is_remote = True

    def __init__(self, server: Server, principal: str) -> None:
        super().__init__(server, self._emit_unsolicited, principal)
        self._streams: list[ReplyWriter] = []
        self.last_used = time.monotonic()

    def _emit_unsolicited(self, message: RpcMessage) -> None:
        if self._streams:
            self._streams[-1].emit(message)

    @property
    def is_in_use(self) -> bool:
        return bool(self._streams or self._tasks)

    async def close(self, grace: float = 0.0) -> None:
        for reply in self._streams:
            reply.close()
        await super().close(grace)

    async def stream(self, reply: ReplyWriter) -> None:
        """Send messages until the client disconnects."""
        self._streams.append(reply)
        try:
            await reply.keep_alive()
        finally:
            self._streams.remove(reply)

    async def serve(self, work: ServeRequest, reply: ReplyWriter) -> None:
        """Serve a request. In this era a disconnect cancels nothing: the work continues without the client."""
        if work.request.id in self._tasks:
            await reply.send_document(
                Failure(work.request.id, INVALID_REQUEST, "a request with this id is in progress"), 400
            )
            return
        answer: asyncio.Future[SendMessage | None] = asyncio.get_running_loop().create_future()

        def done(sent: SendMessage | None) -> None:
            if not answer.done():
                answer.set_result(sent)

        task = self.start(work, reply.emit, done)
        task.add_done_callback(lambda _: done(None))  # cancelled: no answer
        sent = await answer
        await (reply.end() if sent is None else reply.finish(sent))


class HttpSessions:
    """Sessions by their unguessable ids. Idle sessions are removed, the least recently used first."""

    def __init__(self, server: Server, *, max_sessions: int = _MAX_SESSIONS, idle: float = _IDLE_SECONDS) -> None:
        self._server = server
        self._max_sessions = max_sessions
        self._idle = idle
        self._sessions: OrderedDict[str, HttpSession] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def open(self, principal: str) -> tuple[HttpSession, str]:
        self._evict_idle()
        session_id = secrets.token_urlsafe(24)
        session = self._sessions[session_id] = HttpSession(self._server, principal)
        return session, session_id

    def find(self, session_id: str, principal: str) -> HttpSession:
        """Return the session, if it exists and belongs to the caller."""
        session = self._sessions.get(session_id)
        if session is None or session.principal != principal:
            raise RpcError(INVALID_REQUEST, "session not found; send initialize again", status=404)
        self._touch(session_id, session)
        return session

    def _touch(self, session_id: str, session: HttpSession) -> None:
        session.last_used = time.monotonic()
        self._sessions.move_to_end(session_id)

    async def end(self, session_id: str) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            await session.close()

    def _evict_idle(self) -> None:
        """Remove idle sessions, oldest first. At the maximum number, the oldest is removed even if it is in use."""
        idle_since = time.monotonic() - self._idle
        while self._sessions:
            session_id, session = next(iter(self._sessions.items()))
            if len(self._sessions) < self._max_sessions:
                if session.last_used > idle_since:
                    return
                if session.is_in_use:
                    self._touch(session_id, session)
                    continue
            del self._sessions[session_id]
            closing = asyncio.create_task(session.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        for session_id in list(self._sessions):
            await self.end(session_id)
