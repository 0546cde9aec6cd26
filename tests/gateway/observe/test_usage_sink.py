"""The sink of usage: never in the way, bounded, and empty when it is closed."""

import threading

import pytest

from toolwire.gateway.observe.request_log import RequestLog
from toolwire.gateway.state.usage import UsageSink
from toolwire.ir.errors import StoreError
from toolwire.ir.response import Usage
from waiting import SAFETY, wait_until


def turn(number=0, **fields):
    return RequestLog(f"id {number}", 5.0, "anthropic", **{"model": "m", "status": 200, **fields})


class Store:
    def __init__(self):
        self.rows = []
        self.batches = self.attempts = 0
        self.closed = False
        self.away = threading.Event()
        self.may_write = threading.Event()
        self.may_write.set()

    def add(self, rows):
        assert self.may_write.wait(SAFETY)
        self.attempts += 1
        if self.away.is_set():
            raise StoreError("it is away")
        self.batches += 1
        self.rows += rows

    def close(self):
        self.closed = True


@pytest.fixture
def store():
    return Store()


def test_row_has_the_usage_of_the_request(store):
    sink = UsageSink(store)
    usage = Usage(100, 50, cached=30, reasoning=20)
    sink(
        turn(
            caller="ann", upstream="u", upstream_model="um", usage=usage, calls=("a", "b"), seconds=1.5, error="server"
        )
    )
    sink.close()
    [row] = store.rows
    assert (row.time, row.key, row.model, row.upstream, row.upstream_model) == (5.0, "ann", "m", "u", "um")
    assert (row.input, row.output, row.cached, row.reasoning) == (100, 50, 30, 20)
    assert (row.status, row.error, row.calls, row.seconds, row.estimated) == (200, "server", 2, 1.5, False)


def test_request_without_a_model_is_not_recorded(store):
    sink = UsageSink(store)
    sink(turn(model=""))
    sink.close()
    assert store.rows == []


def test_rows_are_written_in_batches(store):
    store.may_write.clear()
    sink = UsageSink(store)
    for number in range(3000):
        sink(turn(number))
    store.may_write.set()
    wait_until(lambda: len(store.rows) == 3000)
    assert len({row.id for row in store.rows}) == 3000
    assert store.batches <= 4  # the first one may be small
    sink.close()
    assert store.closed
    assert sink.dropped == 0


def test_closing_writes_queued_rows(store):
    sink = UsageSink(store)
    for number in range(2500):
        sink(turn(number))
    sink.close()
    assert len(store.rows) == 2500


def test_full_queue_drops_rows_and_logs_it(store, caplog, monkeypatch):
    monkeypatch.setattr("toolwire.gateway.state.usage._WRITE_INTERVAL", SAFETY)  # it logs all drops at the end
    store.away.set()
    sink = UsageSink(store, queue=10)
    for number in range(1000):
        sink(turn(number))
    assert sink.dropped == 990
    store.away.clear()
    sink.close()
    assert len(store.rows) == 10
    assert "lost 990 rows of usage: the queue is full" in caplog.text


def test_failed_writes_are_retried(store, caplog, monkeypatch):
    monkeypatch.setattr("toolwire.gateway.state.usage._FAILURE_DELAY", 0.05)
    store.away.set()
    sink = UsageSink(store)
    sink(turn())
    wait_until(lambda: store.attempts > 3)
    assert store.rows == []
    assert caplog.text.count("cannot write usage: it is away") == 1
    store.away.clear()
    wait_until(lambda: "written again" in caplog.text)
    assert len(store.rows) == 1
    sink.close()


def test_closing_gives_up_when_the_store_fails(store, caplog, monkeypatch):
    monkeypatch.setattr("toolwire.gateway.state.usage._CLOSE_TIMEOUT", 0.3)
    store.away.set()
    sink = UsageSink(store)
    sink(turn())
    sink.close()
    assert sink.dropped == 1
    assert "lost 1 row of usage: the store was unavailable until the end" in caplog.text
    assert "queue" not in caplog.text


def test_closing_does_not_wait_for_a_hanging_store(store, caplog, monkeypatch):
    monkeypatch.setattr("toolwire.gateway.state.usage._CLOSE_TIMEOUT", 0.3)
    hanging = threading.Event()
    store.add = lambda rows: hanging.wait(SAFETY)
    sink = UsageSink(store)
    sink(turn())
    sink.close()
    assert not store.closed  # it would hang as well
    assert "does not respond" in caplog.text
    hanging.set()


def test_unwritable_row_does_not_block_other_rows(store, caplog):
    add = store.add

    def only_what_fits(rows):
        if any(row.input > 2**63 for row in rows):
            raise OverflowError("Python int too large to convert to SQLite INTEGER")
        add(rows)

    store.add = only_what_fits
    sink = UsageSink(store)
    sink(turn(usage=Usage(10**30, 1)))
    wait_until(lambda: sink.dropped)
    sink(turn(usage=Usage(1, 1)))
    sink.close()
    assert [row.input for row in store.rows] == [1]
    assert sink.dropped == 1
    assert "cannot write 1 row of usage" in caplog.text
