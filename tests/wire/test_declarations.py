"""Numbered cases: tools and tool choice."""

import pytest

import toolwire
from toolwire.ir import EncodeError
from toolwire.wire import get

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
USER = {"role": "user", "content": "hi"}


def chat(*tools, **fields):
    return {"model": "m", "messages": [USER], "tools": list(tools), **fields}


def function(name, **fields):
    return {"type": "function", "function": {"name": name, "parameters": SCHEMA, **fields}}


def to(target, body, source="openai_chat"):
    return toolwire.translate(body, source=source, target=target)


@pytest.mark.case("1")
def test_tool_without_parameters_is_declared_on_anthropic_and_gemini():
    body = chat({"type": "function", "function": {"name": "now"}})
    assert to("anthropic", body).body["tools"] == [
        {"name": "now", "input_schema": {"type": "object", "properties": {}}}
    ]
    assert to("gemini", body).body["tools"] == [{"functionDeclarations": [{"name": "now"}]}]


@pytest.mark.case("2")
def test_strict_left_out_on_chat_is_false_on_responses():
    assert to("openai_responses", chat(function("f"))).body["tools"][0]["strict"] is False


@pytest.mark.case("3")
def test_strict_left_out_on_responses_is_unset_and_a_loss_on_chat():
    body = {"model": "m", "input": "hi", "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}]}
    assert get("openai_responses").decode_request(body).tools[0].strict is None
    translated = to("openai_chat", body, "openai_responses")
    assert "strict" not in translated.body["tools"][0]["function"]
    assert [(loss.path, loss.concept) for loss in translated.losses] == [("/tools/0", "strict")]


@pytest.mark.case("6")
@pytest.mark.parametrize("target", ["anthropic", "openai_chat", "openai_responses"])
def test_illegal_tool_name_is_mapped_and_restored(target):
    name = "server/tool.name"
    source = "gemini"
    body = {
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": name, "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"id": "c1", "name": name, "response": {"output": "x"}}}]},
        ],
        "tools": [{"functionDeclarations": [{"name": name, "parametersJsonSchema": SCHEMA}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [name]}},
    }
    wire = get(target)
    sent = wire.decode_request(to(target, body, source).body)
    mapped = sent.tools[0].name
    assert mapped != name
    assert len(mapped) <= 64
    assert sent.choice.names == (mapped,)
    assert [part.name for message in sent.messages for part in message.parts if hasattr(part, "id")] == [mapped]

    call = toolwire.ToolCall("c2", mapped, {"city": "Paris"})
    response = toolwire.Response("r", "m", (call,), toolwire.ir.Stop("tool_calls"))
    answer = wire.encode_response(response).body
    back = toolwire.translate(answer, source=target, target=source, kind="response", request=body).body
    assert back["candidates"][0]["content"]["parts"][0]["functionCall"]["name"] == name

    encoder = wire.stream_encoder()
    stream = b"".join(encoder.feed(event) for event in toolwire.unfold(response))
    translation = toolwire.translate_stream(source=target, target=source, request=body)
    assert toolwire.calls(translation.feed(stream) + translation.close())[0].name == name


@pytest.mark.case("7")
def test_names_with_the_same_sanitised_form_stay_distinct_and_stable():
    one = to("openai_chat", gemini_tools("a.b", "a:b", "a_b"), "gemini").body["tools"]
    names = [tool["function"]["name"] for tool in one]
    assert len(set(names)) == 3
    assert names[2] == "a_b"
    other = to("openai_chat", gemini_tools("z", "a:b", "new.tool", "a.b"), "gemini").body["tools"]
    assert {tool["function"]["name"] for tool in other} >= set(names[:2])


def gemini_tools(*names):
    declarations = [{"name": name, "parametersJsonSchema": SCHEMA} for name in names]
    return {
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "tools": [{"functionDeclarations": declarations}],
    }


@pytest.mark.case("8")
def test_long_name_is_shortened_only_for_wires_with_a_shorter_limit():
    name = "n" * 100
    body = {
        "model": "m",
        "input": "hi",
        "tools": [{"type": "function", "name": name, "parameters": SCHEMA, "strict": False}],
    }
    assert to("anthropic", body, "openai_responses").body["tools"][0]["name"] == name
    assert to("gemini", body, "openai_responses").body["tools"][0]["functionDeclarations"][0]["name"] == name
    short = to("openai_chat", body, "openai_responses").body["tools"][0]["function"]["name"]
    assert len(short) == 64
    assert short != name[:64]


@pytest.mark.case("9")
def test_disabling_parallel_calls_sets_the_tool_choice_on_anthropic():
    body = to("anthropic", chat(function("f"), parallel_tool_calls=False)).body
    assert body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}


@pytest.mark.case("10")
def test_parallel_calls_despite_a_limit_of_one_are_passed_on_and_reported():
    request = chat(function("f"), parallel_tool_calls=False)
    call = {"functionCall": {"name": "f", "args": {}}}
    answer = {"candidates": [{"content": {"role": "model", "parts": [call, call]}, "finishReason": "STOP"}]}
    translated = toolwire.translate(answer, source="gemini", target="openai_chat", kind="response", request=request)
    assert len(translated.body["choices"][0]["message"]["tool_calls"]) == 2
    assert "one call at a time" in [loss.concept for loss in translated.losses]
    assert "one call at a time" in [loss.concept for loss in to("gemini", request).losses]


@pytest.mark.case("11")
def test_a_forced_tool_on_gemini_has_mode_and_name():
    body = chat(function("f"), tool_choice={"type": "function", "function": {"name": "f"}})
    config = to("gemini", body).body["toolConfig"]["functionCallingConfig"]
    assert config == {"mode": "ANY", "allowedFunctionNames": ["f"]}


@pytest.mark.case("12")
def test_allowed_tools_translate_between_nested_and_flat_form():
    nested = {"mode": "required", "tools": [{"type": "function", "function": {"name": n}} for n in ("f", "g")]}
    body = chat(function("f"), function("g"), tool_choice={"type": "allowed_tools", "allowed_tools": nested})
    flat = to("openai_responses", body).body
    tools = [{"type": "function", "name": "f"}, {"type": "function", "name": "g"}]
    assert flat["tool_choice"] == {"type": "allowed_tools", "mode": "required", "tools": tools}
    assert to("openai_chat", flat, "openai_responses").body["tool_choice"] == body["tool_choice"]


@pytest.mark.case("14")
def test_a_forced_choice_and_a_thinking_budget_exclude_each_other():
    body = gemini_tools("f") | {
        "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
        "generationConfig": {"thinkingConfig": {"thinkingBudget": 1024}},
    }
    with pytest.raises(EncodeError, match="thinking budget") as caught:
        to("anthropic", body, "gemini")
    assert caught.value.pointer == "/toolConfig/functionCallingConfig"
    assert caught.value.hint
    body["generationConfig"]["thinkingConfig"] = {"thinkingLevel": "HIGH"}
    sent = to("anthropic", body, "gemini").body
    assert sent["tool_choice"] == {"type": "any"}
    assert sent["thinking"] == {"type": "adaptive"}


@pytest.mark.case("15")
def test_grammar_translates_between_nested_and_flat_form():
    nested = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: x"}}
    body = chat({"type": "custom", "custom": {"name": "c", "format": nested}})
    flat = to("openai_responses", body).body
    assert flat["tools"][0]["format"] == {"type": "grammar", "syntax": "lark", "definition": "start: x"}
    assert to("openai_chat", flat, "openai_responses").body["tools"] == body["tools"]


@pytest.mark.case("16")
@pytest.mark.parametrize("target", ["anthropic", "gemini"])
def test_custom_tool_becomes_a_function_and_its_input_is_restored_as_text(target):
    body = chat({"type": "custom", "custom": {"name": "shell", "description": "run"}})
    body["messages"] += [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "shell", "input": "ls"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "a"},
    ]
    sent = get(target).decode_request(to(target, body).body)
    assert sent.tools[0].input_schema["required"] == ["input"]
    assert sent.messages[1].parts[0].arguments == {"input": "ls"}

    text = 'echo "é\n😀" \\ end'
    response = toolwire.Response(
        "r", "m", (toolwire.ToolCall("c2", "shell", {"input": text}),), toolwire.ir.Stop("tool_calls")
    )
    answer = get(target).encode_response(response).body
    back = toolwire.translate(answer, source=target, target="openai_chat", kind="response", request=body).body
    call = back["choices"][0]["message"]["tool_calls"][0]
    assert call == {"id": "c2", "type": "custom", "custom": {"name": "shell", "input": text}}

    encoder = get(target).stream_encoder()
    stream = b"".join(encoder.feed(event) for event in toolwire.unfold(response))
    translation = toolwire.translate_stream(source=target, target="openai_chat", request=body)
    streamed = b"".join([translation.feed(stream[i : i + 1]) for i in range(len(stream))]) + translation.close()
    assert toolwire.calls(streamed)[0].raw == text
    assert toolwire.calls(streamed)[0].kind == "freeform"


@pytest.mark.case("17")
def test_duplicate_tool_names_are_rejected_for_anthropic():
    with pytest.raises(EncodeError) as caught:
        to("anthropic", chat(function("f"), function("g"), function("f")))
    assert caught.value.pointer == "/tools/2/function/name"


@pytest.mark.case("18")
def test_temperature_depends_on_the_version_of_anthropic():
    body = chat(function("f"), temperature=1.0)
    new = to("anthropic", body)
    assert "temperature" not in new.body
    assert ("/temperature", "dropped") in [(loss.path, loss.action) for loss in new.losses]
    old = to("anthropic@2023-06-01", body)
    assert old.body["temperature"] == 1.0
    assert "temperature" not in [loss.concept for loss in old.losses]
