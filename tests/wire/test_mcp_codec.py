"""MCP's codec: every vector in both directions, and the rules that no single message shows."""

import json

import msgspec
import pytest

from places import TESTS
from tables import every_case
from toolwire.ir.errors import EncodeError, ProtocolError, SchemaError
from toolwire.ir.losses import Losses
from toolwire.ir.parts import Media, Opaque, ToolCall, ToolResult
from toolwire.ir.tools import Tool
from toolwire.mcp.protocol.calls import InputRequired, call_request, encode_result, read_call, read_result
from toolwire.mcp.protocol.content import decode_content, encode_content
from toolwire.mcp.protocol.discovery import (
    initialize_request,
    list_request,
    read_discovered,
    read_initialize,
    read_initialized,
    read_page,
)
from toolwire.mcp.protocol.headers import (
    check_headers,
    decode_value,
    encode_value,
    find_header_arguments,
    request_headers,
)
from toolwire.mcp.protocol.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION, Meta, TraceContext, read_meta, with_meta
from toolwire.mcp.protocol.notifications import is_level_enabled, read_cancelled, read_log, read_progress
from toolwire.mcp.protocol.rpc import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    Failure,
    Notification,
    Result,
    RpcError,
    RpcRequest,
    failure_from,
    is_modern,
    read,
    read_batch,
    unsupported_version,
    write,
)
from toolwire.testing import same
from toolwire.wire.mcp import decode_tools, encode_tools
from toolwire.wire.mcp.versions import HANDSHAKE, LATEST, era_of, negotiate_version, since

VECTORS = json.loads((TESTS / "vectors" / "mcp.json").read_text(encoding="utf-8"))
CALL = ToolCall("c", "t", {})
META = Meta(LATEST, {"name": "x", "version": "1"}, {})


def of_kind(*kinds):
    chosen = [vector for vector in VECTORS if vector["kind"] in kinds]
    assert chosen
    return pytest.mark.parametrize("vector", chosen, ids=[one["name"] for one in chosen])


def without_extra(value):
    return _stripped(plain(value))


def plain(value):
    return json.loads(msgspec.json.encode(value))


def _stripped(value):
    if isinstance(value, dict):
        return {key: _stripped(held) for key, held in value.items() if key != "extra"}
    return [_stripped(one) for one in value] if isinstance(value, list) else value


def test_every_vector_names_its_source():
    assert all(vector["source"].split(":")[0] in ("spec", "facts", "seed") for vector in VECTORS)


@of_kind("call")
def test_call_vector_round_trips(vector):
    request = read(json.dumps(vector["body"]))
    found = read_call(request)
    assert same(without_extra(found), vector["meaning"])
    again = call_request(request.id, found.call, found.meta, answers=found.answers or None, state=found.state)
    assert same(json.loads(write(again)), vector["body"])


@of_kind("result")
def test_result_vector_round_trips(vector):
    found = read_result(vector["body"], CALL)
    assert same(without_extra(found), vector["meaning"])
    assert same(encode_result(found, version=vector["version"]), vector["body"])


@of_kind("input")
def test_input_request_vector_round_trips(vector):
    found = read_result(vector["body"], CALL)
    assert isinstance(found, InputRequired)
    assert same(msgspec.to_builtins(found), vector["meaning"])
    assert found.to_json() == vector["body"]


@of_kind("message", "call")
def test_message_vector_round_trips(vector):
    assert same(json.loads(write(read(json.dumps(vector["body"])))), vector["body"])


@of_kind("tool")
def test_tool_vector_round_trips(vector):
    written, losses = encode_tools(decode_tools([vector["body"]]))
    assert written == [vector["body"]]
    assert not list(losses)


@of_kind("card")
def test_server_description_vector_round_trips(vector):
    card = read_discovered(vector["body"])
    assert plain(card) == vector["meaning"]
    assert card.discovered() == vector["body"]


@of_kind("header")
def test_header_value_vector_round_trips(vector):
    assert encode_value(vector["meaning"]) == vector["body"]
    assert decode_value(vector["body"]) == vector["meaning"]


@of_kind("broken")
def test_broken_message_gives_an_error_response(vector):
    with pytest.raises(RpcError) as caught:
        read(vector["text"])
    assert (caught.value.code, caught.value.request_id) == (vector["meaning"]["code"], vector["meaning"]["id"])
    answer = json.loads(write(failure_from(caught.value)))
    assert answer["error"]["code"] == vector["meaning"]["code"]
    assert answer["id"] == vector["meaning"]["id"]


def test_deep_json_is_rejected_without_recursion():
    with pytest.raises(RpcError) as caught:
        read(b'{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":' + b"[" * 200_000)
    assert caught.value.code == -32700


def test_a_message_over_the_limit_is_too_large():
    with pytest.raises(RpcError) as caught:
        read(b'{"jsonrpc":"2.0","method":"a","params":{"x":"' + b"y" * 100 + b'"}}', limit=100)
    assert caught.value.status == 413


def test_a_batch_is_read_message_by_message():
    found = read_batch('[{"jsonrpc":"2.0","id":1,"method":"a"},7,{"jsonrpc":"2.0","method":"b"}]')
    assert found[0] == RpcRequest(1, "a")
    assert isinstance(found[1], RpcError)
    assert found[2] == Notification("b")
    with pytest.raises(RpcError):
        read_batch("[]")


def test_integer_ids_beyond_double_precision_are_kept():
    big = 2**53 + 1
    assert read(write(Result(big, {}))).id == big


def test_failure_round_trips_as_an_error():
    error = read(write(failure_from(unsupported_version("1900-01-01"), 5)))
    assert isinstance(error, Failure)
    assert error.id == 5
    assert error.error.data["requested"] == "1900-01-01"
    assert is_modern(error.error)
    assert not is_modern(RpcError(-32601, "x"))


def test_protocol_eras_and_version_negotiation():
    assert [era_of(version) for version in ("2024-11-05", "2026-07-28", "2027-01-01")] == [
        "handshake",
        "stateless",
        None,
    ]
    assert negotiate_version("2025-03-26") == "2025-03-26"
    assert negotiate_version("1999-01-01") == negotiate_version(LATEST) == "2025-11-25"
    assert not since("zzz", "2024-11-05")


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        ({"_meta": 7}, INVALID_PARAMS),
        ({"_meta": {PROTOCOL_VERSION: 7, CLIENT_CAPABILITIES: {}}}, INVALID_PARAMS),
        ({"_meta": {PROTOCOL_VERSION: LATEST}}, INVALID_PARAMS),
        ({"_meta": {"progressToken": 1.5}}, INVALID_PARAMS),
    ],
)
def test_incomplete_meta_is_rejected(raw, code):
    with pytest.raises(RpcError) as caught:
        read_meta(raw)
    assert (caught.value.code, caught.value.status) == (code, 400)


def test_meta_round_trips():
    meta = Meta(
        LATEST,
        {"name": "x", "version": "1"},
        {"elicitation": {}},
        "info",
        7,
        TraceContext("00-a", "b=c", "d=e"),
        "key",
        {"com.example/x": [1]},
    )
    assert read_meta(with_meta({"name": "t"}, meta)) == meta
    assert with_meta({"a": 1}, Meta()) == {"a": 1}


@pytest.mark.parametrize(
    "params", [{}, {"name": 7}, {"name": "t", "arguments": []}, {"name": "t", "inputResponses": 1}]
)
def test_a_malformed_call_is_a_protocol_error(params):
    with pytest.raises(RpcError) as caught:
        read_call(RpcRequest(1, "tools/call", params))
    assert caught.value.code == INVALID_PARAMS


def test_incomplete_call_is_not_sent():
    with pytest.raises(EncodeError):
        call_request(1, ToolCall("c", "t", None, '{"a": 1', "truncated"), META)


def test_structured_content_is_also_written_as_text():
    out = encode_result(ToolResult("c", "t", (), {"a": 1}))
    assert out["content"] == [{"type": "text", "text": '{"a":1}'}]
    assert out["structuredContent"] == {"a": 1}


@pytest.mark.parametrize("version", HANDSHAKE)
def test_structured_content_follows_the_protocol_version(version):
    losses = Losses()
    array = encode_result(ToolResult("c", "t", (), [1]), version=version, losses=losses)
    assert "structuredContent" not in array
    assert len(losses) == 1
    assert ("structuredContent" in encode_result(ToolResult("c", "t", (), {}), version=version)) is (
        version >= "2025-06-18"
    )


def test_stateless_result_includes_the_server_info():
    out = encode_result(CALL.result("x"), server={"name": "s", "version": "1"})
    assert out["_meta"] == {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}}
    assert out["resultType"] == "complete"


def test_result_of_an_unknown_type_is_rejected():
    with pytest.raises(ProtocolError):
        read_result({"resultType": "task", "content": []}, CALL)


def test_blocks_unknown_to_an_old_version_are_rewritten():
    losses = Losses()
    parts = (Media("audio", "audio/wav", "AAAA"), Media("file", url="https://example.com/a.txt"))
    audio, link = encode_content(parts, version="2024-11-05", losses=losses)
    assert audio["type"] == "resource"
    assert audio["resource"]["blob"] == "AAAA"
    assert link == {"type": "text", "text": "a.txt: https://example.com/a.txt"}
    assert [loss.action for loss in losses] == ["rewritten", "rewritten"]


def test_unsupported_content_is_replaced_by_a_placeholder_with_a_loss():
    losses = Losses()
    parts = (Opaque("gemini", "executableCode", {}), Media("image", file_id="f", owner="openai"))
    blocks = encode_content(parts, losses=losses)
    assert [block["text"] for block in blocks] == ["[executableCode left out]", "[image left out]"]
    assert [loss.severity for loss in losses] == ["error", "error"]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "image/png", "blob": "AAAA"}},
        {"type": "resource", "resource": {"uri": "file:///a"}, "annotations": {"priority": 1}},
        {"type": "holo", "x": 1},
        {"type": "text", "text": "a", "_meta": {"k": 1}},
    ],
)
def test_content_blocks_round_trip(block):
    assert encode_content(decode_content({"content": [block]})) == [block]


@pytest.mark.parametrize("block", [7, {}, {"type": "text"}, {"type": "image"}, {"type": "resource"}])
def test_malformed_block_error_has_a_pointer(block):
    with pytest.raises(ProtocolError) as caught:
        decode_content({"content": [{"type": "text", "text": ""}, block]})
    assert caught.value.pointer.startswith("/content/1")


def test_tool_declarations_follow_the_protocol_version():
    tool = Tool("t", output_schema={"type": "array"}, effect="read")
    (new,), _ = encode_tools((tool,))
    (middle,), losses = encode_tools((tool,), version="2025-11-25")
    (old,), _ = encode_tools((tool,), version="2024-11-05")
    assert "outputSchema" in new
    assert "outputSchema" not in middle
    assert [loss.concept for loss in losses] == ["output schema"]
    assert middle["annotations"] == {"readOnlyHint": True, "idempotentHint": True}
    assert "annotations" not in old


def test_effect_annotations_keep_other_tool_fields():
    (tool,) = decode_tools([{"name": "t", "inputSchema": {"type": "object"}, "title": "T"}])
    (written,), _ = encode_tools((msgspec.structs.replace(tool, effect="idempotent"),))
    assert written["annotations"] == {"readOnlyHint": False, "idempotentHint": True}
    assert written["title"] == "T"


def test_handshake_messages_are_read_and_written():
    request = initialize_request(1, {"name": "c", "version": "1"}, {"roots": {}}, "2025-06-18")
    hello = read_initialize(request.params)
    assert (hello.version, hello.capabilities, hello.client["name"]) == ("2025-06-18", {"roots": {}}, "c")
    with pytest.raises(RpcError):
        read_initialize({})
    card = read_initialized({"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "s"}})
    assert card.versions == ("2025-06-18",)
    assert card.initialize_result("2025-06-18")["serverInfo"] == {"name": "s"}


def test_list_pages_are_read_and_written():
    request = list_request(1, "tools/list", META, "next")
    assert request.params["cursor"] == "next"
    page = read_page({"tools": [1], "nextCursor": "n", "ttlMs": 5, "cacheScope": "public"}, "tools")
    assert (page.items, page.cursor, page.ttl_ms, page.scope) == ([1], "n", 5, "public")
    assert page.to_json("tools", version=LATEST)["ttlMs"] == 5
    assert page.to_json("tools", version="2025-11-25") == {"tools": [1], "nextCursor": "n"}
    with pytest.raises(ProtocolError):
        read_page({}, "tools")


def test_notifications_round_trip():
    progress = read_progress({"progressToken": "a", "progress": 0.5, "total": 1, "message": "m"})
    assert read_progress(progress.to_notification().params) == progress
    cancelled = read_cancelled({"requestId": 1, "reason": "r"})
    assert read_cancelled(cancelled.to_notification().params) == cancelled
    log = read_log({"level": "error", "data": {"x": 1}, "logger": "l"})
    assert read_log(log.to_notification().params) == log
    assert is_level_enabled("error", "warning")
    assert not is_level_enabled("info", "warning")
    assert not is_level_enabled("error", None)
    for broken in ({}, {"progressToken": 1.5, "progress": 1}, {"progressToken": 1}):
        with pytest.raises(ProtocolError):
            read_progress(broken)


MIRRORED = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "many": {"type": "integer", "x-mcp-header": "Many"},
        "deep": {"type": "object", "properties": {"on": {"type": ["boolean", "null"], "x-mcp-header": "On"}}},
    },
}


def call_with_arguments(arguments):
    return call_request(1, ToolCall("1", "t", arguments), META)


def test_marked_arguments_are_sent_as_headers_and_checked_against_the_body():
    marks = find_header_arguments(MIRRORED)
    request = call_with_arguments({"region": "Zürich", "many": 42, "deep": {"on": True}})
    headers = request_headers(request, marks)
    assert headers["mcp-param-region"].startswith("=?base64?")
    assert (headers["mcp-param-many"], headers["mcp-param-on"], headers["mcp-name"]) == ("42", "true", "t")
    check_headers(headers, request, LATEST, marks)
    check_headers({**headers, "mcp-param-many": "42.0"}, request, LATEST, marks)
    assert "mcp-param-on" not in request_headers(call_with_arguments({"deep": {"on": None}}), marks)


@every_case(
    ("name", "value"),
    [
        ("mcp-method", "tools/list"),
        ("mcp-method", "Tools/Call"),
        ("mcp-name", "other"),
        ("mcp-name", "=?base64?###?="),
        ("mcp-protocol-version", "2025-11-25"),
        ("mcp-param-region", "elsewhere"),
        ("mcp-param-region", "b\x00d"),
        ("mcp-param-region", None),
        ("mcp-param-on", "true"),
        ("mcp-method", None),
        ("mcp-protocol-version", None),
    ],
)
def test_headers_that_contradict_the_body_are_rejected(name, value):
    marks = find_header_arguments(MIRRORED)
    request = call_with_arguments({"region": "here"})
    headers = request_headers(request, marks)
    headers.pop(name, None)
    if value is not None:
        headers[name] = value
    with pytest.raises(RpcError) as caught:
        check_headers(headers, request, LATEST, marks)
    assert (caught.value.code, caught.value.status) == (HEADER_MISMATCH, 400)


@every_case(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": ""}}},
        {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "a b"}}},
        {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": 7}}},
        {"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}},
        {"type": "object", "properties": {"a": {"x-mcp-header": "A"}}},
        {"type": "object", "x-mcp-header": "A"},
        {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}}},
        {"type": "object", "$defs": {"x": {"type": "string", "x-mcp-header": "A"}}},
        {"type": "object", "anyOf": [{"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}]},
        {
            "type": "object",
            "properties": {
                "a": {"type": "string", "x-mcp-header": "A"},
                "b": {"type": "string", "x-mcp-header": "a"},
            },
        },
    ],
)
def test_invalid_header_marks_are_rejected(schema):
    with pytest.raises(SchemaError):
        find_header_arguments(schema)


def test_header_mark_in_data_or_property_names_is_ignored():
    assert (
        find_header_arguments({"type": "object", "default": {"x-mcp-header": "A"}, "properties": {"x-mcp-header": {}}})
        == {}
    )
    assert find_header_arguments(None) == {}
