"""A schema that gets another type loses no keyword: each is translated, or stated and reported."""

import pytest
from hypothesis import given, settings

from random_schemas import documents
from tables import every_case
from toolwire.schema import Validator, lower
from toolwire.schema.dialects import DIALECTS, OUTPUT_DIALECTS
from toolwire.schema.keywords import ASSERTING, KEYWORDS_BY_TYPE
from toolwire.schema.lowering.conformance import walk

ROWS = [row for row in (*DIALECTS.values(), *OUTPUT_DIALECTS.values()) if not row.whole]
STRICT = ["openai_strict", "anthropic_strict", "gemini"]


def of(schema, **root):
    return {"type": "object", "properties": {"v": schema}, "required": ["v"], **root}


def warnings(lowered):
    return {loss.path for loss in lowered.losses if loss.severity == "warning"}


@pytest.mark.finding("S5")
@settings(max_examples=40)
@given(schema=documents())
def test_every_keyword_applies_to_the_type_beside_it(schema):
    for row in ROWS:
        lowered = lower(schema, row)
        for at, node, _ in walk(lowered.schema) if not lowered.unchanged else ():
            kinds = node["type"] if type(node.get("type")) is list else [node.get("type")]
            if kinds == [None]:
                continue
            applicable = {"format"}.union(*(KEYWORDS_BY_TYPE.get(kind, ()) for kind in kinds))
            assert node.keys() & ASSERTING <= applicable, (row.name, at, node)
            assert set(node.get("required", ())) <= set(node.get("properties", ())), (row.name, at)


@pytest.mark.finding("S5")
@pytest.mark.parametrize("name", ["gemini", "openai_strict", "gemini_output"])
def test_bounds_of_a_map_become_bounds_of_its_entries(name):
    counts = {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 4}
    lowered = lower(of(counts), name)
    written = lowered.schema["properties"]["v"]
    assert (written["type"], written["minItems"], written["maxItems"]) == ("array", 1, 4)
    assert not {"minProperties", "maxProperties"} & set(written)
    assert not warnings(lowered)


@pytest.mark.finding("S5")
def test_bounds_of_a_map_that_entries_cannot_express_are_reported():
    counts = {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2, "maxProperties": 4}
    assert warnings(lower(of(counts), "gemini")) == {"/properties/v/minProperties"}  # a repeated key counts twice
    lowered = lower(of(counts), "anthropic_strict")
    assert warnings(lowered) == {"/properties/v/minProperties", "/properties/v/maxProperties"}
    assert "maxProperties: 4" in lowered.schema["properties"]["v"]["description"]


@pytest.mark.finding("S5")
def test_bounds_of_an_object_with_a_list_for_other_keys_are_reported():
    counts = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "additionalProperties": {"type": "integer"},
        "minProperties": 3,
    }
    lowered = lower(of(counts), "gemini")
    assert "minProperties" not in lowered.schema["properties"]["v"]
    assert warnings(lowered) == {"/properties/v/minProperties"}


@pytest.mark.finding("S5")
@pytest.mark.parametrize("name", STRICT)
def test_length_of_a_tuple_is_kept_in_its_object(name):
    pair = {
        "type": "array",
        "prefixItems": [{"type": "integer"}],
        "items": {"type": "string"},
        "minItems": 2,
        "maxItems": 3,
        "uniqueItems": True,
    }
    lowered = lower(of(pair), name)
    written = lowered.schema["properties"]["v"]
    assert written["type"] == "object" and written["required"] == ["item_0", "rest"]
    assert written["properties"]["rest"]["minItems"] == 1
    missing = {"/properties/v/uniqueItems"} | ({"/properties/v/maxItems"} if name == "anthropic_strict" else set())
    assert warnings(lowered) == missing
    assert lowered.lift(lowered.encode({"v": [1, "a", "b"]})) == {"v": [1, "a", "b"]}


@pytest.mark.finding("S5")
@every_case(
    ("schema", "default"),
    [
        pytest.param({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": 1}, id="map"),
        pytest.param({"type": "array", "prefixItems": [{"type": "integer"}], "items": False}, [1], id="tuple"),
        pytest.param({"enum": [1, 2]}, 2, id="enum"),
        pytest.param({}, [1, "a"], id="any value"),
        pytest.param({"type": "array", "items": {"type": "object"}}, [{"a": 1}], id="array of maps"),
        pytest.param({"type": "integer", "minimum": 1}, 5, id="integer with a bound"),
    ],
)
@every_case("name", ["gemini", "anthropic_strict", "ollama_output"])
def test_default_has_the_form_of_the_rewritten_value(schema, default, name):
    lowered = lower(of({**schema, "default": default}), name)
    written = lowered.schema["properties"]["v"]
    assert Validator(written).accepts(written["default"])
    assert lowered.lift({"v": written["default"]}) == {"v": default}


@pytest.mark.finding("S5")
def test_annotations_of_a_union_without_a_place_are_reported():
    union = {"anyOf": [{"type": "string"}, {"type": "integer"}], "title": "T", "default": 1, "description": "text"}
    lowered = lower(of(union), "gemini")
    assert lowered.schema["properties"]["v"]["anyOf"][0]["description"] == "text (default: 1)"
    assert "/properties/v/title" in {loss.path for loss in lowered.losses}


@pytest.mark.finding("S5")
def test_keyword_of_another_type_is_dropped_with_a_loss():
    lowered = lower(
        of({"type": "array", "items": {"type": "string"}, "minProperties": 2, "uniqueItems": True}), "gemini"
    )
    assert "minProperties" not in lowered.schema["properties"]["v"]
    assert "/properties/v/minProperties" in {loss.path for loss in lowered.losses}


def test_values_of_an_enum_that_other_keywords_exclude_are_not_sent():
    schema = of({"type": "string", "enum": ["a", "abc"], "minLength": 2})
    assert lower(schema, "ollama").schema["properties"]["v"]["enum"] == ["abc"]


BIG = 1234567890123456789012


@pytest.mark.finding("S2")
@every_case(
    ("bounds", "accepted", "refused"),
    [
        ({"minimum": 1}, [1, 9, 10, BIG], [0, -1, -BIG]),
        ({"minimum": 0}, [0, 7, BIG], [-1]),
        ({"exclusiveMinimum": 41}, [42, 100, BIG], [41, 5, -42]),
        ({"maximum": 250}, [250, 99, 0, -1, -BIG], [251, BIG]),
        ({"exclusiveMaximum": 0}, [-1, -BIG], [0, 1]),
        ({"maximum": -12}, [-12, -13, -BIG], [-11, 0, BIG]),
        ({"minimum": 0.5}, [1, BIG], [0]),
        ({"minimum": -3}, [-3, 0, BIG], [-4, -BIG]),
        ({"minimum": 1, "maximum": 2**53 - 1}, [1, 2**53 - 1], [0, 2**53]),
        ({"minimum": 1, "multipleOf": 1}, [1, BIG], [0]),
    ],
)
def test_open_side_of_an_integer_stays_open(bounds, accepted, refused):
    lowered = lower(of({"type": "integer", **bounds}), "anthropic_strict")
    written = Validator(lowered.schema)
    for value in accepted:
        sent = lowered.encode({"v": value})
        assert written.accepts(sent), sent
        assert lowered.lift(sent) == {"v": value}
    for value in refused:
        assert not written.accepts(lowered.encode({"v": value}))
    assert not warnings(lowered)


@pytest.mark.finding("S2")
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 1 - 2**53, "maximum": 2**53 - 1},
        {"type": "integer", "minimum": 1, "multipleOf": 5},
        {"type": "number", "minimum": 1},
        {"type": "number", "exclusiveMaximum": 1},
        {"type": "integer", "minimum": 10**50},
    ],
)
def test_bound_that_no_pattern_expresses_is_stated_and_reported(schema):
    lowered = lower(of(schema), "anthropic_strict")
    assert lowered.schema["properties"]["v"]["type"] == schema["type"]
    bounds = schema.keys() - {"type"}
    assert warnings(lowered) == {f"/properties/v/{keyword}" for keyword in bounds}
    assert all(keyword in lowered.schema["properties"]["v"]["description"] for keyword in bounds)
    assert lowered.lift({"v": BIG}) == {"v": BIG}


@pytest.mark.parametrize("name", STRICT)
def test_format_of_a_number_is_kept_or_reported(name):
    lowered = lower(of({"type": "integer", "format": "int32"}, title="T", examples=[]), name)
    kept = lowered.schema["properties"]["v"].get("format") == "int32"
    assert kept == (name == "gemini")
    assert kept or "/properties/v/format" in {loss.path for loss in lowered.losses}
