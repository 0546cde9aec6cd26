"""Deltas that follow each other are decoded, restored and encoded together, with the result of one at a time."""

import json
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from toolwire.bridge import prepare
from toolwire.gateway.answer.translated import TranslatedStream
from toolwire.gateway.observe.answer_stats import AnswerStats
from toolwire.ir import Losses, Message, ProtocolError, Request, Text, Tool
from toolwire.net.model.endpoint import resolve
from toolwire.net.model.endpoint_request import EndpointRequest
from toolwire.stream.framing import SSEDecoder
from toolwire.wire import get

BLOCKS = [
    {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}},
    {"type": "text", "text": ""},
    {"type": "thinking", "thinking": ""},
    {"type": "unknown_block"},
    {"type": "tool_use", "id": "toolu_2", "name": "f", "input": {"a": 1}},
]
FIELDS = [("input_json_delta", "partial_json"), ("text_delta", "text"), ("thinking_delta", "thinking")]
HEADS = [b"event: content_block_delta\ndata: ", b"data: ", b"event:content_block_delta\ndata:", b": c\ndata: "]
FRAGMENTS = [b"", b"a", b"}", b"{}", b'}\\"', b"\\n", b"\\u0041", b"\\ud83d", b"\\ude00", "é".encode(), b"\xff", b"\t"]


def delta(head, index, kind, fragment):
    name, field = kind
    body = b'{"type":"content_block_delta","index":%b,"delta":{"type":"%b","%b":"%b"}}\n\n'
    return head + body % (index, name.encode(), field.encode(), fragment)


heads = st.sampled_from([*[HEADS[0]] * 4, *HEADS])
indexes = st.sampled_from([b"0", b"0", b"1", b"2", b"3", b"4", b"9", b"00"])
kinds = st.sampled_from(FIELDS)
fragments = st.sampled_from([*[b"a"] * 8, *FRAGMENTS])
deltas = st.builds(delta, heads, indexes, kinds, fragments)
runs = st.builds(
    lambda head, index, kind, texts: b"".join(delta(head, index, kind, text) for text in texts),
    heads,
    indexes,
    kinds,
    st.lists(fragments, min_size=2, max_size=8),
)
PING = b'event: ping\ndata: {"type": "ping"}\n\n'


def event(kind, **fields):
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


START = event("message_start", message={"id": "m", "role": "assistant", "model": "m", "content": []}) + b"".join(
    event("content_block_start", index=index, content_block=block) for index, block in enumerate(BLOCKS)
)
END = b"".join(event("content_block_stop", index=index) for index in range(len(BLOCKS))) + event("message_stop")


def decode(reads):
    """Return the events of a stream, and the error that ends it."""
    decoder, events = get("anthropic").stream_decoder(), []
    try:
        for data in reads:
            events += decoder.feed(data)
        events += decoder.close()
    except ProtocolError as error:
        return events, (type(error), str(error), error.pointer)
    return events, None


@given(
    parts=st.lists(st.one_of(deltas, runs, st.just(PING)), max_size=8),
    window=st.sampled_from([200, 500, 8192]),
    cut=st.integers(0, 2000),
)
def test_run_of_deltas_has_the_events_of_single_bytes(parts, window, cut):
    data = START + b"".join(parts) + END
    bytewise = decode([data[at : at + 1] for at in range(len(data))])
    with patch("toolwire.wire.streaming.decoder._WINDOW", window):
        assert decode([data]) == bytewise
        assert decode([START, *parts, END]) == bytewise
        assert decode([data[: len(START) + cut], data[len(START) + cut :]]) == bytewise


LINES = [
    b"data: a\n",
    b"data:b\n",
    b"event: x\n",
    b"event:\n",
    b"id: 1\n",
    b": c\n",
    b"retry: 5\n",
    b"\n",
    b"\n",
    b"\r\n",
]


@given(lines=st.lists(st.sampled_from(LINES), max_size=20))
def test_plain_frames_are_read_like_single_bytes(lines):
    data = b"".join(lines)
    whole, bytewise = SSEDecoder(), SSEDecoder()
    frames = [frame for at in range(len(data)) for frame in bytewise.feed(data[at : at + 1])]
    assert [*whole.feed(data), *whole.close()] == [*frames, *bytewise.close()]
    assert (whole.last_id, whole.retry) == (bytewise.last_id, bytewise.retry)


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
REQUEST = Request("m", (Message("user", (Text("hi"),)),), (Tool("f", input_schema=SCHEMA, strict=True),))


@given(parts=st.lists(deltas, max_size=12), client=st.sampled_from([None, "anthropic", "gemini"]))
def test_events_are_restored_together_like_one_by_one(parts, client):
    events, _ = decode([START + b"".join(parts) + END])
    capabilities = None if client is None else get(client).capabilities
    exchange = prepare(REQUEST, "anthropic").exchange
    together, single = (exchange.make_restorer(Losses(), capabilities) for _ in range(2))
    assert together.feed_all(events) == [restored for event in events for restored in single.feed(event)]
    assert together.fault == single.fault


def translate(client, reads):
    """Return the bytes for the client, the statistics and the losses of a stream."""
    losses, stats = Losses(), AnswerStats()
    endpoint = resolve("anthropic/m", {}, base_url="https://upstream.test", key="k")
    request = EndpointRequest(REQUEST, endpoint, stream=True, text=None, losses=losses)
    wire = get(client)
    encoder = wire.stream_encoder(REQUEST)
    encoder.losses = losses
    stream = TranslatedStream(request, wire, encoder, stats, [], is_first=True)
    with patch("toolwire.gateway.answer.translated.time", lambda: 1):  # Chat chunks have a timestamp
        output = b"".join([*[stream.feed(data) for data in reads], stream.close()])
    return (
        output,
        stats.content_bytes,
        stats.open_call_bytes,
        stats.calls,
        stats.turn,
        sorted(map(str, losses)),
        stream.fault,
    )


@given(parts=st.lists(deltas, max_size=12), client=st.sampled_from(["gemini", "ollama", "openai_chat"]))
def test_translated_run_has_the_bytes_of_single_events(parts, client):
    single = [START, *parts, END]
    assert translate(client, [b"".join(single)]) == translate(client, single)
