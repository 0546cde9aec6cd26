"""Record both sides of a gateway's exchanges, without code in the gateway itself.

    recorder = Recorder(trace_writer(Path("traces")), Sanitiser(Redactor()))
    transports = {"openai": recorder.transport(inner, "openai", "openai_chat")}
    gateway = Gateway(settings, transports=transports, sinks=[recorder])
    app = recorder.wrap(gateway)

The parts of an exchange are matched by the task that handles it. Everything is sanitised before it is passed on.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from errno import ENOBUFS
from logging import getLogger
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from ...asgi.offload import LARGE, Offload
from ...asgi.request import AsgiApp, AsgiMessage, Receive, Scope, Send
from ...ir.losses import Loss
from ...ir.pointer import JSON
from ...net.http.client import HttpTransport
from ...net.http.transport import Reply, RequestBody, StreamedBody, Transport
from ...net.model.server_facts import ProbedTransport
from ...net.trace.file import TraceRetention, trace_folder
from ...run.traces.format import AnswerHead, ExchangeEnded, ExchangeStarted
from ...run.traces.recordings import ExchangeTrace, RecordedAnswer, RecordedExchange, record_pieces
from ...run.traces.sanitise import Sanitiser
from ..keys import keys_in_request
from ..request.routes import WRAPPER, guess_ingress
from .request_log import RequestLog

_log = getLogger("toolwire.gateway")
_MAX_RECORDED_BYTES = 16 * 1024 * 1024  # bytes of the bodies of one side that are kept
# Recordings that wait for the thread, each counted as 32 kB at least: 2,000 short exchanges, or two of the largest.
_MAX_WAITING_BYTES = 64 * 1024 * 1024  # 1/16 of the default of `limits.memory`, in which they are not
_STREAM_TYPES = ("text/event-stream", "application/x-ndjson", "application/vnd.amazon.eventstream")


class _SideRecording:
    """One side of an exchange in progress."""

    def __init__(
        self, recording_start: float, wire: str, path: str, headers: Mapping[str, str], upstream: str = ""
    ) -> None:
        self.recording_start = recording_start  # `time.perf_counter` at the client's request
        self.offset_seconds = time.perf_counter() - recording_start
        self.wire, self.path, self.headers, self.upstream = wire, path, dict(headers), upstream
        self.query: dict[str, str] = {}
        self.request_chunks: list[bytes] = []
        self.status = 0
        self.head_at = 0.0  # seconds since the client's request
        self.answer_headers: dict[str, str] = {}
        self.answer_chunks: list[tuple[float, bytes]] = []
        self.error: str | None = None
        self._remaining_bytes = _MAX_RECORDED_BYTES

    @property
    def size(self) -> int:
        """The number of recorded bytes of both bodies, or a little more."""
        return _MAX_RECORDED_BYTES - max(self._remaining_bytes, 0)

    def record_request_data(self, data: bytes) -> None:
        if data and self._reserve(data):
            self.request_chunks.append(data)

    def record_head(self, status: int, headers: Mapping[str, str]) -> None:
        self.status, self.answer_headers, self.head_at = (
            status,
            dict(headers),
            time.perf_counter() - self.recording_start,
        )

    def record_error(self, error: Exception) -> None:
        """Record a network error; if no head arrived, it has the time of the error."""
        self.error = f"{type(error).__name__}: {error}"
        self.head_at = self.head_at or time.perf_counter() - self.recording_start

    def record_answer_data(self, data: bytes) -> None:
        if data and self._reserve(data):
            self.answer_chunks.append((time.perf_counter() - self.recording_start, data))

    def _reserve(self, data: bytes) -> bool:
        self._remaining_bytes -= len(data)
        if self._remaining_bytes < 0:
            self.error = "too large to be recorded"
        return self._remaining_bytes >= 0

    def sanitise(self, sanitiser: Sanitiser, span: int) -> RecordedExchange:
        """Convert this side to its recorded form, without secrets. Span 1 is the client's side, and others are below."""
        request = ExchangeStarted(
            ms=round(self.offset_seconds * 1000, 3),
            span=span,
            parent=min(span - 1, 1),
            wire=self.wire,
            path=sanitiser.sanitise_text(self.path),
            upstream=self.upstream,
            query=sanitiser.sanitise_query(self.query),
            headers=sanitiser.sanitise_headers(self.headers),
            body=_sanitise_body(b"".join(self.request_chunks), sanitiser),
        )
        return RecordedExchange(request, self._make_answer(sanitiser, span))

    def _make_answer(self, sanitiser: Sanitiser, span: int) -> RecordedAnswer:
        """Convert the answer: a stream to chunks with their times, anything else to one body."""
        kind = self.answer_headers.get("content-type", "").partition(";")[0]
        streamed = kind in _STREAM_TYPES
        head = AnswerHead(
            ms=round(max(self.head_at, self.offset_seconds) * 1000, 3),
            span=span,
            status=self.status,
            headers=sanitiser.sanitise_headers(self.answer_headers),
            body=None if streamed else _sanitise_body(b"".join(data for _, data in self.answer_chunks), sanitiser),
            error=None if self.error is None else sanitiser.sanitise_text(self.error),
        )
        if not streamed or not self.answer_chunks:
            return RecordedAnswer(head)
        return RecordedAnswer(head, record_pieces(span, sanitiser.sanitise_pieces(self.answer_chunks, self.wire)))


class _Recording:
    """An exchange in progress."""

    def __init__(self, client_side: _SideRecording) -> None:
        self.client_side = client_side
        self.upstreams: list[_SideRecording] = []  # one for each attempt or turn
        self.secrets: list[str] = []  # keys of the client and the upstreams, to be removed
        self.request_log: RequestLog | None = None  # set at the end of the request

    @property
    def size(self) -> int:
        """The number of recorded bytes."""
        return sum(side.size for side in (self.client_side, *self.upstreams))


class Recorder:
    """A recorder, which is also a sink. `save_trace` gets every exchange with a model when it is over.

    `report_loss` is called with the kind `recording` and the error if it cannot be written.
    """

    def __init__(
        self,
        save_trace: Callable[[ExchangeTrace], None],
        sanitiser: Sanitiser,
        report_loss: Callable[[str, OSError], None] | None = None,
    ) -> None:
        self._save_trace = save_trace
        self._report_loss = report_loss or _log_loss
        self._sanitiser = sanitiser
        self._offload = Offload(threads=1)
        self._waiting_bytes = 0  # the recording that is being saved included
        self._current_recording: ContextVar[_Recording | None] = ContextVar("toolwire_recording", default=None)

    def __call__(self, request_log: RequestLog, /) -> None:
        recording = self._current_recording.get()
        if recording is not None:
            recording.request_log = request_log

    def wrap(self, app: AsgiApp) -> AsgiApp:
        """Wrap the application to record its exchanges."""

        async def recording_app(scope: Scope, receive: Receive, send: Send) -> None:
            """Serve a request. Record and save it if it is a POST request, as all are for a model, also of a WebSocket."""
            if scope["type"] != "http" or scope["method"] != "POST":
                await app({**scope, WRAPPER: self.wrap}, receive, send)
                return
            recording = _start_recording(scope)
            token = self._current_recording.set(recording)
            try:
                await app(
                    scope,
                    _recording_receive(receive, recording.client_side),
                    _recording_send(send, recording.client_side),
                )
            finally:
                self._current_recording.reset(token)
                try:
                    await self._save_in_thread(recording)
                except OSError as error:
                    self._report_loss("recording", error)
                except Exception:  # noqa: BLE001  # a recording must not fail the request
                    _log.exception("cannot record an exchange")

        return recording_app

    def transport(self, inner: Transport, upstream: str, wire: str) -> Transport:
        """Wrap the transport to an upstream to record its exchanges."""
        return _RecordingTransport(inner, upstream, wire, self._current_recording)

    async def _save_in_thread(self, recording: _Recording) -> None:
        """Save a finished recording, always in the thread: a file is written, and others may be deleted.

        Only requests for a model are saved. Raise OSError if too many wait, on a slow disk.
        """
        request_log = recording.request_log
        if request_log is None or request_log.action != "generate":
            return
        size = max(recording.size, LARGE + 1)
        if self._waiting_bytes and self._waiting_bytes + size > _MAX_WAITING_BYTES:
            raise OSError(ENOBUFS, f"more than {_MAX_WAITING_BYTES} bytes of recordings wait for the disk")
        self._waiting_bytes += size
        try:
            await self._offload.run("", size, self._save_recording, recording, request_log)
        finally:
            self._waiting_bytes -= size

    def _save_recording(self, recording: _Recording, request_log: RequestLog) -> None:
        """Pass the exchange to `save_trace`, without secrets. Span 1 is the client's side, and upstreams follow."""
        sanitiser = self._sanitiser.with_more_secrets(recording.secrets)
        recording.client_side.wire = request_log.ingress
        recorded = datetime.fromtimestamp(request_log.started, UTC).isoformat(timespec="milliseconds")
        self._save_trace(
            ExchangeTrace(
                sanitiser.sanitise_text(request_log.id),
                recorded.replace("+00:00", "Z"),
                recording.client_side.sanitise(sanitiser, 1),
                tuple(side.sanitise(sanitiser, span) for span, side in enumerate(recording.upstreams, 2)),
                _make_outcome(request_log, recording.client_side.head_at, sanitiser),
                tuple(_sanitise_loss(loss, sanitiser) for loss in request_log.losses),
            )
        )


def _log_loss(kind: str, error: OSError) -> None:
    _log.error("cannot write a %s: %s", kind, error)


class _RecordingTransport:
    """A transport that adds each exchange with an upstream to the recording of the current task."""

    def __init__(
        self, inner: Transport, upstream: str, wire: str, current_recording: ContextVar[_Recording | None]
    ) -> None:
        self._inner = inner
        self._upstream = upstream
        self._wire = wire
        self._current_recording = current_recording

    def for_probes(self) -> HttpTransport | None:
        """Return the client of `inner` for probes, which are not recorded."""
        return self._inner.for_probes() if isinstance(self._inner, ProbedTransport) else None

    def post(
        self, url: str, headers: Mapping[str, str], secrets: Mapping[str, str], body: RequestBody, seconds: float
    ) -> AbstractAsyncContextManager[Reply]:
        """Post as `inner` does, and add the exchange and its secrets to the current recording, if there is one."""
        recording = self._current_recording.get()
        if recording is None:
            return self._inner.post(url, headers, secrets, body, seconds)
        parts = urlsplit(url)
        side = _SideRecording(
            recording.client_side.recording_start,
            self._wire,
            parts.path,
            {**headers, **secrets},
            upstream=self._upstream,
        )
        side.query = dict(parse_qsl(parts.query))
        if isinstance(body, StreamedBody):
            body = StreamedBody(_record_chunks(body, side), body.length)
        else:
            side.record_request_data(body)
        recording.upstreams.append(side)
        recording.secrets += [value.rpartition(" ")[2] for value in secrets.values()]  # without "Bearer "
        return _record_post(self._inner.post(url, headers, secrets, body, seconds), side)

    def __getattr__(self, name: str) -> Any:
        """Return a method that is not recorded: `send`, which reads reports about models."""
        return getattr(self._inner, name)

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _record_chunks(body: StreamedBody, side: _SideRecording) -> AsyncIterator[bytes]:
    async for chunk in body.chunks:
        side.record_request_data(chunk)
        yield chunk


@asynccontextmanager
async def _record_post(pending_reply: AbstractAsyncContextManager[Reply], side: _SideRecording) -> AsyncIterator[Reply]:
    """Record the head of a reply and its body while it is read, or a network error, which is raised again."""
    try:
        async with pending_reply as reply:
            side.record_head(reply.status, reply.headers)
            yield _RecordingReply(reply, side)
    except (TimeoutError, ConnectionError) as error:
        side.record_error(error)
        raise


class _RecordingReply:
    """A reply that records its body while it is read."""

    def __init__(self, reply: Reply, side: _SideRecording) -> None:
        self.status = reply.status
        self.headers = reply.headers
        self._reply = reply
        self._side = side

    async def read(self) -> bytes:
        data = await self._reply.read()
        self._side.record_answer_data(data)
        return data


def _start_recording(scope: Scope) -> _Recording:
    """Start a recording with the head of the client's request; its keys are secrets to remove."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    path: str = scope["path"]
    recording = _Recording(_SideRecording(time.perf_counter(), guess_ingress(path, headers).wire, path, headers))
    recording.client_side.query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
    recording.secrets = keys_in_request(headers, recording.client_side.query)
    return recording


def _recording_receive(receive: Receive, side: _SideRecording) -> Receive:
    """Wrap `receive` to record the body of the client's request."""

    async def record_request_data() -> AsgiMessage:
        message = await receive()
        side.record_request_data(message.get("body", b""))
        return message

    return record_request_data


def _recording_send(send: Send, side: _SideRecording) -> Send:
    """Wrap `send` to record the answer to the client."""

    async def record_answer_data(message: AsgiMessage) -> None:
        if message["type"] == "http.response.start":
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]}
            side.record_head(message["status"], headers)
        else:
            side.record_answer_data(message.get("body", b""))
        await send(message)

    return record_answer_data


def _sanitise_body(data: bytes, sanitiser: Sanitiser) -> JSON:
    """Sanitise a body as JSON if possible, else as text. An empty body is None."""
    if not data:
        return None
    try:
        return sanitiser.sanitise_body(msgspec.json.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return sanitiser.sanitise_non_json(data)


def _make_outcome(request_log: RequestLog, answered_at: float, sanitiser: Sanitiser) -> ExchangeEnded:
    """Convert the request log to the recorded outcome, not before `answered_at`; texts from outside are sanitised."""
    first_chunk = request_log.first_chunk_seconds
    return ExchangeEnded(
        ms=round(max(request_log.seconds, answered_at) * 1000, 3),
        span=1,
        model=sanitiser.sanitise_text(request_log.model),
        upstream=request_log.upstream,
        upstream_model=sanitiser.sanitise_text(request_log.upstream_model),
        status=request_log.status,
        error=None if request_log.error is None else sanitiser.sanitise_text(request_log.error),
        stream=request_log.stream,
        passed=request_log.passed_through,
        attempts=request_log.attempts,
        ttfc_ms=None if first_chunk is None else round(first_chunk * 1000, 3),
        overhead_ms=round(request_log.overhead * 1000, 3),
        stop=None if request_log.stop is None else sanitiser.sanitise_text(request_log.stop),
        usage=request_log.usage,
        calls=tuple(sanitiser.sanitise_text(name) for name in request_log.calls),
        repairs=tuple(sanitiser.sanitise_text(str(step)) for repair in request_log.repairs for step in repair.steps),
    )


def _sanitise_loss(loss: Loss, sanitiser: Sanitiser) -> Loss:
    return msgspec.convert(sanitiser.sanitise_document(msgspec.to_builtins(loss)), Loss)


def trace_writer(folder: Path, keep: TraceRetention | None = None) -> Callable[[ExchangeTrace], None]:
    """Return a function that writes each exchange to a file of its own, readable only by its owner."""
    write = trace_folder(folder, keep)

    def write_trace(trace: ExchangeTrace) -> None:
        when = trace.recorded.replace(":", "").replace(".", "-")
        wire, upstream = trace.ingress.request.wire, trace.outcome.upstream or "nowhere"
        write(f"{when}-{wire}-{upstream}-{trace.id}".replace("[removed]", "x"), trace.header, trace.events)

    return write_trace
