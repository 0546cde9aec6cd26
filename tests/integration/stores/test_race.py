"""Eight processes want the same five hundred calls: each is executed once."""

import store_worker
from store_servers import PROCESSES
from store_worker import executions

RACERS = 8
KEYS = [f"key {number}" for number in range(500)]


def test_race(place, store, tmp_path):
    effects = tmp_path / "effects"
    racers = [
        PROCESSES.Process(target=store_worker.work, args=(place, effects, KEYS), kwargs={"shuffle": number})
        for number in range(RACERS)
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert [racer.exitcode for racer in racers] == [0] * RACERS
    assert executions(effects) == dict.fromkeys(KEYS, 1)
    assert len(store.records("done", limit=1000)) == len(KEYS)
    assert store.records("unknown") == store.records("running") == []


def test_the_first_use_is_a_race_too(server, tmp_path):
    """Nobody has made the file or the table yet."""
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        place = server.fresh(folder)
        racers = [
            PROCESSES.Process(target=store_worker.work, args=(place, folder / "effects", ["k"])) for _ in range(RACERS)
        ]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        assert [racer.exitcode for racer in racers] == [0] * RACERS
        assert executions(folder / "effects") == {"k": 1}
