"""A link to a URL: each message is a POST, its answer a document or an event stream (streamable HTTP, both eras).

In the stateless era every request is independent, and closing its stream cancels it. In the handshake era requests
share a session: its id is sent with every request, a stream that ends before its answer is resumed at the last event
(`Last-Event-ID`), and a second stream (GET) delivers the messages that belong to no request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Protocol

from ...ir.errors import ProtocolError
from ...ir.terminal import neutralise_line
from ...net.http import Reply
from ...net.replies import read_reply_body
from ...stream.sse import SSEDecoder
from ...wire.mcp.errors import RpcError
from ...wire.mcp.headers import SESSION, VERSION, HeaderArguments, request_headers
from ...wire.mcp.meta import with_meta
from ...wire.mcp.notices import Cancelled
from ...wire.mcp.rpc import LIMIT, Failure, Notification, Result, RpcMessage, RpcRequest, read, write
from .config import ServerSpec
from .failures import NotAuthorized, ServerGone, ServerRefused
from .greeting import ClientIdentity, NegotiatedProtocol
from .link import MessageHandler

__all__ = ["LISTEN", "Authorizer", "HttpLink", "Sender"]

_log = logging.getLogger("toolwire.mcp")
_ACCEPT = "application/json, text/event-stream"
LISTEN = "subscriptions/listen"
_DAY = 86400.0
_RETRY = 1.0
_SHORTEST_WAIT = 0.1
_LONGEST_WAIT = 60.0
_PATIENCE = 2.0
_LATER = 5.0
"""Added to the timeout, because the caller has a limit of its own that should take effect first."""
_RESUMES = 5
_LOGINS = 3
_ERROR_LIMIT = 64 * 1024


class Sender(Protocol):
    """`toolwire.net.http.HttpTransport`, or anything like it."""

    def send(
        self, method: str, url: str, headers: Mapping[str, str], secrets: Mapping[str, str], body: bytes, seconds: float
    ) -> AbstractAsyncContextManager[Reply]: ...


class Authorizer(Protocol):
    """Supplies tokens for a server that requires authorization: `toolwire.mcp.client.login.Login`."""

    async def token(self) -> str | None: ...

    async def challenged(self, sender: Sender, url: str, status: int, challenge: str, used: str | None) -> None:
        """Obtain a new token after a 401 or 403. Raise NotAuthorized if that is impossible."""
        ...


class HttpLink:
    def __init__(
        self,
        spec: ServerSpec,
        on_message: MessageHandler,
        sender: Sender,
        me: ClientIdentity,
        login: Authorizer | None = None,
    ) -> None:
        assert spec.url is not None
        self._url = spec.url
        self._spec = spec
        self._hear = on_message
        self._sender = sender
        self._identity = me
        self._login = login
        self._session: str | None = None
        self._version: str | None = None
        self._stateless = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._listens = asyncio.Event()
        self._asked = 0
        self._unasked = asyncio.Event()
        self._closed = False

    async def open(self) -> None:
        """Do nothing: HTTP needs no connection in advance."""

    async def send_request(
        self, request: RpcRequest, header_arguments: HeaderArguments | None = None
    ) -> Result | Failure:
        self._asked += 1
        self._unasked.clear()
        try:
            async with self._posted(request, header_arguments) as reply:
                if SESSION in reply.headers and request.method == "initialize":
                    self._session = reply.headers[SESSION]
                answer = await self._answer(reply, request)
            return await self._resumed(request, answer) if isinstance(answer, SSEDecoder) else answer
        except asyncio.CancelledError:
            if self._session is not None:
                self._spawn(self._send_notification(Cancelled(request.id, "no longer wanted").to_notification()))
            raise
        finally:
            self._asked -= 1
            if not self._asked:
                self._unasked.set()

    @property
    def has_pending(self) -> bool:
        return self._asked > 0

    async def wait_pending(self) -> None:
        await self._unasked.wait()

    async def send(self, message: Notification | Result | Failure) -> None:
        if self._closed:
            raise ServerGone(f"{self._spec.name} was closed", sent=False)
        async with self._posted(message, None) as reply:
            if reply.status >= 400:
                await self._refuse(reply, None)

    async def set_protocol(self, greeting: NegotiatedProtocol, *, listen: bool) -> None:
        self._version = greeting.version
        self._stateless = greeting.is_stateless
        if listen:
            self._spawn(self._listen())
            with suppress(TimeoutError):  # messages that the server sends before the stream is open may be lost
                await asyncio.wait_for(self._listens.wait(), _PATIENCE)

    async def close(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            secrets = self._secrets(None if self._login is None else await self._login.token())
            with suppress(OSError):  # the server expires the session anyway
                async with self._sender.send("DELETE", self._url, self._session_headers(), secrets, b"", 2.0):
                    pass
            self._session = None

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_notification(self, notification: Notification) -> None:
        try:
            await self.send(notification)
        except (ServerGone, ServerRefused, OSError):
            pass  # the notification is only a courtesy

    # one request

    @asynccontextmanager
    async def _posted(self, message: RpcMessage, header_arguments: HeaderArguments | None) -> AsyncIterator[Reply]:
        headers = {"content-type": "application/json", "accept": _ACCEPT}
        if isinstance(message, RpcRequest):
            said = request_headers(message, header_arguments)
            headers.update(said if VERSION in said else {})  # without a version the request belongs to a session
        elif isinstance(message, Notification) and self._stateless:
            message = Notification(message.method, with_meta(message.params, self._identity.meta(self._version or "")))
            headers.update(request_headers(RpcRequest(0, message.method, message.params)))
        listens = isinstance(message, RpcRequest) and message.method == LISTEN
        seconds = _DAY if listens else self._spec.timeout + _LATER
        sent = False
        try:
            async with self._sent("POST", headers, write(message), seconds) as reply:
                sent = True
                yield reply
        except ConnectionRefusedError as error:
            raise ServerGone(f"{self._spec.name} cannot be reached: {error}", sent=sent) from None
        except TimeoutError as error:
            raise ServerGone(f"{self._spec.name} did not answer in {self._spec.timeout:g} seconds") from error
        except ConnectionError as error:
            raise ServerGone(f"the connection to {self._spec.name} broke: {error}") from None

    @asynccontextmanager
    async def _sent(self, method: str, headers: Mapping[str, str], body: bytes, seconds: float) -> AsyncIterator[Reply]:
        """Send a request with the token. If the server asks for authorization, log in and send it again."""
        for left in reversed(range(_LOGINS)):
            token = None if self._login is None else await self._login.token()
            held = {**self._session_headers(), **headers}
            async with self._sender.send(method, self._url, held, self._secrets(token), body, seconds) as reply:
                if reply.status not in (401, 403):
                    yield reply
                    return
                challenge, status = reply.headers.get("www-authenticate", ""), reply.status
            if self._login is None or not left or (status == 403 and "insufficient_scope" not in challenge):
                hint = "configure a token in headers, or a login" if self._login is None else ""
                raise NotAuthorized(f"{self._spec.name} denied access (HTTP {status})", http=status, hint=hint)
            await self._login.challenged(self._sender, self._url, status, challenge, token)

    def _secrets(self, token: str | None) -> dict[str, str]:
        return {**self._spec.headers, **({} if token is None else {"authorization": f"Bearer {token}"})}

    def _session_headers(self) -> dict[str, str]:
        """Return the headers that a session adds to every request."""
        held = {} if self._session is None else {SESSION: self._session}
        return held if self._version is None or self._stateless else {**held, VERSION: self._version}

    # the answer

    async def _answer(self, reply: Reply, request: RpcRequest) -> Result | Failure | SSEDecoder:
        """Return the answer, or the decoder of a stream that ended without one."""
        kind = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/event-stream" and reply.status < 300:
            return await self._streamed(reply, request, SSEDecoder(LIMIT))
        if reply.status >= 300:
            return await self._refuse(reply, request)
        answer = self._match_answer(await read_reply_body(reply, LIMIT), request)
        if answer is None:
            raise ProtocolError("the answer belongs to another request", pointer="/id", status=502)
        return answer

    async def _streamed(self, reply: Reply, request: RpcRequest, stream: SSEDecoder) -> Result | Failure | SSEDecoder:
        size = 0
        try:
            while data := await reply.read():
                size += len(data)
                for _, text in stream.feed(data):
                    answer = self._match_answer(text, request) if text else None
                    if answer is not None:
                        return answer
                    size = 0
                if size > LIMIT:
                    raise ProtocolError(f"an event is larger than {LIMIT} bytes", status=502)
            for _, text in stream.close():
                answer = self._match_answer(text, request) if text else None
                if answer is not None:
                    return answer
        except ConnectionError as error:
            _log.info("the event stream of %s broke: %s", self._spec.name, error)
        return stream

    async def _resumed(self, request: RpcRequest, stream: SSEDecoder) -> Result | Failure:
        """Resume a stream that ended too early. Only the handshake era supports this."""
        for _ in range(_RESUMES):
            if self._stateless or not stream.last_id:
                break
            await asyncio.sleep(_pause(stream, _RETRY))
            headers = {"accept": "text/event-stream", "last-event-id": stream.last_id.decode("latin-1")}
            again = SSEDecoder(LIMIT)
            again.last_id, again.retry = stream.last_id, stream.retry
            try:
                async with self._sent("GET", headers, b"", self._spec.timeout) as reply:
                    if reply.status != 200:
                        break
                    answer = await self._streamed(reply, request, again)
            except OSError:
                continue
            except ServerRefused:  # only the resumption was refused; the call itself was sent before
                break
            if not isinstance(answer, SSEDecoder):
                return answer
            stream = answer
        raise ServerGone(f"{self._spec.name} ended its event stream without an answer")

    def _match_answer(self, data: bytes, request: RpcRequest) -> Result | Failure | None:
        """Return the answer to this request. Pass any other message on."""
        try:
            message = read(data)
        except RpcError as error:
            raise ProtocolError(f"cannot read the answer: {error.message}", status=502) from None
        if isinstance(message, (Result, Failure)):
            return message if message.id == request.id or message.id is None else None
        self._hear(message)
        return None

    async def _refuse(self, reply: Reply, request: RpcRequest | None) -> Failure:
        """Handle an HTTP error: return its JSON-RPC error, if it has one, otherwise raise."""
        status, name = reply.status, self._spec.name
        try:
            data = await read_reply_body(reply, _ERROR_LIMIT)
            message = read(data)
        except (ProtocolError, ConnectionError):
            message = None
        lost_session = status == 404 and self._session is not None
        if isinstance(message, Failure) and request is not None and not lost_session:
            return Failure(request.id, message.code, message.message, message.data)
        if lost_session:
            self._session = None
            raise ServerGone(f"{name} no longer knows the session", sent=False)
        if status >= 500:
            raise ServerGone(f"{name} answered with HTTP {status}")
        words = f": {neutralise_line(message.message[:200])}" if isinstance(message, Failure) else ""
        raise ServerRefused(f"{name} answered with HTTP {status}{words}", http=status)

    # messages that belong to no request

    async def _listen(self) -> None:
        """Receive changes: over the GET stream of a session, or over a request whose stream stays open.

        Continue until cancelled, or until the server reports that it has no such stream.
        """
        wait, last, number = _RETRY, b"", 0
        while not self._closed:
            stream, number = SSEDecoder(LIMIT), number + 1
            stream.last_id = last
            request = self._subscription(number)
            try:
                async with self._listening(request, last) as reply:
                    self._listens.set()
                    if reply.status != 200:
                        return
                    await self._streamed(reply, request, stream)
                wait = _RETRY
            except ServerRefused:
                return
            except (OSError, ProtocolError) as error:
                _log.info("cannot listen to %s: %s", self._spec.name, error)
                wait = min(wait * 2, _LONGEST_WAIT)
            last = stream.last_id
            await asyncio.sleep(_pause(stream, wait))

    def _subscription(self, number: int) -> RpcRequest:
        wanted = {"notifications": {f"{area}ListChanged": True for area in ("tools", "resources", "prompts")}}
        params = with_meta(dict(wanted), self._identity.meta(self._version or ""))
        return RpcRequest(f"listen-{number}", LISTEN, params)

    def _listening(self, request: RpcRequest, last: bytes) -> AbstractAsyncContextManager[Reply]:
        if self._stateless:
            headers = {"content-type": "application/json", "accept": _ACCEPT, **request_headers(request)}
            return self._sent("POST", headers, write(request), _DAY)
        resumed = {"last-event-id": last.decode("latin-1")} if last else {}
        return self._sent("GET", {"accept": "text/event-stream", **resumed}, b"", _DAY)


def _pause(stream: SSEDecoder, otherwise: float) -> float:
    """Return the seconds before a stream is requested again: the server's `retry` value, within limits."""
    return otherwise if stream.retry is None else min(max(stream.retry / 1000, _SHORTEST_WAIT), _LONGEST_WAIT)
