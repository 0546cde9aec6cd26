"""Strict JSON: an unambiguous value, or an error with its position.

Also refused, beyond invalid JSON: duplicate keys (the checker and the executor would see different values), NaN and
infinities in any spelling (`1e400` too), lone surrogates, nesting beyond 200, integers beyond 4,300 digits, more than
`limit` bytes or MAX_MEMBERS members. jiter does the parsing and reports line and column; `pointer_at` turns them into a
JSON pointer by one bounded walk over the valid prefix. That walk happens only when there is an error to report.
"""

from __future__ import annotations

import re
from math import isinf
from typing import Literal

import jiter

from ..ir.errors import ProtocolError
from ..ir.pointer import JSON, Object
from .locate import byte_offset, infinite_pointer, mask_escapes, pointer_at

__all__ = [
    "LIMIT",
    "as_bytes",
    "may_exceed_limits",
    "parse",
    "parse_arguments",
    "parse_object",
    "parse_partial",
    "type_label",
]

LIMIT = 64 * 1024 * 1024
MAX_MEMBERS = 250_000
_FEW_MEMBERS = len('"":1') * MAX_MEMBERS  # bytes of a document that cannot have more
_BOM = b"\xef\xbb\xbf"

# Only a number with a three-digit exponent or hundreds of digits can overflow a double. Mapping all digits to 0, both
# letters to e and the characters before a number to a space, without plus signs, makes that a substring search. It costs
# more than the parse of a long string; so the values of a document with few members are checked instead. After a hit
# all parsed values are.
_NUMBER_SHAPE = bytes(
    0x30 if 0x30 <= c <= 0x39 else 0x65 if c in b"eE" else 0x20 if c in b":,[ \t\r\n" else c if c in b".-" else 0x78
    for c in range(256)
)
_SHORT = 200  # bytes; a shorter document cannot overflow without an exponent
_MANY_DIGITS = b"0" * _SHORT
_BYTES_PER_MEMBER = 512
_MANY_BYTES = 4096  # the search in a smaller document costs less than a look at its values
_EXPONENT_SHAPE = b"0e000"
_MAX_SHAPES = 200  # that are looked at; a document with more may contain an infinite number
_EXPONENT = re.compile(rb"[0-9][eE]\+?[0-9]{3}").search

# One match for each key: strings without a following colon are skipped within the match. Escapes are already masked.
_next_key = re.compile(rb'(?:[^"]*+"[^"]*+"(?!\s*+:))*+[^"]*+"[^"]*+"\s*+:').match
_POSITION = re.compile(r"(.*?) at line (\d+) column (\d+)$", re.DOTALL)

_PARSER_MESSAGES = {
    "expected value": "a value is missing or is not JSON",
    "EOF while parsing": "the document ends in the middle of a value",
    "recursion limit exceeded": "nested more than 200 levels deep",
    "number out of range": "a number has more than 4,300 digits",
    "trailing characters": "unexpected text after the document",
    "invalid unicode code point": "not UTF-8",
    "unexpected end of hex escape": "a lone surrogate",
    "lone leading surrogate": "a lone surrogate",
    "expected ident": "an unknown literal",
    "control character": "a control character in a string; write it as an escape sequence",
}


def parse(data: bytes | str, *, limit: int = LIMIT) -> JSON:
    """Parse a JSON document; raise ProtocolError with a pointer if it is invalid or ambiguous."""
    if type(data) is not bytes:
        data = as_bytes(data)
    data = data.removeprefix(_BOM)
    size = len(data)
    if size > limit:
        raise ProtocolError(f"document of {size} bytes exceeds the limit of {limit}", status=413)
    if size > _FEW_MEMBERS and may_exceed_limits(data, limit):
        _count_members(data)
    try:
        value = jiter.from_json(data, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError as error:
        raise _parse_error(data, str(error)) from None
    may_overflow = _EXPONENT(data) is not None if size < _SHORT else _may_overflow(data, value)
    if may_overflow and (pointer := infinite_pointer(value)) is not None:
        raise ProtocolError("number out of range: its absolute value exceeds 1.8e308", pointer=pointer)
    return value


def may_exceed_limits(data: bytes, limit: int = LIMIT) -> bool:
    """Return whether a document is too large, or may have too many members; a quick check."""
    if len(data) <= _FEW_MEMBERS:
        return len(data) > limit
    return len(data) > limit or data.count(b":") > MAX_MEMBERS


def as_bytes(data: bytes | str) -> bytes:
    """Encode text as UTF-8; raise ProtocolError for a lone surrogate."""
    if isinstance(data, bytes):
        return data
    try:
        return data.encode()
    except UnicodeEncodeError as error:
        raise ProtocolError("the text contains a lone surrogate") from error


def _count_members(data: bytes) -> None:
    """Refuse a document with too many object members."""
    masked, position = mask_escapes(data), 0
    for _ in range(MAX_MEMBERS + 1):
        key = _next_key(masked, position)
        if key is None:
            return
        position = key.end()
    raise ProtocolError(f"document has more than {MAX_MEMBERS:,} members", status=413)


def _may_overflow(data: bytes, value: JSON) -> bool:
    """Return whether a document that is not short may contain an infinite number."""
    size = len(data)
    if size > _MANY_BYTES and (has_infinity := _has_infinity(value, size // _BYTES_PER_MEMBER)) is not None:
        return has_infinity
    shape = data.translate(_NUMBER_SHAPE, b"+")
    if shape.find(_MANY_DIGITS) >= 0:  # `in` is slower
        return True
    position = shape.find(_EXPONENT_SHAPE)
    return position >= 0 and _has_exponent(shape, position)


def _has_exponent(shape: bytes, position: int) -> bool:
    """Return whether a long exponent from `position` on may belong to a number. Most of them are in ids, after a letter."""
    for _ in range(_MAX_SHAPES):
        before = shape[max(0, position - _SHORT) : position].rstrip(b"0.").removesuffix(b"-")
        if not before or before.endswith(b" "):
            return True
        position = shape.find(_EXPONENT_SHAPE, position + 1)
        if position < 0:
            return False
    return True


def _has_infinity(value: JSON, most: int) -> bool | None:
    """Return whether one of at most `most` members and items is infinite; None if there are more."""
    remaining = [value]
    while remaining:
        node = remaining.pop()
        kind = type(node)
        if kind is str:
            continue
        if kind is dict or kind is list:
            most -= len(node)
            if most < 0:
                return None
            remaining += node.values() if kind is dict else node
        elif kind is float and isinf(node):
            return True
    return False


def parse_object(data: bytes | str, *, limit: int = LIMIT) -> Object:
    """Like `parse`, for documents that must be objects."""
    value = parse(data, limit=limit)
    if type(value) is not dict:
        raise ProtocolError(f"expected a JSON object, got {type_label(value)}")
    return value


def parse_arguments(raw: str) -> tuple[Object | None, Literal["complete", "truncated", "invalid"]]:
    """Parse the arguments that a model wrote, and return them with their state.

    >>> parse_arguments('{"city": "Paris"}')
    ({'city': 'Paris'}, 'complete')
    >>> parse_arguments('{"city": "Par')
    (None, 'truncated')
    >>> parse_arguments('["Paris"]')
    (None, 'invalid')

    Empty text and `null` are the empty object: models call a tool without parameters this way.
    """
    try:
        data = raw.encode()
        if len(data) < _SHORT and _EXPONENT(data) is None:  # then `parse` has no other check
            value = jiter.from_json(data, allow_inf_nan=False, catch_duplicate_keys=True)
            return ({} if value is None else value, "complete") if type(value) in _ARGUMENTS else (None, "invalid")
    except ValueError:
        pass  # empty, with a byte order mark, or invalid
    return _parse_any_arguments(raw)


def _parse_any_arguments(raw: str) -> tuple[Object | None, Literal["complete", "truncated", "invalid"]]:
    """Like `parse_arguments`, for text of any length and content."""
    if not raw or raw.isspace():
        return {}, "complete"
    try:
        value = parse(raw)
    except ProtocolError as error:
        return None, "truncated" if _STOPS_EARLY in error.message else "invalid"
    return ({} if value is None else value, "complete") if type(value) in _ARGUMENTS else (None, "invalid")


_ARGUMENTS = (dict, type(None))


def parse_partial(raw: str) -> Object:
    """Return the members of a truncated object that are complete, as the provider's SDKs do; empty if there are none.

    >>> parse_partial('{"path": "a.txt", "content": "Dear Sir')
    {'path': 'a.txt'}
    """
    try:
        value = jiter.from_json(raw.encode(), partial_mode=True, allow_inf_nan=False)
    except ValueError:
        return {}
    return value if type(value) is dict else {}


_STOPS_EARLY = _PARSER_MESSAGES["EOF while parsing"]


def _parse_error(data: bytes, reason: str) -> ProtocolError:
    """Convert the parser's message to a ProtocolError with line, column and pointer."""
    found = _POSITION.match(reason)
    if found is None:
        return ProtocolError(f"not JSON: {reason}")
    message, line, column = found[1], int(found[2]), int(found[3])
    if not data.strip():
        return ProtocolError("expected JSON, got an empty document")
    pointer = pointer_at(data, byte_offset(data, line, column))
    if message.startswith("Detected duplicate key"):
        return ProtocolError(f"duplicate key {message[23:]} (line {line}, column {column})", pointer=pointer)
    for start, plain in _PARSER_MESSAGES.items():
        if message.startswith(start):
            message = plain
    return ProtocolError(f"not JSON: {message} (line {line}, column {column})", pointer=pointer)


_KINDS = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}


def type_label(value: JSON) -> str:
    """Return the name of a value's JSON type with its article: "an array"."""
    return _KINDS.get(type(value), "a number")
