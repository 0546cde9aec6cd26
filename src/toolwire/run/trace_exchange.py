"""A recorded exchange of the gateway: the client's request and answer, and those of the upstreams.

    trace = load_trace("traces/….jsonl")
    trace.ingress.body, trace.upstreams[0].answer, trace.outcome, trace.losses

`body` is JSON if it was JSON, else text; a stream is `pieces`, with the original boundaries. Bytes that are not text
(half a character, a picture) are in `base64`.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence

from ..ir.errors import ConfigError
from ..ir.losses import Loss
from ..ir.pointer import JSON
from ..ir.text import to_bytes
from ..ir.value import Value
from .trace import (
    VERSION,
    AnswerHead,
    AnswerPiece,
    ExchangeEnded,
    ExchangeStarted,
    LossReported,
    TraceEvent,
    TraceHeader,
)

__all__ = ["ExchangeTrace", "RecordedAnswer", "RecordedExchange", "exchange_of", "piece_bytes", "record_pieces"]

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
    """Build an exchange from the events of a trace; ConfigError for a trace of another kind."""
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
