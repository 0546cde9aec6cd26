"""Every loss points at the keyword as written in the source."""

import pytest
from hypothesis import given, settings

from random_schemas import CORPUS, documents, published_schemas
from tables import every_case
from toolwire.ir.pointer import resolve, split
from toolwire.schema import lower
from toolwire.schema.dialects import DIALECTS, OUTPUT_DIALECTS
from toolwire.schema.keywords import READ_KEYWORDS

NAMES = (*DIALECTS, *OUTPUT_DIALECTS)


def assert_exact(schema):
    for name in NAMES:
        for loss in lower(schema, name).losses:
            resolve(schema, loss.path)  # raises if it does not exist
            if loss.concept in READ_KEYWORDS and "patternProperties" not in loss.path:
                assert split(loss.path)[-1:] == [loss.concept], (name, str(loss), schema)


@pytest.mark.finding("S13")
@settings(max_examples=40)
@given(schema=documents())
def test_losses_of_random_schemas_point_at_their_keyword(schema):
    assert_exact(schema)


@pytest.mark.finding("S13")
def test_losses_of_published_schemas_point_at_their_keyword():
    if not CORPUS.exists():
        pytest.skip("the corpus is not here")
    for schema in published_schemas(13):
        assert_exact(schema)


@pytest.mark.finding("S13")
@every_case(
    ("schema", "name", "path"),
    [
        pytest.param(
            {"type": "integer", "exclusiveMinimum": 0, "multipleOf": 7},
            "anthropic_strict",
            "/exclusiveMinimum",
            id="exclusive bound of an integer",
        ),
        pytest.param({"type": "number", "exclusiveMaximum": 5}, "gemini", "/exclusiveMaximum", id="exclusive bound"),
        pytest.param(
            {"type": "number", "minimum": 5, "exclusiveMinimum": True},
            "gemini",
            "/exclusiveMinimum",
            id="exclusive bound of draft 4",
        ),
        pytest.param(
            {"allOf": [{"type": "number"}, {"minimum": 2}]}, "anthropic_strict", "/allOf/1/minimum", id="part of allOf"
        ),
        pytest.param(
            {"allOf": [{"type": "string", "pattern": "a"}, {"pattern": "b"}]},
            "openai_strict",
            "/allOf/1/pattern",
            id="second pattern",
        ),
        pytest.param(
            {"allOf": [{"type": "string", "format": "date"}, {"format": "email"}]},
            "openai_strict",
            "/allOf/1/format",
            id="second format",
        ),
        pytest.param({"$ref": "#/$defs/d", "uniqueItems": True}, "gemini", "/uniqueItems", id="beside a reference"),
        pytest.param({"$ref": "#/$defs/none"}, "openai_strict", "/$ref", id="unresolved reference"),
        pytest.param({"const": 5}, "gemini", "/const", id="constant"),
        pytest.param({"enum": [5]}, "gemini", "/enum", id="enum"),
        pytest.param({"type": "string", "format": "uri"}, "gemini", "/format", id="format as a pattern"),
        pytest.param({"type": "string", "format": "email"}, "gemini", "/format", id="format"),
        pytest.param(
            {"type": "object", "properties": {"a": {"type": "string"}}, "unevaluatedProperties": False},
            "gemini",
            "/unevaluatedProperties",
            id="closed by unevaluatedProperties",
        ),
    ],
)
def test_loss_points_at_the_keyword_of_the_source(schema, name, path):
    whole = {
        "type": "object",
        "properties": {"v": schema},
        "required": ["v"],
        "$defs": {"d": {"type": "array", "items": {"type": "string"}}},
    }
    paths = [loss.path for loss in lower(whole, name).losses]
    assert f"/properties/v{path}" in paths


def test_second_assertion_of_the_same_keyword_is_kept():
    schema = {
        "type": "object",
        "properties": {"v": {"type": "string", "not": {"const": "a"}, "allOf": [{"not": {"const": "b"}}]}},
        "required": ["v"],
        "additionalProperties": False,
    }
    lowered = lower(schema, "openai_strict")
    assert '"a"' in lowered.schema["properties"]["v"]["description"]
    assert '"b"' in lowered.schema["properties"]["v"]["description"]
    assert {loss.path for loss in lowered.losses} == {"/properties/v/not", "/properties/v/allOf/0/not"}
