"""The core that every dialect takes: made of the rows, not written by hand."""

import json

import pytest

from places import TESTS
from tables import every_case
from toolwire.schema import DIALECTS, lower

VECTORS = json.loads((TESTS / "vectors/schema/schemas.json").read_text(encoding="utf-8"))
OTHERS = [name for name in DIALECTS if name != "portable"]
OPEN = [name for name in OTHERS if not DIALECTS[name].closed]


def test_portable_dialect_has_only_features_of_all_dialects():
    core = DIALECTS["portable"]
    assert core.keywords == {"type", "properties", "required", "items", "enum", "anyOf", "description"}
    for name in OTHERS:
        row = DIALECTS[name]
        assert core.keywords <= row.keywords
        for limit in (
            "depth",
            "properties",
            "enum_values",
            "characters",
            "long_enum",
            "likely_depth",
            "likely_states",
            "most_min_items",
        ):
            assert getattr(row, limit) is None or getattr(core, limit) <= getattr(row, limit)


@pytest.mark.one_in(7)
@every_case("vector", VECTORS, ids=lambda vector: vector["about"])
@every_case("name", OPEN)
def test_portable_schema_is_unchanged_in_other_dialects(name, vector):
    portable = lower(vector["schema"], "portable")
    if portable.conforms:
        assert lower(portable.schema, name).unchanged


def test_null_becomes_a_string_enum_in_the_portable_dialect():
    schema = {"type": "object", "properties": {"days": {"type": ["integer", "null"]}}, "required": ["days"]}
    lowered = lower(schema, "portable")
    assert lowered.schema["properties"] == {
        "days": {"anyOf": [{"type": "integer"}, {"type": "string", "enum": ["null"]}]}
    }
    assert lowered.lift({"days": "null"}) == {"days": None}
    assert lowered.encode({"days": None}) == {"days": "null"}
    assert not lowered.losses


def test_property_names_rejected_by_a_dialect_are_renamed():
    lowered = lower({"type": "object", "properties": {"a.b": {"type": "string"}}, "required": ["a.b"]}, "portable")
    assert lowered.schema["required"] == ["a_b"]
    assert lowered.lift({"a_b": "x"}) == {"a.b": "x"}
