"""Sessions of the handshake era over HTTP. They keep the outcome of `initialize` between requests."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from ipaddress import IPv6Address

from ..protocol.rpc import INVALID_REQUEST, Failure, RpcError, RpcMessage
from .conversation import Conversation
from .protocol import SendMessage, ServeRequest
from .reply_writer import ReplyWriter
from .server import Server

_MAX_SESSIONS = 10_000  # a session without requests is a few kB, so all of them are some 10 MB; not measured
# A tenth of all: above the users that share an address or a key, and far from the sessions of others.
_MAX_PER_CLIENT = 1_000
_IDLE_SECONDS = 3600.0  # a person may pause; a client whose session ended starts a new one (status 404)


class HttpSession(Conversation):
    """One session. Messages that belong to no request go to the stream that the client opened with GET, if any."""

    is_remote = True

    def __init__(self, server: Server, principal: str, address: str = "") -> None:
        super().__init__(server, self._emit_unsolicited, principal)
        self.owner = (principal, "" if principal else _network_of(address))  # without keys, a client is known by it
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
    """Sessions by their unguessable ids. Idle sessions are removed, the least recently used first.

    A client with `max_per_client` sessions loses its own least recently used session when it opens another, so a
    client that never ends its sessions does not evict sessions of others.
    """

    def __init__(
        self,
        server: Server,
        *,
        max_sessions: int = _MAX_SESSIONS,
        max_per_client: int = _MAX_PER_CLIENT,
        idle: float = _IDLE_SECONDS,
    ) -> None:
        self._server = server
        self._max_sessions = max_sessions
        self._max_per_client = max_per_client
        self._by_owner: dict[tuple[str, str], OrderedDict[str, HttpSession]] = {}  # like `_sessions`, by client
        self._idle = idle
        self._sessions: OrderedDict[str, HttpSession] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def open(self, principal: str, address: str = "") -> tuple[HttpSession, str]:
        """Open a session and return it with its id. `address` identifies a client without a principal.

        Idle sessions are removed first; a client with too many loses its oldest, preferably an unused one.
        """
        self._evict_idle()
        session_id = secrets.token_urlsafe(24)
        session = HttpSession(self._server, principal, address)
        own = self._by_owner.setdefault(session.owner, OrderedDict())
        if len(own) >= self._max_per_client:
            self._evict(next((known for known in own if not own[known].is_in_use), next(iter(own))))
            own = self._by_owner.setdefault(session.owner, OrderedDict())
        self._sessions[session_id] = own[session_id] = session
        return session, session_id

    def find(self, session_id: str, principal: str) -> HttpSession:
        """Return the session, if it exists and belongs to the caller. Raise RpcError if not."""
        session = self._sessions.get(session_id)
        if session is None or session.principal != principal:
            raise RpcError(INVALID_REQUEST, "session not found; send initialize again", status=404)
        self._touch(session_id, session)
        return session

    def _touch(self, session_id: str, session: HttpSession) -> None:
        session.last_used = time.monotonic()
        self._sessions.move_to_end(session_id)
        self._by_owner[session.owner].move_to_end(session_id)

    async def end(self, session_id: str) -> None:
        session = self._remove(session_id)
        if session is not None:
            await session.close()

    def _remove(self, session_id: str) -> HttpSession | None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            own = self._by_owner[session.owner]
            del own[session_id]
            if not own:
                del self._by_owner[session.owner]
        return session

    def _evict(self, session_id: str) -> None:
        """Remove a session and close it in the background."""
        session = self._remove(session_id)
        if session is not None:
            closing = asyncio.create_task(session.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

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
            self._evict(session_id)

    async def close(self) -> None:
        for session_id in list(self._sessions):
            await self.end(session_id)


def _network_of(address: str) -> str:
    """Return the /64 network of an IPv6 address, because a host may use all of its addresses (RFC 7934). Others stay."""
    try:
        parsed = IPv6Address(address)
    except ValueError:
        return address
    return parsed.packed[:8].hex() if parsed.ipv4_mapped is None else str(parsed.ipv4_mapped)
