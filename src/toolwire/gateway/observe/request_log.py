"""The record of one request, for the log, the metrics, the usage accounts and the live view, with its only writer.

The record takes the statistics of the answer from `AnswerStats`, which also keeps the turn that the client may not
return in full.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from itertools import count, groupby
from operator import attrgetter
from secrets import token_hex
from time import perf_counter, time
from typing import Any, NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from ...asgi.http_exchange import HttpExchange
from ...bridge.conversation.turns import StoredTurn, TurnRecorder
from ...bridge.restoration.repair import CallRepair
from ...ir.events import (
    CallDelta,
    CallEnd,
    CallStart,
    Event,
    PartStart,
    ReasoningDelta,
    ResponseEnd,
    ResponseStart,
    TextDelta,
    UsageUpdate,
    WholePart,
)
from ...ir.losses import Loss, Losses
from ...ir.parts import ToolCall
from ...ir.response import Response, Usage
from ...wire.documents import AnswerSummary
from ..request.body import BYTES_PER_TOKEN, RequestSize, estimate_tokens
from ..request.client_request import ClientRequest
from ..routing.router import Target

_MAX_TOKENS = 10**9  # of one answer; more is an error, which must not be charged to any account

_get_item = attrgetter("__class__", "key", "section")
_get_escaped = attrgetter("escaped")
_get_counts = attrgetter("input", "output", "cached", "reasoning")


class AnswerStats(Struct, eq=False):
    """Statistics of an answer, fed with its events or with the whole answer.

    A stream may append its content deltas to `new_deltas` instead of calling `add_event` for each: they are the most
    frequent events, and are counted together.
    """

    usage: Usage | None = None
    calls: list[str] = []  # names
    turn: StoredTurn | None = None  # the whole turn, once it is complete
    stop: str | None = None
    id: str = ""
    model: str = ""
    abandoned: bool = False  # by the client, while the upstream was working
    ended_calls: int = 0
    new_deltas: list[Event] = []  # content deltas that are not counted yet
    has_part: bool = False  # a part without deltas has begun, such as a picture or a search of the provider
    _content_bytes: int = 0
    _open_call_bytes: int = 0
    _open_calls: dict[int, int] = {}  # the same, by key
    _recorder: TurnRecorder | None = None  # of a stream
    _plausible_usage: Usage | None = None  # the last one that was checked successfully

    @property
    def content_bytes(self) -> int:
        """The bytes of text and arguments."""
        if self.new_deltas:
            self._count_deltas()
        return self._content_bytes

    @property
    def has_content(self) -> bool:
        """True if the model has produced something: start events and empty deltas are no content."""
        return bool(self.content_bytes or self.calls or self.has_part)

    @property
    def open_call_bytes(self) -> int:
        """The bytes of arguments of calls that have not ended."""
        if self.new_deltas:
            self._count_deltas()
        return self._open_call_bytes

    def add_response(self, response: Response) -> None:
        """Add a whole answer. Its size only matters for an estimate, so it is measured only if no usage is reported."""
        parts, stop = response.parts, response.stop
        self.usage, self.id, self.model = response.usage, response.id, response.model
        self.stop = None if stop is None else stop.reason
        if self.reported_usage() is None:
            self._content_bytes = sum(len(getattr(part, "text", "")) for part in parts)
        self.calls += [part.name for part in parts if isinstance(part, ToolCall)]
        self.turn = StoredTurn(parts)

    def add_summary(self, summary: AnswerSummary) -> None:
        """Add a whole answer of which only a summary was read."""
        self.usage, self.id, self.model, self.stop = summary.usage, summary.id, summary.model, summary.stop
        self.calls += summary.calls

    def add_event(self, event: Event) -> None:
        """Add an event of a stream. Content deltas are counted later, together."""
        if isinstance(event, (TextDelta, ReasoningDelta, CallDelta)):
            self.new_deltas.append(event)
            return
        if self.new_deltas:
            self._count_deltas()
        add = _STEPS.get(type(event), AnswerStats._record)
        add(self, event)

    def _count_deltas(self) -> None:
        """Count and clear the new deltas, in runs of an item. A stream that is read event by event has one at a time."""
        deltas = self.new_deltas
        if len(deltas) == 1:
            self._count_content(*_get_item(deltas[0]), _get_escaped(deltas[0]))
        else:
            for item, run in groupby(deltas, _get_item):
                self._count_content(*item, b"".join(map(_get_escaped, run)))
        deltas.clear()

    def _count_content(self, kind: type, key: int, section: int | None, content: bytes) -> None:
        """Count content of an item, as arguments of an open call or, for text and reasoning, in the recorded turn."""
        size = len(content)
        self._content_bytes += size
        if kind is CallDelta:
            self._open_call_bytes += size
            self._open_calls[key] = self._open_calls.get(key, 0) + size
        else:
            self._open_recorder().add_content(key, section, content)

    def _start_response(self, event: ResponseStart) -> None:
        self.id, self.model = event.id, event.model

    def _update_usage(self, event: UsageUpdate) -> None:
        self.usage = event.usage

    def _start_call(self, event: CallStart) -> None:
        self.calls.append(event.name)
        self._record(event)

    def _end_call(self, event: CallEnd) -> None:
        self.ended_calls += 1
        self._open_call_bytes -= self._open_calls.pop(event.key, 0)
        self._record(event)

    def _start_part(self, event: PartStart | WholePart) -> None:
        self.has_part = True
        self._record(event)

    def _end_response(self, event: ResponseEnd) -> None:
        if event.stops and event.stops[0] is not None:
            self.stop = event.stops[0].reason
        self.turn = StoredTurn(self._open_recorder().parts(event))

    def _record(self, event: Event) -> None:
        self._open_recorder().feed(event)

    def _open_recorder(self) -> TurnRecorder:
        if self._recorder is None:
            self._recorder = TurnRecorder()
        return self._recorder

    def reported_usage(self) -> Usage | None:
        """Return the usage that the upstream reports, or None if it is missing, zero, negative or far too large."""
        usage = self.usage
        if usage is None or usage is self._plausible_usage:
            return usage
        if not usage.input and not usage.output:
            return None
        counts = list(filter(None, _get_counts(usage)))
        if min(counts) < 0 or max(counts) > _MAX_TOKENS:
            return None
        self._plausible_usage = usage
        return usage

    def estimate(self, request: bytes | RequestSize) -> Usage | None:
        """Estimate the usage from the sizes. Return None without any content, unless the client left before it."""
        if not self.content_bytes and not self.abandoned:
            return None
        tokens = estimate_tokens(request) if isinstance(request, bytes) else request.tokens
        return Usage(tokens, -(-self.content_bytes // BYTES_PER_TOKEN))


_STEPS: dict[type, Callable[[AnswerStats, Any], None]] = {
    ResponseStart: AnswerStats._start_response,
    UsageUpdate: AnswerStats._update_usage,
    CallStart: AnswerStats._start_call,
    CallEnd: AnswerStats._end_call,
    PartStart: AnswerStats._start_part,
    WholePart: AnswerStats._start_part,
    ResponseEnd: AnswerStats._end_response,
}


OTHER = "other"  # the name of everything beyond a maximum number of names
_MAX_CONCEPTS = 200  # of losses; as many as the labels of a metric (docs/gateway-observability.md)
_CLIENT_CLOSED_REQUEST = 499  # nginx's status for a client that closed the connection
_PROCESS = token_hex(8)
_request_numbers = count()


class RequestLog(Struct):
    """A record that is filled while the request is answered. Times are in seconds."""

    id: str
    started: float  # seconds since 1970
    ingress: str
    action: str = ""  # the meaning of the path; empty for an unknown path
    method: str = ""
    path: str = ""  # without the query, which may contain a key
    caller: str = ""  # the name of the client's key
    model: str = ""  # the client's name for it
    is_configured_model: bool = False  # `model` is a name of the settings; set for a request that reached no upstream
    upstream: str = ""
    upstream_model: str = ""
    provider: str = ""
    wire: str = ""
    stream: bool = False
    passed_through: bool = False  # bytes were forwarded unchanged
    status: int = 0
    error: str | None = None  # the kind of fault
    error_code: str | None = None  # of the fault; it may be the upstream's
    attempts: int = 0
    failures: tuple[tuple[str, str], ...] = ()  # upstreams that failed before any output, and the kind of fault
    seconds: float = 0.0
    first_chunk_seconds: float | None = None  # until the first chunk of a stream
    overhead: float = 0.0  # time of the gateway itself, up to the first chunk
    usage: Usage | None = None
    is_estimated: bool = False  # by us: the upstream reported no usage
    stop: str | None = None
    answer_id: str = ""
    answer_model: str = ""  # the model that the answer names
    calls: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()
    loss_counts: Mapping[str, int] | None = None  # see `count_losses`
    info_counts: Mapping[str, int] = {}  # of severity `info`
    repairs: tuple[CallRepair, ...] = ()
    declared_tools: int = 0  # of a request whose tools were selected; 0 if all were offered
    offered_tools: int = 0
    tool_searches: int = 0  # calls of `search_tools`
    has_begun: bool = False  # sinks were notified of its start
    forward_headers: Mapping[str, str] = {}  # additional headers for the upstream
    span: object = None  # the tracer's

    def count_failures(self) -> Mapping[tuple[str, str], int]:
        """Count the failed attempts by upstream and kind of fault, in the order of their first occurrence."""
        return Counter(self.failures)

    def count_losses(self) -> Mapping[str, int]:
        """Count the losses by concept, and return the counts. Concepts beyond the first 200 count as `other`.

        There may be hundreds of thousands, each of its own concept, so they are counted once, in a thread, for all sinks.
        """
        if self.loss_counts is None:
            counts: dict[str, int] = {}
            info_counts: dict[str, int] = {}
            for loss in self.losses:
                concept = loss.concept if loss.concept in counts or len(counts) < _MAX_CONCEPTS else OTHER
                counts[concept] = counts.get(concept, 0) + 1
                if loss.severity == "info":
                    info_counts[concept] = info_counts.get(concept, 0) + 1
            self.loss_counts, self.info_counts = counts, info_counts
        return self.loss_counts


class Sink(Protocol):
    """A callback for the end of a request. It must not wait; its exceptions are logged and have no other effect."""

    def __call__(self, request_log: RequestLog, /) -> None: ...


@runtime_checkable
class BeginSink(Protocol):
    """A sink that is also notified of the start of a request for a model.

    With an attribute `reads_requests` that is true, `client_request.request` is decoded before.
    """

    def begin(self, request_log: RequestLog, client_request: ClientRequest, headers: Mapping[str, str], /) -> None: ...


class OfferCounts(NamedTuple):
    """Numbers of declared and offered tools, and of the model's searches."""

    declared: int
    offered: int
    searches: int


class RequestLogWriter:
    """Writes `log`, the record of a request, which only this class changes. The client's id is used if it is plain."""

    __slots__ = ("_started_at", "log")

    def __init__(self, http_exchange: HttpExchange, ingress: str, action: str = "") -> None:
        self._started_at = perf_counter()
        client_request_id = http_exchange.headers.get("x-request-id")
        if client_request_id and _is_plain(client_request_id):
            request_id = client_request_id
        else:
            request_id = f"{_PROCESS}{next(_request_numbers):08x}"
        self.log = RequestLog(request_id, time(), ingress, action, http_exchange.method, http_exchange.path)

    def set_caller(self, name: str) -> None:
        self.log.caller = name

    def begin(self) -> None:
        """Note that the request was admitted; sinks are notified of it."""
        self.log.has_begun = True

    def set_request(self, client_request: ClientRequest) -> None:
        log = self.log
        log.model = client_request.model
        log.stream = client_request.stream

    def set_stream(self, *, is_stream: bool) -> None:
        """Note whether the answer is a stream, if only the reply of the upstream decides about it."""
        self.log.stream = is_stream

    def answer_from_cache(self, model: str) -> None:
        self.log.upstream, self.log.upstream_model = "cache", model

    def count_attempt(self) -> None:
        self.log.attempts += 1

    def start_attempt(self, target: Target, is_passed_through: bool, started_at: float) -> None:
        """Note the target of a request that is prepared, and the time that this took since `started_at`."""
        log = self.log
        log.upstream, log.upstream_model, log.provider, log.wire = target.log_names
        log.passed_through = is_passed_through
        log.overhead += perf_counter() - started_at

    def fail_attempt(self, upstream: str, kind: str) -> None:
        """Note a fault before any output."""
        self.log.failures += ((upstream, kind),)

    def add_overhead(self, started_at: float) -> None:
        """Add the time of the gateway itself since `started_at`, of `perf_counter`."""
        self.log.overhead += perf_counter() - started_at

    def set_answer(self, stats: AnswerStats, repairs: list[CallRepair], counts: OfferCounts | None) -> None:
        """Note the answer of an attempt, also of a failed attempt. `counts` is None if all tools were offered."""
        log = self.log
        log.usage = stats.reported_usage()
        log.is_estimated = False
        log.stop = stats.stop
        log.calls = tuple(stats.calls)
        log.answer_id = stats.id
        log.answer_model = stats.model
        log.repairs = tuple(repairs)
        log.declared_tools, log.offered_tools, log.tool_searches = counts or (0, 0, 0)

    def set_estimate(self, usage: Usage | None) -> None:
        """Note the usage that was estimated, because the upstream reported none."""
        self.log.usage, self.log.is_estimated = usage, usage is not None

    def set_losses(self, losses: Losses) -> None:
        """Note and count the losses; many are counted in a thread."""
        self.log.losses, self.log.loss_counts = tuple(losses), None
        self.log.count_losses()

    def set_first_chunk(self, seconds: float | None) -> None:
        self.log.first_chunk_seconds = seconds

    def confirm_model(self, models: Collection[str]) -> None:
        """Note whether the settings have the model of a request without an upstream; `models` are their models."""
        self.log.is_configured_model = not self.log.upstream and self.log.model in models

    def fail(self, kind: str, code: str | None = None) -> None:
        """Note the fault of a request."""
        self.log.error, self.log.error_code = kind, code

    def lose_client(self) -> None:
        self.log.status, self.log.error, self.log.error_code = _CLIENT_CLOSED_REQUEST, "client_gone", None

    def end(self, status: int) -> RequestLog:
        """Note the end of the request, and return the record."""
        log = self.log
        log.seconds = perf_counter() - self._started_at
        if not log.status:
            log.status = status
        return log


def _is_plain(client_request_id: str) -> bool:
    """Check whether a client's request id is short and plain, so that it can be used."""
    return (
        len(client_request_id) <= 64
        and client_request_id.isascii()
        and client_request_id.replace("-", "").replace("_", "").isalnum()
    )
