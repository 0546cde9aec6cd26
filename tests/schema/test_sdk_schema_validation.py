"""The vendors' own SDKs judge the schemas that we send: what they would mend or refuse is a fault of ours."""

import copy
import json

import pytest
from anthropic import transform_schema
from google.genai import types as google_types
from openai.lib._pydantic import _ensure_strict_json_schema

from places import TESTS
from toolwire.schema import lower
from toolwire.schema.lowering.conformance import walk

CORPUS = TESTS.parents[1] / "shared/data/tool_schemas"


def samples():
    """Our own schemas, and every thirteenth of those that real servers publish, where they are."""
    for file in ("schemas", "seeds"):
        for vector in json.loads((TESTS / f"vectors/schema/{file}.json").read_text(encoding="utf-8")):
            yield vector.get("about") or vector["name"], vector["schema"]
    lines = [line for file in sorted(CORPUS.glob("*.jsonl")) for line in file.read_text(encoding="utf-8").splitlines()]
    for line in lines[::13]:
        tool = json.loads(line)
        yield f"{tool['source']} {tool['name']}", tool["input_schema"]


def changed_schemas(dialect, judge):
    """The names of those that the judge does not leave as they are."""
    lowered = {name: lower(schema, dialect) for name, schema in samples()}
    return [name for name, one in lowered.items() if one.conforms and not judge(copy.deepcopy(one.schema))]


def test_openai_strict_helper_leaves_lowered_schemas_unchanged():
    def judge(schema):
        for _, node, _ in walk(schema):
            if node.get("properties") == {}:
                node.setdefault("required", [])  # it spells out that nothing is required of nothing
        before = copy.deepcopy(schema)
        return _ensure_strict_json_schema(schema, path=(), root=schema) == before

    assert changed_schemas("openai_strict", judge) == []


def test_google_types_round_trip_every_field():
    def judge(schema):
        declaration = google_types.FunctionDeclaration.model_validate({"name": "f", "parameters": schema})
        dumped = declaration.model_dump(mode="json", exclude_unset=True, by_alias=True)["parameters"]
        return _lower_case(dumped) == schema

    assert changed_schemas("gemini", judge) == []


def _lower_case(value):
    if isinstance(value, list):
        return [_lower_case(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: one.lower() if key == "type" and isinstance(one, str) else _lower_case(one) for key, one in value.items()
    }


def test_anthropic_helper_changes_only_known_keywords():
    assert changed_schemas("anthropic_strict", lambda schema: transform_schema(plain := _plain(schema)) == plain) == []


def _plain(schema):
    """Without what the helper drops or stumbles over although the service takes it: patterns and defaults (it tells them
    in words), a type beside an enum, a description beside a reference, and lists of types (it raises)."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    out = {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            out[key] = {name: _plain(one) for name, one in value.items()}
        elif key in ("pattern", "default") or (key == "type" and "enum" in schema):
            continue
        else:
            out[key] = value if key in ("enum", "required", "type") else _plain(value)
    if isinstance(out.get("type"), list):
        return {"anyOf": [{**out, "type": kind} if kind != "null" else {"type": kind} for kind in out["type"]]}
    return out


@pytest.mark.parametrize(
    ("keyword", "value"), [("maximum", 5), ("maxItems", 2), ("uniqueItems", True), ("minItems", 2), ("format", "zip")]
)
def test_anthropic_helper_detects_keywords_rejected_by_the_service(keyword, value):
    kind = {"maximum": "integer", "format": "string"}.get(keyword, "array")
    field = {"type": kind, keyword: value, **({"items": {"type": "string"}} if kind == "array" else {})}
    schema = {"type": "object", "properties": {"a": field}, "additionalProperties": False}
    assert transform_schema(_plain(schema)) != _plain(schema)


@pytest.mark.parametrize("field", [{"type": "string", "const": "a"}, {"type": "string", "x-own": 1}])
def test_google_types_detect_keywords_rejected_by_the_service(field):
    parameters = {"type": "object", "properties": {"a": field}}
    with pytest.raises(ValueError, match="Extra inputs"):
        google_types.FunctionDeclaration.model_validate({"name": "f", "parameters": parameters})
