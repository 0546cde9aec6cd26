"""What is accepted beyond what is sent."""

import pytest

from toolwire.ir import ConfigError, ProtocolError
from toolwire.testing import same
from toolwire.wire import get, mcp

SCHEMA = {"type": "object", "properties": {}}


def test_camel_case_and_snake_case_gemini_fields_are_equivalent():
    camel = {
        "contents": [
            {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": "s"}]}
        ],
        "systemInstruction": {"parts": [{"text": "s"}]},
        "tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": SCHEMA}]}],
        "generationConfig": {"maxOutputTokens": 5, "topK": 3},
    }
    snake = {
        "contents": [
            {"role": "model", "parts": [{"function_call": {"name": "f", "args": {"a": 1}}, "thought_signature": "s"}]}
        ],
        "system_instruction": {"parts": [{"text": "s"}]},
        "tools": [{"function_declarations": [{"name": "f", "parameters_json_schema": SCHEMA}]}],
        "generation_config": {"max_output_tokens": 5, "top_k": 3},
    }
    wire = get("gemini")
    assert same(wire.decode_request(camel), wire.decode_request(snake))
    assert wire.encode_request(wire.decode_request(snake)).body == snake


def test_short_forms_of_gemini_contents_are_accepted():
    body = {"contents": [{"parts": {"text": "hi"}}], "systemInstruction": "be brief"}
    request = get("gemini").decode_request(body)
    assert [message.parts[0].text for message in request.messages] == ["be brief", "hi"]


@pytest.mark.parametrize("role", ["tool", "function"])
def test_gemini_results_may_have_a_role_of_their_own(role):
    """google-genai's README sends results with the role `tool`."""
    result = {"functionResponse": {"name": "f", "response": {"result": 1}}}
    body = {"contents": [{"role": role, "parts": [result]}]}
    request = get("gemini").decode_request(body)
    assert request.messages[0].role == "user"
    assert get("gemini").encode_request(request).body == body


def test_gemini_stream_as_a_json_array_is_accepted():
    data = b'[{"candidates": [{"content": {"role": "model", "parts": [{"text": "a"}]}, "index": 0}]}\n,\r\n'
    data += b'{"candidates": [{"content": {"role": "model", "parts": [{"text": "b"}]}, "finishReason": "STOP", "index": 0}]}]'
    from toolwire.ir import fold

    for size in (1, 7, len(data)):
        decoder = get("gemini").stream_decoder()
        events = [event for start in range(0, len(data), size) for event in decoder.feed(data[start : start + size])]
        assert fold(events + decoder.close()).text == "ab"


def test_gemini_error_in_a_list_is_accepted():
    fault = get("gemini").decode_error(
        429, [{"error": {"code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED"}}]
    )
    assert (fault.kind, fault.message) == ("rate_limit", "quota")


def test_short_forms_of_chat_images_and_arguments_are_accepted():
    body = {
        "messages": [{"role": "user", "content": ["bare", {"type": "image_url", "image_url": "https://e.com/a.png"}]}]
    }
    wire = get("openai_chat")
    request = wire.decode_request(body)
    assert request.messages[0].parts[1].url == "https://e.com/a.png"
    assert wire.encode_request(request).body == body
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
    assert wire.decode_request({"messages": [{"role": "assistant", "tool_calls": [call]}]}).messages[0].parts[
        0
    ].arguments == {"x": 1}


@pytest.mark.parametrize(
    "body",
    [
        {"message": "flat", "type": "invalid_request_error", "param": None, "code": "3280"},
        {"error": "just words"},
        "just words",
        b"just words",
        None,
        [],
        {"error": {"message": None}},
    ],
)
def test_errors_of_every_shape_are_decoded(body):
    for name in ("openai_chat", "openai_responses", "anthropic", "gemini"):
        fault = get(name).decode_error(400, body)
        assert fault.status == 400
        assert fault.message


def test_missing_status_is_derived_from_the_body():
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": "x"}}
    assert get("anthropic").decode_error(None, body).status == 429


def test_discovery_replies_are_read():
    listed = {
        "jsonrpc": "2.0",
        "id": 1,
        "result": {"tools": [{"name": "f", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}}]},
    }
    (tool,) = mcp.list_tools(listed)
    assert (tool.name, tool.input_schema, tool.effect) == ("f", SCHEMA, "read")
    assert mcp.list_tools(listed["result"]) == mcp.list_tools(listed["result"]["tools"]) == (tool,)
    assert mcp.encode_tools((tool,))[0] == listed["result"]["tools"]

    searched = {
        "output": [
            {
                "type": "tool_search_output",
                "tools": [{"type": "function", "name": "f", "parameters": SCHEMA, "strict": False}],
            }
        ]
    }
    assert get("openai_responses").list_tools(searched)[0].input_schema == SCHEMA
    mcp_item = {
        "type": "mcp_list_tools",
        "id": "m",
        "server_label": "s",
        "tools": [{"name": "g", "input_schema": SCHEMA}],
    }
    assert get("openai_responses").list_tools([mcp_item])[0].name == "g"

    block = {
        "type": "tool_search_tool_result",
        "tool_use_id": "s",
        "content": {
            "type": "tool_search_tool_search_result",
            "tool_references": [{"type": "tool_reference", "tool_name": "f"}],
        },
    }
    assert get("anthropic").list_tools({"type": "message", "content": [block]})[0].name == "f"
    assert get("anthropic").list_tools(block)[0].name == "f"

    for name in ("openai_chat", "gemini"):
        with pytest.raises(ConfigError, match="no discovery reply"):
            get(name).list_tools({})
    for name, body in (("anthropic", {"type": "message", "content": []}), ("openai_responses", {"output": []})):
        with pytest.raises(ProtocolError):
            get(name).list_tools(body)


def test_content_rejected_by_new_anthropic_is_sent_only_to_the_old_version():
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}}
    quoted = {"type": "text", "text": "q", "citations": [{"type": "char_location", "cited_text": "q"}]}
    body = {
        "model": "m",
        "max_tokens": 9,
        "messages": [
            {"role": "user", "content": [quoted]},
            {"role": "assistant", "content": [document, {"type": "text", "text": "a"}]},
        ],
    }
    new = get("anthropic")
    written, losses = new.encode_request(new.decode_request(body))
    assert written["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "q"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "a"}]},
    ]
    assert [loss.path for loss in losses] == ["/messages/0/parts/0/citations", "/messages/1/parts/0"]
    old = get("anthropic@2023-06-01")
    assert old.encode_request(old.decode_request(body)).body == body
