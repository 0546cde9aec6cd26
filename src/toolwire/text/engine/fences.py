"""Whether text is quoted where it stands: in a code block, or in code within a line, as Markdown has them.

Only behind words: a model that puts its whole answer into a code block does not quote, it means it.
"""

from __future__ import annotations

import re

__all__ = ["Fences"]

_FENCE = re.compile(r"\s*(`{3,}|~{3,})").match
_LONGEST = 200  # characters of a line that are looked at


class Fences:
    """`feed` it all text; `quotes` tells of the place behind it, and `hold` keeps it so: code within a line may go on in the next."""

    __slots__ = ("_behind_words", "_held", "_line", "_mark", "_ticks", "_words")

    def __init__(self) -> None:
        self._line = ""
        self._ticks = 0  # of this line
        self._held = False
        self._mark = ""  # what opened the block that is open
        self._words = False  # before this line, outside of blocks
        self._behind_words = False  # the open block is

    def feed(self, piece: str) -> None:
        first, *others = piece.split("\n")
        self._grow(first)
        for line in others:
            self.end_line()
            self._grow(line)

    def _grow(self, piece: str) -> None:
        self._ticks += piece.count("`")
        if len(self._line) < _LONGEST:
            self._line += piece[:_LONGEST]

    def end_line(self) -> None:
        fence, line = _FENCE(self._line), self._line.strip()
        if self._mark:
            if fence is not None and line.startswith(self._mark) and not line.strip(self._mark[0]):
                self._mark, self._words = "", True
        elif fence is not None and "`" not in line.lstrip("`"):
            self._mark, self._behind_words = fence[1], self._words
        elif line:
            self._words = True
        self._held = self._held and bool(line) and self._ticks % 2 == 1
        self._ticks = 1 if self._held else 0
        self._line = ""

    def hold(self) -> None:
        self._held = not self._mark

    @property
    def quotes(self) -> bool:
        if self._mark:
            return self._behind_words
        if _FENCE(self._line) is not None:
            return self._words
        before = self._line.partition("`")[0].strip()
        return self._ticks % 2 == 1 and (self._words or bool(before))
