"""Relay a WebSocket of OpenAI's Realtime API, `/v1/realtime`: messages pass unchanged in both directions.

    the client's handshake ──▶ key, model, limits ──▶ the upstream's handshake ──▶ both are accepted
    a message of either side ──▶ the other side, which must read it before the next one is taken
    the end of either side ──▶ a close frame for the other side, with the same code

Each response of the model and each transcription counts as a request of the key, and its usage is charged at its end, so
that a session that exceeds a limit is closed (1008). The browser's SDK sends its key as a subprotocol, because a page cannot set headers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

from ...asgi.http_exchange import HttpExchange
from ...asgi.request import AsgiMessage, Receive, Scope, Send
from ...ir.errors import ToolwireError
from ...ir.pointer import JSON
from ...ir.response import UpstreamError, Usage, add_usage
from ...net.http.websocket_link import SocketLink, SocketRefused, open_link
from ...net.model.endpoint_request import parse_or_raw, redact_secrets, redact_text
from ...net.model.key_command import KeyCommandError
from ...stream.strict import parse_object
from ..faults import RateLimited, as_gateway_fault, key_fault_of, network_fault_of
from ..keys import Caller, Limiter
from ..request.routes import INGRESSES, AnswerRequest
from ..routing.router import Target
from ..routing.upstreams import UpstreamTransports
from ..websocket.open_sockets import SWITCHED, Handshake, OpenSockets
from .paths import RelayPath, RelayRoute
from .targets import RelayRequest
from .upstream_form import address_of
from .usage import UsageScan

SOCKET = "toolwire.socket"
"""The name in a WebSocket's scope of its `receive` and `send`, and its handshake."""
_PATHS = ("/v1/realtime", "/realtime", "/openai/v1/realtime")
REALTIME = RelayRoute(
    "relay",
    INGRESSES["openai_chat"],
    relay=RelayPath(model="optional"),
    path="/realtime",
)
_KEY_PROTOCOL = "openai-insecure-api-key."
_BETA_PROTOCOL = "openai-beta."
_IDLE = 3600.0  # seconds without a message of either side; OpenAI ends every session after 60 minutes
# Both run a model, and report its usage. A session for transcriptions has no responses.
_CHARGED = ('"response.done"', '"conversation.item.input_audio_transcription.completed"')
_TYPE_END = 1000  # characters, within which a message has its type
_STOPPED = (1001, "the gateway is shutting down")
_UNSENDABLE = (1005, 1006, 1015)  # codes that no close frame has (RFC 6455, 7.4.1)


def is_realtime(path: str) -> bool:
    return path in _PATHS


async def serve_realtime(scope: Scope, receive: Receive, send: Send, answer: AnswerRequest) -> None:
    """Serve a WebSocket by the gateway's handler of requests, which accepts or refuses it."""
    await receive()
    offered: list[str] = list(scope.get("subprotocols") or ())
    handshake = Handshake(scope, send)
    plain = [name for name in offered if not name.startswith((_KEY_PROTOCOL, _BETA_PROTOCOL))]
    handshake.subprotocol = plain[0] if plain else None
    scope = {**scope, "method": "GET", SOCKET: (receive, send)}
    exchange = HttpExchange(scope, receive, handshake.send)
    for name in offered:
        if name.startswith(_KEY_PROTOCOL):
            exchange.headers.setdefault("authorization", f"Bearer {name.removeprefix(_KEY_PROTOCOL)}")
        elif name.startswith(_BETA_PROTOCOL):
            exchange.headers.setdefault("openai-beta", name.removeprefix(_BETA_PROTOCOL).replace("-v", "=v"))
    await answer(exchange, scope, REALTIME)


class QueryBody:
    """The body of a handshake: none, and the model of the query."""

    is_sent = False
    document: dict[str, JSON] = {}

    def __init__(self, query: dict[str, str]) -> None:
        self.model = query.get("model")

    def for_model(self, model: str | None) -> bytes:
        del model
        return b""


class RealtimeRelay:
    """Opens and serves sessions. `sockets` ends them when the gateway stops, and when a key is revoked."""

    def __init__(self, transports: UpstreamTransports, limiter: Limiter, sockets: OpenSockets) -> None:
        self._transports = transports
        self._limiter = limiter
        self._sockets = sockets

    async def run(self, request: RelayRequest, target: Target) -> None:
        """Open the session at the upstream, accept the client's, and serve both until one ends.

        Raise UpstreamError if the upstream refuses the session or does not answer.
        """
        started = perf_counter()
        request.log_writer.count_attempt()
        request.log_writer.start_attempt(target, True, started)
        link = await self._open(request, target)
        session = RealtimeSession(request, target, link, self._limiter)
        try:
            await request.http_exchange.start(SWITCHED, [(b"x-request-id", request.log_writer.log.id.encode())])
            with self._sockets.keep(session, request.http_exchange):
                await session.serve()
        finally:
            link.abort()
            request.log_writer.set_relay_usage(session.usage)

    async def _open(self, request: RelayRequest, target: Target) -> SocketLink:
        endpoint, exchange = target.endpoint, request.http_exchange
        query = request.scope["query_string"]
        address = address_of(request.route, target, query, exchange.headers)
        url = address.with_model(target.model) if request.model else address.url
        fields = {name: value for name, value in address.headers.items() if name not in ("content-type", "accept")}
        offered = ["realtime"] if "realtime" in (request.scope.get("subprotocols") or ()) else []
        try:
            return await self._connect(target, url, fields, offered)
        except SocketRefused as error:
            fault = endpoint.wire.decode_error(error.status, parse_or_raw(error.body), dict(error.headers))
            fault = redact_secrets(endpoint.known_secrets, fault)
            raise UpstreamError(as_gateway_fault(fault, target.upstream.name)) from None
        except (TimeoutError, ConnectionError) as error:
            raise UpstreamError(network_fault_of(error, target.upstream.name, endpoint.origin)) from None
        except KeyCommandError as error:
            raise UpstreamError(key_fault_of(error, target.upstream.name)) from None

    async def _connect(self, target: Target, url: str, fields: Mapping[str, str], offered: Sequence[str]) -> SocketLink:
        """Make the handshake, again with a new key if a key of a command, or of AWS, is refused."""
        endpoint, row = target.endpoint, target.upstream.row
        connector = self._transports.of(target.upstream.name, row).connector
        secrets = await endpoint.authorise("GET", url, fields, b"")
        try:
            return await open_link(connector, url, {**fields, **secrets}, offered, row.first_event)
        except SocketRefused as error:
            if not endpoint.drop_key(error.status, secrets):
                raise
        secrets = await endpoint.authorise("GET", url, fields, b"")
        return await open_link(connector, url, {**fields, **secrets}, offered, row.first_event)


class RealtimeSession:
    """One session, from the accepted handshake to the end of either side."""

    def __init__(self, request: RelayRequest, target: Target, link: SocketLink, limiter: Limiter) -> None:
        self.usage: Usage | None = None
        self._caller: Caller = request.caller
        self._target = target
        self._secrets = target.endpoint.known_secrets  # some servers repeat an invalid key in an error
        self._link = link
        self._limiter = limiter
        receive, send = request.scope[SOCKET]
        self._receive: Callable[[], Awaitable[AsgiMessage]] = receive
        self._send: Callable[[AsgiMessage], Awaitable[None]] = send
        self._end: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()

    def close(self, code: int, reason: str) -> None:
        """End the session for both sides."""
        if not self._end.done():
            self._end.set_result((code, reason))

    def drain(self) -> None:
        """End the session, because the gateway stops: it has no end of its own."""
        self.close(*_STOPPED)

    async def serve(self) -> None:
        """Pass messages on until either side ends, or nothing was sent for an hour."""
        tasks = {asyncio.ensure_future(self._from_client()), asyncio.ensure_future(self._from_upstream())}
        waits: set[asyncio.Future[Any]] = {*tasks, self._end}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.close(*_STOPPED)
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for task in tasks:
                if not task.cancelled() and task.exception() is not None:
                    self.close(1011, "the session failed")
            code, reason = self._end.result() if self._end.done() else (1011, "")
            self._link.close(code, reason)
            await self._send({"type": "websocket.close", "code": code, "reason": reason})

    async def _from_client(self) -> None:
        while True:
            message = await self._within_idle(self._receive())
            if message is None or message["type"] == "websocket.disconnect":
                code = 1000 if message is None else message.get("code", 1005)
                self.close(1001 if code in _UNSENDABLE else code, "")
                return
            text = message.get("text")
            if not self._may_send(text):
                self.close(1008, "the key does not allow this model")
                return
            await self._link.send(message["bytes"] if text is None else text)

    def _may_send(self, text: str | None) -> bool:
        """Check the models in a message of a key that allows only some: a session can name another one for transcriptions.

        `text` is None for a binary message, which is refused, because a server may parse it as JSON of another encoding.
        """
        if self._caller.has_all_models:
            return True
        if text is None:
            return False
        if "model" not in text.casefold() and "\\" not in text:  # an escape sequence can hide the name: "mod\\u0065l"
            return True
        try:
            found = list(_models_in(parse_object(text.encode())))
        except ToolwireError:
            return False
        return all(
            name == self._target.model or (isinstance(name, str) and self._caller.may_use(name)) for name in found
        )

    async def _from_upstream(self) -> None:
        while True:
            message = await self._within_idle(self._link.receive())
            if message is None:
                code = self._link.close_code
                self.close(1011 if code in _UNSENDABLE else code, redact_text(self._secrets, self._link.close_reason))
                return
            is_text = isinstance(message, str)
            message = redact_text(self._secrets, message) if is_text else message
            await self._send({"type": "websocket.send", "text" if is_text else "bytes": message})
            if is_text and any(name in message[:_TYPE_END] for name in _CHARGED):
                await self._charge(message)

    async def _charge(self, message: str) -> None:
        """Charge a response or a transcription that has ended, and count it as a request.

        Close the session if a limit is exceeded.
        """
        scan = UsageScan()
        scan.feed(message.encode())
        usage = scan.find()
        self.usage = add_usage(self.usage, usage)
        if not self._caller.name:
            return
        try:
            await self._limiter.spend(self._caller, 0 if usage is None else usage.total)
            await self._limiter.admit(self._caller)
        except RateLimited as error:
            self.close(1008, error.message)

    async def _within_idle(self, message: Awaitable[Any]) -> Any:
        try:
            async with asyncio.timeout(_IDLE):
                return await message
        except TimeoutError:
            return None


def _models_in(value: JSON) -> list[JSON]:
    """List the values of all fields `model`, at any depth. Some servers ignore the case of names."""
    if isinstance(value, list):
        return [name for item in value for name in _models_in(item)]
    if not isinstance(value, dict):
        return []
    own = [item for name, item in value.items() if name.casefold() == "model"]
    return [*own, *(name for item in value.values() for name in _models_in(item))]
