"""Processes that are killed while they save an index, and processes that read it meanwhile."""

import os
import signal
import sys
from multiprocessing import get_context

import pytest

from hash_encoder import HashEncoder
from toolwire import Tool
from toolwire.retrieve import ToolIndex
from waiting import SAFETY

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and locks of POSIX")

PROCESSES = get_context("forkserver")
PROCESSES.set_forkserver_preload(["pytest", "toolwire.retrieve.index", "toolwire.retrieve.index_file"])
POINTS = 15


def make_index(version):
    """Make an index of which every tool has the version in its description."""
    index = ToolIndex(HashEncoder())
    index.add([Tool(f"tool_{number}", f"Version {version} of the tool") for number in range(50)])
    return index


def read_version(path):
    """Return the version of an index; fail if it is incomplete or mixed."""
    index = ToolIndex.load(path, HashEncoder())
    versions = {entry.tool.description.split()[1] for entry in index}
    assert len(index) == 50
    assert len(index.search("version of the tool", 50)) == 50
    assert len(versions) == 1
    return int(versions.pop())


def save_and_count(path, version, die_at, counts):
    """Save an index; the process kills itself at a call of a C function. Send the number of calls."""
    index = make_index(version)
    index.save(path + ".warm")
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        if event == "c_call":
            if calls == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            calls += 1

    sys.setprofile(count)
    index.save(path)
    sys.setprofile(None)
    if counts is not None:
        counts.put(calls)


def run_process(target, *arguments):
    process = PROCESSES.Process(target=target, args=arguments)
    process.start()
    return process


def test_kill_at_any_point_of_a_save_leaves_the_old_or_the_new_index(tmp_path):
    path = str(tmp_path / "tools.index")
    counts = PROCESSES.Queue()
    run_process(save_and_count, path, 0, -1, counts).join()
    calls = counts.get()
    assert calls > 5 * POINTS
    # the last calls are those around the flush, the rename and the flush of the folder
    points = sorted({*range(0, calls, calls // POINTS), *range(calls - 20, calls)})
    seen = {0}
    for number, point in enumerate(points, 1):
        for left in tmp_path.glob(".*.new"):  # so that each save makes the same calls
            left.unlink()
        process = run_process(save_and_count, path, number, point, None)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        version = read_version(path)
        assert version in (max(seen), number)
        seen.add(version)
    assert 1 < len(seen) < len(points)


def test_next_save_removes_the_file_that_a_killed_process_left(tmp_path):
    path = tmp_path / "tools.index"
    counts = PROCESSES.Queue()
    run_process(save_and_count, str(path), 1, -1, counts).join()
    run_process(save_and_count, str(path), 1, counts.get() * 2 // 3, None).join()
    assert len(list(tmp_path.glob(".tools.index.*.new"))) == 1
    make_index(2).save(path)
    assert read_version(path) == 2
    assert list(tmp_path.glob(".*")) == []


def read_until_stopped(path, has_read, stop, failures):
    seen = []
    while not stop.is_set():
        try:
            seen.append(read_version(path))
        except Exception as error:
            failures.put(repr(error))
            return
        finally:
            has_read.release()
    if seen != sorted(seen):
        failures.put(f"versions out of order: {seen}")
    failures.put(len(set(seen)))


def test_two_processes_read_while_one_writes(tmp_path):
    path = str(tmp_path / "tools.index")
    make_index(0).save(path)
    stop, results = PROCESSES.Event(), PROCESSES.Queue()
    starts = [PROCESSES.Semaphore(0) for _ in range(2)]
    readers = [run_process(read_until_stopped, path, has_read, stop, results) for has_read in starts]
    assert all(has_read.acquire(timeout=SAFETY) for has_read in starts)
    held = ToolIndex.load(path, HashEncoder())  # an index that is open stays as it is
    for version in range(1, 40):
        make_index(version).save(path)
    stop.set()
    counts = [results.get() for _ in readers]
    for reader in readers:
        reader.join()
    assert all(type(count) is int and count >= 1 for count in counts), counts
    assert {entry.tool.description.split()[1] for entry in held} == {"0"}


def save_often(path, first, count):
    for version in range(first, first + count):
        make_index(version).save(path)


def test_two_writers_leave_a_whole_index_and_no_other_file(tmp_path):
    path = str(tmp_path / "tools.index")
    writers = [run_process(save_often, path, first, 15) for first in (100, 200)]
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert read_version(path) in (114, 214)
    assert [file.name for file in tmp_path.iterdir()] == ["tools.index"]
