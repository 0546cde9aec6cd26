"""A reference to a conversation that a provider keeps never disappears on the way to another wire."""

import json

import pytest

from tables import every_case
from toolwire import Message, Request, Text, translate, translate_stream
from toolwire.bridge.conversation.provider_state import may_be_stored
from toolwire.bridge.translation.preparation import prepare
from toolwire.ir.errors import EncodeError, StoredStateError
from toolwire.wire import get, names

HELLO = {"role": "user", "content": "hi"}
CALL = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "seen"}
ANSWER = {"type": "message", "role": "assistant", "id": "msg_0", "content": [{"type": "output_text", "text": "yes"}]}


def responses(*items, **fields):
    return {"model": "gpt-5", "input": list(items or (HELLO,)), **fields}


THREAD = {"type": "continue", "previous_message_id": "msg_1"}
REFERENCES = [
    ("anthropic", {"model": "m", "max_tokens": 9, "messages": [HELLO], "thread": THREAD}, "/thread"),
    ("openai_responses", responses(previous_response_id="resp_1"), "/previous_response_id"),
    ("openai_responses", {"model": "gpt-5", "previous_response_id": "resp_1"}, "/previous_response_id"),
    ("openai_responses", responses(RESULT, previous_response_id="resp_1"), "/previous_response_id"),
    ("openai_responses", responses(CALL, HELLO, previous_response_id="resp_1"), "/previous_response_id"),
    (
        "openai_responses",
        {"model": "m", "previous_response_id": "r", "instructions": "Go on."},
        "/previous_response_id",
    ),
    ("openai_responses", responses(conversation="conv_1"), "/conversation"),
    ("openai_responses", responses(conversation={"id": "conv_1"}), "/conversation"),
    ("openai_responses", responses(prompt={"id": "pmpt_1", "variables": {"city": "Oslo"}}), "/prompt"),
    ("openai_responses", {"model": "gpt-5", "prompt": {"id": "pmpt_1"}}, "/prompt"),
    ("openai_responses", responses({"type": "item_reference", "id": "msg_1"}), "/input/0"),
    ("openai_responses", responses({"type": "item_reference", "id": "msg_1"}, HELLO), "/input/0"),
    ("openai_responses", responses(HELLO, ANSWER, CALL, {"type": "item_reference", "id": "x"}, RESULT), "/input/3"),
    ("openai_responses", responses(HELLO, {"type": "item_reference", "id": "x"}, instructions="Be kind."), "/input/1"),
    ("openai_responses", responses(HELLO, {"id": "rs_1"}, HELLO), "/input/1"),
    ("openai_responses", responses(HELLO, {"id": "rs_1", "type": None}), "/input/1"),
    ("openai_responses", responses({"type": "compaction", "encrypted_content": "x"}, HELLO), "/input/0"),
    (
        "gemini",
        {
            "contents": [
                {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"result": "seen"}}}]}
            ],
            "cachedContent": "cachedContents/1",
        },
        "/cachedContent",
    ),
    ("gemini", {"contents": [{"role": "user", "parts": [{"text": "hi"}]}], "cachedContent": "cachedContents/1"}, None),
    *(
        ("gemini_interactions", {"model": "m", "input": "hi", field: "v1_1"}, f"/{field}")
        for field in ("previous_interaction_id", "continuation_token", "cached_content", "agent")
    ),
    ("gemini_interactions", {"model": "m", "previous_interaction_id": "v1_1", "continuation_token": "t"}, None),
    ("openai_chat", {"model": "m", "messages": [HELLO, {"role": "assistant", "audio": {"id": "a1"}}, HELLO]}, None),
]


def escaped(name):
    return "".join(f"\\u{ord(letter):04x}" for letter in name)


@every_case(("source", "body", "pointer"), REFERENCES)
def test_reference_is_found_in_the_bytes_in_every_spelling(source, body, pointer):
    text = json.dumps(body)
    assert may_be_stored(text.encode(), source)
    assert may_be_stored(text.replace("cachedContent", "cached_content").encode(), source)
    for name in ("thread", "cachedContent", "audio"):
        assert may_be_stored(text.replace(f'"{name}"', f'"{escaped(name)}"').encode(), source)
        assert may_be_stored(text.replace(f'"{name}"', f'"{name[:-1]}{escaped(name[-1])}"').encode(), source)


@pytest.mark.parametrize("wire", ["anthropic", "gemini", "gemini_interactions", "ollama", "openai_chat"])
def test_text_about_references_is_no_reference(wire):
    text = 'a thread about audio, "caf\u00e9" and cachedContent'
    assert not may_be_stored(json.dumps({"messages": [{"content": text}]}).encode(), wire)


@pytest.mark.finding("G5")
@every_case(("source", "body", "pointer"), REFERENCES)
@every_case("target", names())
def test_reference_is_rejected_across_wires_and_kept_on_its_own_wire(source, body, pointer, target):
    if source == target:
        for model in (None, "another") if source != "openai_chat" else (None,):
            written = translate(body, source=source, target=target, model=model).body
            assert {**written, "model": "m"} == {**body, "model": "m"}
        return
    for strict in (False, True):
        with pytest.raises(StoredStateError) as caught:
            translate(body, source=source, target=target, model="m", strict=strict)
        error = caught.value
        assert error.status == 400
        assert error.pointer == pointer or pointer is None
        assert error.pointer and source in error.message and target in error.message and source in error.hint
    with pytest.raises(StoredStateError):
        prepare(get(source).decode_request(body), target)


@pytest.mark.finding("G5")
def test_stored_state_error_is_an_encode_error_with_a_pointer():
    with pytest.raises(EncodeError) as caught:
        translate(responses(previous_response_id="resp_1"), source="openai_responses", target="anthropic")
    assert str(caught.value) == (
        "previous_response_id refers to an earlier response, which only a provider of openai_responses can read; it cannot "
        "be sent over anthropic at /previous_response_id (send the whole conversation in `input`, or use a model that is "
        "served over openai_responses)"
    )
    assert caught.value.code == "previous_response_not_found"


@pytest.mark.finding("G5")
@every_case(
    "fields",
    [
        {"previous_response_id": None, "conversation": None, "prompt": None},
        {"previous_response_id": ""},
        {"store": True},
        {"store": False},
        {"background": False},
        {"background": None},
    ],
)
@every_case("target", [name for name in names() if name != "openai_responses"])
def test_fields_without_a_stored_reference_are_translated(fields, target):
    translation = translate(responses(**fields), source="openai_responses", target=target)
    assert get(target).decode_request(translation.body).messages == (Message("user", (Text("hi"),)),)
    assert not [loss for loss in translation.losses if loss.severity == "error"]


@pytest.mark.finding("G5")
@pytest.mark.parametrize("target", [name for name in names() if name != "openai_responses"])
def test_background_response_becomes_a_foreground_response_with_a_loss(target):
    """The whole conversation is there; the client gets its answer at once instead of by polling."""
    losses = translate(responses(background=True), source="openai_responses", target=target).losses
    assert [(loss.path, loss.severity) for loss in losses if loss.concept == "background"] == [
        ("/background", "warning")
    ]


@pytest.mark.finding("G5")
def test_extra_fields_of_other_wires_do_not_hide_the_reference():
    extra = {"openai_responses": {"previous_response_id": "resp_1"}, "openai_chat": {"seed": 7}}
    request = Request("m", (Message("user", (Text("hi"),)),), extra=extra)
    with pytest.raises(StoredStateError):
        prepare(request, "openai_chat")
    assert prepare(request, "openai_responses").request.extra == extra


@pytest.mark.finding("G5")
def test_response_is_translated_for_a_request_that_has_a_reference():
    """Whoever keeps the conversation itself asks with all of it, and answers the request that had the reference."""
    body = responses({"type": "item_reference", "id": "x"}, HELLO, previous_response_id="resp_1", stream=True)
    answer = {"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "yes"}}]}
    written = translate(answer, source="openai_chat", target="openai_responses", kind="response", request=body).body
    assert written["output"][0]["content"][0]["text"] == "yes"
    stream = translate_stream(source="openai_chat", target="openai_responses", request=body)
    pieces = (
        b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"yes"}}]}\n\n',
        b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
    )
    assert b'"yes"' in b"".join([*map(stream.feed, pieces), stream.close()])


@pytest.mark.finding("G5")
def test_summary_of_a_compacted_conversation_is_sent_as_text():
    content = [{"type": "compaction", "content": "Ann likes rain."}, {"type": "text", "text": "Noted."}]
    messages = [{"role": "assistant", "content": content}, {"role": "user", "content": "What do I like?"}]
    body = {"model": "claude", "max_tokens": 9, "messages": messages}
    translation = translate(body, source="anthropic", target="openai_chat")
    assert "Ann likes rain." in str(translation.body["messages"][0]["content"])
    assert [(loss.path, loss.action) for loss in translation.losses] == [("/messages/0/content/0", "rewritten")]
    assert translate(body, source="anthropic", target="anthropic", model="claude").body["messages"] == messages


def test_new_thread_of_anthropic_refers_to_nothing():
    body = {"model": "m", "max_tokens": 9, "messages": [HELLO], "thread": {"type": "create"}}
    translated = translate(body, source="anthropic", target="openai_chat")
    assert [loss.path for loss in translated.losses] == ["/thread"]
