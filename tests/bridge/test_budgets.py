"""What a provider allows a request, or one schema: met by the fewest tools, and reported."""

from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import every_case
from toolwire.bridge.fitting.schemas import select_affordable
from toolwire.bridge.translation.preparation import prepare
from toolwire.ir import Message, Request, Text, Tool
from toolwire.schema.dialects import DIALECTS
from toolwire.schema.lowering.conformance import estimated_states, parameter_counts
from toolwire.schema.lowering.lowered import lower
from work_counter import assert_linear, count_work

HELLO = (Message("user", (Text("hi"),)),)
STRICT = DIALECTS["anthropic_strict"]
COSTS = st.lists(st.tuples(st.integers(0, 14), st.integers(0, 9)), max_size=8)


def largest_selection_by_brute_force(costs, most, count):
    """How many can be kept, by looking at every selection."""
    for size in range(min(len(costs), count), -1, -1):
        for chosen in combinations(costs, size):
            if all(sum(part) <= bound for part, bound in zip(zip(*chosen, strict=True), most, strict=False)):
                return size
    raise AssertionError("the empty selection always fits")


@given(COSTS, st.integers(0, 24), st.integers(0, 16), st.integers(0, 8))
def test_maximum_number_of_tools_is_kept_strict(costs, optional, unions, count):
    kept = select_affordable(tuple(costs), (optional, unions), count)
    assert len(kept) == len(set(kept)) == largest_selection_by_brute_force(costs, (optional, unions), count)
    assert sum(costs[number][0] for number in kept) <= optional
    assert sum(costs[number][1] for number in kept) <= unions


def test_first_of_equal_tools_stay_strict():
    assert select_affordable(((1, 0),) * 30, (24, 16), 20) == tuple(range(20))


def test_selection_among_many_tools_is_fast():
    random = Random(1)
    costs = tuple((random.randrange(12), random.randrange(8)) for _ in range(512))
    assert_linear(
        [(size, count_work(lambda size=size: select_affordable(costs[:size], (24, 16), 20))) for size in (128, 512)]
    )


def schema_of(random):
    """A schema that strict mode takes as it is."""
    properties = {f"p{number}": {"type": "string"} for number in range(random.randrange(12))}
    for number in range(random.randrange(8)):
        properties[f"u{number}"] = {"anyOf": [{"type": "string"}, {"type": "integer"}]}
    required = [name for name in properties if random.random() < 0.4]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


@every_case("seed", range(40))
def test_a_request_keeps_as_many_strict_tools_as_any_selection_could(seed):
    random = Random(seed)
    tools = tuple(Tool(f"t{number}", "", schema_of(random), strict=True) for number in range(random.randrange(1, 9)))
    prepared = prepare(Request("m", HELLO, tools), "anthropic")
    fitted = prepared.request.tools
    assert len(fitted) == len(tools)
    costs = [parameter_counts(lower(tool.input_schema, STRICT).schema) for tool in tools]
    kept = [number for number, tool in enumerate(fitted) if tool.strict]
    assert len(kept) == largest_selection_by_brute_force(costs, (24, 16), 20)
    assert sum(costs[number][0] for number in kept) <= 24
    assert sum(costs[number][1] for number in kept) <= 16
    lost = {loss.path for loss in prepared.losses if loss.concept == "strict"}
    assert lost == {f"/tools/{number}/strict" for number, tool in enumerate(fitted) if not tool.strict}


def test_strict_tool_count_and_cost_are_limited_together():
    heavy = {
        "type": "object",
        "properties": {f"p{n}": {"type": "string"} for n in range(23)},
        "additionalProperties": False,
    }
    light = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
    tools = (Tool("heavy", "", heavy, strict=True), *(Tool(f"t{n}", "", light, strict=True) for n in range(20)))
    fitted = prepare(Request("m", HELLO, tools), "anthropic").request.tools
    assert [tool.name for tool in fitted if not tool.strict] == ["heavy"]


def strings(count, length):
    return [f"{number:0{length}d}" for number in range(count)]


def closed(**properties):
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


TOO_LARGE = {
    "characters": closed(**{f"{number:0100d}": {"type": "string"} for number in range(1300)}),
    "properties": closed(**{f"p{number}": {"type": "string"} for number in range(5001)}),
    "enum values": closed(**{name: {"type": "string", "enum": strings(501, 5)} for name in "ab"}),
}
JUST_RIGHT = {
    "characters": closed(**{f"{number:0100d}": {"type": "string"} for number in range(1200)}),
    "enum values": closed(a={"type": "string", "enum": strings(1000, 5)}),
    "long enum": closed(a={"type": "string", "enum": strings(250, 61)}),
}


@pytest.mark.parametrize("wire", ["openai_chat", "openai_responses"])
@pytest.mark.parametrize("limit", TOO_LARGE)
def test_schema_too_large_for_strict_mode_is_sent_without_strict(limit, wire):
    tools = (
        Tool("large", "", TOO_LARGE[limit], strict=True),
        Tool("small", "", closed(a={"type": "string"}), strict=True),
    )
    prepared = prepare(Request("m", HELLO, tools), wire)
    assert [bool(tool.strict) for tool in prepared.request.tools] == [False, True]
    assert prepared.request.tools[0].input_schema == TOO_LARGE[limit]
    (loss,) = [loss for loss in prepared.losses if loss.concept == "strict"]
    assert loss.path == "/tools/0/strict"
    assert limit in loss.detail


@pytest.mark.parametrize("limit", JUST_RIGHT)
def test_a_schema_that_just_fits_stays_strict(limit):
    prepared = prepare(Request("m", HELLO, (Tool("f", "", JUST_RIGHT[limit], strict=True),)), "openai_chat")
    assert prepared.request.tools[0].strict
    assert not list(prepared.losses)


@pytest.mark.parametrize("values", [strings(1001, 5), strings(251, 60)], ids=["many", "long"])
def test_enum_too_large_for_strict_mode_moves_to_the_description(values):
    prepared = prepare(
        Request("m", HELLO, (Tool("f", "", closed(a={"type": "string", "enum": values}), strict=True),)), "openai_chat"
    )
    (tool,) = prepared.request.tools
    assert tool.strict
    assert tool.input_schema["properties"]["a"].keys() == {"type", "description"}
    assert ("/tools/0/input_schema/properties/a/enum", "warning") in {
        (loss.path, loss.severity) for loss in prepared.losses
    }


def nested(levels):
    schema = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (nested(6), "6 levels of nested objects"),
        (closed(**{f"{number:034d}": {"type": "string"} for number in range(43)}), "states"),
        (closed(a={"type": "array", "maxItems": 1000, "items": {"type": "string"}}), "states"),
        (closed(a={"type": "string", "enum": strings(200, 10)}), "states"),
    ],
)
def test_schema_that_gemini_may_reject_is_sent_with_a_warning(schema, words):
    prepared = prepare(Request("m", HELLO, (Tool("f", "", schema),)), "gemini")
    assert prepared.request.tools[0].input_schema == schema
    (loss,) = prepared.losses
    assert (loss.path, loss.severity) == ("/tools/0/input_schema", "warning")
    assert words in loss.detail
    assert any(loss.severity == "warning" and words in loss.detail for loss in lower(schema, "gemini").losses)


def test_schema_that_gemini_accepts_has_no_warning():
    fine = closed(**{f"p{number}": {"type": "string", "enum": ["a", "b"]} for number in range(30)})
    assert not list(prepare(Request("m", HELLO, (Tool("f", "", fine), Tool("g", "", nested(5)))), "gemini").losses)


def test_state_count_of_a_deep_schema_is_capped():
    schema = {"type": "string"}
    for _ in range(5000):
        schema = {"type": "array", "maxItems": 10**9, "items": schema}
    assert estimated_states(schema) == 10**9
