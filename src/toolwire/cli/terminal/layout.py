"""The layout of tables and paragraphs for a given width. Nothing here reads the terminal, writes to it or knows colours.

A table whose columns fit keeps their natural widths. Otherwise it becomes narrower, by the first of these steps that is enough:

1. Columns of prose shrink, the widest first, to `_PROSE` characters. Their cells wrap between words.
2. The columns of `hide` are left out, the first one first. The caller prints their names.
3. Prose shrinks further, to `_MIN_PROSE` characters or its longest word, if no name has to wrap then.
4. Names wrap as well, after their separators (`/`, `.`, `_`, `-` …); then prose shrinks to its longest word.
5. Every row becomes a block of lines, each with a header and a cell, as in PostgreSQL's expanded output.

So no cell loses text. A word is broken only if it is wider than the terminal, which would break it anyway.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

GAP = "  "  # between columns
_PROSE = 24  # characters, about four words
_MIN_PROSE = 12  # characters, about two words; narrower prose is harder to read than names that wrap
_MIN_VALUE = 20  # characters beside a label; with fewer, the label has a line of its own
# A number and its unit are one word: "0.48" at the end of a line means nothing.
_WORDS = re.compile(r"(?:[✓~!⚠✗]+\d* )?[^ ]+(?:(?<=\d) (?:µs|ms|s|min|h|%|[KMG]?i?B|bytes?)(?![^ .,;:)]))?")
# A separator ends a piece. A dot, comma or colon before a digit does not: numbers, versions and ports stay whole.
_PIECES = re.compile(r"(?:[^/._:,=&?|→-]|[.,:](?=\d))*+(?:[/_=&?|→-]|[.,:](?!\d))++|(?:[^/._:,=&?|→-]|[.,:](?=\d))++")
_NUMBER = re.compile(r"[-+~]?\d[\d.,]* ?(?:%|µs|ms|s|k|M|[KMG]?B)?")
_STREAMED = re.compile(r"\n|[ \t]+|\x1b\[[\d;]*m|\x1b|[^ \t\n\x1b]+")
_SGR = re.compile(r"\x1b\[[\d;]*m")
_QUOTED = re.compile(r"""["](?:[^"\\]|\\.)*+["]|'[^']*'|\\.""")
_OPTION = re.compile(r"(?<= )--?[\w-]+ [^ &|;<>-][^ ]*")  # with a word that may be its value
_MOST_HELD = 20  # characters of a word that may be split: arguments are shown while the model writes them
_MARKS_PER_CELL = 8  # combining marks and colours of a word that is held back: letters have at most three or four
_LIST_MARK = re.compile(r"•|│|\d{1,9}[.)]")
_NO_NUMBER = ("", "-")  # cells without a value in a column of numbers


class TableLayout(NamedTuple):
    """A table for one width."""

    columns: list[int]
    """The columns that are shown. None of them: every row is a block."""
    rows: list[list[list[str]]]
    """Per row, the headers included, its lines; per line the pieces of its cells, padded to the columns' widths.

    The last column is not padded, unless it has numbers: in a file, one long cell would lengthen every row.
    """
    widths: list[int]
    hidden: list[str]
    """The headers of the columns that are left out."""


def text_width(text: str) -> int:
    """Return the number of terminal cells: two for a wide character, none for a combining or invisible one."""
    if text.isascii():
        return len(text)
    return sum(
        0
        if unicodedata.category(char) in ("Mn", "Me", "Cf")
        else 2
        if unicodedata.east_asian_width(char) in "WF"
        else 1
        for char in text
    )


def wrap_text(text: str, width: int, *, splits_words: bool = True) -> list[str]:
    """Wrap a line between words; wrap a word that is too wide after separators, and anywhere if that is not enough.

    `splits_words=False`: such a word stays whole, to be copied, and the terminal breaks it. The cost is linear.

    >>> wrap_text("see anthropic/claude-sonnet-4-5 for it", 16)
    ['see', 'anthropic/', 'claude-sonnet-4-', '5 for it']
    """
    if 2 * len(text) <= width or text_width(text) <= width:  # a character has at most two cells
        return [text]
    lines: list[str] = []
    pieces: list[str] = []  # of the current line
    used = end = 0
    for word in _WORDS.finditer(text):
        gap = word.start() - end
        size, end = text_width(word[0]), word.end()
        if used + gap + size <= width:
            pieces += [" " * gap, word[0]]
            used += gap + size
            continue
        if pieces:
            lines.append("".join(pieces))
        *full, last = _split_word(word[0], width) if splits_words and size > width else [word[0]]
        lines += full
        pieces, used = [last], text_width(last)
    return [*lines, "".join(pieces)]


def wrap_command(text: str, width: int) -> list[str]:
    """Wrap a command line at spaces, with continuation marks, so that a shell reads the lines as one.

    Quotations stay whole, and an option with its value, unless they are too wide.
    """
    quoted = _QUOTED.sub(lambda part: part[0].replace(" ", "\0"), text)
    quoted = _OPTION.sub(
        lambda part: part[0].replace(" ", "\0") if text_width(part[0]) <= width - 2 else part[0], quoted
    )
    *begun, last = wrap_text(quoted, width - 2, splits_words=False) if text_width(text) > width else [quoted]
    return [part.replace("\0", " ") for part in (*(f"{part} \\" for part in begun), last)]


def _split_word(word: str, width: int) -> list[str]:
    """Split a word into lines of at most `width`, after separators where possible."""
    lines: list[str] = []
    line, used = "", 0
    for piece in _PIECES.findall(word):
        size = text_width(piece)
        if used + size > width:
            lines += [line] if line else []
            *full, piece = _cut(piece, width) if size > width else [piece]
            lines += full
            line, used = piece, text_width(piece)
        else:
            line, used = line + piece, used + size
    return [*lines, line]


def _cut(text: str, width: int) -> list[str]:
    """Cut text anywhere into lines of at most `width`, each with at least one character."""
    lines: list[str] = []
    start = used = 0
    for place, char in enumerate(text):
        size = text_width(char)
        if size and used + size > width and place > start:
            lines.append(text[start:place])
            start, used = place, 0
        used += size
    return [*lines, text[start:]]


class StreamWrap:
    r"""Wrap text that arrives in pieces, with whole SGR escape sequences: `feed` returns what can be written.

    Lines break at spaces, and with `splits_words` long words also after separators; without it, a word that is wider than
    the terminal stays whole. The later lines of an indented line or a list item begin below its text. A word is held back until it
    ends or is wider than the terminal, so memory is bounded.

    >>> wrap = StreamWrap(12)
    >>> wrap.feed("• an umb") + wrap.feed("rella, a hat") + wrap.flush()
    '• an\n  umbrella,\n  a hat'
    """

    def __init__(self, width: int, hang: int = 0, *, splits_words: bool = False) -> None:
        """`hang`: spaces before each line but the first."""
        self._width = width
        self._hang = hang
        self._splits_words = splits_words
        self._most = min(width, _MOST_HELD) if splits_words else width
        self._word = ""
        self._size = 0  # of the word
        self._start()

    def feed(self, text: str) -> str:
        """Return the text that can be written: all but its last word."""
        out: list[str] = []
        for piece in _STREAMED.findall(text):
            if piece[0] in " \t\n":
                out.append(self.flush())
                self._gap += piece
                if piece == "\n":
                    out.append(piece)
                    self._start()
            else:
                self._word += piece
                self._size += 0 if piece[0] == "\x1b" else text_width(piece)
                if self._must_write():
                    out.append(self._write_wide())
        return "".join(out)

    def _must_write(self) -> bool:
        """Return whether the word is too long to be held back, or its beginning is written."""
        return self._size > self._most or self._is_whole or len(self._word) > _MARKS_PER_CELL * self._most

    def flush(self) -> str:
        """End the word that is held back, and return it."""
        word, self._word = self._word, ""
        out = self._place(word, self._size) if word else ""
        self._size, self._is_whole = 0, False
        return out

    def restart(self) -> str:
        """Return the rest of a line that something else ends; the next text begins a line."""
        out = self.flush()
        self._start()
        return out

    def _start(self) -> None:
        self._gap = ""  # the spaces before the word
        self._size = 0
        self._is_whole = False  # the beginning of the word is written, and the rest follows it
        self._is_first = True  # no word of the line is written
        self._column = 0
        self._indent = self._hang

    def _write_wide(self) -> str:
        """Write a word that is not held back any longer, as far as it is known."""
        out = ""
        if self._splits_words:
            *full, self._word = _PIECES.findall(self._word)
            self._size = text_width(self._word)
            for piece in full:
                out += self._place(piece, text_width(piece))
                self._is_whole = False
            if not self._must_write():
                return out
        if self._is_whole:
            out, self._column = out + self._word, self._column + self._size
        else:
            out, self._is_whole = out + self._place(self._word, self._size), True
        self._word, self._size = "", 0
        return out

    def _place(self, text: str, size: int) -> str:
        """Return a word after its spaces, or on a new line if it does not fit."""
        gap, self._gap = (" " * self._column + self._gap).expandtabs()[self._column :], ""
        if self._is_first:
            self._is_first = False
            mark = size + 1 if _LIST_MARK.fullmatch(_SGR.sub("", text)) else 0
            self._indent = min(self._indent + len(gap) + mark, self._width // 2)
        elif self._column + len(gap) + size > self._width and self._column > self._indent:
            self._column = self._indent + size
            return "\n" + " " * self._indent + text
        self._column += len(gap) + size
        return gap + text


class _Widths(NamedTuple):
    """The width of a column: its natural one, and the bounds of the steps that make it smaller."""

    natural: int
    wrapped: int  # prose, between words, to a width that is easy to read
    tight: int  # the same, to the least width
    split: int  # names, after separators
    least: int  # prose to its longest word


def lay_out(rows: Sequence[Sequence[str]], headers: Sequence[str], width: int, hide: Iterable[str] = ()) -> TableLayout:
    """Lay out a table. `hide` names columns that may be left out, the least important one first."""
    every = [headers, *rows] if headers else rows
    measured = dict(enumerate(map(_measure, zip(*every, strict=True))))
    hidden: list[str] = []
    for number in [headers.index(name) for name in hide]:
        if _total(column.wrapped for column in measured.values()) > width:
            del measured[number]
            hidden.append(headers[number])
    if _total(column.least for column in measured.values()) > width:
        return TableLayout([], [_block(row, headers, width) for row in rows], [], [])
    widths, wrapped, tight, split, least = map(list, zip(*measured.values(), strict=True))
    for bounds in (wrapped, tight) if _total(tight) <= width else (wrapped, split, least):
        _shrink(widths, bounds, width)
    is_right = [_has_numbers([row[column] for row in rows]) for column in measured]
    lines = [_row_lines([row[column] for column in measured], widths, is_right) for row in every]
    return TableLayout(list(measured), lines, widths, hidden)


def _measure(cells: Sequence[str]) -> _Widths:
    """Measure a column. It is prose if a cell has at least three words."""
    natural = max(map(text_width, cells))
    words = [word for cell in cells for word in _WORDS.findall(cell)]
    least = max((text_width(piece) for word in words for piece in _PIECES.findall(word)), default=0)
    if any(cell.count(" ") >= 2 for cell in cells):
        longest = max(map(text_width, words), default=0)
        easy, tight = (max(min(natural, width), longest) for width in (_PROSE, _MIN_PROSE))
        return _Widths(natural, easy, tight, easy, least)
    return _Widths(natural, natural, natural, least, least)


def _has_numbers(cells: Sequence[str]) -> bool:
    """Return whether all cells are numbers or have no value."""
    return any(map(_NUMBER.fullmatch, cells)) and all(_NUMBER.fullmatch(cell) or cell in _NO_NUMBER for cell in cells)


def _row_lines(row: Sequence[str], widths: Sequence[int], is_right: Sequence[bool]) -> list[list[str]]:
    """Wrap the cells of a row, and pad every piece."""
    wrapped = [wrap_text(cell, width) for cell, width in zip(row, widths, strict=True)]
    padded = [*widths[:-1], widths[-1] * is_right[-1]]
    lines = []
    for number in range(max(map(len, wrapped))):
        pieces = [cell[number] if number < len(cell) else "" for cell in wrapped]
        spaces = [" " * (width - text_width(piece)) for piece, width in zip(pieces, padded, strict=True)]
        aligned = zip(pieces, spaces, is_right, strict=True)
        lines.append([space + piece if right else piece + space for piece, space, right in aligned])
    return lines


def _block(row: Sequence[str], headers: Sequence[str], width: int) -> list[list[str]]:
    """Return the lines of a row that does not fit: a header and a piece of its cell per line, then an empty line.

    The cell of a first column without a header is the title of the row.
    """
    if headers and not headers[0]:
        rest = _block(row[1:], headers[1:], width - len(GAP)) if row[1:] else []
        return [
            *([piece] for piece in wrap_text(row[0], width)),
            *(["", *line] if any(line) else line for line in rest),
        ]
    label = max(map(text_width, headers), default=0)
    is_beside = width - label - len(GAP) >= _MIN_VALUE
    lines = []
    for name, cell in zip(headers or [""] * len(row), row, strict=True):
        pieces = wrap_text(cell, max(width - len(GAP) - label * is_beside, 1))
        if is_beside:
            names = [name + " " * (label - text_width(name)), *[" " * label] * (len(pieces) - 1)]
            lines += [list(pair) for pair in zip(names, pieces, strict=True)]
        else:
            lines += [*([part] for part in wrap_text(name, width)), *(["", piece] for piece in pieces)]
    return [*lines, [""]]


def _shrink(widths: list[int], bounds: Sequence[int], width: int) -> None:
    """Make the widest columns smaller, one character at a time, until the table fits or all have reached their bound."""
    widths[:] = [max(min(size, width), min(size, bound)) for size, bound in zip(widths, bounds, strict=True)]
    while _total(widths) > width:
        sizes = [(size, number) for number, size in enumerate(widths) if size > bounds[number]]
        if not sizes:
            return
        widths[max(sizes)[1]] -= 1


def _total(widths: Iterable[int]) -> int:
    """Return the width of a table with columns of these widths."""
    sizes = list(widths)
    return sum(sizes) + len(GAP) * (len(sizes) - 1)
