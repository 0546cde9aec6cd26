"""The conversion of schemas for constrained decoding: kept, rewritten and residual keywords, limits, hostile input."""

import pytest

from tables import every_case
from toolwire.ir.errors import SchemaError
from toolwire.ir.tools import Tool
from toolwire.schema import DecodingLimits, call_union, decoding_schema
from waiting import cpu_guard

FREE = DecodingLimits(max_length=None, max_items=None, max_properties=None)


def residual_of(schema, **options):
    return [(left.pointer, left.keyword) for left in decoding_schema(schema, **options).residual]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "^a", "minLength": 2},
        {"type": "string", "format": "uuid"},
        {"type": "integer", "minimum": 1, "exclusiveMaximum": 9, "multipleOf": 2},
        {"type": "array", "prefixItems": [{"type": "null"}], "items": False, "minItems": 1},
        {"type": "object", "patternProperties": {"^a": {"type": "null"}}, "additionalProperties": False},
        {"allOf": [{"type": "object"}, {"required": ["a"]}]},
        {"anyOf": [{"type": "null"}, {"const": 1}], "enum": [None, 1]},
        {"type": "object", "minProperties": 1},
    ],
)
def test_keywords_that_the_engine_enforces_are_kept(schema):
    decoded = decoding_schema(schema, limits=FREE)
    assert decoded.schema == schema
    assert decoded.residual == ()


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"oneOf": [{"type": "null"}, {"type": "string"}]}, {"anyOf": [{"type": "null"}, {"type": "string"}]}),
        ({"type": "array", "items": [{"type": "null"}], "additionalItems": False}, None),
        ({"minimum": 3, "exclusiveMinimum": True}, {"minimum": 3, "exclusiveMinimum": 3}),
        ({"type": "array", "uniqueItems": False}, {"type": "array"}),
        (
            {"type": "object", "propertyNames": {"pattern": "^a"}, "additionalProperties": {"type": "null"}},
            {"type": "object", "patternProperties": {"^a": {"type": "null"}}, "additionalProperties": False},
        ),
        ({"type": "object", "unevaluatedProperties": False}, {"type": "object", "additionalProperties": False}),
        ({"title": "x", "description": "y", "x-own": 1, "type": "string", "format": "int32"}, {"type": "string"}),
        (
            {"anyOf": [{"type": "null"}], "oneOf": [{"const": 1}, {"const": 2}]},
            {"anyOf": [{"type": "null"}], "allOf": [{"anyOf": [{"const": 1}, {"const": 2}]}]},
        ),
        (
            {"$ref": "#/properties/a", "properties": {"a": {"type": "null"}}},
            {"$ref": "#/$defs/a", "properties": {"a": {"type": "null"}}, "$defs": {"a": {"type": "null"}}},
        ),
    ],
)
def test_keywords_are_rewritten_without_a_residual(schema, expected):
    decoded = decoding_schema(schema, limits=FREE)
    expected = expected or {"type": "array", "prefixItems": [{"type": "null"}], "items": False}
    assert decoded.schema == expected
    assert decoded.residual == ()


@every_case(
    ("schema", "residual"),
    [
        ({"type": "string", "pattern": "^(?!a)"}, [("", "pattern")]),
        ({"type": "array", "uniqueItems": True, "contains": {}}, [("", "uniqueItems"), ("", "contains")]),
        ({"properties": {"a/b": {"not": {}}}}, [("/properties/a~1b", "not")]),
        ({"if": {}, "then": {}, "else": {}}, [("", "if")]),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, [("", "oneOf")]),
        ({"type": "string", "format": "date"}, [("", "format")]),
        ({"minimum": 2**60}, [("", "minimum")]),
        ({"const": 2**60}, [("", "const")]),
        ({"properties": {"a": {}, "b": {}}, "minProperties": 1}, [("", "minProperties")]),
        ({"type": "object", "minProperties": 2}, [("", "minProperties")]),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"not": {}}, "b": {"not": {}}}}, [("/$defs/a", "not")]),
    ],
)
def test_other_keywords_are_left_to_the_validator(schema, residual):
    assert residual_of(schema) == residual


@pytest.mark.parametrize(
    ("branches", "disjoint"),
    [
        ([{"type": "string"}, {"type": ["null", "integer"]}], True),
        ([{"const": "a"}, {"enum": ["b", "c"]}], True),
        ([{"const": 1}, {"const": 1.0}], False),
        ([{"const": {"a": 1, "b": 2}}, {"const": {"b": 2, "a": 1}}], False),
        ([{"type": "object", "required": ["k"], "properties": {"k": {"const": n}}} for n in range(80)], True),
        ([{"required": ["k"], "properties": {"k": {"const": n}}} for n in range(2)], False),
        ([{"type": "object", "additionalProperties": False}, {"type": "object", "required": ["a"]}], True),
        ([{"$ref": "#/$defs/a"}, {"type": "null"}], True),
        ([{"minLength": 1}, {"type": "string"}], False),
    ],
)
def test_one_of_is_exact_only_if_its_branches_are_disjoint(branches, disjoint):
    left = residual_of({"oneOf": branches, "$defs": {"a": {"type": "string"}}})
    assert left == ([] if disjoint else [("", "oneOf")])


@every_case(
    ("schema", "expected"),
    [
        ({"type": "string"}, {"type": "string", "maxLength": 5}),
        ({"type": "string", "minLength": 9}, {"type": "string", "minLength": 9, "maxLength": 9}),
        ({"type": "string", "maxLength": 99}, {"type": "string", "maxLength": 99}),
        ({"type": "string", "enum": ["a"]}, {"type": "string", "enum": ["a"]}),
        ({"type": "array"}, {"type": "array", "maxItems": 3}),
        ({"type": "array", "minItems": 4}, {"type": "array", "minItems": 4, "maxItems": 4}),
        ({"type": "object", "required": ["a"]}, {"type": "object", "required": ["a"], "maxProperties": 3}),
        ({"type": "integer"}, {"type": "integer", "minimum": -9, "maximum": 9}),
        ({"type": "integer", "minimum": 99}, {"type": "integer", "minimum": 99}),
        ({"properties": {"a": {}}}, {"properties": {"a": {}}, "additionalProperties": False}),
        (
            {"allOf": [{"type": "string"}, {"minLength": 7}]},
            {"allOf": [{"type": "string", "maxLength": 7}, {"minLength": 7}]},
        ),
        ({"allOf": [{"type": "string"}, {"pattern": "a"}]}, {"allOf": [{"type": "string"}, {"pattern": "a"}]}),
    ],
)
def test_limits_are_never_below_a_declared_minimum(schema, expected):
    limits = DecodingLimits(max_length=5, max_items=3, max_properties=2, max_integer=9, close_objects=True)
    assert decoding_schema(schema, limits=limits).schema == expected


def test_many_arrays_get_no_limit_if_compilation_has_to_be_fast():
    def limited(count):
        schema = {"type": "object", "properties": {str(n): {"type": "array"} for n in range(count)}, "required": ["0"]}
        decoded = decoding_schema(schema, limits=DecodingLimits(max_limited=3))
        return sum("maxItems" in one for one in decoded.schema["properties"].values())

    assert [limited(3), limited(4)] == [3, 0]


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        (False, ""),
        ({"properties": {"a": {"enum": []}}, "required": ["a"], "type": "object"}, "/properties/a"),
        ({"anyOf": [{"enum": []}, False]}, "/anyOf/0"),
        ({"type": "array", "minItems": 3, "maxItems": 2}, ""),
        ({"type": "object", "additionalProperties": False, "required": ["a"]}, ""),
        ({"allOf": [{"type": "integer", "minimum": 3, "maximum": 2}]}, "/allOf/0"),
    ],
)
def test_schema_without_values_is_refused_at_its_cause(schema, pointer):
    with pytest.raises(SchemaError, match="accepts no value") as caught:
        decoding_schema(schema)
    assert caught.value.pointer == pointer


@every_case(
    "schema",
    [
        [],
        {"type": "text"},
        {"properties": []},
        {"items": 3},
        {"minLength": -1},
        {"enum": 1},
        {"anyOf": []},
        {"required": "a"},
        {"$ref": "#/$defs/none"},
        {"$ref": "https://example.com/schema"},
        {"multipleOf": 0},
        {"maximum": float("nan")},
    ],
)
def test_malformed_schema_raises_a_typed_error(schema):
    with pytest.raises(SchemaError):
        decoding_schema(schema)


def test_hostile_schemas_cost_a_bounded_time():
    deep = {"type": "null"}
    shared = {"type": "null"}
    for _ in range(3_000):
        deep = {"properties": {"a": deep}}
    for _ in range(60):
        shared = {"anyOf": [shared, shared]}
    wide = {"oneOf": [{"type": "object", "required": [str(n)]} for n in range(3_000)]}
    with cpu_guard():
        for schema in (deep, shared):
            with pytest.raises(SchemaError, match=r"nested deeper|larger than"):
                decoding_schema(schema)
        assert residual_of(wide) == [("", "oneOf")]
        assert decoding_schema({"type": "array", "maxItems": 10**9}).schema["maxItems"] <= 1_000


def test_call_union_names_each_tool_and_moves_its_references():
    tools = [
        Tool("a", input_schema={"properties": {"x": {"$ref": "#/$defs/X"}}, "$defs": {"X": {"type": "null"}}}),
        Tool("b", input_schema={"properties": {"x": {"$ref": "#/$defs/X"}}, "$defs": {"X": {"type": "boolean"}}}),
        Tool("c", kind="freeform"),
        Tool("search", kind="builtin"),
    ]
    decoded = decoding_schema(call_union(tools, name_key="tool", arguments_key="in"))
    shapes = decoded.schema["anyOf"]
    assert [shape["properties"]["tool"]["const"] for shape in shapes] == ["a", "b", "c"]
    targets = [shape["properties"]["in"]["properties"]["x"]["$ref"].rpartition("/")[2] for shape in shapes[:2]]
    assert [decoded.schema["$defs"][name] for name in targets] == [{"type": "null"}, {"type": "boolean"}]
    assert all(shape["properties"]["in"]["additionalProperties"] is False for shape in shapes)


def test_references_of_parameters_that_are_named_like_keywords_are_moved():
    schema = {
        "properties": {"default": {"$ref": "#/$defs/enum"}, "const": {"default": {"$ref": "#/data"}}},
        "$defs": {"enum": {"type": "boolean"}},
    }
    [shape] = call_union([Tool("paint", input_schema=schema)])["anyOf"]
    properties = shape["properties"]["arguments"]["properties"]
    assert properties["default"] == {"$ref": "#/anyOf/0/properties/arguments/$defs/enum"}
    assert properties["const"] == schema["properties"]["const"]  # a default value is data


def test_call_union_of_a_deeply_nested_schema_is_refused():
    schema = {"type": "string"}
    for _ in range(5_000):
        schema = {"items": schema}
    with pytest.raises(SchemaError, match="'deep' is nested too deeply"):
        call_union([Tool("deep", input_schema=schema)])


def test_call_union_without_a_callable_tool_is_refused():
    with pytest.raises(SchemaError, match="no tool"):
        call_union([Tool("search", kind="builtin")])
