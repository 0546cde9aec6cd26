"""Rewrite broken JSON as JSON: one pass, without recursion, without inventing data.

Valid text is copied, text with one meaning is rewritten, and the strict parser checks the result (duplicate keys,
numbers out of range, half characters). Open containers are closed only after a complete value: after `{`, `[`, a comma,
a key or a colon more was to follow, and a number, a bare word or a string at the end of the text may be truncated.

The state is the stack of open brackets and whether the last one was just opened (`_fresh`). Each round of `rewrite`
reads a closing bracket, or a comma and the next member or item; a value that is a container is only pushed. So the
depth of a text costs memory of the stack, never a Python frame.

These rules hold:

- The output is always the beginning of a JSON document. `pointer_at` reads it to locate an error.
- Every deviation is recorded as a step, and a deviation with several meanings is a choice of the attempt. Without
  permission to guess, it is an error. There is no backtracking: another reading is another pass, with other choices
  (attempt.py), so the cost of a repair is the number of readings times the length of the text.
- Runs of valid members are copied by one regular expression (`_SOUND`), because most of a broken text is valid. Under
  the assumption that inner quotes are not escaped, nothing is copied: a valid string may end too early.
"""

from __future__ import annotations

import re

from ..ir.errors import BrokenJSON
from .attempt import LexicalStep, RepairAttempt, ambiguous_error, invalid_error, truncated_error
from .notation import (
    CLOSERS,
    COLON,
    COMMA_RUN,
    COMMAS,
    JSON_NUMBER,
    OPENERS,
    OUTPUT_CLOSERS,
    QUOTES,
    VALUE_ENDS,
    colon_step,
    comma_steps,
    normalise_number,
    opener_step,
    quote_step,
    zero_readings,
)
from .quotes import StringReader, read_over_escaped
from .strict import pointer_at

DEPTH = 200  # as in strict.py, whose parser reads the result

_SPACE = re.compile(r"[ \t\r\n]*+")
_ESCAPED_SPACE = re.compile(r"(?:\\[nrt][ \t\r\n]*+)++")
_HASH_COMMENT = re.compile(r"#(?=[\s#])")  # a space must follow, because #fff is a colour
_UNUSUAL_SPACE = re.compile(r"[\s\ufeff\u200b\u2060]")
_STRING = r'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+"'
_SOUND_STRING = re.compile(_STRING)
# Many valid members or items at once, each followed by a character that shows that it is complete.
_GAP = r"[ \t\r\n]*+"
_ITEM = rf"(?:{_STRING}|(?:-(?!0[^.eE]))?+(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+|true|false|null)(?={_GAP}[,}}\]])"
_MEMBER = rf"{_STRING}{_GAP}:{_GAP}{_ITEM}"
_SOUND = {
    "{": re.compile(rf"{_MEMBER}(?:{_GAP},{_GAP}{_MEMBER})*+"),
    "[": re.compile(rf"{_ITEM}(?:{_GAP},{_GAP}{_ITEM})*+"),
}
_WORD = re.compile(r"[\w.+-]++")
_WORDS = re.compile(rf"[\w.+-]++(?: [\w.+-]++)*+(?=[ \t\r\n]*+[{VALUE_ENDS}])")
_NAME = re.compile(r"[A-Za-z_$][\w$-]*+")
# `10 500`, `3 -4`, three quotes in a row, `"x = ["5"]"`: no comma is missing there
_ONE_VALUE = re.compile(r"\d\s(?:-|\d{3}(?!\d))|\"{3}|'{3}|.[\"'][\w-]", re.DOTALL)
_ZEROS = re.compile(r"(-?)0([0-9]++)")
_LITERALS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
_NOT_TEXT = frozenset("true false null none nan inf infinity +infinity -infinity +inf -inf undefined nil".split())
_OMITTED_VALUES = re.compile(
    r"\.\.|…|\b(?:rest|remain\w*|omit\w*|elid\w*|truncat\w*|etc|others?|more|so on|same|unchanged|existing|todo|tbd|fill|add"
    r"|placeholder|continue\w*|similar\w*|repeat\w*|here)\b",
    re.IGNORECASE,
)
_PLAIN_STARTS = frozenset("{}[]\",:-0123456789tfn'")  # neither space nor the start of a comment: a fast check
_VALUE_STARTS = frozenset("{[\"'“-0123456789tfnTFN")
# Text that may follow a string if its last quote ends it.
_QUOTED = "[\"'“][^\"'”]*+[\"'”]"
_MAY_FOLLOW = {
    "{": re.compile(rf"\s*+(?:\}}|\Z|,\s*+(?:\}}|(?:{_QUOTED}|[\w$-]++)\s*+:))"),
    "[": re.compile(r"\s*+(?:\]|\Z|,\s*+(?:[\]\[{\"'“\d-]|true|false|null))"),
    "(": re.compile(r"\s*+(?:\)|\Z|,\s*+(?:\)|[\w$-]++\s*+[=:]))"),
}


class JsonRewriter:
    """Read one value from `text[at:end]`. `rewrite` returns it as JSON and leaves `at` after the value."""

    __slots__ = ("_end", "_fresh", "_items", "_open", "_output", "_reading", "_spellings", "_text", "at")

    def __init__(self, text: str, at: int, end: int, attempt: RepairAttempt, opener: str = "") -> None:
        """Begin at `at`. `opener`: the bracket of an object whose members begin there: `{` if missing, `(` in `f(a=1)`."""
        self.at = at
        self._text = text
        self._end = end
        self._reading = attempt
        self._open: list[str] = []  # opening brackets of the open containers
        self._items: list[set[str]] = []  # for each: whether its values include quoted and bare text
        self._fresh = False  # directly after an opening bracket
        self._output: list[str] = []
        self._spellings: dict[int, str] = {}  # for each number in another notation: its piece, and its text
        if opener:
            self._open_container(opener, "{")

    def rewrite(self) -> str:
        """Return the value as JSON; raise BrokenJSON with a pointer. Set `pieces` and `as_written` of the attempt."""
        try:
            if not self._open:
                self._read_value()
            while self._open:
                self._skip()
                if self.at == self._end:
                    self._close_all()
                else:
                    self._read_next()
        except BrokenJSON as error:
            error.pointer = pointer_at("".join(self._output).encode("utf-8", "replace"))
            raise
        finally:
            self._reading.pieces += len(self._output)
        if self._spellings:
            written = [self._spellings.get(index, piece) for index, piece in enumerate(self._output)]
            self._reading.as_written = "".join(written)
        return "".join(self._output)

    def _close_all(self) -> None:
        """Close the open containers at the end of the text, unless the text may be truncated."""
        is_certain = self._open[0] != "(" and "surplus_comma" not in self._reading.steps
        if self._fresh or not is_certain or not self._reading.finished:
            raise truncated_error(f"in {'an array' if self._open[-1] == '[' else 'an object'}", self.at)
        self._reading.record_step("closed_containers")
        self._reading.closed = len(self._open)
        while self._open:
            self._output.append(OUTPUT_CLOSERS[self._open.pop()])

    def _read_next(self) -> None:
        """Read the next member, item or closing bracket, with the comma before it."""
        container = self._open[-1]
        closers = CLOSERS[container]
        if self._text[self.at] in closers:
            self._close_container()
            return
        if not self._fresh:
            self._read_comma(container)
            if self._text[self.at] in closers:
                self._reading.record_step("trailing_comma")
                self._close_container()
                return
            self._output.append(",")
        elif self._text[self.at] in COMMAS and self._reading.checked and container != "[":
            self._reading.record_step("surplus_comma")  # in an array, an item may be missing before it
            self.at += 1
            return
        self._fresh = False
        sound = (
            None
            if self._reading.guess_kind == "quotes" or container == "("
            else _SOUND[container].match(self._text, self.at, self._end)
        )
        if sound is not None:
            self._output.append(sound.group())
            self.at = sound.end()
            if '"' in sound.group():
                self._items[-1].add("quoted")
            return
        if container != "[":
            self._read_key()
        self._read_value()

    def _open_container(self, opener: str, output: str) -> None:
        self._open.append(opener)
        self._items.append(set())
        self._output.append(output)
        self._fresh = True

    def _close_container(self) -> None:
        """Write the closing bracket and leave the container; mark an array of quoted and bare texts as doubtful."""
        opener = self._open.pop()
        closer = OUTPUT_CLOSERS[opener]
        if len(self._items.pop()) > 1 and opener == "[":
            self._reading.doubtful = True  # the bare text may be a comment, or a mark of omitted items
        if self._text[self.at] not in "}])":
            self._reading.record_step("full_width")
        self._output.append(closer)
        self._fresh = False
        self.at += 1

    def _read_comma(self, container: str) -> None:
        """Read the comma before the next member or item, or guess it; raise BrokenJSON if the text ends after it."""
        run = COMMA_RUN.match(self._text, self.at, self._end)
        if run is None:
            self._guess_comma(container)
            return
        for step in comma_steps(run.group()):
            self._reading.record_step(step)
        self.at = run.end()
        self._skip()
        if self.at == self._end:
            raise truncated_error("after a comma", self.at)
        surplus = len("".join(run.group().split())) - 1
        if surplus:
            self._read_surplus_commas(surplus, container)

    def _read_surplus_commas(self, count: int, container: str) -> None:
        """Drop surplus commas. In an array, items may be missing between them, which only a schema can exclude."""
        self._reading.record_step("surplus_comma")
        if container != "[":
            return
        doubt = invalid_error("expected a value, got a comma", self.at, "write every item of the list")
        if not self._reading.checked:
            self._output.append(",")  # for the pointer of the error
            raise doubt
        if self._reading.choose_once(2, "surplus_comma", doubt):
            self._output.append(",null" * count)

    def _guess_comma(self, container: str) -> None:
        may_start = container != "[" or self._text[self.at] in _VALUE_STARTS
        is_one_value = _ONE_VALUE.match(self._text, max(self.at - 2, 0), self._end) is not None
        if self._reading.guess_kind == "punctuation" and may_start and not is_one_value:
            self._reading.record_step("missing_comma")
            return
        closer = CLOSERS[container][0]
        raise invalid_error(f"expected a comma or {closer}, got {self._shown_text()}", self.at)

    def _record(self, step: LexicalStep | None) -> None:
        if step is not None:
            self._reading.record_step(step)

    def _read_key(self) -> None:
        """Read a key, with or without quotes, and the colon after it; raise BrokenJSON if one is missing."""
        char, is_keyword = self._text[self.at], self._open[-1] == "("  # `(`: f(a=1)
        name = _NAME.match(self._text, self.at, self._end)
        if char in QUOTES or char == "\\":
            self._read_string(char, is_key=True)
        elif name is not None:
            self._record(None if is_keyword else "unquoted_key")
            self._output.append(f'"{name.group()}"')
            self.at = name.end()
        else:
            raise invalid_error(f"expected a key, got {self._shown_text()}", self.at)
        self._skip()
        if self.at == self._end:
            raise truncated_error("after a key", self.at)
        colon = COLON.match(self._text, self.at, self._end)
        if colon is not None:
            self._record(None if is_keyword and colon.group() == "=" else colon_step(colon.group()))
            self.at = colon.end()
        elif self._reading.guess_kind == "punctuation" and char in QUOTES and self._text[self.at] in _VALUE_STARTS:
            self._reading.record_step("missing_colon")
        else:
            raise invalid_error(f"expected a colon, got {self._shown_text()}", self.at)
        self._output.append(":")

    def _read_value(self) -> None:
        """Read a string or scalar, or open a container, which `rewrite` reads; raise BrokenJSON for no value."""
        self._skip()
        if self.at == self._end:
            raise truncated_error("where a value is expected", self.at)
        char = self._text[self.at]
        if char in OPENERS:
            if len(self._open) == DEPTH:
                raise invalid_error(f"nested more than {DEPTH} levels deep", self.at)
            self._record(opener_step(char))
            self._open_container(OPENERS[char], OPENERS[char])
            self.at += 1
        elif char in QUOTES or char == "\\":
            if self._items:
                self._items[-1].add("quoted")
            self._read_string(char, is_key=False)
        else:
            self._read_scalar()

    def _read_string(self, opener: str, *, is_key: bool) -> None:
        """Copy a valid string, or rewrite it with StringReader.

        If quotes are guessed, even a valid string is examined, because its end may be an inner quote.
        """
        guesses_end = self._reading.guess_kind == "quotes" and not is_key and bool(self._open)
        sound = _SOUND_STRING.match(self._text, self.at, self._end)
        if sound is not None and not guesses_end:
            self._output.append(sound.group())
            self.at = sound.end()
            return
        if opener == "\\":
            inside, self.at = read_over_escaped(self._text, self.at, self._end, self._reading)
            self._reading.record_step("over_escaped")
            self._output.append(f'"{inside}"')
            return
        if opener != '"':
            self._reading.record_step(quote_step(opener))
        follow = _MAY_FOLLOW[self._open[-1]] if guesses_end else _SPACE
        reader = StringReader(
            self._text,
            self._end,
            QUOTES[opener],
            self._reading,
            lambda at: follow.match(self._text, at, self._end) is not None,
        )
        inside, self.at = reader.read(self.at + 1)
        self._output.append(f'"{inside}"')

    def _read_scalar(self) -> None:
        """Read a literal, a number, or text without quotes; raise BrokenJSON if it may be truncated."""
        match = _WORD.match(self._text, self.at, self._end)
        if match is None:
            raise invalid_error(f"expected a value, got {self._shown_text()}", self.at)
        word = match.group()
        literal = _LITERALS.get(word)
        if literal is not None:
            if literal != word:
                self._reading.record_step("python_literal")
            self._output.append(literal)
            self.at = match.end()
            return
        if match.end() == self._end:
            raise truncated_error("in a number or bare word", self._end)
        if JSON_NUMBER.fullmatch(word):
            if word == "-0":
                self._spellings[len(self._output)] = '"-0"'
            self._output.append(word)
            self.at = match.end()
            return
        number = normalise_number(word)
        if number is not None:
            self._reading.record_step("number_form" if word.isascii() else "full_width")
            self._spellings[len(self._output)] = f'"{word}"'
            self._output.append(number)
            self.at = match.end()
            return
        self._guess_word(word)

    def _guess_word(self, word: str) -> None:
        """Guess a number with leading zeros, or text without quotes; raise BrokenJSON if it may be neither."""
        words = _WORDS.match(self._text, self.at, self._end)
        doubt = invalid_error(
            f"{self._shown_text()} is not a value", self.at, "quote text; this is not a JSON literal or number"
        )
        if words is None or words.group().casefold() in _NOT_TEXT or self._is_placeholder(words.group()):
            raise doubt
        zeros = _ZEROS.fullmatch(word)
        if zeros is not None and words.group() == word:
            if self._text[self.at - 1] == ",":
                raise ambiguous_error(
                    "a comma that may separate thousands", self.at, "write numbers without separators"
                )
            ways = zero_readings(zeros)
            self._output.append(ways[self._reading.choose(len(ways), "leading_zeros", doubt)])
        else:
            self._reading.choose(1, "bare_string", doubt)
            if self._items:
                self._items[-1].add("bare")
            self._output.append(f'"{words.group()}"')
        self.at = words.end()

    def _is_placeholder(self, words: str) -> bool:
        """Return True for text that may be a mark of omitted values (`...`, `etc`) or a variable."""
        if self._open[:1] == ["("]:
            return True
        if self._open[-1:] == ["["]:
            return _OMITTED_VALUES.search(words) is not None
        return ".." in words or self._output[-2:] == [f'"{words}"', ":"]

    def _skip(self) -> None:
        """Skip space and comments, and record the unusual ones; raise BrokenJSON as `_skip_past` does."""
        text, end = self._text, self._end
        while True:
            self.at = _SPACE.match(text, self.at, end).end()  # type: ignore[union-attr]  # matches everywhere
            if self.at == end or text[self.at] in _PLAIN_STARTS:
                return
            if text.startswith("//", self.at) or _HASH_COMMENT.match(text, self.at):
                self._skip_past("\n")
            elif text.startswith("/*", self.at):
                self._skip_past("*/")
            elif (escaped := _ESCAPED_SPACE.match(text, self.at, end)) is not None:
                self._reading.record_step("over_escaped")
                self._reading.escaped_space = True
                self.at = escaped.end()
            elif _UNUSUAL_SPACE.match(text, self.at):
                self._reading.record_step("odd_space")
                self.at += 1
            else:
                return

    def _skip_past(self, mark: str) -> None:
        """Skip a comment up to `mark`, its end; raise BrokenJSON if there is none or it may replace omitted values."""
        stop = self._text.find(mark, self.at + 1 + (mark == "*/"), self._end)
        if stop < 0:
            # It cannot be decided which text belongs to the comment and which to the object.
            raise truncated_error("in a comment", self.at)
        if _OMITTED_VALUES.search(self._text, self.at, stop):
            raise ambiguous_error(
                "a comment that may replace omitted values", self.at, "write all values, without comments"
            )
        self._reading.record_step("comment")
        self.at = stop + len(mark)

    def _shown_text(self) -> str:
        return repr(self._text[self.at : min(self.at + 16, self._end)])
