"""Sessions of the handshake era over HTTP. They keep the outcome of `initialize` between requests."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict

from ..wire.mcp.errors import INVALID_REQUEST, RpcError
from ..wire.mcp.rpc import Failure, RpcMessage
from .conversation import Conversation
from .peer import SendMessage, ServeRequest
from .replies import ReplyWriter
from .server import Server

__all__ = ["HttpSession", "HttpSessions"]

_MOST = 10_000
_IDLE = 3600.0


class HttpSession(Conversation):
    """One session. Messages that belong to no request go to the stream that the client opened with GET, if any."""

    def __init__(self, server: Server, principal: str) -> None:
        super().__init__(server, self._unasked, principal)
        self._open: list[ReplyWriter] = []
        self.used = time.monotonic()

    def _unasked(self, message: RpcMessage) -> None:
        if self._open:
            self._open[-1].emit(message)

    @property
    def is_in_use(self) -> bool:
        return bool(self._open or self._tasks)

    async def close(self, grace: float = 0.0) -> None:
        for reply in self._open:
            reply.close()
        await super().close(grace)

    async def stream(self, reply: ReplyWriter) -> None:
        """Send messages until the client disconnects."""
        self._open.append(reply)
        try:
            await reply.keep_alive()
        finally:
            self._open.remove(reply)

    async def serve(self, work: ServeRequest, reply: ReplyWriter) -> None:
        """Serve a request. In this era a disconnect cancels nothing: the work continues without the client."""
        if work.request.id in self._tasks:
            await reply.alone(Failure(work.request.id, INVALID_REQUEST, "a request with this id is in progress"), 400)
            return
        answered: asyncio.Future[SendMessage | None] = asyncio.get_running_loop().create_future()

        def done(sent: SendMessage | None) -> None:
            if not answered.done():
                answered.set_result(sent)

        task = self.start(work, reply.emit, done)
        task.add_done_callback(lambda _: done(None))  # cancelled: no answer
        sent = await answered
        await (reply.end() if sent is None else reply.finish(sent))


class HttpSessions:
    """Sessions by their unguessable ids. Idle sessions are removed, the least recently used first."""

    def __init__(self, server: Server, *, most: int = _MOST, idle: float = _IDLE) -> None:
        self._server = server
        self._most = most
        self._idle = idle
        self._sessions: OrderedDict[str, HttpSession] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def open(self, principal: str) -> tuple[HttpSession, str]:
        self._forget()
        number = secrets.token_urlsafe(24)
        session = self._sessions[number] = HttpSession(self._server, principal)
        return session, number

    def find(self, number: str, principal: str) -> HttpSession:
        """Return the session, if it exists and belongs to the caller."""
        session = self._sessions.get(number)
        if session is None or session.principal != principal:
            raise RpcError(INVALID_REQUEST, "session not found; send initialize again", status=404)
        self._use(number, session)
        return session

    def _use(self, number: str, session: HttpSession) -> None:
        session.used = time.monotonic()
        self._sessions.move_to_end(number)

    async def end(self, number: str) -> None:
        session = self._sessions.pop(number, None)
        if session is not None:
            await session.close()

    def _forget(self) -> None:
        old = time.monotonic() - self._idle
        while self._sessions:
            number, session = next(iter(self._sessions.items()))
            if len(self._sessions) < self._most:
                if session.used > old:
                    return
                if session.is_in_use:
                    self._use(number, session)
                    continue
            del self._sessions[number]
            closing = asyncio.create_task(session.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        for number in list(self._sessions):
            await self.end(number)
