"""Eight processes want the same five hundred calls: each is executed once."""

import pytest

from stores import worker
from stores.servers import PROCESSES
from stores.worker import executions
from toolwire.run.records import DAY

RACERS = 8
KEYS = [f"key {number}" for number in range(500)]


def race(place, effects, keys, **how):
    racers = [
        PROCESSES.Process(target=worker.work, args=(place, effects, keys), kwargs={"shuffle": number, **how})
        for number in range(RACERS)
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert [racer.exitcode for racer in racers] == [0] * RACERS


@pytest.mark.one_in(3)
def test_race(place, store, tmp_path):
    effects = tmp_path / "effects"
    race(place, effects, KEYS)
    assert executions(effects) == dict.fromkeys(KEYS, 1)
    assert len(store.records("done", limit=1000)) == len(KEYS)
    assert store.records("unknown") == store.records("running") == []


def test_who_reclaims_is_one(place, store, wish, tmp_path):
    """What is unknown may be run again, by one of those who want to."""
    effects = tmp_path / "effects"
    for key in KEYS[:100]:
        claim = wish(key, durable=False)
        store.claim(claim)
        store.complete(key, claim.token, "?", DAY, "unknown")
    race(place, effects, KEYS[:100], reclaim=True)
    assert executions(effects) == dict.fromkeys(KEYS[:100], 1)


@pytest.mark.one_in(3)
def test_the_first_use_is_a_race_too(server, tmp_path):
    """Nobody has made the file or the table yet."""
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        place = server.fresh(folder)
        race(place, folder / "effects", ["k"])
        assert executions(folder / "effects") == {"k": 1}
