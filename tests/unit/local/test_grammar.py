import json

import pytest

from toolwire.local.grammar import MAX_ITEMS, MAX_LENGTH, bound_schema, build_grammar


def call(name, arguments):
    return {"type": "object", "properties": {"name": {"const": name}, "arguments": arguments}, "required": ["name"]}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, {"type": "string", "maxLength": MAX_LENGTH}),
        ({"type": "string", "maxLength": 5}, {"type": "string", "maxLength": 5}),
        ({"type": "string", "minLength": 999}, {"type": "string", "minLength": 999, "maxLength": 999}),
        ({"type": "string", "enum": ["a"]}, {"type": "string", "enum": ["a"]}),
        ({"type": "array", "minItems": 20}, {"type": "array", "minItems": 20, "maxItems": 20}),
        (
            {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True},
            {"type": "array", "items": {"type": "boolean"}, "maxItems": MAX_ITEMS},
        ),
        ({"type": "object"}, {"type": "object", "properties": {}, "additionalProperties": True, "maxProperties": 1}),
        (
            {"properties": {"a": {"not": {}}}, "required": ["a"]},
            {"properties": {"a": {}}, "required": ["a"], "additionalProperties": False},
        ),
        ({"oneOf": [{"type": "null"}]}, {"anyOf": [{"type": "null"}]}),
        (True, True),
    ],
)
def test_values_are_bounded_and_unknown_keywords_are_removed(schema, expected):
    assert bound_schema(schema, "", {}) == expected


def test_tool_without_parameters_accepts_no_arguments():
    _, _, text = build_grammar(call("a", {"type": "object"})).partition("%json ")
    (shape,) = json.loads(text)["anyOf"]
    assert shape["properties"]["arguments"] == {"type": "object", "properties": {}, "additionalProperties": False}


def test_definitions_of_two_tools_do_not_collide():
    def tool(name, kind):
        arguments = {
            "type": "object",
            "properties": {"x": {"$ref": "#/$defs/X"}},
            "$defs": {"X": {"type": kind}},
        }
        return call(name, arguments)

    _, _, text = build_grammar({"anyOf": [tool("a", "boolean"), tool("b", "null")]}).partition("%json ")
    schema = json.loads(text)
    for number, kind in enumerate(("boolean", "null")):
        arguments = schema["anyOf"][number]["properties"]["arguments"]
        target = arguments["properties"]["x"]["$ref"].removeprefix("#/$defs/")
        assert schema["$defs"][target] == {"type": kind}
