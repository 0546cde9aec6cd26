"""Newline-delimited JSON: one document per line. Blank lines are skipped; the last line may lack its newline.

Lines end in LF, CRLF or CR, because JSON on one line has no bare carriage return. A byte order mark is skipped.
"""

from __future__ import annotations

from ..ir.errors import ProtocolError

__all__ = ["NDJSONDecoder"]

LIMIT = 64 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class NDJSONDecoder:
    """Decode bytes incrementally into complete lines."""

    __slots__ = ("_has_begun", "_limit", "_pieces", "_size")

    def __init__(self, limit: int = LIMIT) -> None:
        self._has_begun = False
        self._limit = limit
        self._pieces: list[bytes] = []  # the unfinished line
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completed, and hold the unfinished one."""
        *lines, rest = (data.replace(b"\r", b"\n") if b"\r" in data else data).split(b"\n")
        if lines and self._pieces:
            lines[0] = b"".join(self._pieces) + lines[0]
            self._pieces.clear()
            self._size = 0
        if rest:
            self._size += len(rest)
            if self._size > self._limit:
                raise ProtocolError(f"line exceeds {self._limit} bytes", status=502)
            self._pieces.append(rest)
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
