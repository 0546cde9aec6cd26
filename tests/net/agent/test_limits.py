"""Limits of time, kept for every call."""

import asyncio
import time

import pytest

from toolwire import Tool, ToolCall, tool
from toolwire.net.stores.memory import MemoryStore
from toolwire.net.tools.runner import Runner
from toolwire.run.calls.context import current_call
from toolwire.run.tools.function_tool import Options
from toolwire.run.tools.toolbox import Entry, Toolbox
from toolwire.run.values.results import result_code


@tool(effect="read")
async def nap(seconds: float) -> str:
    """Sleep."""
    await asyncio.sleep(seconds)
    return "awake"


def test_each_tool_has_its_own_timeout(virtual_time):
    quick = Entry(nap, nap.function, Options(timeout=0.1, retries=0))
    slow = Toolbox(nap).rename({"nap": "long_nap"})
    calls = [ToolCall("1", "nap", {"seconds": 5}), ToolCall("2", "long_nap", {"seconds": 0.3})]
    late, awake = Runner(quick, slow).run_sync(calls)
    assert (result_code(late), awake.text) == ("timeout", "awake")


def test_timeout_applies_in_every_event_loop(virtual_time):
    runner = Runner(Toolbox(nap).with_options(timeout=0.1, retries=0))
    for _ in range(2):
        (result,) = runner.run_sync([ToolCall("1", "nap", {"seconds": 30})])
        assert result_code(result) == "timeout"


def test_time_before_the_first_await_counts_toward_the_timeout():
    @tool(effect="read")
    async def stall() -> str:
        """Hold everything up, then wait."""
        time.sleep(0.3)  # noqa: ASYNC251  # that is the point
        await asyncio.sleep(0.3)
        return "late"

    (result,) = Runner(Toolbox(stall).with_options(timeout=0.4, retries=0)).run_sync([ToolCall("1", "stall", {})])
    assert result_code(result) == "timeout"


def test_nested_run_restores_the_current_call():
    @tool(effect="read")
    async def inner(wait: bool) -> str:
        """Say who is running."""
        if wait:
            await asyncio.sleep(0)
        return current_call().call_id

    inside = Runner(inner)

    @tool(effect="read")
    async def outer(wait: bool) -> list[str]:
        """Ask another one."""
        (found,) = await inside.run([ToolCall("inner", "inner", {"wait": wait})])
        return [found.text, current_call().call_id]

    async def ask(wait):
        (result,) = await Runner(outer).run([ToolCall("outer", "outer", {"wait": wait})])
        return result.structured, current_call().call_id

    for wait in (False, True):
        assert asyncio.run(ask(wait)) == (["inner", "outer"], "")


def test_runner_is_usable_after_a_cancelled_call(virtual_time):
    async def ask():
        runner = Runner(nap)
        task = asyncio.create_task(runner.run([ToolCall("1", "nap", {"seconds": 30})]))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (result,) = await runner.run([ToolCall("2", "nap", {"seconds": 0})])
        return result.text

    assert asyncio.run(ask()) == "awake"


def test_unhashable_callable_can_be_run():
    class Adder:
        __hash__ = None

        async def __call__(self, a: int, b: int) -> int:
            return a + b

    entry = Entry(Tool("add", input_schema={"type": "object"}, effect="read"), Adder())
    (result,) = Runner(entry).run_sync([ToolCall("1", "add", {"a": 1.0, "b": 2})])
    assert result.structured == 3
    (refused,) = Runner(entry).run_sync([ToolCall("1", "add", {"c": 1})])
    assert result_code(refused) == "invalid_arguments"


def test_lease_is_renewed_while_the_call_waits_for_its_rate_limit(virtual_time):
    store, renewed, begun = MemoryStore(), [], []
    renew = store.renew

    def noted(key, token, lease):
        renewed.append(key)
        return renew(key, token, lease)

    store.renew = noted

    @tool
    async def send(to: str) -> str:
        """Send."""
        begun.append((to, current_call().idempotency_key in renewed))
        return to

    box = Toolbox(send).with_options(rate=2.0, resource=lambda given: given["to"])
    calls = [ToolCall(to, "send", {"to": to}) for to in ("a", "b")]
    results = Runner(box, store=store, lease=0.3).run_sync(calls)
    assert [result.text for result in results] == ["a", "b"]
    assert begun == [("a", False), ("b", True)]
    assert {record.state for record in store.records()} == {"done"}
