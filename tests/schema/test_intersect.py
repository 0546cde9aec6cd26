"""`allOf` of objects: patterns, declared properties and other keys together."""

import random

import pytest

from tables import every_case
from toolwire.schema import DIALECTS, Validator, lower
from toolwire.schema.parsing.membership import json_equal
from toolwire.testing.preservation import check_preservation

STRICT = ["openai_strict", "anthropic_strict", "gemini"]
TEXT, WHOLE = {"type": "string"}, {"type": "integer"}


def of(*parts, **beside):
    return {"type": "object", "properties": {"v": {"allOf": list(parts), **beside}}, "required": ["v"]}


def assert_round_trip(schema, value, name):
    assert Validator(schema).accepts({"v": value})
    lowered = lower(schema, name)
    sent = lowered.encode({"v": value})
    assert Validator(lowered.schema).accepts(sent), (name, sent)
    assert lowered.lift(sent) == {"v": value}


@every_case("name", DIALECTS)
@every_case(
    ("schema", "value"),
    [
        pytest.param(
            of({"patternProperties": {"^a": WHOLE}}, {"patternProperties": {"^b": TEXT}}),
            {"a1": 1, "b1": "x"},
            id="two patterns",
        ),
        pytest.param(
            of({"patternProperties": {"^a": WHOLE}}, {"properties": {"b": TEXT}}),
            {"a1": 1, "b": "x"},
            id="a pattern and a property that does not match it",
        ),
        pytest.param(
            of({"patternProperties": {"^a": WHOLE}}, {"properties": {"a": {"maximum": 9}}}),
            {"a": 1},
            id="a pattern and a property that matches it",
        ),
        pytest.param(
            of({"patternProperties": {"^a": WHOLE}, "additionalProperties": False}, {"additionalProperties": WHOLE}),
            {"a1": 1},
            id="a closed side with patterns",
        ),
        pytest.param(
            of({"patternProperties": {"^a": WHOLE}}, {"type": "object", "additionalProperties": {"minimum": 0}}),
            {"a1": 1, "b": 2},
            id="a pattern and a schema for all keys",
        ),
        pytest.param(
            of(
                {"properties": {}, "patternProperties": {"^x": {"enum": [1]}}, "additionalProperties": TEXT},
                required=["xz"],
            ),
            {"xz": 1, "b": "t"},
            id="a required key that only a pattern describes",
        ),
    ],
)
def test_patterns_are_intersected_by_key(schema, value, name):
    assert_round_trip(schema, value, name)


@pytest.mark.finding("S6")
@every_case("name", STRICT)
@every_case(
    ("schema", "value"),
    [
        pytest.param(
            of({"properties": {"a": WHOLE}, "additionalProperties": True}, {"properties": {"b": TEXT}}),
            {"a": 1, "b": "x", "c": [1]},
            id="one part is open",
        ),
        pytest.param(
            of({"properties": {"a": WHOLE}}, {"properties": {"b": TEXT}, "additionalProperties": WHOLE}),
            {"a": 1, "b": "x", "c": 2},
            id="one part has a schema for other keys",
        ),
        pytest.param(
            of({"type": "object", "required": ["a"]}, {"additionalProperties": True}, {"properties": {"a": WHOLE}}),
            {"a": 1, "c": 2},
            id="a part without properties before an open one",
        ),
        pytest.param(
            of({"properties": {"a": WHOLE}}, additionalProperties=True), {"a": 1, "c": 2}, id="open beside allOf"
        ),
    ],
)
def test_open_object_stays_open(schema, value, name):
    assert_round_trip(schema, value, name)


@pytest.mark.finding("S6")
@pytest.mark.parametrize("name", STRICT)
def test_closed_object_stays_closed(name):
    schema = of({"properties": {"a": WHOLE}, "additionalProperties": False}, {"additionalProperties": True})
    assert "additional_properties" not in lower(schema, name).schema["properties"]["v"]["properties"]


def test_forbidden_property_of_an_open_object_is_not_one_of_the_other_keys():
    schema = of({"properties": {"b": TEXT}}, {"additionalProperties": WHOLE})
    lowered = lower({**schema, "properties": {**schema["properties"], "c d": TEXT}}, "anthropic")
    assert lowered.schema["properties"]["v"]["properties"]["b"] is False


def test_description_beside_an_intersected_reference_is_kept():
    schema = {
        **of({"$ref": "#/$defs/d", "description": "outer"}, {"minLength": 2}),
        "$defs": {"d": {"type": "string", "description": "inner"}},
    }
    assert lower(schema, "openai_strict").schema["properties"]["v"]["description"] == "outer"


LEAVES = [TEXT, WHOLE, {"type": "integer", "minimum": 2}, {}, {"type": ["string", "integer"]}, {"enum": [1, "ab"]}]
KEYS, VALUES = ["a", "b", "ax", "q", "xz", "xb"], [1, 3, "a", "ab"]


def random_object(chance):
    out = {"type": "object"} if chance.random() < 0.8 else {}
    if chance.random() < 0.6:
        out["properties"] = {key: chance.choice(LEAVES) for key in chance.sample(KEYS[:4], chance.randint(0, 2))}
    if chance.random() < 0.5:
        patterns = chance.sample(["^a", "^x", "b"], chance.randint(1, 2))
        out["patternProperties"] = {pattern: chance.choice([*LEAVES, False]) for pattern in patterns}
    if chance.random() < 0.5:
        out["additionalProperties"] = chance.choice([True, False, TEXT, WHOLE])
    if chance.random() < 0.3:
        out["required"] = [chance.choice(["a", "b", "xz"])]
    if chance.random() < 0.3:
        out[chance.choice(["minProperties", "maxProperties"])] = chance.randint(1, 3)
    return out


@pytest.mark.one_in(3)
@pytest.mark.finding("S6")
@every_case("seed", range(40))
def test_random_intersection_is_exact_or_reported(seed):
    """Keys that no part mentions are left out: an object with properties is meant to have no others."""
    chance = random.Random(seed)
    parts = [random_object(chance) for _ in range(chance.randint(2, 3))]
    schema = of(*parts)
    is_open = any(part.get("additionalProperties", False) is not False for part in parts)
    values = [{key: chance.choice(VALUES) for key in chance.sample(KEYS, chance.randint(0, 3))} for _ in range(40)]
    valid = [{"v": value} for value in values if is_open and Validator(schema).accepts({"v": value})]
    for name, row in DIALECTS.items():
        lowered = lower(schema, row)
        reported = any(loss.severity != "info" for loss in lowered.losses)
        for value in valid if not reported else ():
            sent = lowered.encode(value)
            assert Validator(lowered.schema).accepts(sent) and json_equal(lowered.lift(sent), value), (
                name,
                parts,
                value,
            )
        found = check_preservation(
            schema, lowered.schema, row, lift=lowered.lift, encode=lowered.encode, reported=reported, seed=str(seed)
        )
        assert found is None or found.is_honest, (name, parts, found)
