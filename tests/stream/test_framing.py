"""SSE, NDJSON and arrays that are still arriving."""

import pytest

from tables import every_case
from toolwire.ir import ProtocolError
from toolwire.stream.framing import ArrayDecoder, NDJSONDecoder, SSEDecoder
from toolwire.testing import bytewise, every_split

SSE = [
    (b"data: a\n\n", [(b"", b"a")]),
    (b"data:a\n\n", [(b"", b"a")]),
    (b"data:  a\n\n", [(b"", b" a")]),
    (b"event: x\ndata: a\n\n", [(b"x", b"a")]),
    (b"data: a\ndata: b\n\n", [(b"", b"a\nb")]),
    (b"data: a\r\n\r\ndata: b\r\n\r\n", [(b"", b"a"), (b"", b"b")]),
    (b"data: a\r\rdata: b\r\r", [(b"", b"a"), (b"", b"b")]),
    (b"data: a\r\n\n", [(b"", b"a")]),
    (b": comment\n\ndata: a\n\n: ping\n\n", [(b"", b"a")]),
    (b"id: 1\nretry: 5\ndata: a\nunknown: x\n\n", [(b"", b"a")]),
    (b"event: only\n\n", []),
    (b"data\n\n", [(b"", b"")]),
    (b"\xef\xbb\xbfdata: a\n\n", [(b"", b"a")]),
    (b"\xef\xbb", []),
    (b"\n\n\ndata: a\n\n\n\n", [(b"", b"a")]),
    (b"data: a\n\ndata: b", [(b"", b"a"), (b"", b"b")]),
    ("data: é😀\n\n".encode(), [(b"", "é😀".encode())]),
]


def read(decoder, chunks):
    found = [item for chunk in chunks for item in decoder.feed(chunk)]
    return found + decoder.close()


@every_case(("data", "frames"), SSE)
def test_server_sent_events_are_decoded_at_every_split(data, frames):
    assert read(SSEDecoder(), [data]) == frames
    assert read(SSEDecoder(), bytewise(data)) == frames
    for pieces in every_split(data):
        assert read(SSEDecoder(), pieces) == frames


def test_frame_size_is_limited():
    decoder = SSEDecoder(limit=100)
    with pytest.raises(ProtocolError, match="exceeds 100 bytes"):
        for _ in range(20):
            decoder.feed(b"data: 123456")


def test_a_large_frame_in_small_pieces_takes_linear_time():
    decoder = SSEDecoder()
    for _ in range(200_000):
        decoder.feed(b"x" * 10)
    assert decoder.feed(b"\n\n") == []


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"1\n2\n", [b"1", b"2"]),
        (b"1\r\n\n 2 \n", [b"1", b"2"]),
        (b"1\r2\r", [b"1", b"2"]),
        (b"\xef\xbb\xbf1\n2", [b"1", b"2"]),
        (b"", []),
        (b"\n\n", []),
        (b"\xef\xbb\xbf", []),
    ],
)
def test_newline_delimited_json_is_decoded_at_every_split(data, lines):
    for pieces in every_split(data):
        assert read(NDJSONDecoder(), pieces) == lines


def test_line_size_is_limited():
    with pytest.raises(ProtocolError):
        NDJSONDecoder(limit=10).feed(b"x" * 11)


@pytest.mark.parametrize(
    ("data", "elements"),
    [
        (b"[]", []),
        (b'[{"a": 1}]', [b'{"a": 1}']),
        (b'[{"a": "]}\\"{"}\n,\r\n{"b": [1, {"c": 2}]}]', [b'{"a": "]}\\"{"}', b'{"b": [1, {"c": 2}]}']),
        (b'[{"a": 1}, {"b"', [b'{"a": 1}', b'{"b"']),
        (b'[{"a\\\\": "\\\\"}]', [b'{"a\\\\": "\\\\"}']),
    ],
)
def test_array_elements_are_decoded_at_every_split(data, elements):
    for pieces in every_split(data):
        assert read(ArrayDecoder(), pieces) == elements


def test_element_size_is_limited():
    with pytest.raises(ProtocolError):
        ArrayDecoder(limit=10).feed(b'[{"aaaaaaaaaaaaa')


def test_last_event_id_and_retry_are_kept():
    data = (
        b"id: 7\nretry: 500\ndata: a\n\ndata: b\n\nid: 8\n\nid: bad\0id\nretry: soon\nretry: " + b"9" * 5000 + b"\n\n"
    )
    for chunks in ([data], bytewise(data)):
        decoder = SSEDecoder()
        read(decoder, chunks)
        assert (decoder.last_id, decoder.retry) == (b"8", 500)
