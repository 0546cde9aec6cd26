"""Strict JSON: one meaning or an error, and the error says where.

Refused beyond what every parser refuses: duplicate keys (the checker and the executor would see different values), NaN
and infinities in any spelling (`1e400` too), lone surrogates, nesting beyond 200, integers beyond 4,300 digits, more
than `limit` bytes or MEMBERS members. jiter does the parsing; it tells line and column, and `pointer_at` turns them into
a JSON pointer by walking the sound prefix once. That walk happens only when there is something to report.
"""

from __future__ import annotations

import re
from math import isinf
from typing import Literal

import jiter

from ..ir.errors import ProtocolError
from ..ir.pointer import JSON, Object, join

__all__ = ["LIMIT", "as_bytes", "kind_of", "parse", "parse_arguments", "parse_object", "pointer_at"]

LIMIT = 64 * 1024 * 1024
MEMBERS = 250_000
_BOM = b"\xef\xbb\xbf"

# Only a number with a three-digit exponent or with hundreds of digits can overflow a double. Mapping all digits to 0 and both
# letters to e makes that a substring search, which costs a quarter of the parse; a hit is then looked at properly.
_NUMBER_SHAPE = bytes(
    0x30 if 0x30 <= c <= 0x39 else 0x65 if c in b"eE" else 0x2B if c == 0x2B else 0x20 for c in range(256)
)
_MANY_DIGITS = b"0" * 200
_EXPONENT = re.compile(rb"[0-9][eE]\+?[0-9]{3}").search

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|-?\d[\d.eE+-]*', re.DOTALL)
# A double holds 308 digits, so a number that overflows has a large exponent, a large mantissa, or some of both.
_SUSPECT = re.compile(rb"[eE]\+?0*+(?:[3-9]\d\d|\d{4})|\d{10}[\d.]*+[eE]\+?0*+[12]\d\d|\d{200}").search
_KEY = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"\s*+(:)?', re.DOTALL)
_POSITION = re.compile(r"(.*?) at line (\d+) column (\d+)$", re.DOTALL)

_WORDS = {
    "expected value": "a value is missing or is not JSON",
    "EOF while parsing": "the document stops in the middle of a value",
    "recursion limit exceeded": "nested more than 200 deep",
    "number out of range": "a number of more than 4,300 digits",
    "trailing characters": "something follows the document",
    "invalid unicode code point": "not UTF-8",
    "unexpected end of hex escape": "a lone surrogate",
    "lone leading surrogate": "a lone surrogate",
    "expected ident": "a word that JSON does not have",
    "control character": "a control character in a string; write it as an escape",
}


def parse(data: bytes | str, *, limit: int = LIMIT) -> JSON:
    """The value of a JSON document; ProtocolError with a pointer if it has none, or more than one."""
    data = as_bytes(data).removeprefix(_BOM)
    if len(data) > limit:
        raise ProtocolError(f"a document of {len(data)} bytes; the limit is {limit}", status=413)
    if len(data) > MEMBERS and data.count(b":") > MEMBERS:
        _count_members(data)
    try:
        value = jiter.from_json(data, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError as error:
        raise _explain(data, str(error)) from None
    if _may_overflow(data):
        _refuse_overflow(data)
    return value


def as_bytes(data: bytes | str) -> bytes:
    """Text as UTF-8; ProtocolError for half a character."""
    if isinstance(data, bytes):
        return data
    try:
        return data.encode()
    except UnicodeEncodeError as error:
        raise ProtocolError("a lone surrogate in the text") from error


def _count_members(data: bytes) -> None:
    members = 0
    for key in _KEY.finditer(data):
        members += key[1] is not None
        if members > MEMBERS:
            raise ProtocolError(f"more than {MEMBERS:,} members", status=413)


def _may_overflow(data: bytes) -> bool:
    if len(data) < 200:
        return _EXPONENT(data) is not None
    shape = data.translate(_NUMBER_SHAPE)
    return b"0e000" in shape or b"0e+000" in shape or _MANY_DIGITS in shape


def parse_object(data: bytes | str, *, limit: int = LIMIT) -> Object:
    """Like `parse`, for documents that must be objects."""
    value = parse(data, limit=limit)
    if type(value) is not dict:
        raise ProtocolError(f"expected a JSON object, got {kind_of(value)}")
    return value


def parse_arguments(raw: str) -> tuple[Object | None, Literal["complete", "truncated", "invalid"]]:
    """The arguments that a model wrote, and whether they are whole.

    >>> parse_arguments('{"city": "Paris"}')
    ({'city': 'Paris'}, 'complete')
    >>> parse_arguments('{"city": "Par')
    (None, 'truncated')
    >>> parse_arguments('["Paris"]')
    (None, 'invalid')

    Nothing at all is the empty object: that is how models call a tool without parameters.
    """
    if not raw or raw.isspace():
        return {}, "complete"
    try:
        value = parse(raw)
    except ProtocolError as error:
        return None, "truncated" if _STOPS_EARLY in error.message else "invalid"
    return (value, "complete") if type(value) is dict else (None, "invalid")


_STOPS_EARLY = _WORDS["EOF while parsing"]


def _explain(data: bytes, reason: str) -> ProtocolError:
    found = _POSITION.match(reason)
    if found is None:
        return ProtocolError(f"not JSON: {reason}")
    words, line, column = found[1], int(found[2]), int(found[3])
    offset = _offset(data, line, column)
    if not data.strip():
        return ProtocolError("an empty document; expected JSON")
    if words.startswith("Detected duplicate key"):
        return ProtocolError(f"duplicate key {words[23:]}", pointer=pointer_at(data[:offset]))
    for start, plain in _WORDS.items():
        if words.startswith(start):
            words = plain
    return ProtocolError(f"not JSON: {words} (line {line}, column {column})", pointer=pointer_at(data[:offset]))


def _offset(data: bytes, line: int, column: int) -> int:
    start = 0
    for _ in range(line - 1):
        start = data.find(b"\n", start) + 1
    return start + max(column - 1, 0)


def _refuse_overflow(data: bytes) -> None:
    if _SUSPECT(data) is None:
        return
    for token in _TOKEN.finditer(data):
        text = token.group()
        # an integer may have any number of digits up to its own limit
        if text[:1] != b'"' and not text.lstrip(b"-").isdigit() and isinf(float(text)):
            raise ProtocolError(f"a number out of range: {_shorten(text)}", pointer=pointer_at(data[: token.start()]))


def _shorten(text: bytes) -> str:
    shown = text.decode()
    return shown if len(shown) <= 24 else f"{shown[:20]}… ({len(shown)} characters)"


_MARK = re.compile(rb'"((?:[^"\\]|\\.)*+)(?:"|\\?\Z)|[{}\[\],]', re.DOTALL)
# In a long flat object or array, the plain members before the place in question are skipped many at a time.
_MEMBERS = re.compile(rb'(?:\s*+"[^"\\]*+"\s*+:\s*+(?:"[^"\\]*+"|[\w.+-]++)\s*+,)++')
_ITEM = re.compile(rb'\s*+(?:"[^"\\]*+"|[\w.+-]++)\s*+,')
_ITEMS = re.compile(rb"(?:%b)++" % _ITEM.pattern)
_PATIENCE = 250_000  # marks; past that the pointer is the root's, which is true if not helpful


def pointer_at(prefix: bytes) -> str:
    """The pointer of the value in which the sound `prefix` of a document ends."""
    path: list[str | int | None] = []  # for each open container: a key (None while one is awaited) or an index
    position = marks = 0
    while (mark := _MARK.search(prefix, position)) is not None:
        position = mark.end()
        marks += 1
        if marks > _PATIENCE:
            return ""
        match mark.group():
            case b"{":
                path.append(None)
                position = _skip_members(prefix, position)
            case b"[":
                path.append(0)
                position = _skip_items(prefix, position, path)
            case b"}" | b"]":
                path.pop()
            case b",":
                if isinstance(path[-1], int):
                    path[-1] += 1
                    position = _skip_items(prefix, position, path)
                else:
                    path[-1] = None
                    position = _skip_members(prefix, position)
            case _ if path and path[-1] is None:
                path[-1] = _key(mark)
    return join(*(segment for segment in path if segment is not None))


def _skip_members(prefix: bytes, position: int) -> int:
    members = _MEMBERS.match(prefix, position)
    return members.end() if members else position


def _skip_items(prefix: bytes, position: int, path: list[str | int | None]) -> int:
    items = _ITEMS.match(prefix, position)
    if items is None:
        return position
    count = path[-1]
    assert isinstance(count, int)
    path[-1] = count + sum(1 for _ in _ITEM.finditer(items.group()))
    return items.end()


def _key(mark: re.Match[bytes]) -> str:
    try:
        return str(jiter.from_json(mark.group()))
    except ValueError:
        return mark[1].decode("utf-8", "replace")


_KINDS = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}


def kind_of(value: JSON) -> str:
    """What a value is, in words: "an array"."""
    return _KINDS.get(type(value), "a number")
