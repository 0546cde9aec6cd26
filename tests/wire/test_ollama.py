"""What is special about Ollama's own protocol."""

import asyncio
import json

import pytest

import toolwire
from toolwire.bridge.translation.detection import Detected
from toolwire.ir import Fault, Media, Message, ProtocolError, Response, Stop, Text, ToolCall, Usage
from toolwire.ir.events import CallStart, Ping, ResponseEnd, ResponseStart, StreamFault, TextEnd, TextStart
from toolwire.wire import get

OLLAMA = get("ollama")
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
LINE = {"model": "m", "created_at": "2026-11-15T09:00:00Z", "message": {"role": "assistant", "content": "a"}}


def lines(*changes):
    return b"".join(json.dumps({**LINE, **change}).encode() + b"\n" for change in changes)


def to_ollama(**fields):
    return toolwire.translate({**CHAT, **fields}, source="openai_chat", target="ollama")


def test_stream_defaults_to_true():
    assert OLLAMA.decode_request(CHAT).stream is True
    assert OLLAMA.encode_request(OLLAMA.decode_request(CHAT)).body == CHAT
    assert to_ollama().body["stream"] is False
    assert to_ollama(stream=True).body["stream"] is True
    back = toolwire.translate(CHAT, source="ollama", target="openai_chat").body
    assert back["stream"] is True


def test_results_without_name_or_id_are_matched_to_calls_in_order():
    calls = [{"function": {"name": name, "arguments": {}}} for name in ("f", "g")]
    results = [{"role": "tool", "content": words} for words in ("of f", "of g")]
    body = {"model": "m", "messages": [*CHAT["messages"], {"role": "assistant", "tool_calls": calls}, *results]}
    there = toolwire.translate(body, source="ollama", target="openai_chat").body["messages"]
    ids = {call["id"]: call["function"]["name"] for call in there[1]["tool_calls"]}
    assert [(ids[message["tool_call_id"]], message["content"]) for message in there[2:]] == [
        ("f", "of f"),
        ("g", "of g"),
    ]


@pytest.mark.parametrize("limit", [-1, -2])
def test_negative_num_predict_sets_no_token_limit(limit):
    body = {**CHAT, "options": {"num_predict": limit, "seed": 1}}
    translation = toolwire.translate(body, source="ollama", target="openai_chat")
    assert "max_completion_tokens" not in translation.body
    assert [loss.path for loss in translation.losses] == ["/options/num_predict"]
    assert OLLAMA.encode_request(OLLAMA.decode_request(body)).body == body


def test_tool_choice_none_sends_no_tools():
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    assert "tools" not in to_ollama(tools=tools, tool_choice="none").body


def test_forced_tool_choice_is_sent_as_the_format_of_the_answer():
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    forced = to_ollama(tools=tools, tool_choice="required")
    assert forced.body["format"]["properties"]["name"] == {"const": "f"}
    assert [loss.severity for loss in forced.losses if loss.path == "/tool_choice"] == ["info"]


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        ("iVBORw0KGgoAAAA=", "image/png"),
        ("/9j/4AAQSkZJRg==", "image/jpeg"),
        ("R0lGODlhAQABAAAAACw=", "image/gif"),
        ("UklGRhoAAABXRUJQVlA4TA0=", "image/webp"),
        ("UklGRiQAAABXQVZFZm10IA==", None),  # RIFF, but sound
        ("Zm9v", None),
    ],
)
def test_image_type_is_detected_from_the_first_bytes(data, media_type):
    body = {**CHAT, "messages": [{"role": "user", "content": "", "images": [data]}]}
    assert OLLAMA.decode_request(body).messages[0].parts == (Media("image", media_type, data),)


def test_image_by_url_is_replaced_by_a_placeholder_and_reported():
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    translation = to_ollama(messages=[{"role": "user", "content": [image]}])
    assert translation.body["messages"] == [{"role": "user", "content": "[image left out]"}]
    assert [loss.severity for loss in translation.losses] == ["error"]


def test_text_parts_are_joined_into_one_string():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    translation = to_ollama(messages=[{"role": "user", "content": parts}])
    assert translation.body["messages"][0]["content"] == "a\n\nb"
    assert [loss.path for loss in translation.losses] == ["/messages/0/content/0", "/messages/0/content/1"]


def test_native_documents_are_detected_apart_from_chat():
    assert toolwire.detect(CHAT) == Detected("openai_chat", "request")
    for own in ({"options": {}}, {"think": True}, {"keep_alive": 0}, {"format": "json"}):
        assert toolwire.detect({**CHAT, **own}) == Detected("ollama", "request")
    assert toolwire.detect({**LINE, "done": True}) == Detected("ollama", "response")
    assert toolwire.detect({"error": "model 'x' not found"}) == Detected("ollama", "error")
    for mark in (b"\n", b"\r\n", b"\r"):
        stream = lines({"done": False}, {"done": True}).replace(b"\n", mark)
        assert toolwire.detect(stream) == Detected("ollama", "stream")
    pretty = json.dumps({**LINE, "done": True}, indent=1)
    assert toolwire.detect(pretty) == Detected("ollama", "response")


def test_same_wire_translation_is_byte_identical():
    data = b'{"model":"m", "messages":[ ],"options":{"num_ctx":8192.0} ,"x":null}'
    assert bytes(toolwire.translate(data, source="ollama", target="ollama")) == data
    stream = lines({"done": False, "x": 1}, {"done": True})
    assert toolwire.translate_stream(source="ollama", target="ollama").feed(stream) == stream


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("model 'nope' not found", "not_found"),
        ("unauthorized", "authentication"),
        ("server busy, please try again", "overloaded"),
        ("registry.ollama.ai/library/gemma:2b does not support tools", "invalid_request"),
        ("an error was encountered while running the model", "server"),
    ],
)
def test_stream_error_kind_is_derived_from_the_message(words, kind):
    (event,) = OLLAMA.stream_decoder().feed(json.dumps({"error": words}).encode() + b"\n")
    assert isinstance(event, StreamFault)
    assert (event.fault.kind, event.fault.message) == (kind, words)
    assert OLLAMA.decode_error(500, {"error": words}).kind == "server"


def test_error_in_a_proxy_envelope_is_read_and_kept():
    fault = OLLAMA.decode_error(429, {"error": {"message": "slow down", "code": 7}})
    assert (fault.kind, fault.message) == ("rate_limit", "slow down")
    assert OLLAMA.encode_error(fault).body == {"error": {"message": "slow down", "code": 7}}


def test_stream_without_a_final_line_is_truncated():
    decoder = OLLAMA.stream_decoder()
    assert decoder.feed(lines({"done": False}))
    with pytest.raises(toolwire.TruncatedStream):
        decoder.close()


def test_error_after_the_end_is_ignored():
    decoder = OLLAMA.stream_decoder()
    events = decoder.feed(lines({"done": True}) + b'{"error": "late"}\n') + decoder.close()
    assert toolwire.fold(events).text == "a"


def test_ping_is_written_as_an_empty_chunk():
    encoder = OLLAMA.stream_encoder()
    assert encoder.feed(Ping()) == b""
    encoder.feed(ResponseStart("", "m"))
    line = json.loads(encoder.feed(Ping()))
    assert (line["message"]["content"], line["done"]) == ("", False)


def test_alternative_choices_are_dropped_and_reported():
    encoder = OLLAMA.stream_encoder()
    encoder.feed(ResponseStart("", "m"))
    events = (TextStart(0, choice=1), TextEnd(0), ResponseEnd((Stop("stop"), Stop("stop"))))
    written = b"".join(encoder.feed(event) for event in events)
    assert written.count(b"\n") == 1
    assert [loss.path for loss in encoder.losses] == ["/alternatives"]


@pytest.mark.parametrize(("state", "word"), [("truncated", "length"), ("invalid", "stop")])
def test_incomplete_call_is_dropped_and_reported(state, word):
    call = ToolCall("c", "f", None, '{"a": ', state)
    answer = Response(model="m", parts=(call,), stop=Stop("tool_calls"))
    body, losses = OLLAMA.encode_response(answer)
    assert "tool_calls" not in body["message"]
    assert body["done_reason"] == word
    assert "/parts/0" in {loss.path for loss in losses}
    encoder = OLLAMA.stream_encoder()
    last = [encoder.feed(event) for event in toolwire.unfold(answer)][-1]
    assert json.loads(last)["done_reason"] == word


def test_streamed_calls_keep_the_order_of_their_starts():
    answer = Response(model="m", parts=(ToolCall("a", "f", {}), ToolCall("b", "g", {})), stop=Stop("tool_calls"))
    events = list(toolwire.unfold(answer))
    starts = [event for event in events if isinstance(event, CallStart)]
    rest = [event for event in events[1:] if event not in starts]
    swapped = [events[0], *starts, *rest[2:4], *rest[:2], *rest[4:]]
    encoder = OLLAMA.stream_encoder()
    decoder = OLLAMA.stream_decoder()
    back = toolwire.fold(decoder.feed(b"".join(encoder.feed(event) for event in swapped)) + decoder.close())
    assert [call.name for call in back.calls] == ["f", "g"]


def test_creation_time_is_written_as_iso_8601():
    def written(created):
        body, losses = OLLAMA.encode_response(Response(model="m", stop=Stop("stop"), created=created))
        return body["created_at"], len(losses)

    assert written(1787338102) == ("2026-08-21T18:48:22Z", 0)
    assert written(None) == ("1970-01-01T00:00:00Z", 0)
    assert written(10**30) == ("1970-01-01T00:00:00Z", 1)
    assert OLLAMA.decode_response({**LINE, "created_at": "yesterday", "done": True}).created is None


def test_unknown_role_is_rejected_with_a_pointer():
    with pytest.raises(ProtocolError) as caught:
        OLLAMA.decode_request({**CHAT, "messages": [{"role": "control", "content": "thinking"}]})
    assert caught.value.pointer == "/messages/0/role"


def test_client_sends_and_streams_over_ollama():
    from toolwire.net.model.client import ModelClient
    from toolwire.testing.upstream import Upstream

    answer = Response(parts=(ToolCall("c1", "f", {"a": 1}),), stop=Stop("tool_calls"), usage=Usage(3, 4))
    request = toolwire.Request("", (Message("user", (Text("hi"),)),), (toolwire.Tool("f"),))

    async def talk():
        upstream = Upstream(answer, answer, Fault("not_found", "model 'm' not found", 404))
        async with upstream, ModelClient("ollama/m", base_url=upstream.url) as client:
            whole = await client.ask(request)
            streamed = toolwire.fold([event async for event in client.stream(request)])
            with pytest.raises(toolwire.ToolwireError, match="not found"):
                await client.ask(request)
            return whole, streamed, [(heard.path, heard.wire, heard.stream) for heard in upstream.requests]

    whole, streamed, heard = asyncio.run(talk())
    assert whole.calls[0].arguments == streamed.calls[0].arguments == {"a": 1}
    assert (whole.stop.reason, whole.usage) == ("tool_calls", Usage(3, 4))
    assert heard == [("/api/chat", "ollama", False), ("/api/chat", "ollama", True), ("/api/chat", "ollama", False)]
