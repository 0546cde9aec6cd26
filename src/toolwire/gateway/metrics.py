"""Metrics for Prometheus: counters and histograms of requests, upstreams, calls, losses and repairs.

    metrics = Metrics()
    gateway = Gateway(settings, sinks=[metrics], metrics=metrics.page)

A request costs one lookup and a few additions of plain numbers; text is generated only when the page is read.
Names of models, tools and losses come from outside, so each set of labels is bounded: further values become `other`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from .asked import ClientRequest
from .turn import RequestLog

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

__all__ = ["Metrics"]

OTHER = "other"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_OVERHEAD = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
_PROBES = frozenset({"alive", "ready", "metrics"})
_SERIES_LABELS = ("ingress", "upstream", "model")
_LONGEST = 120  # characters of a label
_REMEMBERED = 4096  # routes by the client's names


class _Histogram:
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
        for bound, here in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            count += here
            found.append((bound, float(count)))
        return found


class _SeriesCounts:
    """The figures for one front, upstream and model."""

    __slots__ = ("duration", "first", "overhead", "statuses", "tokens")

    def __init__(self) -> None:
        self.statuses: dict[int, int] = {}
        self.tokens = {"input": 0, "output": 0, "cached": 0, "reasoning": 0}
        self.duration = _Histogram(_SECONDS)
        self.first = _Histogram(_SECONDS)
        self.overhead = _Histogram(_OVERHEAD)

    def add(self, request_log: RequestLog) -> None:
        self.statuses[request_log.status] = self.statuses.get(request_log.status, 0) + 1
        if request_log.action != "generate":
            return
        self.duration.observe(request_log.seconds)
        if request_log.first is not None:
            self.first.observe(request_log.first)
        if request_log.attempts:
            self.overhead.observe(request_log.overhead)
        usage, tokens = request_log.usage, self.tokens
        if usage is not None:
            tokens["input"] += usage.input or 0
            tokens["output"] += usage.output or 0
            tokens["cached"] += usage.cached or 0
            tokens["reasoning"] += usage.reasoning or 0


class _Counts:
    """A counter by labels. The label at `open_end` may have any value; the first `most` values are kept."""

    def __init__(self, open_end: int, most: int, clean: Callable[[str], str]) -> None:
        self._open_end = open_end
        self._most = most
        self._clean = clean
        self._known: dict[str, str] = {}
        self.values: dict[tuple[str, ...], int] = {}

    def add(self, *labels: str) -> None:
        found = self.values.get(labels)
        if found is None:
            named = list(labels)
            named[self._open_end] = self._name(labels[self._open_end])
            labels = tuple(named)
            found = self.values.get(labels, 0)
        self.values[labels] = found + 1

    def _name(self, given: str) -> str:
        found = self._known.get(given)
        if found is None:
            if len(self._known) >= self._most:
                return OTHER
            found = self._known[given] = self._clean(given[:_LONGEST])
        return found


class Metrics:
    """A sink, and a page.

    `clean` removes secrets from a label. `most` is the number of models, and of tools, that have a label of their own.
    """

    def __init__(self, *, most: int = 200, clean: Callable[[str], str] = str) -> None:
        self._most = most
        self._clean = clean
        self._series: dict[tuple[str, str, str], _SeriesCounts] = {}  # by the requested model; several may share one
        self._named: dict[tuple[str, str, str], _SeriesCounts] = {}
        self._models: set[str] = set()
        self._in_flight = 0
        self._attempts = _Counts(1, most, clean)
        self._calls = _Counts(0, most, clean)
        self._losses = _Counts(0, most, clean)
        self._repairs = _Counts(0, most, clean)
        self._page: Callable[[], bytes] | None = None

    def begin(self, request_log: RequestLog, client_request: ClientRequest, headers: Mapping[str, str], /) -> None:
        self._in_flight += 1

    def __call__(self, request_log: RequestLog, /) -> None:
        if request_log.action in _PROBES:
            return
        if request_log.begun:
            self._in_flight -= 1
        # an unknown model is a text from the client, and must not become a label
        key = (request_log.front, request_log.upstream, request_log.model if request_log.upstream else "")
        route = self._series.get(key)
        if route is None:
            route = self._series_for(*key)
        route.add(request_log)
        if request_log.attempts:
            self._add_attempts(request_log)
        if request_log.calls:
            self._add_calls(request_log)
        for loss in request_log.losses:
            self._losses.add(loss.concept, request_log.front, request_log.upstream)

    def _series_for(self, front: str, upstream: str, model: str) -> _SeriesCounts:
        name = self._clean(model[:_LONGEST])
        own = name in self._models or len(self._models) < self._most
        if own:
            self._models.add(name)
        labels = (front, upstream, name if own else OTHER)
        route = self._named.get(labels)
        if route is None:
            route = self._named[labels] = _SeriesCounts()
        if own and len(self._series) < _REMEMBERED:  # other names, also those that share a label, are unbounded
            self._series[front, upstream, model] = route
        return route

    def _add_attempts(self, request_log: RequestLog) -> None:
        add = self._attempts.add
        for upstream, kind in request_log.failures:
            add(upstream, kind)
        if len(request_log.failures) < request_log.attempts and request_log.upstream:  # else nothing was sent
            add(request_log.upstream, request_log.error or "ok")

    def _add_calls(self, request_log: RequestLog) -> None:
        mended = {repair.name: "broken" if repair.problems else "repaired" for repair in request_log.repairs}
        usual = "ok" if request_log.error is None else "cut"
        for name in request_log.calls:
            self._calls.add(name, mended.get(name, usual))
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

        yield self._requests()
        yield self._histogram(
            "request_duration_seconds", "duration of requests for a model", lambda route: route.duration
        )
        yield self._histogram(
            "time_to_first_chunk_seconds", "time until the first chunk of a stream", lambda route: route.first
        )
        yield self._histogram("overhead_seconds", "time that the gateway itself needs", lambda route: route.overhead)
        gauge = GaugeMetricFamily("toolwire_requests_in_flight", "requests for a model in flight")
        gauge.add_metric((), self._in_flight)
        yield gauge
        yield self._tokens()
        yield _counter("upstream_attempts", "requests to upstreams", ("upstream", "outcome"), self._attempts)
        yield _counter("tool_calls", "tool calls by models", ("tool", "outcome"), self._calls)
        yield _counter("losses", "losses in translation", ("kind", "ingress", "upstream"), self._losses)
        yield _counter("repairs", "repair steps for tool calls", ("kind",), self._repairs)

    def _requests(self) -> CounterMetricFamily:
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(
            "toolwire_requests", "requests, without probes", labels=(*_SERIES_LABELS, "status")
        )
        for labels, route in self._named.items():
            for status, count in route.statuses.items():
                family.add_metric((*labels, str(status)), count)
        return family

    def _tokens(self) -> CounterMetricFamily:
        from prometheus_client.core import CounterMetricFamily

        about = "tokens, as counted by upstreams; input includes cached, output includes reasoning"
        family = CounterMetricFamily("toolwire_tokens", about, labels=(*_SERIES_LABELS, "kind"))
        for labels, route in self._named.items():
            for kind, count in route.tokens.items():
                if count:
                    family.add_metric((*labels, kind), count)
        return family

    def _histogram(self, name: str, about: str, pick: Callable[[_SeriesCounts], _Histogram]) -> HistogramMetricFamily:
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily(f"toolwire_{name}", about, labels=_SERIES_LABELS)
        for labels, route in self._named.items():
            found = pick(route)
            if any(found.counts):
                family.add_metric(labels, found.buckets(), found.total)
        return family


def _counter(name: str, about: str, labels: tuple[str, ...], counts: _Counts) -> CounterMetricFamily:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(f"toolwire_{name}", about, labels=labels)
    for values, count in counts.values.items():
        family.add_metric(values, count)
    return family
