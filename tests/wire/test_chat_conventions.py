"""Conventions of Chat clients and routers: deprecated `functions`, `cache_control`, log probabilities, error codes."""

import json

import pytest

from toolwire import fold, translate, translate_stream
from toolwire.wire import get

WEATHER = {"name": "weather", "description": "w", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}  # fmt: skip
LEGACY = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "functions": [WEATHER]}
MARK = {"type": "ephemeral"}


def anthropic_answer(*cities):
    content = [{"type": "tool_use", "id": f"t{city}", "name": "weather", "input": {"city": city}} for city in cities]
    return {"id": "x", "type": "message", "role": "assistant", "model": "m", "content": content, "stop_reason": "tool_use", "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}  # fmt: skip


def anthropic_stream(*cities):
    from toolwire.ir.folding import unfold

    encoder = get("anthropic").stream_encoder()
    return b"".join(
        encoder.feed(event) for event in unfold(get("anthropic").decode_response(anthropic_answer(*cities)))
    )


@pytest.mark.finding("G11")
def test_legacy_functions_are_answered_with_function_call():
    translation = translate(anthropic_answer("Rome"), source="anthropic", target="openai_chat", kind="response", request=LEGACY)  # fmt: skip
    [choice] = translation.body["choices"]
    assert choice["message"]["function_call"] == {"name": "weather", "arguments": '{"city":"Rome"}'}
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == "function_call"


@pytest.mark.finding("G11")
def test_legacy_functions_are_answered_with_function_call_in_streams():
    stream = translate_stream(source="anthropic", target="openai_chat", request=LEGACY)
    text = (stream.feed(anthropic_stream("Rome")) + stream.close()).decode()
    chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    calls = [delta["function_call"] for delta in deltas if "function_call" in delta]
    assert calls[0] == {"name": "weather", "arguments": ""}
    assert json.loads("".join(call["arguments"] for call in calls)) == {"city": "Rome"}
    assert "tool_calls" not in text
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks if chunk["choices"]][-1] == "function_call"


@pytest.mark.parametrize("arguments", [{"x": 1}, {}, [], None, "", "{}", '{"x": 1}'])
def test_arguments_of_a_legacy_call_are_written_as_they_were_read(arguments):
    message = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": arguments}}
    body = {"model": "m", "messages": [message]}
    wire = get("openai_chat")
    assert wire.encode_request(wire.decode_request(body)).body == body


@pytest.mark.finding("G11")
def test_legacy_functions_ask_for_one_call_and_report_a_second():
    sent = translate(LEGACY, source="openai_chat", target="anthropic").body
    assert sent["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert translate(LEGACY, source="openai_chat", target="openai_chat", model="m").body == LEGACY
    answer = anthropic_answer("Rome", "Oslo")
    whole = translate(answer, source="anthropic", target="openai_chat", kind="response", request=LEGACY)
    assert "Rome" in whole.body["choices"][0]["message"]["function_call"]["arguments"]
    assert ("call", "dropped") in [(loss.concept, loss.action) for loss in whole.losses]
    stream = translate_stream(source="anthropic", target="openai_chat", request=LEGACY)
    text = stream.feed(anthropic_stream("Rome", "Oslo")) + stream.close()
    assert b"Oslo" not in text
    assert ("call", "dropped") in [(loss.concept, loss.action) for loss in stream.losses]
    decoder = get("openai_chat").stream_decoder()
    assert [call.arguments for call in fold([*decoder.feed(text), *decoder.close()]).calls] == [{"city": "Rome"}]


MARKED = {
    "model": "m",
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "rules", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]},
        {"role": "user", "content": "long question", "cache_control": MARK},
        {"role": "assistant", "content": "ok", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "21", "cache_control": MARK},
        {"role": "assistant", "content": "It is 21.", "cache_control": MARK},
        {"role": "user", "content": "And now?"},
    ],
    "tools": [{"type": "function", "function": WEATHER, "cache_control": MARK}],
}  # fmt: skip


@pytest.mark.finding("G14")
def test_cache_control_of_chat_routers_reaches_anthropic():
    *earlier, final, question = MARKED["messages"]
    marked = {**MARKED, "messages": [*earlier, {key: final[key] for key in ("role", "content")}, question]}
    translation = translate(marked, source="openai_chat", target="anthropic")
    body = translation.body
    assert body["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert body["messages"][0]["content"] == [{"type": "text", "text": "long question", "cache_control": MARK}]
    assert body["messages"][2]["content"][0]["cache_control"] == MARK
    # "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block" (agno-agi/agno#8406)
    assert body["tools"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert [loss.path for loss in translation.losses if "cache" in loss.concept] == ["/tools/0/cache_control"]


@pytest.mark.finding("G14")
def test_cache_control_inside_a_function_is_read():
    body = {**MARKED, "tools": [{"type": "function", "function": {**WEATHER, "cache_control": MARK}}]}
    assert translate(body, source="openai_chat", target="openai_chat", model="m").body == body
    body["messages"] = [{"role": "user", "content": "hi"}]
    assert translate(body, source="openai_chat", target="anthropic").body["tools"][0]["cache_control"] == MARK


@pytest.mark.finding("G14")
def test_cache_control_stays_as_it_is_on_chat():
    translation = translate(MARKED, source="openai_chat", target="openai_chat", model="m")
    assert translation.body == MARKED
    assert not translation.losses


@pytest.mark.finding("G14")
def test_unknown_cache_control_is_kept_on_chat_and_reported_elsewhere():
    content = [{"type": "text", "text": "x", "cache_control": {"type": "forever"}}]
    body = {"model": "m", "messages": [{"role": "user", "content": content}]}
    assert translate(body, source="openai_chat", target="openai_chat", model="m").body == body
    losses = translate(body, source="openai_chat", target="anthropic").losses
    assert "/messages/0/content/0/cache_control" in [loss.path for loss in losses]


@pytest.mark.finding("G17")
def test_log_probabilities_are_requested_on_responses():
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "logprobs": True, "top_logprobs": 3}
    translation = translate(body, source="openai_chat", target="openai_responses")
    assert translation.body["include"] == ["message.output_text.logprobs"]
    assert translation.body["top_logprobs"] == 3
    assert not translation.losses
    back = translate(translation.body, source="openai_responses", target="openai_chat")
    assert (back.body["logprobs"], back.body["top_logprobs"]) == (True, 3)


@pytest.mark.finding("G17")
@pytest.mark.parametrize("include", [None, [], ["reasoning.encrypted_content"], ["message.output_text.logprobs"]])
def test_include_of_responses_is_unchanged_on_its_wire(include):
    body = {"model": "m", "input": "hi", "top_logprobs": 2, **({} if include is None else {"include": include})}
    assert translate(body, source="openai_responses", target="openai_responses", model="m").body == body


REQUEST = {
    "model": "m",
    "instructions": "Be kind.",
    "input": [{"role": "user", "content": "hi"}],
    "tools": [{"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}, "required": [], "additionalProperties": False}, "strict": True}],
    "tool_choice": {"type": "function", "name": "weather"},
    "parallel_tool_calls": False,
    "temperature": 0.5,
    "max_output_tokens": 99,
    "metadata": {"a": "b"},
    "store": False,
    "truncation": "auto",
}  # fmt: skip


@pytest.mark.finding("G18")
def test_responses_answer_repeats_the_request():
    answer = translate(anthropic_answer("Rome"), source="anthropic", target="openai_responses", kind="response", request=REQUEST).body  # fmt: skip
    repeated = {key: value for key, value in REQUEST.items() if key != "input"}
    assert {key: answer[key] for key in repeated} == repeated
    stream = translate_stream(source="anthropic", target="openai_responses", request=REQUEST)
    text = (stream.feed(anthropic_stream("Rome")) + stream.close()).decode()
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    for event in (events[0], events[-1]):
        assert {key: event["response"][key] for key in repeated} == repeated


TOO_LONG = {
    "anthropic": {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 215318 tokens > 200000 maximum"}},
    "gemini": {"error": {"code": 400, "message": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", "status": "INVALID_ARGUMENT"}},
    "openai_chat": {"error": {"message": "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.", "type": "BadRequestError", "param": None, "code": 400}},
}  # fmt: skip


@pytest.mark.finding("G20")
@pytest.mark.parametrize("source", TOO_LONG)
def test_long_prompts_are_recognised_on_every_wire(source):
    for target in ("openai_chat", "openai_responses"):
        if target != source:
            error = translate(TOO_LONG[source], source=source, target=target, kind="error").body["error"]
            assert error["code"] == "context_length_exceeded"
    if source != "anthropic":
        error = translate(TOO_LONG[source], source=source, target="anthropic", kind="error").body["error"]
        assert "prompt is too long" in error["message"]
    wire = get(source)
    assert wire.encode_error(wire.decode_error(400, TOO_LONG[source])).body == TOO_LONG[source]


@pytest.mark.finding("GA11")
@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "prompt is too long: 210,000 tokens > 200,000 maximum",
            "The input token count (210000) exceeds the maximum number of tokens allowed (200000).",
        ),
        (
            "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (1000 in the completion).",
            "The input token count (5000) exceeds the maximum number of tokens allowed (4096).",
        ),
        (
            "Your input exceeds the context window.",
            "The input token count exceeds the maximum number of tokens allowed: Your input exceeds the context window.",
        ),
    ],
)
def test_long_prompt_has_the_message_of_gemini(message, expected):
    body = {"error": {"type": "invalid_request_error", "message": message, "code": "context_length_exceeded"}}
    error = translate(body, source="openai_chat", target="gemini", kind="error").body["error"]
    assert error == {"code": 400, "message": expected, "status": "INVALID_ARGUMENT"}
    assert get("gemini").decode_error(400, {"error": error}).code == "context_length_exceeded"


def test_assistant_message_with_calls_and_no_content_is_kept():
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
    ]
    codec = get("openai_chat")
    assert codec.encode_request(codec.decode_request({"messages": messages})).body["messages"] == messages
