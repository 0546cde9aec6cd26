"""A read that holds exactly one event takes a short path in the decoders, with the events of any other chunking."""

import re
from contextlib import ExitStack
from unittest.mock import patch

import pytest

from tables import every_case
from toolwire.ir import CallDelta, EncodeError, ProtocolError, ResponseStart, TextDelta, TextEnd, TextStart
from toolwire.stream.framing import SSEDecoder
from toolwire.testing import load_vectors
from toolwire.wire import get

WIRES = ("openai_chat", "anthropic", "cohere", "gemini", "ollama", "openai_responses", "gemini_interactions")


def stream_vectors():
    vectors = [(wire, vector) for wire in WIRES for vector in load_vectors(f"tests/vectors/wire/{wire}.json")]
    return [pytest.param(wire, vector.data, id=str(vector)) for wire, vector in vectors if vector.kind == "stream"]


def decode(wire, reads):
    """Return the events of a stream, and the error that ends it."""
    decoder, events = get(wire).stream_decoder(), []
    try:
        for data in reads:
            events += decoder.feed(data)
        events += decoder.close()
    except ProtocolError as error:
        return events, str(error)
    return events, None


@every_case(("wire", "data"), stream_vectors())
def test_one_event_per_read_gives_the_same_events_as_single_bytes(wire, data):
    reads = re.findall(rb".*?\n\n|.+\Z", data, re.DOTALL)
    assert decode(wire, reads) == decode(wire, [data[at : at + 1] for at in range(len(data))])


SHORT_PATHS = {
    "openai_chat": ("_FAST", "_FAST_EVENT"),
    "anthropic": ("_FAST", "_FAST_EVENT", "_FIRST_DELTA"),
    "openai_responses": ("_FAST_DELTA",),
}


def normalised(events):
    """Return events in which the text of deltas is decoded: the short paths keep its escapes as they are."""
    return [(type(event), event.key, event.text) if hasattr(event, "escaped") else event for event in events]


@every_case(("wire", "data"), [case for case in stream_vectors() if case.values[0] in SHORT_PATHS])
def test_plain_deltas_have_the_events_of_the_json_parser(wire, data):
    reads = re.findall(rb".*?\n\n|.+\Z", data, re.DOTALL)
    plain, error = decode(wire, reads)
    with ExitStack() as stack:
        for name in SHORT_PATHS[wire]:
            stack.enter_context(patch(f"toolwire.wire.{wire}.stream_decoder.{name}", lambda *_: None))
        parsed, expected_error = decode(wire, reads)
    assert (normalised(plain), error) == (normalised(parsed), expected_error)


FRAMES = [
    b"data: a\n\n",
    b"data:a\n\n",
    b"data:  a\n\n",
    b"event: x\ndata: a\n\n",
    b"event:x\ndata:a\n\n",
    b"event:\ndata:\n\n",
    b"event: x\n\n",
    b"event: x\ndata: a\ndata: b\n\n",
    b"data: a\r\n\r\n",
    b"data: a\r\r",
    b": comment\ndata: a\n\n",
    b"id: 1\ndata: a\n\n",
    b"\xef\xbb\xbfdata: a\n\n",
    b"data: a\n\ndata: b\n\n",
    b"data: a",
    b"\n\n",
]


@every_case("second", FRAMES)
@every_case("first", FRAMES)
def test_frames_do_not_depend_on_reads(first, second):
    whole, bytewise = SSEDecoder(), SSEDecoder()
    together = [*whole.feed(b"data: 0\n\n"), *whole.feed(first), *whole.feed(second), *whole.close()]
    data = b"data: 0\n\n" + first + second
    single = [frame for at in range(len(data)) for frame in bytewise.feed(data[at : at + 1])]
    assert together == [*single, *bytewise.close()]


def test_chat_chunk_on_two_lines_is_not_taken_for_an_event_with_its_envelope():
    decoder = get("openai_chat").stream_decoder()
    rest = b'"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'
    decoder.feed(b'data: {"id":"x",\ndata: ' + rest)
    with pytest.raises(ProtocolError):
        decoder.feed(b'data: {"id":"x",\n' + rest)


@pytest.mark.parametrize("wire", ["openai_chat", "anthropic"])
def test_delta_after_the_end_of_its_item_is_refused(wire):
    encoder = get(wire).stream_encoder(None)
    for event in (ResponseStart("x"), TextStart(0), TextDelta(0, b"a"), TextDelta(0, b"b"), TextEnd(0)):
        encoder.feed(event)
    for late in (TextDelta(0, b"c"), CallDelta(0, b"c")):
        with pytest.raises(EncodeError, match="not open"):
            encoder.feed(late)
