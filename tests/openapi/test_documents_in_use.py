"""Documents in the manner of common generators and providers, called on a real server."""

import asyncio
import json
from urllib.parse import parse_qsl

import pytest
from api_server import api_server

from tables import every_case
from toolwire import Runner, ToolCall
from toolwire.openapi import load_document, parse_document, toolbox
from toolwire.schema import lower

FASTAPI = {
    "openapi": "3.1.0",
    "info": {"title": "FastAPI", "version": "0.1.0"},
    "paths": {
        "/items/{item_id}": {
            "put": {
                "summary": "Update Item",
                "operationId": "update_item_items__item_id__put",
                "security": [{"OAuth2PasswordBearer": []}],
                "parameters": [
                    {
                        "name": "item_id",
                        "in": "path",
                        "required": True,
                        "schema": {"type": "integer", "title": "Item Id"},
                    },
                    {
                        "name": "q",
                        "in": "query",
                        "required": False,
                        "schema": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                    },
                ],
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Item"}}},
                },
                "responses": {
                    "200": {"description": "ok", "content": {"application/json": {"schema": {}}}},
                    "422": {
                        "content": {
                            "application/json": {"schema": {"$ref": "#/components/schemas/HTTPValidationError"}}
                        }
                    },
                },
            }
        },
        "/files/": {
            "post": {
                "operationId": "upload_files__post",
                "requestBody": {
                    "required": True,
                    "content": {"multipart/form-data": {"schema": {"$ref": "#/components/schemas/Body_upload"}}},
                },
            }
        },
    },
    "components": {
        "schemas": {
            "Item": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Item"}},
                },
            },
            "Body_upload": {
                "type": "object",
                "required": ["file"],
                "properties": {
                    "file": {"type": "string", "format": "binary", "title": "File"},
                    "token": {"type": "string"},
                },
            },
            "HTTPValidationError": {"type": "object"},
        },
        "securitySchemes": {
            "OAuth2PasswordBearer": {"type": "oauth2", "flows": {"password": {"scopes": {}, "tokenUrl": "token"}}}
        },
    },
}
PAYMENTS = """
openapi: 3.0.0
info: {title: Payments, version: "1"}
security: [{basicAuth: []}, {bearerAuth: []}]
paths:
  /v1/charges:
    get:
      operationId: GetCharges
      parameters:
        - {name: created, in: query, style: deepObject, explode: true, required: false,
           schema: {anyOf: [{type: object, properties: {gt: {type: integer}, lt: {type: integer}}}, {type: integer}]}}
        - {name: expand, in: query, style: deepObject, explode: true, schema: {type: array, items: {type: string}}}
      requestBody: {content: {application/x-www-form-urlencoded: {encoding: {}, schema: {type: object, properties: {}}}}, required: false}
    post:
      operationId: PostCharges
      requestBody:
        content:
          application/x-www-form-urlencoded:
            encoding: {metadata: {style: deepObject, explode: true}}
            schema:
              type: object
              properties:
                amount: {type: integer}
                description: {type: string, nullable: true, maxLength: 40}
                metadata: {type: object, additionalProperties: {type: string}}
components:
  securitySchemes:
    basicAuth: {type: http, scheme: basic}
    bearerAuth: {type: http, scheme: bearer}
"""
REPOSITORIES = {
    "openapi": "3.0.3",
    "info": {"title": "Repositories", "version": "1"},
    "servers": [{"url": "https://api.example.com"}],
    "paths": {
        "/repos/{owner}/contents/{path}": {
            "get": {
                "operationId": "repos/get-content",
                "tags": ["repos"],
                "parameters": [
                    {"$ref": "#/components/parameters/owner"},
                    {
                        "name": "path",
                        "in": "path",
                        "required": True,
                        "schema": {"type": "string"},
                        "x-multi-segment": True,
                    },
                    {"name": "ref", "in": "query", "schema": {"type": "string"}},
                ],
            }
        },
        "/repos/{owner}/assets": {
            "post": {
                "operationId": "repos/upload-asset",
                "tags": ["repos"],
                "servers": [{"url": "https://uploads.example.com"}],
                "parameters": [{"$ref": "#/components/parameters/owner"}],
                "requestBody": {
                    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
                },
            }
        },
    },
    "components": {
        "parameters": {"owner": {"name": "owner", "in": "path", "required": True, "schema": {"type": "string"}}}
    },
}
JSON_API = {
    "openapi": "3.0.1",
    "info": {"title": "Articles", "version": "v1"},
    "paths": {
        "/api/Articles": {
            "get": {
                "parameters": [
                    {"name": "page[size]", "in": "query", "schema": {"type": "integer", "format": "int32"}},
                    {"name": "page[number]", "in": "query", "schema": {"type": "integer", "format": "int32"}},
                    {"name": "api-version", "in": "query", "schema": {"type": "string"}},
                ]
            },
            "post": {
                "requestBody": {
                    "content": {
                        kind: {"schema": {"$ref": "#/components/schemas/Article"}}
                        for kind in (
                            "text/json",
                            "application/*+json",
                            "application/json-patch+json",
                            "application/json",
                        )
                    }
                }
            },
        },
        "/api/Articles/{id}": {
            "patch": {
                "parameters": [
                    {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "format": "uuid"}}
                ],
                "requestBody": {"content": {"*/*": {"schema": {"$ref": "#/components/schemas/Article"}}}},
            }
        },
    },
    "components": {
        "schemas": {
            "Article": {
                "type": "object",
                "properties": {"title": {"type": "string", "nullable": True}},
                "additionalProperties": False,
            }
        }
    },
}


@pytest.fixture
def server():
    with api_server() as running:
        yield running


def run(box, *calls):
    async def test():
        runner = Runner(box)
        try:
            return await runner.run([ToolCall(f"c{n}", name, arguments) for n, (name, arguments) in enumerate(calls)])
        finally:
            runner.close()
            await box.aclose()

    return asyncio.run(test())


@pytest.mark.finding("X3")
def test_generated_by_a_web_framework(server):
    box = toolbox(FASTAPI, base_url=server.url, auth="secret-token")
    item = {"name": "a", "parts": [{"name": "b"}]}
    run(box, ("update_item_items__item_id__put", {"item_id": 3, "q": None, "body": item}))
    assert (server.last.method, server.last.target) == ("PUT", "/items/3")
    assert json.loads(server.last.body) == item
    assert server.last.headers["authorization"] == "Bearer secret-token"
    run(box, ("upload_files__post", {"body": {"file": "AAEC", "token": "t"}}))
    assert b'name="file"; filename="file"' in server.last.body
    assert b"\x00\x01\x02" in server.last.body


@pytest.mark.finding("X3")
def test_forms_of_a_payment_provider(server):
    box = toolbox(parse_document(PAYMENTS), base_url=server.url, auth={"basicAuth": ("sk_test_1234", "")})
    assert box.problems == ()
    run(box, ("GetCharges", {"created": {"gt": 1, "lt": 9}, "expand": ["a", "b"]}))
    assert server.last.query == [("created[gt]", "1"), ("created[lt]", "9"), ("expand[0]", "a"), ("expand[1]", "b")]
    run(box, ("PostCharges", {"body": {"amount": 5, "description": None, "metadata": {"order": "7&8"}}}))
    assert parse_qsl(server.last.body.decode()) == [("amount", "5"), ("metadata[order]", "7&8")]
    assert server.last.headers["authorization"].startswith("Basic ")


@pytest.mark.finding("X3")
def test_operations_with_slashes_and_another_upload_host(server):
    box = toolbox(REPOSITORIES, base_url=server.url, tags=["repos"])
    assert [entry.name for entry in box] == ["repos_get-content"]
    assert [problem.operation for problem in box.problems] == ["POST /repos/{owner}/assets"]
    run(box, ("repos_get-content", {"owner": "ann", "path": "src/a b.py", "ref": "main"}))
    assert server.last.segments == ["repos", "ann", "contents", "src/a b.py"]


@pytest.mark.finding("X3")
def test_document_without_operation_ids(server):
    box = toolbox(JSON_API, base_url=server.url)
    assert [entry.name for entry in box] == ["get_api_Articles", "post_api_Articles", "patch_api_Articles_id"]
    run(box, ("get_api_Articles", {"page_size": 2, "page_number": 3, "api-version": "1"}))
    assert server.last.query == [("page[size]", "2"), ("page[number]", "3"), ("api-version", "1")]
    run(box, ("post_api_Articles", {"body": {"title": None}}))
    assert server.last.headers["content-type"] == "application/json"
    number = "6f1c1b36-9d8f-4c0c-9d0b-0c6e6f1f2a11"
    run(box, ("patch_api_Articles_id", {"id": number, "body": {"title": "x"}}))
    assert (server.last.headers["content-type"], server.last.body) == ("application/json", b'{"title":"x"}')


@every_case("document", [FASTAPI, parse_document(PAYMENTS), REPOSITORIES, JSON_API])
@every_case("dialect", ["openai_strict", "anthropic_strict", "gemini"])
def test_schemas_can_be_lowered(document, dialect):
    for entry in toolbox(load_document(document), base_url="https://api.example.com"):
        assert lower(entry.tool.input_schema, dialect).schema["type"] == "object"
