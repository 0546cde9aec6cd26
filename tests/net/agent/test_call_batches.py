"""Calls of one turn that start in one task, and calls that share a timer."""

import asyncio
from contextvars import ContextVar

import pytest

from toolwire import Runner, ToolCall, tool
from toolwire.run import current_call
from toolwire.run.values.results import result_code

SEEN: ContextVar[str] = ContextVar("seen", default="nothing")


@tool(effect="read", timeout=5)
async def visit(name: str, seconds: float = 0.0) -> list[str]:
    """Set a context variable, and report its value before and after a wait."""
    before = SEEN.get()
    SEEN.set(name)
    if seconds:
        await asyncio.sleep(seconds)
    return [before, SEEN.get(), current_call().call_id]


@tool(effect="read")
async def limited(seconds: float) -> str:
    """Wait with a time limit of its own, which cancels the current task."""
    try:
        async with asyncio.timeout(0.5):
            await asyncio.sleep(seconds)
    except TimeoutError:
        return "late"
    return "in time"


@tool(effect="read")
async def task_name() -> str:
    """Return the name of the current task."""
    task = asyncio.current_task()
    assert task is not None
    return task.get_name()


def calls(name, *arguments):
    return [ToolCall(f"c{number}", name, values) for number, values in enumerate(arguments)]


@pytest.mark.parametrize("waits", [(), (0,), (2,), (5,), (1, 3), (0, 1, 2, 3, 4, 5)])
def test_every_call_of_a_turn_has_a_context_of_its_own(waits, virtual_time):
    arguments = [{"name": f"n{number}", "seconds": 1.0 if number in waits else 0.0} for number in range(6)]
    results = Runner(visit).run_sync(calls("visit", *arguments))
    assert [result.structured for result in results] == [["nothing", f"n{n}", f"c{n}"] for n in range(6)]


@pytest.mark.parametrize("max_parallel", [1, 2, 16])
def test_calls_that_do_not_wait_need_no_task_each(max_parallel):
    results = Runner(task_name, max_parallel=max_parallel).run_sync(calls("task_name", *[{}] * 32))
    assert len({result.text for result in results}) == 32 // max_parallel


def test_time_limit_inside_a_call_ends_only_that_call(virtual_time):
    results = Runner(limited).run_sync(calls("limited", *[{"seconds": s} for s in (0, 1, 0, 0.2, 2)]))
    assert [result.text for result in results] == ["in time", "late", "in time", "in time", "late"]


def test_calls_that_begin_at_different_times_time_out_at_their_own_limits(virtual_time):
    async def run():
        runner, loop, ends = Runner(visit), asyncio.get_running_loop(), {}

        async def one(number, seconds):
            await asyncio.sleep(number)
            (result,) = await runner.run([ToolCall("c", "visit", {"name": "x", "seconds": seconds})])
            ends[number] = (int(loop.time() - began + 0.001), result_code(result))  # rounded up to quarters

        began = loop.time()
        await asyncio.gather(*(one(number, seconds) for number, seconds in enumerate((9.0, 1.0, 9.0, 2.0, 9.0))))
        return ends

    ends = asyncio.run(run())
    assert ends == {0: (5, "timeout"), 1: (2, "ok"), 2: (7, "timeout"), 3: (5, "ok"), 4: (9, "timeout")}


def test_cancelled_turn_cancels_the_calls_that_wait_and_those_that_have_not_begun(virtual_time):
    begun = []

    @tool(effect="read")
    async def wait(number: int) -> None:
        """Wait."""
        begun.append(number)
        try:
            await asyncio.sleep(60)
        finally:
            begun.remove(number)

    async def run():
        turn = asyncio.create_task(Runner(wait, max_parallel=3).run(calls("wait", *[{"number": n} for n in range(6)])))
        await asyncio.sleep(1)
        assert begun == [0, 1, 2]
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn

    asyncio.run(run())
    assert begun == []
