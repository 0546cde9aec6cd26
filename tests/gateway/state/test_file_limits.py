"""Limits in a file: the same decisions as in one process, and exact counts for several processes."""

import asyncio
import subprocess
import sys
from pathlib import Path
from shutil import rmtree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_redis_limits import (
    ADMITTED_AROUND_A_WRONG_CLOCK,
    answer,
    answers_around_a_wrong_clock,
    caller,
    steps,
)

from toolwire.gateway.keys import InProcessLimiter
from toolwire.gateway.state.file_limits import FileLimiter
from toolwire.ir.errors import ConfigError, StoreError

COUNT = """
import asyncio, sys
from pathlib import Path
from toolwire.gateway.faults import RateLimited
from toolwire.gateway.config.settings import KeyRow
from toolwire.gateway.keys import Caller
from toolwire.gateway.state.file_limits import FileLimiter

async def main():
    limiter = FileLimiter(Path(sys.argv[1]), None, lambda: 1_000_000.0)
    who, admitted = Caller("team", KeyRow("0" * 64, requests_per_minute=5_000, tokens_per_day=10**9)), 0
    await limiter.open()
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(2_500):
        try:
            await limiter.admit(who)
        except RateLimited:
            continue
        admitted += 1
        await limiter.spend(who, 3)
    print(admitted)

asyncio.run(main())
"""


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(steps=steps, most=st.integers(1, 4), tokens=st.integers(1, 40))
def test_file_limiter_decides_like_the_in_process_limiter(tmp_path, steps, most, tokens):
    who = caller(requests_per_minute=most, tokens_per_minute=tokens, tokens_per_day=3 * tokens)
    now = 1_000_000.0

    async def compare():
        nonlocal now
        near, far = InProcessLimiter(lambda: now), FileLimiter(tmp_path / "limits", None, lambda: now)
        for pause, what in steps:
            now = round(now + pause, 3)
            if what == "spend":
                await asyncio.gather(near.spend(who, 10), far.spend(who, 10))
            else:
                assert await answer(far, who) == await answer(near, who)
        await far.aclose()

    asyncio.run(compare())
    (tmp_path / "limits").unlink()


def test_several_processes_share_one_exact_count(tmp_path):
    file = tmp_path / "limits"
    command = [sys.executable, "-c", COUNT, str(file)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(3)]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 3
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    admitted = [int(process.communicate()[0]) for process in processes]
    assert sum(admitted) == 5_000

    async def count():
        limiter = FileLimiter(file, None, lambda: 1_000_000.0)
        found = [await answer(limiter, caller(tokens_per_day=maximum)) for maximum in (15_000, 15_001)]
        await limiter.aclose()
        return [one is None for one in found]

    assert asyncio.run(count()) == [False, True]


def test_records_of_expired_keys_are_used_again(tmp_path):
    now = 1_000_000.0

    async def run():
        nonlocal now
        limiter = FileLimiter(tmp_path / "limits", None, lambda: now)
        for number in range(12_000):
            now += 0.1
            assert await answer(limiter, caller(f"key {number}", requests_per_minute=1)) is None
        assert await answer(limiter, caller("key 11999", requests_per_minute=1)) is not None
        await limiter.aclose()

    asyncio.run(run())
    assert (tmp_path / "limits").stat().st_size < 3_000_000


def test_refunded_request_does_not_count(tmp_path):
    now = 1_000_000.0

    async def run():
        nonlocal now
        found = []
        for limiter in (InProcessLimiter(lambda: now), FileLimiter(tmp_path / "limits", None, lambda: now)):
            who = caller(requests_per_minute=2, tokens_per_day=100)
            await limiter.refund(who)  # there is nothing to undo
            await limiter.admit(who)
            await limiter.admit(who)
            now += 5
            await limiter.refund(who)
            found.append([await answer(limiter, who) is None for _ in range(2)])
        await limiter.aclose()
        return found

    assert asyncio.run(run()) == [[True, False]] * 2


def test_clock_that_is_set_back_forgets_nothing(tmp_path):
    now = 1_000_000.0

    async def run():
        nonlocal now
        limiter = FileLimiter(tmp_path / "limits", None, lambda: now)
        who = caller(requests_per_minute=2)
        found = [await answer(limiter, who) is None]
        for step in (-30, 0, 25):
            now += step
            found.append(await answer(limiter, who) is None)
        await limiter.aclose()
        return found

    assert asyncio.run(run()) == [True, True, False, False]


def test_without_the_file_requests_are_counted_locally_or_refused(tmp_path):
    async def run():
        file = tmp_path / "missing" / "limits"
        who = caller(requests_per_minute=1, tokens_per_day=100)
        local, strict = FileLimiter(file, InProcessLimiter(lambda: 0.0)), FileLimiter(file, None)
        await local.open()
        found = [await answer(local, who) is None for _ in range(2)]
        await local.spend(who, 5)
        await strict.spend(who, 5)
        with pytest.raises(StoreError):
            await strict.admit(who)
        return found

    assert asyncio.run(run()) == [True, False]


def test_other_file_is_not_overwritten(tmp_path):
    (tmp_path / "limits").write_text("important")
    with pytest.raises(ConfigError, match="not a file of limits"):
        asyncio.run(FileLimiter(tmp_path / "limits", None).admit(caller(requests_per_minute=1)))
    assert (tmp_path / "limits").read_text() == "important"


HOLD_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.mark.finding("SE3")
def test_clock_that_was_ahead_for_a_moment_locks_no_key_out(tmp_path):
    now = 0.0

    def set_clock(seconds):
        nonlocal now
        now = seconds

    async def run():
        limiter = FileLimiter(tmp_path / "limits", None, lambda: now)
        set_clock(366 * 86_400.0 * 60)
        for number in range(2_500):  # keys that are removed later
            await limiter.admit(caller(f"removed {number}", requests_per_minute=1))
        found = await answers_around_a_wrong_clock(limiter, set_clock)
        for number in range(2_500):  # records that were written ahead of time are used again
            await limiter.admit(caller(f"key {number}", requests_per_minute=1))
        await limiter.aclose()
        return found

    assert asyncio.run(run()) == ADMITTED_AROUND_A_WRONG_CLOCK


@pytest.mark.finding("SE4")
def test_held_lock_blocks_neither_the_event_loop_nor_requests(tmp_path, caplog):
    file = tmp_path / "limits"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", HOLD_LOCK, str(file)]

    async def run():
        who = caller(requests_per_minute=3)
        limiter = FileLimiter(file, InProcessLimiter(lambda: 0.0), timeout=0.05)
        strict = FileLimiter(file, None, timeout=0.05)
        await limiter.admit(who)
        await strict.open()
        holder = await asyncio.to_thread(subprocess.Popen, command, **pipes)
        assert await asyncio.to_thread(holder.stdout.readline) == "held\n"
        turns = 0

        async def count_turns():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count_turns())
        found = await asyncio.gather(*(answer(limiter, who) for _ in range(40)))
        assert turns > 10  # of the event loop, while requests waited for the lock
        counting.cancel()
        assert found.count(None) == 3  # of this process
        with pytest.raises(StoreError):
            await strict.admit(who)
        await limiter.spend(who, 5)
        await limiter.refund(who)
        holder.communicate("\n")
        found = [await answer(limiter, who) is None for _ in range(3)]
        await limiter.aclose()
        await strict.aclose()
        return found

    assert asyncio.run(run()) == [True, True, False]  # with the request before the lock
    messages = [record.getMessage() for record in caplog.records]
    assert sum("cannot use the file of the limits" in text for text in messages) == 2  # a line for each limiter
    assert sum("can be used again" in text for text in messages) == 1


@pytest.mark.finding("SE4")
@pytest.mark.parametrize("size", [0, 100, 200_000])
def test_truncated_file_ends_no_process(tmp_path, size):
    file = tmp_path / "limits"
    code = """
import asyncio, os, sys
from pathlib import Path
from toolwire.gateway.config.settings import KeyRow
from toolwire.gateway.keys import Caller
from toolwire.gateway.keys import InProcessLimiter
from toolwire.gateway.state.file_limits import FileLimiter

async def main():
    limiter = FileLimiter(Path(sys.argv[1]), None)
    callers = [Caller(f"key {number}", KeyRow("0" * 64, requests_per_minute=10)) for number in range(50)]
    for step in range(2):
        for caller in callers:
            await limiter.admit(caller)
        if step == 0:
            os.truncate(sys.argv[1], int(sys.argv[2]))
    print("alive", os.path.getsize(sys.argv[1]))

asyncio.run(main())
"""
    found = subprocess.run(
        [sys.executable, "-c", code, str(file), str(size)], capture_output=True, text=True, check=False
    )
    assert found.stdout.split()[:1] == ["alive"], (found.returncode, found.stderr)
    assert int(found.stdout.split()[1]) > 2_000_000


@pytest.mark.finding("SE4")
@pytest.mark.parametrize("remove", [Path.unlink, lambda file: file.rename(file.with_name("backup"))])
def test_deleted_or_moved_file_is_replaced_by_all_processes(tmp_path, caplog, remove):
    file = tmp_path / "limits"

    async def run():
        who = caller(requests_per_minute=2)
        first = FileLimiter(file, None, lambda: 1_000_000.0)
        assert await answer(first, who) is None
        remove(file)
        later = FileLimiter(file, None, lambda: 1_000_000.0)
        found = [await answer(limiter, who) is None for limiter in (later, first, later, first)]
        await first.aclose()
        await later.aclose()
        return found

    assert asyncio.run(run()) == [True, True, False, False]
    assert "the file of the limits was deleted or moved" in caplog.text


@pytest.mark.finding("SE4")
def test_deleted_folder_is_logged_once(tmp_path, caplog):
    file = tmp_path / "folder" / "limits"

    async def run():
        who = caller(requests_per_minute=1)
        file.parent.mkdir()
        limiter = FileLimiter(file, InProcessLimiter(lambda: 0.0))
        assert await answer(limiter, who) is None
        rmtree(file.parent)
        await answer(limiter, who)
        assert await answer(limiter, who) is not None
        outage = [record.levelname for record in caplog.records]
        file.parent.mkdir()
        assert await answer(limiter, who) is None
        await limiter.aclose()
        return outage

    assert asyncio.run(run()) == ["ERROR"]
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING", "WARNING"]
