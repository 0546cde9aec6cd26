"""Recordings, read from the events of a trace: an agent run, or an exchange of the gateway.

A recorded run has its operations as spans, and its requests, responses and results as canonical values. A recorded
exchange has the client's request and answer, and the requests and answers of the upstreams:

    trace = load_trace("traces/….jsonl")
    trace.ingress.body, trace.upstreams[0].answer, trace.outcome, trace.losses

`body` is JSON if it was JSON, else text; a stream is `pieces`, with the original boundaries. Bytes that are not text
(half a character, a picture) are in `base64`.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec

from ...ir.errors import ConfigError
from ...ir.losses import Loss
from ...ir.parts import ToolCall, ToolResult
from ...ir.pointer import JSON, Object
from ...ir.request import Request
from ...ir.response import Response
from ...ir.text import to_bytes
from ...ir.value import Value
from .format import (
    VERSION,
    AnswerHead,
    AnswerPiece,
    ApprovalAsked,
    ApprovalDecided,
    CallStarted,
    ExchangeEnded,
    ExchangeStarted,
    LossReported,
    OperationFailed,
    RequestSent,
    ResponseReceived,
    ResultReturned,
    RunEnded,
    RunStarted,
    TraceEvent,
    TraceHeader,
    is_cut,
)
from .redact import REMOVED

SpanStart: TypeAlias = RunStarted | RequestSent | CallStarted | ApprovalAsked
SpanEnd: TypeAlias = RunEnded | ResponseReceived | ResultReturned | ApprovalDecided | OperationFailed
T = TypeVar("T")


class RecordedSpan(Value, frozen=True):
    """An operation of a run. `end` is None if the recording was interrupted before; `depth` is 0 for the run itself."""

    start: SpanStart
    end: SpanEnd | None = None
    depth: int = 0


class RecordedTurn(Value, frozen=True):
    """A model request and its response; None if it failed. `request` is the whole document, nothing left out."""

    span: int
    request: Object
    response: Response | None
    error: str = ""


class RecordedCall(Value, frozen=True):
    """A call and its result; None if it has none, such as a cancelled one."""

    span: int
    call: ToolCall
    result: ToolResult | None
    code: str = "ok"
    effect: str | None = None


class RunTrace(Value, frozen=True):
    """A recorded run. `spans` are in the order of their start; `losses` are from all requests."""

    header: TraceHeader
    spans: tuple[RecordedSpan, ...]
    losses: tuple[Loss, ...] = ()

    @property
    def root(self) -> RecordedSpan:
        return self.spans[0]

    @property
    def duration_ms(self) -> float:
        return max(max(span.start.ms, 0.0 if span.end is None else span.end.ms) for span in self.spans)

    def request(self) -> Request:
        """Return the first request of the outermost run, with all its tools.

        Raise ConfigError for a trace without such a run.
        """
        start = self.root.start
        if not isinstance(start, RunStarted):
            raise ConfigError(
                "the trace does not start with an agent run", hint="record it with observers of the Agent"
            )
        return _convert(start.request, Request, start)

    def turns(self, purpose: str = "") -> list[RecordedTurn]:
        """Return the model requests of the outermost run, in order; requests of subagents are left out.

        `purpose`: "auxiliary" for the requests to the auxiliary model.
        """
        documents = _request_documents(self.spans)
        return [
            _make_turn(span, documents[span.start.span])
            for span in self._children(RequestSent)
            if isinstance(span.start, RequestSent) and span.start.purpose == purpose
        ]

    def calls(self) -> list[RecordedCall]:
        """Return the tool calls of the outermost run, in the order of their start."""
        return [
            _make_call(span, span.start) for span in self._children(CallStarted) if isinstance(span.start, CallStarted)
        ]

    def decisions(self) -> list[tuple[ApprovalAsked, ApprovalDecided]]:
        """Return the questions for approval in order, with their answers."""
        return [
            (span.start, span.end)
            for span in self.spans
            if isinstance(span.start, ApprovalAsked) and isinstance(span.end, ApprovalDecided)
        ]

    def subagent_calls(self) -> frozenset[int]:
        """Return the spans of the calls whose tools ran another agent."""
        return frozenset(span.start.parent for span in self.spans[1:] if isinstance(span.start, RunStarted))

    def _children(self, kind: type[SpanStart]) -> Iterator[RecordedSpan]:
        root = self.root.start.span
        return (span for span in self.spans if span.start.parent == root and isinstance(span.start, kind))


def run_of(header: TraceHeader, events: Sequence[TraceEvent], name: str) -> RunTrace:
    """Build a run from the events of a trace; ConfigError for a trace of another kind, or without operations."""
    if header.kind != "run":
        raise ConfigError(f"{name} is the trace of an {header.kind}, not of a run")
    ends = {event.span: event for event in events if isinstance(event, SpanEnd)}
    depths: dict[int, int] = {}
    spans: list[RecordedSpan] = []
    for event in events:
        if isinstance(event, SpanStart):
            depths[event.span] = depths.get(event.parent, -1) + 1
            spans.append(RecordedSpan(event, ends.get(event.span), depths[event.span]))
    if not spans:
        raise ConfigError(f"{name} has no operations", hint="the recording was interrupted; record it again")
    losses = dict.fromkeys(event.loss for event in events if isinstance(event, LossReported))
    return RunTrace(header, tuple(spans), tuple(losses))


def _request_documents(spans: Sequence[RecordedSpan]) -> dict[int, Object]:
    """Return the whole request of each span: the recorded part after the messages that it shares with its base."""
    documents: dict[int, Object] = {}
    for span in spans:
        start = span.start
        if isinstance(start, RunStarted):
            documents[start.span] = start.request if isinstance(start.request, dict) else {}
        elif isinstance(start, RequestSent):
            documents[start.span] = _complete_request(start, documents.get(start.base, {}))
    return documents


def _complete_request(start: RequestSent, base: Object) -> Object:
    body: Object = start.body if isinstance(start.body, dict) else {}
    messages = [*_list_in(base, "messages")[: max(0, start.kept)], *_list_in(body, "messages")]
    if body.get("tools") == REMOVED:  # of a stored run, which has only their names
        return {**body, "messages": messages}
    return {**body, "messages": messages, "tools": _list_in(body if "tools" in body else base, "tools")}


def _list_in(document: Object, name: str) -> list[JSON]:
    """Return a list of a recorded request. Raise ConfigError if it is invalid."""
    value = document.get(name, [])
    if not isinstance(value, list):
        raise ConfigError(f"the trace has a request with invalid {name}", hint="record the run again")
    return value


def _make_turn(span: RecordedSpan, document: Object) -> RecordedTurn:
    end = span.end
    if isinstance(end, ResponseReceived) and end.body is not None:
        return RecordedTurn(span.start.span, document, _convert(end.body, Response, end))
    error = f"{end.type}: {end.message}" if isinstance(end, OperationFailed) else "no response was recorded"
    return RecordedTurn(span.start.span, document, None, error)


def _make_call(span: RecordedSpan, start: CallStarted) -> RecordedCall:
    end = span.end
    call = _convert(start.call, ToolCall, start)
    if isinstance(end, ResultReturned) and end.result is not None:
        return RecordedCall(start.span, call, _convert(end.result, ToolResult, end), end.code, start.effect)
    return RecordedCall(start.span, call, None, "cancelled", start.effect)


def _convert(document: JSON, kind: type[T], event: Any) -> T:
    """Convert a recorded document; ConfigError if it does not fit, as after a cut."""
    try:
        return msgspec.convert(document, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        reason = "it was cut, because it was too long" if is_cut(document) else str(error)
        raise ConfigError(f"the {kind.__name__} of span {event.span} cannot be read: {reason}") from None


_CLIENT = 1  # the span of the client's side


class RecordedAnswer(Value, frozen=True):
    """An answer: the head with its body, or the pieces of a stream."""

    head: AnswerHead
    pieces: tuple[AnswerPiece, ...] = ()

    @property
    def data(self) -> bytes:
        return b"".join(map(piece_bytes, self.pieces)) if self.pieces else _body_bytes(self.head.body)


class RecordedExchange(Value, frozen=True):
    """A request and its answer."""

    request: ExchangeStarted
    answer: RecordedAnswer | None = None

    @property
    def data(self) -> bytes:
        """The body of the request."""
        return _body_bytes(self.request.body)


class ExchangeTrace(Value, frozen=True):
    """A recorded exchange. `ingress` is the client's side."""

    id: str
    recorded: str  # time of the request, ISO 8601 in UTC
    ingress: RecordedExchange
    upstreams: tuple[RecordedExchange, ...] = ()
    outcome: ExchangeEnded = ExchangeEnded(ms=0.0, span=_CLIENT)
    losses: tuple[Loss, ...] = ()

    @property
    def header(self) -> TraceHeader:
        return TraceHeader(VERSION, self.id, "exchange", self.recorded)

    @property
    def events(self) -> list[TraceEvent]:
        """The events in the order of time. The end is last."""
        found: list[TraceEvent] = []
        for exchange in (self.ingress, *self.upstreams):
            found.append(exchange.request)
            if exchange.answer is not None:
                found += [exchange.answer.head, *exchange.answer.pieces]
        found.sort(key=lambda event: event.ms)
        found += [LossReported(ms=self.outcome.ms, span=_CLIENT, loss=loss) for loss in self.losses]
        return [*found, self.outcome]


def exchange_of(header: TraceHeader, events: Sequence[TraceEvent], name: str) -> ExchangeTrace:
    """Build an exchange from the events of a trace; ConfigError for a trace of another kind, or without a request."""
    if header.kind != "exchange":
        raise ConfigError(f"{name} is the trace of a {header.kind}, not of an exchange")
    sides = list(_exchanges(events))
    if not sides:
        raise ConfigError(f"{name} has no request", hint="the recording was interrupted; record it again")
    ends = [event for event in events if isinstance(event, ExchangeEnded)]
    losses = tuple(event.loss for event in events if isinstance(event, LossReported))
    outcome = ends[-1] if ends else ExchangeEnded(ms=events[-1].ms, span=_CLIENT)
    return ExchangeTrace(header.id, header.recorded, sides[0], tuple(sides[1:]), outcome, losses)


def _exchanges(events: Sequence[TraceEvent]) -> Iterator[RecordedExchange]:
    """Yield each request with its answer, in the order of the requests; the first one is the client's."""
    heads = {event.span: event for event in events if isinstance(event, AnswerHead)}
    pieces: dict[int, list[AnswerPiece]] = {}
    for event in events:
        if isinstance(event, AnswerPiece):
            pieces.setdefault(event.span, []).append(event)
    for event in events:
        if isinstance(event, ExchangeStarted):
            head = heads.get(event.span)
            answer = None if head is None else RecordedAnswer(head, tuple(pieces.get(event.span, ())))
            yield RecordedExchange(event, answer)


def piece_bytes(piece: AnswerPiece) -> bytes:
    return b64decode(piece.base64) if piece.base64 is not None else (piece.text or "").encode()


def record_pieces(span: int, pieces: Sequence[tuple[float, bytes]]) -> tuple[AnswerPiece, ...]:
    """Convert seconds and bytes to the recorded form."""
    return tuple(_record_piece(span, round(seconds * 1000, 3), data) for seconds, data in pieces)


def _record_piece(span: int, ms: float, data: bytes) -> AnswerPiece:
    try:
        return AnswerPiece(ms=ms, span=span, text=data.decode())
    except UnicodeDecodeError:
        return AnswerPiece(ms=ms, span=span, base64=b64encode(data).decode())


def _body_bytes(body: JSON) -> bytes:
    if body is None:
        return b""
    return body.encode() if isinstance(body, str) else to_bytes(body)
