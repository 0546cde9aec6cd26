"""Numbered cases: calls, results and the conversation around them."""

import hashlib
import json
import re

import pytest

import toolwire
from toolwire.bridge.conversation.history import INTERRUPTED
from toolwire.bridge.fitting.turns import ERROR_MARK
from toolwire.ir import EncodeError
from toolwire.ir.folding import fold
from toolwire.ir.text import to_bytes
from toolwire.wire import get

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
CHAT_TOOLS = [{"type": "function", "function": {"name": n, "parameters": SCHEMA}} for n in ("f", "g")]
ANTHROPIC_TOOLS = [{"name": n, "input_schema": SCHEMA} for n in ("f", "g")]


def user(text="hi"):
    return {"role": "user", "content": text}


def called(*calls, content=None):
    made = [{"id": i, "type": "function", "function": {"name": n, "arguments": a}} for i, n, a in calls]
    return {"role": "assistant", "content": content, "tool_calls": made}


def result(call_id, content="ok"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def chat(*messages, **fields):
    return {"model": "m", "messages": list(messages), "tools": CHAT_TOOLS, **fields}


def anthropic(*messages, **fields):
    return {"model": "m", "max_tokens": 9, "messages": list(messages), "tools": ANTHROPIC_TOOLS, **fields}


def use(call_id, name="f", **arguments):
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def answer(call_id, content="ok", **fields):
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


def to(target, body, source="openai_chat"):
    return toolwire.translate(body, source=source, target=target)


def concepts(translation):
    return [loss.concept for loss in translation.losses]


@pytest.mark.case("20")
def test_empty_arguments_string_is_read_as_an_empty_object():
    body = chat(user(), called(("a", "f", "")), result("a"))
    request = get("openai_chat").decode_request(body)
    assert request.messages[1].parts[0].arguments == {}
    assert get("openai_chat").encode_request(request).body == body
    assert to("anthropic", body).body["messages"][1]["content"][0]["input"] == {}
    assert to("openai_responses", body).body["input"][1]["arguments"] == "{}"


@pytest.mark.case("21")
@pytest.mark.parametrize(
    "text", ['{"a":1,"a":2}', '{"a":1e400}', '{"a":9223372036854775808}', '{"a":0.12345678901234567890}']
)
@pytest.mark.parametrize("target", ["anthropic", "gemini"])
def test_arguments_without_exact_object_form_are_reported_as_a_loss(text, target):
    body = chat(user(), called(("a", "f", text)), result("a"))
    wire = get("openai_chat")
    assert wire.encode_request(wire.decode_request(body)).body == body
    losses = [loss for loss in to(target, body).losses if loss.path.startswith("/messages/1/tool_calls/0")]
    assert any(loss.severity == "warning" for loss in losses)


@pytest.mark.case("22")
@pytest.mark.parametrize("text", ["[]", '"x"', "3"])
def test_non_object_arguments_are_invalid_and_sent_as_raw_arguments(text):
    body = chat(user(), called(("a", "f", text)), result("a"))
    call = get("openai_chat").decode_request(body).messages[1].parts[0]
    assert (call.state, call.arguments, call.raw) == ("invalid", None, text)
    for target, read in (
        ("anthropic", lambda sent: sent["messages"][1]["content"][0]["input"]),
        ("gemini", lambda sent: sent["contents"][1]["parts"][0]["functionCall"]["args"]),
    ):
        translated = to(target, body)
        assert read(translated.body) == {"raw_arguments": text}
        assert "arguments" in concepts(translated)


@pytest.mark.case("20")
@pytest.mark.parametrize("text", ["", "null"])
def test_no_arguments_are_an_empty_object_on_other_wires(text):
    body = chat(user(), called(("a", "f", text)), result("a"))
    wire = get("openai_chat")
    call = wire.decode_request(body).messages[1].parts[0]
    assert (call.state, call.arguments, call.raw) == ("complete", {}, text)
    assert wire.encode_request(wire.decode_request(body)).body == body
    assert to("anthropic", body).body["messages"][1]["content"][0]["input"] == {}


@pytest.mark.case("24")
def test_text_after_a_call_keeps_its_position_or_is_reported_as_moved():
    turn = [{"type": "text", "text": "one"}, use("t1"), {"type": "text", "text": "two"}, use("t2")]
    body = anthropic(
        user(), {"role": "assistant", "content": turn}, {"role": "user", "content": [answer("t1"), answer("t2")]}
    )
    items = to("openai_responses", body, "anthropic").body["input"]
    assert [item.get("type") for item in items[1:5]] == ["message", "function_call", "message", "function_call"]
    translated = to("openai_chat", body, "anthropic")
    losses = [(loss.path, loss.action) for loss in translated.losses if loss.concept == "order of text and calls"]
    assert losses == [("/messages/1/content/2", "moved")]


@pytest.mark.case("25")
def test_results_are_matched_by_call_id_and_item_ids_kept():
    items = [
        user(),
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "ok"},
    ]
    body = {"model": "m", "input": items}
    wire = get("openai_responses")
    assert wire.encode_request(wire.decode_request(body)).body == body
    sent = to("openai_chat", body, "openai_responses").body["messages"]
    assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"] == "call_1"


GEMINI_WITHOUT_IDS = {
    "contents": [
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"city": c}}} for c in ("Paris", "Rome")]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"output": c}}} for c in ("P", "R")]},
    ]
}


@pytest.mark.case("26")
@pytest.mark.bad_input(43)
@pytest.mark.parametrize("target", ["anthropic", "openai_chat", "openai_responses"])
def test_calls_without_ids_get_stable_ids(target):
    first = to(target, GEMINI_WITHOUT_IDS, "gemini").body
    assert first == to(target, GEMINI_WITHOUT_IDS, "gemini").body
    request = get(target).decode_request(first)
    made = [p for m in request.messages for p in m.parts if isinstance(p, toolwire.ToolCall)]
    given = {p.call_id: p.text for m in request.messages for p in m.parts if isinstance(p, toolwire.ToolResult)}
    assert len({call.id for call in made}) == 2
    assert all(re.fullmatch("[a-z0-9]{9}", call.id) for call in made)
    assert [(call.arguments["city"], given[call.id]) for call in made] == [("Paris", "P"), ("Rome", "R")]


@pytest.mark.case("27")
def test_tool_name_of_a_result_is_recovered_from_its_call():
    body = chat(user(), called(("a", "g", "{}"), ("b", "f", "{}")), result("a"), result("b"))
    parts = to("gemini", body).body["contents"][2]["parts"]
    assert [part["functionResponse"]["name"] for part in parts] == ["g", "f"]


@pytest.mark.case("28")
def test_a_signature_stays_with_its_part():
    parts = [
        {"functionCall": {"id": "1", "name": "f", "args": {}}, "thoughtSignature": "c2ln"},
        {"functionCall": {"id": "2", "name": "f", "args": {}}},
    ]
    body = {"contents": [{"role": "user", "parts": [{"text": "go"}]}, {"role": "model", "parts": parts}]}
    wire = get("gemini")
    assert wire.encode_request(wire.decode_request(body)).body == body
    fitted = toolwire.prepare(wire.decode_request({**body, "model": "gemini-3-pro"}), wire).request
    assert [len(call.artefacts) for call in fitted.messages[1].parts] == [1, 0]


@pytest.mark.case("29")
def test_calls_of_another_provider_get_a_placeholder_signature():
    body = chat(
        user(),
        called(("a", "f", "{}"), ("b", "g", "{}")),
        result("a"),
        result("b"),
        called(("c", "f", "{}")),
        result("c"),
    )
    translated = to("gemini", body)
    signatures = [
        part.get("thoughtSignature")
        for content in translated.body["contents"]
        for part in content["parts"]
        if "functionCall" in part
    ]
    stand_in = get("gemini").capabilities.unsigned_call
    assert signatures == [stand_in, None, stand_in]
    assert concepts(translated).count("signature") == 2
    assert "thoughtSignature" not in json.dumps(to("gemini", {**body, "model": "gemini-2.5-pro"}).body)


THINKING = [
    {"type": "thinking", "thinking": "let me see\n", "signature": "c2lnbmF0dXJl+/=="},
    {"type": "redacted_thinking", "data": "ZGF0YQ=="},
    {"type": "thinking", "thinking": "", "signature": "b25seQ=="},
]


def thinking_history(model="m"):
    turn = {"role": "assistant", "content": [*THINKING, use("t1")]}
    return {**anthropic(user(), turn, {"role": "user", "content": [answer("t1")]}), "model": model}


def digest(blocks):
    return [hashlib.sha256(json.dumps(block, sort_keys=True).encode()).hexdigest() for block in blocks]


@pytest.mark.case("30", "31")
def test_thinking_blocks_are_sent_back_byte_for_byte():
    body = thinking_history()
    old, new = get("anthropic@2023-06-01"), get("anthropic")
    again = new.encode_request(toolwire.prepare(old.decode_request(body), new).request).body
    assert digest(again["messages"][1]["content"][:3]) == digest(THINKING)
    assert digest([{**THINKING[0], "thinking": "let me see"}]) != digest(THINKING[:1])


@pytest.mark.case("32")
def test_item_ids_are_removed_together_with_dropped_reasoning():
    reasoning = toolwire.Reasoning(
        summary=("s",),
        artefacts=(toolwire.ir.Artefact("openai", "encrypted", "x", "gpt-5"),),
        extra={"openai_responses": {"id": "rs_1"}},
    )
    call = toolwire.ToolCall("call_1", "f", {}, "{}", extra={"openai_responses": {"id": "fc_1", "status": "completed"}})
    history = (toolwire.Message("assistant", (reasoning, call)), toolwire.Message("user", (call.result("ok"),)))
    wire = get("openai_responses")
    kept = wire.encode_request(toolwire.prepare(toolwire.Request("gpt-5", history), wire).request).body["input"]
    assert [item.get("id") for item in kept[:2]] == ["rs_1", "fc_1"]
    other = wire.encode_request(toolwire.prepare(toolwire.Request("gpt-6", history), wire).request).body["input"]
    assert [item["type"] for item in other] == ["function_call", "function_call_output"]
    assert "id" not in other[0]


@pytest.mark.case("34")
@pytest.mark.parametrize("target", ["gemini", "openai_chat", "openai_responses"])
def test_artefacts_are_never_sent_to_another_provider(target):
    translated = to(target, thinking_history(), "anthropic")
    sent = json.dumps(translated.body)
    assert not any(secret in sent for secret in ("c2lnbmF0dXJl", "ZGF0YQ", "b25seQ", "let me see"))
    lost = [loss.path for loss in translated.losses if loss.concept == "reasoning"]
    assert lost == [f"/messages/1/content/{n}" for n in range(3)]


@pytest.mark.case("34")
def test_artefacts_are_never_sent_to_another_model():
    own = toolwire.ir.Artefact("anthropic", "signature", "x", "claude-a")
    history = (
        toolwire.Message("user", (toolwire.Text("q"),)),
        toolwire.Message("assistant", (toolwire.Reasoning("t", artefacts=(own,)), toolwire.Text("a"))),
        toolwire.Message("user", (toolwire.Text("b"),)),
    )
    wire = get("anthropic")
    assert len(toolwire.prepare(toolwire.Request("claude-a", history), wire).request.messages[1].parts) == 2
    prepared = toolwire.prepare(toolwire.Request("claude-b", history), wire)
    assert prepared.request.messages[1].parts == (toolwire.Text("a"),)
    assert [loss.concept for loss in prepared.losses] == ["reasoning"]


@pytest.mark.case("35", "37")
def test_parallel_results_share_one_user_message_on_anthropic():
    body = chat(user(), called(("a", "f", "{}"), ("b", "g", "{}")), result("a"), result("b"), user("thanks"))
    messages = to("anthropic", body).body["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert [block["type"] for block in messages[2]["content"]] == ["tool_result", "tool_result", "text"]


@pytest.mark.case("36")
def test_results_are_placed_before_text_in_a_user_message():
    turn = {"role": "user", "content": [{"type": "text", "text": "well"}, answer("t1")]}
    body = anthropic(user(), {"role": "assistant", "content": [use("t1")]}, turn)
    old = get("anthropic@2023-06-01").decode_request(body)
    sent = get("anthropic").encode_request(toolwire.prepare(old, get("anthropic")).request).body
    assert [block["type"] for block in sent["messages"][2]["content"]] == ["tool_result", "text"]
    assert to("openai_chat", body, "anthropic").body["messages"][2]["role"] == "tool"


@pytest.mark.case("38")
@pytest.mark.bad_input(40)
@pytest.mark.parametrize("target", ["anthropic", "gemini", "openai_responses"])
def test_call_without_a_result_gets_an_interrupted_result(target):
    body = chat(user(), called(("a", "f", "{}"), ("b", "g", "{}")), result("a"), user("never mind"))
    translated = to(target, body)
    request = get(target).decode_request(translated.body)
    results = [p for m in request.messages for p in m.parts if isinstance(p, toolwire.ToolResult)]
    assert len(results) == 2
    assert results[1].text.endswith(INTERRUPTED)
    assert ("/messages/1/tool_calls/1", "missing result") in [(loss.path, loss.concept) for loss in translated.losses]


@pytest.mark.case("39")
@pytest.mark.bad_input(39)
@pytest.mark.parametrize("target", ["anthropic", "gemini", "openai_responses"])
def test_a_result_without_a_call_becomes_text(target):
    translated = to(target, chat(user(), result("gone", "22 degrees"), user("so?")))
    request = get(target).decode_request(translated.body)
    assert not [p for m in request.messages for p in m.parts if isinstance(p, toolwire.ToolResult)]
    assert any("22 degrees" in p.text for m in request.messages for p in m.parts)
    assert ("/messages/1", "result without a call") in [(loss.path, loss.concept) for loss in translated.losses]


@pytest.mark.case("40")
@pytest.mark.bad_input(42)
def test_results_are_put_in_call_order():
    body = chat(
        user(),
        called(("a", "f", "{}"), ("b", "g", "{}"), ("c", "f", "{}")),
        result("c", "C"),
        result("b", "B"),
        result("a", "A"),
    )
    parts = to("gemini", body).body["contents"][2]["parts"]
    assert [part["functionResponse"]["response"]["output"] for part in parts] == ["A", "B", "C"]


@pytest.mark.case("41")
def test_a_failed_result_is_marked():
    body = anthropic(
        user(),
        {"role": "assistant", "content": [use("t1")]},
        {"role": "user", "content": [answer("t1", "boom", is_error=True)]},
    )
    chat_body = to("openai_chat", body, "anthropic")
    assert chat_body.body["messages"][2]["content"] == f"{ERROR_MARK}boom"
    assert "is_error" in concepts(chat_body)
    assert to("openai_responses", body, "anthropic").body["input"][2]["output"] == f"{ERROR_MARK}boom"
    gemini = to("gemini", body, "anthropic").body
    assert gemini["contents"][2]["parts"][0]["functionResponse"]["response"] == {"error": "boom"}


@pytest.mark.case("42")
def test_results_that_are_not_objects_are_wrapped_for_gemini():
    call = toolwire.ToolCall("a", "f", {})
    values = ["text", [1, 2], {"celsius": 22}, {"output": 1}, 3]
    written = toolwire.results([call.result(value) for value in values], "gemini")[0]["parts"]
    assert [part["functionResponse"]["response"] for part in written] == [
        {"output": "text"},
        {"output": [1, 2]},
        {"celsius": 22},
        {"output": {"output": 1}},
        {"output": 3},
    ]


@pytest.mark.case("43")
def test_image_in_a_result_moves_to_the_next_user_message_on_chat():
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}
    turn = {
        "role": "user",
        "content": [answer("t1", [{"type": "text", "text": "see"}, image]), {"type": "text", "text": "and?"}],
    }
    translated = to("openai_chat", anthropic(user(), {"role": "assistant", "content": [use("t1")]}, turn), "anthropic")
    messages = translated.body["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "user"]
    assert "next user message" in json.dumps(messages[2]["content"])
    assert messages[3]["content"][1]["image_url"]["url"] == "data:image/png;base64,iVBO"
    assert messages[3]["content"][2]["text"] == "and?"
    assert "image in a result" in concepts(translated)


@pytest.mark.case("44")
@pytest.mark.parametrize("content", [{}, {"content": ""}, {"content": []}], ids=["absent", "empty", "no blocks"])
def test_empty_result_is_kept_on_every_wire(content):
    turn = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", **content}]}
    body = anthropic(user(), {"role": "assistant", "content": [use("t1")]}, turn)
    wire = get("anthropic")
    assert wire.encode_request(wire.decode_request(body)).body == body
    assert to("openai_chat", body, "anthropic").body["messages"][2]["content"] == ""
    assert to("openai_responses", body, "anthropic").body["input"][2]["output"] == ""
    assert to("gemini", body, "anthropic").body["contents"][2]["parts"][0]["functionResponse"]["response"] == {
        "output": ""
    }


@pytest.mark.case("45")
@pytest.mark.bad_input(38)
@pytest.mark.parametrize("target", ["anthropic", "openai_chat", "openai_responses"])
def test_illegal_call_ids_are_remapped_in_the_whole_history(target):
    odd = ["x" * 200, "call_1|fc_1", "a\nb"]
    calls = [{"functionCall": {"id": i, "name": "f", "args": {}}} for i in odd]
    results = [{"functionResponse": {"id": i, "name": "f", "response": {"output": str(n)}}} for n, i in enumerate(odd)]
    body = {
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": calls},
            {"role": "user", "parts": results},
        ]
    }
    wire = get(target)
    request = wire.decode_request(to(target, body, "gemini").body)
    made = [p.id for m in request.messages for p in m.parts if isinstance(p, toolwire.ToolCall)]
    given = {p.call_id: p.text for m in request.messages for p in m.parts if isinstance(p, toolwire.ToolResult)}
    assert [given[i] for i in made] == ["0", "1", "2"]
    assert all(len(i) <= wire.limits.id_length and re.fullmatch(wire.limits.id, i) for i in made)


@pytest.mark.case("46")
@pytest.mark.bad_input(36)
def test_reused_call_ids_are_made_unique():
    turns = [m for n in range(3) for m in (called(("call_0", "f", f'{{"city": "{n}"}}')), result("call_0", str(n)))]
    sent = get("anthropic").decode_request(to("anthropic", chat(user(), *turns)).body)
    made = [p for m in sent.messages for p in m.parts if isinstance(p, toolwire.ToolCall)]
    given = {p.call_id: p.text for m in sent.messages for p in m.parts if isinstance(p, toolwire.ToolResult)}
    assert len({call.id for call in made}) == 3
    assert [given[call.id] for call in made] == [call.arguments["city"] for call in made] == ["0", "1", "2"]


@pytest.mark.case("46")
def test_call_id_already_used_in_the_request_is_replaced_in_the_response():
    request = chat(user(), called(("call_0", "f", "{}")), result("call_0"))
    upstream = {
        "candidates": [
            {
                "content": {"role": "model", "parts": [{"functionCall": {"id": "call_0", "name": "f", "args": {}}}]},
                "finishReason": "STOP",
            }
        ]
    }
    body = toolwire.translate(upstream, source="gemini", target="openai_chat", kind="response", request=request).body
    assert body["choices"][0]["message"]["tool_calls"][0]["id"] != "call_0"


@pytest.mark.case("47")
@pytest.mark.parametrize("target", ["anthropic", "gemini", "openai_responses"])
def test_deprecated_function_call_is_read_as_a_call_with_an_id(target):
    body = {
        "model": "m",
        "messages": [
            user(),
            {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": "ok"},
        ],
        "functions": [{"name": "f", "parameters": SCHEMA}],
        "function_call": "auto",
    }
    request = get(target).decode_request(to(target, body).body)
    call, given = request.messages[1].parts[0], request.messages[2].parts[0]
    assert call.id == given.call_id != ""
    assert request.tools[0].name == "f"


@pytest.mark.case("48")
def test_system_message_after_the_first_turn_is_kept_or_moved_with_a_loss():
    body = chat({"role": "system", "content": "one"}, user(), {"role": "developer", "content": "two"}, user("more"))
    new = to("anthropic", body).body
    assert new["system"] == "one"
    assert [message["role"] for message in new["messages"]] == ["user", "system"]  # between two users it is refused
    for target, read in (
        ("anthropic@2023-06-01", lambda sent: [block["text"] for block in sent["system"]]),
        ("gemini", lambda sent: [part["text"] for part in sent["systemInstruction"]["parts"]]),
    ):
        translated = to(target, body)
        assert read(translated.body) == ["one", "two"]
        assert ("/messages/2", "moved") in [(loss.path, loss.action) for loss in translated.losses]


@pytest.mark.case("49")
@pytest.mark.parametrize("arguments", [{"a": 1}, '{"a": 1}'])
@pytest.mark.parametrize("target", ["anthropic", "gemini", "openai_responses"])
def test_mistral_arguments_may_be_an_object_and_the_id_null_is_replaced(target, arguments):
    call = {"id": "null", "type": "function", "function": {"name": "f", "arguments": arguments}}
    said = {"role": "assistant", "content": "", "tool_calls": [call]}
    body = chat(user(), said, {"role": "tool", "name": "f", "content": "ok"})
    request = get(target).decode_request(to(target, body).body)
    made, given = request.messages[1].parts[0], request.messages[2].parts[0]
    assert made.arguments == {"a": 1}
    assert made.id == given.call_id
    assert made.id not in ("", "null")
    wire = get("openai_chat")
    assert wire.encode_request(wire.decode_request(body)).body["messages"][1]["tool_calls"][0]["id"] == "null"
    chunk = {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, **call}]}, "finish_reason": "tool_calls"}]}
    response = fold(wire.stream_decoder().feed(b"data: " + to_bytes(chunk) + b"\n\ndata: [DONE]\n\n"))
    assert [(one.id, one.arguments) for one in response.calls] == [("", {"a": 1})]


@pytest.mark.case("50")
@pytest.mark.parametrize(("target", "field"), [("anthropic", "messages"), ("gemini", "contents")])
def test_consecutive_assistant_messages_are_merged_into_one_turn(target, field):
    body = chat(user(), {"role": "assistant", "content": "let me see"}, called(("a", "f", "{}")), result("a"))
    assert len(to(target, body).body[field]) == 3


@pytest.mark.case("51")
def test_prefilled_answer_is_rejected_for_models_without_prefill_support():
    body = chat(user(), {"role": "assistant", "content": "{"})
    with pytest.raises(EncodeError, match="cannot continue") as caught:
        to("anthropic", {**body, "model": "claude-opus-4-6"})
    assert caught.value.pointer == "/messages/1"
    for model in ("claude-sonnet-4-5", "claude-3-5-haiku", "some-model"):
        assert to("anthropic", {**body, "model": model}).body["messages"][1]["role"] == "assistant"


@pytest.mark.case("52")
def test_paused_turn_is_sent_back_unchanged():
    blocks = [{"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}]
    body = anthropic(user(), {"role": "assistant", "content": blocks}, model="claude-opus-4-8")
    old, new = get("anthropic@2023-06-01"), get("anthropic")
    again = new.encode_request(toolwire.prepare(old.decode_request(body), new).request).body
    assert again["messages"] == body["messages"]
    paused = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "c",
        "content": blocks,
        "stop_reason": "pause_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    assert new.decode_response(paused).stop.reason == "pause"


@pytest.mark.case("53")
def test_unknown_blocks_survive_on_their_wire_and_are_lost_on_others():
    body = anthropic(
        user(),
        {"role": "assistant", "content": [{"type": "brand_new", "x": {"y": 1}}, {"type": "text", "text": "a"}]},
        user(),
    )
    wire = get("anthropic")
    assert wire.encode_request(wire.decode_request(body)).body == body
    translated = to("openai_chat", body, "anthropic")
    assert "brand_new" not in json.dumps(translated.body)
    assert ("/messages/1/content/0", "brand_new", "dropped") in [
        (loss.path, loss.concept, loss.action) for loss in translated.losses
    ]
