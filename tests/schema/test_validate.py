"""Arguments held against their schema."""

import pytest

from tables import every_case
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


def test_all_problems_are_reported_with_pointer_and_message():
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


def test_valid_arguments_pass_and_invalid_ones_raise():
    check = validator(SCHEMA)
    check.check({"city": "Paris", "count": None})
    with pytest.raises(InvalidArguments, match="expected string, got 5") as caught:
        check.check({"city": 5})
    assert (caught.value.pointer, caught.value.status) == ("/city", 422)


def test_a_schema_is_compiled_once():
    assert validator(dict(SCHEMA)) is validator(dict(SCHEMA))


@pytest.mark.parametrize("ref", ["https://example.com/s.json", "file:///etc/passwd", "other.json#/a"])
def test_external_references_are_not_fetched(ref):
    with pytest.raises(SchemaError):
        Validator({"type": "object", "properties": {"a": {"$ref": ref}}})


def nested(depth, leaf):
    value = leaf
    for _ in range(depth):
        value = {"properties": {"a": value}} if leaf == {} else {"a": value}
    return value


def test_nesting_depth_is_limited():
    with pytest.raises(SchemaError, match="deeper"):
        Validator(nested(30_000, {}))
    assert [problem.keyword for problem in Validator({}).problems(nested(30_000, 1))] == ["depth"]
    assert not Validator({}).accepts(nested(30_000, 1))


def test_unsupported_pattern_is_a_finding_and_is_not_checked():
    check = Validator({"type": "object", "properties": {"a": {"type": "string", "pattern": "^(?=x)x", "maxLength": 2}}})
    reason = "lookaround, backreferences and atomic groups cannot be matched in linear time"
    assert check.findings == [f"/properties/a/pattern: the pattern ^(?=x)x is not checked: {reason}"]
    assert check.accepts({"a": "y"}) and not check.accepts({"a": "yyy"})


def test_exponential_pattern_is_matched_in_linear_time():
    check = Validator({"type": "string", "pattern": "^(a+)+$"})
    assert not check.accepts("a" * 50_000 + "b")


@pytest.mark.parametrize("schema", [{"type": "nonsense"}, {"minLength": "x"}, {"properties": []}])
def test_invalid_schema_is_rejected(schema):
    with pytest.raises(SchemaError, match="not a JSON Schema"):
        Validator(schema)


def test_openapi_nullable_accepts_null():
    check = Validator({"type": "object", "properties": {"a": {"type": "string", "nullable": True}}})
    assert check.accepts({"a": None}) and not check.accepts({"a": 1})


def test_at_most_fifty_problems_are_reported():
    assert len(Validator({"items": {"type": "string"}}).problems([1] * 1000)) == 50


@pytest.mark.parametrize("key", ["properties", "patternProperties", "$defs"])
def test_property_named_nullable_is_not_a_keyword(key):
    schema = {"type": "object", key: {"nullable": {"type": "boolean"}}, "additionalProperties": key == "$defs"}
    assert Validator(schema).accepts({"nullable": True})
    if key != "$defs":
        assert not Validator(schema).accepts({"nullable": 1})


def test_nullable_in_const_data_is_not_a_keyword():
    schema = {"const": {"nullable": True, "type": "string"}}
    assert Validator(schema).accepts({"nullable": True, "type": "string"})
    assert not Validator(schema).accepts(None)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": ["string", "integer"]},
        {"enum": ["x", "y"]},
        {"const": "x"},
        {"type": "string", "enum": ["x"]},
        {"$ref": "#/$defs/text"},
        {"allOf": [{"type": "string"}]},
        {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        {"not": {"type": "null"}},
    ],
)
def test_nullable_adds_null_to_every_kind_of_schema(schema):
    root = {"properties": {"a": {**schema, "nullable": True}}, "$defs": {"text": {"type": "string"}}}
    assert Validator(root).accepts({"a": None})
    assert Validator(root).accepts({"a": "x"})
    assert not Validator({"properties": {"a": schema}, "$defs": root["$defs"]}).accepts({"a": None})


def test_references_into_a_nullable_schema_are_resolved():
    schema = {
        "type": "object",
        "nullable": True,
        "properties": {
            "a": {"$ref": "#/$defs/a"},
            "b": {"$ref": "#/properties/c/properties/d"},
            "c": {"type": "object", "nullable": True, "properties": {"d": {"type": "integer"}}},
        },
        "$defs": {"a": {"type": "string"}},
    }
    assert Validator(schema).accepts({"a": "x", "b": 1, "c": None})
    assert not Validator(schema).accepts({"b": "x"})
    assert Validator(schema).accepts(None)


@every_case("draft", ["draft-04", "draft-06", "draft-07"])
@every_case(
    ("name", "good", "bad"),
    [
        ("uuid", "123e4567-e89b-12d3-a456-426655440000", "123e4567"),
        ("duration", "P1D", "one day"),
        ("iri", "http://ƒøø.ßår/", "not an iri"),
        ("json-pointer", "/a", "a"),
    ],
)
def test_formats_are_asserted_in_drafts_that_do_not_define_them(draft, name, good, bad):
    """Generators write `uuid` into schemas of draft 7."""
    schema = {"$schema": f"http://json-schema.org/{draft}/schema#", "properties": {"a": {"format": name}}}
    assert Validator(schema).accepts({"a": good})
    assert Validator(schema).accepts({"a": 5})
    assert [problem.keyword for problem in Validator(schema).problems({"a": bad})] == ["format"]
