"""calls, results, detect, list_tools."""

import json

import pytest

import toolwire
from tables import every_case
from toolwire.ir import ProtocolError

ANSWERS = {
    "openai_chat": {
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}],
                },
                "finish_reason": "tool_calls",
            }
        ]
    },
    "openai_responses": {
        "object": "response",
        "status": "completed",
        "output": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'}],
    },
    "anthropic": {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}],
        "stop_reason": "tool_use",
    },
    "gemini": {
        "candidates": [
            {"content": {"parts": [{"functionCall": {"name": "f", "args": {"a": 1}}}]}, "finishReason": "STOP"}
        ]
    },
}


@pytest.mark.parametrize("wire", ANSWERS)
def test_calls_are_read_from_a_response_of_any_wire(wire):
    for body in (ANSWERS[wire], json.dumps(ANSWERS[wire]), json.dumps(ANSWERS[wire]).encode()):
        (call,) = toolwire.calls(body)
        assert (call.name, call.arguments, call.state) == ("f", {"a": 1}, "complete")
        assert call.id


@pytest.mark.parametrize("wire", ANSWERS)
def test_calls_are_read_from_a_stream_of_any_wire(wire):
    codec = toolwire.wire.get(wire)
    encoder = codec.stream_encoder()
    data = b"".join(encoder.feed(event) for event in toolwire.unfold(codec.decode_response(ANSWERS[wire])))
    (call,) = toolwire.calls(data)
    assert call.arguments == {"a": 1}
    with pytest.raises(toolwire.TruncatedStream):
        toolwire.calls(data[: len(data) // 2], wire)


def test_calls_of_a_request_raise():
    with pytest.raises(ProtocolError, match="expected an answer"):
        toolwire.calls({"model": "m", "messages": [{"role": "user", "content": "hi"}]})


def test_calls_of_an_error_raise():
    with pytest.raises(toolwire.UpstreamError, match="slow"):
        toolwire.calls({"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}})


@pytest.mark.parametrize(
    ("wire", "messages"),
    [
        (
            "openai_chat",
            [
                {"role": "tool", "tool_call_id": "c", "content": "22"},
                {"role": "tool", "tool_call_id": "d", "content": "[tool error] boom"},
            ],
        ),
        (
            "openai_responses",
            [
                {"type": "function_call_output", "call_id": "c", "output": "22"},
                {"type": "function_call_output", "call_id": "d", "output": "[tool error] boom"},
            ],
        ),
        (
            "anthropic",
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "c", "content": "22"},
                        {"type": "tool_result", "tool_use_id": "d", "content": "boom", "is_error": True},
                    ],
                }
            ],
        ),
        (
            "gemini",
            [
                {
                    "role": "user",
                    "parts": [
                        {"functionResponse": {"id": "c", "name": "f", "response": {"output": "22"}}},
                        {"functionResponse": {"id": "d", "name": "f", "response": {"error": "boom"}}},
                    ],
                }
            ],
        ),
    ],
)
def test_results_are_encoded_as_messages(wire, messages):
    one, two = toolwire.ToolCall("c", "f", {}), toolwire.ToolCall("d", "f", {})
    assert toolwire.results([one.result("22"), two.result("boom", is_error=True)], wire) == messages


def test_image_result_is_placed_where_the_wire_allows_it():
    image = toolwire.Media("image", "image/png", "iVBO")
    result = toolwire.ToolResult("c", "f", (toolwire.Text("see"), image))
    chat = toolwire.results([result], "openai_chat")
    assert [message["role"] for message in chat] == ["tool", "user"]
    anthropic = toolwire.results([result], "anthropic")
    assert anthropic[0]["content"][0]["content"][1]["type"] == "image"


def test_list_tools_raises_for_wires_without_discovery():
    with pytest.raises(toolwire.ToolwireError, match="no discovery reply"):
        toolwire.list_tools({}, "gemini")
    assert toolwire.list_tools('{"tools": [{"name": "f"}]}', "mcp")[0].name == "f"


@every_case(
    ("body", "wire", "kind"),
    [
        ({"model": "m", "messages": [{"role": "user", "content": "hi"}]}, "openai_chat", "request"),
        (
            {"model": "claude-x", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]},
            "anthropic",
            "request",
        ),
        ({"model": "m", "input": "hi"}, "openai_responses", "request"),
        ({"contents": []}, "gemini", "request"),
        ([{"name": "f", "inputSchema": {}}], "mcp", "tools"),
        ([{"name": "f", "input_schema": {}}], "anthropic", "tools"),
        ({"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "x"}}, "gemini", "error"),
        ({"error": {"message": "x", "type": "y"}}, "openai_chat", "error"),
        (b'event: message_start\ndata: {"type": "message_start"}\n\n', "anthropic", "stream"),
        ('data: {"object": "chat.completion.chunk", "choices": []}\n\n', "openai_chat", "stream"),
        ({"model": "gpt", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}, "openai_chat", "request"),
        (
            {"model": "claude-x", "max_tokens": 5, "messages": [{"role": "system", "content": "s"}]},
            "openai_chat",
            "request",
        ),
        ('data: {"error": {"code": 503, "message": "x", "status": "UNAVAILABLE"}}\n\n', "gemini", "stream"),
        ('event: error\ndata: {"type": "error", "error": {"type": "api_error"}}\n\n', "anthropic", "stream"),
    ],
)
def test_detect_finds_wire_and_kind(body, wire, kind):
    found = toolwire.detect(body)
    assert (found.wire, found.kind) == (wire, kind)


@pytest.mark.parametrize("body", [{}, [], 3, {"hello": "world"}, b"data: [DONE]\n\n", "{}"])
def test_undetectable_document_raises_with_a_hint(body):
    with pytest.raises(ProtocolError) as caught:
        toolwire.detect(body)
    assert caught.value.hint or "stream" in caught.value.message
