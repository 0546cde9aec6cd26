"""What Prometheus reads, judged by its own parser."""

import json
from threading import Thread

import pytest
from prometheus_client.parser import text_string_to_metric_families

from toolwire.bridge.restoration.repair import CallRepair
from toolwire.cli.wrapped.receipt import Receipt
from toolwire.gateway.observe.metrics import Metrics
from toolwire.gateway.observe.request_log import RequestLog
from toolwire.ir.losses import Loss
from toolwire.ir.response import Usage
from toolwire.net.model.translation_cache import TranslationCache
from toolwire.run.traces.redact import Redactor
from toolwire.schema.repair.coercion import RepairStep
from toolwire.schema.validation.validator import Problem
from toolwire.wire import get


def turn(**changes):
    usual = {"model": "m", "upstream": "u", "status": 200, "attempts": 1, "seconds": 0.2, "action": "generate"}
    return RequestLog("id", 0.0, "anthropic", **{**usual, **changes})


def samples(metrics):
    found = {}
    for family in text_string_to_metric_families(metrics.page().decode()):
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def value(metrics, name, **labels):
    return samples(metrics).get((name, tuple(sorted(labels.items()))))


def test_requests_are_counted_by_route_and_status():
    metrics = Metrics()
    for status in (200, 200, 503):
        metrics(turn(status=status))
    route = {"ingress": "anthropic", "upstream": "u", "model": "m"}
    assert value(metrics, "toolwire_requests_total", **route, status="200") == 2
    assert value(metrics, "toolwire_requests_total", **route, status="503") == 1


def test_histograms_have_count_sum_and_buckets():
    metrics = Metrics()
    metrics(turn(seconds=0.2, first_chunk_seconds=0.07, overhead=0.0004))
    metrics(turn(seconds=700.0, overhead=0.0001))
    route = {"ingress": "anthropic", "upstream": "u", "model": "m"}
    duration = "toolwire_request_duration_seconds"
    assert value(metrics, f"{duration}_count", **route) == 2
    assert value(metrics, f"{duration}_sum", **route) == 700.2
    assert value(metrics, f"{duration}_bucket", **route, le="0.1") == 0
    assert value(metrics, f"{duration}_bucket", **route, le="0.25") == 1
    assert value(metrics, f"{duration}_bucket", **route, le="600.0") == 1
    assert value(metrics, f"{duration}_bucket", **route, le="+Inf") == 2
    assert value(metrics, "toolwire_time_to_first_chunk_seconds_count", **route) == 1
    assert value(metrics, "toolwire_overhead_seconds_bucket", **route, le="0.0001") == 1


class SlowSeries(dict):
    """Series that are collected in another thread while a request is being added."""

    def get(self, key):
        found = super().get(key)
        self.collector.start()
        self.collector.join(0.1)
        return found


def test_request_is_counted_if_a_thread_collects_meanwhile():
    metrics = Metrics()
    metrics(turn())
    metrics.page()
    series = metrics._series = SlowSeries(metrics._series)
    series.collector = Thread(target=metrics.page)
    metrics(turn())
    metrics.page()
    series.collector.join()
    route = {"ingress": "anthropic", "upstream": "u", "model": "m"}
    assert value(metrics, "toolwire_requests_total", **route, status="200") == 2


class PausedNumber(int):
    """A number that is added while another thread counts requests."""

    def __radd__(self, other):
        self.counter.start()
        self.counter.join(0.1)  # it waits for this count
        return other + int(self)


def test_all_requests_are_counted_if_two_threads_count_them():
    metrics = Metrics()
    number = PausedNumber(7)

    def count_others():
        metrics(turn(usage=Usage(input=1, output=1)))
        metrics.page()

    number.counter = Thread(target=count_others)
    metrics(turn(usage=Usage(input=number, output=1)))
    metrics.page()
    number.counter.join()
    route = {"ingress": "anthropic", "upstream": "u", "model": "m"}
    assert value(metrics, "toolwire_tokens_total", **route, kind="input") == 8


def test_records_of_many_requests_or_of_large_answers_are_not_kept():
    metrics = Metrics(batch=10)
    for _ in range(95):
        metrics(turn())
    assert len(metrics._ended) == 5
    metrics(turn(calls=("f",) * 100))
    assert not metrics._ended
    route = {"ingress": "anthropic", "upstream": "u", "model": "m"}
    assert value(metrics, "toolwire_requests_total", **route, status="200") == 96


def test_in_flight_gauge_goes_up_and_down():
    metrics = Metrics()
    one, other = turn(has_begun=True), turn(has_begun=True)
    metrics.begin(one, None, {})
    metrics.begin(other, None, {})
    metrics(one)
    metrics(turn(has_begun=False, status=401))
    assert value(metrics, "toolwire_requests_in_flight") == 1


def test_tokens_attempts_calls_losses_and_repairs_are_counted():
    metrics = Metrics()
    metrics(
        turn(
            attempts=3,
            failures=(("a", "timeout"), ("b", "rate_limit")),
            usage=Usage(10, 5, cached=4),
            calls=("look", "look", "cook", "fix"),
            losses=(Loss("/top_k", "top_k", "dropped", "warning", "…"),),
            repairs=(
                CallRepair("1", "cook", (RepairStep("trailing_comma"),)),
                CallRepair("2", "fix", (), (Problem("/a", "type", "…"),)),
            ),
        )
    )
    metrics(turn(attempts=1, error="server", calls=("look",)))
    route = {"ingress": "anthropic", "upstream": "u", "model": "m"}
    assert value(metrics, "toolwire_tokens_total", **route, kind="input") == 10
    assert value(metrics, "toolwire_tokens_total", **route, kind="cached") == 4
    assert value(metrics, "toolwire_tokens_total", **route, kind="reasoning") is None
    for upstream, outcome in (("a", "timeout"), ("b", "rate_limit"), ("u", "ok"), ("u", "server")):
        assert value(metrics, "toolwire_upstream_attempts_total", upstream=upstream, outcome=outcome) == 1
    for tool, outcome, count in (("look", "ok", 2), ("look", "cut", 1), ("cook", "repaired", 1), ("fix", "broken", 1)):
        labels = {"tool": tool, "outcome": outcome, "upstream": "u", "model": "m"}
        assert value(metrics, "toolwire_tool_calls_total", **labels) == count
    assert value(metrics, "toolwire_losses_total", kind="top_k", ingress="anthropic", upstream="u") == 1
    assert value(metrics, "toolwire_repairs_total", kind="trailing_comma") == 1


def test_receipt_counts_each_of_many_losses_once():
    """Concepts beyond the limit of names are counted together, warnings and infos separately."""
    concepts = ["both", *(f"concept {number}" for number in range(300))]
    losses = [Loss("/x", concept, "dropped", "info", "…") for concept in concepts]
    log = turn(
        action="generate",
        caller="c",
        losses=(*losses, *(Loss("/x", name, "dropped", "error", "…") for name in ("both", "late"))),
    )
    receipt = Receipt(None)
    receipt(log)
    text = receipt._describe_losses()
    assert text.startswith("303: ")
    assert "; 301 info: " in text
    assert len(log.count_losses()) == 201
    assert sum(log.count_losses().values()) == 303
    assert (log.info_counts["both"], log.info_counts["other"], log.count_losses()["both"]) == (1, 101, 2)


@pytest.mark.parametrize("action", ["alive", "ready", "metrics"])
def test_probes_are_not_counted_as_requests(action):
    metrics = Metrics()
    metrics(turn(action=action))
    assert not [name for name, _ in samples(metrics) if name == "toolwire_requests_total"]


def test_number_of_label_values_is_bounded():
    metrics = Metrics(max_values=3)
    for number in range(50):
        metrics(turn(model=f"m{number}", calls=(f"t{number}",)))
    found = samples(metrics)
    models = {dict(labels)["model"] for name, labels in found if name == "toolwire_requests_total"}
    tools = {dict(labels)["tool"] for name, labels in found if name == "toolwire_tool_calls_total"}
    assert models == {"m0", "m1", "m2", "other"}
    assert tools == {"t0", "t1", "t2", "other"}
    labels = {"tool": "other", "outcome": "ok", "upstream": "u", "model": "other"}
    assert value(metrics, "toolwire_tool_calls_total", **labels) == 47
    route = {"ingress": "anthropic", "upstream": "u", "model": "other"}
    assert value(metrics, "toolwire_requests_total", **route, status="200") == 47


@pytest.mark.finding("CA9")
def test_calls_are_counted_by_upstream_and_model():
    metrics = Metrics()
    for upstream, model, error in (("a", "m", None), ("a", "n", None), ("b", "m", "server"), ("b", "m", None)):
        metrics(turn(upstream=upstream, model=model, error=error, calls=("look",)))
    for upstream, model, outcome in (("a", "m", "ok"), ("a", "n", "ok"), ("b", "m", "ok"), ("b", "m", "cut")):
        labels = {"tool": "look", "outcome": outcome, "upstream": upstream, "model": model}
        assert value(metrics, "toolwire_tool_calls_total", **labels) == 1


@pytest.mark.finding("CA9")
def test_number_of_combinations_of_tools_and_models_is_bounded():
    metrics = Metrics()
    for model in range(150):
        metrics(turn(model=f"m{model}", calls=tuple(f"t{tool}" for tool in range(150))))
    found = [count for (name, _), count in samples(metrics).items() if name == "toolwire_tool_calls_total"]
    assert len(found) <= 2000 + 150 and sum(found) == 150 * 150


def test_many_requests_are_counted():
    metrics = Metrics()
    for number in range(1000):
        metrics(turn(status=200 + number % 3, seconds=0.25, usage=Usage(1, 2)))
    route = {"ingress": "anthropic", "upstream": "u", "model": "m"}
    assert value(metrics, "toolwire_requests_total", **route, status="200") == 334
    assert value(metrics, "toolwire_request_duration_seconds_sum", **route) == 250
    assert value(metrics, "toolwire_tokens_total", **route, kind="output") == 2000


def test_names_with_the_same_label_are_not_all_cached():
    metrics = Metrics(clean=Redactor())
    for number in range(10_000):
        metrics(turn(model="m" * 150 + str(number)))
        metrics(turn(model=f"sk-{number:020}"))
    route = {"ingress": "anthropic", "upstream": "u", "status": "200"}
    assert value(metrics, "toolwire_requests_total", **route, model="m" * 120) == 10_000
    assert value(metrics, "toolwire_requests_total", **route, model="[removed]") == 10_000
    assert len(metrics._series) < 5000


def test_unknown_model_is_not_a_label():
    metrics = Metrics()
    metrics(turn(upstream="", attempts=0, status=404, model="whatever a client says"))
    assert "whatever" not in metrics.page().decode()


def test_labels_are_redacted_and_escaped():
    metrics = Metrics(clean=Redactor())
    for _ in range(2):
        metrics(turn(model='sk-0123456789abcdef"}\n', calls=('a"\\\n',)))
    assert "sk-0123456789abcdef" not in metrics.page().decode()
    labels = {"tool": 'a"\\\n', "outcome": "ok", "upstream": "u", "model": '[removed]"}\n'}
    assert value(metrics, "toolwire_tool_calls_total", **labels) == 2


def test_process_metrics_are_exported():
    assert samples(Metrics())["process_resident_memory_bytes", ()] > 1e6


@pytest.mark.finding("OP7")
def test_page_has_the_events_and_the_size_of_the_translation_cache():
    cache, metrics, other = TranslationCache(1024 * 1024), Metrics(), Metrics()
    metrics.watch_translations(cache)
    messages = [
        {"role": role, "content": "word " * 2000} for role in ("user", "assistant", "user", "assistant", "user")
    ]
    body = json.dumps({"model": "m", "messages": messages}).encode()
    for _ in range(3):
        cache.open("a", get("openai_chat"), body).decode()
    for page in (metrics.page(), other_page(metrics, other)):
        lines = page.decode().splitlines()
        assert 'toolwire_translation_cache_events_total{event="hit"} 2.0' in lines
        assert 'toolwire_translation_cache_events_total{event="miss"} 1.0' in lines
        assert "toolwire_translation_cache_entries 1.0" in lines
        assert f"toolwire_translation_cache_bytes {float(cache.size)}" in lines


def other_page(metrics, other):
    """The page of another worker, which adds the figures of the first."""
    snapshot = metrics.snapshot()
    other.merge(snapshot)
    other.add_current(snapshot)
    return other.page()
