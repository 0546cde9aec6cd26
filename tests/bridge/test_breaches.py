"""Errors of a provider that name a limit: on their way back they name the caller's tool."""

import msgspec
import pytest

import toolwire
from toolwire.bridge.translation.preparation import prepare
from toolwire.ir import Message, Request, Text, Tool, UpstreamError
from toolwire.ir.events import ResponseStart, StreamFault
from toolwire.wire import get

HELLO = (Message("user", (Text("hi"),)),)
TOOLS = (
    Tool("files/read", "", {"type": "object", "properties": {"path": {"type": "string"}}}),
    Tool("kept", "", {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}),
    Tool("web search", "", {"type": "object", "properties": {"filter[id]": {"type": "array", "items": {}}}}),
)
REQUEST = Request("m", HELLO, TOOLS)


def restored(wire, message, code=None, param=None, request=REQUEST):
    prepared = prepare(request, wire)
    bodies = {
        "anthropic": {"type": "error", "error": {"type": "invalid_request_error", "message": message}},
        "gemini": {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": message}},
    }
    body = bodies.get(
        wire, {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}
    )
    return prepared, prepared.exchange.restore_fault(get(wire).decode_error(400, body))


@pytest.mark.parametrize(
    ("wire", "message"),
    [
        ("anthropic", "tools.2.custom.input_schema.properties: Property keys should match pattern"),
        ("gemini", "tools[0].function_declarations[2].parameters.properties: should be non-empty for OBJECT type"),
        ("openai_chat", "Invalid 'tools[2].function.description': string too long."),
        ("openai_responses", "Invalid 'tools[2].description': string too long."),
    ],
)
def test_tool_index_in_an_error_becomes_the_name_in_the_request(wire, message):
    _, fault = restored(wire, message)
    assert (fault.breach.tool, fault.breach.at) == ("web search", "/tools/2")
    assert "tool 'web search'" in str(UpstreamError(fault))


@pytest.mark.parametrize("wire", ["openai_chat", "openai_responses"])
def test_mapped_tool_name_in_an_error_becomes_the_name_in_the_request(wire):
    sent = prepare(REQUEST, wire).request.tools[0].name
    assert sent != "files/read"
    message = (
        f"Invalid schema for function '{sent}': In context=('properties', 'path', 'items'), array schema missing items."
    )
    _, fault = restored(wire, message)
    assert (fault.breach.tool, fault.breach.at) == ("files/read", "/tools/0")
    assert fault.breach.pointer == "/input_schema/properties/path"  # what the caller's schema has of it


def test_dropped_tool_does_not_shift_the_index_of_others():
    bad = Tool("search", kind="builtin", extra={"openai_responses": {"type": "file_search"}})
    request = Request("m", HELLO, (bad, *TOOLS))
    prepared, fault = restored("anthropic", "tools.1.custom.name: String should match pattern", request=request)
    assert len(prepared.request.tools) == 3
    assert (fault.breach.tool, fault.breach.at) == ("kept", "/tools/2")


def test_property_index_in_an_error_becomes_the_property_name():
    message = "Unknown name \"const\" at 'tools[0].function_declarations[1].parameters.properties[1].value': Cannot find field."
    _, fault = restored("gemini", message)
    assert (fault.breach.tool, fault.breach.pointer) == ("kept", "/input_schema/properties/b")


@pytest.mark.parametrize(
    ("wire", "message"),
    [
        ("anthropic", "tools.77.custom.name: String should match pattern"),
        ("gemini", "tools[5].function_declarations[0].name: Invalid function name"),
        ("openai_chat", "Invalid schema for function 'nobody': schema must have type 'object' and not have 'oneOf'"),
        ("anthropic", "Too many strict tools (21)"),
    ],
)
def test_unknown_tool_in_an_error_is_left_unchanged(wire, message):
    prepared, fault = restored(wire, message)
    assert prepared.exchange.restore_fault(fault) == fault
    assert fault.breach.tool in (77, 0, "nobody", None)


def test_response_and_stream_restore_errors_in_the_same_way():
    prepared, fault = restored("anthropic", "tools.2.custom.name: String should match pattern")
    raw = get("anthropic").decode_error(
        400, {"type": "error", "error": {"type": "invalid_request_error", "message": fault.message}}
    )
    assert raw.breach.tool == 2
    assert prepared.exchange.restore(toolwire.ir.Response(fault=raw)).fault == fault
    restorer = prepared.exchange.make_restorer()
    restorer.feed(ResponseStart("r"))
    assert restorer.feed(StreamFault(raw)) == (StreamFault(fault),)


def test_translated_error_names_the_tool_of_the_client():
    declared = [{"type": "function", "function": {"name": t.name, "parameters": t.input_schema}} for t in TOOLS]
    request = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": declared}
    message = "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    translation = toolwire.translate(body, source="anthropic", target="openai_chat", kind="error", request=request)
    told = translation.body["error"]["message"]
    assert told.startswith(message)
    assert "limit name, tool 'files/read'" in told
    alone = toolwire.translate(body, source="anthropic", target="openai_chat", kind="error")
    assert "limit name, tool 0" in alone.body["error"]["message"]


def test_limit_violation_is_serialisable():
    _, fault = restored("anthropic", "tools.0.custom.name: String should match pattern")
    assert msgspec.to_builtins(fault)["breach"]["tool"] == "files/read"
