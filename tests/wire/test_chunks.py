"""Anthropic's events in Bedrock's stream (InvokeModelWithResponseStream)."""

import json
from base64 import b64encode

import pytest

from places import TESTS
from toolwire.ir import StreamFault, fold
from toolwire.ir.errors import ProtocolError, TruncatedStream
from toolwire.ir.response import Fault
from toolwire.stream.event_stream import encode_event
from toolwire.testing import load_vectors
from toolwire.wire import get
from toolwire.wire.models.chunks import ChunkFrames, ChunkStreamDecoder, as_server_sent_events, write_exception

ANTHROPIC = get("anthropic")
VECTORS = [vector for vector in load_vectors(TESTS / "vectors/wire/anthropic.json") if vector.kind == "stream"]
STREAM = VECTORS[0].data


def events_of(*pieces):
    decoder = ChunkStreamDecoder(ANTHROPIC)
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return events + decoder.close()


def plain(data):
    decoder = ANTHROPIC.stream_decoder()
    return decoder.feed(data) + decoder.close()


@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_events_in_chunks_are_the_events_of_the_wire(vector):
    found, expected = events_of(ChunkFrames().feed(vector.data)), plain(vector.data)
    if isinstance(expected[-1], StreamFault):  # an exception of the stream, in Bedrock's terms
        assert isinstance(found[-1], StreamFault)
        assert found[-1].fault.message == expected[-1].fault.message
        found, expected = found[:-1], expected[:-1]
    assert fold_or_events(found) == fold_or_events(expected)


def fold_or_events(events):
    return fold(events) if events and type(events[-1]).__name__ == "ResponseEnd" else events


def test_every_split_gives_the_same_events():
    data = ChunkFrames().feed(STREAM)
    whole = events_of(data)
    assert all(events_of(data[:at], data[at:]) == whole for at in range(len(data) + 1))
    assert events_of(*(data[at : at + 1] for at in range(len(data)))) == whole


def test_server_sent_events_in_any_pieces_give_the_same_chunks():
    whole = ChunkFrames().feed(STREAM)
    frames = ChunkFrames()
    assert b"".join(frames.feed(STREAM[at : at + 1]) for at in range(len(STREAM))) + frames.close() == whole


def test_a_cut_stream_is_truncated_and_a_whole_answer_is_read():
    data = ChunkFrames().feed(STREAM)
    with pytest.raises(TruncatedStream):
        events_of(data[: len(data) // 2])
    document = ANTHROPIC.encode_response(fold(plain(STREAM))).body
    assert fold(events_of(json.dumps(document).encode())).text == fold(plain(STREAM)).text


def test_an_exception_is_a_fault_and_nothing_after_it_is_read():
    data = write_exception(Fault("overloaded", "busy", 503))
    [fault] = events_of(data + ChunkFrames().feed(STREAM))
    assert (fault.fault.kind, fault.fault.message) == ("overloaded", "busy")


@pytest.mark.parametrize("payload", [b'{"bytes": "?"}', b'{"bytes": 1}', b"{}", b"[]", b"x"])
def test_a_chunk_without_base64_is_refused(payload):
    with pytest.raises(ProtocolError):
        events_of(encode_event("chunk", payload))


def test_events_before_a_damaged_message_come_first():
    data = ChunkFrames().feed(STREAM)
    decoder = ChunkStreamDecoder(ANTHROPIC)
    assert decoder.feed(data[:-1] + b"\x00\x00\x00\x00\x01" + bytes(20))
    with pytest.raises(ProtocolError):
        decoder.close()


def test_a_recording_shows_the_documents_of_the_chunks():
    data = ChunkFrames().feed(STREAM)
    assert fold(plain(as_server_sent_events(data))) == fold(plain(STREAM))
    assert as_server_sent_events(b"\x00" * 40) == b""
    assert b64encode(b"message_start")[:12] not in as_server_sent_events(data)
