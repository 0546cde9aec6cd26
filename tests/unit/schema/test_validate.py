"""Arguments held against their schema."""

import pytest

from toolwire.ir import InvalidArguments, SchemaError
from toolwire.schema import Validator, validator

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1},
        "unit": {"enum": ["celsius", "fahrenheit"]},
        "day": {"type": "string", "format": "date"},
        "count": {"type": ["integer", "null"], "minimum": 1},
    },
    "required": ["city"],
    "additionalProperties": False,
}


def test_all_problems_come_at_once_with_pointers_and_words():
    problems = Validator(SCHEMA).problems({"unit": "kelvin", "day": "soon", "count": 0, "extra": 1})
    assert {str(problem) for problem in problems} == {
        "/: the property 'city' is missing",
        '/unit: expected one of ["celsius","fahrenheit"], got "kelvin"',
        '/day: "soon" is not a "date"',
        "/count: 0 is less than the minimum of 1",
        "/: Additional properties are not allowed ('extra' was unexpected)",
    }
    assert {problem.keyword for problem in problems} == {
        "required",
        "enum",
        "format",
        "minimum",
        "additionalProperties",
    }


def test_sound_arguments_pass_and_others_are_an_error_for_the_model():
    check = validator(SCHEMA)
    check.check({"city": "Paris", "count": None})
    with pytest.raises(InvalidArguments, match="expected string, got 5") as caught:
        check.check({"city": 5})
    assert (caught.value.pointer, caught.value.status) == ("/city", 422)


def test_a_schema_is_compiled_once():
    assert validator(dict(SCHEMA)) is validator(dict(SCHEMA))


@pytest.mark.parametrize("ref", ["https://example.com/s.json", "file:///etc/passwd", "other.json#/a"])
def test_nothing_is_fetched(ref):
    with pytest.raises(SchemaError):
        Validator({"type": "object", "properties": {"a": {"$ref": ref}}})


def nested(depth, leaf):
    value = leaf
    for _ in range(depth):
        value = {"properties": {"a": value}} if leaf == {} else {"a": value}
    return value


def test_depth_is_bounded_before_anything_crashes():
    with pytest.raises(SchemaError, match="deeper"):
        Validator(nested(30_000, {}))
    assert [problem.keyword for problem in Validator({}).problems(nested(30_000, 1))] == ["depth"]
    assert not Validator({}).accepts(nested(30_000, 1))


def test_patterns_that_the_linear_engine_refuses_are_a_finding():
    check = Validator({"type": "object", "properties": {"a": {"type": "string", "pattern": "^(?=x)x", "maxLength": 2}}})
    reason = "lookaround, backreferences and atomic groups cannot be matched in linear time"
    assert check.findings == [f"/properties/a/pattern: the pattern ^(?=x)x is not checked: {reason}"]
    assert check.accepts({"a": "y"}) and not check.accepts({"a": "yyy"})


def test_a_hostile_pattern_takes_no_time():
    check = Validator({"type": "string", "pattern": "^(a+)+$"})
    assert not check.accepts("a" * 50_000 + "b")


@pytest.mark.parametrize("schema", [{"type": "nonsense"}, {"minLength": "x"}, {"properties": []}])
def test_what_is_no_schema_says_so(schema):
    with pytest.raises(SchemaError, match="not a JSON Schema"):
        Validator(schema)


def test_openapi_says_null_in_its_own_way():
    check = Validator({"type": "object", "properties": {"a": {"type": "string", "nullable": True}}})
    assert check.accepts({"a": None}) and not check.accepts({"a": 1})


def test_the_first_fifty_of_many():
    assert len(Validator({"items": {"type": "string"}}).problems([1] * 1000)) == 50
