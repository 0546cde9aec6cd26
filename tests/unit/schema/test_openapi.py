"""Tools out of an OpenAPI document, and requests out of arguments."""

import pytest

from toolwire.ir import EncodeError, SchemaError
from toolwire.schema import lower, validator
from toolwire.schema.openapi import OperationRequest, tools_from_openapi

DOCUMENT = {
    "openapi": "3.0.3",
    "paths": {
        "/pets/{id}": {
            "parameters": [{"$ref": "#/components/parameters/Id"}],
            "get": {
                "operationId": "getPet",
                "summary": "One pet.",
                "parameters": [
                    {"name": "fields", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
                    {"name": "X-Trace", "in": "header", "schema": {"type": "string"}, "description": "for the log"},
                    {"name": "Authorization", "in": "header", "schema": {"type": "string"}},
                ],
                "responses": {
                    "200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}}
                },
            },
            "put": {
                "summary": "Change a pet.",
                "parameters": [{"name": "id", "in": "query", "schema": {"type": "integer"}}],
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}},
                },
            },
        }
    },
    "components": {
        "parameters": {
            "Id": {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "nullable": False}}
        },
        "schemas": {
            "Pet": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string", "example": "Rex"},
                    "age": {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "nullable": True},
                    "parent": {"$ref": "#/components/schemas/Pet"},
                },
            }
        },
    },
}


def test_each_operation_becomes_a_tool():
    get, put = tools_from_openapi(DOCUMENT)
    assert (get.name, get.description, get.effect) == ("getPet", "One pet.", "read")
    assert get.input_schema["properties"] == {
        "id": {"type": "string"},
        "fields": {"type": "array", "items": {"type": "string"}},
        "X-Trace": {"type": "string", "description": "for the log"},
    }
    assert get.input_schema["required"] == ["id"]
    assert get.output_schema["properties"]["parent"] == {"$ref": "#/$defs/Pet"}
    assert (put.name, put.effect) == ("put_pets_id", "idempotent")
    assert set(put.input_schema["properties"]) == {"id", "query_id", "body"}


def test_schemas_are_json_schema_and_can_be_lowered():
    _, put = tools_from_openapi(DOCUMENT)
    assert put.input_schema["$defs"]["Pet"]["properties"]["age"] == {"type": ["integer", "null"], "exclusiveMinimum": 0}
    check = validator(put.input_schema)
    assert check.accepts({"id": "7", "body": {"name": "Rex", "age": None, "parent": {"name": "Bo"}}})
    assert not check.accepts({"id": "7", "body": {"name": "Rex", "age": 0}})
    for dialect in ("openai_strict", "anthropic_strict", "gemini"):
        assert lower(put.input_schema, dialect).conforms


def test_arguments_become_a_request():
    get, put = tools_from_openapi(DOCUMENT)
    assert get.request({"id": "a/../b", "fields": ["x", "y"], "X-Trace": "1"}) == OperationRequest(
        "GET", "/pets/a%2F..%2Fb", [("fields", "x"), ("fields", "y")], {"X-Trace": "1"}, None
    )
    assert put.request({"id": "7", "query_id": 3, "body": {"name": "Rex"}}) == OperationRequest(
        "PUT", "/pets/7", [("id", "3")], {}, {"name": "Rex"}
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "path parameter 'id' is missing"),
        ({"id": "7", "other": 1}, "no parameter"),
        ({"id": "7", "X-Trace": "a\r\nb"}, "header"),
    ],
)
def test_invalid_arguments_are_rejected(arguments, words):
    get, _ = tools_from_openapi(DOCUMENT)
    with pytest.raises(EncodeError, match=words):
        get.request(arguments)


@pytest.mark.parametrize("document", [{}, {"swagger": "2.0", "paths": {}}, {"openapi": "3.1.0"}, []])
def test_document_that_is_not_openapi_is_rejected(document):
    with pytest.raises(SchemaError, match="not an OpenAPI 3 document"):
        tools_from_openapi(document)


def test_unresolvable_reference_is_rejected():
    broken = {"openapi": "3.1.0", "paths": {"/a": {"get": {"parameters": [{"$ref": "#/components/parameters/No"}]}}}}
    with pytest.raises(SchemaError, match="cannot be resolved"):
        tools_from_openapi(broken)


def test_operations_with_the_same_id_get_distinct_names():
    paths = {f"/{name}": {"get": {"operationId": "list"}} for name in "ab"}
    assert [tool.name for tool in tools_from_openapi({"openapi": "3.1.0", "paths": paths})] == ["list", "list_"]
