"""Decompress the body of a request as it arrives, with bounds on every step. No I/O.

A few kilobytes can be the compressed form of gigabytes. So a step returns at most `_STEP` bytes, whatever the input, and a
body whose size grows by more than `_MAX_RATIO` is refused, before the limit on its size is reached by many requests at once.

Limits on the decompressed size hold no body that has none: a gzip header with an endless file name (RFC 1952, 2.3), a skippable
frame of Zstandard (RFC 8878, 3.1.2), empty members. So the compressed size is bounded by the decompressed one, too, and so is
the number of empty members. Each member copies the rest of the input, so at most `_INPUT` bytes are decoded at once.

The ratio of real bodies: JSON of long conversations has 3 to 15, embeddings as decimal numbers 3, a history of one repeated
tool result 60. zlib's maximum is 1,032 (RFC 1951); Brotli and Zstandard have none.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from .._extras import install_command
from ..ir.errors import ProtocolError

_STEP = 256 * 1024  # bytes of output at once, as in the client of `net.http.connection`
_MAX_RATIO = 200  # three times the largest ratio of a real body, above
_FREE = 1024 * 1024  # bytes without a check: short bodies of one repeated character are harmless
_INPUT = 16 * 1024  # bytes of input at once: 800 members of 20 bytes copy 6 MB
_MAX_OVERHEAD = 2  # compressed bytes for each byte; deflate adds 5 bytes to 65,535 (RFC 1951, 3.2.4) or to each flush
_MAX_EMPTY = 16  # members in a row; bgzip writes one at the end (SAMv1, 4.1.2)
_UNSUPPORTED_STATUS = 415  # RFC 9110, 15.5.16


class InvalidCompression(ProtocolError):
    """The body does not match its content-encoding, or is truncated."""


class CompressionBomb(ProtocolError):
    """The body grows too much when it is decompressed."""

    default_status = 413


class BodyDecoder:
    """Decodes the body of one request. `decode` yields pieces of bounded size; `close` checks the end."""

    def __init__(self, encoding: str) -> None:
        """Raise ProtocolError (415) for an unknown encoding, and for one whose library is not installed."""
        self._open = _find_codec(encoding.strip().lower())
        self._codec = self._open()
        self._received = 0
        self._made = 0
        self._empty_members = 0  # in a row

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Yield the decompressed pieces of `data`. Raise InvalidCompression and CompressionBomb."""
        for start in range(0, len(data), _INPUT):
            yield from self._decode_part(data[start : start + _INPUT])
            if self._received > _FREE + _MAX_OVERHEAD * self._made:
                message = f"{self._received} bytes of the compressed body contain only {self._made} bytes"
                raise InvalidCompression(message, hint="send the body uncompressed")

    def _decode_part(self, data: bytes) -> Iterator[bytes]:
        self._received += len(data)
        while True:
            if self._codec.is_complete and data:
                self._open_member()
            try:
                piece, data, is_waiting = self._codec.step(data)
            except Exception as error:  # each library has an error of its own
                raise InvalidCompression("the body does not match its content-encoding") from error
            self._made += len(piece)
            if self._made > _FREE and self._made > _MAX_RATIO * self._received:
                message = f"{self._received} bytes of the body are more than {self._made} bytes when decompressed"
                raise CompressionBomb(message, hint="send the body uncompressed")
            if piece:
                self._empty_members = 0
                yield piece
            if not data and not is_waiting:
                return

    def _open_member(self) -> None:
        """Begin a further member, as `cat a.gz b.gz` writes it. Raise InvalidCompression after many without content."""
        self._empty_members += 1
        if self._empty_members > _MAX_EMPTY:
            raise InvalidCompression("the compressed body has many members without content")
        self._codec = self._open()

    def close(self) -> None:
        if self._received and not self._codec.is_complete:
            raise InvalidCompression("the compressed body is truncated")


# Codecs with one interface: `step(data)` returns output, the rest of the input, and whether more output waits.


class _Zlib:
    def __init__(self, wbits: int) -> None:
        self._decompressor = zlib.decompressobj(wbits)

    @property
    def is_complete(self) -> bool:
        return self._decompressor.eof

    def step(self, data: bytes) -> tuple[bytes, bytes, bool]:
        piece = self._decompressor.decompress(data, _STEP)
        rest = self._decompressor.unused_data if self._decompressor.eof else self._decompressor.unconsumed_tail
        return piece, rest, len(piece) == _STEP and not self._decompressor.eof


class _Brotli:
    def __init__(self, decompressor: Any) -> None:
        self._decompressor = decompressor

    @property
    def is_complete(self) -> bool:
        return bool(self._decompressor.is_finished())

    def step(self, data: bytes) -> tuple[bytes, bytes, bool]:
        piece = self._decompressor.process(data, output_buffer_limit=_STEP)
        return piece, b"", not self._decompressor.can_accept_more_data() and not self.is_complete


class _Zstandard:
    def __init__(self, decompressor: Any) -> None:
        self._decompressor = decompressor

    @property
    def is_complete(self) -> bool:
        return bool(self._decompressor.eof)

    def step(self, data: bytes) -> tuple[bytes, bytes, bool]:
        piece = self._decompressor.decompress(data, _STEP)
        rest = self._decompressor.unused_data if self.is_complete else b""
        return piece, rest, not self._decompressor.needs_input and not self.is_complete


_Decompressor = _Zlib | _Brotli | _Zstandard


def _find_codec(encoding: str) -> Callable[[], _Decompressor]:
    if encoding in ("gzip", "x-gzip"):
        return lambda: _Zlib(31)  # zlib's wbits for a gzip header
    if encoding == "deflate":
        return lambda: _Zlib(15)
    try:
        if encoding == "br":
            import brotli

            return lambda: _Brotli(brotli.Decompressor())
        if encoding == "zstd":
            if sys.version_info >= (3, 14):
                from compression import zstd
            else:
                from backports import zstd

            return lambda: _Zstandard(zstd.ZstdDecompressor())
    except ImportError:
        hint = f"send gzip; the gateway's operator can install it: {install_command('compression')}"
        raise ProtocolError(
            f"bodies in {encoding} are not supported here", hint=hint, status=_UNSUPPORTED_STATUS
        ) from None
    hint = "send gzip, deflate, br or zstd, or an uncompressed body"
    raise ProtocolError(f"unknown content-encoding {encoding[:40]!r}", hint=hint, status=_UNSUPPORTED_STATUS)
