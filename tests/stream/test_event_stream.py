"""Amazon's binary event stream, judged by botocore's decoder."""

import random
from binascii import crc32
from itertools import pairwise
from struct import pack

import pytest
from botocore.eventstream import EventStreamBuffer

from toolwire.ir import EncodeError, ProtocolError, TruncatedStream
from toolwire.stream.event_stream import (
    EventStreamDecoder,
    cut_messages,
    encode_event,
    encode_exception,
    encode_message,
    is_event_stream,
)

MESSAGES = [
    ({":event-type": "messageStart", ":message-type": "event"}, b'{"role":"assistant"}'),
    ({}, b""),
    ({"é" * 40: "ü" * 300, "b": ""}, "payload é😀".encode() * 9),
    ({f"h{number}": "x" * number for number in range(60)}, b""),
]
STREAM = b"".join(encode_message(headers, payload) for headers, payload in MESSAGES)
TYPED = (
    b"\x01t\x00\x01f\x01"
    b"\x01b\x02\xfe\x01h\x03\xff\x7f\x01i\x04\x7f\xff\xff\xff\x01q\x05"
    + pack("!q", -5)
    + b"\x01y\x06\x00\x03\x00\x01\x02\x01s\x07\x00\x02\xc3\xa9\x01d\x08"
    + pack("!q", 1_700_000_000_000)
    + b"\x01u\x09"
    + bytes(range(16))
)
TYPED_VALUES = {"t": True, "f": False, "b": -2, "h": -129, "i": 2**31 - 1, "q": -5}
TYPED_VALUES |= {"y": b"\x00\x01\x02", "s": "é", "d": 1_700_000_000_000, "u": bytes(range(16))}


def framed(headers, payload=b"", *, total=None, headers_length=None):
    """A message with correct checksums around any headers and lengths."""
    total = 16 + len(headers) + len(payload) if total is None else total
    lengths = pack("!II", total, len(headers) if headers_length is None else headers_length)
    message = lengths + pack("!I", crc32(lengths)) + headers + payload
    return message + pack("!I", crc32(message))


def read(*pieces):
    decoder = EventStreamDecoder()
    messages = [message for piece in pieces for message in decoder.feed(piece)]
    return messages + decoder.close()


def botocore_reads(data):
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    return [(message.headers, message.payload) for message in buffer]


def test_messages_are_read_as_botocore_reads_them():
    assert [tuple(message) for message in read(STREAM)] == botocore_reads(STREAM) == MESSAGES


def test_every_header_type_is_read_as_botocore_reads_it():
    [message] = read(framed(TYPED, b"{}"))
    assert message.headers == TYPED_VALUES
    [(headers, _)] = botocore_reads(framed(TYPED, b"{}"))
    assert headers == TYPED_VALUES
    assert (message.text("s"), message.text("q"), message.text("absent")) == ("é", "", "")


def test_every_split_gives_the_same_messages():
    whole = read(STREAM)
    for at in range(len(STREAM) + 1):
        assert read(STREAM[:at], STREAM[at:]) == whole
    assert read(*(STREAM[at : at + 1] for at in range(len(STREAM)))) == whole


def test_random_chunks_give_the_same_messages():
    rng, whole = random.Random(38), read(STREAM)
    for _ in range(200):
        cuts = [0, *sorted(rng.choices(range(len(STREAM)), k=rng.randrange(12))), len(STREAM)]
        assert read(*(STREAM[start:end] for start, end in pairwise(cuts))) == whole


def test_a_stream_cut_in_a_message_is_truncated():
    ends = {0, *(len(b"".join(encode_message(*one) for one in MESSAGES[:count])) for count in range(1, 5))}
    for at in range(len(STREAM)):
        if at in ends:
            read(STREAM[:at])
        else:
            with pytest.raises(TruncatedStream):
                read(STREAM[:at])


def test_any_changed_byte_is_refused():
    """Every bit of a message is covered by a checksum. A changed length may also make the stream look truncated."""
    first = encode_event("messageStart", b'{"role":"assistant"}')
    for at in range(len(first)):
        damaged = bytearray(first)
        damaged[at] ^= 1 << at % 8
        with pytest.raises(ProtocolError) as caught:
            read(bytes(damaged) + first)
        assert caught.value.status == 502
        assert caught.value.hint


def test_messages_before_a_damaged_one_come_first_in_any_chunking():
    damaged = STREAM + STREAM[:40] + b"\x00" + STREAM[41:]
    for size in (1, 7, len(damaged)):
        decoder = EventStreamDecoder()
        messages = []
        with pytest.raises(ProtocolError, match="checksum"):
            for at in range(0, len(damaged), size):
                messages += decoder.feed(damaged[at : at + size])
            decoder.close()
        assert [tuple(message) for message in messages] == MESSAGES
        with pytest.raises(ProtocolError, match="checksum"):
            decoder.feed(b"")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (framed(b"", total=16 + 24 * 1024 * 1024 + 1), "payload"),
        (framed(b"", total=15), "payload"),
        (framed(b"", headers_length=128 * 1024 + 1), "headers"),
        (framed(b"", headers_length=1), "payload"),
        (framed(b"\x01a\x0a"), "unknown type 10"),
        (framed(b"\x01a\x00\x01a\x00"), "repeated"),
        (framed(b"\x02a"), "cannot be read"),
        (framed(b"\x01a\x07\x00\x05abc"), "cannot be read"),
        (framed(b"\x01a\x05\x00"), "cannot be read"),
        (framed(b"\x01a\x09\x00"), "cannot be read"),
        (framed(b"\x01\xff\x00"), "cannot be read"),
        (framed(b"\x01a\x07\x00\x01\xff"), "cannot be read"),
    ],
)
def test_bad_lengths_and_headers_are_refused(data, problem):
    with pytest.raises(ProtocolError, match=problem):
        read(data)


def test_a_length_beyond_the_limit_is_refused_before_its_bytes_arrive():
    with pytest.raises(ProtocolError, match="payload"):
        EventStreamDecoder().feed(framed(b"", total=2**32 - 1)[:12])


def test_the_largest_message_is_read_and_a_larger_one_is_not_written():
    largest = bytes(24 * 1024 * 1024)
    [message] = read(encode_event("chunk", largest))
    assert message.payload == largest
    with pytest.raises(EncodeError, match="too long"):
        encode_event("chunk", largest + b"\x00")
    with pytest.raises(EncodeError, match="too long"):
        encode_message({str(number): "x" * 32_000 for number in range(5)}, b"")


@pytest.mark.parametrize("headers", [{"": "x"}, {"n" * 256: "x"}, {"n": "x" * 0x8000}])
def test_a_header_that_does_not_fit_is_refused(headers):
    with pytest.raises(EncodeError, match="too long"):
        encode_message(headers, b"")


def test_events_and_exceptions_have_the_headers_that_botocore_expects():
    (event, payload), (exception, _) = botocore_reads(encode_event("metadata", b"{}") + encode_exception("x", b"{}"))
    assert event == {":event-type": "metadata", ":content-type": "application/json", ":message-type": "event"}
    assert exception == {":exception-type": "x", ":content-type": "application/json", ":message-type": "exception"}
    assert payload == b"{}"


def test_an_event_stream_is_recognised_by_the_checksum_of_its_prelude():
    assert is_event_stream(STREAM) and is_event_stream(STREAM[:12])
    assert not is_event_stream(STREAM[:11])
    assert not any(map(is_event_stream, (b"", b"{}", b'data: {"a": 1}\n\n', bytes(12), b"\x01" + STREAM[1:])))


def test_complete_messages_are_cut_off_in_any_chunking():
    ends = [len(b"".join(encode_message(*one) for one in MESSAGES[:count])) for count in range(5)]
    for size in (1, 3, 50, len(STREAM)):
        buffer, pieces = bytearray(), []
        for at in range(0, len(STREAM), size):
            buffer += STREAM[at : at + size]
            pieces.append(cut_messages(buffer))
        assert b"".join(pieces) == STREAM and not buffer
        lengths = {sum(map(len, pieces[:count])) for count in range(len(pieces) + 1)}
        assert lengths <= set(ends)
