"""The record of one request, for the log, the metrics, the usage accounts and the live view, with its only writer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from time import perf_counter, time
from typing import NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from ...asgi.http_exchange import HttpExchange
from ...bridge.restoration.repair import CallRepair
from ...ir.losses import Loss, Losses
from ...ir.response import Usage, add_usage
from ...wire.documents import AnswerSummary
from ..request.client_request import ClientRequest
from ..routing.router import Target
from .answer_stats import AnswerStats
from .request_ids import choose_request_id

OTHER = "other"  # the name of everything beyond a maximum number of names
_MAX_CONCEPTS = 200  # of losses; as many as the labels of a metric (docs/gateway-observability.md)
_CLIENT_CLOSED_REQUEST = 499  # nginx's status for a client that closed the connection


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
    description_usage: Usage | None = None  # of another model that has described media; part of `usage`
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
    hosted_runs: Mapping[str, int] = {}  # of hosted tools at the gateway, by kind
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
        request_id = choose_request_id(http_exchange.headers.get("x-request-id", ""))
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

    def set_relay(self, model: str) -> None:
        """Note a request besides chats; `model` is empty if it names none."""
        self.log.model = model

    def set_relay_usage(self, usage: Usage | None) -> None:
        self.log.usage = usage

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

    def set_hosted_runs(self, runs: Mapping[str, int]) -> None:
        self.log.hosted_runs = runs

    def set_summary(self, summary: AnswerSummary) -> None:
        """Note the answer of the only attempt, whose usage `is_plausible`."""
        log = self.log
        log.usage, log.stop, log.calls = summary.usage, summary.stop, summary.calls
        log.answer_id, log.answer_model = summary.id, summary.model

    def set_estimate(self, usage: Usage | None) -> None:
        """Note the usage that was estimated, because the upstream reported none."""
        self.log.usage, self.log.is_estimated = usage, usage is not None

    def add_description(self, usage: Usage | None) -> None:
        """Add the usage of descriptions, and add their sum to the usage of the answer so far."""
        self.log.description_usage = add_usage(self.log.description_usage, usage)
        self.log.usage = add_usage(self.log.usage, self.log.description_usage)

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
        log.status = log.status or status
        return log
