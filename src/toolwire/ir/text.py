"""JSON text of canonical values.

Argument deltas are the hot path of every stream: a fragment of argument text arrives inside a JSON string and leaves
inside another JSON string. So delta events carry the fragment *still escaped*, exactly as it was between the quotes,
and an encoder splices it into its own frame. `escape` and `unescape` convert for callers that need the text itself.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

import msgspec

from .errors import EncodeError, ProtocolError
from .pointer import JSON, join

# Characters at which Python's `str.splitlines` ends a line, although JSON allows them in a string as they are: httpx, and
# with it google-genai and the ollama SDK, splits streams there, and so do Claude Desktop and ChatGPT
# (modelcontextprotocol/typescript-sdk#1925, florimondmanca/httpx-sse#34). JSON escapes the others (\v, \f, \x1c to \x1e).
_SEPARATORS = (
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
    ("\x85".encode(), b"\\u0085"),
)

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_pack = msgspec.msgpack.Encoder().encode
# ValueError: also a huge integer; RecursionError: nested too deeply.
_ENCODE_FAILURES = (TypeError, ValueError, OverflowError, msgspec.MsgspecError, RecursionError)
_FEW = 16  # items that a loop reads faster than a set of their types is made
_OTHER_SCALARS = frozenset({type(None), bool, int, str})
_decode_text = msgspec.json.Decoder(str).decode


def to_bytes(value: JSON, *, sort_keys: bool = False) -> bytes:
    """Encode compact JSON; raise EncodeError for NaN, infinities, lone surrogates and other values that JSON lacks."""
    try:
        data = _encode_sorted(value) if sort_keys else _encode(value)
    except _ENCODE_FAILURES as error:
        raise _encode_error(error) from error
    if data.find(b"null") >= 0 and not is_finite(value, len(data)):  # msgspec writes NaN as null; `in` is slower
        _refuse_non_finite(value)
    return data


def finite_to_bytes(value: JSON) -> bytes:
    """Like `to_bytes`, for values parsed from JSON, which cannot contain NaN or infinities.

    Raise EncodeError for other values.
    """
    try:
        return _encode(value)
    except _ENCODE_FAILURES as error:
        raise _encode_error(error) from error


def _encode_error(error: Exception) -> EncodeError:
    if isinstance(error, RecursionError):
        return EncodeError("value is nested too deeply to be written as JSON")
    return EncodeError(f"not a JSON value: {error}")


def to_line(value: JSON) -> bytes:
    """Like `to_bytes`, for a line of a stream: without characters at which a client may split lines."""
    return escape_separators(to_bytes(value))


def escape_separators(data: bytes) -> bytes:
    """Escape U+2028, U+2029 and U+0085 in JSON, where they can only be inside strings. Other bytes stay as they are."""
    if data.isascii() or (data.find(b"\xe2\x80") < 0 and data.find(b"\xc2\x85") < 0):  # `in` is slower
        return data
    for raw, escaped in _SEPARATORS:
        data = data.replace(raw, escaped)
    return data


def dumps(value: JSON) -> str:
    """Encode compact JSON as text."""
    return to_bytes(value).decode()


def shorten(text: str, length: int) -> str:
    """Cut a text for display to `length` characters, of which the last is an ellipsis."""
    return text if len(text) <= length else f"{text[: max(length - 1, 0)]}…"


def escape(text: str) -> bytes:
    r"""Encode text as the inside of a JSON string literal, which may become part of a line (see `to_line`).

    Raise EncodeError for a lone surrogate.

    >>> escape('say "hi"')
    b'say \\"hi\\"'
    """
    try:
        return escape_separators(_encode(text)[1:-1])
    except (TypeError, ValueError) as error:
        raise EncodeError(f"not a JSON value: {error}") from error


def unescape(escaped: bytes) -> str:
    """Decode the inside of a JSON string literal. Raise ProtocolError if it is invalid."""
    try:
        return _decode_text(b'"%b"' % escaped)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"not the inside of a JSON string: {error}") from error


_FLOAT = b"\xcb"  # the first byte of a number with a fraction in MessagePack; text and integers may have it, too
_NON_FINITE = (b"\x7f", b"\xff")  # the byte after it, for NaN, infinities and the largest numbers; text never has both
_LARGE = 64 * 1024  # bytes; most of a conversation of this size may be JSON text already
_MAX_FLOATS = 16  # that are looked at in the packed value; with more, a look at all members costs less


def is_finite(value: JSON, size: int) -> bool:
    """Return False if the value, with JSON of `size` bytes, contains NaN or an infinity.

    MessagePack has these numbers, and packing a value costs much less than a look at its members. A large one has few
    members for its size.
    """
    if size > _LARGE:
        return _has_only_finite(value)
    try:
        data = _pack(value)
    except _ENCODE_FAILURES:
        return _has_only_finite(value)
    position = data.find(_FLOAT)  # one byte: a search for two takes a hundred times as long
    for _ in range(_MAX_FLOATS):
        if position < 0:
            return True
        if data[position + 1 : position + 2] in _NON_FINITE:
            break
        position = data.find(_FLOAT, position + 1)
    return _has_only_finite(value)


def _has_only_finite(value: JSON) -> bool:
    """Look at all members. Containers of only other scalars cost little."""
    containers: list[Any] = [(value,)]
    while containers:
        items = containers.pop()
        if len(items) > _FEW and _OTHER_SCALARS.issuperset(map(type, items)):
            continue
        for item in items:
            if type(item) is str:
                continue
            if isinstance(item, float):
                if not isfinite(item):
                    return False
            elif isinstance(item, dict):
                containers.append(item.values())
            elif isinstance(item, (list, tuple)):
                containers.append(item)
    return True


def _refuse_non_finite(value: JSON) -> None:
    """Raise EncodeError with a pointer to NaN or an infinity, which msgspec would write as null."""
    if isinstance(value, float):
        if not isfinite(value):
            raise EncodeError(f"JSON cannot represent {value}", hint="send a string or leave the field out")
    elif isinstance(value, dict):
        for key, item in value.items():
            _refuse_within(item, key)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _refuse_within(item, index)


def _refuse_within(item: JSON, segment: str | int) -> None:
    try:
        _refuse_non_finite(item)
    except EncodeError as error:
        error.pointer = join(segment) + error.pointer
        raise
