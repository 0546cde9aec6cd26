"""Converse: what differs from the wires whose blocks it resembles."""

import asyncio
import json

import pytest

import toolwire
from toolwire import ModelClient
from toolwire.ir import CallEnd, Message, Reasoning, Request, StreamFault, Text, TextDelta, TextStart, ToolCall, fold
from toolwire.ir.errors import ProtocolError, TruncatedStream
from toolwire.ir.parts import Media
from toolwire.ir.response import Response, Stop, Usage
from toolwire.stream.event_stream import EventStreamDecoder, encode_event, encode_exception, encode_message
from toolwire.testing import Upstream
from toolwire.wire import capabilities_for, get

BEDROCK = get("bedrock")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
ASK = {"role": "user", "content": "Weather in Paris?"}
CALLED = [
    ASK,
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {"city": "Paris"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "22"}]},
]
WIRES = ("anthropic", "gemini", "ollama", "openai_chat", "openai_responses")


def from_anthropic(model=CLAUDE, **fields):
    body = {"model": "m", "max_tokens": 100, "messages": [ASK], **fields}
    return toolwire.translate(body, source="anthropic", target="bedrock", model=model)


def stream_of(*events):
    return b"".join(
        encode_event(kind, json.dumps(payload).encode()) for event in events for kind, payload in event.items()
    )


def events_of(*pieces):
    decoder = BEDROCK.stream_decoder()
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return events + decoder.close()


def delta(index=0, **fields):
    return {"contentBlockDelta": {"contentBlockIndex": index, "delta": fields}}


STOP = {"messageStop": {"stopReason": "end_turn"}}
STREAM = stream_of({"messageStart": {"role": "assistant"}}, delta(text="Hi"), STOP)


@pytest.mark.case("13")
@pytest.mark.parametrize(("messages", "is_declared"), [([ASK], False), (CALLED, True)])
def test_choice_none_leaves_the_tools_out_unless_the_history_has_calls(messages, is_declared):
    tools = [{"name": "f", "input_schema": SCHEMA}]
    translation = from_anthropic(messages=messages, tools=tools, tool_choice={"type": "none"})
    assert ("toolConfig" in translation.body) == is_declared
    assert "toolChoice" not in translation.body.get("toolConfig", {})
    [loss] = [loss for loss in translation.losses if loss.path == "/tool_choice"]
    assert (loss.action, loss.severity) == (("weakened", "warning") if is_declared else ("rewritten", "info"))


def test_calls_in_the_history_are_declared_even_without_tools():
    body = from_anthropic(messages=CALLED).body
    assert [tool["toolSpec"]["name"] for tool in body["toolConfig"]["tools"]] == ["f"]


@pytest.mark.case("72")
def test_text_without_a_start_opens_with_its_first_delta():
    events = events_of(STREAM)
    assert [type(event) for event in events[1:3]] == [TextStart, TextDelta]
    assert fold(events).text == "Hi"
    switched = stream_of(delta(reasoningContent={"text": "hm"}), delta(text="Hi"), STOP)
    assert [type(part) for part in fold(events_of(switched)).parts] == [Reasoning, Text]


def test_cache_marks_become_cache_points_and_return():
    mark = {"type": "ephemeral", "ttl": "1h"}
    content = [{"type": "text", "text": "a", "cache_control": mark}, {"type": "text", "text": "b"}]
    tools = [{"name": "f", "input_schema": SCHEMA, "cache_control": mark}]
    body = from_anthropic(messages=[{"role": "user", "content": content}], tools=tools).body
    point = {"cachePoint": {"type": "default", "ttl": "1h"}}
    assert body["messages"][0]["content"] == [{"text": "a"}, point, {"text": "b"}]
    assert body["toolConfig"]["tools"][1] == point
    returned = toolwire.translate(body, source="bedrock", target="anthropic", model="claude-sonnet-4-5").body
    assert returned["messages"][0]["content"] == content
    assert returned["tools"][0]["cache_control"] == mark


def test_a_model_without_prompt_caching_gets_no_cache_points():
    content = [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]
    translation = from_anthropic("meta.llama3-1-70b-instruct-v1:0", messages=[{"role": "user", "content": content}])
    assert translation.body["messages"][0]["content"] == [{"text": "a"}]
    assert any(loss.concept == "cache mark" for loss in translation.losses)
    assert capabilities_for("bedrock", CLAUDE).cache_marks is True


@pytest.mark.parametrize(("model", "is_sent"), [(CLAUDE, True), ("amazon.nova-pro-v1:0", False)])
def test_fields_of_claude_are_sent_to_claude_only(model, is_sent):
    translation = from_anthropic(model, thinking={"type": "enabled", "budget_tokens": 2048}, max_tokens=4096)
    sent = translation.body.get("additionalModelRequestFields", {})
    assert ("thinking" in sent) == is_sent
    if not is_sent:
        assert any("reasoning" in loss.concept or "thinking" in loss.concept for loss in translation.losses)


def test_the_pointer_of_a_loss_counts_cache_points():
    """A document pointer counts the blocks of the document, in which a cache point is a block of its own."""
    image = {"image": {"format": "png", "source": {"s3Location": {"uri": "s3://bucket/a"}}}}
    content = [{"text": "a"}, {"cachePoint": {"type": "default"}}, image]
    body = {"messages": [{"role": "user", "content": content}]}
    losses = toolwire.translate(body, source="bedrock", target="gemini", model="m").losses
    assert [loss.path for loss in losses if loss.concept == "image"] == ["/messages/0/content/2"]


def test_documents_get_a_name_that_bedrock_accepts():
    named = Media("file", "application/pdf", "JVBERi0=", name="my report_v1.5.pdf")
    unnamed = Media("file", "application/json", "e30=")
    body, losses = BEDROCK.encode_request(Request(messages=(Message("user", (Text("see"), named, unnamed)),)))
    first, second = (block["document"] for block in body["messages"][0]["content"][1:])
    assert (first["name"], first["format"]) == ("my report-v1-5-pdf", "pdf")
    assert (second["name"], second["format"]) == ("document-0-2", "txt")
    assert {loss.path.rpartition("/")[2] for loss in losses} == {"name", "media_type"}


def test_a_stream_is_detected_and_translated_to_every_wire_and_back():
    assert toolwire.detect(STREAM) == toolwire.detect(STREAM[: len(STREAM) // 2])
    assert (toolwire.detect(STREAM).wire, toolwire.detect(STREAM).kind) == ("bedrock", "stream")
    assert toolwire.detect(encode_exception("throttlingException", b'{"message": "slow"}')).wire == "bedrock"
    for wire in WIRES:
        there = toolwire.translate_stream(source="bedrock", target=wire)
        back = toolwire.translate_stream(source=wire, target="bedrock")
        data = there.feed(STREAM) + there.close()
        data = back.feed(data) + back.close()
        assert fold(events_of(data)).text == "Hi"


def test_a_damaged_stream_becomes_an_error_after_its_text():
    damaged = bytearray(STREAM)
    damaged[-5] ^= 1
    for size in (1, 50, len(damaged)):
        translation = toolwire.translate_stream(source="bedrock", target="anthropic")
        pieces = [translation.feed(bytes(damaged[at : at + size])) for at in range(0, len(damaged), size)]
        data = b"".join(pieces) + translation.close()
        assert b"Hi" in data and b"event: error" in data and b"message_stop" not in data
        assert isinstance(translation.error, ProtocolError)


def test_counts_may_be_missing_after_the_stop_reason_but_nothing_before_it():
    assert fold(events_of(STREAM)).usage is None
    metadata = stream_of({"metadata": {"usage": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}}})
    assert fold(events_of(STREAM + metadata)).usage == Usage(1, 2)
    assert fold(events_of(STREAM + metadata[:30])).stop == Stop("stop")
    with pytest.raises(TruncatedStream):
        events_of(STREAM[:-1])


def test_an_error_message_without_a_payload_is_a_fault():
    error = encode_message(
        {":message-type": "error", ":error-code": "InternalFailure", ":error-message": "it broke"}, b""
    )
    last = events_of(error)[-1]
    assert isinstance(last, StreamFault)
    assert (last.fault.kind, last.fault.message) == ("server", "it broke")


def test_a_closing_brace_is_held_until_the_stop_reason_shows_that_the_call_is_complete():
    start = {"contentBlockStart": {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "t", "name": "f"}}}}
    data = stream_of(start, delta(toolUse={"input": '{"a":{}}'}), {"contentBlockStop": {"contentBlockIndex": 0}})
    for reason, state in (("tool_use", "complete"), ("max_tokens", "truncated")):
        events = events_of(data, stream_of({"messageStop": {"stopReason": reason}}))
        ends = [event for event in events if isinstance(event, CallEnd)]
        assert [end.state for end in ends] == [state]
        deltas = "".join(event.text for event in events if type(event).__name__ == "CallDelta")
        assert deltas == ('{"a":{}}' if state == "complete" else '{"a":{}')


def test_unknown_events_and_padding_are_no_content():
    data = stream_of({"brandNew": {"x": 1}}, delta(text="Hi"), delta(text=""), delta(audio={"x": 1}), STOP)
    decoder = BEDROCK.stream_decoder()
    response = fold([*decoder.feed(data), *decoder.close()])
    assert response.text == "Hi"
    assert {loss.concept for loss in decoder.losses} == {"event brandNew", "delta audio"}


@pytest.mark.parametrize("provider", ["bedrock", "bedrock-anthropic"])
@pytest.mark.parametrize("piece", [1, 64, 65_536])
def test_a_model_client_asks_and_streams(provider, piece):
    answer = Response(
        parts=(Text("é😀"), ToolCall("t1", "f", {"city": "Paris"})), stop=Stop("tool_calls"), usage=Usage(3, 4)
    )
    request = Request(messages=(Message("user", (Text("hi"),)),))

    async def run():
        async with (
            Upstream(answer, answer, piece=piece) as upstream,
            ModelClient(f"{provider}/{CLAUDE}", base_url=upstream.url, key="k") as client,
        ):
            whole = await client.ask(request)
            events = [event async for event in client.stream(request)]
        return whole, fold(events), [received.path for received in upstream.requests]

    whole, streamed, paths = asyncio.run(run())
    for response in (whole, streamed):
        assert (response.text, response.calls[0].arguments) == ("é😀", {"city": "Paris"})
        assert (response.stop.reason, response.usage.total) == ("tool_calls", 7)
    ends = ("/converse", "/converse-stream") if provider == "bedrock" else ("/invoke", "/invoke-with-response-stream")
    assert all(path.endswith(end) for path, end in zip(paths, ends, strict=True))


def test_an_encoded_stream_is_a_sequence_of_whole_messages():
    translation = toolwire.translate_stream(source="anthropic", target="bedrock")
    lines = [
        {"type": "message_start", "message": {"id": "m", "model": "c", "content": [], "usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]
    kinds = []
    for line in lines:
        decoder = EventStreamDecoder()
        data = translation.feed(f"data: {json.dumps(line)}\n\n".encode())
        kinds += [message.text(":event-type") for message in decoder.feed(data)]
        decoder.close()
    assert kinds == ["messageStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata"]
