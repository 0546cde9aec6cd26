"""The whole way, on every store: a runner whose process is killed inside of a write tool, and one that takes the call up."""

import os
import signal

import pytest

import toolwire
from stores.servers import PROCESSES, open_test_store
from stores.worker import executions, record_effect
from toolwire.ir import ToolCall
from toolwire.net.tools.runner import Runner
from toolwire.run.tools.function_tool import Options
from toolwire.run.tools.toolbox import Entry
from waiting import SAFETY

LEASE = 0.5
CALL = ToolCall("1", "pay", {"order": "order7"})


def run(url, effects, *, die=None, run_id="run"):
    """The call's result, by a runner of its own."""

    @toolwire.tool(effect="write")
    def pay(order: str) -> str:
        """Pays an order."""
        if die == "before the effect":
            os.kill(os.getpid(), signal.SIGKILL)
        record_effect(effects, order)
        if die == "after the effect":
            os.kill(os.getpid(), signal.SIGKILL)
        return f"paid {order}"

    store = open_test_store(url)
    runner = Runner(Entry(pay, pay.function, Options(timeout=SAFETY)), store=store, lease=LEASE)
    try:
        return runner.run_sync([CALL], run_id=run_id)[0]
    finally:
        runner.close()
        store.close()


@pytest.mark.one_in(5)
@pytest.mark.failure(2)
@pytest.mark.parametrize("die", ["before the effect", "after the effect"])
def test_kill_inside_the_tool_leaves_the_outcome_unknown(store_url, tmp_path, die):
    effects = tmp_path / "effects"
    victim = PROCESSES.Process(target=run, args=(store_url, effects), kwargs={"die": die})
    victim.start()
    victim.join()
    assert victim.exitcode == -9
    for _ in range(2):
        assert "may or may not have taken effect" in run(store_url, effects).text
    assert executions(effects).total() == (1 if die == "after the effect" else 0)
    store = open_test_store(store_url)
    assert [record.tool for record in store.records("unknown")] == ["pay"]
    store.close()


@pytest.mark.finding("U9")
def test_approval_is_requested_once_for_a_call_and_its_repetition(store):
    @toolwire.tool
    def pay(order: str) -> str:
        """Pays an order."""
        return f"paid {order}"

    asked = []
    policy = toolwire.Policy(approve=("write",))
    for _ in range(3):
        runner = Runner(pay, store=store, policy=policy, approve=lambda step: asked.append(step) or True)
        assert runner.run_sync([CALL], run_id="run")[0].text == "paid order7"
        runner.close()
    assert len(asked) == 1


@pytest.mark.finding("X13")
def test_store_lists_a_hundred_records_by_default(store, new_claim):
    for number in range(101):
        store.claim(new_claim(f"k{number}", durable=False))
    assert (len(store.records()), len(store.records(limit=101))) == (100, 101)


def test_repeated_call_returns_the_recorded_result(store_url, tmp_path):
    effects = tmp_path / "effects"
    assert [run(store_url, effects).text for _ in range(3)] == ["paid order7"] * 3
    assert executions(effects) == {"order7": 1}
    assert run(store_url, effects, run_id="another").text == "paid order7"
    assert executions(effects) == {"order7": 2}
