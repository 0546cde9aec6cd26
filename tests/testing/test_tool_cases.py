"""Calls generated from the schemas of tools."""

import pytest

from toolwire.schema import validator
from toolwire.testing import generate_cases, generate_invalid
from toolwire.testing.tool_tests.child import known_words
from toolwire.testing.tool_tests.single_calls import shrink_arguments
from toolwire.testing.tool_tests.strings import expand_placeholders

SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "maxLength": 20},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "path": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 5},
        "options": {"type": "object", "properties": {"deep": {"type": "object"}}, "additionalProperties": True},
        "mode": {"enum": ["fast", "slow"]},
        "ratio": {"type": ["number", "null"]},
    },
    "required": ["text", "count"],
    "additionalProperties": False,
}


def values(cases, name):
    return [case.arguments[name] for case in cases if name in case.arguments]


def test_generated_calls_are_valid_and_equal_for_equal_seeds():
    cases = generate_cases(SCHEMA, seed="1", count=200)
    assert len(cases) == 200
    assert all(validator(SCHEMA).accepts(case.arguments) for case in cases)
    assert cases == generate_cases(SCHEMA, seed="1", count=200)
    assert cases != generate_cases(SCHEMA, seed="2", count=200)


def test_boundaries_of_every_kind_are_generated():
    cases = generate_cases(SCHEMA, seed="1", count=400)
    assert {1, 2, 8, 9} <= set(values(cases, "count"))
    assert "" in values(cases, "text")
    assert any(len(text) == 20 for text in values(cases, "text"))
    assert any(not text.isascii() for text in values(cases, "text"))
    assert [] in values(cases, "tags")
    assert {"fast", "slow"} <= set(values(cases, "mode"))
    assert None in values(cases, "ratio")
    assert 1e308 in values(cases, "ratio")
    assert {} in values(cases, "options")
    assert any("${canary}" in path for path in values(cases, "path"))
    assert any(path.startswith("../") for path in values(cases, "path"))


def test_examples_and_known_words_are_used_first():
    schema = {"type": "object", "properties": {"sku": {"type": "string"}}, "required": ["sku"]}
    cases = generate_cases(schema, count=20, examples=[{"sku": "kettle"}], words=["teapot"])
    assert cases[0].arguments == {"sku": "kettle"}
    assert "teapot" in values(cases, "sku")


def test_integers_beyond_64_bits_and_unicode_are_generated():
    schema = {
        "type": "object",
        "properties": {"number": {"type": "integer"}, "text": {"type": "string"}},
        "required": ["number", "text"],
    }
    cases = generate_cases(schema, count=300)
    assert 10**30 in values(cases, "number")
    assert {"\x00", "²", "e\u0301", "\u202eabc"} <= set(values(cases, "text"))
    assert not any("\ud800" <= char <= "\udfff" for text in values(cases, "text") for char in text)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"x": {"type": "string", "pattern": "^[a-z]{3}$"}}, "required": ["x"]},
        {"type": "object", "properties": {"x": {"$ref": "#/$defs/N"}}, "$defs": {"N": {"type": "integer"}}},
        {"type": "object", "properties": {"x": {"prefixItems": [{"type": "integer"}], "type": "array"}}},
        {"type": "object", "properties": {"x": {}}},
        {"type": "object"},
    ],
)
def test_schema_of_any_form_gives_valid_calls(schema):
    cases = generate_cases(schema)
    assert cases
    assert all(validator(schema).accepts(case.arguments) for case in cases)


def test_invalid_calls_are_rejected_by_the_schema():
    cases = list(generate_invalid(SCHEMA, {"text": "a", "count": 1}))
    assert not any(validator(SCHEMA).accepts(case.arguments) for case in cases)
    labels = {case.label for case in cases}
    assert {"without text", "without count", "additional argument", "count of a wrong type"} <= labels


def test_arguments_shrink_to_the_smallest_with_the_fault():
    found = shrink_arguments(
        {"text": "some long ï text", "size": 128, "tags": ["a", "b"]},
        lambda arguments: any(ord(char) > 127 for char in arguments.get("text", "")),
    )
    assert found == {"text": "ï"}


def test_number_of_shrink_attempts_is_limited():
    attempts = []
    shrink_arguments({"text": "x" * 1000}, lambda arguments: attempts.append(arguments) or True, attempts=5)
    assert len(attempts) <= 5


def test_only_smaller_arguments_are_attempts_to_shrink():
    values = {f"n{number}": 0 for number in range(9)}  # 1 and -1 are not smaller than 0
    found = shrink_arguments({**values, "text": "b"}, lambda arguments: arguments.keys() >= values.keys(), attempts=11)
    assert found == values
    assert shrink_arguments({**values, "z": "bb"}, lambda arguments: len(arguments) == 10, attempts=12)["z"] == ""


def test_placeholders_are_replaced_in_nested_values():
    value = {"paths": ["${canary}", {"in": "../${folder}/x"}], "count": 1}
    assert expand_placeholders(value, "/o/c.txt", "/o") == {"paths": ["/o/c.txt", {"in": "..//o/x"}], "count": 1}


TABLE = {"tea": 1, "coffee": 2}


def lookup(name: str) -> int:
    """Docstring."""
    if name in ("water", "milk"):
        return 0
    return TABLE[name]


def test_words_are_literals_and_keys_of_tables():
    assert set(known_words(lookup)) == {"tea", "coffee", "water", "milk"}


@pytest.mark.parametrize("schema", [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}, True])
def test_undeclared_keys_have_values_that_the_schema_accepts(schema):
    scores = {"type": "object", "additionalProperties": schema}
    found = values(generate_cases({"type": "object", "properties": {"scores": scores}}, seed="1", count=60), "scores")
    assert any("__class__" in value for value in found)
    assert any(len(value) > 100 for value in found)
