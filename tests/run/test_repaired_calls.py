"""Calls with arguments of a repairing model: pure and read tools run, tools with effects do not."""

from __future__ import annotations

import pytest

from toolwire import ToolCall, tool
from toolwire.ir import Response, Text
from toolwire.ir.events import CallStart, TextStart
from toolwire.ir.folding import fold, unfold
from toolwire.net.tools.runner import Runner
from toolwire.run.session.auxiliary import mark_repaired, mark_repaired_event, repairing_model
from toolwire.run.values.results import result_code

RAN: list[str] = []


@tool(effect="pure")
def add(a: int) -> int:
    """Add one."""
    RAN.append("add")
    return a + 1


@tool(effect="read")
async def look(a: int) -> int:
    """Look."""
    RAN.append("look")
    return a


@tool(effect="idempotent")
def put(a: int) -> int:
    """Put."""
    RAN.append("put")
    return a


@tool
def send(a: int) -> int:
    """Send."""
    RAN.append("send")
    return a


@pytest.fixture(autouse=True)
def clean():
    RAN.clear()


def repaired(name: str) -> ToolCall:
    return mark_repaired(Response(parts=(Text("Hm."), ToolCall("c", name, {"a": 1}))), "small").calls[0]


@pytest.mark.finding("X5")
@pytest.mark.parametrize("name", ["add", "look"])
def test_repaired_call_without_effects_is_run(name):
    (result,) = Runner(add, look).run_sync([repaired(name)])
    assert (result_code(result), RAN) == ("ok", [name])


@pytest.mark.finding("X5")
@pytest.mark.parametrize("name", ["put", "send"])
def test_repaired_call_with_effects_is_refused_with_a_suggestion(name):
    (result,) = Runner(put, send).run_sync([repaired(name)])
    assert (result_code(result), RAN) == ("invalid_arguments", [])
    assert result.text.endswith('make the call with them yourself: {"a":1}')
    (result,) = Runner(put, send).run_sync([ToolCall("d", name, {"a": 1})])
    assert (result_code(result), RAN) == ("ok", [name]), "the same call of the model itself"


def test_events_are_marked_like_whole_responses():
    response = Response(parts=(ToolCall("c", "add", {"a": 1}),))
    events = [mark_repaired_event(event, "small") for event in unfold(response)]
    assert fold(events).calls == mark_repaired(response, "small").calls
    assert repairing_model(fold(events).calls[0]) == "small"
    assert mark_repaired_event(TextStart(0), "small") == TextStart(0)
    assert repairing_model(ToolCall("c", "add")) is None
    assert any(isinstance(event, CallStart) for event in events)
