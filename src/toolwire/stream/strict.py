"""Strict JSON: an unambiguous value, or an error with its position.

Also refused, beyond invalid JSON: duplicate keys (the checker and the executor would see different values), NaN and
infinities in any spelling (`1e400` too), lone surrogates, nesting beyond 200, integers beyond 4,300 digits, more than
`limit` bytes or MAX_MEMBERS members. jiter does the parsing and reports line and column; `pointer_at` turns them into a
JSON pointer by one bounded walk over the valid prefix. That walk happens only when there is an error to report.
"""

from __future__ import annotations

import re
from typing import Literal

import jiter

from ..ir.errors import ProtocolError
from ..ir.pointer import JSON, Object
from .locate import byte_offset, infinite_pointer, mask_escapes, pointer_at

__all__ = ["LIMIT", "as_bytes", "parse", "parse_arguments", "parse_object", "parse_partial", "type_label"]

LIMIT = 64 * 1024 * 1024
MAX_MEMBERS = 250_000
_SHORTEST_MEMBER = len('"":1')
_BOM = b"\xef\xbb\xbf"

# Only a number with a three-digit exponent or hundreds of digits can overflow a double. Mapping all digits to 0 and
# both letters to e makes that a substring search, which costs more than the parse of a long string; so a document of
# few members is checked for floats first. After a hit the parsed values are checked.
_NUMBER_SHAPE = bytes(
    0x30 if 0x30 <= c <= 0x39 else 0x65 if c in b"eE" else 0x2B if c == 0x2B else 0x20 for c in range(256)
)
_MANY_DIGITS = b"0" * 200
_BYTES_PER_MEMBER = 256
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
    data = as_bytes(data).removeprefix(_BOM)
    if len(data) > limit:
        raise ProtocolError(f"document of {len(data)} bytes exceeds the limit of {limit}", status=413)
    if len(data) > _SHORTEST_MEMBER * MAX_MEMBERS and data.count(b":") > MAX_MEMBERS:
        _count_members(data)
    try:
        value = jiter.from_json(data, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError as error:
        raise _parse_error(data, str(error)) from None
    if _may_overflow(data, value) and (pointer := infinite_pointer(value)) is not None:
        raise ProtocolError("number out of range: its absolute value exceeds 1.8e308", pointer=pointer)
    return value


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
    if len(data) < 200:
        return _EXPONENT(data) is not None
    if _is_without_floats(value, len(data) // _BYTES_PER_MEMBER):
        return False
    shape = data.translate(_NUMBER_SHAPE)
    return b"0e000" in shape or b"0e+000" in shape or _MANY_DIGITS in shape


def _is_without_floats(value: JSON, most: int) -> bool:
    """Return True if the value has at most `most` members and items, and none of them is a float."""
    remaining = [value]
    while remaining:
        node = remaining.pop()
        kind = type(node)
        if kind is float:
            return False
        if kind is dict or kind is list:
            most -= len(node)
            if most < 0:
                return False
            remaining += node.values() if kind is dict else node
    return True


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

    Empty text is the empty object: models call a tool without parameters this way.
    """
    if not raw or raw.isspace():
        return {}, "complete"
    try:
        value = parse(raw)
    except ProtocolError as error:
        return None, "truncated" if _STOPS_EARLY in error.message else "invalid"
    return (value, "complete") if type(value) is dict else (None, "invalid")


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
