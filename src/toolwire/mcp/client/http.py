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
from ...net.http.transport import Reply
from ...net.model.replies import read_reply_body
from ...stream.framing import SSEDecoder
from ..protocol.headers import SESSION, VERSION, HeaderArguments, request_headers
from ..protocol.meta import with_meta
from ..protocol.notifications import Cancelled
from ..protocol.rpc import LIMIT, Failure, Notification, Result, RpcError, RpcMessage, RpcRequest, read, write
from .config import ServerSpec
from .failures import NotAuthorized, ServerGone, ServerRefused
from .link import LISTEN, LinkTraffic, MessageHandler, TrafficEvent, shown_headers, subscription_request
from .negotiation import ClientIdentity, NegotiatedProtocol

_log = logging.getLogger("toolwire.mcp")
_ACCEPT = "application/json, text/event-stream"
_DAY = 86400.0  # seconds; a stream of notifications has no end, but a transport needs a timeout
_RETRY_SECONDS = 1.0  # before a stream is requested again, if the server has set no `retry`; doubled after each failure
_MIN_WAIT = 0.1  # seconds; a server with `retry: 0` would be asked in a busy loop
_MAX_WAIT = 60.0  # seconds; a server with a large `retry` would never notify again
_LISTEN_TIMEOUT = 2.0  # seconds for a round trip; a server may send the head of the stream only with its first event
_LATER = 5.0
"""Added to the timeout, because the caller has a limit of its own that should take effect first."""
_MAX_RESUMES = 5  # of one request, which mostly ends by its timeout before
_MAX_LOGINS = 3  # an expired token, then missing scopes; a third refusal is final
_ERROR_LIMIT = 64 * 1024  # bytes of an HTTP error: a JSON-RPC error or a page of a proxy


class Sender(Protocol):
    """`toolwire.net.HttpTransport`, or anything like it."""

    def send(
        self, method: str, url: str, headers: Mapping[str, str], secrets: Mapping[str, str], body: bytes, seconds: float
    ) -> AbstractAsyncContextManager[Reply]: ...


class Authorizer(Protocol):
    """Supplies tokens for a server that requires authorization: `toolwire.mcp.client.login.Login`."""

    async def token(self) -> str | None: ...

    async def handle_challenge(
        self, sender: Sender, url: str, status: int, challenge: str, used_token: str | None
    ) -> None:
        """Obtain a new token after a 401 or 403. Raise NotAuthorized if that is impossible."""
        ...


class HttpLink:
    """The link to a URL. `_session` and `_version` are None until negotiated; a stateless server has no session."""

    def __init__(
        self,
        spec: ServerSpec,
        on_message: MessageHandler,
        sender: Sender,
        identity: ClientIdentity,
        login: Authorizer | None = None,
        on_traffic: LinkTraffic | None = None,
    ) -> None:
        assert spec.url is not None
        self._url = spec.url
        self._spec = spec
        self._on_message = on_message
        self._sender = sender
        self._identity = identity
        self._login = login
        self._on_traffic = on_traffic
        self._session: str | None = None
        self._version: str | None = None
        self._stateless = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_listening = asyncio.Event()  # the server has answered the request for the stream
        self._pending_count = 0
        self._no_pending = asyncio.Event()  # set when the last request in flight has ended
        self._closed = False

    async def open(self) -> None:
        """Do nothing: HTTP needs no connection in advance."""

    async def send_request(
        self, request: RpcRequest, header_arguments: HeaderArguments | None = None
    ) -> Result | Failure:
        """Post a request and return its answer; a broken event stream is resumed.

        The session id of `initialize` is stored. If the caller cancels within a session, the server is notified.
        """
        self._pending_count += 1
        self._no_pending.clear()
        try:
            async with self._post_message(request, header_arguments) as reply:
                if SESSION in reply.headers and request.method == "initialize":
                    self._session = reply.headers[SESSION]
                answer = await self._read_answer(reply, request)
            return await self._resume_stream(request, answer) if isinstance(answer, SSEDecoder) else answer
        except asyncio.CancelledError:
            if self._session is not None:
                self._spawn(self._send_notification(Cancelled(request.id, "no longer wanted").to_notification()))
            raise
        finally:
            self._pending_count -= 1
            if not self._pending_count:
                self._no_pending.set()

    @property
    def has_pending(self) -> bool:
        return self._pending_count > 0

    async def wait_pending(self) -> None:
        await self._no_pending.wait()

    async def send(self, message: Notification | Result | Failure) -> None:
        if self._closed:
            raise ServerGone(f"{self._spec.name} was closed", sent=False)
        async with self._post_message(message, None) as reply:
            if reply.status >= 400:
                await self._handle_error(reply, None)

    async def set_protocol(self, greeting: NegotiatedProtocol, *, listen: bool) -> None:
        """Store the negotiated version. With `listen`, open the stream for messages that belong to no request."""
        self._version = greeting.version
        self._stateless = greeting.is_stateless
        if listen:
            self._spawn(self._listen())
            with suppress(TimeoutError):  # messages that the server sends before the stream is open may be lost
                await asyncio.wait_for(self._is_listening.wait(), _LISTEN_TIMEOUT)

    async def close(self) -> None:
        """Cancel the background tasks and end the session on the server (DELETE)."""
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
    async def _post_message(
        self, message: RpcMessage, header_arguments: HeaderArguments | None
    ) -> AsyncIterator[Reply]:
        """Post a message with the headers of its era. Convert connection errors to ServerGone."""
        headers = {"content-type": "application/json", "accept": _ACCEPT}
        if isinstance(message, RpcRequest):
            derived_headers = request_headers(message, header_arguments)
            # without a version the request belongs to a session
            headers.update(derived_headers if VERSION in derived_headers else {})
        elif isinstance(message, Notification) and self._stateless:
            message = Notification(message.method, with_meta(message.params, self._identity.meta(self._version or "")))
            headers.update(request_headers(RpcRequest(0, message.method, message.params)))
        listens = isinstance(message, RpcRequest) and message.method == LISTEN
        seconds = _DAY if listens else self._spec.connect_timeout + _LATER
        sent = False
        self._record_sent(message, headers)
        try:
            async with self._send_authorized("POST", headers, write(message), seconds) as reply:
                sent = True
                yield reply
        except ConnectionRefusedError as error:
            hint = "check that the server is running, and check its URL"
            raise ServerGone(f"{self._spec.label} cannot be reached: {error}", sent=sent, hint=hint) from None
        except TimeoutError as error:
            raise ServerGone(f"{self._spec.name} did not answer in {seconds:g} seconds") from error
        except ConnectionError as error:
            raise ServerGone(f"the connection to {self._spec.name} broke: {error}") from None

    @asynccontextmanager
    async def _send_authorized(
        self, method: str, headers: Mapping[str, str], body: bytes, seconds: float
    ) -> AsyncIterator[Reply]:
        """Send a request with the token. If the server asks for authorization, log in and send it again.

        NotAuthorized without a login, after too many attempts, or for a 403 that no login can change.
        """
        for remaining in reversed(range(_MAX_LOGINS)):
            token = None if self._login is None else await self._login.token()
            all_headers = {**self._session_headers(), **headers}
            async with self._sender.send(method, self._url, all_headers, self._secrets(token), body, seconds) as reply:
                if reply.status not in (401, 403):
                    yield reply
                    return
                challenge, status = reply.headers.get("www-authenticate", ""), reply.status
            if self._login is None or not remaining or (status == 403 and "insufficient_scope" not in challenge):
                hint = "pass a token in headers, or a login" if self._login is None else ""
                raise NotAuthorized(f"{self._spec.label} denied access (HTTP {status})", http=status, hint=hint)
            await self._login.handle_challenge(self._sender, self._url, status, challenge, token)

    def _record_sent(self, message: RpcMessage, headers: Mapping[str, str]) -> None:
        if self._on_traffic is not None:
            secrets = self._secrets(None if self._login is None else "")
            sent_headers = shown_headers({**self._session_headers(), **headers}, secrets)
            self._on_traffic(TrafficEvent("sent", message, sent_headers))

    def _record_received(self, message: RpcMessage, status: int | None = None) -> None:
        if self._on_traffic is not None:
            self._on_traffic(TrafficEvent("received", message, status=status))

    def _secrets(self, token: str | None) -> dict[str, str]:
        return {**self._spec.headers, **({} if token is None else {"authorization": f"Bearer {token}"})}

    def _session_headers(self) -> dict[str, str]:
        """Return the headers that a session adds to every request."""
        all_headers = {} if self._session is None else {SESSION: self._session}
        return all_headers if self._version is None or self._stateless else {**all_headers, VERSION: self._version}

    # the answer

    async def _read_answer(self, reply: Reply, request: RpcRequest) -> Result | Failure | SSEDecoder:
        """Return the answer, or the decoder of a stream that ended without one.

        Raise ProtocolError for the answer to another request; `_handle_error` raises for an error status.
        """
        kind = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/event-stream" and reply.status < 300:
            return await self._read_stream(reply, request, SSEDecoder(LIMIT))
        if reply.status >= 300:
            return await self._handle_error(reply, request)
        answer = self._match_answer(await read_reply_body(reply, LIMIT), request)
        if answer is None:
            raise ProtocolError("the answer belongs to another request", pointer="/id", status=502)
        return answer

    async def _read_stream(
        self, reply: Reply, request: RpcRequest, stream: SSEDecoder
    ) -> Result | Failure | SSEDecoder:
        """Read events until the answer to `request` arrives. Without an answer return the decoder, to resume from.

        `size` counts the bytes since the last complete event. Raise ProtocolError for an event larger than LIMIT.
        """
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

    async def _resume_stream(self, request: RpcRequest, stream: SSEDecoder) -> Result | Failure:
        """Resume a stream that ended too early until the answer arrives, or raise ServerGone.

        Only the handshake era supports this.
        """
        for _ in range(_MAX_RESUMES):
            if self._stateless or not stream.last_id:
                break
            await asyncio.sleep(_retry_delay(stream, _RETRY_SECONDS))
            headers = {"accept": "text/event-stream", "last-event-id": stream.last_id.decode("latin-1")}
            resumed_stream = SSEDecoder(LIMIT)
            resumed_stream.last_id, resumed_stream.retry = stream.last_id, stream.retry
            try:
                async with self._send_authorized("GET", headers, b"", self._spec.timeout) as reply:
                    if reply.status != 200:
                        break
                    answer = await self._read_stream(reply, request, resumed_stream)
            except OSError:
                continue
            except ServerRefused:  # only the resumption was refused; the call itself was sent before
                break
            if not isinstance(answer, SSEDecoder):
                return answer
            stream = answer
        raise ServerGone(f"{self._spec.name} ended its event stream without an answer")

    def _match_answer(self, data: bytes, request: RpcRequest) -> Result | Failure | None:
        """Return the answer to this request, or None.

        Pass questions and notifications on. Drop an answer to another request: it cannot belong to this stream. Raise
        ProtocolError for an unreadable message.
        """
        try:
            message = read(data)
        except RpcError as error:
            raise ProtocolError(f"cannot read the answer: {error.message}", status=502) from None
        self._record_received(message)
        if isinstance(message, (Result, Failure)):
            # Without an id: a server that could not read the request, which is the only one on this stream.
            return message if message.id == request.id or message.id is None else None
        self._on_message(message)
        return None

    async def _handle_error(self, reply: Reply, request: RpcRequest | None) -> Failure:
        """Return the JSON-RPC error of an HTTP error, if it has one.

        Otherwise raise ServerGone for a lost session or a failing server, or else ServerRefused.
        """
        status, name = reply.status, self._spec.label
        try:
            data = await read_reply_body(reply, _ERROR_LIMIT)
            message = read(data)
            self._record_received(message, status)
        except (ProtocolError, ConnectionError):
            message = None
        # 404 with a session id means that the session has ended; the client must start a new one (MCP, transports).
        lost_session = status == 404 and self._session is not None
        if isinstance(message, Failure) and request is not None and not lost_session:
            return Failure(request.id, message.code, message.message, message.data)
        if lost_session:
            self._session = None
            raise ServerGone(f"{name} no longer knows the session", sent=False)
        if status >= 500:
            raise ServerGone(
                f"{name} answered with HTTP {status}", hint="see the log of the server, or try again later"
            )
        reason = f": {neutralise_line(message.message[:200])}" if isinstance(message, Failure) else ""
        hint = "check the path of the URL: it must be that of an MCP endpoint" if status in (404, 405) else ""
        raise ServerRefused(f"{name} answered with HTTP {status}{reason}", http=status, hint=hint)

    # messages that belong to no request

    async def _listen(self) -> None:
        """Receive changes: over the GET stream of a session, or over a request whose stream stays open.

        Continue until cancelled, or until the server reports that it has no such stream.
        """
        wait, last_id, number = _RETRY_SECONDS, b"", 0
        while not self._closed:
            stream, number = SSEDecoder(LIMIT), number + 1
            stream.last_id = last_id
            request = subscription_request(number, self._identity.meta(self._version or ""))
            try:
                async with self._open_listen_stream(request, last_id) as reply:
                    self._is_listening.set()
                    if reply.status != 200:
                        return
                    await self._read_stream(reply, request, stream)
                wait = _RETRY_SECONDS
            except ServerRefused:
                return
            except (OSError, ProtocolError) as error:
                _log.info("cannot listen to %s: %s", self._spec.name, error)
                wait = min(wait * 2, _MAX_WAIT)
            last_id = stream.last_id
            await asyncio.sleep(_retry_delay(stream, wait))

    def _open_listen_stream(self, request: RpcRequest, last_id: bytes) -> AbstractAsyncContextManager[Reply]:
        if self._stateless:
            headers = {"content-type": "application/json", "accept": _ACCEPT, **request_headers(request)}
            self._record_sent(request, headers)
            return self._send_authorized("POST", headers, write(request), _DAY)
        resumed = {"last-event-id": last_id.decode("latin-1")} if last_id else {}
        return self._send_authorized("GET", {"accept": "text/event-stream", **resumed}, b"", _DAY)


def _retry_delay(stream: SSEDecoder, default: float) -> float:
    """Return the seconds before a stream is requested again: the server's `retry` value, within limits."""
    return default if stream.retry is None else min(max(stream.retry / 1000, _MIN_WAIT), _MAX_WAIT)
