"""Decode a JSON array incrementally, element by element: Gemini's stream format when SSE is not requested.

Only brackets and strings are examined; the strict parser validates the elements.
"""

from __future__ import annotations

import re

from ..ir.errors import ProtocolError

__all__ = ["ArrayDecoder"]

LIMIT = 64 * 1024 * 1024
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
        """Return the elements that `data` completed. An element begins at depth 2, inside the outer array."""
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
