"""Values there and back, where two forms could be taken for each other. Found with public schema suites."""

import pytest

from tables import every_case
from toolwire.schema import DIALECTS, Validator, lower
from toolwire.schema.parsing.membership import json_equal

STRICT = ["openai_strict", "anthropic_strict", "gemini"]


def round_trip(schema, value, name):
    lowered = lower(schema, name)
    there = lowered.encode(value)
    assert Validator(lowered.schema).problems(there) == ()
    return lowered.lift(there)


def one_of_lists(*items):
    return {
        "type": "object",
        "properties": {"a": {"anyOf": [{"type": "array", **({"items": one} if one else {})} for one in items]}},
        "required": ["a"],
    }


TEXTS = {"type": "string"}
MAPS = {"type": "object"}
TEXT_MAPS = {"type": "object", "additionalProperties": {"type": "string"}}
PAIRS = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"key": {"type": "string"}, "value": {"type": "string"}},
        "required": ["key", "value"],
        "additionalProperties": False,
    },
}


@every_case("name", STRICT)
@every_case(
    ("schema", "value"),
    [
        pytest.param(one_of_lists(TEXTS, None), ["yes", False], id="strings or anything"),
        pytest.param(one_of_lists(None, TEXTS), ["yes"], id="anything or strings"),
        pytest.param(one_of_lists(TEXT_MAPS, MAPS), [{"x": 1}], id="maps of strings or of anything"),
        pytest.param(one_of_lists(PAIRS, MAPS), [{"x": 1}], id="lists of pairs or maps"),
        pytest.param(one_of_lists(PAIRS, MAPS), [[{"key": "x", "value": "1"}]], id="lists of pairs or maps, a pair"),
        pytest.param(one_of_lists(TEXTS, None), [], id="an empty list"),
    ],
)
def test_lists_of_rewritten_items_stay_distinguishable(schema, value, name):
    assert json_equal(round_trip(schema, {"a": value}, name), {"a": value})


def test_lists_under_references_stay_distinguishable():
    schema = one_of_lists(TEXTS)
    schema["properties"]["a"]["anyOf"].append({"$ref": "#/$defs/list"})
    schema["$defs"] = {"list": {"type": "array"}}
    for name in STRICT:
        assert round_trip(schema, {"a": ["yes", 1]}, name) == {"a": ["yes", 1]}


def test_lists_of_tagged_objects_stay_lists():
    def tagged(tag, kind):
        return {"type": "object", "properties": {"tag": {"const": tag}, "v": {"type": kind}}, "required": ["tag"]}

    lowered = lower(one_of_lists(tagged("a", "object"), tagged("b", "string")), "openai_strict")
    assert [branch["type"] for branch in lowered.schema["properties"]["a"]["anyOf"]] == ["array", "array"]
    assert lowered.lift(lowered.encode({"a": [{"tag": "b", "v": "[]"}]})) == {"a": [{"tag": "b", "v": "[]"}]}


PAIR = {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "integer"}], "items": False}


@pytest.mark.parametrize("name", STRICT)
def test_surplus_items_of_a_tuple_are_not_dropped(name):
    """An invalid list must not come back as a valid one."""
    schema = {"type": "object", "properties": {"pair": PAIR}, "required": ["pair"]}
    lowered = lower(schema, name)
    assert lowered.lift(lowered.encode({"pair": [1, 2]})) == {"pair": [1, 2]}
    back = lowered.lift(lowered.encode({"pair": [1, 2, 3]}))
    assert back == {"pair": [1, 2, 3]}
    assert not Validator(schema).accepts(back)


@pytest.mark.parametrize("name", ["gemini", "portable"])
@pytest.mark.parametrize(("values", "value"), [([1, 2], 1.0), ([2.0], 2), ([9007199254740992], 9007199254740992.0)])
def test_equal_numbers_have_the_same_label(values, value, name):
    schema = {"type": "object", "properties": {"n": {"enum": values}}, "required": ["n"]}
    assert json_equal(round_trip(schema, {"n": value}, name), {"n": value})


def test_labels_of_objects_do_not_depend_on_the_order_of_keys():
    schema = {"type": "object", "properties": {"o": {"enum": [{"a": 1, "b": [True]}]}}, "required": ["o"]}
    assert round_trip(schema, {"o": {"b": [True], "a": 1.0}}, "openai_strict") == {"o": {"a": 1, "b": [True]}}


ALTERNATIVES = {
    "type": "object",
    "properties": {
        "tags": {"type": "array", "items": {"type": "string"}},
        "ids": {"type": "array", "items": {"type": "string"}},
    },
    "anyOf": [{"required": ["tags"]}, {"required": ["ids"]}],
}


@every_case("name", DIALECTS)
@every_case(
    "schema",
    [
        pytest.param({"allOf": [ALTERNATIVES]}, id="allOf"),
        pytest.param({"$ref": "#/$defs/x", "$defs": {"x": ALTERNATIVES}}, id="reference"),
        pytest.param({"type": "object", "properties": {"a": {}}, "not": {"required": ["b"]}}, id="not"),
        pytest.param({"type": "object", "properties": {"a": {"const": ["x"]}}}, id="a list as a constant"),
    ],
)
def test_root_combinators_and_negations_are_not_sent(schema, name):
    lowered = lower(schema, name)
    assert lowered.problem is None
    assert not {"anyOf", "oneOf", "allOf", "not"} & set(lowered.schema)


def test_unevaluated_items_are_dropped_with_a_loss_after_merging():
    schema = {
        "type": "array",
        "allOf": [{"prefixItems": [{"type": "string"}], "items": True}],
        "unevaluatedItems": False,
    }
    lowered = lower(schema, "openai")
    assert round_trip(schema, ["a", 42], "openai") == ["a", 42]
    assert any(loss.concept == "unevaluatedItems" for loss in lowered.losses)


def test_loss_names_the_addresses_that_a_format_pattern_excludes():
    schema = {"type": "object", "properties": {"u": {"type": "string", "format": "uri"}}, "required": ["u"]}
    assert any("IPv6" in loss.detail for loss in lower(schema, "gemini").losses)
    assert not any("IPv6" in loss.detail for loss in lower(schema, "anthropic_strict").losses)  # it knows the format


@pytest.mark.parametrize(
    "condition",
    [{"items": [{"const": 1}]}, {"items": {"exclusiveMinimum": True, "minimum": 1}}, {"not": {"items": [True]}}],
)
def test_old_draft_notation_is_not_sent(condition):
    """Lowered schemas are JSON Schema 2020-12, or a provider's dialect of it."""
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "array", "not": condition}
    for name in DIALECTS:
        lowered = lower(schema, name)
        assert not lowered.unchanged
        Validator(lowered.schema)


@pytest.mark.parametrize(
    "assertion",
    [
        {"oneOf": [{"required": ["a b"]}, {"required": ["c"]}]},
        {"dependentRequired": {"c": ["a b"]}},
        {"if": {"properties": {"a b": {"const": 1}}, "required": ["a b"]}, "then": {"required": ["c"]}},
        {"not": {"required": ["a b", "c"]}},
    ],
)
def test_assertions_about_a_renamed_property_are_reported_as_a_loss(assertion):
    """Anthropic takes no space in the name of a property."""
    inner = {"type": "object", "properties": {"a b": {"type": "integer"}, "c": {"type": "string"}}, **assertion}
    schema = {"type": "object", "properties": {"x": {"type": "array", "items": inner}}, "required": ["x"]}
    value = {"x": [{"a b": 2}]}
    assert Validator(schema).accepts(value)
    assert round_trip(schema, value, "anthropic") == value
    assert any(loss.severity == "warning" for loss in lower(schema, "anthropic").losses)


@pytest.mark.parametrize("name", [*STRICT, "portable"])
def test_wrapper_of_null_does_not_collide_with_a_property_of_a_nested_union(name):
    inner = {"type": "object", "properties": {"value": {"type": "string", "nullable": True}}, "required": ["value"]}
    schema = {
        "type": "object",
        "properties": {"v": {"oneOf": [{"type": "string"}, inner], "nullable": True}},
        "required": ["v"],
    }
    for value in (None, "a", {"value": "null"}, {"value": None}):
        assert round_trip(schema, {"v": value}, name) == {"v": value}
