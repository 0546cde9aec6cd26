"""Split a byte stream into documents: server-sent events, lines of NDJSON, or the elements of a JSON array.

Every decoder gives the same result for any chunking, accepts a last frame without its delimiter, and refuses a frame
beyond its limit.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from ..ir.errors import ProtocolError

# Server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html), as model providers use them.
#
# Lines end in LF, CRLF or CR; a blank line ends a frame; `data` lines of one frame are joined by LF; comments are
# skipped; `id` and `retry` are kept for clients that resume a stream; one BOM at the start is skipped. Two
# deviations: the last frame may lack its blank line, and a frame may not exceed `limit`.


Frame: TypeAlias = tuple[bytes, bytes]
"""(event name or b"", data)"""

# digits of `retry`, in milliseconds; more is not a delay, and int() of a long text takes quadratic time
_MAX_NUMBER_LENGTH = 16
_BOM = b"\xef\xbb\xbf"
_COMMENT_LINES = re.compile(rb"(?<=\n):[^\n]*+\n").sub
LIMIT = 64 * 1024 * 1024  # bytes of a frame; as in strict.py, which parses its data


class SSEDecoder:
    """Decode bytes incrementally into complete frames. `last_id` and `retry` are the last values in the stream."""

    __slots__ = ("_after_cr", "_limit", "_pieces", "_size", "_start", "last_id", "retry")

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self.last_id = b""
        self.retry: int | None = None  # milliseconds
        self._pieces: list[bytes] = []  # the unfinished frame; never an empty piece
        self._size = 0
        self._after_cr = False
        self._start: bytes | None = b""  # possible beginning of a BOM; None once decided

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that `data` completed, and hold the unfinished one; update `last_id` and `retry`.

        Raise ProtocolError if a frame exceeds the limit.
        """
        if self._start is not None:
            data = self._skip_bom(data)
        if self._after_cr or b"\r" in data:
            data = self._normalise_line_ends(data)
        if b"\n:" in data:
            data = _COMMENT_LINES(b"", data)  # a flood of comments must not cost a step each
        if not data:
            return []
        frames: list[Frame] = []
        if self._pieces:
            data = self._finish_frame(data, frames)
        *blocks, unfinished = data.split(b"\n\n")
        for block in blocks:
            if block:
                self._read_frame(block, frames)
        if unfinished:
            self._hold(unfinished)
        return frames

    @property
    def is_between_frames(self) -> bool:
        """True if the next byte begins a frame, after the place of a byte order mark."""
        return not self._pieces and self._start is None and not self._after_cr

    def close(self) -> list[Frame]:
        """Return the last frame, if the stream ended without its blank line."""
        frames: list[Frame] = []
        if self._start:
            self._hold(self._start)
        if self._pieces:
            self._read_frame(b"".join(self._pieces), frames)
            self._pieces.clear()
        return frames

    def _finish_frame(self, data: bytes, frames: list[Frame]) -> bytes:
        """Complete the held frame with the head of `data`, or hold all of it. Return the data after the frame."""
        if data.startswith(b"\n") and self._pieces[-1].endswith(b"\n"):
            data_after = data[1:]
        else:
            cut = data.find(b"\n\n")
            if cut < 0:
                self._hold(data)
                return b""
            self._pieces.append(data[:cut])
            data_after = data[cut + 2 :]
        self._read_frame(b"".join(self._pieces), frames)
        self._pieces.clear()
        self._size = 0
        return data_after

    def _hold(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            raise ProtocolError(f"event exceeds {self._limit} bytes", status=502)
        self._pieces.append(piece)

    def _skip_bom(self, data: bytes) -> bytes:
        """Remove a byte order mark at the start of the stream; hold a part of one that may be incomplete."""
        assert self._start is not None
        data = self._start + data
        if len(data) < len(_BOM) and _BOM.startswith(data):
            self._start = data
            return b""
        self._start = None
        return data.removeprefix(_BOM)

    def _normalise_line_ends(self, data: bytes) -> bytes:
        """Convert CRLF and CR to LF. A CRLF may be split between two chunks (`_after_cr`)."""
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if data.endswith(b"\r"):
            self._after_cr = True
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _read_frame(self, block: bytes, frames: list[Frame]) -> None:
        """Parse the lines of a frame, set `last_id` and `retry`, and append the frame to `frames` if it has data."""
        if block.startswith(b"data: ") and b"\n" not in block:
            frames.append((b"", block[6:]))
            return
        event, data = b"", []
        for line in block.split(b"\n"):
            field, _, value = line.partition(b":")
            if field == b"data":
                data.append(value.removeprefix(b" "))
            elif field == b"event":
                event = value.removeprefix(b" ")
            elif field == b"id" and b"\0" not in value:
                self.last_id = value.removeprefix(b" ")
            elif field == b"retry" and value.strip().isdigit() and len(value) < _MAX_NUMBER_LENGTH:
                self.retry = int(value)
        if data:
            frames.append((event, b"\n".join(data)))


# Newline-delimited JSON: one document per line. Blank lines are skipped; the last line may lack its newline.
#
# Lines end in LF, CRLF or CR, because JSON on one line has no bare carriage return. A byte order mark is skipped.


class NDJSONDecoder:
    """Decode bytes incrementally into complete lines."""

    __slots__ = ("_has_begun", "_limit", "_pieces", "_size")

    def __init__(self, limit: int = LIMIT) -> None:
        self._has_begun = False
        self._limit = limit
        self._pieces: list[bytes] = []  # the unfinished line
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completed, and hold the unfinished one.

        Raise ProtocolError if it exceeds the limit.
        """
        *lines, unfinished = (data.replace(b"\r", b"\n") if b"\r" in data else data).split(b"\n")
        if lines and self._pieces:
            lines[0] = b"".join(self._pieces) + lines[0]
            self._pieces.clear()
            self._size = 0
        if unfinished:
            self._size += len(unfinished)
            if self._size > self._limit:
                raise ProtocolError(f"line exceeds {self._limit} bytes", status=502)
            self._pieces.append(unfinished)
        return self._documents(lines)

    def close(self) -> list[bytes]:
        """Return the last line, if the stream ended without its newline."""
        rest = b"".join(self._pieces)
        self._pieces.clear()
        return self._documents([rest])

    def _documents(self, lines: list[bytes]) -> list[bytes]:
        if lines and not self._has_begun:
            self._has_begun = True
            lines[0] = lines[0].removeprefix(_BOM)
        return [line for line in map(bytes.strip, lines) if line]


# Decode a JSON array incrementally, element by element: Gemini's stream format when SSE is not requested.
#
# Only brackets and strings are examined; the strict parser validates the elements.


_OUTSIDE = re.compile(rb'["{}\[\]]')
_IN_STRING = re.compile(rb'["\\]')


class ArrayDecoder:
    """Decode bytes incrementally into complete elements (objects), without the brackets and commas around them."""

    __slots__ = ("_depth", "_escaped", "_in_string", "_limit", "_pieces", "_size")

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._depth = 0  # number of open brackets; 1 is the outer array
        self._in_string = False
        self._escaped = False
        self._pieces: list[bytes] = []  # the unfinished element
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the elements that `data` completed, and hold the unfinished one.

        An element begins at depth 2, inside the outer array. Raise ProtocolError if it exceeds the limit.
        """
        elements: list[bytes] = []
        start = position = 0
        while position < len(data):
            if self._escaped:
                self._escaped = False
                position += 1
                continue
            found = (_IN_STRING if self._in_string else _OUTSIDE).search(data, position)
            if found is None:
                break
            position = found.end()
            mark = found.group()
            if self._in_string:
                self._escaped = mark == b"\\"
                self._in_string = self._escaped
            elif mark == b'"':
                self._in_string = True
            elif mark in b"{[":
                self._depth += 1
                if self._depth == 2:
                    start = position - 1
            else:
                self._depth -= 1
                if self._depth == 1:
                    elements.append(b"".join([*self._pieces, data[start:position]]))
                    self._pieces.clear()
                    self._size = 0
        if self._depth >= 2:
            self._hold(data[start:])
        return elements

    def close(self) -> list[bytes]:
        """Return the rest: nothing, unless an element was truncated."""
        rest = b"".join(self._pieces)
        self._pieces.clear()
        return [rest] if rest else []

    def _hold(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            raise ProtocolError(f"element exceeds {self._limit} bytes", status=502)
        self._pieces.append(piece)
