"""Every shard has one result, also if workers are killed or lose their lease."""

import signal
import subprocess
import sys

import pytest

from toolwire.ir.errors import ConfigError
from toolwire.learn.run_folder import job_key, run_shards
from toolwire.net.stores import open_store
from toolwire.net.stores.memory import MemoryStore
from waiting import SAFETY, wait_until

WORKER = """
import os, sys, time
from toolwire.learn.run_folder import run_shards
from toolwire.net.stores import open_store

def work(number):
    with open(sys.argv[2], "ab", buffering=0) as log:
        log.write(f"{number} {os.getpid()}\\n".encode())
    time.sleep(float(sys.argv[3]))
    return {"shard": number, "square": number * number}

store = open_store(sys.argv[1])
print(run_shards(store, "job", [f"f{n}" for n in range(12)], work, lease=float(sys.argv[4])))
"""


def start_worker(store, log, seconds, lease):
    arguments = [str(store), str(log), str(seconds), str(lease)]
    return subprocess.Popen([sys.executable, "-c", WORKER, *arguments], stdout=subprocess.PIPE, text=True)


def test_killed_worker_loses_no_shard_and_doubles_none(tmp_path):
    store, log = tmp_path / "shards.db", tmp_path / "log"
    victim = start_worker(store, log, 0.3, lease=1.0)
    wait_until(lambda: log.exists() and len(log.read_text().splitlines()) >= 3)
    victim.send_signal(signal.SIGKILL)
    others = [start_worker(store, log, 0.05, lease=SAFETY) for _ in range(2)]  # these never lose a lease
    victim.communicate()
    expected = [{"shard": number, "square": number * number} for number in range(12)]
    for other in others:
        out, _ = other.communicate(timeout=SAFETY)
        assert other.returncode == 0
        assert out.strip() == str(expected)
    lines = [tuple(map(int, line.split())) for line in log.read_text().splitlines()]
    runs = {number: [pid for shard, pid in lines if shard == number] for number in range(12)}
    repeated = {number: pids for number, pids in runs.items() if len(pids) > 1}
    assert all(runs.values())
    # only the shard that the killed worker held was computed again, by one other worker
    assert len(repeated) <= 1
    assert all(len(pids) == 2 and pids[0] == victim.pid for pids in repeated.values())


def test_result_of_a_worker_without_its_lease_is_rejected(tmp_path):
    store = open_store(str(tmp_path / "shards.db"))
    taken = []

    def slow(number):
        if not taken:
            taken.append(number)
            record = store.get(f"learn:job:{number}")
            store.release(record.key, record.token)  # the lease is lost
            assert run_shards(store, "job", ["a"], lambda _: "other") == ["other"]
        return "late"

    assert run_shards(store, "job", ["a"], slow) == ["other"]
    store.close()


def test_lease_is_renewed_while_the_work_takes_longer():
    now = [1_000_000.0]
    store = MemoryStore(lambda: now[0])
    states = []

    def work(number):
        key = f"learn:job:{number}"
        for _ in range(3):
            lease_end = store.get(key).lease_until
            now[0] = lease_end - 0.05
            wait_until(lambda: store.get(key).lease_until > lease_end)
            now[0] = lease_end
            states.append(store.get(key).state)
        return number

    assert run_shards(store, "job", ["a"], work, lease=0.2) == [0]
    assert states == ["running"] * 3


def test_failed_shard_is_released_and_finished_shards_stay(tmp_path):
    store = open_store(str(tmp_path / "shards.db"))
    calls = []

    def work(number):
        calls.append(number)
        if number == 2 and len(calls) == 3:
            raise RuntimeError("no memory")
        return number * 10

    with pytest.raises(RuntimeError, match="no memory"):
        run_shards(store, "job", list("abcd"), work)
    progress = []
    assert run_shards(store, "job", list("abcd"), work, progress=lambda *at: progress.append(at)) == [0, 10, 20, 30]
    assert calls == [0, 1, 2, 2, 3]
    assert progress == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
    store.close()


def test_other_inputs_under_the_same_job_are_refused():
    store = open_store("memory:")
    run_shards(store, "job", ["a"], str)
    with pytest.raises(ConfigError, match="shard 0 of the store has other inputs"):
        run_shards(store, "job", ["b"], str)
    with pytest.raises(ConfigError, match="lease must be positive, got 0"):
        run_shards(store, "job", ["a"], str, lease=0)


def test_job_key_depends_on_settings_and_inputs():
    assert job_key({"b": 1, "a": 2}, ["x"]) == job_key({"a": 2, "b": 1}, ["x"])
    assert len({job_key({"a": 2}, ["x"]), job_key({"a": 3}, ["x"]), job_key({"a": 2}, ["y"])}) == 3


def test_no_shards_are_no_work():
    assert run_shards(open_store("memory:"), "job", [], str) == []
