"""Find the end of a JSON value incrementally.

Strings are recognised, so a closing tag inside a string closes nothing. The grammar is followed closely enough to
detect text that is not JSON at the first wrong character; the strict parser validates the finished value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from math import isinf
from typing import Any

from ...ir.pointer import JSON, Object
from .reader import Malformed, Parsing, Reader, Truncated

# Up to a quote that is not surely escaped, that is, not preceded by exactly one or exactly three backslashes.
# `[^"]*` is several times faster than a class of two characters.
_string_inside = re.compile(r'[^"]*+(?:(?:(?<=[^\\]\\)|(?<=[^\\]\\\\\\))"[^"]*+)*+').match
_after_escape = re.compile(r".(?:\\.)*+", re.DOTALL).match
_space = re.compile(r"[ \t\r\n]*").match
_bare = re.compile(r"[-+.0-9A-Za-z]*").match
_DEPTH = 200  # as in stream/strict.py, whose parser reads the result

# The states, each named after the expected text.
_VALUE, _FIRST_VALUE, _KEY, _FIRST_KEY, _COLON, _NEXT, _STRING, _ESCAPE, _BARE = range(9)

# Runs of short members and items, which one match skips: from these states, inside this bracket, to _NEXT.
_GAP = r"[ \t\r\n]*+"
_SHORT = r'"[^"\\]{0,64}+"'
_ITEM = rf"(?:{_SHORT}|[-+.0-9A-Za-z]++(?=[^-+.0-9A-Za-z]))"
_MEMBER = rf"{_SHORT}{_GAP}:{_GAP}{_ITEM}"
_MEMBERS = rf"{_GAP}{_MEMBER}(?:{_GAP},{_GAP}{_MEMBER})*+"
SHORT_OBJECT = rf"\{{(?:{_MEMBERS})?+{_GAP}\}}"
"""Matches an object of short members without containers."""
_RUNS = {
    (_FIRST_KEY, "{"): re.compile(_MEMBERS).match,
    (_NEXT, "{"): re.compile(rf"(?:{_GAP},{_GAP}{_MEMBER})++").match,
    (_FIRST_VALUE, "["): re.compile(rf"{_GAP}{_ITEM}(?:{_GAP},{_GAP}{_ITEM})*+").match,
    (_NEXT, "["): re.compile(rf"(?:{_GAP},{_GAP}{_ITEM})++").match,
}


class JsonEndScanner:
    """Scan text for the end of a value. `done`: the end was found; `failed`: the text is not JSON.

    >>> end = JsonEndScanner()
    >>> end.feed('{"a": "}', 0), end.feed('"} tail', 0), end.done
    (8, 2, True)
    """

    __slots__ = ("_expect", "_is_key", "_stack", "done", "failed")

    def __init__(self) -> None:
        self.done = False
        self.failed = False
        self._expect = _VALUE
        self._is_key = False
        self._stack: list[str] = []

    def feed(self, text: str, at: int) -> int:
        """Scan from `at` to the end of the value, an error or the end of the text; return the position reached."""
        end = len(text)
        while at < end and not (self.done or self.failed):
            if self._expect == _STRING:
                at = self._scan_string(text, at)
            elif self._expect == _ESCAPE:
                at = _after_escape(text, at).end()  # type: ignore[union-attr]  # the pattern matches any character
                self._expect = _STRING
                if text[at : at + 1] == '"':
                    self._end_string()
                    at += 1
            elif self._expect == _BARE:
                at = _bare(text, at).end()  # type: ignore[union-attr]  # the pattern matches everywhere
                if at < end:
                    self._end_value()
            else:
                at = _space(text, self._skip_run(text, at)).end()  # type: ignore[union-attr]  # matches everywhere
                if at < end:
                    at += self._scan_structure(text[at])
        return at

    @property
    def depth(self) -> int:
        return len(self._stack)

    def close(self) -> None:
        """End the text: a top-level number or literal ends here."""
        if self._expect == _BARE and not self._stack:
            self.done = True

    def _scan_string(self, text: str, at: int) -> int:
        """Scan the inside of a string from `at`, up to its quote or the end of the text.

        The search for a quote is much faster than the pattern, which also skips escaped quotes.
        """
        stop = text.find('"', at)
        if stop < 0:
            stop = len(text)
            if text[-1] != "\\":
                return stop
        elif stop > at and text[stop - 1] != "\\":
            self._end_string()
            return stop + 1
        else:
            stop = _string_inside(text, at).end()  # type: ignore[union-attr]  # the pattern matches everywhere
            if stop == len(text) and text[-1] != "\\":
                return stop
        return self._stop_string(text, at, stop)

    def _stop_string(self, text: str, at: int, stop: int) -> int:
        """Handle the quote or the end of the text at `stop`; the inside of the string was scanned from `at`."""
        first = stop
        while first > at and text[first - 1] == "\\":
            first -= 1
        is_escaped = (stop - first) % 2 == 1
        if stop == len(text):
            if is_escaped:
                self._expect = _ESCAPE
            return stop
        if not is_escaped:
            self._end_string()
        return stop + 1

    def _skip_run(self, text: str, at: int) -> int:
        """Skip a run of short members or items, if one begins here."""
        run = _RUNS.get((self._expect, self._stack[-1])) if self._stack else None
        found = None if run is None else run(text, at)
        if found is None:
            return at
        self._expect = _NEXT
        return found.end()

    def _scan_structure(self, character: str) -> int:
        """Handle one character outside strings; return the number of characters consumed.

        A bare value is not consumed here, and neither is a character that sets `failed`.
        """
        expect = self._expect
        if character == '"' and expect in (_VALUE, _FIRST_VALUE, _KEY, _FIRST_KEY):
            self._is_key = expect in (_KEY, _FIRST_KEY)
            self._expect = _STRING
        elif character in "{[" and expect in (_VALUE, _FIRST_VALUE) and len(self._stack) < _DEPTH:
            self._stack.append(character)
            self._expect = _FIRST_KEY if character == "{" else _FIRST_VALUE
        elif self._closes(character):
            self._stack.pop()
            self._end_value()
        elif character == "," and expect == _NEXT:
            self._expect = _KEY if self._stack[-1] == "{" else _VALUE
        elif character == ":" and expect == _COLON:
            self._expect = _VALUE
        elif expect in (_VALUE, _FIRST_VALUE) and (character.isascii() and (character.isalnum() or character in "-+.")):
            self._expect = _BARE
            return 0
        else:
            self.failed = True
            return 0
        return 1

    def _closes(self, character: str) -> bool:
        if character == "}":
            return self._expect in (_NEXT, _FIRST_KEY) and self._stack[-1] == "{"
        return character == "]" and self._expect in (_NEXT, _FIRST_VALUE) and self._stack[-1] == "["

    def _end_string(self) -> None:
        if self._is_key:
            self._is_key = False
            self._expect = _COLON
        else:
            self._end_value()

    def _end_value(self) -> None:
        if self._stack:
            self._expect = _NEXT
        else:
            self.done = True


# Parse a long object of wide characters as text.


_LONG = 4096  # characters; for less text the choice of the parser makes a difference of microseconds
_MAX_LENGTH = 1_000_000  # characters; the strict parser has a limit on members, which a shorter text cannot exceed


def parse_wide(text: str, at: int) -> tuple[Object, int] | None:
    """Parse the object that begins at `at` in a long text that is not ASCII, and return it with its end.

    The text contains no lone surrogate. The parser of the standard library reads it as it is. `parse` costs several
    times as much: the text is encoded as UTF-8, and each string decoded. Return None if `parse` has to decide: the text
    is short or ASCII, the object is not complete or invalid, or it has something that the other parser would accept.
    """
    if text.isascii() or not _LONG <= len(text) - at <= _MAX_LENGTH:
        return None
    try:
        value, end = _decode_wide(text, at)
        if type(value) is not dict:
            return None
        _refuse_beyond_limits(value, has_escapes=text.find("\\", at, end) >= 0)
    except (ValueError, RecursionError):
        return None
    return value, end


def _refuse_beyond_limits(value: Object, *, has_escapes: bool) -> None:
    """Raise ValueError for an infinite number, too deep nesting, and a lone surrogate, if the text `has_escapes`."""
    containers: list[Any] = [value]
    for _ in range(_DEPTH):
        inner: list[JSON] = []
        for node in containers:
            inner += node.values() if type(node) is dict else node
            inner += node if type(node) is dict and has_escapes else ()
        for item in inner:
            if type(item) is float and isinf(item):
                raise ValueError("infinite")
            if has_escapes and type(item) is str and not item.isascii():
                item.encode("utf-32-le")  # the fastest way to find a surrogate
        containers = [item for item in inner if type(item) is dict or type(item) is list]
        if not containers:
            return
    raise ValueError("nested too deeply")


def _unique_members(members: list[tuple[str, JSON]]) -> Object:
    value = dict(members)
    if len(value) != len(members):
        raise ValueError("duplicate key")
    return value


def _refuse_constant(name: str) -> JSON:
    raise ValueError(f"{name} is not JSON")


_decode_wide = json.JSONDecoder(object_pairs_hook=_unique_members, parse_constant=_refuse_constant).raw_decode


class BrokenJson(Malformed):
    """Text that is not JSON. `depth` is the number of brackets that are open at the first wrong character."""

    def __init__(self, depth: int) -> None:
        super().__init__("not JSON")
        self.depth = depth


def read_json_value(reader: Reader, sink: Callable[[str], object]) -> Parsing[Object | None]:
    """Pass one JSON value to `sink` as it arrives. Return it if it had to be parsed to find its end, else None.

    BrokenJson if it is not JSON, Truncated if the text ends inside it.
    """
    whole = parse_wide(reader.text, reader.at)
    if whole is not None:
        sink(reader.read_to(whole[1]))
        return whole[0]
    end = JsonEndScanner()
    while True:
        stop = end.feed(reader.text, reader.at)
        if stop > reader.at:
            sink(reader.read_to(stop))
        if reader.ended:
            end.close()
        if end.done:
            return None
        if end.failed:
            raise BrokenJson(end.depth)
        if reader.ended:
            raise Truncated("the JSON value is truncated")
        yield
