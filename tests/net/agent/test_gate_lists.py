"""The gates that are built for a tool give the same result as the full list of gates, for any call and any options."""

import asyncio
import itertools
from datetime import date
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolwire import Policy, ToolCall, open_store, tool
from toolwire.ir.parts import Text
from toolwire.ir.tools import Tool
from toolwire.net.tools.runner import Runner
from toolwire.run import GATES, Approved, Denied, Entry, Toolbox, at_most, deny, path_jail
from toolwire.run.calls.context import ToolError, Transient, current_call
from toolwire.run.calls.execution import CallRun
from toolwire.run.calls.gates import convert
from toolwire.run.calls.settings import RunSettings

CALLED: list[tuple[str, Any]] = []


async def add(a: int, b: int = 1) -> int:
    CALLED.append(("add", (a, b)))
    return a + b


async def say(text: str) -> str:
    await asyncio.sleep(0)
    CALLED.append(("say", text))
    return text * 50


async def whose(text: str = "") -> dict[str, Any]:
    await asyncio.sleep(0)
    running = current_call()
    CALLED.append(("whose", text))
    return {"call": running.call_id, "tool": running.tool, "run": running.run_id, "text": text}


async def fail(kind: str) -> str:
    CALLED.append(("fail", kind))
    if kind == "transient":
        raise Transient("busy", retry_after=0)
    if kind == "exit":
        raise SystemExit(3)
    raise ToolError(kind) if kind == "refused" else ValueError(kind)


async def wait_until(day: date) -> Text:
    CALLED.append(("wait_until", day))
    return Text(day.isoformat())


async def collect(items: list, path: str = "a.txt") -> list:
    CALLED.append(("collect", (list(items), path)))
    items.append("changed by the tool")
    return items


def in_a_thread(a: int) -> int:
    CALLED.append(("in_a_thread", a))
    return a


async def anything(**given: Any) -> object:
    CALLED.append(("anything", given))
    return given or float("nan")


async def with_key(idempotency_key: str) -> str:
    CALLED.append(("with_key", idempotency_key))
    return idempotency_key


FUNCTIONS = (add, say, whose, fail, wait_until, collect, in_a_thread, with_key)
OPEN = {"type": "object"}
FOREIGN = (("open", OPEN, add), ("anything", OPEN, anything), ("broken", {"type": "nonsense"}, add))
NAMES = [*(function.__name__ for function in FUNCTIONS), *(name for name, _, _ in FOREIGN), "unknown"]

EFFECTS = st.sampled_from(["pure", "read", "read", "idempotent", "write"])
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "approve": st.sampled_from([True, "costs money", lambda arguments: len(arguments) == 1]),
        "cache": st.just(60.0),
        "output_limit": st.sampled_from([10, 1000]),
        "withdrawn": st.sampled_from([lambda: None, lambda: "closed"]),
        "retries": st.just(1),
        "key": st.just(lambda arguments: "key"),
        "untrusted": st.just(True),
    },
)
POLICIES = st.one_of(
    st.none(),
    st.none(),
    st.builds(
        Policy,
        checks=st.lists(
            st.sampled_from([deny("add"), at_most("a", 1), path_jail("path", "/files"), deny("in_*")]), max_size=2
        ).map(tuple),
        approve=st.sampled_from([(), ("read",), ("write", "idempotent")]),
        taint=st.sampled_from(["off", "warn", "enforce"]),
    ),
)
REPLIES = st.sampled_from(
    [True, False, Approved(), Approved({"a": 1}), Approved({"a": "many"}), Denied("no"), Denied(), None]
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([2.0, 0.5, "transient", "exit", "refused", "2026-11-15", "é", [1, "x"], {"deep": [1]}]),
)
ARGUMENTS = st.dictionaries(
    st.sampled_from(["a", "b", "text", "kind", "day", "items", "path", "idempotency_key", "other"]), VALUES, max_size=3
)
LIKELY = st.sampled_from(
    [
        ("add", {"a": 1}),
        ("add", {"a": 2.0, "b": 2}),
        ("add", {"a": 1, "idempotency_key": "k"}),
        ("say", {"text": "a" * 2000}),
        ("whose", {}),
        ("fail", {"kind": "transient"}),
        ("fail", {"kind": "exit"}),
        ("fail", {"kind": "refused"}),
        ("wait_until", {"day": "2026-11-15"}),
        ("collect", {"items": [1, [2]]}),
        ("collect", {"items": [1], "path": "../b"}),
        ("with_key", {"idempotency_key": "mine"}),
        ("open", {"c": 1}),
        ("anything", {"c": [1]}),
    ]
)
CALLS = st.builds(
    lambda asked, state, raw: ToolCall("c1", asked[0], asked[1] if raw is None else None, raw, state=state),
    st.one_of(LIKELY, st.tuples(st.sampled_from(NAMES), ARGUMENTS)),
    st.sampled_from(["complete", "complete", "complete", "invalid", "truncated"]),
    st.sampled_from([None, None, None, '{"a": 1', '{"a": 1}', '{"a": "1"}', "[]", ""]),
)
RUNS = st.fixed_dictionaries(
    {
        "run_id": st.sampled_from(["r", "other"]),
        "tainted": st.booleans(),
        "dry_run": st.sampled_from([False, False, False, True]),
        "keys": st.sampled_from([None, None, {"c1": "given"}]),
    }
)


def unchanged(pending):
    """A user-defined gate: with it, no gate is left out and none are fused."""
    return pending


@cache
def tools_with(effect: Any) -> Toolbox:
    known = [tool(effect=effect)(function) for function in FUNCTIONS]
    return Toolbox(*known, *(Entry(Tool(name, "", schema, effect=effect), made) for name, schema, made in FOREIGN))


def outcome(call: ToolCall, effect: str, options: dict[str, Any], policy: Policy | None, reply: Any, stored: bool, run):
    """Return the results of two identical calls and what the functions received, for the built and for the full list."""
    found = []
    for gates in (GATES, (*GATES, unchanged)):
        CALLED.clear()
        box = tools_with(effect).with_options(**options)
        asked = []
        runner = Runner(
            box,
            gates=gates,
            policy=policy,
            approve=lambda step, asked=asked: asked.append(step) or reply,
            store=open_store("memory:") if stored else None,
        )
        results = [runner.run_sync([call], **run) for _ in range(2)]
        runner.close()
        found.append((results, list(CALLED), asked, call.arguments))
    return found


@settings(deadline=None, max_examples=3 * settings.default.max_examples)
@given(CALLS, EFFECTS, OPTIONS, POLICIES, REPLIES, st.booleans(), RUNS)
def test_built_gates_and_all_gates_give_the_same_result(call, effect, options, policy, reply, stored, run):
    built, full = outcome(call, effect, options, policy, reply, stored, run)
    assert built == full


def made(box: Toolbox, **known: Any) -> RunSettings:
    tokens = itertools.count()
    return RunSettings(box, lambda: 0.0, lambda: f"t{next(tokens)}", **known)


def gate_names(name: str, box: Toolbox, **known: Any) -> list[str]:
    return [gate.__name__ for gate in made(box, **known).gates_for(name).gates]


def test_gates_that_cannot_apply_are_left_out():
    box = Toolbox(tool(effect="read")(add), tool(effect="read")(with_key))
    usual = ["refuse_truncated", "take_key", "repair", "validate", "convert"]
    assert gate_names("add", box) == usual
    assert gate_names("with_key", box) == [gate for gate in usual if gate != "take_key"]
    assert gate_names("add", box.with_options(withdrawn=lambda: None)) == ["find", *usual]
    assert gate_names("add", box.with_options(approve=True)) == [*usual[:-1], "policy"]
    assert gate_names("add", box, policy=Policy()) == [*usual[:-1], "policy"]
    assert gate_names("unknown", box) == [gate.__name__ for gate in GATES]


def test_policy_is_the_last_gate_wherever_the_list_has_it():
    box = Toolbox(tool(effect="read")(add))
    assert gate_names("add", box, gates=(*GATES, unchanged)) == [
        *(gate.__name__ for gate in GATES[:-1]),
        "unchanged",
        "policy",
    ]
    assert gate_names("add", box, gates=GATES[:-1], policy=Policy())[-1] == "policy"


def test_gates_of_a_tool_are_built_once_and_shared_by_all_runs():
    from msgspec.structs import replace

    box = Toolbox(tool(effect="read")(add))
    first = made(box)
    assert first.gates_for("add") is replace(first, run_id="another").gates_for("add")
    assert first.gates_for("add") is not replace(first, policy=Policy()).gates_for("add")
    assert convert in first.gates_for("add").gates


def test_gates_of_an_unknown_tool_are_not_kept():
    known = made(Toolbox(add))
    known.gates_for("invented")
    assert "invented" not in known.gates_by_tool


@pytest.mark.parametrize("name", ["add", "whose", "anything"])
def test_ordinary_call_passes_the_fused_gates(name):
    foreign = Entry(Tool("anything", "", OPEN, effect="read"), anything)
    box = Toolbox(tool(effect="read")(add), tool(effect="read")(whose), foreign)
    values = {"a": 1} if name == "add" else {}
    known = made(box)
    call = ToolCall("c", name, values)
    assert CallRun(call, known).next().arguments == values
    assert known.gates_for(name).take_values(call) == values, "the gates are fused"


async def late(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


def test_timeout_applies_to_an_ordinary_call():
    box = Toolbox(tool(effect="read")(late)).with_options(timeout=0.05)
    (result,) = Runner(box).run_sync([ToolCall("c", "late", {"seconds": 1.0})])
    assert "did not finish within 0.05 seconds" in result.text
