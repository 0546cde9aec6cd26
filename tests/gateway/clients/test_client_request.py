"""The fields of a client's request that the gateway reads itself: of large ones without parsing them."""

import json

import pytest

from tables import every_case
from toolwire.asgi.offload import LARGE
from toolwire.bridge.conversation.reading import RequestReading
from toolwire.gateway.request.client_request import ClientRequest
from toolwire.gateway.request.routes import match_route
from toolwire.ir.errors import ConfigError, ProtocolError, ToolwireError
from toolwire.stream import strict

CHAT = match_route("POST", "/v1/chat/completions", {})
LONG = "word " * LARGE


def read(body, route=CHAT):
    wire = route.ingress.codec
    return ClientRequest(route, wire, body, {}, {}, len(body), RequestReading(wire, body))


def request_of(content, **fields):
    document = {"model": "m", "messages": [{"role": "user", "content": content}], **fields}
    return json.dumps(document).encode()


def facts_of(body):
    """The facts that are read, or the error."""
    try:
        client_request = read(body)
    except ToolwireError as error:
        return type(error), error.message, error.pointer
    return (
        client_request.model,
        client_request.stream,
        client_request.choices,
        client_request.has_tools,
        client_request.body_model,
        client_request.has_field("max_tokens"),
        bool(client_request.encode_schemas()),
    )


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@every_case(
    "fields",
    [
        {},
        {"stream": True},
        {"stream": None},
        {"stream": "yes"},
        {"stream": 1},
        {"n": 3},
        {"n": None},
        {"tools": [TOOL], "max_tokens": 5},
        {"tools": [], "functions": None},
        {"functions": [{"name": "f"}]},
        {"response_format": {"type": "json_object"}},
        {"model": 7},
        {"model": ""},
        {"model": "x" * 600},
        {"api_base": "http://elsewhere.example"},
        {"extra_headers": {}},
    ],
    ids=str,
)
def test_large_request_has_the_same_fields_as_a_small_one(fields):
    assert facts_of(request_of(LONG, **fields)) == facts_of(request_of("word", **fields))


@pytest.mark.parametrize("content", ["word", LONG], ids=["small", "large"])
@pytest.mark.parametrize("name", ["model", "mod\\u0065l", "\\u006dodel"])
def test_second_model_is_refused(content, name):
    body = request_of(content)[:-1] + f',"{name}":"other"}}'.encode()
    with pytest.raises(ProtocolError, match="duplicate key"):
        read(body)


@pytest.mark.parametrize("name", ["api_base", "ap\\u0069_base"])
def test_address_of_an_upstream_is_refused_in_any_spelling(name):
    with pytest.raises(ConfigError, match="api_base must not be set"):
        read(request_of(LONG)[:-1] + f',"{name}":"http://elsewhere.example"}}'.encode())


@pytest.mark.parametrize("end", [b"", b'"', b"[" * 200_000, b'{"a":' * 100_000])
def test_invalid_large_request_is_refused(end):
    with pytest.raises(ProtocolError):
        read(request_of(LONG)[:-1] + b',"x":' + end)


def test_large_request_is_not_parsed_to_find_its_model(monkeypatch):
    def fail(*args, **options):
        raise AssertionError("the whole request was parsed")

    body = request_of(LONG, tools=[TOOL])
    monkeypatch.setattr(strict.jiter, "from_json", fail)
    client_request = read(body)
    assert (client_request.model, client_request.has_tools) == ("m", True)
    assert not client_request.has_field("max_tokens")


def test_property_named_model_in_a_tool_is_not_a_second_model():
    schema = {"type": "object", "properties": {"model": {"type": "string"}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    client_request = read(request_of(LONG, tools=[tool]))
    assert (client_request.model, client_request.has_tools) == ("m", True)


@pytest.mark.parametrize("tools", [b"[ ]", b" null", b"[\n]", b"{}"])
def test_empty_tools_of_a_large_request_are_no_tools(tools):
    assert not read(request_of(LONG)[:-1] + b',"tools":' + tools + b"}").has_tools


def test_field_with_the_name_of_a_nested_one_is_found_exactly():
    body = request_of(LONG, metadata={"max_tokens": "1"})
    client_request = read(body)
    assert client_request.may_have_field("max_tokens")
    assert not client_request.has_field("max_tokens")


@pytest.mark.finding("SE8")
@pytest.mark.parametrize("size", [0, 40_000], ids=["small", "large"])
def test_body_that_is_not_utf8_is_refused_at_every_size(size):
    body = b'{"model":"m","messages":[],"metadata":{"x":"' + b"y" * size + b'\xff"}}'
    with pytest.raises(ProtocolError, match="not UTF-8"):
        read(body)
