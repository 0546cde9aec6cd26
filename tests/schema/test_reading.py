"""How schemas are read: drafts, implied types, open objects and conditions. Found with public schema suites."""

import pytest

from tables import every_case
from toolwire.schema import DIALECTS, Validator, lower
from toolwire.schema.parsing.membership import json_equal
from toolwire.schema.parsing.nodes import ArrayNode, ObjectNode, StringNode, UnionNode
from toolwire.schema.parsing.parser import parse_schema

STRICT = ["openai_strict", "anthropic_strict", "gemini"]
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"


def assert_round_trips(schema, value, dialects=STRICT):
    """The value is valid, can be written under the lowered schema, and comes back equal."""
    assert Validator(schema).accepts(value)
    for name in dialects:
        lowered = lower(schema, name)
        there = lowered.encode(value)
        assert Validator(lowered.schema).problems(there) == (), name
        assert json_equal(lowered.lift(there), value), name


REF_WITH_SIBLINGS = {
    "type": "object",
    "properties": {
        "sensor": {"type": "string", "maxLength": 1, "description": "the point", "$ref": "#/definitions/point"}
    },
    "required": ["sensor"],
    "definitions": {"point": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
}


def test_siblings_of_a_reference_are_ignored_up_to_draft_7():
    assert_round_trips({"$schema": DRAFT_7, **REF_WITH_SIBLINGS}, {"sensor": {"x": 1.5}}, list(DIALECTS))


def test_ignored_siblings_are_reported_and_annotations_are_kept():
    lowered = lower({"$schema": DRAFT_7, **REF_WITH_SIBLINGS}, "gemini")
    assert {"/properties/sensor/type", "/properties/sensor/maxLength"} <= {loss.path for loss in lowered.losses}
    assert lowered.schema["properties"]["sensor"]["description"] == "the point"


def test_siblings_of_a_reference_apply_in_newer_drafts():
    schema = {
        "$schema": DRAFT_2020,
        "type": "object",
        "properties": {"name": {"$ref": "#/$defs/text", "maxLength": 3}},
        "$defs": {"text": {"type": "string"}},
    }
    assert lower(schema, "openai_strict").schema["properties"]["name"]["maxLength"] == 3


def test_keywords_of_one_type_beside_a_union_constrain_that_type_only():
    schema = {
        "type": "object",
        "properties": {
            "tags": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}], "minItems": 2}
        },
        "required": ["tags"],
    }
    assert_round_trips(schema, {"tags": "one"})
    assert_round_trips(schema, {"tags": ["one", "two"]})
    branches = parse_schema(schema).root.properties["tags"].branches
    assert [type(branch) for branch in branches] == [StringNode, ArrayNode]
    assert branches[1].min_items == 2


def test_keywords_of_another_type_beside_a_reference_have_no_effect():
    schema = {
        "type": "object",
        "properties": {"rule": {"$ref": "#/$defs/rule", "minItems": 1}},
        "$defs": {"rule": {"enum": ["required", "email"]}},
    }
    assert_round_trips(schema, {"rule": "email"})
    assert parse_schema(schema).defects == ()


def test_enum_beside_keywords_of_one_type_keeps_values_of_other_types():
    node = parse_schema({"properties": {"a": {"anyOf": [{"enum": [1, "long", "x"]}], "maxLength": 2}}}).root.properties[
        "a"
    ]
    assert node.values == (1, "x")


def test_required_names_alone_do_not_close_an_object():
    schema = {
        "type": "object",
        "properties": {
            "document": {
                "allOf": [
                    {
                        "type": "object",
                        "patternProperties": {"^[^$]": {"type": "string"}},
                        "additionalProperties": False,
                    },
                    {"required": ["id"]},
                ]
            }
        },
    }
    assert_round_trips(schema, {"document": {"id": "1", "name": "x"}})


def test_root_without_properties_uses_those_of_its_combinators():
    schema = {"type": "object", "allOf": [{"type": "object", "additionalProperties": {"type": "number"}}]}
    assert_round_trips(schema, {"a": 1})
    assert parse_schema({"type": "object"}).root.rest is None


def test_unevaluated_properties_open_an_object():
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "unevaluatedProperties": {"type": "integer"}}
    assert_round_trips(schema, {"a": "x", "b": 1})
    beside = {**schema, "allOf": [{"properties": {"c": {"type": "string"}}}]}
    assert parse_schema(beside).root.properties["c"] == StringNode(at="/allOf/0/properties/c")
    assert_round_trips(beside, {"a": "x", "c": "y"})


def test_a_definition_that_extends_itself_leaves_the_object_open():
    schema = {
        "type": "object",
        "properties": {"config": {"$ref": "#/$defs/config"}},
        "$defs": {
            "config": {"type": "object", "properties": {"name": {"type": "string"}, "tag": {"$ref": "#/$defs/inner"}}},
            "inner": {"allOf": [{"$ref": "#/$defs/config"}, {"properties": {"preset": {"type": "string"}}}]},
        },
    }
    assert_round_trips(schema, {"config": {"name": "a", "tag": {"name": "b", "preset": "c"}}}, ["openai_strict"])


CONDITIONS = [
    pytest.param({"if": {"required": ["kind"]}, "then": {"properties": {"port": {"type": "integer"}}}}, id="then"),
    pytest.param({"if": {"required": ["x"]}, "else": {"properties": {"port": {"type": "integer"}}}}, id="else"),
    pytest.param({"dependentSchemas": {"kind": {"properties": {"port": {"type": "integer"}}}}}, id="dependentSchemas"),
    pytest.param({"dependencies": {"kind": {"properties": {"port": {"type": "integer"}}}}}, id="dependencies"),
    pytest.param({"dependentRequired": {"kind": ["port"]}}, id="dependentRequired"),
    pytest.param({"if": {"properties": {"port": {"const": 1}}}, "then": {}}, id="if"),
    pytest.param({"if": {"required": ["kind"]}, "then": {"$ref": "#/$defs/port"}}, id="reference"),
    pytest.param({"if": {"required": ["kind"]}, "then": {"anyOf": [{"required": ["port"]}]}}, id="required"),
    pytest.param({"if": {}, "then": {"patternProperties": {"^p": {"type": "integer"}}}}, id="patternProperties"),
    pytest.param({"allOf": [{"if": {}, "then": {"properties": {"port": {"type": "integer"}}}}]}, id="allOf"),
    pytest.param({"if": {}, "then": {"if": {}, "then": {"properties": {"port": {"type": "integer"}}}}}, id="nested"),
]


@every_case("condition", CONDITIONS)
def test_keys_that_only_a_condition_mentions_can_be_written(condition):
    schema = {
        "type": "object",
        "properties": {"server": {"type": "object", "properties": {"kind": {"type": "string"}}, **condition}},
        "$defs": {"port": {"properties": {"port": {"type": "integer"}}}},
    }
    assert_round_trips(schema, {"server": {"kind": "http", "port": 80}})


def test_condition_does_not_open_a_closed_object():
    node = parse_schema({"type": "object", "additionalProperties": False, "dependentRequired": {"a": ["b"]}}).root
    assert isinstance(node, ObjectNode)
    assert node.properties == {}


def test_several_conditions_may_describe_one_key():
    schema = {
        "type": "object",
        "properties": {"kind": {"enum": ["a", "b"]}},
        "allOf": [
            {"if": {"properties": {"kind": {"const": "a"}}}, "then": {"properties": {"value": {"type": "string"}}}},
            {"if": {"properties": {"kind": {"const": "b"}}}, "then": {"properties": {"value": {"type": "integer"}}}},
        ],
    }
    assert isinstance(parse_schema(schema).root.properties["value"], UnionNode)
    assert_round_trips(schema, {"kind": "a", "value": "x"})
    assert_round_trips(schema, {"kind": "b", "value": 1})


def test_objects_of_several_conditions_are_joined():
    def source(key):
        return {
            "properties": {"source": {"type": "object", "properties": {key: {"type": "string"}}, "required": [key]}}
        }

    schema = {
        "type": "object",
        "properties": {"kind": {"type": "string"}},
        "allOf": [{"if": {}, "then": source("path")}, {"if": {}, "then": source("branch")}],
    }
    assert_round_trips(schema, {"kind": "git", "source": {"path": "a", "branch": "b"}})


def test_conditions_are_read_once_and_their_work_is_bounded():
    """Many objects with conditions that lead to one large definition: beyond the budget a finding says so."""
    many = {f"p{number}": {"type": "integer"} for number in range(300)}
    one = {"type": "object", "properties": {"k": {}}, "if": {}, "then": {"$ref": "#/$defs/many"}}
    schema = {
        "type": "object",
        "properties": {f"o{n}": one for n in range(300)},
        "$defs": {"many": {"properties": many}},
    }
    source = parse_schema(schema)
    described = [len(node.properties) for node in source.root.properties.values()]
    assert described[0] == 301
    assert sum(described) < 20 * source.size
    assert any("too many conditions" in finding.message for finding in source.defects)


def test_minimum_of_contains_is_kept_when_it_is_zero():
    schema = {"type": "array", "contains": {"const": 1}, "minContains": 0, "maxContains": 1}
    assert_round_trips(schema, [], ["openai", "mistral"])


@pytest.mark.parametrize(
    "assertion", [{"not": {}}, {"type": "array", "contains": {}}, {"type": "object", "if": {}, "then": False}]
)
def test_empty_schema_under_an_assertion_keyword_is_reported(assertion):
    lowered = lower({"type": "object", "properties": {"a": assertion}}, "openai_strict")
    keyword = next(word for word in ("not", "contains", "if") if word in assertion)
    assert f"/properties/a/{keyword}" in {loss.path for loss in lowered.losses if loss.severity == "warning"}
