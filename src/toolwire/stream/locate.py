"""Locate an error in a JSON document at a bounded cost.

A peer chooses the size of a document and the position of its error, so the search for a JSON pointer has a budget of
BUDGET steps: one for each string, bracket or comma, fewer for long runs of plain items. An error beyond that is
reported without a pointer; its message still has line and column. Scans over bytes run in C and read each byte a
constant number of times.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import isinf

import jiter

from ..ir.pointer import JSON, join

__all__ = ["BUDGET", "byte_offset", "infinite_pointer", "mask_escapes", "pointer_at"]

BUDGET = 100_000
"""The maximum number of steps of one pointer search: about 0.15 s."""

_WINDOW = 4096
_next_token = re.compile(rb'[^"{}\[\],]*+("[^"]*+"?+|[{}\[\],])').match
# Up to 1,000 items of an array, or members of an object, without nested containers: 16 of them cost one step.
_PLAIN = rb'[^"{}\[\],]*+'
_ITEM = rb'%b(?:"[^"]*+"%b)?+,' % (_PLAIN, _PLAIN)
_MEMBER = rb'%b"[^"]*+"%b(?:"[^"]*+"%b)?+,' % (_PLAIN, _PLAIN, _PLAIN)
_each_item = re.compile(_ITEM).findall
_skip_items = re.compile(rb"(?:%b){1,1000}+" % _ITEM).match
_skip_members = re.compile(rb"(?:%b){1,1000}+" % _MEMBER).match
_SKIPPED_PER_STEP = 16


def mask_escapes(data: bytes) -> bytes:
    r"""Replace `\\` and `\"` by bytes of the same length, so that every quote left is the start or end of a string."""
    return data.replace(rb"\\", b"__").replace(rb"\"", b"__") if b"\\" in data else data


def pointer_at(data: bytes, end: int | None = None) -> str:
    """Return the pointer of the value in which the valid prefix `data[:end]` ends, or "" once BUDGET is spent."""
    end = len(data) if end is None else end
    masked = mask_escapes(data)
    path: list[str | int | None] = []  # for each open container: a key (None while one is expected) or an index
    position = steps = 0
    while steps < BUDGET:
        token = _next_token(masked, position, end)
        if token is None:
            return join(*(segment for segment in path if segment is not None))
        position = token.end()
        steps += 1
        match masked[token.start(1)]:
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
    """Skip plain items or members after an opening bracket or a comma; return the position and the maximum count."""
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
    """Return the path to the first infinite number, innermost segment first. The parser bounds the recursion at 200."""
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
