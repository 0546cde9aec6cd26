"""Metrics for Prometheus: counters and histograms of requests, upstreams, calls, losses and repairs.

    metrics = Metrics()
    gateway = Gateway(settings, sinks=[metrics], metrics=metrics.page)

A request costs one lookup and a few additions of plain numbers; text is generated only when the page is read.
Names of models, tools and losses come from outside, so each set of labels is bounded: further values become `other`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from ..answer.client_request import ClientRequest
from .request_log import OTHER, RequestLog

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

__all__ = ["Metrics"]

_DURATION_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_OVERHEAD_BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
_PROBES = frozenset({"alive", "ready", "metrics"})
_SERIES_LABELS = ("ingress", "upstream", "model")
_MAX_LABEL_LENGTH = 120  # characters of a label
_MAX_CACHED_SERIES = 4096  # routes by the client's names


class _Histogram:
    """Counts of values by upper bound, and their sum. The last count is for values above all bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

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


class _SeriesCounts:
    """The figures for one client protocol, upstream and model."""

    __slots__ = ("duration", "first_chunk", "overhead", "selected_tools", "statuses", "tokens")

    def __init__(self) -> None:
        self.statuses: dict[int, int] = {}
        self.tokens = {"input": 0, "output": 0, "cached": 0, "reasoning": 0}
        self.selected_tools = {"declared": 0, "offered": 0, "searches": 0}
        self.duration = _Histogram(_DURATION_BOUNDS)
        self.first_chunk = _Histogram(_DURATION_BOUNDS)
        self.overhead = _Histogram(_OVERHEAD_BOUNDS)

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
            tokens["cached"] += usage.cached or 0
            tokens["reasoning"] += usage.reasoning or 0


class _LabelledCounter:
    """A counter by labels. The label at index `open_label` may have any value; the first `max_values` are kept."""

    def __init__(self, open_label: int, max_values: int, clean: Callable[[str], str]) -> None:
        self._open_label = open_label
        self._max_values = max_values
        self._clean = clean
        self._known_values: dict[str, str] = {}  # labels of the open values, redacted
        self.values: dict[tuple[str, ...], int] = {}

    def add(self, *labels: str, count: int = 1) -> None:
        """Count events. Labels that have been used before need no check."""
        found = self.values.get(labels)
        if found is None:
            clean_labels = list(labels)
            clean_labels[self._open_label] = self._label_value(labels[self._open_label])
            labels = tuple(clean_labels)
            found = self.values.get(labels, 0)
        self.values[labels] = found + count

    def _label_value(self, raw_value: str) -> str:
        """Return the label for a value from outside; `other` if too many values are known already."""
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
    """

    def __init__(self, *, max_values: int = 200, clean: Callable[[str], str] = str) -> None:
        self._max_values = max_values
        self._clean = clean
        self._series: dict[tuple[str, str, str], _SeriesCounts] = {}  # by the requested model; several may share one
        self._series_by_labels: dict[tuple[str, str, str], _SeriesCounts] = {}  # all series
        self._models: set[str] = set()  # models with a label of their own
        self._in_flight = 0
        self._attempts = _LabelledCounter(1, max_values, clean)
        self._calls = _LabelledCounter(0, max_values, clean)
        self._losses = _LabelledCounter(0, max_values, clean)
        self._repairs = _LabelledCounter(0, max_values, clean)
        self._page: Callable[[], bytes] | None = None  # created on first use

    def begin(self, request_log: RequestLog, client_request: ClientRequest, headers: Mapping[str, str], /) -> None:
        self._in_flight += 1

    def __call__(self, request_log: RequestLog, /) -> None:
        """Count a request at its end."""
        if request_log.action in _PROBES:
            return
        if request_log.has_begun:
            self._in_flight -= 1
        # an unknown model is a text from the client, and must not become a label
        key = (request_log.ingress, request_log.upstream, request_log.model if request_log.upstream else "")
        series = self._series.get(key)
        if series is None:
            series = self._series_for(*key)
        series.add(request_log)
        if request_log.attempts:
            self._add_attempts(request_log)
        if request_log.calls:
            self._add_calls(request_log)
        if request_log.losses:
            for concept, count in request_log.count_losses().items():
                self._losses.add(concept, request_log.ingress, request_log.upstream, count=count)

    def _series_for(self, front: str, upstream: str, model: str) -> _SeriesCounts:
        """Find or create the series for these labels. A model beyond the limit shares the series `other`."""
        name = self._clean(model[:_MAX_LABEL_LENGTH])
        has_own_series = name in self._models or len(self._models) < self._max_values
        if has_own_series:
            self._models.add(name)
        labels = (front, upstream, name if has_own_series else OTHER)
        series = self._series_by_labels.get(labels)
        if series is None:
            series = self._series_by_labels[labels] = _SeriesCounts()
        if (
            has_own_series and len(self._series) < _MAX_CACHED_SERIES
        ):  # other names, also those that share a label, are unbounded
            self._series[front, upstream, model] = series
        return series

    def _add_attempts(self, request_log: RequestLog) -> None:
        add = self._attempts.add
        for upstream, kind in request_log.failures:
            add(upstream, kind)
        if len(request_log.failures) < request_log.attempts and request_log.upstream:  # else nothing was sent
            add(request_log.upstream, request_log.error or "ok")

    def _add_calls(self, request_log: RequestLog) -> None:
        """Count the calls by outcome: ok, repaired, broken (a problem remains), or cut (the answer failed)."""
        repair_status = {repair.name: "broken" if repair.problems else "repaired" for repair in request_log.repairs}
        default_status = "ok" if request_log.error is None else "cut"
        for name, count in Counter(request_log.calls).items():
            self._calls.add(name, repair_status.get(name, default_status), count=count)
        for repair in request_log.repairs:
            for step in repair.steps:
                self._repairs.add(step.name)

    def page(self) -> bytes:
        """Render all metrics in Prometheus' text format, including those of the process."""
        if self._page is None:
            from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

            registry = CollectorRegistry(auto_describe=False)
            registry.register(self)
            ProcessCollector(registry=registry)
            self._page = lambda: generate_latest(registry)
        return self._page()

    def collect(self) -> Iterator[Metric]:
        """Collect the metrics for a registry of prometheus_client."""
        from prometheus_client.core import GaugeMetricFamily

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
        yield self._tokens_family()
        yield from self._tools_families()
        yield _counter_family("upstream_attempts", "requests to upstreams", ("upstream", "outcome"), self._attempts)
        yield _counter_family("tool_calls", "tool calls by models", ("tool", "outcome"), self._calls)
        yield _counter_family("losses", "losses in translation", ("kind", "ingress", "upstream"), self._losses)
        yield _counter_family("repairs", "repair steps for tool calls", ("kind",), self._repairs)

    def _requests_family(self) -> CounterMetricFamily:
        """Return the number of requests by series and status."""
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(
            "toolwire_requests", "requests, without probes", labels=(*_SERIES_LABELS, "status")
        )
        for labels, series in self._series_by_labels.items():
            for status, count in series.statuses.items():
                family.add_metric((*labels, str(status)), count)
        return family

    def _tokens_family(self) -> CounterMetricFamily:
        """Return the number of tokens by series and kind; kinds without tokens are omitted."""
        from prometheus_client.core import CounterMetricFamily

        description = "tokens, as counted by upstreams; input includes cached, output includes reasoning"
        family = CounterMetricFamily("toolwire_tokens", description, labels=(*_SERIES_LABELS, "kind"))
        for labels, series in self._series_by_labels.items():
            for kind, count in series.tokens.items():
                if count:
                    family.add_metric((*labels, kind), count)
        return family

    def _tools_families(self) -> Iterator[CounterMetricFamily]:
        """Return the numbers of declared and offered tools, and of searches, of requests whose tools were selected."""
        from prometheus_client.core import CounterMetricFamily

        descriptions = {
            "declared_tools": "tools of requests from which a selection was offered",
            "offered_tools": "tools that were offered of them",
            "tool_searches": "searches of models for other tools",
        }
        for name, description in descriptions.items():
            family = CounterMetricFamily(f"toolwire_{name}", description, labels=_SERIES_LABELS)
            kind = name.removesuffix("_tools").removeprefix("tool_")
            for labels, series in self._series_by_labels.items():
                if series.selected_tools["declared"]:
                    family.add_metric(labels, series.selected_tools[kind])
            yield family

    def _histogram_family(
        self, name: str, description: str, pick: Callable[[_SeriesCounts], _Histogram]
    ) -> HistogramMetricFamily:
        """Return the histogram that `pick` selects from each series; empty ones are omitted."""
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily(f"toolwire_{name}", description, labels=_SERIES_LABELS)
        for labels, series in self._series_by_labels.items():
            found = pick(series)
            if any(found.counts):
                family.add_metric(labels, found.buckets(), found.total)
        return family


def _counter_family(
    name: str, description: str, labels: tuple[str, ...], counts: _LabelledCounter
) -> CounterMetricFamily:
    """Convert a counter to a metric of prometheus_client."""
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(f"toolwire_{name}", description, labels=labels)
    for values, count in counts.values.items():
        family.add_metric(values, count)
    return family
