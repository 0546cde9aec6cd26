"""Text that is still arriving, and the questions a grammar asks about it.

A question that cannot be answered yet says `yield` and is asked again when more has come. Nothing is answered on half
a tag: what may be the beginning of one is held back, and no more than that.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Generator, Iterable
from functools import lru_cache
from typing import TypeAlias, TypeVar

__all__ = ["Malformed", "Reader", "Steps", "Terminals", "Truncated", "terminals"]

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""Runs until it needs more text, then yields; gives back a T."""

_space = re.compile(r"[ \t\r\n]*").match


class Malformed(Exception):  # control flow of the engine: what follows is not a call
    """The text does not follow the grammar from here on."""


class Foreign(Malformed):
    """It is a call, in another format."""


class Truncated(Malformed):
    """The text stops where the grammar goes on."""


class Terminals:
    """Literals to look for: the first one in a text, and the beginning of one at its end."""

    __slots__ = ("_longer", "_partial", "_search", "literals", "width")

    def __init__(self, literals: Iterable[str]) -> None:
        self.literals = tuple(sorted(set(literals), key=len, reverse=True))
        self._search = re.compile("|".join(map(re.escape, self.literals)) or r"(?!)").search
        self._partial = re.compile("|".join(_beginnings(literal) for literal in self.literals) or r"(?!)").search
        self.width = max(map(len, self.literals), default=1)
        self._longer = _longer(self.literals)

    def next(self, text: str, at: int, *, ended: bool, stop: int = sys.maxsize) -> tuple[int, str | None]:
        """How far the text is free of literals, and which one stands there: None where none does, or not surely yet."""
        found = self._search(text, at, stop)
        if ended:
            return (len(text), None) if found is None else (found.start(), found[0])
        if found is None:
            return self._held(text, at), None
        start = found.start()
        if start > len(text) - self.width:  # a longer one may have begun before it, or may begin with it
            held = self._held(text, at)
            if held < start:
                return held, None
            if any(other.startswith(text[start:]) for other in self._longer.get(found[0], ())):
                return start, None
        return start, found[0]

    def _held(self, text: str, at: int) -> int:
        """Where the suffix starts that may become a literal: the text before it is safe."""
        if len(text) - at >= self.width:
            at = len(text) - self.width + 1
        found = self._partial(text, at)
        return len(text) if found is None else found.start()


@lru_cache(512)
def terminals(*literals: str) -> Terminals:
    """Those of `literals` that are not empty, compiled once."""
    return Terminals(filter(None, literals))


def _longer(literals: Iterable[str]) -> dict[str, list[str]]:
    literals = list(literals)
    found = {one: [other for other in literals if other != one and other.startswith(one)] for one in literals}
    return {one: others for one, others in found.items() if others}


def _beginnings(literal: str) -> str:
    """A pattern for every proper prefix of `literal` at the end of a text."""
    pattern = ""
    for character in reversed(literal[1:-1]):
        pattern = f"(?:{re.escape(character)}{pattern})?"
    return rf"{re.escape(literal[0])}{pattern}\Z" if len(literal) > 1 else r"(?!)"


class Reader:
    """What has come and is not read yet. `ended` once nothing more will come, `finished` if the model stopped by itself.

    While `taken` is a list, what is read is also kept there: it goes out as text if it turns out to be no call. `tape` is the
    same for a call inside of reasoning, which may turn out to be a draft.
    """

    __slots__ = ("at", "ended", "finished", "offset", "stopped", "taken", "tape", "text")

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.offset = 0
        self.ended = False
        self.finished = True
        self.stopped = False
        self.taken: list[str] | None = None
        self.tape: list[str] | None = None

    def feed(self, chunk: str) -> None:
        self.offset += self.at
        self.text = self.text[self.at :] + chunk if self.at < len(self.text) else chunk
        self.at = 0

    @property
    def position(self) -> int:
        """Where the reader stands in all the text that ever came."""
        return self.offset + self.at

    def take_to(self, stop: int) -> str:
        """Reads up to `stop`."""
        piece = self.text[self.at : stop]
        if self.taken is not None and piece:
            self.taken.append(piece)
        if self.tape is not None:
            self.tape.append(piece)
        self.at = stop
        return piece

    def peek(self, count: int = 1) -> Steps[str]:
        """The next `count` characters, fewer only at the end; they are not read yet."""
        while len(self.text) - self.at < count and not self.ended:
            yield
        return self.text[self.at : self.at + count]

    def spaces(self) -> Steps[str]:
        """Reads white space, however much of it comes."""
        pieces = []
        while True:
            stop = _space(self.text, self.at).end()  # type: ignore[union-attr]  # the pattern matches everywhere
            pieces.append(self.take_to(stop))
            if stop < len(self.text) or self.ended:
                return "".join(pieces)
            yield

    def one_of(self, literals: tuple[str, ...]) -> Steps[str | None]:
        """Reads the one of `literals` that comes next; None, and nothing is read, where none does.

        At the end of the text the beginning of a literal is not one.
        """
        width = max(map(len, literals), default=0)
        while True:
            rest = self.text[self.at : self.at + width]
            found = max((literal for literal in literals if rest.startswith(literal)), key=len, default=None)
            more = not self.ended and any(len(one) > len(rest) and one.startswith(rest) for one in literals)
            if not more:
                if found is not None:
                    self.take_to(self.at + len(found))
                return found
            yield

    def expect(self, *literals: str) -> Steps[str]:
        """Reads one of `literals`, or the text is malformed."""
        found = yield from self.one_of(literals)
        if found is None:
            here = self.text[self.at : self.at + max(map(len, literals))]
            cut = self.ended and any(literal.startswith(here) for literal in literals)
            raise (Truncated if cut else Malformed)(f"expected {' or '.join(literals)}")
        return found

    def until(self, terminals: Terminals, sink: Callable[[str], object]) -> Steps[str | None]:
        """Passes on all that comes before the first terminal; reads and gives the terminal, None at the end."""
        while True:
            safe, found = terminals.next(self.text, self.at, ended=self.ended)
            if safe > self.at:
                sink(self.take_to(safe))
            if found is not None:
                self.take_to(self.at + len(found))
                return found
            if self.ended:
                return None
            yield

    def word(self, terminals: Terminals, limit: int = 256) -> Steps[tuple[str, str | None]]:
        """A short text and the terminal behind it: a name, a key, a header."""
        pieces: list[str] = []
        left = limit
        while True:
            stop = self.at + left + terminals.width
            safe, found = terminals.next(self.text, self.at, ended=self.ended, stop=stop)
            if safe - self.at > left:
                self.take_to(self.at + left)
                raise Malformed(f"more than {limit} characters where a name is expected")
            left -= safe - self.at
            pieces.append(self.take_to(safe))
            if found is not None:
                self.take_to(self.at + len(found))
                return "".join(pieces), found
            if self.ended:
                return "".join(pieces), None
            yield

    def unread(self, text: str) -> None:
        """Gives back what was just read."""
        if len(text) > self.at:  # it came in several pieces, and the first ones are gone
            self.text = text + self.text[self.at :]
            self.offset += self.at - len(text)
            self.at = 0
        else:
            self.at -= len(text)
        for record in (self.taken, self.tape):
            if record is not None:
                kept = "".join(record)
                record[:] = [kept[: len(kept) - len(text)]]
