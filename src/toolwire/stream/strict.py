"""Strict JSON: an unambiguous value, or an error with its position; and a count of values before parsing.

Also refused, beyond invalid JSON: duplicate keys (the checker and the executor would see different values), NaN and
infinities in any spelling (`1e400` too), lone surrogates, nesting beyond 200, integers beyond 4,300 digits, more than
`limit` bytes or MAX_MEMBERS members. jiter does the parsing and reports line and column; `pointer_at` turns them into a
pointer at a bounded cost, because a peer chooses the document and the position of its error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import isinf
from typing import Literal

import jiter

from ..ir.errors import ProtocolError
from ..ir.pointer import JSON, Object, join

# Locate an error in a JSON document at a bounded cost.
#
# A peer chooses the size of a document and the position of its error, so the search for a JSON pointer has a budget
# of BUDGET steps: one for each string, bracket or comma, fewer for long runs of plain items. An error beyond that is
# reported without a pointer; its message still has line and column. Scans over bytes run in C and read each byte a
# constant number of times.


BUDGET = 100_000
"""The maximum number of steps of one pointer search: about 0.15 s."""

_WINDOW = 4096  # bytes that are read line by line; below it another halving costs more
_next_token = re.compile(rb'[^"{}\[\],]*+("[^"]*+"?+|[{}\[\],])').match
# Up to 1,000 items of an array, or members of an object, without nested containers: 16 of them cost one step.
_PLAIN = rb'[^"{}\[\],]*+'
_ITEM = rb'%b(?:"[^"]*+"%b)?+,' % (_PLAIN, _PLAIN)
_MEMBER = rb'%b"[^"]*+"%b(?:"[^"]*+"%b)?+,' % (_PLAIN, _PLAIN, _PLAIN)
_each_item = re.compile(_ITEM).findall
_skip_items = re.compile(rb"(?:%b){1,1000}+" % _ITEM).match
_skip_members = re.compile(rb"(?:%b){1,1000}+" % _MEMBER).match
_SKIPPED_PER_STEP = 16  # items that the regular expression skips in the time of one step in Python


def mask_escapes(data: bytes) -> bytes:
    r"""Replace `\\` and `\"` by bytes of the same length, so that every quote left is the start or end of a string."""
    return data.replace(rb"\\", b"__").replace(rb"\"", b"__") if b"\\" in data else data


def pointer_at(data: bytes, end: int | None = None) -> str:
    """Return the pointer of the value in which the prefix `data[:end]` ends; "" if it is invalid, or BUDGET is spent."""
    end = len(data) if end is None else end
    masked = mask_escapes(data)
    path: list[str | int | None] = []  # for each open container: a key (None while one is expected) or an index
    position = steps = 0
    while steps < BUDGET:
        token = _next_token(masked, position, end)
        if token is None:
            return join(*(segment for segment in path if segment is not None))
        position, steps = token.end(), steps + 1
        mark = masked[token.start(1)]
        if not path and mark in b"}],":  # the parser reports a cut escape after its place
            return ""
        match mark:
            case 0x7B:  # {
                path.append(None)
            case 0x5B:  # [
                path.append(0)
            case 0x7D | 0x5D:  # } ]
                path.pop()
                continue
            case 0x2C:  # ,
                path[-1] = path[-1] + 1 if isinstance(path[-1], int) else None
            case _:  # "
                if path and path[-1] is None:
                    path[-1] = _decode_key(data[token.start(1) : position])
                continue
        position, skipped = _skip(masked, position, end, path)
        steps += skipped // _SKIPPED_PER_STEP
    return ""


def _skip(masked: bytes, position: int, end: int, path: list[str | int | None]) -> tuple[int, int]:
    """Skip plain items or members after an opening bracket or a comma; return the position and the maximum count.

    The index of an array in `path` is advanced.
    """
    index = path[-1]
    run = (_skip_members if index is None else _skip_items)(masked, position, end)
    if run is None:
        return position, 0
    count = masked.count(b",", position, run.end())
    if isinstance(index, int):
        has_strings = masked.find(b'"', position, run.end()) >= 0
        count = len(_each_item(masked, position, run.end())) if has_strings else count
        path[-1] = index + count
    return run.end(), count


def _decode_key(text: bytes) -> str:
    try:
        return str(jiter.from_json(text))
    except ValueError:  # the key itself is cut off or broken
        return text.strip(b'"').decode("utf-8", "replace")


def byte_offset(data: bytes, line: int, column: int) -> int:
    """Return the offset of a 1-based line and column.

    Halving the range finds the line with two passes over the data; a loop over lines would take a step for each.
    """
    low, high, breaks = 0, len(data), line - 1
    while high - low > _WINDOW:
        middle = (low + high) // 2
        before = data.count(b"\n", low, middle)
        if before >= breaks:
            high = middle
        else:
            low, breaks = middle, breaks - before
    for _ in range(breaks):
        low = data.find(b"\n", low) + 1
    return low + max(column - 1, 0)


def infinite_pointer(value: JSON) -> str | None:
    """Return the pointer of the first infinite number in a parsed document, or None."""
    if type(value) is float:
        return "" if isinf(value) else None
    path = _infinite_path(value) if type(value) is list or type(value) is dict else None
    return None if path is None else join(*reversed(path))


def _infinite_path(container: JSON) -> list[str | int] | None:
    """Return the path to the first infinite number, innermost segment first, or None. The parser bounds its depth."""
    members: Iterable[tuple[str | int, JSON]] = enumerate(container) if type(container) is list else container.items()
    for key, value in members:
        kind = type(value)
        if kind is float:
            if isinf(value):
                return [key]
        elif value and (kind is dict or kind is list):
            path = _infinite_path(value)
            if path is not None:
                path.append(key)
                return path
    return None


LIMIT = 64 * 1024 * 1024  # bytes; requests contain files as base64, and providers accept some tens of MB
MAX_MEMBERS = 250_000  # a member takes many times its text as Python objects. Not measured
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
_BYTES_PER_MEMBER = 512  # with fewer members per byte, looking at all values is cheaper than the search of the text
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
    """Return whether a document that is not short may contain an infinite number; an early exact answer if it is cheaper."""
    size = len(data)
    if size > _MANY_BYTES and (has_infinity := _has_infinity(value, size // _BYTES_PER_MEMBER)) is not None:
        return has_infinity
    shape = data.translate(_NUMBER_SHAPE, b"+")
    if shape.find(_MANY_DIGITS) >= 0:  # `in` is slower
        return True
    position = shape.find(_EXPONENT_SHAPE)
    return position >= 0 and _has_exponent(shape, position)


def _has_exponent(shape: bytes, position: int) -> bool:
    """Return whether an exponent of three digits from `position` on may belong to a number.

    Most of them are in ids, after a letter.
    """
    for _ in range(_MAX_SHAPES):
        before = shape[max(0, position - _SHORT) : position].rstrip(b"0.").removesuffix(b"-")
        if not before or before.endswith(b" "):
            return True
        position = shape.find(_EXPONENT_SHAPE, position + 1)
        if position < 0:
            return False
    return True


def _has_infinity(value: JSON, most: int) -> bool | None:
    """Return whether one of at most `most` members and items is infinite, or None if there are more."""
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
    """Like `parse`, for documents that must be objects. Raise ProtocolError for any other value."""
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
    data: bytes | str = raw
    try:
        data = raw.encode()
        if len(data) < _SHORT and _EXPONENT(data) is None:  # then `parse` has no other check
            value = jiter.from_json(data, allow_inf_nan=False, catch_duplicate_keys=True)
            return ({} if value is None else value, "complete") if type(value) in _ARGUMENTS else (None, "invalid")
    except ValueError:
        pass  # empty, with a byte order mark, or invalid
    if not raw or raw.isspace():
        return {}, "complete"
    try:
        value = parse(data)
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


_ASTRAL_LEADS = (b"\xf0", b"\xf1", b"\xf2", b"\xf3", b"\xf4")  # first bytes of characters above U+FFFF in UTF-8
_COUNT_WINDOW = 256 * 1024  # bytes; a thread that counts lets others run between two windows


def count_values(data: bytes) -> int:
    r"""Count the items, members and containers of a document; marks in strings do not count.

    >>> count_values(b'{"a": [1, 2, "3, [4]"], "b": "\\",{"}')
    5
    """
    count, start, in_string = 0, 0, 0
    while start < len(data):
        window = data[start : start + _COUNT_WINDOW]
        if (len(window) - len(window.rstrip(b"\\"))) % 2 and start + _COUNT_WINDOW < len(data):
            window = window[:-1]  # the next window begins with the whole escape sequence
        pieces = mask_escapes(window).split(b'"')
        outside = b"".join(pieces[in_string::2])
        count += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        in_string ^= (len(pieces) - 1) % 2
        start += len(window)
    return count


def text_copies(data: bytes) -> int:
    """Return the bytes that strings made of `data` may take for each of its bytes.

    A Python string has as many bytes for each character as its widest character needs, so one emoji makes a string of
    ASCII four times as large. A string that is not ASCII also keeps its UTF-8 once it was encoded.
    """
    has_escapes = data.find(b"\\u") >= 0  # `in` is slower
    if has_escapes and (b"\\ud" in data or b"\\uD" in data):  # an escaped surrogate
        return 5
    if data.isascii():
        return 3 if has_escapes else 1
    return 5 if any(lead in data for lead in _ASTRAL_LEADS) else 3
