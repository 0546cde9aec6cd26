"""Read text incrementally, with the operations that a grammar needs.

An operation that needs more text yields and is resumed when more has arrived. Nothing is decided on a partial tag: a
possible beginning of one is held back, and no more than that.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable
from functools import lru_cache
from typing import TypeAlias, TypeVar

T = TypeVar("T")
_Search: TypeAlias = Callable[[str, int, int], re.Match[str] | None]
Parsing: TypeAlias = Generator[None, None, T]
"""A generator that yields when it needs more text and returns a T."""

_NEAR = 256  # characters; a streamed token is shorter, and a search without windows costs less
_SPACES = " \t\r\n"
_space = re.compile(r"[ \t\r\n]*").match


class Malformed(Exception):  # control flow of the engine: the text is not a call
    """The text does not follow the grammar from here on."""


class ForeignFormat(Malformed):
    """The text is a call in another format."""


class Truncated(Malformed):
    """The text ends where the grammar requires more."""


class Terminals:
    """Literals to search for: the first one in a text, or the beginning of one at its end.

    A long text is searched once for each first character, because that is faster than one search for all of them. A
    literal with leading white space is found by its form without it.
    """

    __slots__ = ("_first", "_indented", "_longer", "_ordered", "_search", "_searches", "literals", "width")

    def __init__(self, literals: Iterable[str]) -> None:
        self.literals = tuple(sorted(set(literals), key=len, reverse=True))
        self._search = re.compile("|".join(map(re.escape, self.literals)) or r"(?!)").search
        first = "".join({re.escape(literal[0]) for literal in self.literals})
        self._first = re.compile(f"[{first}]" if first else r"(?!)").search
        self.width = max(map(len, self.literals), default=1)
        self._ordered = sorted(self.literals)
        self._longer = _longer_literals(self.literals)
        self._indented = _indented_literals(self.literals)
        self._searches: list[tuple[str, _Search]] = []  # compiled when a long text is searched

    def next(self, text: str, at: int, *, ended: bool, stop: int = sys.maxsize) -> tuple[int, str | None]:
        """Return the end of the text without literals, and the literal there.

        The literal is None if there is none, or if more text is needed to decide. A `stop` must be near.
        """
        if len(text) - at > _NEAR and stop == sys.maxsize:
            start, found = self._find(text, at)
        elif self._first(text, at) is None:  # true of most tokens
            return len(text), None
        elif (match := self._search(text, at, stop)) is not None:
            start, found = match.start(), match[0]
        else:
            found = None
        if found is None:
            return len(text) if ended else self.partial_start(text, at), None
        if ended:
            return start, found
        if start > len(text) - self.width:  # a longer literal may begin before it or with it
            held = self.partial_start(text, at)
            if held < start:
                return held, None
            if any(other.startswith(text[start:]) for other in self._longer.get(found, ())):
                return start, None
        return start, found

    def _find(self, text: str, at: int) -> tuple[int, str | None]:
        """Return the first literal, the longest one there, and its start.

        The text is searched in growing windows, so that the cost depends on the distance to the literal. A literal at
        the end of a window is searched again in the next one, because a longer one may have been cut off.
        """
        begin, window = at + _NEAR, 2 * _NEAR
        match = self._search(text, at, begin + self.width)
        if match is not None and match.start() <= begin:
            return match.start(), match[0]
        while begin < len(text):
            end = begin + window
            start, found = self._find_within(text, begin, end + self.width)
            if found is not None and start <= end:
                return self._include_indent(text, at, start, found)
            begin, window = end, window * 2
        return len(text), None

    def _find_within(self, text: str, at: int, stop: int) -> tuple[int, str | None]:
        """Find the first literal with one search for each first character, without its indentation."""
        start, found = stop, None
        if not self._searches:
            found_by_others = {literal for indented in self._indented.values() for literal in indented}
            self._searches = _searches_by_character([other for other in self.literals if other not in found_by_others])
        for character, search in self._searches:
            near = text.find(character, at, stop)
            match = None if near < 0 else search(text, near, stop)
            if match is not None and match.start() < start:
                start, found = match.start(), match[0]
                stop = min(stop, start + self.width)  # another literal may begin before it and overlap it
        return start, found

    def _include_indent(self, text: str, at: int, start: int, found: str) -> tuple[int, str]:
        """Return the longest indented literal that ends with the one at `start`, or that one."""
        for indented in self._indented.get(found, ()):
            before = start + len(found) - len(indented)
            if before >= at and text.startswith(indented, before):
                return before, indented
        return start, found

    def partial_start(self, text: str, at: int = 0) -> int:
        """Return the start of the suffix that may become a literal; the text before it is safe."""
        if len(text) - at >= self.width:
            at = len(text) - self.width + 1
        while (match := self._first(text, at)) is not None:
            at = match.start()
            if self._is_prefix(text[at:]):
                return at
            at += 1
        return len(text)

    def _is_prefix(self, text: str) -> bool:
        """Return whether `text` is a proper prefix of a literal: those follow it directly in sorted order."""
        following = bisect_right(self._ordered, text)
        return following < len(self._ordered) and self._ordered[following].startswith(text)


@lru_cache(512)
def terminals(*literals: str) -> Terminals:
    """Compile the non-empty `literals`, with a cache."""
    return Terminals(filter(None, literals))


@lru_cache(512)
def _longest(literals: tuple[str, ...]) -> int:
    return max(map(len, literals), default=0)


def _longer_literals(literals: Iterable[str]) -> dict[str, list[str]]:
    literals = list(literals)
    found = {one: [other for other in literals if other != one and other.startswith(one)] for one in literals}
    return {one: others for one, others in found.items() if others}


def _indented_literals(literals: tuple[str, ...]) -> dict[str, list[str]]:
    """Map each literal to its variants with leading white space, longest first."""
    found: dict[str, list[str]] = {}
    for literal in literals:
        bare = literal.lstrip()
        if bare != literal and bare in literals:
            found.setdefault(bare, []).append(literal)
    return found


def _searches_by_character(literals: Iterable[str]) -> list[tuple[str, _Search]]:
    """Compile one search for the literals with the same first character, the most literals first."""
    groups: dict[str, list[str]] = {}
    for literal in literals:
        groups.setdefault(literal[0], []).append(literal)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    return [(character, re.compile("|".join(map(re.escape, group))).search) for character, group in ordered]


class Reader:
    """The unread text. `ended`: no more text will arrive; `finished`: the model stopped by itself.

    While `taken` is a list, it also collects the text read, which is emitted as text if it is not a call. `tape` does
    the same for a call inside reasoning, which may be a draft.
    """

    __slots__ = ("at", "ended", "finished", "offset", "stopped", "taken", "tape", "text")

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.offset = 0  # position of `text` in the whole text
        self.ended = False
        self.finished = True
        self.stopped = False  # all further text is ignored
        self.taken: list[str] | None = None
        self.tape: list[str] | None = None

    def feed(self, chunk: str) -> None:
        """Append a chunk and discard the text before `at`."""
        self.offset += self.at
        self.text = self.text[self.at :] + chunk if self.at < len(self.text) else chunk
        self.at = 0

    @property
    def position(self) -> int:
        """The position in the whole text."""
        return self.offset + self.at

    def read_to(self, stop: int) -> str:
        """Read up to `stop`."""
        piece = self.text[self.at : stop]
        if self.taken is not None and piece:
            self.taken.append(piece)
        if self.tape is not None:
            self.tape.append(piece)
        self.at = stop
        return piece

    def peek(self, count: int = 1) -> Parsing[str]:
        """Return the next `count` characters without reading them; fewer only at the end."""
        while len(self.text) - self.at < count and not self.ended:
            yield
        return self.text[self.at : self.at + count]

    def read_spaces(self) -> Parsing[str]:
        """Read and return all white space; wait for more text if it may continue."""
        if self.at < len(self.text) and self.text[self.at] not in _SPACES:
            return ""
        spaces = ""
        while True:
            stop = _space(self.text, self.at).end()  # type: ignore[union-attr]  # the pattern matches everywhere
            spaces += self.read_to(stop)
            if stop < len(self.text) or self.ended:
                return spaces
            yield

    def read_one_of(self, literals: tuple[str, ...]) -> Parsing[str | None]:
        """Read the longest of `literals` that comes next. Return None, and read nothing, if none does.

        A partial literal at the end of the text does not match.
        """
        while True:
            text, at = self.text, self.at
            if self.ended or len(text) - at >= _longest(literals) or not self._may_grow(literals):
                if not text.startswith(literals, at):
                    return None
                found = max([literal for literal in literals if text.startswith(literal, at)], key=len)
                self.read_to(at + len(found))
                return found
            yield

    def _may_grow(self, literals: tuple[str, ...]) -> bool:
        """Return whether all the unread text is the beginning of one of `literals`."""
        left = len(self.text) - self.at
        rest = self.text[self.at :]
        return any(len(literal) > left and literal.startswith(rest) for literal in literals)

    def expect(self, *literals: str) -> Parsing[str]:
        """Read one of `literals`, or raise Malformed or Truncated."""
        found = yield from self.read_one_of(literals)
        if found is None:
            here = self.text[self.at : self.at + max(map(len, literals))]
            cut = self.ended and any(literal.startswith(here) for literal in literals)
            raise (Truncated if cut else Malformed)(f"expected {' or '.join(literals)}")
        return found

    def read_until(self, terminals: Terminals, sink: Callable[[str], object]) -> Parsing[str | None]:
        """Pass on the text before the first terminal; read and return the terminal, or None at the end."""
        while True:
            safe, found = terminals.next(self.text, self.at, ended=self.ended)
            if safe > self.at:
                sink(self.read_to(safe))
            if found is not None:
                self.read_to(self.at + len(found))
                return found
            if self.ended:
                return None
            yield

    def read_word(self, terminals: Terminals, limit: int = 256) -> Parsing[tuple[str, str | None]]:
        """Read a short text and the terminal after it (a name, a key, a header); None instead of it at the end.

        Malformed for a text longer than `limit`, which is read up to there.
        """
        pieces: list[str] = []
        remaining = limit
        while True:
            stop = self.at + remaining + terminals.width
            safe, found = terminals.next(self.text, self.at, ended=self.ended, stop=stop)
            if safe - self.at > remaining:
                self.read_to(self.at + remaining)
                raise Malformed(f"expected a name of at most {limit} characters")
            remaining -= safe - self.at
            pieces.append(self.read_to(safe))
            if found is not None:
                self.read_to(self.at + len(found))
                return "".join(pieces), found
            if self.ended:
                return "".join(pieces), None
            yield

    def unread(self, text: str) -> None:
        """Put text that was just read back to the input, and remove it from the records `taken` and `tape`."""
        if len(text) > self.at:  # it arrived in several pieces, and the first ones are gone
            self.text = text + self.text[self.at :]
            self.offset += self.at - len(text)
            self.at = 0
        else:
            self.at -= len(text)
        for record in (self.taken, self.tape):
            if record is not None:
                kept = "".join(record)
                record[:] = [kept[: len(kept) - len(text)]]
