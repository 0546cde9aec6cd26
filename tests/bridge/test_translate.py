"""The front door: documents, streams, tools, errors."""

import json

import pytest

import toolwire
import toolwire.wire
from tables import every_case
from toolwire.ir import ConfigError, EncodeError, LossError, ProtocolError
from toolwire.wire import get

BODY = {
    "model": "m",
    "messages": [{"role": "user", "content": "hi"}],
    "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}],
}


def test_a_document_may_be_an_object_text_or_bytes():
    bodies = [
        toolwire.translate(form, source="openai_chat", target="gemini").body
        for form in (BODY, json.dumps(BODY), json.dumps(BODY).encode())
    ]
    assert bodies[0] == bodies[1] == bodies[2]


def test_translation_converts_to_bytes():
    translated = toolwire.translate(BODY, source="openai_chat", target="anthropic")
    assert json.loads(bytes(translated)) == translated.body


def test_the_input_is_not_changed():
    before = json.dumps(BODY)
    for target in ("anthropic", "gemini", "openai_responses"):
        toolwire.translate(BODY, source="openai_chat", target=target)
    assert json.dumps(BODY) == before


def test_strict_rejects_losses_but_allows_notes():
    with pytest.raises(LossError) as caught:
        toolwire.translate({**BODY, "temperature": 1}, source="openai_chat", target="anthropic", strict=True)
    assert [loss.path for loss in caught.value.losses] == ["/temperature"]
    translated = toolwire.translate(BODY, source="openai_chat", target="anthropic", strict=True)
    assert {loss.severity for loss in translated.losses} == {"info"}


@pytest.mark.parametrize(
    "field", [{"prompt_cache_retention": "24h"}, {"prompt_cache_options": {"mode": "explicit", "ttl": "1h"}}]
)
@pytest.mark.parametrize("target", ["openai_chat", "openai_responses"])
def test_fields_of_both_wires_of_openai_are_kept(target, field):
    """openai 3.49.0: types/chat/completion_create_params.py and types/responses/response_create_params.py."""
    body = {"model": "gpt-5.1", "messages": [{"role": "user", "content": "hi"}], **field, "audio": {"voice": "ash"}}
    if target == "openai_chat":
        body = {"model": "gpt-5.1", "input": "hi", **field, "max_tool_calls": 3}
    source = "openai_responses" if target == "openai_chat" else "openai_chat"
    translated = toolwire.translate(body, source=source, target=target)
    assert field.items() <= translated.body.items()
    assert ["/max_tool_calls" if target == "openai_chat" else "/audio"] == [
        loss.path for loss in translated.losses if loss.detail.startswith("specific to")
    ]
    assert toolwire.translate(body, source=source, target=source).body == body
    (path,) = field
    assert f"/{path}" in [loss.path for loss in toolwire.translate(body, source=source, target="gemini").losses]


def test_the_model_can_be_set():
    translated = toolwire.translate(BODY, source="openai_chat", target="anthropic", model="claude-x")
    assert translated.body["model"] == translated.model == "claude-x"
    same = toolwire.translate(BODY, source="openai_chat", target="openai_chat", model="other")
    assert same.body == {**BODY, "model": "other"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"source": "nope", "target": "gemini"}, "unknown wire"),
        ({"source": "gemini", "target": "nope"}, "unknown wire"),
        ({"source": "openai_chat", "target": "gemini", "kind": "poem"}, "unknown kind"),
        ({"source": "nope", "target": "nope"}, "unknown wire"),
    ],
)
def test_wrong_usage_raises_a_config_error(arguments, words):
    with pytest.raises(ConfigError, match=words):
        toolwire.translate(BODY, **arguments)


def test_translated_tool_lists_keep_their_container():
    tools = BODY["tools"]
    assert toolwire.translate(tools, source="openai_chat", target="mcp", kind="tools").body == [
        {"name": "f", "description": "d", "inputSchema": {"type": "object"}}
    ]
    wrapped = toolwire.translate({"tools": tools}, source="openai_chat", target="anthropic", kind="tools").body
    assert wrapped == {"tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}]}
    one = {"name": "f", "inputSchema": {"type": "object"}}
    assert toolwire.translate(one, source="mcp", target="openai_chat", kind="tools").body[0]["function"]["name"] == "f"
    with pytest.raises(ProtocolError):
        toolwire.translate("3", source="mcp", target="openai_chat", kind="tools")


@every_case("source", ["anthropic", "gemini", "openai_chat", "openai_responses", "mcp"])
@every_case("target", ["anthropic", "gemini", "openai_chat", "openai_responses", "mcp"])
def test_tools_translate_between_all_wires(source, target):
    mcp = [
        {"name": "f", "description": "d", "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}}}
    ]
    there = toolwire.translate(mcp, source="mcp", target=source, kind="tools").body
    carried = toolwire.translate(there, source=source, target=target, kind="tools").body
    assert toolwire.translate(carried, source=target, target="mcp", kind="tools").body == mcp


def test_standalone_errors_are_translated():
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}
    translated = toolwire.translate(body, source="anthropic", target="gemini", kind="error")
    assert translated.status == 429
    assert translated.body["error"]["status"] == "RESOURCE_EXHAUSTED"
    page = toolwire.translate(b"<html>", source="anthropic", target="openai_chat", kind="error")
    assert page.status == 500


def test_same_wire_translation_returns_the_input():
    assert toolwire.translate(BODY, source="gemini", target="gemini").body is BODY
    stream = toolwire.translate_stream(source="gemini", target="gemini")
    data = b"anything at all"
    assert stream.feed(data) is data
    assert stream.close() == b""


def test_loss_paths_point_into_the_source_document():
    body = {
        "model": "m",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "q"}, {"type": "container_upload", "file_id": "f"}]}
        ],
        "tools": [{"name": "f", "input_schema": {"type": "object"}, "defer_loading": True}],
        "metadata": {"user_id": "u"},
    }
    paths = {loss.path for loss in toolwire.translate(body, source="anthropic", target="gemini").losses}
    assert {"/system/0/cache_control", "/messages/0/content/1", "/tools/0/defer_loading", "/metadata"} <= paths


def test_broken_stream_ends_in_an_error_after_the_valid_events():
    good = b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"sound"},"finish_reason":null}]}\n\n'
    for pieces in ([good + b"data: {broken\n\n"], [good, b"data: {bro", b"ken\n\n"]):
        translation = toolwire.translate_stream(source="openai_chat", target="anthropic")
        out = b"".join(map(translation.feed, pieces)) + translation.close()
        assert b'"sound"' in out
        assert b"event: error" in out
        assert isinstance(translation.error, ProtocolError)
        assert translation.feed(good) == b""


def test_tools_called_in_the_history_are_declared_for_anthropic():
    body = {
        "model": "m",
        "messages": [
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "a", "content": "ok"},
        ],
    }
    sent = toolwire.translate(body, source="openai_chat", target="anthropic").body
    assert sent["tools"] == [{"name": "f", "input_schema": {"type": "object"}}]
    assert sent["tool_choice"] == {"type": "none"}
    assert "tools" not in toolwire.translate(body, source="openai_chat", target="gemini").body


def test_empty_tools_and_tool_choice_are_not_sent():
    for target in ("anthropic", "gemini", "openai_responses"):
        sent = toolwire.translate(
            {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [], "tool_choice": "auto"},
            source="openai_chat",
            target=target,
        ).body
        assert not {"tools", "tool_choice", "toolConfig"} & set(sent)


UUID = "5ec2e7aa-0000-4000-8000-000000000000"
CODING_AGENT = {
    "model": "m",
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "hi"}],
    "metadata": {"user_id": '{"device_id": "secret"}'},
}


@pytest.mark.parametrize(
    "user_id",
    [
        '{"device_id": "secret"}',
        ' \n{"device_id": "secret"}',
        f"user_{'5ec2e7' * 10}_account_{UUID}_session_{UUID}",
        f"user_{'5ec2e7' * 10}_account__session_{UUID}",
    ],
)
def test_id_of_claude_code_is_not_sent_to_another_provider(user_id):
    body = CODING_AGENT | {"metadata": {"user_id": user_id}}
    translated = toolwire.translate(body, source="anthropic", target="openai_chat", strict=True)
    assert "user" not in translated.body
    assert "safety_identifier" not in translated.body
    assert [(loss.path, loss.severity) for loss in translated.losses] == [("/metadata/user_id", "info")]
    assert toolwire.translate(body, source="anthropic", target="anthropic").body["metadata"] == body["metadata"]


@pytest.mark.parametrize(
    "user_id", ["ann", "user_1_account_2", "user_account_session", "my user_1_account_2_session_3"]
)
def test_id_of_another_client_is_the_user(user_id):
    body = CODING_AGENT | {"metadata": {"user_id": user_id}}
    assert toolwire.translate(body, source="anthropic", target="openai_chat").body["user"] == user_id


def test_json_user_id_is_kept_between_requests_of_its_provider():
    anthropic = toolwire.wire.get("anthropic")
    fitted = toolwire.prepare(anthropic.decode_request(CODING_AGENT), anthropic)
    assert anthropic.encode_request(fitted.request).body == CODING_AGENT
    assert not fitted.losses


def test_user_of_other_wires_is_an_id_whatever_its_text():
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "user": "{ann}"}
    assert toolwire.translate(body, source="openai_chat", target="openai_responses").body["user"] == "{ann}"


def test_files_of_one_provider_are_not_sent_to_another():
    body = {
        "model": "m",
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "see"}, {"type": "file", "file": {"file_id": "file-1"}}],
            }
        ],
    }
    translated = toolwire.translate(body, source="openai_chat", target="anthropic")
    assert "file-1" not in str(translated.body)
    assert [loss.severity for loss in translated.losses if loss.path == "/messages/0/content/1"] == ["error"]
    assert "file-1" in str(toolwire.translate(body, source="openai_chat", target="openai_responses").body)


def test_loss_paths_of_a_response_point_into_it():
    body = {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "model": "m",
        "service_tier": "flex",
        "output": [
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [
                    {"type": "output_text", "text": "a", "annotations": []},
                    {
                        "type": "output_text",
                        "text": "b",
                        "annotations": [{"type": "file_citation", "file_id": "file_1"}],
                    },
                ],
            },
            {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        ],
    }
    losses = toolwire.translate(body, source="openai_responses", target="openai_chat", kind="response").losses
    assert {loss.path for loss in losses if loss.severity != "info"} == {
        "/output/0",
        "/output/1/content/1/annotations",
        "/output/2",
    }
    assert "/service_tier" in {loss.path for loss in losses}


@pytest.mark.parametrize(
    ("source", "body", "path"),
    [
        (
            "gemini",
            {
                "candidates": [
                    {"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"},
                    {"content": {"parts": [{"executableCode": {"code": "1"}}]}, "finishReason": "STOP", "index": 1},
                ]
            },
            "/candidates/1/content/parts/0",
        ),
        (
            "anthropic",
            {
                "type": "message",
                "content": [{"type": "text", "text": "a"}, {"type": "redacted_thinking", "data": "x"}],
                "stop_reason": "pause_turn",
            },
            "/stop_reason",
        ),
    ],
)
def test_loss_paths_are_correct_for_responses_of_every_wire(source, body, path):
    translation = toolwire.translate(body, source=source, target="openai_chat", kind="response")
    assert path in {loss.path for loss in translation.losses}


def test_loss_path_is_correct_after_thousands_of_messages():
    items = [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}] * 3000
    items.append(
        {"role": "user", "content": [{"type": "input_text", "text": "x"}, {"type": "input_file", "file_id": "f"}]}
    )
    losses = toolwire.translate({"model": "m", "input": items}, source="openai_responses", target="gemini").losses
    assert "/input/3000/content/1" in {loss.path for loss in losses}


def test_same_wire_bytes_are_unchanged():
    raw = b'{ "messages": [],\n "model":"m\\u00e9", "x": 1.0 }'
    assert bytes(toolwire.translate(raw, source="openai_chat", target="openai_chat")) == raw


def test_lost_error_fields_are_reported():
    body = {"error": {"message": "no", "type": "invalid_request_error", "param": "tools[0]", "code": "bad_tool"}}
    translation = toolwire.translate(body, source="openai_chat", target="anthropic", kind="error")
    assert {loss.path for loss in translation.losses} == {"/error/param"}
    assert not toolwire.translate(body, source="openai_chat", target="openai_responses", kind="error").losses


def test_json_rpc_discovery_reply_is_accepted():
    reply = {"jsonrpc": "2.0", "id": 1, "result": {"tools": [{"name": "f", "inputSchema": {"type": "object"}}]}}
    (tool,) = toolwire.translate(reply, source="mcp", target="openai_chat", kind="tools").body
    assert tool["function"]["name"] == "f"


def test_a_block_in_a_result_reaches_the_model_as_text():
    found = {
        "type": "search_result",
        "source": "https://e.com",
        "title": "T",
        "content": [{"type": "text", "text": "x"}],
    }
    body = {
        "model": "m",
        "max_tokens": 5,
        "messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [found]}]},
        ],
    }
    translation = toolwire.translate(body, source="anthropic", target="openai_chat")
    assert json.loads(translation.body["messages"][-1]["content"]) == found
    assert ("/messages/1/content/0", "rewritten") in {(loss.path, loss.action) for loss in translation.losses}


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [], "tools": [{"function": {"name": "f"}, "z": 1}]},
        {
            "messages": [
                {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "n"}]}
            ]
        },
        {"messages": [], "response_format": {"type": "json_schema", "json_schema": {"name": "n", "q": 1}, "z": 1}},
    ],
)
def test_unknown_fields_are_kept_on_their_own_wire(body):
    chat = toolwire.wire.get("openai_chat")
    assert chat.encode_request(chat.decode_request(body)).body == body


LOGPROBS = "message.output_text.logprobs"


def test_request_for_log_probabilities_is_not_also_reported_as_dropped():
    body = {"model": "gpt-5.2", "input": "hi", "include": [LOGPROBS], "top_logprobs": 2}
    translated = toolwire.translate(body, source="openai_responses", target="openai_chat")
    assert (translated.body["logprobs"], translated.body["top_logprobs"]) == (True, 2)
    assert translated.losses == ()
    wire = toolwire.wire.get("openai_responses")
    assert wire.encode_request(wire.decode_request(body)).body == body


def test_loss_of_log_probabilities_points_at_the_entry_that_requests_them():
    body = {"model": "gpt-5.2", "input": "hi", "max_output_tokens": 99, "include": [LOGPROBS]}
    losses = toolwire.translate(body, source="openai_responses", target="anthropic").losses
    assert [(loss.path, loss.action) for loss in losses] == [("/include", "dropped")]


@pytest.mark.parametrize(
    ("source", "target", "model", "body", "pointer"),
    [
        (
            "gemini",
            "anthropic",
            "claude-opus-5",
            {"contents": [{"role": "user", "parts": [{"text": "a"}]}, {"role": "model", "parts": [{"text": "b"}]}]},
            "/contents/1",
        ),
        (
            "openai_chat",
            "gemini",
            "gemini-3.5-flash",
            {**BODY, "tools": [*BODY["tools"], *BODY["tools"]]},
            "/tools/1/function/name",
        ),
    ],
)
def test_refusal_of_a_request_points_into_the_source_document(source, target, model, body, pointer):
    with pytest.raises(EncodeError) as caught:
        toolwire.translate(body, source=source, target=target, model=model)
    assert caught.value.pointer == pointer


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (429, {"message": "Too many requests"}, "rate_limit"),
        (529, b"<html><h1>502 Bad Gateway</h1></html>", "overloaded"),
        (401, b"no key", "authentication"),
    ],
)
def test_status_decides_the_kind_of_an_error_without_one(status, body, kind):
    headers = {"retry-after": "7"}
    translated = toolwire.translate_error(
        body, source="anthropic", target="openai_chat", status=status, headers=headers
    )
    fault = get("openai_chat").decode_error(translated.status, translated.body, dict(translated.headers))
    assert (fault.kind, fault.retry_after) == (kind, 7.0)
    if body == b"no key":
        assert fault.message == "no key"


@pytest.mark.parametrize("target", ["openai_chat", "anthropic", "openai_responses", "ollama"])
def test_model_that_the_source_has_in_its_url_is_a_loss_for_a_target_that_needs_it(target):
    body = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    translated = toolwire.translate(body, source="gemini", target=target)
    assert ("model", "error") in {(loss.concept, loss.severity) for loss in translated.losses}
    with pytest.raises(LossError):
        toolwire.translate(body, source="gemini", target=target, strict=True)
    named = toolwire.translate(body, source="gemini", target=target, model="m", strict=True)
    assert named.body["model"] == "m"
