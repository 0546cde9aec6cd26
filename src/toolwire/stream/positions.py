"""Find the positions of values in JSON text.

A parser returns values without their positions, and a document that is written again is another text. `find_places`
reads the text once and looks into a container only if a pointer leads into it, so its cost is linear in the text and
does not depend on the number of pointers. The text must be valid JSON: the caller has parsed it already.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Any, NamedTuple

from ..ir.pointer import split
from .strict import parse

_blank = re.compile(r"[ \t\r\n]*+").match
_string = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL).match
_scalar = re.compile(r"[^,\]} \t\r\n]++").match
# up to the next bracket outside a string
_flat = re.compile(r'[^"{}\[\]]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"{}\[\]]*+)*+', re.DOTALL).match
# one character of a string: a pair of surrogates, an escape, or the character itself
_units = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]", re.DOTALL
).finditer

_Trie = dict[str, Any]
_HERE = "/"  # no segment of a pointer: segments are stored with a prefix


class TextPlace(NamedTuple):
    """A value is `text[start:end]`. `member` is the start of its key, or `start` for a value without one."""

    member: int
    start: int
    end: int


def find_places(text: str, pointers: Iterable[str]) -> dict[str, TextPlace]:
    """Return the places of the values at `pointers`. A pointer to nothing has none; of equal keys, the last one counts."""
    trie: _Trie = {}
    for pointer in pointers:
        node = trie
        for segment in split(pointer):
            node = node.setdefault(f"+{segment}", {})
        node[_HERE] = pointer
    found: dict[str, TextPlace] = {}
    start = _skip_blank(text, 0)
    _visit(text, start, start, trie, found)
    return found


def _visit(text: str, member: int, start: int, node: _Trie, found: dict[str, TextPlace]) -> int:
    """Enter the places below a value that starts at `start`, and return its end."""
    inner = len(node) > (_HERE in node)
    if inner and text[start] == "{":
        end = _visit_object(text, start + 1, node, found)
    elif inner and text[start] == "[":
        end = _visit_array(text, start + 1, node, found)
    else:
        end = _skip_value(text, start)
    if _HERE in node:
        found[node[_HERE]] = TextPlace(member, start, end)
    return end


def _visit_object(text: str, position: int, node: _Trie, found: dict[str, TextPlace]) -> int:
    position = _skip_blank(text, position)
    while text[position] == '"':
        member, key_end = position, _end(_string(text, position))
        key = text[position + 1 : key_end - 1]
        if "\\" in key:
            key = parse(text[position:key_end])
        position = _skip_blank(text, _skip_blank(text, key_end) + 1)
        wanted = node.get(f"+{key}")
        if wanted is None:
            position = _skip_value(text, position)
        else:
            _forget(wanted, found)
            position = _visit(text, member, position, wanted, found)
        position = _next_item(text, position)
    return position + 1


def _visit_array(text: str, position: int, node: _Trie, found: dict[str, TextPlace]) -> int:
    """Visit the items up to the last one that a pointer leads into, and skip the others together."""
    position, index, left = _skip_blank(text, position), 0, len(node) - (_HERE in node)
    while text[position] != "]":
        if not left:
            return _skip_container(text, position)
        wanted = node.get(f"+{index}")
        if wanted is None:
            position = _skip_value(text, position)
        else:
            left -= 1
            position = _visit(text, position, position, wanted, found)
        position, index = _next_item(text, position), index + 1
    return position + 1


def _forget(node: _Trie, found: dict[str, TextPlace]) -> None:
    """Remove the places of an earlier value with the same key."""
    if found:
        found.pop(node.get(_HERE, ""), None)
        for key, inner in node.items():
            if key != _HERE:
                _forget(inner, found)


def _next_item(text: str, position: int) -> int:
    """Return the start of the next item, or the position of the closing bracket."""
    position = _skip_blank(text, position)
    return _skip_blank(text, position + 1) if text[position] == "," else position


def _skip_blank(text: str, position: int) -> int:
    return _end(_blank(text, position))


def _skip_value(text: str, position: int) -> int:
    first = text[position]
    if first == '"':
        return _end(_string(text, position))
    if first not in "{[":
        return _end(_scalar(text, position))
    return _skip_container(text, position + 1)


def _skip_container(text: str, position: int) -> int:
    """Return the end of the container that is open at `position`."""
    depth = 1
    while depth:
        position = _end(_flat(text, position))
        depth += 1 if text[position] in "{[" else -1
        position += 1
    return position


def _end(match: re.Match[str] | None) -> int:
    if match is None:
        raise ValueError("not JSON")
    return match.end()


class StringOffsets:
    """The positions of the characters of a JSON string in its literal, which starts at `start` with a quote."""

    def __init__(self, literal: str, start: int) -> None:
        if "\\" in literal:
            self._offsets = [0, *accumulate(len(unit[0]) for unit in _units(literal, 1, len(literal) - 1))]
        else:
            self._offsets = []
        self._start = start + 1

    def at(self, index: int) -> int:
        """Return the position in the document of character number `index`."""
        return self._start + (self._offsets[index] if self._offsets else index)


class CodeUnits:
    """Convert positions in a text to UTF-16 code units, in which JavaScript counts."""

    def __init__(self, text: str) -> None:
        self._astral = (
            [] if text.isascii() else [match.start() for match in re.finditer("[\U00010000-\U0010ffff]", text)]
        )

    def at(self, position: int) -> int:
        return position + bisect_right(self._astral, position - 1) if self._astral else position
