"""Damaged OpenAPI documents end in typed errors or in tools that work, never in another exception."""

import copy
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from toolwire.ir import EncodeError, ToolwireError
from toolwire.openapi import parse_document, read_operations, toolbox
from toolwire.schema import validator

SCHEMA = {
    "type": "object",
    "required": ["a"],
    "properties": {"a": {"$ref": "#/components/schemas/A"}, "b": {"readOnly": True}},
}
DOCUMENT = {
    "openapi": "3.0.3",
    "servers": [{"url": "https://api.example.com/v1"}],
    "security": [{"key": []}],
    "paths": {
        "/a/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
            "servers": [{"url": "/v2"}],
            "put": {
                "operationId": "put",
                "summary": "Text",
                "tags": ["t"],
                "parameters": [
                    {"name": "q", "in": "query", "style": "deepObject", "explode": True, "schema": SCHEMA},
                    {"name": "X-H", "in": "header", "content": {"application/json": {"schema": SCHEMA}}},
                    {"$ref": "#/components/parameters/P"},
                ],
                "requestBody": {
                    "content": {
                        "multipart/form-data": {"schema": SCHEMA, "encoding": {"a": {"contentType": "image/png"}}}
                    }
                },
                "responses": {"200": {"content": {"application/json": {"schema": SCHEMA}}}},
                "security": [{"key": []}, {}],
            },
        },
        "/b": {"$ref": "#/paths/~1a~1{id}"},
    },
    "components": {
        "schemas": {
            "A": {"nullable": True, "allOf": [{"$ref": "#/components/schemas/A"}, {"type": "object"}], "example": 1}
        },
        "parameters": {"P": {"name": "p", "in": "cookie", "schema": {"type": "array", "items": {"type": "string"}}}},
        "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}},
    },
}
WORDS = st.sampled_from(
    [
        "$ref",
        "#/components/schemas/A",
        "#/paths",
        "#",
        "schema",
        "type",
        "object",
        "",
        "body",
        "/x/{y}",
        "https://evil",
        "a\r\nb",
        "\ud800",
    ]
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def nodes(value, path=()):
    """Yield the path of every value in the document."""
    yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from nodes(inner, (*path, key))


PATHS = [path for path in nodes(DOCUMENT) if path]


@st.composite
def damaged(draw):
    document = copy.deepcopy(DOCUMENT)
    for path in draw(st.lists(st.sampled_from(PATHS), min_size=1, max_size=4)):
        place = document
        try:
            for key in path[:-1]:
                place = place[key]
            action = draw(st.sampled_from(["replace", "remove", "rename"]))
            if action == "replace":
                place[path[-1]] = draw(JSON_VALUES)
            elif action == "remove":
                del place[path[-1]]
            else:
                place[draw(WORDS)] = place.pop(path[-1])
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change removed this place
    return document


@settings(max_examples=3 * settings.default.max_examples, deadline=None)
@given(damaged(), st.dictionaries(st.sampled_from(["id", "q", "X-H", "p", "body", "y"]), JSON_VALUES))
def test_damaged_document_ends_in_a_typed_error_or_in_tools(document, arguments):
    try:
        listed = read_operations(document)
    except ToolwireError:
        return
    for tool in listed.tools:
        assert 0 < len(tool.name) <= 64
        validator(tool.input_schema)
        try:
            request = tool.request(arguments)
        except EncodeError:
            continue
        assert request.path.startswith("/")
        assert (request.path + request.query + request.cookies).isascii()
        assert not any(mark in f"{name}{value}" for name, value in request.headers.items() for mark in "\r\n")
    try:
        box = toolbox(document, base_url="https://api.example.com", auth="secret-token", environment={})
    except ToolwireError:
        return
    for entry in box:
        json.dumps(entry.tool.input_schema)


@settings(max_examples=2 * settings.default.max_examples, deadline=None)
@given(st.text(st.sampled_from("{}[]:,-&*!|>'\"#? \n\tabc01<~"), max_size=80))
def test_any_text_is_a_document_or_a_typed_error(text):
    try:
        parse_document(text)
    except ToolwireError:
        pass
