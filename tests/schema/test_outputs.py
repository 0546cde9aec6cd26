"""Schemas of structured outputs: any root, the rules of each provider, and answers lifted back."""

import json

import pytest

from random_schemas import CORPUS, published_schemas
from tables import every_case
from toolwire.ir import ConfigError
from toolwire.schema import lower, output_dialect
from toolwire.schema.dialects import DIALECTS, OUTPUT_DIALECTS
from toolwire.schema.parsing.membership import json_equal
from toolwire.schema.validation.validator import Validator
from toolwire.testing.instances import instances
from toolwire.testing.preservation import close_schema, drop_null

TREE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
    "required": ["name"],
}
ROOTS = {
    "array": ({"type": "array", "items": {"type": "string"}}, ["a", "b"]),
    "string": ({"type": "string", "minLength": 2}, "ab"),
    "integer": ({"type": "integer", "minimum": 1}, 5),
    "enum": ({"enum": ["a", 1]}, 1),
    "null or string": ({"type": ["string", "null"]}, None),
    "union": ({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]}, [1]),
    "anything": ({}, {"a": [1]}),
    "any object": ({"type": "object"}, {"a": 1, "b": [True]}),
    "map": ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": 1}),
    "tuple": ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False}, [1, "a"]),
    "reference": ({"$ref": "#/$defs/tree", "$defs": {"tree": TREE}}, {"name": "a", "children": [{"name": "b"}]}),
    "array of references": (
        {"type": "array", "items": {"$ref": "#/$defs/tree"}, "$defs": {"tree": TREE}},
        [{"name": "a", "children": []}],
    ),
    "object whose only property is forbidden": (
        {"type": "object", "properties": {"a": False}, "additionalProperties": False},
        {},
    ),
    "object with a property value": (
        {"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"]},
        {"value": 1},
    ),
}


@every_case("name", OUTPUT_DIALECTS)
@every_case("root", ROOTS)
def test_any_root_is_lowered_and_the_answer_is_lifted_back(root, name):
    schema, value = ROOTS[root]
    lowered = lower(schema, name)
    assert lowered.conforms, lowered.problem
    sent = lowered.encode(value)
    assert Validator(lowered.schema).accepts(sent)
    assert lowered.lift(json.loads(json.dumps(sent))) == value
    if not OUTPUT_DIALECTS[name].any_root:
        assert lowered.schema["type"] == "object" and type(sent) is dict
        assert not {"anyOf", "oneOf", "allOf", "$ref"} & set(lowered.schema)


@pytest.mark.parametrize("name", ["openai_output", "openai_strict_output", "anthropic_output"])
def test_root_that_is_not_an_object_is_wrapped(name):
    lowered = lower({"type": "array", "items": {"type": "string"}}, name)
    assert list(lowered.schema["properties"]) == ["value"]
    assert lowered.lift({"value": ["a"]}) == ["a"]
    assert lowered.lift(["a"]) == ["a"]  # a model that was not held to the schema
    assert [(loss.path, loss.severity) for loss in lowered.losses] == [("", "info")]


@pytest.mark.parametrize("name", ["gemini_output", "gemini_json_schema_output", "ollama_output"])
def test_root_is_not_wrapped_where_any_type_is_accepted(name):
    schema = {"type": "array", "items": {"type": "string"}}
    assert lower(schema, name).unchanged


def test_object_without_properties_is_any_object_only_in_answers():
    assert lower({"type": "object"}, "openai_strict").schema["properties"] == {}
    lowered = lower({"type": "object"}, "openai_strict_output")
    assert lowered.lift(lowered.encode({"a": [1]})) == {"a": [1]}
    assert lower({"type": "object"}, "gemini_output").schema["type"] == "array"


@pytest.mark.parametrize(
    ("dialect", "strict", "name"),
    [
        ("openai", True, "openai_strict_output"),
        ("openai", False, "openai_output"),
        ("openai", None, "openai_output"),
        ("anthropic", None, "anthropic_output"),
        ("anthropic", True, "anthropic_output"),
        ("gemini", None, "gemini_output"),
        ("gemini_json_schema", True, "gemini_json_schema_output"),
        ("ollama", None, "ollama_output"),
        ("mistral", True, "mistral_output"),
    ],
)
def test_dialect_of_outputs_follows_from_the_dialect_of_tools(dialect, strict, name):
    assert output_dialect(dialect, strict=strict) is OUTPUT_DIALECTS[name]


def test_every_dialect_of_a_provider_has_one_for_outputs():
    providers = DIALECTS.keys() - {"portable", "openai_strict", "anthropic_strict", "bedrock_strict", "cohere_strict"}
    assert {output_dialect(name, strict=None).name for name in providers} == {f"{name}_output" for name in providers}
    with pytest.raises(ConfigError):
        output_dialect("nope", strict=None)


def test_numeric_bounds_do_not_reach_anthropic():
    """A 400 there: "For 'integer' type, properties maximum, minimum are not supported"."""
    schema = {
        "type": "object",
        "properties": {
            "score": {"type": "number", "minimum": 0, "maximum": 1},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        },
        "additionalProperties": False,
    }
    lowered = lower(schema, "anthropic_output")
    text = json.dumps(lowered.schema)
    assert '"minimum"' not in text and '"maxItems"' not in text
    assert lowered.schema["additionalProperties"] is False
    assert {loss.path for loss in lowered.losses} == {
        "/properties/score/minimum",
        "/properties/score/maximum",
        "/properties/tags/maxItems",
    }


@every_case("name", OUTPUT_DIALECTS)
def test_published_schemas_are_lowered_for_answers_without_unreported_loss(name):
    if not CORPUS.exists():
        pytest.skip("the corpus is not here")
    for number, schema in enumerate(published_schemas(97)):
        lowered = lower(schema, name)
        original, there = Validator(schema), Validator(close_schema(lowered.schema))
        reported = any(loss.severity != "info" for loss in lowered.losses)
        for value in instances(schema, seed=str(number), count=6, validator=original):
            sent = lowered.encode(value)
            kept = there.accepts(sent) and json_equal(drop_null(lowered.lift(sent)), drop_null(value))
            assert kept or reported, (name, schema, value)
