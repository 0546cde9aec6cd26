"""Gemini's schema language is read as JSON Schema, and written back as it was."""

from __future__ import annotations

import json

import jsonschema_rs
import pytest
from google.genai import types
from msgspec.structs import replace

from tables import every_case
from toolwire import translate
from toolwire.ir.errors import ProtocolError
from toolwire.wire import get

GEMINI = get("gemini")
PARAMETERS = {
    "type": "OBJECT",
    "properties": {
        "city": {"type": "STRING", "nullable": True, "maxLength": "80", "example": "Oslo"},
        "days": {"type": "INTEGER", "format": "int32", "enum": ["1", "3", "7"]},
        "tags": {"type": "ARRAY", "minItems": "1", "items": {"type": "STRING", "format": "enum", "enum": ["a", "b"]}},
        "where": {"anyOf": [{"type": "NUMBER"}, {"type": "STRING"}], "nullable": True},
        "type": {"type": "BOOLEAN"},
    },
    "required": ["city"],
    "propertyOrdering": ["days", "city"],
}
CONVERTED = {
    "type": "object",
    "properties": {
        "days": {"type": "integer", "format": "int32", "enum": [1, 3, 7]},
        "city": {"type": ["string", "null"], "maxLength": 80, "examples": ["Oslo"]},
        "tags": {"type": "array", "minItems": 1, "items": {"type": "string", "enum": ["a", "b"]}},
        "where": {"anyOf": [{"type": "number"}, {"type": "string"}, {"type": "null"}]},
        "type": {"type": "boolean"},
    },
    "required": ["city"],
}
CASES = {
    "upper case": ({"type": "STRING"}, {"type": "string"}),
    "lower case": ({"type": "string"}, {"type": "string"}),
    "mixed case": ({"type": "String"}, {"type": "string"}),
    "number of the enum": ({"type": 6}, {"type": "object"}),
    "unspecified": ({"type": "TYPE_UNSPECIFIED", "description": "x"}, {"description": "x"}),
    "null": ({"type": "NULL"}, {"type": "null"}),
    "nullable null": ({"type": "NULL", "nullable": True}, {"type": "null"}),
    "not nullable": ({"type": "STRING", "nullable": False}, {"type": "string"}),
    "unset fields": (
        {"type": "STRING", "description": None, "nullable": None, "enum": None, "default": None},
        {"type": "string", "default": None},
    ),
    "empty enum": ({"type": "STRING", "enum": []}, {"type": "string"}),
    "nullable enum": (
        {"type": "STRING", "enum": ["a"], "nullable": True},
        {"type": ["string", "null"], "enum": ["a", None]},
    ),
    "enum of numbers": ({"type": "NUMBER", "enum": ["1.5", "2", "x"]}, {"type": "number", "enum": [1.5, 2, "x"]}),
    "enum of booleans": ({"type": "BOOLEAN", "enum": ["true"]}, {"type": "boolean", "enum": [True]}),
    "int64 as strings": (
        {"type": "STRING", "minLength": "0", "maxLength": "9007199254740993"},
        {"type": "string", "minLength": 0, "maxLength": 9007199254740993},
    ),
    "bounds": ({"type": "NUMBER", "minimum": "1.5", "maximum": 3}, {"type": "number", "minimum": 1.5, "maximum": 3}),
    "snake case": (
        {"type": "ARRAY", "min_items": "2", "max_items": 3, "items": {"any_of": [{"type": "STRING"}]}},
        {"type": "array", "minItems": 2, "maxItems": 3, "items": {"anyOf": [{"type": "string"}]}},
    ),
    "property names are data": (
        {"type": "OBJECT", "properties": {"any_of": {"type": "STRING"}, "nullable": {"type": "BOOLEAN"}}},
        {"type": "object", "properties": {"any_of": {"type": "string"}, "nullable": {"type": "boolean"}}},
    ),
    "values are data": (
        {"type": "OBJECT", "default": {"type": "STRING"}, "example": {"nullable": True}},
        {"type": "object", "default": {"type": "STRING"}, "examples": [{"nullable": True}]},
    ),
    "references": (
        {"type": "OBJECT", "properties": {"a": {"ref": "#/defs/A"}}, "defs": {"A": {"type": "STRING"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}}},
    ),
    "nullable reference": (
        {"ref": "#/defs/A", "nullable": True},
        {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]},
    ),
    "map": (
        {"type": "OBJECT", "additionalProperties": {"type": "INTEGER"}},
        {"type": "object", "additionalProperties": {"type": "integer"}},
    ),
    "property order": (
        {"type": "OBJECT", "properties": {"a": {}, "b": {}, "c": {}}, "property_ordering": ["c", "missing", "c"]},
        {"type": "object", "properties": {"c": {}, "a": {}, "b": {}}},
    ),
}


def request_with(schema: object, **fields: object) -> dict:
    config = {"responseMimeType": "application/json", "responseSchema": schema}
    return {"contents": [{"role": "user", "parts": [{"text": "x"}]}], "generationConfig": config, **fields}


def declaration_of(schema: object, field: str = "parameters") -> dict:
    return {"functionDeclarations": [{"name": "look", "description": "Look.", field: schema}]}


def ordered(document: object) -> str:
    return json.dumps(document)


@pytest.mark.finding("G4")
@every_case("name", CASES)
def test_canonical_schemas_are_json_schema(name: str) -> None:
    """G3b, G4 and G12 have one cause: the canonical model held Gemini's schema language."""
    raw, expected = CASES[name]
    parameters = {"type": "OBJECT", "properties": {"x": raw}}
    request = GEMINI.decode_request(request_with(raw, tools=[declaration_of(parameters)]))
    assert ordered(request.output.schema) == ordered(expected)
    assert ordered(request.tools[0].input_schema["properties"]["x"]) == ordered(expected)
    jsonschema_rs.meta.validate(expected)


@every_case("name", CASES)
def test_schemas_are_written_back_exactly(name: str) -> None:
    raw, _ = CASES[name]
    for document in (
        request_with(raw),
        request_with(raw, tools=[declaration_of({"type": "OBJECT", "properties": {"x": raw}})]),
        request_with(raw, tools=[declaration_of(raw, "response")]),
        {"contents": [], "generation_config": {"response_schema": raw}},
    ):
        before = json.dumps(document, sort_keys=True)
        written = GEMINI.encode_request(GEMINI.decode_request(document)).body
        assert json.dumps(written, sort_keys=True) == before == json.dumps(document, sort_keys=True)
        assert ordered(raw) in ordered(written)


def test_a_whole_declaration_is_converted() -> None:
    request = GEMINI.decode_request(request_with(PARAMETERS, tools=[declaration_of(PARAMETERS)]))
    assert ordered(request.tools[0].input_schema) == ordered(request.output.schema) == ordered(CONVERTED)


def test_nullable_arguments_are_an_object() -> None:
    document = request_with({"type": "STRING"}, tools=[declaration_of({"type": "OBJECT", "nullable": True})])
    request = GEMINI.decode_request(document)
    assert request.tools[0].input_schema == {"type": "object"}
    assert GEMINI.encode_request(request).body == document


def test_a_changed_schema_is_written_as_json_schema() -> None:
    request = GEMINI.decode_request(request_with(PARAMETERS, tools=[declaration_of(PARAMETERS)]))
    changed = {**CONVERTED, "additionalProperties": False}
    tool = replace(request.tools[0], input_schema=changed)
    output = replace(request.output, schema=changed)
    body = GEMINI.encode_request(replace(request, tools=(tool,), output=output)).body
    [declaration] = body["tools"][0]["functionDeclarations"]
    assert declaration["parametersJsonSchema"] == changed and "parameters" not in declaration
    assert body["generationConfig"]["responseJsonSchema"] == changed
    assert "responseSchema" not in body["generationConfig"]


def test_json_schema_fields_are_not_converted() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "STRING", "nullable": True}}}
    document = {
        "contents": [],
        "tools": [declaration_of(schema, "parametersJsonSchema")],
        "generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": schema},
    }
    request = GEMINI.decode_request(document)
    assert request.tools[0].input_schema == request.output.schema == schema
    assert GEMINI.encode_request(request).body == document


def test_both_schema_fields_at_once_are_written_back() -> None:
    declaration = {"name": "look", "parameters": {"type": "OBJECT"}, "parametersJsonSchema": {"type": "object"}}
    config = {"responseSchema": {"type": "OBJECT"}, "responseJsonSchema": {"type": "object"}}
    document = {"contents": [], "tools": [{"functionDeclarations": [declaration]}], "generationConfig": config}
    assert GEMINI.encode_request(GEMINI.decode_request(document)).body == document


@pytest.mark.parametrize("field", ["parameters", "response", "responseSchema"])
def test_a_schema_that_is_no_object_is_refused(field: str) -> None:
    document = (
        request_with("STRING")
        if field == "responseSchema"
        else {"contents": [], "tools": [declaration_of("STRING", field)]}
    )
    with pytest.raises(ProtocolError, match="expected an object") as caught:
        GEMINI.decode_request(document)
    assert caught.value.pointer.endswith(field)


@pytest.mark.parametrize("target", ["anthropic", "ollama", "openai_chat", "openai_responses", "mcp"])
def test_translated_declarations_are_json_schema(target: str) -> None:
    tools = [declaration_of(PARAMETERS)]
    written = json.dumps(translate(tools, source="gemini", target=target, kind="tools").body)
    for keyword in ("OBJECT", "STRING", "INTEGER", "nullable", "propertyOrdering", '"1"'):
        assert keyword not in written


def test_pointers_of_losses_lead_to_the_openapi_fields() -> None:
    parameters = {
        "type": "OBJECT",
        "properties": {"a": {"any_of": [{"type": "STRING", "example": "x", "max_length": "3"}]}},
        "defs": {"A": {"type": "STRING"}},
    }
    request = GEMINI.decode_request(request_with(parameters, tools=[declaration_of(parameters)]))
    locate = GEMINI.locator(request)
    for canonical, pointer in (
        ("/tools/0/input_schema", "/tools/0/functionDeclarations/0/parameters"),
        ("/output/schema", "/generationConfig/responseSchema"),
    ):
        assert locate(canonical) == pointer
        assert locate(f"{canonical}/properties/a/anyOf/0/examples") == f"{pointer}/properties/a/any_of/0/example"
        assert locate(f"{canonical}/properties/a/anyOf/0/maxLength") == f"{pointer}/properties/a/any_of/0/max_length"
        assert locate(f"{canonical}/$defs/A") == f"{pointer}/defs/A"


def test_schemas_of_the_sdk_are_converted() -> None:
    """The SDK writes a Python function as a declaration in Gemini's schema language."""

    def look(city: str, days: int | None = None, *, exact: bool = False, tags: list[str] | None = None) -> str:
        """Look."""
        return ""

    declaration = types.FunctionDeclaration.from_callable_with_api_option(callable=look, api_option="GEMINI_API")
    raw = declaration.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert raw["parameters"]["type"] == "OBJECT"
    (tool,) = GEMINI.decode_tools([raw])
    jsonschema_rs.meta.validate(tool.input_schema)
    validator = jsonschema_rs.validator_for(tool.input_schema)
    assert validator.is_valid({"city": "Oslo", "days": None, "exact": True, "tags": ["x"]})
    assert not validator.is_valid({"city": 1})
    assert GEMINI.encode_tools((tool,))[0] == [{"functionDeclarations": [raw]}]
