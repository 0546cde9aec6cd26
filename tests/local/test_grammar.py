import json

import pytest

from toolwire.local.grammar import LIMITS, build_grammar, unenforced_keywords


def call(name, arguments):
    return {"type": "object", "properties": {"name": {"const": name}, "arguments": arguments}, "required": ["name"]}


def grammar_schema(calls):
    _, _, text = build_grammar(calls).partition("%json ")
    return json.loads(text)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, {"type": "string", "maxLength": LIMITS.max_length}),
        ({"type": "integer"}, {"type": "integer", "minimum": -(2**53) + 1, "maximum": 2**53 - 1}),
        (
            {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True},
            {"type": "array", "items": {"type": "boolean"}, "maxItems": LIMITS.max_items},
        ),
        ({"type": "object"}, {"type": "object", "maxProperties": 1}),
    ],
)
def test_values_are_bounded_for_a_small_model(schema, expected):
    arguments = {"type": "object", "properties": {"value": schema}}
    (shape,) = grammar_schema(call("a", arguments))["anyOf"]
    assert shape["properties"]["arguments"]["properties"]["value"] == expected


def test_tool_without_parameters_accepts_no_arguments():
    (shape,) = grammar_schema(call("a", {"type": "object"}))["anyOf"]
    assert shape["properties"]["arguments"] == {"additionalProperties": False, "type": "object"}


def test_definitions_of_two_tools_do_not_collide():
    def tool(name, kind):
        arguments = {
            "type": "object",
            "properties": {"x": {"$ref": "#/$defs/X"}},
            "$defs": {"X": {"type": kind}},
        }
        return call(name, arguments)

    schema = grammar_schema({"anyOf": [tool("a", "boolean"), tool("b", "null")]})
    for number, kind in enumerate(("boolean", "null")):
        arguments = schema["anyOf"][number]["properties"]["arguments"]
        target = arguments["properties"]["x"]["$ref"].removeprefix("#/$defs/")
        assert schema["$defs"][target] == {"type": kind}


def test_unenforced_keywords_are_listed_with_their_schema():
    schema = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True, "minItems": 1}}}
    assert [(left.pointer, left.keyword) for left in unenforced_keywords(schema)] == [("/properties/a", "uniqueItems")]
