"""Blocking calls after a fork, and when the garbage collector closes a stream."""

import asyncio
import gc
import os
import signal
import threading

import pytest

import toolwire
from toolwire import Agent, Runner, ToolCall, open_store
from toolwire.testing import ScriptedModel, says
from waiting import SAFETY


@toolwire.tool
def put(number: int) -> str:
    """Store a number."""
    return f"stored {number}"


@toolwire.tool(effect="read")
def get(number: int) -> str:
    """Read a number."""
    return f"read {number}"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
@pytest.mark.parametrize(("name", "stored"), [("get", False), ("put", False), ("put", True)])
def test_blocking_call_works_in_a_forked_process(name, stored):
    runner = Runner(put, get, store=open_store("memory:") if stored else None)
    runner.run_sync([ToolCall("1", name, {"number": 1})], run_id="a")
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends a child that hangs
        result = runner.run_sync([ToolCall("1", name, {"number": 2})], run_id="b")[0]
        os._exit(0 if result.text.endswith("2") else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_stream_that_the_garbage_collector_closes_on_the_loop_does_not_block_it():
    @toolwire.tool(effect="read")
    async def collect() -> str:
        gc.collect()
        return "collected"

    class Slow(ScriptedModel):
        async def stream(self, request):
            async for event in super().stream(request):
                yield event
                await asyncio.Event().wait()

    class Cycle:
        pass

    gc.disable()
    try:
        items = Agent(Slow([says("hello")])).stream_sync("Go.")
        next(items)
        cycle = Cycle()
        cycle.items, cycle.own = items, cycle
        del items, cycle
        agent = Agent(ScriptedModel([says(ToolCall("1", "collect", {})), says("Done.")]), [collect])
        texts = []
        thread = threading.Thread(target=lambda: texts.append(agent.run_sync("Go.").output), daemon=True)
        thread.start()
        thread.join(SAFETY)
    finally:
        gc.enable()
    assert texts == ["Done."]
