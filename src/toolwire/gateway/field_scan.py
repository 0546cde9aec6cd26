"""Find fields of a JSON object that arrives in pieces, without parsing it or holding it. No I/O.

Regular expressions skip the strings and count the brackets, so that the depth of every name is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["FieldScan", "InvalidPiece"]

_STRING = rb'"[^"\\]*+(?:\\["\\/bfnrtu][^"\\]*+)*+"'
# everything before the last string, whose end, or the colon after it, may be in the next piece
_COMPLETE = re.compile(rb'(?:[^"]++|' + _STRING + rb"\s*+(?!\Z))*+")
_OPEN_STRING = re.compile(rb'"[^"\\]*+(?:\\["\\/bfnrtu][^"\\]*+)*+(\\?+)\Z')
_CLOSED_STRING = re.compile(_STRING + rb"\s*+\Z")
_NAMES_AND_STRINGS = re.compile(rb"(" + _STRING + rb"\s*+:)|" + _STRING)
_STRINGS = re.compile(_STRING)
_NOT_JSON = re.compile(rb"[^\s\d{}\[\],:+\-.eEtrufalsn]")
_LONGEST_NAME = 256  # bytes, with every letter escaped
_LONG_STRING = b'"~'  # instead of the contents of a string that is too long for a name


class InvalidPiece(ValueError):
    """The piece is not a part of a JSON document."""


class FieldScan:
    """Searches the top level of one object for the fields `names`, in any spelling."""

    def __init__(self, names: Iterable[str]) -> None:
        plain = b"|".join(re.escape(name.encode()) for name in names)
        escaped_letter = rb'(?:[^"\\]|\\(?!u00[4-7]).)*+\\u00[4-7]'
        self._find_names = re.compile(rb'"(?:(' + plain + rb')"|' + escaped_letter + rb")", re.DOTALL).finditer
        self._search_names = re.compile(rb'"(?:' + plain + rb')"\s*+:|\\u00[4-7]').search  # also within strings
        self._depth = 0
        self._last_string = b""  # it may be the beginning of a name

    def feed(self, piece: bytes) -> str | None:
        """Return the field that was found, or None. It is empty for any name with escaped letters.

        InvalidPiece if it cannot be JSON.
        """
        if self._last_string == _LONG_STRING and b'"' not in piece and b"\\" not in piece:
            return None  # such as a part of a picture
        text = self._last_string + piece
        complete = _COMPLETE.match(text)
        end = 0 if complete is None else complete.end()
        self._last_string = _shorten(text[end:])
        text, position = text[:end], 0
        if self._search_names(text) is None:
            self._count_brackets(text)
            return None
        names = _NAMES_AND_STRINGS.sub(rb"\1", text)
        for found in self._find_names(names):
            self._count_brackets(names[position : found.start()])
            position = found.start()
            if self._depth <= 1:
                return (found.group(1) or b"").decode()
        self._count_brackets(names[position:])
        return None

    def _count_brackets(self, names: bytes) -> None:
        structure = _STRINGS.sub(b"", names)
        if _NOT_JSON.search(structure) is not None:
            raise InvalidPiece
        self._depth += structure.count(b"{") + structure.count(b"[") - structure.count(b"}") - structure.count(b"]")


def _shorten(string: bytes) -> bytes:
    """Return the last string; without its contents if it is too long for a name. InvalidPiece if it is not a string."""
    if not string:
        return string
    is_open = _OPEN_STRING.match(string)
    if is_open is None and _CLOSED_STRING.match(string) is None:
        raise InvalidPiece
    if len(string) <= _LONGEST_NAME:
        return string
    if is_open is not None:
        return _LONG_STRING + is_open.group(1)
    closed = string.rstrip()
    return closed if len(closed) <= _LONGEST_NAME else _LONG_STRING + b'"'
