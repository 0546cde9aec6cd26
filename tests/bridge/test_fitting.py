"""What `prepare` does to a request, and what the way back undoes: one rule a test."""

import json
from base64 import b64encode

import pytest

import toolwire
from toolwire.bridge.translation.exchange import Exchange
from toolwire.ir import Losses, fold
from toolwire.ir.events import CallEnd, CallStart, ResponseEnd, ResponseStart
from toolwire.ir.parts import Media
from toolwire.ir.response import Stop
from toolwire.wire import get

USER = {"role": "user", "content": "hi"}
EMPTY = {"type": "object", "properties": {}}


def tool(name, **fields):
    return {"type": "function", "function": {"name": name, "parameters": EMPTY, **fields}}


def chat(**fields):
    return {"model": "m", "messages": [USER], **fields}


def to(target, body, source="openai_chat", **options):
    return toolwire.translate(body, source=source, target=target, **options)


def concepts(translation, severity=None):
    return {loss.concept for loss in translation.losses if severity in (None, loss.severity)}


def call(call_id, name="f", arguments="{}"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


# tools and choices


@pytest.mark.parametrize(("mode", "kind"), [("auto", "auto"), ("required", "any")])
def test_only_allowed_tools_are_declared_on_wires_without_an_allow_list(mode, kind):
    allowed = {"mode": mode, "tools": [{"type": "function", "function": {"name": "a"}}]}
    body = chat(tools=[tool("a"), tool("b")], tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
    written = to("anthropic", body).body
    assert [one["name"] for one in written["tools"]] == ["a"]
    assert written["tool_choice"]["type"] == kind


def test_allow_list_of_undeclared_tools_forbids_calls():
    allowed = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "gone"}}]}
    body = chat(tools=[tool("a")], tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
    assert to("gemini", body).body["toolConfig"]["functionCallingConfig"]["mode"] == "NONE"


def test_unknown_allowed_tools_mode_is_rejected():
    allowed = {"mode": "bogus", "tools": []}
    body = chat(tools=[tool("a")], tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
    with pytest.raises(toolwire.ProtocolError) as caught:
        to("gemini", body)
    assert caught.value.pointer == "/tool_choice/allowed_tools/mode"


def test_unknown_fields_of_a_tool_choice_are_reported():
    body = chat(tools=[tool("f")], tool_choice={"type": "function", "function": {"name": "f", "zz": 1}, "yy": 2})
    told = {loss.concept for loss in to("gemini", body).losses}
    assert {"choice zz", "choice yy"} <= told


def test_parallel_setting_is_omitted_when_calls_are_forbidden():
    body = chat(tools=[tool("f")], tool_choice="none", parallel_tool_calls=False)
    assert to("anthropic", body).body["tool_choice"] == {"type": "none"}


@pytest.mark.parametrize(("target", "most"), [("openai_chat", 128), ("gemini", 512)])
def test_tools_above_the_limit_of_the_target_are_dropped(target, most):
    names = [f"t{number}" for number in range(most + 2)]
    body = {
        "model": "m",
        "max_tokens": 9,
        "messages": [
            USER,
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": names[-1], "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "ok"}]},
        ],
        "tools": [{"name": name, "input_schema": EMPTY} for name in names],
    }
    translation = to(target, body, source="anthropic")
    kept = get(target).decode_request(translation.body).tools
    assert [one.name for one in kept] == [names[-1]]  # it has been called
    left_out = [loss.path for loss in translation.losses if loss.concept == "tool"]
    assert left_out == [f"/tools/{number}" for number in range(most + 1)]


@pytest.mark.case("5")
def test_strict_is_removed_above_the_strict_tool_limit():
    translation = to("anthropic", chat(tools=[tool(f"t{number}", strict=True) for number in range(25)]))
    assert sum(one.get("strict", False) for one in translation.body["tools"]) == 20
    assert len([loss for loss in translation.losses if loss.concept == "strict"]) == 5


def test_examples_and_grammars_are_written_into_descriptions():
    body = {
        "model": "m",
        "max_tokens": 9,
        "messages": [USER],
        "tools": [{"name": "f", "input_schema": EMPTY, "input_examples": [{"city": "Paris"}]}],
    }
    assert '{"city":"Paris"}' in to("openai_chat", body, source="anthropic").body["tools"][0]["function"]["description"]
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: WORD"}}
    body = chat(tools=[{"type": "custom", "custom": {"name": "f", "format": grammar}}])
    written = to("anthropic", body).body["tools"][0]["input_schema"]["properties"]["input"]["description"]
    assert "lark" in written and "start: WORD" in written


def test_equal_tool_names_in_two_namespaces_stay_distinct():
    spaces = [
        {"type": "namespace", "name": name, "description": "d", "tools": [{"type": "function", "name": "get"}]}
        for name in ("a", "b")
    ]
    body = {"model": "m", "input": "hi", "tools": spaces}
    names = [one["function"]["name"] for one in to("openai_chat", body, source="openai_responses").body["tools"]]
    assert names == ["a__get", "b__get"]


# parameters


def test_surplus_stop_sequences_are_dropped_and_reported():
    body = {"model": "m", "max_tokens": 9, "messages": [USER], "stop_sequences": list("abcdef")}
    translation = to("openai_chat", body, source="anthropic")
    assert translation.body["stop"] == ["a", "b", "c", "d"]
    assert "stop sequences" in concepts(translation, "warning")


def test_streamed_chat_request_includes_usage():
    body = {"model": "m", "max_tokens": 9, "messages": [USER], "stream": True}
    assert to("openai_chat", body, source="anthropic").body["stream_options"] == {"include_usage": True}


def test_log_probabilities_set_both_chat_fields():
    body = {"contents": [{"parts": [{"text": "hi"}]}], "generationConfig": {"responseLogprobs": True, "logprobs": 3}}
    written = to("openai_chat", body, source="gemini").body
    assert (written["logprobs"], written["top_logprobs"]) == (True, 3)


def test_store_is_false_by_default_on_responses():
    assert to("openai_responses", chat()).body["store"] is False


def test_thinking_budget_is_kept_below_max_tokens():
    body = {
        "model": "m",
        "messages": [USER],
        "max_tokens": 2000,
        "thinking": {"type": "enabled", "budget_tokens": 2000},
    }
    written = to("anthropic@2023-06-01", body, source="anthropic").body
    assert written["thinking"]["budget_tokens"] < written["max_tokens"]


def test_long_cache_lifetime_becomes_one_hour_on_anthropic():
    mark = {"type": "text", "text": "x", "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}}
    body = {"model": "m", "messages": [{"role": "user", "content": [mark]}]}
    assert to("anthropic", body).body["messages"][0]["content"][0]["cache_control"]["ttl"] == "1h"


def test_unsupported_cache_mark_on_a_call_is_reported():
    body = {
        "model": "m",
        "max_tokens": 9,
        "messages": [
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "1", "name": "f", "input": {}, "cache_control": {"type": "ephemeral"}}
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "ok"}]},
        ],
    }
    assert "cache mark" in concepts(to("gemini", body, source="anthropic"))


def test_plain_text_enum_output_is_reported_as_a_loss():
    config = {"responseMimeType": "text/x.enum", "responseSchema": {"type": "STRING", "enum": ["a"]}}
    body = {"contents": [{"parts": [{"text": "hi"}]}], "generationConfig": config}
    translation = to("openai_chat", body, source="gemini")
    assert translation.body["response_format"] == {"type": "text"}
    assert [loss for loss in translation.losses if "responseMimeType" in loss.concept]


# history


def failed(content):
    return {
        "model": "m",
        "max_tokens": 9,
        "messages": [
            USER,
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "1", "is_error": True, "content": content}],
            },
        ],
    }


@pytest.mark.case("41")
@pytest.mark.parametrize("target", ["openai_chat", "openai_responses"])
def test_content_of_a_failed_result_is_kept(target):
    found = {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "x"}]}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    two = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    for content in ([found], [*two, image]):
        translation = to(target, failed(content), source="anthropic")
        said = json.dumps(translation.body)
        assert "[tool error] " in said
        assert "search_result" in said or ("one" in said and "two" in said)
    assert "image" in said  # itself, or a word in its place


def test_media_follow_all_results_of_a_turn():
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    body = {
        "model": "m",
        "max_tokens": 9,
        "messages": [
            USER,
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": name, "name": "f", "input": {}} for name in ("1", "2")],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "1", "content": [image]},
                    {"type": "tool_result", "tool_use_id": "2", "content": "ok"},
                ],
            },
        ],
    }
    roles = [message["role"] for message in to("openai_chat", body, source="anthropic").body["messages"]]
    assert roles == ["user", "assistant", "tool", "tool", "user"]


@pytest.mark.case("38")
@pytest.mark.parametrize("target", ["anthropic", "gemini", "openai_responses"])
def test_unanswered_call_gets_an_error_result(target):
    body = chat(messages=[USER, {"role": "assistant", "tool_calls": [call("1")]}, USER])
    translation = to(target, body)
    results = [
        part
        for message in get(target).decode_request(translation.body).messages
        for part in message.parts
        if isinstance(part, toolwire.ToolResult)
    ]
    assert results[0].is_error or "[tool error]" in results[0].text


@pytest.mark.case("39")
def test_result_with_an_unknown_call_id_is_not_matched_to_another_call():
    body = chat(
        messages=[
            USER,
            {"role": "assistant", "tool_calls": [call("mine")]},
            {"role": "tool", "tool_call_id": "foreign", "content": "not yours"},
        ]
    )
    translation = to("anthropic", body)
    (result,) = [block for block in translation.body["messages"][2]["content"] if block["type"] == "tool_result"]
    assert "not yours" not in json.dumps(result)
    assert "not yours" in json.dumps(translation.body["messages"])
    assert "result without a call" in concepts(translation)


def test_late_result_is_moved_and_reported():
    body = chat(
        messages=[
            USER,
            {"role": "assistant", "tool_calls": [call("1")]},
            {"role": "user", "content": "wait"},
            {"role": "tool", "tool_call_id": "1", "content": "late"},
        ]
    )
    translation = to("anthropic", body)
    assert translation.body["messages"][2]["content"][0]["type"] == "tool_result"
    assert any(loss.action == "moved" for loss in translation.losses)


@pytest.mark.case("35")
@pytest.mark.parametrize("target", ["anthropic@2023-06-01", "gemini", "openai_chat"])
def test_results_split_over_two_messages_are_merged(target):
    body = {
        "model": "m",
        "max_tokens": 9,
        "messages": [
            USER,
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": name, "name": "f", "input": {}} for name in ("1", "2")],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "a"}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "2", "content": "b"}]},
        ],
    }
    messages = get(target).decode_request(to(target, body, source="anthropic").body).messages
    if target == "openai_chat":
        assert [message.parts[0].text for message in messages[2:]] == ["a", "b"]
    else:
        assert [part.text for part in messages[2].parts] == ["a", "b"] and len(messages) == 3


def test_unknown_fields_of_result_messages_are_reported():
    body = {
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
            {"role": "user", "zz": "M", "parts": [{"functionResponse": {"name": "f", "response": {"output": 1}}}]},
        ]
    }
    assert "zz" in concepts(to("anthropic", body, source="gemini"))


@pytest.mark.case("34")
@pytest.mark.parametrize("source", ["anthropic", "openai_responses"])
def test_signed_reasoning_is_not_sent_to_another_model(source):
    bodies = {
        "anthropic": {
            "model": "one",
            "max_tokens": 9,
            "messages": [
                {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "SIG"}]},
                USER,
            ],
        },
        "openai_responses": {
            "model": "one",
            "input": [
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "SIG"},
                {
                    "type": "message",
                    "id": "msg_1",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "a"}],
                },
                {"role": "user", "content": "b"},
            ],
        },
    }
    assert "SIG" in json.dumps(to(source, bodies[source], source=source, model="one").body)
    translation = to(source, bodies[source], source=source, model="other")
    assert "SIG" not in json.dumps(translation.body) and "rs_1" not in json.dumps(translation.body)
    assert [loss for loss in translation.losses if loss.severity == "warning"]


@pytest.mark.case("32")
def test_reasoning_without_a_following_item_is_dropped():
    body = {
        "model": "one",
        "input": [
            {"role": "user", "content": "a"},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "SIG"},
            {"type": "message", "role": "assistant", "id": "msg_1", "content": [{"type": "output_text", "text": ""}]},
            {"role": "user", "content": "b"},
        ],
    }
    request = get("openai_responses").decode_request(body)
    prepared = toolwire.prepare(request, "openai_responses")
    written = get("openai_responses").encode_request(prepared.request).body
    assert "reasoning" not in json.dumps(written["input"])


@pytest.mark.case("45")
@pytest.mark.parametrize(
    ("target", "length"), [("openai_chat", 40), ("openai_responses", 64), ("anthropic", 128)], ids=str
)
def test_ids_up_to_the_length_limit_are_kept(target, length):
    def ids_of(size):
        body = {
            "contents": [
                {"role": "model", "parts": [{"functionCall": {"id": "x" * size, "name": "f", "args": {}}}]},
                {
                    "role": "user",
                    "parts": [{"functionResponse": {"id": "x" * size, "name": "f", "response": {"output": 1}}}],
                },
            ]
        }
        request = get(target).decode_request(to(target, body, source="gemini").body)
        return [part.id for m in request.messages for part in m.parts if isinstance(part, toolwire.ToolCall)]

    assert ids_of(length) == ["x" * length]
    assert len(ids_of(length + 1)[0]) == 9


@pytest.mark.case("8")
@pytest.mark.parametrize(("target", "length"), [("openai_chat", 64), ("anthropic", 128), ("gemini", 128)], ids=str)
def test_names_up_to_the_length_limit_are_kept(target, length):
    def name_of(size):
        body = {"model": "m", "input": "hi", "tools": [{"type": "function", "name": "n" * size, "parameters": EMPTY}]}
        return get(target).decode_request(to(target, body, source="openai_responses").body).tools[0].name

    assert name_of(length) == "n" * length
    assert len(name_of(length + 1)) <= length and name_of(length + 1) != "n" * length


# the way back


def answer(*calls, finish="tool_calls", content=None):
    message = {"role": "assistant", "content": content, "tool_calls": list(calls)}
    return {"id": "r", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": finish}]}


@pytest.mark.case("61")
@pytest.mark.parametrize("target", ["anthropic", "gemini", "openai_responses"])
def test_truncated_call_sets_the_stop_reason_to_length(target):
    body = answer(call("1", arguments='{"a": "b'), finish="stop")
    translation = to(target, body, kind="response")
    assert get(target).decode_response(translation.body).stop.reason == "length"
    assert list(translation.losses)


def test_incomplete_call_without_arguments_is_truncated():
    item = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "", "status": "incomplete"}
    body = {"object": "response", "status": "incomplete", "output": [item]}
    assert toolwire.calls(body)[0].state == "truncated"
    written = get("openai_responses").encode_response(
        get("openai_chat").decode_response(answer(call("1", arguments="{")))
    )
    assert written.body["output"][0]["status"] == "incomplete"


@pytest.mark.parametrize("target", ["anthropic", "gemini"])
def test_invalid_call_turns_the_response_into_an_error_with_losses(target):
    body = answer(call("1", arguments="[]"), call("2"), content="words")
    translation = to(target, body, kind="response")
    assert translation.status == 502
    assert "answer" in concepts(translation, "error")
    with pytest.raises(toolwire.LossError):
        to(target, body, kind="response", strict=True)


def restored(events, client="openai_chat", exchange=None):
    losses = Losses()
    restorer = (exchange or Exchange()).make_restorer(losses, get(client).capabilities)
    return [seen for event in events for seen in restorer.feed(event)], losses


@pytest.mark.case("46")
def test_repeated_call_ids_in_a_stream_are_made_unique():
    events = [ResponseStart("r", "m")]
    for key in range(2):
        events += [CallStart(key, "same", "f"), CallEnd(key, {}, None, "complete")]
    seen, _ = restored([*events, ResponseEnd((Stop("tool_calls"),))])
    assert len({call.id for call in fold(seen).calls}) == 2


@pytest.mark.case("10")
def test_parallel_calls_in_a_stream_despite_a_limit_of_one_are_reported():
    request = get("openai_chat").decode_request(chat(tools=[tool("f")], parallel_tool_calls=False))
    exchange = toolwire.prepare(request, "gemini").exchange
    events = [ResponseStart("r", "m")]
    for key in range(2):
        events += [CallStart(key, str(key), "f"), CallEnd(key, {}, None, "complete")]
    _, losses = restored(events, exchange=exchange)
    assert list(losses)


def test_extra_arguments_of_a_wrapped_tool_are_reported():
    request = get("openai_chat").decode_request(chat(tools=[{"type": "custom", "custom": {"name": "f"}}]))
    exchange = toolwire.prepare(request, "anthropic").exchange
    events = [ResponseStart("r", "m"), CallStart(0, "1", "f"), CallEnd(0, {"input": "x", "more": 1}, None, "complete")]
    seen, losses = restored(events, exchange=exchange)
    assert seen[-1].raw == "x"
    assert list(losses)


def test_text_after_a_call_is_reported_as_moved_on_chat():
    content = [{"type": "tool_use", "id": "1", "name": "f", "input": {}}, {"type": "text", "text": "after"}]
    start = {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": []}
    events = [{"type": "message_start", "message": start}]
    for index, block in enumerate(content):
        events += [
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_stop", "index": index},
        ]
    events += [{"type": "message_delta", "delta": {"stop_reason": "tool_use"}}, {"type": "message_stop"}]
    data = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()
    stream = toolwire.translate_stream(source="anthropic", target="openai_chat")
    stream.feed(data)
    assert "order of text and calls" in {loss.concept for loss in stream.losses}


def test_changing_a_translated_body_does_not_affect_later_translations():
    body = chat(tools=[{"type": "function", "function": {"name": "f"}}])
    to("anthropic", body).body["tools"][0]["input_schema"]["properties"]["poison"] = 1
    assert to("anthropic", body).body["tools"][0]["input_schema"] == EMPTY


# ranges of parameters


@pytest.mark.parametrize(
    ("target", "model", "options", "field", "expected"),
    [
        ("anthropic@2023-06-01", "claude-sonnet-4", {"temperature": 1.7}, "temperature", 1),
        ("openai_chat", "gpt-4o", {"temperature": 3}, "temperature", 2),
        ("openai_responses", "gpt-4o", {"temperature": 3}, "temperature", 2),
        ("gemini", "gemini-2.5-flash", {"temperature": 3}, "temperature", 2),
        ("gemini", "gemini-2.5-flash", {"top_k": 0}, "topK", None),
        ("anthropic@2023-06-01", "claude-sonnet-4", {"top_k": 40.5}, "top_k", 40),
        ("gemini", "gemini-2.5-flash", {"num_predict": 0}, "maxOutputTokens", 1),
        ("openai_chat", "gpt-4o", {"num_predict": 0}, "max_completion_tokens", 1),
    ],
)
def test_numbers_are_moved_into_the_range_of_the_target(target, model, options, field, expected):
    translation = to(target, {**chat(), "options": options}, "ollama", model=model)
    written = translation.body.get("generationConfig", translation.body)
    assert written.get(field) == expected
    (name,) = options
    assert f"/options/{name}" in [loss.path for loss in translation.losses]


def test_number_of_answers_is_limited_to_the_maximum_of_gemini():
    assert to("gemini", chat(n=9)).body["generationConfig"]["candidateCount"] == 8


def test_user_id_that_is_too_long_for_anthropic_is_dropped():
    translation = to("anthropic", chat(user="x" * 257))
    assert "metadata" not in translation.body
    assert "user" in concepts(translation, "warning")


@pytest.mark.parametrize(("stop", "sent"), [("\n\n", None), (["\n", "END"], ["END"]), (["END"], ["END"])])
def test_stop_sequences_of_whitespace_are_not_sent_to_anthropic(stop, sent):
    translation = to("anthropic", chat(stop=stop))
    assert translation.body.get("stop_sequences") == sent
    assert ("stop sequences" in concepts(translation, "warning")) == (sent != stop)


@pytest.mark.parametrize("target", ["anthropic", "gemini", "openai_chat", "openai_responses"])
@pytest.mark.parametrize(
    ("start", "media_type"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\x24\x00\x00\x00WEBPVP8 ", "image/webp"),
    ],
)
def test_image_of_ollama_gets_its_media_type_from_its_first_bytes(target, start, media_type):
    data = b64encode(start + bytes(30)).decode()
    body = {"model": "m", "messages": [{"role": "user", "content": "What is this?", "images": [data]}]}
    sent = get(target).decode_request(to(target, body, source="ollama").body)
    (image,) = [part for part in sent.messages[0].parts if isinstance(part, Media)]
    assert (image.media_type, image.data) == (media_type, data)
