"""The distribution of items among workers that end at any time, with simulated workers, and the order of results."""

import random

import pytest

from executor_work import return_text, square, stop_all
from toolwire.ir.errors import ConfigError
from toolwire.run.executor import (
    LOST,
    READY,
    FailedItem,
    InProcess,
    ItemFault,
    WorkFailed,
    distribute,
    map_items,
    require_positive,
)


class SimulatedWorkers:
    """Workers that are lost, fail and answer in a seeded order."""

    def __init__(self, seed, *, lost=0.0, failing=0.0):
        self.random = random.Random(seed)
        self.lost = lost
        self.failing = failing
        self.started = 0
        self.running = {}
        self.stopped = []
        self.most = 0

    def start(self):
        self.started += 1
        self.running[self.started] = READY
        self.most = max(self.most, len(self.running))
        return self.started

    def send(self, worker, item):
        assert self.running[worker] is None
        self.running[worker] = item

    def wait(self, workers):
        assert set(workers) == self.running.keys()
        chosen = self.random.sample(sorted(self.running), self.random.randint(1, len(self.running)))
        return [(worker, self.event(worker)) for worker in chosen]

    def event(self, worker):
        item = self.running[worker]
        if self.random.random() < self.lost:
            del self.running[worker]
            return LOST
        self.running[worker] = None
        if item == READY:
            return READY
        return ItemFault("failed") if self.random.random() < self.failing else square(item)

    def stop(self, worker, *, is_busy):
        assert is_busy == (self.running.pop(worker) is not None)
        self.stopped.append(worker)

    def explain(self, worker):
        return f"worker {worker} was lost"


@pytest.mark.parametrize("seed", range(200))
def test_every_item_has_one_outcome_whatever_happens_to_workers(seed):
    chance = random.Random(seed)
    workers = SimulatedWorkers(seed, lost=chance.choice([0, 0.1, 0.3]), failing=chance.choice([0, 0.1, 0.3]))
    count, items = chance.randint(1, 5), {number: number * 10 for number in range(chance.randint(0, 30))}
    outcomes = list(distribute(workers, count, items, 40))
    assert sorted(number for number, _ in outcomes) == list(items)
    assert all(outcome == square(items[number]) for number, outcome in outcomes)
    assert workers.most <= count
    assert not workers.running


def test_item_is_tried_as_often_as_allowed():
    workers = SimulatedWorkers(1, failing=1.0)
    [(number, failed)] = distribute(workers, 2, {7: 7}, 3)
    assert (number, failed) == (7, FailedItem(7, 3, ItemFault("failed")))


def test_workers_that_are_lost_before_their_first_item_stop_the_map():
    workers = SimulatedWorkers(1, lost=1.0)
    with pytest.raises(WorkFailed, match=r"no worker can start: worker \d was lost") as caught:
        list(distribute(workers, 2, {0: 0, 1: 1}, 3))
    assert workers.started in (6, 7)  # the sixth lost start stops the map, perhaps after another worker has started
    assert "__main__" in caught.value.hint


def test_results_have_the_order_of_the_items():
    class Reversed:
        def map(self, work, items):
            return ((number, work(item)) for number, item in reversed(items.items()))

    progress = []
    found = map_items(square, [3, 1, 2], executor=Reversed(), progress=lambda *at: progress.append(at))
    assert found == [b"9", b"1", b"4"]
    assert progress == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert map_items(square, []) == []


def test_failures_in_this_process_are_reported_after_all_other_items():
    calls = []

    def work(item):
        calls.append(item)
        if item % 2:
            raise KeyError(item)
        return b""

    with pytest.raises(WorkFailed) as caught:
        map_items(work, range(10), executor=InProcess(attempts=2))
    assert [failed.number for failed in caught.value.failures] == [1, 3, 5, 7, 9]
    assert str(caught.value).startswith(
        "5 of 10 items failed 2 times: item 1: KeyError: 1; item 3: KeyError: 3; item 5"
    )
    assert "and 2 more" in caught.value.message
    assert calls == [0, 1, 1, 2, 3, 3, 4, 5, 5, 6, 7, 7, 8, 9, 9]


def test_errors_about_the_command_stop_at_the_first_item():
    with pytest.raises(ConfigError, match="there is no model"):
        map_items(stop_all, [1, 2])
    with pytest.raises(ConfigError, match="the work must return bytes, got str"):
        map_items(return_text, [1])


def test_names_of_stored_results_are_different():
    with pytest.raises(ConfigError, match="a different name for each of 2 items"):
        map_items(square, [1, 2], results=object(), names=["a", "a"])
    with pytest.raises(ConfigError, match="workers must be positive, got 0"):
        require_positive("workers", 0)
