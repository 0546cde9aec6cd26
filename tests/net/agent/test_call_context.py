"""A tool may take the context of its call: dependencies, run id, key, progress and cancellation, not in its schema."""

import asyncio
import functools
import threading
from dataclasses import dataclass
from typing import Annotated

import pytest

import toolwire
from toolwire import Agent, Runner, Toolbox, ToolCall
from toolwire.net import stores
from toolwire.run import CallContext, current_call
from toolwire.run.tools.toolbox import Entry
from toolwire.testing import ScriptedModel, says
from waiting import SAFETY


@dataclass
class Shop:
    prices: dict[str, float]


SHOP = Shop({"tea": 3.5})


@toolwire.tool(effect="read")
async def price(item: str, context: CallContext[Shop]) -> float:
    return context.deps.prices[item]


@toolwire.tool(effect="read")
def price_in_thread(item: str, context: CallContext[Shop]) -> float:
    assert current_call() is context
    return context.deps.prices[item]


@toolwire.tool(effect="read")
async def plain(context: CallContext, item: str = "tea") -> str:
    return f"{context.tool} {context.call_id} {context.run_id} {item}"


@toolwire.tool(effect="read")
def optional(item: str, context: "CallContext[Shop] | None" = None) -> float:
    return -1.0 if context is None else context.deps.prices[item]


@toolwire.tool(effect="read")
def old_style(item: str, context: Annotated[CallContext[Shop], "injected"] | None = None) -> float:
    return -1.0 if context is None else context.deps.prices[item]


class Counter:
    def __init__(self) -> None:
        self.sold = 0

    @toolwire.tool
    async def sell(self, item: str, context: CallContext[Shop]) -> float:
        self.sold += 1
        return context.deps.prices[item]


@toolwire.tool(effect="read", isolation="process")
def price_in_process(item: str, context: CallContext[Shop]) -> str:
    context.report_progress("half", 0.5)
    return f"{context.deps.prices[item]} {current_call().deps == context.deps} {context.run_id}"


@toolwire.tool(effect="read", isolation="process")
def double_in_process(number: int) -> int:
    return number * 2


def run_one(tool, *, deps=SHOP, arguments=None, **options):
    box = Toolbox(tool)
    (entry,) = box
    runner = Runner(box)
    try:
        call = ToolCall("c1", entry.name, {"item": "tea"} if arguments is None else arguments)
        (result,) = runner.run_sync([call], deps=deps, run_id="r1", **options)
    finally:
        runner.close()
    return result


@pytest.mark.parametrize(
    "tool", [price, price_in_thread, optional, old_style, Counter().sell], ids=lambda tool: tool.name
)
def test_the_context_has_the_dependencies_and_is_not_in_the_schema(tool):
    assert list(tool.input_schema["properties"]) == ["item"]
    assert run_one(tool).text == "3.5"


def test_a_context_without_type_arguments_is_recognised():
    assert list(plain.input_schema["properties"]) == ["item"]
    assert run_one(plain, arguments={"item": "tea"}).text == "plain c1 r1 tea"


def test_a_partial_with_a_context_is_recognised():
    def price_of(item: str, factor: int, context: CallContext[Shop]) -> float:
        return context.deps.prices[item] * factor

    double = toolwire.tool(name="double", effect="read")(functools.partial(price_of, factor=2))
    assert "context" not in double.input_schema["properties"]
    assert run_one(double).text == "7.0"


@pytest.mark.parametrize("tool", [price, price_in_thread], ids=lambda tool: tool.name)
def test_a_model_cannot_pass_the_context(tool):
    result = run_one(tool, arguments={"item": "tea", "context": {"deps": {"prices": {"tea": 0}}}})
    assert result.is_error
    assert "context" in result.text


def test_custom_schema_cannot_pass_the_context():
    declared = toolwire.Tool("price", input_schema={"type": "object"}, effect="read")
    forged = {"item": "tea", "context": {"deps": {"prices": {"tea": 0}}}}
    result = run_one(Entry(declared, price.function), arguments=forged)
    assert result.is_error
    assert "unknown parameter context" in result.text


def test_the_context_has_the_idempotency_key_of_a_write():
    seen = []

    @toolwire.tool
    async def pay(amount: int, context: CallContext) -> str:
        seen.append((context.idempotency_key, context.headers))
        return "paid"

    runner = Runner(pay, store=stores.open_store("memory:"))
    runner.run_sync([ToolCall("c1", "pay", {"amount": 3})], run_id="r")
    runner.close()
    ((key, headers),) = seen
    assert key
    assert headers == {"Idempotency-Key": key}


def test_a_process_receives_the_dependencies_and_sends_progress():
    heard = []
    result = run_one(price_in_process, on_progress=lambda context, *report: heard.append((context.call_id, *report)))
    assert result.text == "3.5 True r1"
    assert heard == [("c1", "half", 0.5)]


def test_dependencies_that_cannot_be_pickled_are_reported_and_the_call_is_not_retried():
    result = run_one(price_in_process, deps=threading.Lock())
    assert result.is_error
    assert (
        "its dependencies cannot be sent to a separate process: TypeError: cannot pickle '_thread.lock'" in result.text
    )


def test_a_process_that_does_not_take_the_context_does_not_need_picklable_dependencies():
    assert run_one(double_in_process, deps=threading.Lock(), arguments={"number": 4}).text == "8"


class Listener:
    def __init__(self) -> None:
        self.requests = []

    def start(self, operation): ...

    def progressed(self, context, message, fraction):
        self.requests.append((context.tool, message, fraction))


def test_progress_reaches_observers_and_the_callback_of_the_run():
    @toolwire.tool(effect="read")
    async def search(context: CallContext) -> str:
        await context.progress("started")
        await context.progress("x" * 5000, 7.0)
        await context.progress("odd", float("nan"))
        return "done"

    @toolwire.tool(effect="read")
    def walk(context: CallContext) -> str:
        context.report_progress("walking", 0.25)
        return "done"

    listener, heard = Listener(), []
    runner = Runner(search, walk, observers=[listener])
    calls = [ToolCall("1", "search", {}), ToolCall("2", "walk", {})]
    runner.run_sync(
        calls, on_progress=lambda context, message, fraction: heard.append((context.tool, message, fraction))
    )
    runner.run_sync(calls[1:])
    runner.close()
    expected = [
        ("search", "started", None),
        ("search", "x" * 1000, 1.0),
        ("search", "odd", None),
        ("walk", "walking", 0.25),
    ]
    assert sorted(map(str, heard)) == sorted(map(str, expected))
    assert sorted(map(str, listener.requests)) == sorted(map(str, [*expected, expected[-1]]))


def test_a_sync_tool_sees_that_its_call_timed_out():
    ended = threading.Event()

    @toolwire.tool(effect="read", timeout=1.0)
    def poll(context: CallContext) -> str:
        assert context.cancelled is False
        while not context.cancelled:
            threading.Event().wait(0.005)
        ended.set()
        return "stopped"

    result = run_one(poll, arguments={})
    assert "did not finish within 1 second" in result.text
    assert ended.wait(SAFETY)


def test_a_write_in_a_thread_sees_that_its_run_was_aborted():
    begun = threading.Event()

    @toolwire.tool
    def upload(context: CallContext) -> str:
        begun.set()
        while not context.cancelled:
            threading.Event().wait(0.005)
        return "uploaded the first part"

    async def abort():
        runner = Runner(upload)
        dispatch = runner.dispatch()
        dispatch.add(ToolCall("1", "upload", {}))
        waiting = asyncio.create_task(dispatch.results())
        assert await asyncio.to_thread(begun.wait, SAFETY)
        results = await dispatch.abort()
        await waiting
        runner.close()
        return results

    (result,) = asyncio.run(abort())
    assert result.text == "uploaded the first part"


def test_an_async_tool_sees_its_timeout_while_it_cleans_up():
    seen = []

    @toolwire.tool(effect="read", timeout=0.02)
    async def wait(context: CallContext) -> str:
        try:
            await asyncio.sleep(30)
        finally:
            seen.append(context.cancelled)
        return "never"

    run_one(wait, arguments={})
    assert seen == [True]


def test_outside_of_a_tool_there_is_an_empty_context():
    assert (current_call().call_id, current_call().deps, current_call().cancelled) == ("", None, False)
    current_call().report_progress("ignored")


def cached_orders(log):
    @toolwire.tool(effect="read", cache=60)
    def my_orders(context: CallContext[str]) -> str:
        """List the orders of the current user."""
        log.append(context.deps)
        return f"orders of {context.deps}"

    return my_orders


def test_cached_results_are_not_shared_between_runs_with_dependencies():
    log: list[str | None] = []
    calls = says(ToolCall("1", "my_orders", {}))
    again = says(ToolCall("2", "my_orders", {}))
    agent = Agent(ScriptedModel([calls, again, says("ok")] * 3), [cached_orders(log)], deps_type=str)
    for user in ("alice", "bob", "alice"):
        results = agent.run_sync("x", deps=user).results
        assert [result.text for result in results] == [f"orders of {user}"] * 2
    assert log == ["alice", "bob", "alice"]  # once per run


def test_cached_results_are_not_shared_between_calls_with_dependencies_without_a_run():
    log: list[str | None] = []
    runner = Runner(cached_orders(log))
    call = ToolCall("1", "my_orders", {})
    texts = [runner.run_sync([call], deps=user)[0].text for user in ("alice", "bob", None, None)]
    assert texts == ["orders of alice", "orders of bob", "orders of None", "orders of None"]
    assert log == ["alice", "bob", None]
    runner.close()


def test_cached_result_of_another_function_with_the_same_name_is_not_used():
    class Live:
        version = 1
        entries = list(Toolbox(toolwire.tool(name="get", effect="read", cache=60)(lambda: "old")))

        def live_entries(self):
            return self.entries

    def new() -> str:
        return "new"

    live = Live()
    runner = Runner(live)
    call = ToolCall("1", "get", {})
    assert runner.run_sync([call])[0].text == "old"
    live.entries, live.version = list(Toolbox(toolwire.tool(name="get", effect="read", cache=60)(new))), 2
    runner.tools_for_run("")
    assert runner.run_sync([call])[0].text == "new"
    runner.close()
