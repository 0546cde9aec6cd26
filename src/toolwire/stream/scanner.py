"""Scan JSON arguments incrementally: detect when they are complete, and which argument was just completed.

The scanner reads every character once and forwards nothing: the caller keeps the raw text and passes it on unchanged.
Between two calls it holds a state, a depth and the pieces of the argument in progress, so a fragment costs the same
after 100 and after 50,000 others.

It follows the grammar only as far as these two questions require. Text that looks wrong makes it `invalid`; other text
may still be refused by the strict parser, which decides about the finished text.

    outside ──{──▶ key ──"──▶ in_key ──"──▶ colon ──:──▶ value ──"──▶ string ───────┐
                    ▲                                       ├──{[──▶ nested ⇄ text ──┤
                    │                                       └──────▶ scalar ─────────┤
                    └───────────────────────── , ◀──────────────────── after ◀───────┘
                                                                         └──}──▶ done

`ArgumentWatch` emits `ArgumentEnd` events as soon as an argument is complete, to dispatch on the first one:

    watch = ArgumentWatch()
    for event in decoder.feed(data):
        for seen in watch.feed(event):      # the event itself, then an ArgumentEnd for each argument it completed
            ...

Not part of the decoders, so forwarding a stream does not pay for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from ..ir.errors import ProtocolError
from ..ir.events import ArgumentEnd, CallDelta, CallEnd, CallStart
from .strict import parse

Argument: TypeAlias = tuple[str, str]
"""(name, the JSON text of its value)"""

_StateHandler: TypeAlias = Callable[[str, int], int]

_inside = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL).match
_flat = re.compile(r'[^"{}\[\]]*').match
_space = re.compile(r"[ \t\r\n]*").match
_bare = re.compile(r"[^,{}\[\] \t\r\n]*").match


class Scanner:
    """Scan argument text incrementally.

    >>> scanner = Scanner()
    >>> scanner.feed('{"city": "Par'), scanner.feed('is", "days": 3'), scanner.feed("}"), scanner.complete
    ([], [('city', '"Paris"')], [('days', '3')], True)
    """

    __slots__ = (
        "_depth",
        "_done",
        "_escaped",
        "_from",
        "_key",
        "_names",
        "_pieces",
        "_state",
        "complete",
        "ends",
        "invalid",
    )

    def __init__(self) -> None:
        self.complete = False
        self.invalid = False
        self.ends: list[int] = []
        """For each argument completed by the last fragment: the length of the fragment at which that was certain."""
        self._state: _StateHandler = self._outside
        self._depth = 0  # of brackets inside the value
        self._escaped = False
        self._key: list[str] = []  # the current key as JSON text, in pieces
        self._names: set[str] = set()  # names of complete arguments, to detect duplicates
        self._pieces: list[str] = []  # the value in progress, from earlier fragments
        self._from = -1  # where the value in progress begins in this fragment; -1 outside a value
        self._done: list[Argument] = []

    def feed(self, text: str) -> list[Argument]:
        """Scan the next fragment and return the arguments that it completed; set `ends`, `complete` and `invalid`."""
        position, end = 0, len(text)
        if self.ends:
            self.ends = []
        while position < end and not self.invalid:
            position = self._state(text, position)
        if self._from >= 0 and not self.invalid:
            self._pieces.append(text[self._from :])
            self._from = 0
        if not self._done:
            return []
        done, self._done = self._done, []
        return done

    @property
    def partial(self) -> tuple[str, str] | None:
        """The incomplete argument: its name as JSON, and the part of its value from the last fragment."""
        return None if self._from < 0 or self.invalid else ("".join(self._key), self._pieces[-1])

    # Each state reads from `position` as far as it can and returns the position where the next state begins.

    def _outside(self, text: str, position: int) -> int:
        position = _skip_space(text, position)
        if position < len(text):
            if text[position] != "{":
                self.invalid = True
            self._state = self._before_first_key
            position += 1
        return position

    def _before_first_key(self, text: str, position: int) -> int:
        position = _skip_space(text, position)
        if position < len(text) and text[position] == "}":
            self._finish()
            return position + 1
        return self._before_key(text, position)

    def _before_key(self, text: str, position: int) -> int:
        position = _skip_space(text, position)
        if position == len(text):
            return position
        self._expect(text[position] == '"')
        self._key = ['"']
        self._state = self._in_key
        return position + 1

    def _in_key(self, text: str, position: int) -> int:
        stop, closed = self._read_string(text, position)
        self._key.append(text[position:stop])
        if closed:
            self._state = self._colon
        return stop

    def _colon(self, text: str, position: int) -> int:
        position = _skip_space(text, position)
        if position < len(text):
            self._expect(text[position] == ":")
            self._state = self._start_value
            position += 1
        return position

    def _start_value(self, text: str, position: int) -> int:
        """Read the first character of a value, which determines the next state."""
        position = _skip_space(text, position)
        if position == len(text):
            return position
        self._from = position
        first = text[position]
        if first == '"':
            self._state = self._in_string
            return position + 1
        if first in "{[":
            self._depth = 1
            self._state = self._in_nested
            return position + 1
        self._expect(first not in ",:}]")
        self._state = self._in_scalar
        return position

    def _in_string(self, text: str, position: int) -> int:
        stop, closed = self._read_string(text, position)
        if closed:
            self._end_value(text, stop, stop)
        return stop

    def _in_nested(self, text: str, position: int) -> int:
        """Read up to the next string or bracket inside a container; the value ends with its last bracket."""
        stop = _flat(text, position).end()  # type: ignore[union-attr]  # the pattern matches everywhere
        if stop == len(text):
            return stop
        if text[stop] == '"':
            self._state = self._in_nested_string
        else:
            self._depth += 1 if text[stop] in "{[" else -1
            if self._depth == 0:
                self._end_value(text, stop + 1, stop + 1)
        return stop + 1

    def _in_nested_string(self, text: str, position: int) -> int:
        stop, closed = self._read_string(text, position)
        if closed:
            self._state = self._in_nested
        return stop

    def _in_scalar(self, text: str, position: int) -> int:
        stop = _bare(text, position).end()  # type: ignore[union-attr]  # the pattern matches everywhere
        if stop < len(text):
            self._end_value(text, stop, stop + 1)
        return stop

    def _after_value(self, text: str, position: int) -> int:
        """Read the comma before the next key, or the closing brace, which completes the arguments."""
        position = _skip_space(text, position)
        if position == len(text):
            return position
        if text[position] == "}":
            self._finish()
        else:
            self._expect(text[position] == ",")
            self._state = self._before_key
        return position + 1

    def _after_end(self, text: str, position: int) -> int:
        position = _skip_space(text, position)
        self._expect(position == len(text))
        return position

    def _read_string(self, text: str, position: int) -> tuple[int, bool]:
        """Read up to and including the closing quote; return the position and whether the quote was there."""
        if self._escaped:
            self._escaped = False
            position += 1
        stop = _inside(text, position).end()  # type: ignore[union-attr]  # the pattern matches everywhere
        if stop == len(text):
            return stop, False
        self._escaped = text[stop] == "\\"  # only at the end, because the pattern takes complete escapes
        return stop + 1, not self._escaped

    def _end_value(self, text: str, stop: int, certain: int) -> None:
        """Record the complete argument; `certain` is the position at which its end was known.

        A scalar is complete only with the character after it, so `certain` may be greater than `stop`. An unreadable or
        repeated name makes the scanner `invalid`.
        """
        raw = "".join([*self._pieces, text[self._from : stop]])
        self._pieces.clear()
        self._from = -1
        self._state = self._after_value
        try:
            name = parse("".join(self._key))
        except ProtocolError:
            self.invalid = True
            return
        self._expect(name not in self._names)
        self._names.add(name)
        if not self.invalid:
            self._done.append((name, raw))
            self.ends.append(certain)

    def _finish(self) -> None:
        self.complete = True
        self._state = self._after_end

    def _expect(self, is_met: bool) -> None:
        if not is_met:
            self.invalid = True
            self.complete = False


def _skip_space(text: str, position: int) -> int:
    return _space(text, position).end()  # type: ignore[union-attr]  # the pattern matches everywhere


AnyItem = TypeVar("AnyItem")


class ArgumentWatch:
    """Add an ArgumentEnd after the delta that completed an argument. Freeform calls have no arguments."""

    __slots__ = ("_scanners",)

    def __init__(self) -> None:
        self._scanners: dict[int, Scanner] = {}

    def feed(self, event: AnyItem) -> list[AnyItem | ArgumentEnd]:
        """Return `event`, and after it an ArgumentEnd for each argument that it completed.

        Items that are no events, such as other items of `Agent.stream`, are returned as they are.
        """
        events: list[AnyItem | ArgumentEnd] = [event]
        if isinstance(event, CallDelta):
            scanner = self._scanners.get(event.key)
            if scanner is not None:
                for name, raw in scanner.feed(event.text):
                    try:
                        events.append(ArgumentEnd(event.key, name, parse(raw)))
                    except ProtocolError:
                        scanner.invalid = True
                        break
        elif isinstance(event, CallStart):
            if event.kind != "freeform":
                self._scanners[event.key] = Scanner()
        elif isinstance(event, CallEnd):
            self._scanners.pop(event.key, None)
        return events
