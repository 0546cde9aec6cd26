"""The time to live of recorded calls: per runner, per tool, command and settings (X4), and clocks that jump (Z17)."""

import asyncio
import sys
import time

import pytest

import toolwire
from stores.servers import open_test_store
from toolwire import Runner, ToolCall
from toolwire.cli.serve.tools import ToolLoader
from toolwire.gateway import parse_settings
from toolwire.ir.errors import ConfigError
from toolwire.net.stores import open_store
from toolwire.net.stores.memory import MemoryStore
from toolwire.net.stores.sqlite import SqliteStore
from toolwire.run import DAY
from toolwire.testing import Upstream, says

HOUR = 3600.0


def make_pay(**options):
    paid = []

    @toolwire.tool(**options)
    def pay(amount: int) -> str:
        paid.append(amount)
        return f"paid {amount}"

    return pay, paid


def call_pay(runner, **options):
    return runner.run_sync([ToolCall("1", "pay", {"amount": 5})], run_id="r", **options)[0]


def lifetime(store):
    (record,) = store.records()
    return record.expires_at - record.created_at


@pytest.mark.finding("X4")
@pytest.mark.parametrize(
    ("runner_ttl", "tool_ttl", "expected"), [(None, None, DAY), (HOUR, None, HOUR), (HOUR, 7 * DAY, 7 * DAY)]
)
def test_the_time_to_live_is_that_of_the_tool_or_the_runner(store_url, runner_ttl, tool_ttl, expected):
    store = open_test_store(store_url)
    pay, paid = make_pay(**({} if tool_ttl is None else {"ttl": tool_ttl}))
    runner = Runner(pay, store=store, **({} if runner_ttl is None else {"ttl": runner_ttl}))
    assert call_pay(runner).text == call_pay(runner).text == "paid 5"
    assert paid == [5]
    assert lifetime(store) == pytest.approx(expected, abs=60)
    runner.close()
    store.close()


@pytest.mark.finding("X4")
def test_a_call_runs_again_after_its_time_to_live():
    now = [1_000_000.0]
    store = MemoryStore(lambda: now[0])
    pay, paid = make_pay()
    runner = Runner(pay, store=store, ttl=HOUR)
    for elapsed, times in ((0, 1), (HOUR - 1, 1), (2, 2)):
        now[0] += elapsed
        call_pay(runner)
        assert len(paid) == times
    runner.close()


@pytest.mark.parametrize("ttl", [0, -1, float("inf"), float("nan")])
def test_an_invalid_time_to_live_is_refused(ttl):
    with pytest.raises(ConfigError, match="ttl must be positive"):
        Runner(make_pay()[0], ttl=ttl)
    with pytest.raises(ConfigError, match="ttl must be positive"):
        toolwire.tool(ttl=ttl)


@pytest.mark.finding("X4")
def test_the_command_takes_a_time_to_live(tmp_path):
    tools, store = tmp_path / "tools.py", str(tmp_path / "runs.db")
    tools.write_text("def pay(amount: int) -> str:\n    return 'paid'\n")
    script = [says(ToolCall("1", "pay", {"amount": 5})), says("done")]

    async def run():
        async with Upstream(*script) as upstream:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "toolwire", "run", "Pay.", "-t", str(tools), "--yes", "--store", store),
                *("--ttl", "7200", "-m", "vllm/any", "--base-url", upstream.url),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            _, errors = await process.communicate()
            assert process.returncode == 0, errors.decode()

    asyncio.run(run())
    opened = open_store(store)
    assert lifetime(opened) == pytest.approx(2 * HOUR, abs=60)
    opened.close()


@pytest.mark.finding("X4")
def test_the_settings_of_a_gateway_take_a_time_to_live(tmp_path):
    (tmp_path / "tools.py").write_text("def pay(amount: int) -> str:\n    return 'paid'\n")
    row = {"files": [str(tmp_path / "tools.py")], "store": str(tmp_path / "runs.db"), "ttl": 7200}

    async def run():
        loader = ToolLoader(())
        loaded = await loader.prepare(parse_settings({"tools": {"*": row}}))
        loader.activate(loaded)
        runner = loaded.rows["*"].runner
        await runner.run([ToolCall("1", "pay", {"amount": 5})], run_id="r")
        await loader.aclose()

    asyncio.run(run())
    opened = open_store(str(tmp_path / "runs.db"))
    assert lifetime(opened) == pytest.approx(2 * HOUR, abs=60)
    opened.close()


@pytest.mark.finding("X4")
def test_a_wrong_time_to_live_in_the_settings_is_refused():
    with pytest.raises(ConfigError, match=r"\[tools.\"\*\"\] ttl: must be positive and finite, got 0"):
        parse_settings({"tools": {"*": {"ttl": 0}}})


def open_with_clocks(kind, tmp_path, wall, ticks):
    if kind == "memory":
        return MemoryStore(lambda: wall[0], lambda: ticks[0])
    return SqliteStore(str(tmp_path / "records.db"), lambda: wall[0], lambda: ticks[0])


@pytest.mark.finding("Z17")
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("jumps", [[30 * DAY], [-30 * DAY, 30 * DAY], [30 * DAY, -30 * DAY, 60 * DAY]])
def test_a_clock_that_jumps_past_the_time_to_live_does_not_run_a_finished_write_again(tmp_path, kind, jumps):
    wall, ticks = [1_700_000_000.0], [50.0]
    store = open_with_clocks(kind, tmp_path, wall, ticks)
    pay, paid = make_pay()
    runner = Runner(pay, store=store)
    call_pay(runner)
    for jump in jumps:
        wall[0] += jump
        ticks[0] += 10
        assert call_pay(runner).text == "paid 5"
        assert store.sweep() == 0
        assert [record.state for record in store.records()] == ["done"]
    assert paid == [5]
    runner.close()
    store.close()


@pytest.mark.finding("Z17")
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_write_completed_while_the_clock_was_wrong_keeps_its_time_to_live(tmp_path, kind):
    wall, ticks = [1_700_000_000.0], [50.0]
    store = open_with_clocks(kind, tmp_path, wall, ticks)
    pay, paid = make_pay()
    runner = Runner(pay, store=store)
    wall[0] -= 30 * DAY
    call_pay(runner)
    wall[0] += 30 * DAY
    call_pay(runner)
    assert paid == [5]
    runner.close()
    store.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_records_expire_when_the_time_has_really_passed(tmp_path, kind):
    wall, ticks = [1_700_000_000.0], [50.0]
    store = open_with_clocks(kind, tmp_path, wall, ticks)
    pay, paid = make_pay()
    runner = Runner(pay, store=store)
    call_pay(runner)
    wall[0] += DAY + 1
    ticks[0] += DAY + 1
    call_pay(runner)
    assert paid == [5, 5]
    runner.close()
    store.close()


def test_the_stores_of_a_program_compare_the_time_with_the_time_since_the_start(tmp_path):
    store = open_store(str(tmp_path / "runs.db"))
    pay, paid = make_pay()
    runner = Runner(pay, store=store)
    call_pay(runner)
    real = time.time
    store._expiry._wall = store._clock = lambda: real() + 30 * DAY
    call_pay(runner)
    assert paid == [5]
    runner.close()
    store.close()
