"""Record both sides of a gateway's exchanges, without code in the gateway itself.

    recorder = Recorder(keep=into(Path("traces")), sanitiser=Sanitiser(Redactor()))
    gateway = Gateway(settings, transports=recorder.transports(rows, environment), sinks=[recorder])
    app = recorder.around(gateway)

The parts of an exchange are matched by the task that handles it. Everything is sanitised before it is passed on.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from itertools import count
from logging import getLogger
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import msgspec

from ..ir.errors import ConfigError
from ..ir.losses import Loss
from ..ir.pointer import JSON
from ..net.http import Reply, Transport
from .asgi import AsgiApp, AsgiMessage, Receive, Scope, Send
from .fronts import guess_ingress
from .keys import keys_in_request
from .sanitise import Sanitiser
from .trace import VERSION, RecordedAnswer, RecordedExchange, RecordedOutcome, Trace, pieces_of
from .turn import RequestLog

__all__ = ["Recorder", "trace_writer"]

_log = getLogger("toolwire.gateway")
_MOST = 16 * 1024 * 1024  # bytes of one body that are kept
_STREAMS = ("text/event-stream", "application/x-ndjson")


class _SideRecording:
    """One side of an exchange in progress."""

    def __init__(self, began: float, wire: str, path: str, headers: Mapping[str, str], **more: str) -> None:
        self.began = began
        self.at = time.perf_counter() - began
        self.wire, self.path, self.headers, self.more = wire, path, dict(headers), more
        self.query: dict[str, str] = {}
        self.asked: list[bytes] = []
        self.status = 0
        self.head_at = 0.0
        self.answer_headers: dict[str, str] = {}
        self.said: list[tuple[float, bytes]] = []
        self.error: str | None = None
        self._left = _MOST

    def hear(self, data: bytes) -> None:
        if data and self._room(data):
            self.asked.append(data)

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        self.status, self.answer_headers, self.head_at = status, dict(headers), time.perf_counter() - self.began

    def say(self, data: bytes) -> None:
        if data and self._room(data):
            self.said.append((time.perf_counter() - self.began, data))

    def _room(self, data: bytes) -> bool:
        self._left -= len(data)
        if self._left < 0:
            self.error = "too large to be recorded"
        return self._left >= 0

    def cleaned(self, sanitiser: Sanitiser) -> RecordedExchange:
        path = sanitiser.text(self.path)
        return RecordedExchange(
            self.wire,
            path,
            ms=round(self.at * 1000, 3),
            query=sanitiser.query(self.query),
            headers=sanitiser.headers(self.headers),
            body=_body(b"".join(self.asked), sanitiser),
            answer=self._answer(sanitiser),
            **self.more,
        )

    def _answer(self, sanitiser: Sanitiser) -> RecordedAnswer:
        kind = self.answer_headers.get("content-type", "").partition(";")[0]
        streamed = kind in _STREAMS
        return RecordedAnswer(
            self.status,
            round(self.head_at * 1000, 3),
            sanitiser.headers(self.answer_headers),
            None if streamed else _body(b"".join(data for _, data in self.said), sanitiser),
            pieces_of(sanitiser.pieces(self.said, self.wire)) if streamed and self.said else (),
            None if self.error is None else sanitiser.text(self.error),
        )


class _Recording:
    """An exchange in progress."""

    def __init__(self, front: _SideRecording) -> None:
        self.front = front
        self.upstreams: list[_SideRecording] = []
        self.secrets: list[str] = []
        self.turn: RequestLog | None = None


class Recorder:
    """A recorder, which is also a sink. `keep` gets every exchange with a model when it is over."""

    def __init__(self, keep: Callable[[Trace], None], sanitiser: Sanitiser) -> None:
        self._keep = keep
        self._sanitiser = sanitiser
        self._now: ContextVar[_Recording | None] = ContextVar("toolwire_recording", default=None)

    def __call__(self, request_log: RequestLog, /) -> None:
        taking = self._now.get()
        if taking is not None:
            taking.turn = request_log

    def wrap(self, app: AsgiApp) -> AsgiApp:
        """Wrap the application to record its exchanges."""

        async def overheard(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or scope["method"] != "POST":
                await app(scope, receive, send)
                return
            taking = _start_recording(scope)
            token = self._now.set(taking)
            try:
                await app(scope, _recording_receive(receive, taking.front), _recording_send(send, taking.front))
            finally:
                self._now.reset(token)
                try:
                    self._finish(taking)
                except Exception:  # noqa: BLE001  # a full disk must not fail the request
                    _log.exception("cannot record an exchange")

        return overheard

    def transport(self, inner: Transport, upstream: str, wire: str) -> Transport:
        """Wrap the transport to an upstream to record its exchanges."""
        return _RecordingTransport(inner, upstream, wire, self._now)

    def _finish(self, taking: _Recording) -> None:
        request_log = taking.turn
        if request_log is None or request_log.action != "generate":
            return
        sanitiser = self._sanitiser.with_more_secrets(taking.secrets)
        taking.front.wire = request_log.front
        recorded = datetime.fromtimestamp(request_log.started, UTC).isoformat(timespec="milliseconds")
        self._keep(
            Trace(
                VERSION,
                sanitiser.text(request_log.id),
                recorded.replace("+00:00", "Z"),
                taking.front.cleaned(sanitiser),
                tuple(half.cleaned(sanitiser) for half in taking.upstreams),
                _outcome(request_log, sanitiser),
            )
        )


class _RecordingTransport:
    def __init__(self, inner: Transport, upstream: str, wire: str, now: ContextVar[_Recording | None]) -> None:
        self._inner = inner
        self._upstream = upstream
        self._wire = wire
        self._now = now

    def post(
        self, url: str, headers: Mapping[str, str], secrets: Mapping[str, str], body: bytes, seconds: float
    ) -> AbstractAsyncContextManager[Reply]:
        posting = self._inner.post(url, headers, secrets, body, seconds)
        taking = self._now.get()
        if taking is None:
            return posting
        parts = urlsplit(url)
        half = _SideRecording(
            taking.front.began, self._wire, parts.path, {**headers, **secrets}, upstream=self._upstream
        )
        half.query = dict(parse_qsl(parts.query))
        half.hear(body)
        taking.upstreams.append(half)
        taking.secrets += [value.rpartition(" ")[2] for value in secrets.values()]
        return _record_post(posting, half)

    async def aclose(self) -> None:
        await self._inner.aclose()


@asynccontextmanager
async def _record_post(posting: AbstractAsyncContextManager[Reply], half: _SideRecording) -> AsyncIterator[Reply]:
    try:
        async with posting as reply:
            half.head(reply.status, reply.headers)
            yield _RecordingReply(reply, half)
    except (TimeoutError, ConnectionError) as error:
        half.error = f"{type(error).__name__}: {error}"
        raise


class _RecordingReply:
    def __init__(self, reply: Reply, half: _SideRecording) -> None:
        self.status = reply.status
        self.headers = reply.headers
        self._reply = reply
        self._half = half

    async def read(self) -> bytes:
        data = await self._reply.read()
        self._half.say(data)
        return data


def _start_recording(scope: Scope) -> _Recording:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    path: str = scope["path"]
    taking = _Recording(_SideRecording(time.perf_counter(), guess_ingress(path, headers).wire, path, headers))
    taking.front.query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
    taking.secrets = keys_in_request(headers, taking.front.query)
    return taking


def _recording_receive(receive: Receive, half: _SideRecording) -> Receive:
    async def hear() -> AsgiMessage:
        message = await receive()
        half.hear(message.get("body", b""))
        return message

    return hear


def _recording_send(send: Send, half: _SideRecording) -> Send:
    async def say(message: AsgiMessage) -> None:
        if message["type"] == "http.response.start":
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]}
            half.head(message["status"], headers)
        else:
            half.say(message.get("body", b""))
        await send(message)

    return say


def _body(data: bytes, sanitiser: Sanitiser) -> JSON:
    if not data:
        return None
    try:
        return sanitiser.body(msgspec.json.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return sanitiser.non_json(data)


def _outcome(request_log: RequestLog, sanitiser: Sanitiser) -> RecordedOutcome:
    return RecordedOutcome(
        sanitiser.text(request_log.model),
        request_log.upstream,
        sanitiser.text(request_log.upstream_model),
        request_log.status,
        request_log.error,
        request_log.stream,
        request_log.passed,
        request_log.attempts,
        round(request_log.seconds * 1000, 3),
        None if request_log.first is None else round(request_log.first * 1000, 3),
        round(request_log.overhead * 1000, 3),
        request_log.stop,
        request_log.usage,
        tuple(sanitiser.text(name) for name in request_log.calls),
        tuple(msgspec.convert(sanitiser.document(msgspec.to_builtins(loss)), Loss) for loss in request_log.losses),
        tuple(str(step) for repair in request_log.repairs for step in repair.steps),
    )


def trace_writer(folder: Path) -> Callable[[Trace], None]:
    """Write each exchange to a file of its own, readable only by its owner."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror}") from None

    numbers = count(2)

    def keep(trace: Trace) -> None:
        when = trace.recorded.replace(":", "").replace(".", "-")
        stem = f"{when}-{trace.ingress.wire}-{trace.outcome.upstream or 'nowhere'}-{trace.id}".replace("[removed]", "x")
        path = folder / f"{stem}.json"
        while path.exists():  # a client may give several requests the same id
            path = folder / f"{stem}-{next(numbers)}.json"
        data = msgspec.json.format(msgspec.json.encode(trace), indent=2)
        unfinished = path.with_suffix(".part")
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            out.write(data + b"\n")
        unfinished.replace(path)

    return keep
