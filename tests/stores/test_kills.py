"""kill -9, at every point and at any moment: no write tool runs twice, nothing is done that was not, the rest is unknown.

20 kills a store; SOAK=1 makes it 200 (`make test-soak`).
"""

import os
import random
import time

import pytest

from stores import worker
from stores.servers import PROCESSES
from stores.worker import POINTS, executions, run

KILLS = 200 if os.environ.get("SOAK") else 20
LEASE = 0.5
BATCH = 60
# The state that somebody finds who takes it up, and how often it was executed then.
ENDS = dict(zip(POINTS, [("done", 1), ("unknown", 0), ("unknown", 1), ("done", 1)], strict=True))


@pytest.fixture
def effects(tmp_path):
    return tmp_path / "effects"


@pytest.mark.one_in(3)
def test_killed_workers_never_run_a_call_twice(store_url, store, effects):
    chance = random.Random(7)
    keys, expected = [], {}
    for number in range(KILLS):
        if number % 2:
            keys += kill_worker_at_a_random_time(store_url, effects, number, chance)
        else:
            key, point = f"{number}", POINTS[number // 2 % len(POINTS)]
            kill_worker_at(point, store_url, effects, key)
            keys.append(key)
            expected[key] = ENDS[point]
    time.sleep(LEASE)

    for key in keys:  # somebody takes it up: what was never claimed is run, all else is left alone
        run(store, effects, key)
    counts = executions(effects)
    found = {key: (store.get(key), counts[key]) for key in keys}
    assert max(counts.values()) == 1, "a write tool ran twice"
    for key, (record, count) in found.items():
        assert record.state in {"done", "unknown"}
        if record.state == "done":
            assert (count, record.result) == (1, f"paid {key}"), "done, but it was not"
    assert {key: (found[key][0].state, found[key][1]) for key in expected} == expected
    unknown = {key for key, (record, _) in found.items() if record.state == "unknown"}
    assert {record.key for record in store.records("unknown", limit=len(keys))} == unknown
    assert len(unknown) <= KILLS, "a kill loses one call at most"


def kill_worker_at(point, store_url, effects, key):
    victim = start(store_url, effects, [key], die_at=point)
    victim.join()
    assert victim.exitcode == -9


def kill_worker_at_a_random_time(store_url, effects, number, chance):
    """The victim is at work beside another, which does what the victim leaves."""
    while True:
        keys = [f"{number}/{chance.random()}" for _ in range(BATCH)]
        victim = start(store_url, effects, keys)
        other = start(store_url, effects, keys)
        wait_for_effect(effects, keys, victim)
        time.sleep(chance.uniform(0, 0.01))
        victim.kill()
        victim.join()
        other.join()
        assert other.exitcode == 0
        if victim.exitcode == -9:
            return keys
        assert victim.exitcode == 0  # it was done before the kill: once more


def wait_for_effect(effects, keys, victim):
    while victim.is_alive() and not any(key in executions(effects) for key in keys):
        time.sleep(0.001)


def start(store_url, effects, keys, **how):
    process = PROCESSES.Process(target=worker.work, args=(store_url, effects, keys), kwargs={"lease": LEASE, **how})
    process.start()
    return process
