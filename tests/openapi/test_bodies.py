"""Request bodies of every supported media type."""

import json
from email.parser import BytesParser
from urllib.parse import parse_qsl

import pytest

from toolwire.ir import EncodeError
from toolwire.openapi import read_operations

UPLOAD = {
    "type": "object",
    "properties": {
        "photo": {"type": "string", "format": "binary", "description": "JPEG"},
        "more": {"type": "array", "items": {"type": "string", "contentMediaType": "image/png"}},
        "note": {"type": "string"},
        "count": {"type": "integer"},
        "place": {"type": "object"},
    },
}


def tool_with(content, version="3.1.0"):
    components = {"schemas": {"Upload": UPLOAD}}
    post = {"operationId": "send", "requestBody": {"required": True, "content": content}}
    document = {"openapi": version, "paths": {"/a": {"post": post}}, "components": components}
    (tool,) = read_operations(document).tools
    return tool


def test_json_is_preferred():
    tool = tool_with({"text/plain": {}, "application/vnd.api+json": {"schema": {"type": "object"}}})
    request = tool.request({"body": {"a": [1, None]}})
    assert (request.headers, request.body) == ({"content-type": "application/vnd.api+json"}, b'{"a":[1,null]}')


def test_multipart_with_files():
    encoding = {"photo": {"contentType": "image/jpeg, image/png"}}
    content = {"multipart/form-data": {"schema": {"$ref": "#/components/schemas/Upload"}, "encoding": encoding}}
    tool = tool_with(content)
    photo = tool.input_schema["properties"]["body"]["properties"]["photo"]
    assert photo["description"] == "JPEG base64-encoded content of a file"
    body = {"photo": "/9j/", "more": ["AQI=", "AwQ="], "note": 'a"\r\nb', "count": 3, "place": {"x": 1}}
    request = tool.request({"body": body})
    head = f"content-type: {request.headers['content-type']}\r\n\r\n".encode()
    parts = BytesParser().parsebytes(head + request.body).get_payload()
    assert [part.get_param("name", header="content-disposition") for part in parts] == [
        *("photo", "more", "more", "note", "count", "place"),
    ]
    assert [part.get_content_type() for part in parts] == [
        *("image/jpeg", "application/octet-stream", "application/octet-stream"),
        *("text/plain", "text/plain", "application/json"),
    ]
    assert parts[0].get_payload(decode=True) == b"\xff\xd8\xff"
    assert parts[3].get_payload(decode=True) == b'a"\r\nb'
    assert json.loads(parts[5].get_payload()) == {"x": 1}


def test_field_name_cannot_add_a_header():
    content = {"multipart/form-data": {"schema": {"type": "object"}}}
    request = tool_with(content).request({"body": {'a"\r\nevil: 1': "x"}})
    assert b'name="a%22%0D%0Aevil: 1"' in request.body


def test_file_must_be_base64():
    content = {"multipart/form-data": {"schema": {"$ref": "#/components/schemas/Upload"}}}
    for value in ("not base64!", 7, {"a": 1}):
        with pytest.raises(EncodeError, match="base64"):
            tool_with(content).request({"body": {"photo": value}})


def test_urlencoded_form():
    schema = {"type": "object", "properties": {"filter": {"type": "object"}, "ids": {"type": "array"}}}
    content = {"application/x-www-form-urlencoded": {"schema": schema, "encoding": {"filter": {"style": "deepObject"}}}}
    body = {"filter": {"a": "x&y"}, "ids": [1, 2], "place": {"z": 1}, "none": None}
    request = tool_with(content).request({"body": body})
    assert parse_qsl(request.body.decode()) == [("filter[a]", "x&y"), ("ids", "1"), ("ids", "2"), ("place", '{"z":1}')]
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"


def test_text_and_xml_are_text():
    for media_type in ("text/plain", "application/xml"):
        tool = tool_with({media_type: {"schema": {"type": "object"}}})
        assert tool.input_schema["properties"]["body"]["type"] == "string"
        request = tool.request({"body": "<ä/>"})
        assert request.headers["content-type"] == f"{media_type}; charset=utf-8"
        assert request.body == "<ä/>".encode()


def test_other_content_is_base64():
    tool = tool_with({"application/octet-stream": {}})
    assert tool.request({"body": "AAEC"}).body == b"\x00\x01\x02"
    with pytest.raises(EncodeError, match="base64"):
        tool.request({"body": "?"})
