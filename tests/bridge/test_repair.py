"""Broken calls on the way back."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from toolwire import Response, Text, Tool, ToolCall
from toolwire.bridge.restoration.repair import CallRepair, CallRepairer, policy_for
from toolwire.bridge.translation.exchange import Exchange
from toolwire.ir.events import CallEnd, CallStart
from toolwire.ir.folding import fold, unfold
from toolwire.ir.response import Stop
from toolwire.text import get

SCHEMA = {"type": "object", "properties": {"days": {"type": "integer"}}, "required": ["days"]}
READ = Tool("forecast", input_schema=SCHEMA, effect="read")
WRITE = Tool("book", input_schema=SCHEMA)


def answer(*calls: ToolCall) -> Response:
    return Response(id="r", parts=(Text("Well."), *calls), stop=Stop("tool_calls"))


def broken(name: str, raw: str, state: str = "invalid") -> ToolCall:
    return ToolCall("c1", name, None, raw, state)


class Mended(NamedTuple):
    response: Response
    repairs: list[CallRepair]


def repair_calls(response: Response, tools: list[Tool], policy: str | None = None) -> Mended:
    repairer = CallRepairer(tools, policy=policy)
    return Mended(Exchange().restore(response, repairer=repairer), repairer.repairs)


def test_unambiguous_error_is_repaired_for_every_tool():
    mended = repair_calls(answer(broken("book", '{"days": 3,}')), [READ, WRITE])
    (call,) = mended.response.parts[1:]
    assert (call.arguments, call.state) == ({"days": 3}, "complete")
    (repair,) = mended.repairs
    assert [step.name for step in repair.steps] == ["trailing_comma"]


@pytest.mark.parametrize(("tool", "repaired"), [(READ, True), (WRITE, False)])
def test_guesses_are_made_only_for_read_only_tools(tool, repaired):
    mended = repair_calls(answer(ToolCall("c1", tool.name, {"days": "3"})), [tool])
    (call,) = mended.response.parts[1:]
    assert call.arguments == ({"days": 3} if repaired else {"days": "3"})
    (repair,) = mended.repairs
    assert bool(repair.problems) is not repaired


def test_unknown_tool_gets_the_safe_repair_policy():
    assert policy_for(None) == "safe"


@pytest.mark.case("23")
def test_doubly_encoded_arguments_are_repaired():
    twice = ToolCall("c1", "book", None, '"{\\"days\\": 3}"', "invalid")
    mended = repair_calls(answer(twice), [WRITE])
    assert mended.response.parts[1].arguments == {"days": 3}
    assert [step.name for step in mended.repairs[0].steps] != []


def test_truncated_call_is_never_completed():
    cut = broken("forecast", '{"days": 3', "truncated")
    mended = repair_calls(answer(cut), [READ], policy="aggressive")
    assert mended.response.parts[1] == cut
    assert not mended.repairs


def test_valid_calls_pass_unchanged():
    given = answer(
        ToolCall("c1", "forecast", {"days": 3}, '{"days": 3}'), ToolCall("c2", "patch", None, "x", kind="freeform")
    )
    assert repair_calls(given, [READ]).response == given


def test_stream_and_response_are_repaired_in_the_same_way():
    given = answer(broken("book", "{'days': 3}"), ToolCall("c2", "forecast", {"days": 1}))
    restorer = Exchange().make_restorer(repairer=CallRepairer([READ, WRITE]))
    streamed = fold([made for event in unfold(given) for made in restorer.feed(event)])
    assert streamed == repair_calls(given, [READ, WRITE]).response
    assert streamed.parts[1].arguments == {"days": 3}


MALFORMED = [
    ("gemma4", '<|tool_call>call:forecast{days:<|"|>3<|"|>,city}<tool_call|>'),
    ("functiongemma", "<start_function_call>call:forecast{days:<escape>3<escape>,city:oops<}<end_function_call>"),
    (
        "anthropic_legacy_xml",
        '<function_calls>\n<invoke name="forecast">\n<parameter name="days">3</invoke></function_calls></parameter>\n</invoke>',
    ),
    ("hermes", '<tool_call>{"name": "forecast", "name": "book", "arguments": {"days": "3"}}</tool_call>'),
]


@pytest.mark.finding("R")
@pytest.mark.parametrize(("form", "text"), MALFORMED)
def test_call_that_the_text_parser_rejected_is_not_completed(form, text):
    """Its text is an object, or lacks only the last bracket; the values in it are not those that the model meant."""
    (call,) = get(form).parse(text, [READ]).calls
    assert (call.state, call.arguments) == ("invalid", None)
    mended = repair_calls(answer(call), [READ], policy="aggressive")
    assert mended.response.parts[1].state == "invalid"


@pytest.mark.finding("R")
def test_wrapped_call_of_another_tool_is_not_taken():
    given = answer(broken("book", '{"name": "forecast", "arguments": {"days": 3}}'))
    assert repair_calls(given, [READ, WRITE]).response.parts[1].arguments is None
    given = answer(broken("book", '[{"name": "book", "arguments": {"days": 3}}]'))
    assert repair_calls(given, [READ, WRITE]).response.parts[1].arguments == {"days": 3}


@pytest.mark.finding("R")
@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("hermes", '<tool_call>\n{"name": "book", "arguments": {"days" = 3;}}\n</tool_call>'),
        ("hermes", '<tool_call>\n{"name": "book", "arguments": [{"days": 3}]}\n</tool_call>'),
        ("hermes", '<tool_call>\n{"name": "book", "arguments": {"properties": {"days": 3}}}\n</tool_call>'),
        ("llama3_json", '{"name": "book", "parameters": {\\"days\\": 3}}'),
    ],
)
def test_slip_in_a_call_of_a_text_format_is_repaired(form, text):
    (call,) = get(form).parse(text, [WRITE]).calls
    mended = repair_calls(answer(call), [WRITE], policy="safe")
    assert mended.response.parts[1].arguments == {"days": 3}
    assert mended.repairs[0].steps


@pytest.mark.finding("R")
def test_wrapped_call_may_have_the_name_on_the_wire():
    start, text = CallStart(0, "c1", "book"), '{"name": "book_v2", "arguments": {"days": 3}}'
    end = CallEnd(0, None, f"[{text}]", "invalid")
    assert CallRepairer([WRITE]).repair_call(start, end) is None
    assert CallRepairer([WRITE]).repair_call(start, end, "book_v2").arguments == {"days": 3}
