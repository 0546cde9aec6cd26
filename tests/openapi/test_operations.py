"""Tools out of an OpenAPI document, and requests out of arguments."""

import pytest

from tables import every_case
from toolwire.ir import EncodeError, SchemaError
from toolwire.openapi import OperationRequest, read_operations
from toolwire.schema import lower, validator

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
    get, put = read_operations(DOCUMENT).tools
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
    _, put = read_operations(DOCUMENT).tools
    assert put.input_schema["$defs"]["Pet"]["properties"]["age"] == {"type": ["integer", "null"], "exclusiveMinimum": 0}
    check = validator(put.input_schema)
    assert check.accepts({"id": "7", "body": {"name": "Rex", "age": None, "parent": {"name": "Bo"}}})
    assert not check.accepts({"id": "7", "body": {"name": "Rex", "age": 0}})
    for dialect in ("openai_strict", "anthropic_strict", "gemini"):
        assert lower(put.input_schema, dialect).conforms


def test_arguments_become_a_request():
    get, put = read_operations(DOCUMENT).tools
    assert get.request({"id": "a/b", "fields": ["x", "y&z"], "X-Trace": "1"}) == OperationRequest(
        "GET", "/pets/a%2Fb", "fields=x&fields=y%26z", {"X-Trace": "1"}
    )
    assert put.request({"id": "7", "query_id": 3.0, "body": {"name": "Rex"}}) == OperationRequest(
        "PUT", "/pets/7", "id=3", {"content-type": "application/json"}, body=b'{"name":"Rex"}'
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "path parameter 'id' is missing"),
        ({"id": "7", "other": 1}, "no parameter"),
        ({"id": "7", "X-Trace": "a\r\nb"}, "header"),
        ({"id": "7", "X-Trace": "ä"}, "header"),
        ({"id": "a/../b"}, "segments"),
        ({"id": "x" * 9000}, "exceed 8,000 characters"),
        ({"id": "\ud800"}, "lone surrogate"),
    ],
)
def test_invalid_arguments_are_rejected(arguments, message):
    get, _ = read_operations(DOCUMENT).tools
    with pytest.raises(EncodeError, match=message):
        get.request(arguments)


@pytest.mark.parametrize("document", [{}, {"swagger": "2.0", "paths": {}}, {"openapi": "3.1.0", "paths": []}, []])
def test_document_that_is_not_openapi_is_rejected(document):
    with pytest.raises(SchemaError, match="not an OpenAPI 3 document"):
        read_operations(document)


def test_document_with_only_webhooks_is_rejected():
    with pytest.raises(SchemaError, match="has no paths"):
        read_operations({"openapi": "3.1.0", "webhooks": {}})


def operations(**paths):
    return {"openapi": "3.1.0", "paths": {f"/{name}": {"get": fields} for name, fields in paths.items()}}


@every_case(
    ("fields", "message"),
    [
        ({"parameters": [{"$ref": "#/components/parameters/No"}]}, "cannot be resolved"),
        ({"parameters": [{"$ref": "https://evil.example/p.json"}]}, "another document, which is not fetched"),
        ({"parameters": [{"$ref": "other.yaml#/P"}]}, "another document, which is not fetched"),
        ({"parameters": [{"name": "a", "in": "query", "schema": {"$ref": "#/nowhere"}}]}, "cannot be resolved"),
        ({"parameters": [{"name": "a", "in": "nowhere"}]}, "invalid name or location"),
        ({"parameters": [{"name": "a", "in": "path", "schema": {}}]}, "do not match the path"),
        ({"parameters": [{"name": "a\r\nb", "in": "header"}]}, "not a valid name of a header"),
        ({"parameters": [{"name": "a", "in": "query", "style": "matrix"}]}, "style 'matrix' is not valid"),
        ({"parameters": [{"name": f"p{n}", "in": "query"} for n in range(501)]}, "more than 500 parameters"),
        ({"requestBody": {"required": True, "content": {"a\r\nb": {}}}}, "not a valid media type"),
        ({"parameters": [{"name": "a", "in": "query", "schema": {"type": "text"}}]}, "text"),
        ({"servers": [{"url": "https://{tenant}.example.com"}]}, "no valid URL"),
    ],
)
def test_broken_operation_removes_only_itself(fields, message):
    tools, problems, _ = read_operations(operations(broken=fields, fine={"operationId": "fine"}))
    assert [tool.name for tool in tools] == ["fine"]
    assert [problem.operation for problem in problems] == ["GET /broken"]
    assert message in problems[0].message


@every_case(
    "path",
    [
        "pets",
        "@evil.example/",
        "/a/../b",
        "/a/..;/b",
        "/a/%2e%2E/b",
        "/a%2f..%2fb",
        "/%252e%252e/b",
        "/a?b={c}",
        "/a\\b",
        "/a\nb",
    ],
)
def test_unsafe_path_is_not_offered(path):
    tools, problems, _ = read_operations({"openapi": "3.1.0", "paths": {path: {"get": {}}}})
    assert tools == ()
    assert len(problems) == 1


def test_encoded_text_of_a_path_is_sent_as_it_is():
    path = "/a%20b/é%c3%a9%/{id}"
    parameter = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    document = {"openapi": "3.1.0", "paths": {path: {"get": {"parameters": [parameter]}}}}
    (tool,) = read_operations(document).tools
    assert tool.request({"id": "x%20y"}).path == "/a%20b/%C3%A9%c3%a9%25/x%2520y"


@pytest.mark.parametrize(
    ("media_type", "value", "text"),
    [
        ("application/json", "abc", "%22abc%22"),
        ("text/plain", "abc", "abc"),
        ("text/plain", 7, "7"),
        ("text/csv", "a,b", "a%2Cb"),
        ("application/json", {"a": 1}, "%7B%22a%22%3A1%7D"),
    ],
)
def test_parameter_with_a_media_type_is_encoded_as_this_type(media_type, value, text):
    parameter = {"name": "t", "in": "query", "content": {media_type: {"schema": {}}}}
    document = {"openapi": "3.1.0", "paths": {"/q": {"get": {"parameters": [parameter]}}}}
    (tool,) = read_operations(document).tools
    assert tool.request({"t": value}).query == f"t={text}"


def test_fixed_query_of_a_path_is_sent_and_its_fragment_is_not():
    paths = {"/a?x=1&y=b c#one": {"get": {"operationId": "a", "parameters": [{"name": "z", "in": "query"}]}}}
    (tool,) = read_operations({"openapi": "3.1.0", "paths": paths}).tools
    assert tool.request({"z": 2})[1:3] == ("/a", "x=1&y=b%20c&z=2")


def test_operations_with_the_same_name_get_distinct_names_in_any_order():
    paths = {f"/{name}": {"get": {"operationId": "list"}} for name in "ab"}
    names = {tool.path: tool.name for tool in read_operations({"openapi": "3.1.0", "paths": paths}).tools}
    assert len(set(names.values())) == 2
    reverse = {"openapi": "3.1.0", "paths": dict(reversed(paths.items()))}
    assert names == {tool.path: tool.name for tool in read_operations(reverse).tools}


def test_long_name_is_shortened():
    (tool,) = read_operations(operations(a={"operationId": "x" * 100})).tools
    assert len(tool.name) == 64


def test_names_of_arguments_have_portable_characters():
    parameters = [{"name": name, "in": "query"} for name in ("page[size]", "page_size", "body", "$top", "ä")]
    (tool,) = read_operations(operations(a={"parameters": parameters})).tools
    assert list(tool.input_schema["properties"]) == ["page_size", "query_page_size", "query_body", "top", "value"]
    assert (
        tool.request({"page_size": 1, "query_page_size": 2, "value": 3}).query
        == "page%5Bsize%5D=1&page_size=2&%C3%A4=3"
    )


def test_headers_of_the_transport_and_of_credentials_are_not_arguments():
    names = ["Authorization", "Host", "Content-Length", "Cookie", "Accept", "Proxy-X", "X-Key", "X-Free"]
    document = operations(a={"parameters": [{"name": name, "in": "header"} for name in names]})
    document["components"] = {"securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "x-key"}}}
    (tool,) = read_operations(document).tools
    assert list(tool.input_schema["properties"]) == ["X-Free"]


def test_security_scheme_that_could_replace_the_host_is_refused():
    document = operations(a={})
    document["components"] = {"securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "Host"}}}
    _, problems, schemes = read_operations(document)
    assert schemes == {}
    assert problems[0].operation == "security scheme key"


def test_properties_named_like_keywords_are_kept():
    schema = {"type": "object", "properties": {"example": {"type": "string"}, "nullable": {"type": "boolean"}}}
    document = operations(a={"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}})
    assert read_operations(document).tools[0].input_schema["properties"]["body"] == schema


def test_keywords_of_version_3_0_become_json_schema():
    schema = {
        "allOf": [{"$ref": "#/components/schemas/A", "ignored": 1}],
        "nullable": True,
        "discriminator": {"propertyName": "kind"},
        "xml": {},
        "x-internal": 1,
        "description": "d",
    }
    document = operations(a={"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}})
    document |= {"openapi": "3.0.3", "components": {"schemas": {"A": {"enum": ["x"], "nullable": True}}}}
    root = read_operations(document).tools[0].input_schema
    assert root["properties"]["body"] == {
        "description": "d",
        "anyOf": [{"allOf": [{"$ref": "#/$defs/A"}]}, {"type": "null"}],
    }
    assert root["$defs"] == {"A": {"anyOf": [{"enum": ["x"]}, {"type": "null"}]}}
    assert validator(root).accepts({"body": None})


def test_references_to_any_place_of_the_document_become_definitions():
    document = operations(
        a={"parameters": [{"name": "q", "in": "query", "schema": {"type": "string", "maxLength": 3}}]},
        b={"parameters": [{"name": "q", "in": "query", "schema": {"$ref": "#/paths/~1a/get/parameters/0/schema"}}]},
    )
    (tool,) = read_operations(document, operations=["GET /b"]).tools
    assert validator(tool.input_schema).accepts({"q": "abc"})
    assert not validator(tool.input_schema).accepts({"q": "abcd"})


def test_write_only_properties_are_in_requests_only():
    schema = {
        "type": "object",
        "required": ["id", "password"],
        "properties": {"id": {"readOnly": True}, "password": {"writeOnly": True}},
    }
    content = {"application/json": {"schema": schema}}
    document = operations(
        a={"requestBody": {"required": True, "content": content}, "responses": {"200": {"content": content}}}
    )
    (tool,) = read_operations(document).tools
    assert tool.input_schema["properties"]["body"]["required"] == ["password"]
    assert tool.output_schema["required"] == ["id"]


def test_long_description_is_cut_as_recorded_in_lock_files():
    fields = {"operationId": "get", "description": "é" * 5000, "responses": {}}
    (tool,) = read_operations({"openapi": "3.1.0", "paths": {"/p": {"get": fields}}}).tools
    assert tool.description == "é" * 4000 + "…"
