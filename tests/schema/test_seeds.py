"""The tools of the seeds in every dialect and on every wire: calls that fit come back, calls that do not are refused."""

import json

import pytest

import toolwire
from places import TESTS
from recordings import WIRES
from tables import every_case
from toolwire.ir import InvalidArguments, Message, Params
from toolwire.schema import DIALECTS, lower, validator, violations
from toolwire.testing.preservation import violation_outcome
from toolwire.wire import get

VECTORS = TESTS / "vectors/schema"
TOOLS = {tool["name"]: tool for tool in json.loads((VECTORS / "seeds.json").read_text(encoding="utf-8"))}
VIOLATIONS = json.loads((VECTORS / "violations.json").read_text(encoding="utf-8"))


def violation_id(violation):
    return f"{violation['tool']}: {violation['about']}"


@every_case("dialect", DIALECTS)
@every_case("name", TOOLS)
def test_valid_calls_survive_every_dialect(name, dialect):
    schema = TOOLS[name]["schema"]
    lowered = lower(schema, dialect)
    assert lowered.conforms and not violations(lowered.schema, lowered.dialect)
    for call in TOOLS[name]["calls"]:
        validator(schema).check(call)
        validator(lowered.schema).check(lowered.encode(call))
        assert lowered.lift(lowered.encode(call)) == call


@every_case("strict", [None, True])
@every_case("wire", WIRES)
@every_case("name", TOOLS)
def test_valid_calls_survive_every_wire(name, wire, strict):
    """Declared on the wire, called in the wire's own answer, and read as the original means it."""
    tool = toolwire.Tool(name, TOOLS[name]["description"], TOOLS[name]["schema"], strict=strict)
    user = Message("user", (toolwire.Text("hi"),))
    request = toolwire.Request("m", (user,), (tool,), params=Params(max_tokens=9))
    prepared = toolwire.prepare(request, wire)
    (declared,) = get(wire).decode_request(get(wire).encode_request(prepared.request).body).tools
    lowered = prepared.exchange.lifts.get(name)
    for call in TOOLS[name]["calls"]:
        said = call if lowered is None else lowered.encode(call)
        validator(declared.input_schema).check(said)
        answer, _ = get(wire).encode_response(toolwire.Response("r", "m", (toolwire.ToolCall("c", name, said),)))
        (read,) = prepared.exchange.restore(get(wire).decode_response(answer)).calls
        assert (read.name, read.arguments) == (name, call)


def test_default_is_kept_or_moved_to_the_description():
    for dialect in DIALECTS:
        field = lower(TOOLS["search_products"]["schema"], dialect).schema["properties"]["max_results"]
        assert field.get("default") == 10 or "default: 10" in field["description"]


@every_case("violation", VIOLATIONS, ids=violation_id)
def test_violation_has_the_stated_path_and_keyword(violation):
    with pytest.raises(InvalidArguments) as caught:
        validator(TOOLS[violation["tool"]]["schema"]).check(violation["arguments"])
    assert caught.value.pointer == violation["path"]
    first = validator(TOOLS[violation["tool"]]["schema"]).problems(violation["arguments"])[0]
    assert first.keyword == violation["keyword"]


@every_case("violation", VIOLATIONS, ids=violation_id)
def test_violation_is_rejected_or_corrected_in_every_dialect(violation):
    """docs/violations.md shows where each of them fails."""
    schema = TOOLS[violation["tool"]]["schema"]
    for dialect, row in DIALECTS.items():
        found = violation_outcome(schema, dialect, violation["arguments"])
        assert found is not None, dialect
        if found.enforcement == "lifted":
            validator(schema).check(found.arrives)
        else:
            first = found.problems[0]
            assert (first.path, first.keyword) == (violation["path"], violation["keyword"]), dialect
        assert found.enforcement != "unwritable" or row.enforced


@every_case("dialect", DIALECTS)
@every_case("name", TOOLS)
def test_valid_calls_are_not_rejected(name, dialect):
    for call in TOOLS[name]["calls"]:
        assert violation_outcome(TOOLS[name]["schema"], dialect, call) is None


FAILURE_STAGES = {
    "a required property is missing": {"openai": "stated", "openai_strict": "unwritable", "gemini": "stated"},
    "a property that is not declared": {"anthropic": "stated", "anthropic_strict": "unwritable", "gemini": "local"},
    "null for an optional string": {"openai": "stated", "openai_strict": "lifted", "anthropic_strict": "unwritable"},
    "a string that is too long": {"openai_strict": "unwritable", "anthropic_strict": "unwritable", "ollama": "local"},
    "a number above its range": {"openai_strict": "unwritable", "anthropic_strict": "local", "gemini": "stated"},
    "a number of an enum as a string": {"openai_strict": "unwritable", "gemini": "lifted"},
    "an address without its sign": {"openai_strict": "unwritable", "gbnf": "local"},
}


@pytest.mark.parametrize("about", FAILURE_STAGES)
def test_violation_fails_at_the_expected_stage(about):
    (violation,) = [violation for violation in VIOLATIONS if violation["about"] == about]
    schema = TOOLS[violation["tool"]]["schema"]
    for dialect, where in FAILURE_STAGES[about].items():
        assert violation_outcome(schema, dialect, violation["arguments"]).enforcement == where
