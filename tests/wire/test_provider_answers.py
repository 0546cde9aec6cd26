"""Answers in shapes that providers and gateways send beyond their documentation."""

import json

import pytest

import toolwire
from places import TESTS
from toolwire.ir import (
    Fault,
    Opaque,
    PartStart,
    ProtocolError,
    Reasoning,
    Response,
    ResponseEnd,
    ResponseStart,
    Stop,
    StreamFault,
    Text,
    TextEnd,
    TextStart,
    TruncatedStream,
    Usage,
    WholePart,
    fold,
)
from toolwire.ir.errors import EncodeError
from toolwire.testing import load_vectors, same
from toolwire.testing.assertions import plain, strip_extra
from toolwire.testing.stream_checks import decode_stream
from toolwire.wire import get
from toolwire.wire.streaming.decoder import Fragments

VECTORS = TESTS / "vectors" / "wire"
WIRES = ["openai_chat", "openai_responses", "anthropic", "gemini", "gemini_interactions", "ollama"]


def named(*events):
    return b"".join(b"event: %b\ndata: %b\n\n" % (one["type"].encode(), json.dumps(one).encode()) for one in events)


def message_start(message_id):
    message = {"id": message_id, "type": "message", "role": "assistant", "model": "claude", "content": []}
    return {"type": "message_start", "message": {**message, "usage": {"input_tokens": 3, "output_tokens": 1}}}


BLOCK = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hel"}}


def test_a_second_message_in_one_stream_is_a_protocol_error():
    """vercel/ai#18331: a gateway lost its upstream, tried again, and appended the second answer to the first."""
    decoder = get("anthropic").stream_decoder()
    with pytest.raises(ProtocolError) as caught:
        decoder.feed(named(message_start("msg_1"), BLOCK))
        decoder.feed(named(message_start("msg_2")))
    assert (caught.value.status, caught.value.pointer) == (502, "/message/id")


@pytest.mark.parametrize("target", [wire for wire in WIRES if wire != "anthropic"])
def test_a_second_message_ends_a_translated_stream_in_an_error(target):
    stream = toolwire.translate_stream(source="anthropic", target=target)
    written = stream.feed(named(message_start("msg_1"), BLOCK)) + stream.feed(named(message_start("msg_2")))
    assert isinstance(stream.error, ProtocolError)
    assert stream.feed(named(BLOCK)) == stream.close() == b""
    *_, last = decode_stream(get(target), [written])
    assert isinstance(last, StreamFault) and "msg_2" in last.fault.message


def test_block_before_its_message_starts_the_message():
    events = get("anthropic").stream_decoder().feed(named(BLOCK))
    assert isinstance(events[0], ResponseStart)


class OutOfOrder:
    """A decoder whose events no encoder accepts."""

    def feed(self, data):
        return [ResponseStart("r", "m"), TextStart(0), ResponseStart("r", "m")]


@pytest.mark.parametrize("target", WIRES[1:])
def test_events_out_of_order_end_a_translated_stream_in_an_error(target):
    stream = toolwire.translate_stream(source="openai_chat", target=target)
    stream._decoder = OutOfOrder()
    written = stream.feed(b"")
    assert isinstance(stream.error, EncodeError)
    *_, last = decode_stream(get(target), [written])
    assert isinstance(last, StreamFault)


def test_an_error_after_the_start_does_not_start_another_message():
    encoder = get("anthropic").stream_encoder()
    encoder.feed(ResponseStart("r", "m"))
    written = encoder.feed(StreamFault(Fault("overloaded", "busy", 529)))
    assert written.startswith(b"event: error\n") and b"message_start" not in written


def test_a_responses_stream_may_begin_with_its_first_item():
    item = {"id": "m", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]}
    final = {"id": "r", "object": "response", "model": "m", "status": "completed", "output": [item]}
    data = named(
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": final},
    )
    events = decode_stream(get("openai_responses"), [data])
    assert isinstance(events[0], ResponseStart)
    assert fold(events).text == "hi"


def test_a_responses_stream_may_leave_out_the_start_of_an_item():
    item = {"id": "m", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]}
    delta = {"type": "response.output_text.delta", "item_id": "m", "output_index": 1, "content_index": 0, "delta": "hi"}
    thought = {"type": "response.reasoning_text.delta", "output_index": 0, "content_index": 0, "delta": "so"}
    reasoning = {"id": "r", "type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "so"}]}
    final = {"id": "r", "object": "response", "model": "m", "status": "completed", "output": [reasoning, item]}
    data = named(thought, delta, {"type": "response.completed", "response": final})
    wire = get("openai_responses")
    assert same(fold(decode_stream(wire, [data])).parts, wire.decode_response(final).parts)


def test_a_text_that_differs_from_its_deltas_is_reported():
    item = {"id": "m", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "bye"}]}
    decoder = get("openai_responses").stream_decoder()
    delta = {"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0}
    events = decoder.feed(
        named(
            {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
            {**delta, "delta": "hi"},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": [item]}},
        )
    )
    assert fold(events).text == "hi"
    assert [loss.detail for loss in decoder.losses] == [
        "the finished item differs from its deltas, which have been sent"
    ]


def test_part_completed_late_keeps_its_position():
    value = {"type": "mcp_list_tools", "id": "l", "tools": []}
    part = Opaque("openai_responses", "mcp_list_tools", value)
    events = [
        ResponseStart("r", "m", 0),
        PartStart(0, part),
        TextStart(1),
        TextEnd(1),
        WholePart(0, part),
        ResponseEnd((Stop("stop"),)),
    ]
    assert [type(one) for one in fold(events).parts] == [Opaque, Text]
    encoder = get("openai_responses").stream_encoder()
    written = b"".join([encoder.feed(event) for event in events])
    assert [type(one) for one in fold(decode_stream(get("openai_responses"), [written])).parts] == [Opaque, Text]
    chat = get("openai_chat").stream_encoder()
    for event in events:
        chat.feed(event)
    assert [loss.path for loss in chat.losses if loss.concept == "mcp_list_tools"] == ["/parts/0"]


def test_thinking_outside_assistant_messages_is_kept_unchanged():
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "so"}]}
    messages = [
        {"role": "system", "content": [thinking]},
        {"role": "tool", "tool_call_id": "a", "content": [thinking]},
        {"role": "assistant", "content": [thinking, {"type": "text", "text": "4"}]},
    ]
    body = {"model": "m", "messages": messages}
    chat = get("openai_chat")
    request = chat.decode_request(body)
    assert [type(message.parts[0]).__name__ for message in request.messages] == ["Opaque", "ToolResult", "Reasoning"]
    assert chat.encode_request(request).body == body


@pytest.mark.parametrize("target", ["openai_chat", "ollama"])
def test_joined_message_parts_are_reported(target):
    response = Response("r", "m", (Text("a"), Reasoning("b"), Text("c"), Reasoning("d")), Stop("stop"))
    losses = get(target).encode_response(response).losses
    assert {loss.path for loss in losses if loss.action == "rewritten"} == {f"/parts/{n}" for n in range(4)}
    assert {loss.path for loss in losses if loss.action == "moved"} >= {"/parts/1", "/parts/3"}


def test_overlapping_token_counts_keep_their_sum_on_anthropic():
    """OpenRouter counts tokens that are read from a cache as written, too."""
    body, losses = get("anthropic").encode_response(
        Response("r", "m", (Text("a"),), Stop("stop"), Usage(2168, 100, cached=2161, cache_write=2161))
    )
    usage = get("anthropic").decode_response(body).usage
    assert (usage.input, usage.cached, usage.cache_write) == (2168, 2161, 7)
    assert [loss.path for loss in losses] == ["/usage/cache_write"]


def test_response_without_a_stop_reason_gets_one_on_another_wire():
    content = [{"type": "output_text", "text": "It will", "annotations": []}]
    item = {"type": "message", "id": "i", "role": "assistant", "status": "in_progress", "content": content}
    running = {
        "id": "r",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "in_progress",
        "output": [item],
    }
    translation = toolwire.translate(running, source="openai_responses", target="openai_chat", kind="response")
    assert translation.body["choices"][0]["finish_reason"] == "stop"
    assert "stop reason unknown" in {loss.concept for loss in translation.losses}


def test_hosted_tool_tokens_are_reported_on_wires_that_do_not_count_them():
    usage = {"promptTokenCount": 10, "toolUsePromptTokenCount": 7, "candidatesTokenCount": 5}
    parts = [{"text": "hi"}]
    body = {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}],
        "usageMetadata": usage,
    }
    for target in ("openai_chat", "openai_responses", "anthropic", "ollama"):
        translation = toolwire.translate(body, source="gemini", target=target, kind="response")
        assert "input tokens of hosted tools" in {loss.concept for loss in translation.losses}
        assert get(target).decode_response(translation.body).usage.input == 17


@pytest.mark.parametrize("count", [70, 700, 7000])
def test_joining_fragments_visits_each_fragment_once(count, monkeypatch):
    visited = []
    add = Fragments.add
    monkeypatch.setattr(Fragments, "add", lambda self, fields: visited.append(1) or add(self, fields))
    fragments = Fragments()
    for number in range(count):
        fragments.add({"details": [{"type": "t", "index": number % 7, "text": "a"}], "channel": "final"})
    joined = fragments.join()
    assert len(visited) == 2 * count  # once as they come, once when they are joined
    assert joined == {
        "details": [{"type": "t", "index": n, "text": "a" * (count // 7)} for n in range(7)],
        "channel": "final",
    }


NOISE = {
    "openai_chat": b'data: {"choices":[],"new_field":{"a":null}}\n\n: comment\n\n',
    "openai_responses": b'event: response.new.delta\ndata: {"type":"response.new.delta","output_index":0,"delta":{"a":1}}\n\n',
    "anthropic": b'event: new_event\ndata: {"type":"new_event","index":0,"a":null}\n\n',
    "gemini": b'data: {"newField":{"a":null}}\n\n',
    "gemini_interactions": b'event: interaction.new\ndata: {"event_type":"interaction.new","index":0,"a":null}\n\n',
    "ollama": b'{"new_field":{"a":null},"done":false}\n',
}


@pytest.mark.parametrize("wire", WIRES)
def test_events_of_an_unknown_type_are_ignored(wire):
    """A provider may add events, chunks and fields at any time."""
    end = b"\n" if wire == "ollama" else b"\n\n"
    for vector in load_vectors(VECTORS / f"{wire}.json"):
        if vector.kind != "stream" or end not in vector.data or vector.data.startswith(b"["):
            continue
        first, *rest = vector.data.split(end)
        noisy = end.join([first, *(NOISE[wire].removesuffix(end) + end + frame if frame else frame for frame in rest)])
        expected, found = fold(decode_stream(get(wire), [vector.data])), fold(decode_stream(get(wire), [noisy]))
        assert same(strip_extra(plain(found)), strip_extra(plain(expected))), vector.name


def test_done_ends_a_chat_stream_without_a_finish_reason():
    call = {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    cut = {"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": '{"a": '}}
    chunk = {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"content": "hi", "tool_calls": [call, cut]}}]}
    data = b"data: %b\n\n" % json.dumps(chunk).encode()
    response = fold(decode_stream(get("openai_chat"), [data, b"data: [DONE]\n\n"]))
    assert (response.text, response.stop) == ("hi", None)
    assert [(one.name, one.state) for one in response.calls] == [("f", "complete"), ("g", "truncated")]
    with pytest.raises(TruncatedStream):
        decode_stream(get("openai_chat"), [data])
    for target in WIRES[1:]:
        stream = toolwire.translate_stream(source="openai_chat", target=target)
        back = fold(decode_stream(get(target), [stream.feed(data + b"data: [DONE]\n\n") + stream.close()]))
        assert back.stop is not None and back.stop.reason == "length", "a call was cut short"
