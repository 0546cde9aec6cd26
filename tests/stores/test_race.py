"""Eight processes want the same five hundred calls: each is executed once."""

import pytest

from stores import worker
from stores.servers import PROCESSES
from stores.worker import executions
from toolwire.run.values.records import DAY

RACERS = 8
KEYS = [f"key {number}" for number in range(500)]


def race(store_url, effects, keys, **how):
    racers = [
        PROCESSES.Process(target=worker.work, args=(store_url, effects, keys), kwargs={"shuffle": number, **how})
        for number in range(RACERS)
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert [racer.exitcode for racer in racers] == [0] * RACERS


@pytest.mark.one_in(3)
def test_racing_processes_execute_each_call_once(store_url, store, tmp_path):
    effects = tmp_path / "effects"
    race(store_url, effects, KEYS)
    assert executions(effects) == dict.fromkeys(KEYS, 1)
    assert len(store.records("done", limit=1000)) == len(KEYS)
    assert store.records("unknown") == store.records("running") == []


def test_unknown_record_is_reclaimed_by_one_process(store_url, store, new_claim, tmp_path):
    """What is unknown may be run again, by one of those who want to."""
    effects = tmp_path / "effects"
    for key in KEYS[:100]:
        claim = new_claim(key, durable=False)
        store.claim(claim)
        store.complete(key, claim.token, "?", DAY, "unknown")
    race(store_url, effects, KEYS[:100], reclaim=True)
    assert executions(effects) == dict.fromkeys(KEYS[:100], 1)


@pytest.mark.one_in(3)
def test_concurrent_first_use_executes_the_call_once(server, tmp_path):
    """Nobody has made the file or the table yet."""
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        store_url = server.fresh(folder)
        race(store_url, folder / "effects", ["k"])
        assert executions(folder / "effects") == {"k": 1}
