"""Answers on the way back, in both forms: truncated calls, and answers without content."""

from __future__ import annotations

from itertools import permutations, product

import pytest

import toolwire
from tables import every_case
from toolwire.bridge.translation.exchange import Exchange
from toolwire.ir import Losses, Message, Reasoning, Refusal, Request, Response, Stop, Text, Tool, ToolCall, ToolChoice
from toolwire.ir.text import dumps
from toolwire.testing.stream_checks import decode_stream
from toolwire.wire import get, names
from whole_and_streamed import as_stream, disagreements, is_same_answer

FRONTS = ("anthropic", "bedrock", "gemini", "gemini_interactions", "ollama", "openai_chat", "openai_responses")
EMPTY = {
    "openai_chat": ({"id": "x", "model": "m", "choices": []}, b"data: [DONE]\n\n"),
    "anthropic": (
        {"id": "x", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None},
        b'data: {"type": "message_start", "message": {"id": "x", "model": "m"}}\n\ndata: {"type": "message_stop"}\n\n',
    ),
    "bedrock": ({"output": {"message": {"role": "assistant", "content": []}}}, b""),
    "gemini": (
        {"responseId": "x", "modelVersion": "m", "usageMetadata": {"promptTokenCount": 3}},
        b'data: {"responseId": "x", "usageMetadata": {"promptTokenCount": 3}}\n\n',
    ),
    "cohere": (
        {"id": "x", "message": {"role": "assistant"}},
        b'data: {"id": "x", "type": "message-start"}\n\ndata: {"type": "message-end", "delta": {}}\n\n',
    ),
    "gemini_interactions": (
        {"id": "x", "object": "interaction", "model": "m", "status": "in_progress", "steps": []},
        b'data: {"event_type": "interaction.created", "interaction": {"id": "x"}}\n\ndata: [DONE]\n\n',
    ),
    "ollama": ({"model": "m", "message": {"role": "assistant", "content": ""}, "done": False}, b'{"model": "m"}\n'),
    "openai_responses": ({"id": "x", "object": "response", "status": "queued", "output": []}, b""),
}


def translated(document, data, source, target):
    """Return the answer on the target in both forms, as its client reads it, and the losses."""
    whole = toolwire.translate(document, source=source, target=target, kind="response")
    stream = toolwire.translate_stream(source=source, target=target)
    written = stream.feed(data) + stream.close()
    folded = toolwire.fold(decode_stream(get(target), [written]))
    return (get(target).decode_response(whole.body), whole.losses), (folded, tuple(stream.losses))


def test_every_wire_has_an_empty_answer():
    assert set(EMPTY) == set(names())


@pytest.mark.finding("G19")
@every_case("target", FRONTS)
@every_case("source", EMPTY)
def test_answer_without_content_and_stop_reason_is_an_upstream_error(source, target):
    if source == target:
        return
    document, data = EMPTY[source]
    whole = toolwire.translate(document, source=source, target=target, kind="response")
    assert whole.status == (500 if target == "bedrock" else 502)  # the API of Bedrock has no 502
    assert "neither content nor a stop reason" in get(target).decode_error(502, whole.body).message
    stream = toolwire.translate_stream(source=source, target=target)
    written = stream.feed(data) + stream.close()
    assert stream.error is not None
    assert toolwire.fold(decode_stream(get(target), [written])).fault is not None


@pytest.mark.finding("G19")
@pytest.mark.parametrize("target", [front for front in FRONTS if front != "openai_responses"])
def test_completed_answer_without_output_is_an_answer(target):
    document = {"id": "x", "object": "response", "status": "completed", "output": []}
    whole = toolwire.translate(document, source="openai_responses", target=target, kind="response")
    assert whole.status == 200
    assert get(target).decode_response(whole.body).stop.reason == "stop"


def chat_answer(*arguments, text=None, reason="length"):
    """Return a Chat answer with one call for each text of arguments, in both forms."""
    calls = [
        {"id": f"c{number}", "type": "function", "function": {"name": "save", "arguments": text}}
        for number, text in enumerate(arguments)
    ]
    message = {"role": "assistant", "content": text, "tool_calls": calls}
    document = {"id": "x", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": reason}]}
    response = get("openai_chat").decode_response(document)
    encoder = get("openai_chat").stream_encoder()
    return document, b"".join([encoder.feed(event) for event in toolwire.unfold(response)])


CUT = '{"path": "a.txt", "content": "Dear Si'


def test_truncated_call_reaches_anthropic_with_its_complete_arguments_only():
    for answer, losses in translated(*chat_answer(CUT), "openai_chat", "anthropic"):
        (call,) = answer.calls
        assert (call.state, call.arguments) == ("truncated", None)
        assert toolwire.stream.strict.parse_partial(call.raw) == {"path": "a.txt"}
        assert answer.stop.reason == "length"
        assert [(loss.concept, loss.action, loss.severity) for loss in losses if loss.concept == "call"] == [
            ("call", "weakened", "warning")
        ]


def test_truncated_call_is_in_an_anthropic_document_as_the_api_writes_it():
    body = toolwire.translate(chat_answer(CUT)[0], source="openai_chat", target="anthropic", kind="response").body
    assert body["stop_reason"] == "max_tokens"
    assert body["content"] == [{"type": "tool_use", "id": "c0", "name": "save", "input": {"path": "a.txt"}}]


@pytest.mark.parametrize("target", ["gemini", "ollama"])
def test_truncated_call_is_left_out_where_every_call_looks_complete(target):
    for answer, losses in translated(*chat_answer(CUT, text="Saving."), "openai_chat", target):
        assert answer.calls == ()
        assert answer.text == "Saving."
        assert answer.stop.reason == "length"
        assert [
            (loss.path.startswith("/"), loss.action, loss.severity) for loss in losses if loss.concept == "call"
        ] == [(True, "dropped", "error")]


def test_truncated_call_is_text_on_responses():
    for answer, losses in translated(*chat_answer(CUT), "openai_chat", "openai_responses"):
        (call,) = answer.calls
        assert (call.state, call.raw) == ("truncated", CUT)
        assert answer.stop.reason == "length"
        assert [loss for loss in losses if loss.concept == "call"] == []


@pytest.mark.parametrize("target", ["anthropic", "gemini", "ollama"])
def test_call_that_ends_early_before_another_call_is_malformed(target):
    """A limit truncates the last call only."""
    for answer, losses in translated(*chat_answer(CUT, "{}", reason="tool_calls"), "openai_chat", target):
        assert "not the requested JSON object" in answer.fault.message
        assert "answer" in [loss.concept for loss in losses if loss.severity == "error"]


STOPS = ("stop", "tool_calls", "length", "content_filter", "refusal", "context_window", "pause", "unknown")


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("source", "target"), list(permutations(FRONTS, 2)))
def test_truncated_call_has_the_same_translation_in_both_forms_after_every_stop(source, target):
    codec = get(source)
    compared = 0
    for stop, kind, raw in product(STOPS, ("function", "search", "freeform"), ("", "{", '{"path": "a.txt"', CUT)):
        response = Response("r", "m", (ToolCall("c", "save", None, raw, "truncated", kind),), Stop(stop))
        document, data = codec.encode_response(response).body, as_stream(codec, response)
        if not is_same_answer(codec, document, data):
            continue  # the source has another form for it in a stream
        compared += 1
        assert disagreements(document, data, source, target) == [], (stop, kind, raw)
        if "truncated" in [call.state for call in codec.decode_response(document).calls]:
            for answer, _ in translated(document, data, source, target):
                assert "complete" not in [call.state for call in answer.calls], (stop, kind, raw)
    assert compared > 0 or source == "gemini_interactions"  # whose documents have no truncated calls


PARTS = (
    Text("It is warm."),
    Text(""),
    Refusal("I cannot do that."),
    Reasoning("Think."),
    Reasoning(extra={"openai_responses": {"id": "rs_1"}}),
    ToolCall("c", "save", {"path": "a.txt"}),
)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("source", "target"), list(permutations(FRONTS, 2)))
def test_parts_in_every_order_have_the_same_translation_in_both_forms(source, target):
    codec = get(source)
    for parts in permutations(PARTS, 3):
        restored = Exchange().restore(Response("r", "m", parts, Stop("stop")), client=codec.capabilities)
        document, data = codec.encode_response(restored).body, as_stream(codec, restored)
        if is_same_answer(codec, document, data):
            assert disagreements(document, data, source, target) == [], parts


@pytest.mark.parametrize("reason", ["content_filter", "stop"])
def test_stop_after_a_truncated_call_keeps_a_filter(reason):
    for answer, _ in translated(*chat_answer(CUT, reason=reason), "openai_chat", "anthropic"):
        assert answer.calls[0].state == "truncated"
        assert answer.stop.reason == ("refusal" if reason == "content_filter" else "length")


@pytest.mark.parametrize(("word", "reason"), [("max_tokens", "length"), ("refusal", "refusal")])
@pytest.mark.parametrize("arguments", [{}, {"path": "a.txt"}])
def test_last_call_of_an_anthropic_answer_that_ends_early_is_truncated_in_both_forms(arguments, word, reason):
    block = {"type": "tool_use", "id": "t", "name": "save", "input": arguments}
    head = {"id": "m", "type": "message", "role": "assistant", "model": "m", "usage": {}}
    codec = get("anthropic")
    whole = codec.decode_response({**head, "content": [block], "stop_reason": word})
    complete = codec.decode_response({**head, "content": [block], "stop_reason": "tool_use"})
    encoder = codec.stream_encoder()
    data = b"".join([encoder.feed(event) for event in toolwire.unfold(complete)])
    streamed = toolwire.fold(
        decode_stream(codec, [data.replace(b'"tool_use","stop_sequence', b'"%b","stop_sequence' % word.encode())])
    )
    for answer in (whole, streamed):
        (call,) = answer.calls
        assert (call.state, call.arguments) == ("truncated", None)
        assert answer.stop.reason == reason
        chat = toolwire.wire.get("openai_chat").encode_response(answer).body["choices"][0]["message"]
        written = chat["tool_calls"][0]["function"]["arguments"]
        assert not written.endswith("}")  # as text it looks truncated, too
    assert complete.calls[0].arguments == arguments


@pytest.mark.finding("G15")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("options", "kept", "lost"),
    [({"parallel": False}, ["f"], ["call of g"]), ({"choice": ToolChoice("none")}, [], ["call of f", "call of g"])],
)
def test_emulated_call_that_the_request_does_not_allow_is_a_loss(options, kept, lost, stream):
    tools = (Tool("f", input_schema={"type": "object"}), Tool("g", input_schema={"type": "object"}))
    emulation = toolwire.emulate(Request("m", (Message("user", (Text("hi"),)),), tools, **options), "hermes")
    text = "".join(f'<tool_call>{{"name": "{name}", "arguments": {{}}}}</tool_call>' for name in ("f", "g"))
    answer = Response("r", "m", (Text(text),), Stop("stop"))
    losses = Losses()
    if stream:
        reader = emulation.make_restorer(losses)
        restored = toolwire.fold([made for event in toolwire.unfold(answer) for made in reader.feed(event)])
    else:
        restored = emulation.restore(answer, losses)
    assert [call.name for call in restored.calls] == kept
    assert [loss.concept for loss in losses if loss.action == "dropped" and loss.severity == "error"] == lost


@pytest.mark.parametrize("target", ["anthropic", "openai_responses", "openai_chat", "ollama"])
def test_empty_part_that_carries_a_signature_is_not_an_empty_text_for_the_client(target):
    parts = [{"text": "Hi"}, {"text": "", "thoughtSignature": "U0lH"}]
    candidates = [[{"content": {"role": "model", "parts": [part]}, "index": 0}] for part in parts]
    candidates[1][0]["finishReason"] = "STOP"
    data = b"".join(b"data: " + dumps({"candidates": one}).encode() + b"\n\n" for one in candidates)
    document = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}]}
    for answer, losses in translated(document, data, "gemini", target):
        assert [part.text for part in answer.parts] == ["Hi"]
        assert "artefact" in {loss.concept for loss in losses}
