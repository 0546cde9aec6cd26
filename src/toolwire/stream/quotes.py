r"""Rewrite strings as models write them into JSON strings.

Lossless repairs: raw control characters, other quotes around the string, and a backslash before a letter that has no
escape sequence (`\d`), which must be literal. Repairs that guess, and are tried only if guessing is allowed: a string
in which some backslashes cannot be escapes and others can (`C:\Users\new`), escapes of other languages (`\'`, `\x41`),
and unescaped quotes.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from .attempt import RepairAttempt, ambiguous_error, invalid_error, truncated_error
from .notation import QUOTES

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_PLAIN = {
    '"': re.compile(r'[^"\\\x00-\x1f]*+'),
    "'": re.compile(r"""[^'"\\\x00-\x1f]*+"""),
    "\u201d": re.compile(r'[^\u201c\u201d"\\\x00-\x1f]*+'),
    **{
        closer: re.compile(rf'[^{opener}{closer}"\\\x00-\x1f]*+')
        for opener, closer in QUOTES.items()
        if closer not in "\"'\u201d"
    },
}
_OVER_ESCAPED_QUOTE = re.compile(r"""(\\++)(["'])""")
_OVER_ESCAPED_STOP = {
    '"': re.compile(r'\\++"?|["\x00-\x1f]'),
    "'": re.compile(r"""\\++'?|["'\x00-\x1f]"""),
}
# Two strings with a separator between them: no reading may treat that as one string.
# The length of a key without quotes is bounded; otherwise every quote before a comma would start a scan of the rest.
_STRUCTURE = re.compile(r"""["'“”]\s*+(?:[:}\]]|,(?:[\s,]*+|[^"'“{\[:]{0,200}+:\s*+)["'“{\[])|[{\[]\s*+["'“]""")
_ESCAPED_APOSTROPHE = re.compile(r"\w\\'\w")
_APOSTROPHE = re.compile(r"\w['\u2019]\w")
_OPENING_QUOTE = re.compile(r"[^\w)\]}]['\"\u201c\u2018][^\s'\"]")
_CLOSING_QUOTE = re.compile(r"[^\s'\"]['\"\u201d\u2019](?!\w)")
_HEX = re.compile(r"[0-9a-fA-F]{0,4}")
_HEX_CHARACTER = re.compile(r"x[0-9a-fA-F]{2}|U000[0-9a-fA-F]{5}|U0010[0-9a-fA-F]{4}")
_BACKSLASH = "\\\\"  # as JSON writes it
_BRACKET = re.compile(r"[\[\]{}()]")
_CLOSING = {"[": "]", "{": "}", "(": ")"}
_LETTER_ESCAPES = frozenset("bfnrtu/")
_BACKSLASH_HINT = "write two backslashes for a literal backslash"


def read_over_escaped(text: str, at: int, end: int, attempt: RepairAttempt) -> tuple[str, int]:
    r"""Read a string between `\"` and `\"`; return its inside as JSON, and the position after it.

    The quotes of over-escaped text follow 1, 3 or 7 backslashes. Other backslashes inside are refused if they depend on
    whether the whole text was escaped once more, which line feeds written as `\n` prove, or only its quotes.

    Raise BrokenJSON if it does not begin with such a quote, or does not end.
    """
    opener = _OVER_ESCAPED_QUOTE.match(text, at, end)
    if opener is None or len(opener[1]) not in (1, 3, 7):
        raise invalid_error("a backslash outside a string", at)
    quote, pieces, at = opener.group(), list[str](), opener.end()
    inner_quote = "\\" * len(quote) + quote
    stops = _OVER_ESCAPED_STOP[opener[2]]
    while (stop := stops.search(text, at, end)) is not None:
        pieces.append(text[at : stop.start()])
        mark, at = stop.group(), stop.end()
        if mark == quote:
            return "".join(pieces), at
        if mark < " ":
            pieces.append(_SHORT.get(mark) or f"\\u{ord(mark):04x}")
        elif mark == inner_quote:
            pieces.append('\\"' if quote[-1] == '"' else "'")
        elif mark == '"' != quote[-1]:
            pieces.append('\\"')
        else:
            pieces.append(_read_over_escape(mark, text[at : at + 1], stop.start(), attempt))
    raise truncated_error("in a string", end)


def _read_over_escape(backslashes: str, follows: str, at: int, attempt: RepairAttempt) -> str:
    r"""Return the JSON for backslashes before `follows` in a string between `\"` and `\"`.

    Raise BrokenJSON if it is ambiguous.
    """
    is_letter = follows in _LETTER_ESCAPES
    if backslashes == "\\" and is_letter:
        return backslashes
    if backslashes == _BACKSLASH and (attempt.escaped_space or not is_letter):
        return "\\" if is_letter else _BACKSLASH
    raise ambiguous_error("backslashes in a string with escaped quotes", at, _BACKSLASH_HINT)


def _is_code(text: str) -> bool:
    """Return True if all structure of a text is inside brackets that it closes, as in `x = ["5"]`."""
    pending, outside, at = list[str](), list[str](), 0
    for found in _BRACKET.finditer(text):
        bracket = found.group()
        if not pending:
            outside.append(text[at : found.start()])
        if bracket in _CLOSING:
            pending.append(_CLOSING[bracket])
        elif not pending or pending.pop() != bracket:
            return False
        at = found.end()
    return not pending and _STRUCTURE.search("".join([*outside, text[at:]])) is None


class StringReader:
    """Read one string, from after its opening quote to its closing one. `may_end(at)`: whether structure can follow."""

    __slots__ = (
        "_apostrophes",
        "_closer",
        "_damaged",
        "_end",
        "_inner_quotes",
        "_literal",
        "_lone",
        "_may_end",
        "_pieces",
        "_reading",
        "_start",
        "_text",
    )

    def __init__(
        self, text: str, end: int, closer: str, attempt: RepairAttempt, may_end: Callable[[int], bool]
    ) -> None:
        """Create a reader of `text` up to `end`; steps and choices go to `attempt`."""
        self._text = text
        self._end = end
        self._closer = closer  # the expected closing quote
        self._reading = attempt
        self._may_end = may_end
        self._start = 0
        self._pieces: list[str] = []
        self._literal: list[tuple[int, str]] = []  # for each escape: its piece, and the literal text
        self._apostrophes: list[int] = []  # pieces that were `\'` between letters
        self._lone = False  # found a backslash that cannot be an escape
        self._damaged = False  # found a quote inside
        self._inner_quotes: list[int] = []  # positions of inner quotes, without apostrophes

    def read(self, at: int) -> tuple[str, int]:
        """Return the inside as JSON, and the position after the closing quote; raise BrokenJSON if it does not end."""
        self._start, plain = at, _PLAIN[self._closer]
        while True:
            stop = plain.match(self._text, at, self._end).end()  # type: ignore[union-attr]  # matches everywhere
            self._pieces.append(self._text[at:stop])
            if stop == self._end:
                self._reading.pieces += len(self._pieces)
                raise truncated_error("in a string", stop)
            char = self._text[stop]
            if char == self._closer and self._closes(stop):
                self._settle()
                self._reading.pieces += len(self._pieces)
                return "".join(self._pieces), stop + 1
            at = self._read_escape(stop) if char == "\\" else self._read_unusual(char, stop)

    def _closes(self, at: int) -> bool:
        """Return whether the quote at `at` ends the string. It is in doubt only if inner quotes are guessed.

        Then a choice is made. Raise BrokenJSON if the inner quotes may be the ends of other strings. A reading with
        code or odd quotations is marked as doubtful.
        """
        if self._reading.guess_kind != "quotes":
            return True
        if not self._may_end(at + 1):
            return False
        if not self._damaged:
            return True
        doubt = ambiguous_error("a quote may end the string or belong to it", at, "escape quotes inside strings")
        if self._reading.choose(2, "inner_quotes", doubt):
            return False
        has_structure = _STRUCTURE.search(self._text, self._start, at) is not None
        if len(self._inner_quotes) % 2 or (has_structure and not _is_code(self._text[self._start : at])):
            raise invalid_error(
                "quotes inside a string may be the ends of other strings", at, "escape quotes inside strings"
            )
        if has_structure:
            self._reading.add_code_string(doubt)
        elif not self._are_quotations(at):
            self._reading.doubtful = True
        return True

    def _are_quotations(self, end: int) -> bool:
        """Return True if the inner quotes enclose a quotation, as in `say "hi" now`.

        They do not in expressions of programming languages: `"a" + "b"`, `"a" if x else "b"`, three quotes in a row.
        Quotes around the whole text may be doubled by mistake.
        """
        positions = self._inner_quotes
        if positions[:1] == [self._start] and positions[-1] == end - 1:
            return False
        return all(
            (_CLOSING_QUOTE if index % 2 else _OPENING_QUOTE).match(self._text, max(at - 1, 0), self._end) is not None
            for index, at in enumerate(positions)
        )

    def _read_unusual(self, char: str, at: int) -> int:
        """Escape a control character or a quote inside the string; return the position after it.

        Raise BrokenJSON for an inner quote if quotes are not guessed.
        """
        if char < " ":
            self._reading.record_step("control_character")
            self._pieces.append(_SHORT.get(char) or f"\\u{ord(char):04x}")
            return at + 1
        if char == '"' != self._closer:
            self._pieces.append('\\"')
            return at + 1
        if self._reading.guess_kind != "quotes":
            raise ambiguous_error("unescaped quotes inside quotes", at, "escape quotes inside strings")
        self._reading.record_step("inner_quotes")
        self._damaged = True
        if _APOSTROPHE.match(self._text, at - 1) is None:
            self._inner_quotes.append(at)
        self._pieces.append('\\"' if char == '"' else char)
        return at + 1

    def _read_escape(self, at: int) -> int:
        """Read an escape sequence, or a backslash that is literal; return the position after it.

        Raise BrokenJSON if the text ends in it.
        """
        if at + 1 == self._end:
            raise truncated_error("in an escape", at)
        follows = self._text[at + 1]
        if follows == '"':
            self._pieces.append('\\"')
            return at + 2
        if follows == self._closer:
            self._pieces.append(follows)
            return at + 2
        if follows in "\\/bfnrt":
            return self._legal(at, 2)
        if follows == "u":
            return self._read_unicode(at)
        return self._read_foreign_escape(at) or self._keep_backslash(at)

    def _legal(self, at: int, length: int) -> int:
        """Copy a valid escape, and record its literal reading, which `_settle` may choose."""
        escape = self._text[at : at + length]
        self._literal.append((len(self._pieces), _BACKSLASH + escape[1:].replace("\\", _BACKSLASH)))
        self._pieces.append(escape)
        return at + length

    def _read_unicode(self, at: int) -> int:
        r"""Read a four-digit `\u` escape; `\u` without digits keeps its backslash, fewer digits raise BrokenJSON."""
        stop = _HEX.match(self._text, at + 2, self._end).end()  # type: ignore[union-attr]  # matches everywhere
        if stop == at + 6:
            return self._legal(at, 6)
        if stop == self._end:
            raise truncated_error("in an escape", at)
        if stop > at + 2 or self._text[stop] == "{":
            raise invalid_error("a \\u escape lacks its four digits", at, _BACKSLASH_HINT)
        return self._keep_backslash(at)

    def _read_foreign_escape(self, at: int) -> int:
        """Read an escape of another language and return the position after it, or 0 if there is none.

        Except for an apostrophe between letters, choose between the escape and a literal backslash.
        """
        hexadecimal = _HEX_CHARACTER.match(self._text, at + 1, self._end)
        follows = self._text[at + 1]
        if _ESCAPED_APOSTROPHE.match(self._text, at - 1, self._end):
            self._apostrophes.append(len(self._pieces))
            self._pieces.append("'")
            return at + 2
        if hexadecimal is None and follows not in "'\n":
            return 0
        doubt = ambiguous_error(f"\\{'n' if follows == chr(10) else follows} is not a JSON escape", at, _BACKSLASH_HINT)
        if self._reading.choose(2, "chosen_escape", doubt) == 0:
            return self._keep_backslash(at)
        if hexadecimal is not None:
            code = int(hexadecimal.group()[1:], 16)
            self._pieces.append(f"\\u{code:04x}" if code < 0x10000 else chr(code))
            return hexadecimal.end()
        self._pieces.append("" if follows == "\n" else follows)
        return at + 2

    def _keep_backslash(self, at: int) -> int:
        self._reading.record_step("lone_backslash")
        self._lone = True
        self._pieces.append(_BACKSLASH)
        return at + 1

    def _settle(self) -> None:
        r"""Choose, if some backslashes must be literal, whether the valid escapes are literal too (`C:\Users\new`)."""
        if self._apostrophes:
            self._settle_apostrophes()
        if not self._lone or not self._literal:
            return
        doubt = ambiguous_error("some backslashes cannot be escapes, others may be", self._start, _BACKSLASH_HINT)
        if self._reading.choose(2, "chosen_escape", doubt):
            for index, piece in self._literal:
                self._pieces[index] = piece

    def _settle_apostrophes(self) -> None:
        r"""Accept `Don\'t`, as JavaScript and Python escape it, unless the text may be code that contains the backslash.

        Other quotes (`print('it\'s')`) and backslashes (`C:\dir\'s`) are signs of code.
        """
        if not self._lone and sum("'" in piece for piece in self._pieces) == len(self._apostrophes):
            self._reading.record_step("escaped_apostrophe")
            return
        doubt = ambiguous_error("\\' is not a JSON escape", self._start, _BACKSLASH_HINT)
        if self._reading.choose(2, "chosen_escape", doubt) == 0:
            for index in self._apostrophes:
                self._pieces[index] = f"{_BACKSLASH}'"
