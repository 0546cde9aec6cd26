"""Results of worker processes are equal for any number of workers, also if workers and the command are killed."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from executor_work import DoomedWork, EndAtLoad, UnloadableWork, WaitingWork, digest, return_text, square, stop_all
from places import ROOT
from toolwire.ir.errors import ConfigError
from toolwire.net.executors import ProcessPool, open_results
from toolwire.run.executor import InProcess, WorkFailed, map_items
from waiting import SAFETY, wait_until

ITEMS = range(24)
EXPECTED = [digest(item) for item in ITEMS]


def names_of(items):
    return [f"{item:04}.bin" for item in items]


def files_in(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_results_are_equal_with_workers_killed_at_random_items(tmp_path, workers):
    killed = random.Random(workers).sample(ITEMS, 3)
    work = DoomedWork(tmp_path, killed_once=killed)
    results = open_results(tmp_path / "results")
    found = map_items(work, ITEMS, executor=ProcessPool(workers), results=results, names=names_of(ITEMS))
    assert found == EXPECTED
    assert files_in(tmp_path / "results") == dict(zip(names_of(ITEMS), EXPECTED, strict=True))
    # only the items of the killed workers were computed again
    assert sorted(work.tries()) == sorted(map(str, [*ITEMS, *killed]))


def test_item_that_always_fails_or_kills_is_reported_and_the_others_are_done(tmp_path):
    work = DoomedWork(tmp_path, killed=[5], failing=[2])
    results = open_results(tmp_path / "results")
    with pytest.raises(WorkFailed) as caught:
        map_items(work, ITEMS, executor=ProcessPool(2, attempts=2), results=results, names=names_of(ITEMS))
    failing, killing = caught.value.failures
    assert (failing.number, failing.attempts, failing.fault.reason) == (2, 2, "ValueError: no answer to 2")
    assert 'raise ValueError(f"no answer to {item}")' in failing.fault.trace
    assert (killing.number, killing.attempts, killing.fault.reason) == (5, 2, "the worker was ended by SIGKILL")
    assert "2 of 24 items failed 2 times: item 2 (0002.bin): ValueError" in caught.value.message
    assert len(files_in(tmp_path / "results")) == len(ITEMS) - 2
    assert work.tries().count("5") == work.tries().count("2") == 2
    # the corrected work computes the missing items only
    corrected = DoomedWork(tmp_path / "results")
    assert map_items(corrected, ITEMS, executor=InProcess(), results=results, names=names_of(ITEMS)) == EXPECTED
    assert corrected.tries() == ["2", "5"]


COMMAND = """
import sys
from executor_work import WaitingWork
from toolwire.net.executors import ProcessPool, open_results
from toolwire.run.executor import map_items

if __name__ == "__main__":
    folder = sys.argv[1]
    names = [f"{item:04}.bin" for item in range(8)]
    work = WaitingWork(folder, [4, 5, 6, 7])
    print(map_items(work, range(8), executor=ProcessPool(2), results=open_results(folder + "/results"), names=names))
"""


def start_command(tmp_path):
    file = tmp_path / "command.py"
    file.write_text(COMMAND)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests" / "support")}
    command = [sys.executable, str(file), str(tmp_path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True)


def worker_pids(tmp_path):
    return [int(path.name.removeprefix("pid-")) for path in tmp_path.glob("pid-*")]


def is_running(pid):
    """Return whether a process runs; a zombie that no process has collected does not."""
    try:
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent_and_the_repeated_command_continues(tmp_path, signal_number):
    first = start_command(tmp_path)
    wait_until(lambda: len(worker_pids(tmp_path)) == 2)
    wait_until(lambda: len(list((tmp_path / "results").glob("*.bin"))) == 4)  # a worker gets its next item before
    os.kill(first.pid, signal_number)
    first.communicate(timeout=SAFETY)
    wait_until(lambda: not any(map(is_running, worker_pids(tmp_path))))
    finished = files_in(tmp_path / "results")
    assert sorted(finished) == names_of(range(4))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "results").iterdir()}
    (tmp_path / "go").touch()
    second = start_command(tmp_path)
    out, _ = second.communicate(timeout=SAFETY)
    assert out.strip() == str([square(item) for item in range(8)])
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())


def test_closed_iterator_ends_its_workers(tmp_path):
    running = ProcessPool(2).map(WaitingWork(tmp_path, [1, 2]), {0: 0, 1: 1, 2: 2})
    assert next(running) == (0, b"0")
    wait_until(lambda: worker_pids(tmp_path))
    running.close()
    assert not any(map(is_running, worker_pids(tmp_path)))


def test_work_that_cannot_be_sent_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="function cannot be sent to other processes") as caught:
        map_items(lambda item: b"", [1], executor=ProcessPool(2))
    assert "use a function of a module" in caught.value.hint
    with pytest.raises(ConfigError, match="lock cannot be sent to other processes"):
        map_items(square, [threading.Lock()], executor=ProcessPool(1))
    with pytest.raises(ConfigError, match="a worker cannot load the work: ValueError: invalid literal"):
        map_items(UnloadableWork(), [1], executor=ProcessPool(1))


def test_worker_that_never_starts_is_reported():
    with pytest.raises(WorkFailed, match="no worker can start: the worker ended with exit code 7"):
        map_items(EndAtLoad(), [1, 2, 3], executor=ProcessPool(1, attempts=2))


def test_errors_that_every_item_would_have_stop_the_map():
    with pytest.raises(ConfigError, match="there is no model") as caught:
        map_items(stop_all, ITEMS, executor=ProcessPool(1))
    assert caught.value.hint == "give one"
    with pytest.raises(ConfigError, match="the work must return bytes, got str"):
        map_items(return_text, ITEMS, executor=ProcessPool(1))


def test_commands_that_write_one_result_at_the_same_time_store_it_whole(tmp_path, monkeypatch):
    first, second = open_results(tmp_path), open_results(tmp_path)
    sync = os.fsync

    def write_in_between(number):
        monkeypatch.setattr(os, "fsync", sync)
        second.write("0000.bin", b"second")
        sync(number)

    monkeypatch.setattr(os, "fsync", write_in_between)
    first.write("0000.bin", b"the first result")
    assert files_in(tmp_path) == {"0000.bin": b"the first result"}


def test_commands_that_write_one_object_at_the_same_time_store_it_whole(monkeypatch):
    memory = pytest.importorskip("fsspec.implementations.memory").MemoryFileSystem
    first, second = open_results("memory://runs/shared"), open_results("memory://runs/shared")
    move = memory.mv

    def write_in_between(system, *names):
        monkeypatch.setattr(memory, "mv", move)
        second.write("0000.bin", b"second")
        move(system, *names)

    monkeypatch.setattr(memory, "mv", write_in_between)
    first.write("0000.bin", b"the first result")
    assert first.read("0000.bin") == b"the first result"


def test_parts_of_killed_commands_are_removed_after_a_day(tmp_path):
    old, fresh = tmp_path / "0000.bin.0a.part", tmp_path / "0000.bin.0b.part"
    for part in (old, fresh):
        part.write_bytes(b"torn")
    os.utime(old, (0, time.time() - 25 * 60 * 60))
    open_results(tmp_path)
    assert list(tmp_path.iterdir()) == [fresh]


def test_results_in_an_object_store():
    pytest.importorskip("fsspec")
    results = open_results("memory://runs/counts")
    assert results.read("0000.bin") is None
    names = names_of(range(3))
    assert map_items(square, range(3), results=results, names=names) == [b"0", b"1", b"4"]
    again = map_items(digest, range(3), results=open_results("memory://runs/counts"), names=names)
    assert again == [b"0", b"1", b"4"]
    with pytest.raises(ConfigError, match="cannot open unknown://x"):
        open_results("unknown://x")
