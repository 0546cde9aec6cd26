"""Histories that clients send and providers refuse: they are rewritten, with a loss."""

import pytest

from toolwire import EncodeError, translate
from toolwire.bridge.conversation.history import BLANK
from toolwire.bridge.fitting.history import OPENING

FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def chat(*messages, **fields):
    return {"model": "m", "messages": list(messages), **fields}


def anthropic(*messages, **fields):
    return {"model": "m", "max_tokens": 99, "messages": list(messages), **fields}


def use(call_id, name):
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}}


def called(*names):
    return {"role": "assistant", "content": [use(f"t{name}", name) for name in names]}


def answered(*names):
    return {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": f"t{name}", "content": name} for name in names],
    }


def check_results_follow_calls(messages):
    """Chat's rule: all calls of a message are answered before the next message that is not a result."""
    open_calls = []
    for message in messages:
        if message["role"] == "tool":
            open_calls.remove(message.get("tool_call_id") or message["tool_name"])
            continue
        assert open_calls == []
        calls = message.get("tool_calls", ())
        open_calls = [call.get("id") or call["function"]["name"] for call in calls]
    assert open_calls == []


@pytest.mark.finding("S3")
@pytest.mark.parametrize("target", ["openai_chat", "ollama"])
@pytest.mark.parametrize(
    "turns",
    [
        (called("f"), called("g"), answered("f", "g")),
        (called("f"), {"role": "assistant", "content": "And:"}, called("g"), answered("f", "g")),
        ({"role": "assistant", "content": "First:"}, called("f"), called("g", "h"), answered("g", "f", "h")),
        (called("f"), {"role": "assistant", "content": "Wait."}, answered("f")),
    ],
)
def test_results_follow_the_message_with_their_calls(target, turns):
    body = anthropic({"role": "user", "content": "go"}, *turns)
    check_results_follow_calls(translate(body, source="anthropic", target=target).body["messages"])


@pytest.mark.finding("S3")
def test_results_of_consecutive_gemini_turns_follow_their_calls():
    def call(name):
        return {"role": "model", "parts": [{"functionCall": {"id": name, "name": name, "args": {}}}]}

    results = [{"functionResponse": {"id": name, "name": name, "response": {"output": 1}}} for name in ("f", "g")]
    contents = [{"role": "user", "parts": [{"text": "go"}]}, call("f"), call("g"), {"role": "user", "parts": results}]
    for target in ("openai_chat", "ollama"):
        check_results_follow_calls(
            translate({"contents": contents}, source="gemini", target=target, model="m").body["messages"]
        )


@pytest.mark.finding("S7")
@pytest.mark.parametrize("blank", [" ", "\n\t", "\u00a0", "\u2003"])
def test_blank_text_is_not_sent_to_anthropic(blank):
    body = chat(
        {"role": "user", "content": [{"type": "text", "text": blank}, {"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": blank, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": blank},
        tools=[FUNCTION],
    )  # fmt: skip
    translation = translate(body, source="openai_chat", target="anthropic")
    texts = [block["text"] for message in translation.body["messages"] for block in message["content"] if isinstance(block, dict) and "text" in block]  # fmt: skip
    assert texts == ["hi"] or translation.body["messages"][0]["content"] == "hi"
    assert [loss.concept for loss in translation.losses].count("blank text") == 3


@pytest.mark.finding("S7")
def test_blank_last_message_stays_a_message():
    body = chat({"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes?"}, {"role": "user", "content": " "})  # fmt: skip
    translation = translate(body, source="openai_chat", target="anthropic")
    assert translation.body["messages"][-1] == {"role": "user", "content": BLANK}
    assert "blank text" in [loss.concept for loss in translation.losses]


@pytest.mark.finding("S7")
def test_trailing_whitespace_of_a_prefill_is_removed_for_anthropic():
    body = chat({"role": "user", "content": "hi"}, {"role": "assistant", "content": "The answer is \n"})
    translation = translate(body, source="openai_chat", target="anthropic", model="claude-3-5-haiku-20241022")
    assert translation.body["messages"][-1]["content"] == "The answer is"
    assert [loss.path for loss in translation.losses if loss.concept == "trailing whitespace"] == [
        "/messages/1/content"
    ]


@pytest.mark.finding("S8")
@pytest.mark.parametrize("target", ["anthropic", "gemini"])
def test_history_that_begins_with_the_assistant_gets_a_user_message(target):
    body = chat({"role": "system", "content": "Be kind."}, {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "hi"})  # fmt: skip
    translation = translate(body, source="openai_chat", target=target)
    messages = translation.body["messages" if target == "anthropic" else "contents"]
    assert [message["role"] for message in messages][:2] == ["user", "assistant" if target == "anthropic" else "model"]
    assert OPENING in str(messages[0])
    assert [(loss.path, loss.action) for loss in translation.losses if "start" in loss.concept] == [("/messages/1", "rewritten")]  # fmt: skip


@pytest.mark.finding("S18")
def test_results_are_alone_in_their_message_on_gemini():
    body = anthropic({"role": "user", "content": "go"}, called("f"), {"role": "user", "content": [*answered("f")["content"], {"type": "text", "text": "well?"}]})  # fmt: skip
    contents = translate(body, source="anthropic", target="gemini").body["contents"]
    assert [[next(iter(part)) for part in content["parts"]] for content in contents[2:]] == [["functionResponse"], ["text"]]  # fmt: skip
    assert [content["role"] for content in contents] == ["user", "model", "user", "user"]


@pytest.mark.finding("S16")
@pytest.mark.parametrize("order", [("max_tokens", "max_completion_tokens"), ("max_completion_tokens", "max_tokens")])
def test_deprecated_token_limit_is_the_one_that_is_lost(order):
    limits = {"max_tokens": 10, "max_completion_tokens": 20}
    body = chat({"role": "user", "content": "hi"}, **{name: limits[name] for name in order})
    translation = translate(body, source="openai_chat", target="openai_responses")
    assert translation.body["max_output_tokens"] == 20
    assert [loss.path for loss in translation.losses if loss.action == "dropped"] == ["/max_tokens"]
    assert translate(body, source="openai_chat", target="openai_chat", model="m").body == body


@pytest.mark.finding("S16")
def test_request_without_a_model_is_reported():
    body = {"input": "hi", "store": False}
    losses = translate(body, source="openai_responses", target="openai_chat").losses
    assert [(loss.concept, loss.severity) for loss in losses] == [("model", "error")]
    assert not translate(body, source="openai_responses", target="openai_chat", model="m").losses


@pytest.mark.finding("S15")
@pytest.mark.parametrize("target", ["openai_chat", "openai_responses", "gemini", "ollama"])
def test_prefill_is_refused_only_for_models_of_the_target(target):
    body = anthropic({"role": "user", "content": "hi"}, {"role": "assistant", "content": "It is"})
    translate({**body, "model": "claude-sonnet-5"}, source="anthropic", target=target)
    with pytest.raises(EncodeError, match="cannot continue an assistant message"):
        translate(chat(*body["messages"]), source="openai_chat", target="anthropic", model="claude-sonnet-5")


@pytest.mark.finding("G14")
def test_only_the_last_four_cache_marks_reach_anthropic():
    mark = {"type": "ephemeral"}
    messages = [{"role": role, "content": f"{n}", "cache_control": mark} for n, role in enumerate(["user", "assistant"] * 3)]  # fmt: skip
    body = chat(*messages, {"role": "user", "content": "last"}, tools=[{**FUNCTION, "cache_control": mark}])
    translation = translate(body, source="openai_chat", target="anthropic")
    marked = [message["content"][0]["text"] for message in translation.body["messages"] if "cache_control" in str(message)]  # fmt: skip
    assert marked == ["2", "3", "4", "5"]
    assert "cache_control" not in translation.body["tools"][0]
    dropped = [loss.path for loss in translation.losses if loss.concept == "cache mark"]
    assert len(dropped) == 3


def test_reasoning_is_dropped_if_the_next_item_has_no_id():
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    items = [{"role": "user", "content": "hi"}, reasoning, {"role": "assistant", "content": "hello"}, {"role": "user", "content": "?"}]  # fmt: skip
    sent = translate({"model": "gpt-5", "input": items}, source="openai_responses", target="openai_responses", model="gpt-5").body  # fmt: skip
    assert [item.get("type", "message") for item in sent["input"]] == ["message"] * 3
    items[2] = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "hello", "annotations": []}]}  # fmt: skip
    sent = translate({"model": "gpt-5", "input": items}, source="openai_responses", target="openai_responses", model="gpt-5").body  # fmt: skip
    assert sent["input"][1]["id"] == "rs_1"


def test_turn_of_which_nothing_can_be_written_is_left_out_on_chat():
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    items = [{"role": "user", "content": "hi"}, reasoning, {"role": "user", "content": "?"}]
    sent = translate({"model": "gpt-5", "input": items}, source="openai_responses", target="openai_chat").body
    assert [message["role"] for message in sent["messages"]] == ["user", "user"]


def test_foreign_part_of_a_user_message_leaves_a_placeholder():
    shown = {"role": "user", "content": [{"type": "hologram", "data": "x"}]}
    body = chat({"role": "user", "content": "hi"}, {"role": "assistant", "content": "Show me."}, shown)
    translation = translate(body, source="openai_chat", target="anthropic")
    assert translation.body["messages"][-1] == {"role": "user", "content": "[hologram: not available]"}
    assert [(loss.path, loss.severity) for loss in translation.losses if loss.concept == "hologram"] == [("/messages/2/content/0", "error")]  # fmt: skip
    with pytest.raises(EncodeError, match="no message to answer"):
        translate(chat(shown), source="openai_chat", target="anthropic")


@pytest.mark.parametrize("address", ["https://example.com/a.pdf", "data:application/pdf;base64,JVBERi0="])
def test_document_of_mistral_is_a_file(address):
    document = {"type": "document_url", "document_url": address, "document_name": "a.pdf"}
    body = chat({"role": "user", "content": [{"type": "text", "text": "read"}, document]})
    assert translate(body, source="openai_chat", target="openai_chat", model="m").body == body
    blocks = translate(body, source="openai_chat", target="anthropic").body["messages"][0]["content"]
    assert blocks[1]["type"] == "document"
