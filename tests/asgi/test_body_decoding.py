"""Compressed bodies of requests: equal to the plain ones under every chunking, and bounded."""

import gzip
import os
import sys
import zlib

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.asgi.body_decoding import BodyDecoder, CompressionBomb, InvalidCompression
from toolwire.ir.errors import ProtocolError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PLAIN = b'{"model": "m", "messages": []}' * 2000 + os.urandom(1000).hex().encode()
COMPRESSORS = {"gzip": gzip.compress, "deflate": zlib.compress, "br": brotli.compress, "zstd": zstd.compress}
every_encoding = pytest.mark.parametrize("encoding", COMPRESSORS)


def decode(encoding, pieces):
    decoder = BodyDecoder(encoding)
    made = [part for piece in pieces for part in decoder.decode(piece)]
    decoder.close()
    return b"".join(made)


def pieces_of(body, cuts):
    ends = sorted({*(cut % (len(body) + 1) for cut in cuts), len(body)})
    return [body[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@every_encoding
@given(cuts=st.lists(st.integers(min_value=0), max_size=20))
def test_body_is_decoded_under_every_chunking(encoding, cuts):
    assert decode(encoding, pieces_of(COMPRESSORS[encoding](PLAIN), cuts)) == PLAIN


@every_encoding
def test_body_is_decoded_byte_by_byte(encoding):
    compressed = COMPRESSORS[encoding](PLAIN[:5000])
    assert decode(encoding, [compressed[i : i + 1] for i in range(len(compressed))]) == PLAIN[:5000]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])  # Brotli's format has no members
def test_two_members_are_decoded(encoding):
    assert decode(encoding, [COMPRESSORS[encoding](b"a" * 100) + COMPRESSORS[encoding](b"b")]) == b"a" * 100 + b"b"


@every_encoding
def test_truncated_body_is_refused(encoding):
    compressed = COMPRESSORS[encoding](PLAIN)
    for end in range(1, len(compressed), 7):
        with pytest.raises(InvalidCompression):
            decode(encoding, [compressed[:end]])
    assert decode(encoding, []) == b""


@every_encoding
@given(place=st.integers(min_value=0), replacement=st.binary(min_size=1, max_size=4))
def test_mutated_body_is_decoded_or_refused(encoding, place, replacement):
    compressed = COMPRESSORS[encoding](PLAIN)
    place %= len(compressed)
    try:
        decode(encoding, [compressed[:place] + replacement + compressed[place + len(replacement) :]])
    except ProtocolError:
        pass


@every_encoding
def test_bomb_is_refused_before_it_is_decompressed(encoding):
    """Bytes are counted: the decoder stops within a step of the ratio, and each piece is bounded."""
    bomb = COMPRESSORS[encoding](b"\0" * 300_000_000)
    decoder, made = BodyDecoder(encoding), 0
    with pytest.raises(CompressionBomb):
        for piece in pieces_of(bomb, range(0, len(bomb), 1000)):
            for part in decoder.decode(piece):
                assert len(part) <= 2 * 256 * 1024
                made += len(part)
    assert made < 210 * len(bomb) + 2_000_000
    assert made < 300_000_000


GZIP_NAME = b"\x1f\x8b\x08\x08" + bytes(6)  # a header whose file name follows, up to a zero byte
ENDLESS = {
    "a gzip file name": ("gzip", GZIP_NAME, b"n" * 1000),
    "a skippable frame": ("zstd", b"\x50\x2a\x4d\x18\xff\xff\xff\xff", b"n" * 1000),
    "empty stored blocks": ("deflate", b"\x78\x01", b"\x00\x00\x00\xff\xff" * 200),
    "empty gzip members": ("gzip", b"", gzip.compress(b"") * 50),
    "empty zlib members": ("deflate", b"", zlib.compress(b"") * 50),
    "empty frames": ("zstd", b"", zstd.compress(b"") * 50),
    "empty Brotli streams": ("br", b"", brotli.compress(b"") * 50),
}


@pytest.mark.parametrize(("encoding", "start", "repeated"), ENDLESS.values(), ids=ENDLESS)
@pytest.mark.parametrize("size", [1, 1000, 1_000_000])
def test_endless_body_without_content_is_refused(encoding, start, repeated, size):
    """Bytes are counted: none is decompressed, and a megabyte at most is read."""
    body = start + repeated * (2_000_000 // len(repeated))
    decoder, received = BodyDecoder(encoding), 0
    with pytest.raises(InvalidCompression):
        for begin in range(0, len(body), size):
            received += len(body[begin : begin + size])
            assert list(decoder.decode(body[begin : begin + size])) == []
    assert received <= 2 * 1024 * 1024


@every_encoding
def test_content_that_cannot_be_compressed_is_decoded(encoding):
    plain = os.urandom(3_000_000)
    assert decode(encoding, [COMPRESSORS[encoding](plain)]) == plain


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_many_short_members_are_decoded_in_small_copies(encoding, monkeypatch):
    """The bytes that each member leaves are counted: as many as one part of the input has, not the whole body."""
    compress, largest = COMPRESSORS[encoding], 0

    class Counted(BodyDecoder):
        def _open_member(self):
            super()._open_member()
            step = self._codec.step

            def counted(data):
                nonlocal largest
                largest = max(largest, len(data))
                return step(data)

            monkeypatch.setattr(self._codec, "step", counted)

    decoder = Counted(encoding)
    assert b"".join(decoder.decode(compress(b"a") * 20_000)) == b"a" * 20_000
    decoder.close()
    assert 0 < largest <= 16 * 1024


def test_unknown_encoding_is_refused():
    for encoding in ("compress", "gzip, gzip", ""):
        with pytest.raises(ProtocolError) as caught:
            BodyDecoder(encoding)
        assert caught.value.status == 415


@pytest.mark.parametrize(("encoding", "package"), [("br", "brotli"), ("zstd", "backports")])
def test_missing_library_is_named(encoding, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ProtocolError) as caught:
        BodyDecoder(encoding)
    assert caught.value.status == 415
    assert "pip install" in caught.value.hint
