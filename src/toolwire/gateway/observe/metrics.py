"""Metrics for Prometheus: counters and histograms of requests, upstreams, calls, losses and repairs.

    metrics = Metrics()
    gateway = Gateway(settings, sinks=[metrics], metrics=metrics.page)

Names of models, tools and losses come from outside, so each set of labels is bounded: further values become `other`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from ...asgi.admission import Admission
from ...net.model.translation_cache import TranslationCache
from ..request.client_request import ClientRequest
from ..routing.health import HealthTable
from .request_log import OTHER, RequestLog

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

# Seconds. Up to 10: the default buckets of Prometheus clients; then up to the default timeout of an upstream.
_DURATION_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
# Seconds of the gateway itself: most requests need less than a millisecond, large ones up to a second.
_OVERHEAD_BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
_PROBES = frozenset({"alive", "ready", "metrics"})
_SERIES_LABELS = ("ingress", "upstream", "model")
_MAX_LABEL_LENGTH = 120  # characters of a label; the names of models have fewer than 100
_MAX_CACHED_SERIES = 4096  # routes by the client's names, of which there may be any number
_MAX_ROWS = 2000  # of a counter; several labels with 200 values each would give millions
# Requests that are counted together: the processor's caches then have the code for all but the first of them.
_BATCH = 64
_FEW = 64  # losses and calls; a client or an upstream may cause hundreds of thousands
_TOKEN_KINDS = ("input", "output", "cached", "reasoning")


class _Histogram(Struct):
    """Counts of values by upper bound, and their sum. The last count is for values above all bounds."""

    bounds: tuple[float, ...]
    counts: list[int]
    total: float = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """List (upper bound, number of values up to it)."""
        found, count = [], 0
        for bound, bucket_count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            count += bucket_count
            found.append((bound, float(count)))
        return found

    def merge(self, other: _Histogram) -> None:
        """Add the values of a histogram with the same bounds."""
        self.counts = [own + others for own, others in zip(self.counts, other.counts, strict=True)]
        self.total += other.total


def _new_durations() -> _Histogram:
    return _Histogram(_DURATION_BOUNDS, [0] * (len(_DURATION_BOUNDS) + 1))


def _new_overheads() -> _Histogram:
    return _Histogram(_OVERHEAD_BOUNDS, [0] * (len(_OVERHEAD_BOUNDS) + 1))


class _SeriesCounts(Struct):
    """The figures for one client protocol, upstream and model."""

    statuses: dict[int, int] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_TOKEN_KINDS, 0))
    selected_tools: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("declared", "offered", "searches"), 0)
    )
    duration: _Histogram = field(default_factory=_new_durations)
    first_chunk: _Histogram = field(default_factory=_new_durations)
    overhead: _Histogram = field(default_factory=_new_overheads)

    def add(self, request_log: RequestLog) -> None:
        """Count a request. Only requests for a model have durations and tokens."""
        self.statuses[request_log.status] = self.statuses.get(request_log.status, 0) + 1
        if request_log.action != "generate":
            return
        self.duration.observe(request_log.seconds)
        if request_log.first_chunk_seconds is not None:
            self.first_chunk.observe(request_log.first_chunk_seconds)
        if request_log.attempts:
            self.overhead.observe(request_log.overhead)
        if request_log.declared_tools:
            self.selected_tools["declared"] += request_log.declared_tools
            self.selected_tools["offered"] += request_log.offered_tools
            self.selected_tools["searches"] += request_log.tool_searches
        usage, tokens = request_log.usage, self.tokens
        if usage is not None:
            tokens["input"] += usage.input or 0
            tokens["output"] += usage.output or 0
            if usage.cached or usage.reasoning:
                tokens["cached"] += usage.cached or 0
                tokens["reasoning"] += usage.reasoning or 0

    def merge(self, other: _SeriesCounts) -> None:
        """Add the figures of another process for the same labels."""
        _add_counts(self.statuses, other.statuses)
        _add_counts(self.tokens, other.tokens)
        _add_counts(self.selected_tools, other.selected_tools)
        self.duration.merge(other.duration)
        self.first_chunk.merge(other.first_chunk)
        self.overhead.merge(other.overhead)


def _add_counts(counts: dict[Any, int], others: Mapping[Any, int]) -> None:
    for name, count in others.items():
        counts[name] = counts.get(name, 0) + count


class MetricsSnapshot(Struct):
    """The figures of a process at one moment, by labels. Secrets are already removed from the labels."""

    series: dict[tuple[str, str, str], _SeriesCounts]
    counters: dict[str, dict[tuple[str, ...], int]]
    in_flight: int
    states: dict[tuple[str, str], int] = {}  # targets that are not closed, by their state
    translations: dict[str, int] = {}  # `bytes` and `entries` of the translation cache
    waiting: int = 0  # requests, for a connection to an upstream


class _LabelledCounter:
    """A counter by labels. The label at index `open_label` may have any value; the first `max_values` are kept.

    All other labels have a bounded number of values. After `_MAX_ROWS` combinations, new ones have `other` for the open
    label.
    """

    def __init__(self, open_label: int, max_values: int, clean: Callable[[str], str]) -> None:
        self._open_label = open_label
        self._max_values = max_values
        self._clean = clean
        self._known_values: dict[str, str] = {}  # labels of the open values, redacted
        self.values: dict[tuple[str, ...], int] = {}

    def add(self, *labels: str, count: int = 1) -> None:
        """Count events. New labels are redacted and bounded; labels that have been used before need no check."""
        current = self.values.get(labels)
        if current is None:
            clean_labels = list(labels)
            is_full = len(self.values) >= _MAX_ROWS
            clean_labels[self._open_label] = OTHER if is_full else self._label_value(labels[self._open_label])
            labels = tuple(clean_labels)
            current = self.values.get(labels, 0)
        self.values[labels] = current + count

    def _label_value(self, raw_value: str) -> str:
        """Return the label for a value from outside, and remember it, or `other` if too many values are known."""
        found = self._known_values.get(raw_value)
        if found is None:
            if len(self._known_values) >= self._max_values:
                return OTHER
            found = self._known_values[raw_value] = self._clean(raw_value[:_MAX_LABEL_LENGTH])
        return found


class Metrics:
    """A sink, and a page.

    `clean` removes secrets from a label. `max_values` is the number of models, and of tools, that have a label of their
    own.

    `batch` requests are counted together, and before the figures are read.
    """

    def __init__(self, *, max_values: int = 200, clean: Callable[[str], str] = str, batch: int = _BATCH) -> None:
        self._max_values = max_values
        self._batch = batch
        self._clean = clean
        # by the requested model, with its label; several may share one
        self._series: dict[tuple[str, str, str], tuple[str, _SeriesCounts]] = {}
        self._series_by_labels: dict[tuple[str, str, str], _SeriesCounts] = {}  # all series
        self._models: set[str] = set()  # models with a label of their own
        self._in_flight = 0
        self._lock = Lock()  # of the counts
        self._ended: deque[RequestLog] = deque()  # requests that are not counted yet
        self._attempts = _LabelledCounter(1, max_values, clean)
        self._calls = _LabelledCounter(0, max_values, clean)
        self._hosted = _LabelledCounter(2, max_values, str)  # models' labels are redacted already
        self._losses = _LabelledCounter(0, max_values, clean)
        self._repairs = _LabelledCounter(0, max_values, clean)
        self._lost = _LabelledCounter(0, max_values, str)
        self._refused = _LabelledCounter(0, max_values, clean)
        self._waiting = 0  # in other processes
        self._count_waiting: Callable[[], int] = lambda: 0
        self._counters = {
            "overload": self._refused,
            "attempts": self._attempts,
            "calls": self._calls,
            "hosted": self._hosted,
            "losses": self._losses,
            "repairs": self._repairs,
            "lost": self._lost,
        }
        self._health: HealthTable | None = None
        self._states: dict[tuple[str, str], int] = {}  # of other processes
        # of earlier and other processes; the counts of this one are in the table
        self._other_counts: dict[str, dict[tuple[str, ...], int]] = {
            "probes": {},
            "refused": {},
            "translations": {},
        }
        self._translations: TranslationCache | None = None
        self._other_translations: dict[str, int] = {}  # bytes and entries of other processes
        self._process: Any = None  # the collector of the process, created on first use

    def watch_translations(self, cache: TranslationCache) -> None:
        """Include the figures of the translation cache."""
        self._translations = cache

    def watch_health(self, table: HealthTable) -> None:
        """Include the states of targets, and the probes and refused retries."""
        self._health = table

    def watch_load(self, admission: Admission, count_waiting: Callable[[], int]) -> None:
        """Count the refusals of a gateway. `count_waiting` returns the requests that wait for an upstream connection."""
        admission.on_refusal = self._refused.add
        self._count_waiting = count_waiting

    def begin(self, request_log: RequestLog, client_request: ClientRequest, headers: Mapping[str, str], /) -> None:
        self._in_flight += 1

    def __call__(self, request_log: RequestLog, /) -> None:
        """Count a request at its end, with its attempts, calls, repairs and losses. Probes are not counted."""
        if request_log.action in _PROBES:
            return
        if request_log.has_begun:
            self._in_flight -= 1
        self._ended.append(request_log)
        # a record with many losses or calls is not kept
        if len(self._ended) >= self._batch or len(request_log.losses) + len(request_log.calls) > _FEW:
            self._count_ended()

    def _count_ended(self) -> None:
        """Count the requests that have ended since the last batch."""
        ended = self._ended
        with self._lock:
            while ended:
                request_log = ended.popleft()
                upstream, error, failures = request_log.upstream, request_log.error, request_log.failures
                # an unknown model is a text from the client, and must not become a label
                key = (
                    request_log.ingress,
                    upstream,
                    request_log.model if upstream or request_log.is_configured_model else "",
                )
                model, series = self._series.get(key) or self._series_for(*key)
                series.add(request_log)
                for failed_upstream, kind in failures if request_log.attempts else ():
                    self._attempts.add(failed_upstream, kind)
                if len(failures) < request_log.attempts and upstream:  # else nothing was sent
                    self._attempts.add(upstream, error or "ok")
                if request_log.calls and request_log.repairs:
                    self._add_repaired_calls(request_log, model)
                else:
                    for name in request_log.calls:
                        self._calls.add(name, "ok" if error is None else "cut", upstream, model)
                for kind, count in request_log.hosted_runs.items():
                    self._hosted.add(kind, upstream, model, count=count)
                if request_log.losses:
                    for concept, count in request_log.count_losses().items():
                        self._losses.add(concept, request_log.ingress, upstream, count=count)

    def _add_repaired_calls(self, request_log: RequestLog, model: str) -> None:
        """Count the calls of an answer with repairs, and the repair steps. A call is broken if a problem remains."""
        repaired = {repair.name: "broken" if repair.problems else "repaired" for repair in request_log.repairs}
        outcome = "ok" if request_log.error is None else "cut"
        for name in request_log.calls:
            self._calls.add(name, repaired.get(name, outcome), request_log.upstream, model)
        for repair in request_log.repairs:
            for step in repair.steps:
                self._repairs.add(step.name)

    def _series_for(self, ingress: str, upstream: str, model: str) -> tuple[str, _SeriesCounts]:
        """Find or create the series for a client protocol, an upstream and a model. Return the model's label, too.

        A model beyond the limit has the label `other`. The series of the others are cached by the client's names.
        """
        name = self._clean(model[:_MAX_LABEL_LENGTH])
        has_own_series = name in self._models or len(self._models) < self._max_values
        if has_own_series:
            self._models.add(name)
        labels = (ingress, upstream, name if has_own_series else OTHER)
        series = self._series_by_labels.get(labels)
        if series is None:
            series = self._series_by_labels[labels] = _SeriesCounts()
        # other names, also those that share a label, are unbounded
        if has_own_series and len(self._series) < _MAX_CACHED_SERIES:
            self._series[ingress, upstream, model] = labels[2], series
        return labels[2], series

    def count_lost(self, kind: str) -> None:
        """Count a log line or a recording that could not be written. It may be called from any thread."""
        with self._lock:
            self._lost.add(kind)

    def snapshot(self) -> MetricsSnapshot:
        """Return the current figures. They are not copied: encode them before anything else is counted."""
        self._count_ended()
        counters = {name: counter.values for name, counter in self._counters.items()}
        counters |= {name: self._count_watched(name) for name in self._other_counts}
        return MetricsSnapshot(
            self._series_by_labels,
            counters,
            self._in_flight,
            self._count_states(),
            self._measure_cache(),
            self._count_waiting(),
        )

    def _measure_cache(self) -> dict[str, int]:
        """Return the bytes and entries of the translation caches of all processes."""
        sizes = dict(self._other_translations)
        if self._translations is not None:
            _add_counts(sizes, {"bytes": self._translations.size, "entries": len(self._translations)})
        return sizes

    def _count_watched(self, name: str) -> dict[tuple[str, ...], int]:
        """Return a counter of all processes: `probes`, `refused` (retries) or `translations` (events of the cache)."""
        counts = dict(self._other_counts[name])
        if name == "translations":
            if self._translations is not None:
                _add_counts(counts, {(event,): count for event, count in self._translations.events.items()})
            return counts
        if self._health is not None:
            refused = {(upstream,): count for upstream, count in self._health.refused_retries().items()}
            own: Mapping[Any, int] = refused if name == "refused" else self._health.probes
            _add_counts(counts, own)
        return counts

    def _count_states(self) -> dict[tuple[str, str], int]:
        counts = dict(self._states)
        if self._health is not None:
            for label, state in self._health.states().items():
                _add_counts(counts, {(self._clean(label[:_MAX_LABEL_LENGTH]), state): 1})
        return counts

    def merge(self, snapshot: MetricsSnapshot) -> None:
        """Add the counters and histograms of another process. `add_current` adds the figures of a running process."""
        for labels, series in snapshot.series.items():
            self._models.add(labels[2])
            self._series_by_labels.setdefault(labels, _SeriesCounts()).merge(series)
        for name, counts in snapshot.counters.items():
            _add_counts(self._other_counts[name] if name in self._other_counts else self._counters[name].values, counts)

    def add_current(self, snapshot: MetricsSnapshot) -> None:
        """Add the requests in flight, the states and the waiting requests of a process that runs."""
        self._in_flight += snapshot.in_flight
        _add_counts(self._states, snapshot.states)
        _add_counts(self._other_translations, snapshot.translations)
        self._waiting += snapshot.waiting

    def page(self) -> bytes:
        """Render all metrics in Prometheus' text format, with the metrics of the process itself."""
        if self._process is None:
            from prometheus_client import ProcessCollector

            self._process = ProcessCollector(registry=None)
        return render_page(self, self._process)

    def collect(self) -> Iterator[Metric]:
        """Collect the metrics for a registry of prometheus_client."""
        from prometheus_client.core import GaugeMetricFamily

        self._count_ended()
        yield self._requests_family()
        yield self._histogram_family(
            "request_duration_seconds", "duration of requests for a model", lambda series: series.duration
        )
        yield self._histogram_family(
            "time_to_first_chunk_seconds", "time until the first chunk of a stream", lambda series: series.first_chunk
        )
        yield self._histogram_family(
            "overhead_seconds", "time that the gateway itself needs", lambda series: series.overhead
        )
        gauge = GaugeMetricFamily("toolwire_requests_in_flight", "requests for a model in flight")
        gauge.add_metric((), self._in_flight)
        yield gauge
        gauge = GaugeMetricFamily("toolwire_upstream_waiting", "requests that wait for a connection to an upstream")
        gauge.add_metric((), self._waiting + self._count_waiting())
        yield gauge
        yield _counter_family(
            "requests_refused", "requests refused because of overload", ("reason",), self._refused.values
        )
        yield self._tokens_family()
        yield from self._tools_families()
        yield _counter_family(
            "upstream_attempts", "requests to upstreams", ("upstream", "outcome"), self._attempts.values
        )
        yield from self._health_families()
        yield from self._cache_families()
        call_labels = ("tool", "outcome", "upstream", "model")
        yield _counter_family("tool_calls", "tool calls by models", call_labels, self._calls.values)
        runs = "runs of hosted tools at the gateway"
        yield _counter_family("hosted_runs", runs, ("kind", "upstream", "model"), self._hosted.values)
        yield _counter_family("losses", "losses in translation", ("kind", "ingress", "upstream"), self._losses.values)
        yield _counter_family("repairs", "repair steps for tool calls", ("kind",), self._repairs.values)
        lost = "log lines and recordings that could not be written"
        yield _counter_family("log_lines_lost", lost, ("kind",), self._lost.values)

    def _health_families(self) -> Iterator[Metric]:
        """Yield the states of targets that are not in normal use ("closed"), the probes, and the refused retries."""
        from prometheus_client.core import GaugeMetricFamily

        description = "targets that are not closed: the number of workers in which they have this state"
        gauge = GaugeMetricFamily("toolwire_upstream_state", description, labels=("target", "state"))
        for labels, count in self._count_states().items():
            gauge.add_metric(labels, count)
        yield gauge
        probes, refused = self._count_watched("probes"), self._count_watched("refused")
        yield _counter_family("upstream_probes", "probes of silent upstreams", ("upstream", "outcome"), probes)
        yield _counter_family("upstream_retries_refused", "retries refused by the budget", ("upstream",), refused)

    def _cache_families(self) -> Iterator[Metric]:
        """Yield the events and the size of the translation cache."""
        from prometheus_client.core import GaugeMetricFamily

        events = "lookups of long conversations (hit, miss), and conversations dropped (eviction) or not kept (refusal)"
        yield _counter_family("translation_cache_events", events, ("event",), self._count_watched("translations"))
        for name, value in self._measure_cache().items():
            gauge = GaugeMetricFamily(f"toolwire_translation_cache_{name}", f"{name} of translated conversations")
            gauge.add_metric((), value)
            yield gauge

    def _requests_family(self) -> CounterMetricFamily:
        """Return the number of requests by series and status."""
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(
            "toolwire_requests", "requests, without probes", labels=(*_SERIES_LABELS, "status")
        )
        for labels, series in list(self._series_by_labels.items()):  # another thread may add to it
            for status, count in list(series.statuses.items()):
                family.add_metric((*labels, str(status)), count)
        return family

    def _tokens_family(self) -> CounterMetricFamily:
        """Return the number of tokens by series and kind; kinds without tokens are omitted."""
        from prometheus_client.core import CounterMetricFamily

        description = "tokens, as counted by upstreams; input includes cached, output includes reasoning"
        family = CounterMetricFamily("toolwire_tokens", description, labels=(*_SERIES_LABELS, "kind"))
        for labels, series in list(self._series_by_labels.items()):
            for kind, count in list(series.tokens.items()):
                if count:
                    family.add_metric((*labels, kind), count)
        return family

    def _tools_families(self) -> Iterator[CounterMetricFamily]:
        """Yield the numbers of declared and offered tools, and of searches, of requests whose tools were selected."""
        from prometheus_client.core import CounterMetricFamily

        descriptions = {
            "declared_tools": "tools of requests from which a selection was offered",
            "offered_tools": "tools that were offered of them",
            "tool_searches": "searches of models for other tools",
        }
        for name, description in descriptions.items():
            family = CounterMetricFamily(f"toolwire_{name}", description, labels=_SERIES_LABELS)
            kind = name.removesuffix("_tools").removeprefix("tool_")
            for labels, series in list(self._series_by_labels.items()):
                if series.selected_tools["declared"]:
                    family.add_metric(labels, series.selected_tools[kind])
            yield family

    def _histogram_family(
        self, name: str, description: str, pick: Callable[[_SeriesCounts], _Histogram]
    ) -> HistogramMetricFamily:
        """Return the histogram that `pick` selects from each series; empty ones are omitted."""
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily(f"toolwire_{name}", description, labels=_SERIES_LABELS)
        for labels, series in list(self._series_by_labels.items()):
            found = pick(series)
            if any(found.counts):
                family.add_metric(labels, found.buckets(), found.total)
        return family


def render_page(*collectors: Any) -> bytes:
    """Render the metrics of collectors in Prometheus' text format."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    for collector in collectors:
        registry.register(collector)
    return generate_latest(registry)


def _counter_family(
    name: str, description: str, labels: tuple[str, ...], counts: Mapping[tuple[str, ...], int]
) -> CounterMetricFamily:
    """Convert a counter to a metric of prometheus_client."""
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(f"toolwire_{name}", description, labels=labels)
    for values, count in list(counts.items()):
        family.add_metric(values, count)
    return family
