"""Metrics of several workers: the sum on every page, and no counter that decreases."""

import subprocess
import sys

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from toolwire.gateway.observe.metrics import Metrics
from toolwire.gateway.observe.request_log import RequestLog
from toolwire.gateway.observe.workers import WorkerMetrics
from toolwire.ir.losses import Loss
from toolwire.ir.response import Usage

LABELS = {"ingress": "anthropic", "upstream": "u", "model": "m"}
CALL_LABELS = {name: LABELS[name] for name in ("upstream", "model")}


def request_log(**changes):
    usual = {"model": "m", "upstream": "u", "status": 200, "attempts": 1, "seconds": 0.2, "action": "generate"}
    return RequestLog("id", 0.0, "anthropic", **{**usual, **changes})


def samples(page):
    families = text_string_to_metric_families(page.decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def value(worker, name, **labels):
    return samples(worker.page()).get((name, frozenset(labels.items())))


def test_page_of_every_worker_is_the_sum_of_all(tmp_path):
    metrics = [Metrics(), Metrics()]
    workers = [WorkerMetrics(own, tmp_path, number) for number, own in enumerate(metrics)]
    metrics[0](request_log(usage=Usage(3, 4), calls=("weather",), seconds=0.2))
    metrics[1](request_log(usage=Usage(30, 40), calls=("weather", "time"), seconds=0.3))
    metrics[1](
        request_log(
            status=503, error="server", losses=(Loss("/top_k", "top_k", "dropped", "warning", "no such parameter"),)
        )
    )
    metrics[1].begin(request_log(), None, {})
    for worker in workers:
        worker.publish()
    for worker in workers:
        assert value(worker, "toolwire_requests_total", **LABELS, status="200") == 2
        assert value(worker, "toolwire_requests_total", **LABELS, status="503") == 1
        assert value(worker, "toolwire_tokens_total", **LABELS, kind="output") == 44
        assert value(worker, "toolwire_request_duration_seconds_count", **LABELS) == 3
        assert value(worker, "toolwire_tool_calls_total", tool="weather", outcome="ok", **CALL_LABELS) == 2
        assert value(worker, "toolwire_requests_in_flight") == 1
        assert value(worker, "process_cpu_seconds_total") > 0


def test_no_page_is_lower_than_an_earlier_page_of_another_worker(tmp_path):
    metrics = [Metrics(), Metrics()]
    workers = [WorkerMetrics(own, tmp_path, number) for number, own in enumerate(metrics)]
    found = []
    for number in range(20):
        metrics[number % 2](request_log())  # not published, except by the page
        found.append(value(workers[number % 3 % 2], "toolwire_requests_total", **LABELS, status="200"))
    assert found == sorted(found)


def test_replacing_worker_continues_the_counts_of_its_file(tmp_path):
    ended, other = Metrics(), Metrics()
    first, second = WorkerMetrics(ended, tmp_path, 0), WorkerMetrics(other, tmp_path, 1)
    ended(request_log())
    ended.begin(request_log(), None, {})
    first.publish()
    set_pid(tmp_path / "metrics-0", dead_pid())
    assert value(second, "toolwire_requests_total", **LABELS, status="200") == 1
    assert value(second, "toolwire_requests_in_flight") == 0
    fresh = Metrics()
    replacing = WorkerMetrics(fresh, tmp_path, 0)
    fresh(request_log())
    assert value(replacing, "toolwire_requests_total", **LABELS, status="200") == 2
    assert value(second, "toolwire_requests_total", **LABELS, status="200") == 2


def test_unreadable_file_is_ignored(tmp_path):
    (tmp_path / "metrics-0").write_bytes(b"\xc1 of another version")
    metrics = Metrics()
    worker = WorkerMetrics(metrics, tmp_path, 1)
    metrics(request_log())
    assert value(worker, "toolwire_requests_total", **LABELS, status="200") == 1


def dead_pid():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def set_pid(file, pid):
    document = msgspec.msgpack.decode(file.read_bytes(), strict=False)
    file.write_bytes(msgspec.msgpack.encode({**document, "pid": pid}))
