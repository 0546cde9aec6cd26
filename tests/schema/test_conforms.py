"""`violations` and `lower` agree: a schema that conforms needs no rewriting, and one that does not is rewritten or reported."""

import json

import pytest
from hypothesis import given, settings

from random_schemas import CORPUS, documents, published_schemas
from tables import every_case
from toolwire.ir import ConfigError
from toolwire.schema import lower, violations
from toolwire.schema.dialects import DIALECTS, OUTPUT_DIALECTS
from toolwire.schema.lowering.conformance import is_conforming
from toolwire.schema.lowering.lowered import rewrite
from toolwire.schema.parsing.parser import parse_schema

ROWS = (*DIALECTS.values(), *OUTPUT_DIALECTS.values())


def assert_agreement(schema):
    """Compare the two for every dialect; a schema that no value matches is left out, because both are right about it."""
    sources = {output: parse_schema(schema, output=output) for output in (False, True)}
    for row in ROWS:
        source, lowered = sources[row.output], lower(schema, row)
        assert lowered.unchanged == is_conforming(schema, row) == (not violations(schema, row))
        if not lowered.unchanged:
            assert lowered.schema != schema or lowered.losses, row.name
            continue
        rewritten = rewrite(source, row)
        serious = [loss for loss in rewritten.losses if loss.severity != "info" and "may reject" not in loss.detail]
        if source.defects or any("no value can match" in loss.detail for loss in serious):
            continue
        assert rewritten.codec is None, (row.name, schema)
        assert row.whole or not serious, (row.name, schema, serious)


@pytest.mark.finding("S1")
@settings(max_examples=40)
@given(schema=documents())
def test_random_schema_conforms_only_if_lowering_changes_nothing(schema):
    assert_agreement(schema)


@pytest.mark.finding("S1")
def test_published_schema_conforms_only_if_lowering_changes_nothing():
    if not CORPUS.exists():
        pytest.skip("the corpus is not here")
    for schema in published_schemas(23):
        assert_agreement(schema)


@pytest.mark.finding("S1")
@pytest.mark.parametrize("root", [{}, {"additionalProperties": False}])
def test_free_form_object_becomes_entries_for_gemini(root):
    schema = {"type": "object", "properties": {"m": {"type": "object"}}, **root}
    lowered = lower(schema, "gemini")
    assert lowered.schema["properties"]["m"]["type"] == "array"
    assert lowered.lift(lowered.encode({"m": {"a": 1}})) == {"m": {"a": 1}}
    assert lowered.losses


@pytest.mark.finding("S1")
@pytest.mark.parametrize(
    ("inner", "names"),
    [
        pytest.param({"type": ["object", "null"]}, ["openai_strict", "anthropic_strict"], id="map or null"),
        pytest.param({"type": ["array", "null"]}, ["openai_strict", "ollama"], id="array without items or null"),
        pytest.param(True, ["openai_strict", "anthropic_strict", "gemini", "ollama"], id="boolean schema"),
        pytest.param({"enum": [[1]]}, ["openai_strict", "ollama"], id="list in an enum"),
        pytest.param({"const": {"a": 1}}, ["openai_strict"], id="object as a constant"),
        pytest.param({"type": "integer", "format": "uint64"}, ["openai_strict", "gemini"], id="format of a number"),
    ],
)
def test_value_that_needs_another_form_does_not_conform(inner, names):
    schema = {"type": "object", "properties": {"v": inner}, "required": ["v"], "additionalProperties": False}
    for name in names:
        row = DIALECTS[name]
        sent = schema if "additionalProperties" in row.keywords else {**schema, "additionalProperties": None}
        sent = {keyword: value for keyword, value in sent.items() if value is not None}
        assert violations(sent, row), name
        assert lower(sent, name).conforms


def test_recursive_definition_does_not_conform_to_anthropic_strict():
    node = {
        "type": "object",
        "properties": {"next": {"$ref": "#/$defs/node"}},
        "additionalProperties": False,
    }
    schema = {**node, "$defs": {"node": node}}
    assert violations(schema, DIALECTS["anthropic_strict"]) == ["/: a definition refers to itself"]
    assert "$ref" not in json.dumps(lower(schema, "anthropic_strict").schema)


@pytest.mark.finding("S11")
@every_case("row", [row for row in ROWS if row.declared_required], ids=lambda row: row.name)
@every_case("properties", [{}, {"properties": {}}, {"properties": {"a": {"type": "string"}}}])
def test_undeclared_required_property_is_declared(properties, row):
    schema = {"type": "object", **properties, "required": ["b"]}
    assert any("required property is not declared" in problem for problem in violations(schema, row))
    lowered = lower(schema, row)
    assert "b" in lowered.schema["properties"] and "b" in lowered.schema["required"]
    assert lowered.conforms
    assert lowered.lift(lowered.encode({"b": [1]})) == {"b": [1]}


@pytest.mark.parametrize("name", ["openai_strict", "gemini", "openai"])
def test_required_that_is_not_a_list_is_tolerated(name):
    schema = {"type": "object", "properties": {"a": {"type": "string", "required": True}}, "required": True}
    assert lower(schema, name).conforms


REFERENCE = {"$ref": "#/$defs/unit", "description": "the unit of the answer"}
UNIT = {"type": "string", "enum": ["C", "F"], "description": "a unit"}


@pytest.mark.finding("S12")
@every_case("row", [row for row in ROWS if not row.ref_siblings], ids=lambda row: row.name)
@every_case(
    "definition",
    [
        pytest.param(UNIT, id="scalar"),
        pytest.param(
            {
                "type": "object",
                "properties": {"next": {"$ref": "#/$defs/leaf"}},
                "additionalProperties": False,
                "required": ["next"],
            },
            id="with a reference",
        ),
    ],
)
def test_description_beside_a_reference_survives(definition, row):
    schema = {
        "type": "object",
        "properties": {"u": REFERENCE},
        "required": ["u"],
        "additionalProperties": False,
        "$defs": {"unit": definition, "leaf": UNIT},
    }
    lowered = lower(schema, row)
    assert lowered.conforms
    assert lowered.schema["properties"]["u"]["description"] == "the unit of the answer"
    if not row.whole:
        assert "$ref" not in lowered.schema["properties"]["u"]


@pytest.mark.finding("S12")
def test_assertion_beside_a_kept_reference_is_stated_and_reported():
    schema = {
        "type": "object",
        "properties": {"u": {"$ref": "#/$defs/unit", "not": {"const": "F"}}},
        "required": ["u"],
        "additionalProperties": False,
        "$defs": {"unit": {"type": "string", "enum": ["C", "F"]}},
    }
    for name in ("openai_strict", "anthropic_strict"):
        lowered = lower(schema, name)
        assert "not" in lowered.schema["properties"]["u"]["description"]
        assert [loss.path for loss in lowered.losses if loss.severity == "warning"] == ["/properties/u/not"]


@pytest.mark.finding("S12")
def test_reference_at_the_root_is_accepted_for_answers_of_gemini():
    """Recorded with status 200: a root with `$ref`, `title` and `$defs`."""
    tree = {
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
    }
    schema = {"$defs": {"tree": tree}, "$ref": "#/$defs/tree", "title": "Tree"}
    assert lower(schema, "gemini_json_schema_output").unchanged


@pytest.mark.parametrize("name", ["gemini_json_schema", "gemini_json_schema_output"])
def test_title_beside_a_reference_is_dropped_for_gemini(name):
    """Below the root, Gemini rejects other keywords than `description` and `default` beside `$ref`."""
    schema = {
        "type": "object",
        "properties": {"key": {"$ref": "#/$defs/one", "title": "T"}},
        "$defs": {"one": {"type": "string"}},
    }
    assert lower(schema, name).schema["properties"] == {"key": {"$ref": "#/$defs/one"}}


def test_violations_accepts_the_name_of_a_dialect():
    schema = {"type": "object", "properties": {"m": {"type": "object"}}}
    assert violations(schema, "gemini") == violations(schema, DIALECTS["gemini"]) != []
    with pytest.raises(ConfigError, match="gemni"):
        violations(schema, "gemni")
