"""Streams on their way through, under every cut, and the client's end of them."""

import pytest

from toolwire import Message, Request, Response, Text, Tool, ToolCall, fold
from toolwire.gateway.answer.delivery import ArrayFrames
from toolwire.gateway.answer.pass_through import PassThroughStream
from toolwire.gateway.answer.translated import TranslatedStream
from toolwire.gateway.observe.answer_stats import AnswerStats
from toolwire.gateway.request.routes import INGRESSES
from toolwire.ir.events import ResponseStart, StreamFault, TextStart
from toolwire.ir.folding import unfold
from toolwire.ir.losses import Losses
from toolwire.ir.response import Fault, Stop, Usage
from toolwire.wire import get

REQUEST = Request(
    messages=(Message("user", (Text("hi"),)),),
    tools=(Tool("f", "", {"type": "object", "properties": {}}),),
    stream=True,
)
ANSWER = Response(
    "id", "m", (Text("Zürich 😀\n\nok"), ToolCall("c1", "f", {"a": "b\n\n"})), Stop("tool_calls"), Usage(3, 4)
)
WIRES = ("anthropic", "cohere", "gemini", "gemini_interactions", "ollama", "openai_chat", "openai_responses")
every_wire = pytest.mark.parametrize("wire", WIRES)


def valid_stream(wire):
    encoder = get(wire).stream_encoder(REQUEST)
    return b"".join(encoder.feed(event) for event in unfold(ANSWER))


def passing(wire, key=None):
    return PassThroughStream(get(wire), lambda: REQUEST, AnswerStats(), () if key is None else (key,))


def is_between_events(wire, data):
    return not data or data.endswith(INGRESSES[wire].framing.terminators)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
def test_complete_event_is_forwarded_even_if_its_end_is_split(end):
    stream = passing("openai_chat")
    events = [event.replace(b"\n", end) + end * 2 for event in valid_stream("openai_chat").split(b"\n\n") if event]
    for event in events:
        assert b"".join(stream.feed(bytes((byte,))) for byte in event) == event


@pytest.mark.one_in(5)
@every_wire
def test_stream_is_forwarded_unchanged_at_every_split(wire):
    data = valid_stream(wire)
    for cut in range(len(data) + 1):
        stream = passing(wire)
        first, second = stream.feed(data[:cut]), stream.feed(data[cut:])
        assert first + second + stream.close() == data
        assert stream.fault is None and stream.ended
        assert is_between_events(wire, first)


@every_wire
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_stream_is_forwarded_unchanged_in_small_chunks(wire, size):
    data = valid_stream(wire)
    stream = passing(wire)
    out = b""
    for start in range(0, len(data), size):
        out += stream.feed(data[start : start + size])
        assert is_between_events(wire, out)
    assert out + stream.close() == data
    assert stream._stats.calls == ["f"]


@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
@pytest.mark.parametrize("wire", [wire for wire in WIRES if wire != "ollama"])
def test_other_line_endings_are_forwarded_unchanged(wire, end):
    data = valid_stream(wire).replace(b"\n", end)
    for size in (1, 5, len(data)):
        stream = passing(wire)
        out = b"".join(stream.feed(data[start : start + size]) for start in range(0, len(data), size))
        assert out + stream.close() == data
        assert stream.fault is None


@pytest.mark.one_in(5)
@every_wire
def test_truncated_stream_ends_in_an_error_of_its_own_wire(wire):
    data = valid_stream(wire)
    for cut in range(len(data) * 2 // 3):
        stream = passing(wire)
        out = stream.feed(data[:cut]) + stream.close()
        if stream.fault is None:
            assert stream.ended
            continue
        decoder = get(wire).stream_decoder()
        faults = [one for one in [*decoder.feed(out), *decoder.close()] if isinstance(one, StreamFault)]
        assert len(faults) == 1
        assert stream.fault.code == "stream_truncated"


@every_wire
@pytest.mark.parametrize("noise", [b"{not json}", b'"{not json}"', b"[{not json}", b"\xff{not json}"])
def test_malformed_event_is_not_forwarded(wire, noise):
    data = valid_stream(wire)
    noise = noise + b"\n" if wire == "ollama" else b"data: " + noise + b"\n\n"
    end = INGRESSES[wire].framing.terminators[0]
    cut = data.index(end, len(data) // 3) + len(end)
    stream = passing(wire)
    out = stream.feed(data[:cut] + noise) + stream.feed(data[cut:]) + stream.close()
    assert stream.fault is not None
    assert b"{not json}" not in out


@every_wire
def test_upstream_error_is_forwarded_without_the_key(wire):
    key = "sk-secret-0123456789"
    encoder = get(wire).stream_encoder(REQUEST)
    first, *_ = unfold(ANSWER)
    data = encoder.feed(first) + encoder.feed(StreamFault(Fault("server", f"bad key {key}", 500)))
    stream = passing(wire, key)
    out = stream.feed(data) + stream.close()
    assert stream.fault is not None and key not in str(stream.fault)
    assert key.encode() not in out


@every_wire
def test_failure_during_the_stream_is_an_error_event(wire):
    for before in (b"", valid_stream(wire)[: len(valid_stream(wire)) // 2]):
        stream = passing(wire)
        out = stream.feed(before) + stream.fail(Fault("timeout", "too slow", 504))
        assert stream.feed(b"more") == b"" and stream.close() == b""
        decoder = get(wire).stream_decoder()
        (fault,) = [one.fault for one in [*decoder.feed(out), *decoder.close()] if isinstance(one, StreamFault)]
        assert fault.message == "too slow"


def test_event_array_is_valid_json_at_every_split():
    import json

    data = valid_stream("gemini")
    for size in (1, 3, 50, len(data)):
        frames = ArrayFrames()
        out = b"".join(frames.feed(data[start : start + size]) for start in range(0, len(data), size))
        items = json.loads(out + frames.close())
        decoder = get("gemini").stream_decoder()
        events = decoder.feed(b"".join(b"data: " + json.dumps(item).encode() + b"\n\n" for item in items))
        assert fold([*events, *decoder.close()]).calls[0].arguments == {"a": "b\n\n"}
    assert json.loads(ArrayFrames().close()) == []


class OutOfOrder:
    """An upstream whose events no encoder accepts."""

    losses = Losses()
    should_stop = False

    def open_stream(self, continuation=None):
        return self

    def feed(self, data):
        return [ResponseStart("r", "m"), TextStart(0), ResponseStart("r", "m")]


@every_wire
def test_events_out_of_order_end_the_translated_stream_in_an_error(wire):
    stream = TranslatedStream(
        OutOfOrder(), get(wire), get(wire).stream_encoder(REQUEST), AnswerStats(), [], is_first=True
    )
    written = stream.feed(b"") + stream.feed(b"")
    assert stream.fault is not None and stream.fault.code == "stream_broken"
    decoder = get(wire).stream_decoder()
    assert isinstance([*decoder.feed(written), *decoder.close()][-1], StreamFault)
