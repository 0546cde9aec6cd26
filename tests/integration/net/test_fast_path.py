"""The short way of a call must come to what the long one comes to, whatever is called with whatever."""

import asyncio
from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolwire import ToolCall, tool
from toolwire.ir.parts import Text
from toolwire.ir.tools import Tool
from toolwire.net.runner import Runner
from toolwire.run.context import current_call
from toolwire.run.failures import ToolError, Transient
from toolwire.run.gates import GATES
from toolwire.run.toolbox import Entry, Toolbox

CALLED: list[str] = []


async def add(a: int, b: int = 1) -> int:
    CALLED.append("add")
    return a + b


async def say(text: str) -> str:
    await asyncio.sleep(0)
    CALLED.append("say")
    return text * 50


async def whose(text: str = "") -> dict[str, Any]:
    await asyncio.sleep(0)
    running = current_call()
    assert running.call_id
    CALLED.append("whose")
    return {"call": running.call_id, "tool": running.tool, "run": running.run_id, "text": text}


async def fail(kind: str) -> str:
    CALLED.append("fail")
    if kind == "transient":
        raise Transient("busy", retry_after=0)
    if kind == "exit":
        raise SystemExit(3)
    raise ToolError(kind) if kind == "refused" else ValueError(kind)


async def late(seconds: float) -> str:
    CALLED.append("late")
    await asyncio.sleep(1 if seconds else 0)
    return "done"


async def wait_until(day: date) -> Text:
    CALLED.append("wait_until")
    return Text(day.isoformat())


def in_a_thread(a: int) -> int:
    CALLED.append("in_a_thread")
    return a


async def anything(**given: Any) -> object:
    CALLED.append("anything")
    return given or float("nan")


READ = [tool(effect="read")(function) for function in (add, say, whose, fail, wait_until, in_a_thread)]
OPEN = Entry(Tool("open", "", {"type": "object"}, effect="pure"), add)
ANYTHING = Entry(Tool("anything", "", {"type": "object"}, effect="read"), anything)
BROKEN = Entry(Tool("broken", "", {"type": "nonsense"}, effect="pure"), add)
WRITES = tool(effect="write")(late)


def runners() -> tuple[Runner, Runner]:
    """The same tools: the second one has gates of its own, if only by name, and goes step by step."""
    sources = (*READ, OPEN, ANYTHING, BROKEN, WRITES)
    return Runner(*sources), Runner(*sources, gates=(*GATES,))


NAMES = [*(one.name for one in READ), "open", "anything", "broken", "late", "nobody"]
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([2.0, 0.5, "transient", "exit", "refused", "2026-11-15", "é"]),
)
ARGUMENTS = st.dictionaries(
    st.sampled_from(["a", "b", "text", "kind", "seconds", "day", "idempotency_key", "other"]), VALUES, max_size=3
)
LIKELY = st.sampled_from(
    [
        ("add", {"a": 1}),
        ("add", {"a": 2.0, "b": 2}),
        ("say", {"text": "a" * 2000}),
        ("whose", {}),
        ("fail", {"kind": "transient"}),
        ("fail", {"kind": "exit"}),
        ("fail", {"kind": "refused"}),
        ("wait_until", {"day": "2026-11-15"}),
        ("open", {"c": 1}),
        ("late", {"seconds": 0}),
    ]
)
CALLS = st.builds(
    lambda asked, state, arguments: ToolCall(
        "c1", asked[0], asked[1] if arguments else None, None if arguments else '{"a": 1', state=state
    ),
    st.one_of(LIKELY, st.tuples(st.sampled_from(NAMES), ARGUMENTS)),
    st.sampled_from(["complete", "complete", "complete", "truncated"]),
    st.sampled_from([True, True, True, False]),
)


def run_and_record(runner: Runner, call: ToolCall) -> tuple[Any, list[str]]:
    CALLED.clear()
    (result,) = runner.run_sync([call], run_id="r")
    return result, list(CALLED)


@settings(deadline=None, max_examples=150)
@given(CALLS)
def test_fast_path_and_full_path_give_the_same_result(call: ToolCall) -> None:
    short, long = runners()
    assert run_and_record(short, call) == run_and_record(long, call)


@pytest.mark.parametrize("asked", ["add", "whose", "anything"])
def test_simple_calls_take_the_fast_path(asked: str) -> None:
    runner, _ = runners()
    way = runner._fast_path_for(asked)
    assert way is not None
    given: dict[str, Any] = {"a": 1} if asked == "add" else {}

    async def begun() -> object:
        found = way.begin(ToolCall("c", asked, given), runner._settings)
        return await found if hasattr(found, "__await__") else found

    assert asyncio.run(begun()) is not None


def test_unknown_tool_name_is_not_cached() -> None:
    runner, _ = runners()
    runner.run_sync([ToolCall("c", "invented", {})])
    assert "invented" not in runner._fast_paths


def test_timeout_applies_on_the_fast_path() -> None:
    box = Toolbox(tool(effect="read")(late)).with_options(timeout=0.05)
    (result,) = Runner(box).run_sync([ToolCall("c", "late", {"seconds": 1})])
    assert "did not finish within 0.05 seconds" in result.text
