"""Blocking calls after a fork, and when the garbage collector closes a stream."""

import asyncio
import gc
import os
import signal
import threading

import pytest

import toolwire
from toolwire import Agent, Runner, ToolCall, open_store
from toolwire.net import TraceObserver
from toolwire.net.tools import steps
from toolwire.net.trace import observer as observer_module
from toolwire.run.calls.observe import OperationOutcome, ToolOperation
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

    def call_again():
        result = runner.run_sync([ToolCall("1", name, {"number": 2})], run_id="b")[0]
        assert result.text == f"{'stored' if name == 'put' else 'read'} 2"

    assert exit_code_of_fork(call_again) == 0


def exit_code_of_fork(work):
    """Return the exit code of a forked process that does `work`."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends a child that hangs
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_forked_process_does_not_wait_for_operations_of_its_parent(tmp_path, monkeypatch):
    released, begun = threading.Event(), threading.Event()

    def wait_for_release():
        begun.set()
        released.wait(SAFETY)

    def close():
        monkeypatch.setattr(steps, "wait", None)  # a call fails
        runner.close()
        observer.start(ToolOperation(ToolCall("1", "put", {}), "write", "r", False))(OperationOutcome())

    runner = Runner(put, store=open_store("memory:"))
    observer = TraceObserver(tmp_path / "run.jsonl")
    runner._store_steps._submit(wait_for_release)
    assert begun.wait(SAFETY)
    monkeypatch.setattr(observer_module, "_MAX_WAITING", 1)
    observer._waiting.append(runner._store_steps._submit(wait_for_release))
    try:
        assert exit_code_of_fork(close) == 0
    finally:
        released.set()
        runner.close()


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
