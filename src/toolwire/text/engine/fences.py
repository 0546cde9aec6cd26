"""Detect whether a position in Markdown text is quoted: inside a code block or inline code.

This applies only after other text: a model that puts its whole answer into a code block is not quoting.
"""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["Fences", "code_block_openers"]

_FENCE = re.compile(r"\s*(`{3,}|~{3,})").match
_LANGUAGES = ("json", "python", "xml", "tool_call", "tool_code", "")
_OPENERS = tuple(f"```{language}{line}" for language in _LANGUAGES for line in ("\n", "\r\n"))
_MAX_LINE = 200  # maximum number of examined characters per line


@lru_cache(256)
def code_block_openers(openers: tuple[str, ...]) -> tuple[str, ...]:
    """Return the opening fences of a code block around calls, except those that are `openers` of calls themselves."""
    return tuple(one for one in _OPENERS if one not in openers)


class Fences:
    """Track code in the text given to `feed`: `in_code` is the state after it.

    `hold` keeps that state, because inline code may continue on the next line.
    """

    __slots__ = ("_after_text", "_has_text", "_held", "_line", "_mark", "_ticks")

    def __init__(self) -> None:
        self._line = ""  # the beginning of this line, without leading white space
        self._ticks = 0  # backticks in this line
        self._held = False  # inline code that contains a quoted tag continues on the next line
        self._mark = ""  # the opening fence of the current block
        self._has_text = False  # there is text before this line, outside blocks
        self._after_text = False  # the open block follows text

    def feed(self, piece: str) -> None:
        stop = piece.find("\n")
        if stop < 0:
            self._append(piece)
            return
        marks = _Marks(piece)
        at = 0
        while stop >= 0:
            self._append(piece[at:stop])
            self.end_line()
            at = self._skip_plain_lines(piece, stop + 1, marks)
            stop = piece.find("\n", at)
        self._append(piece[at:])

    def _skip_plain_lines(self, piece: str, at: int, marks: _Marks) -> int:
        """Skip the complete lines before the next mark: their only effect is that there is text."""
        stop = -1 if self._held else piece.rfind("\n", at, marks.next(at))
        if stop < 0:
            return at
        if not (self._mark or self._has_text or piece[at : stop + 1].isspace()):
            self._has_text = True
        return stop + 1

    def _append(self, piece: str) -> None:
        self._ticks += piece.count("`")
        if len(self._line) < _MAX_LINE:
            self._line += (piece if self._line else piece.lstrip())[: _MAX_LINE - len(self._line)]

    def end_line(self) -> None:
        """Update the state at the end of a line: a fence opens or closes a block, and inline code usually ends."""
        fence, line = _FENCE(self._line), self._line.strip()
        if self._mark:
            if fence is not None and line.startswith(self._mark) and not line.strip(self._mark[0]):
                self._mark, self._has_text = "", True
        elif fence is not None and "`" not in line.lstrip("`"):
            self._mark, self._after_text = fence[1], self._has_text
        elif line:
            self._has_text = True
        self._held = self._held and bool(line) and self._ticks % 2 == 1
        self._ticks = 1 if self._held else 0
        self._line = ""

    def hold(self) -> None:
        self._held = not self._mark

    @property
    def in_code(self) -> bool:
        """Return whether the current position is inside a code block that follows text, or inside inline code."""
        if self._mark:
            return self._after_text
        if _FENCE(self._line) is not None:
            return self._has_text
        before = self._line.partition("`")[0].strip()
        return self._ticks % 2 == 1 and (self._has_text or bool(before))


class _Marks:
    """The positions of backticks and tildes in a piece."""

    __slots__ = ("_backtick", "_piece", "_tildes")

    def __init__(self, piece: str) -> None:
        self._piece = piece
        self._backtick = self._tildes = -1

    def next(self, at: int) -> int:
        """Return the position of the first mark from `at` on, or the end. `at` never decreases."""
        if self._backtick < at:
            self._backtick = self._find("`", at)
        if self._tildes < at:
            self._tildes = self._find("~~~", at)
        return min(self._backtick, self._tildes)

    def _find(self, mark: str, at: int) -> int:
        found = self._piece.find(mark, at)
        return len(self._piece) if found < 0 else found
