"""Calls as code: Python calls in a list or inside a sentence, and a name with a literal of the format's own language.

[f(a='x', b=[1]), g()]      PythonicCalls
The sum is [f(1 + 2)] →     InlineCalls
call:f{a:<|"|>x<|"|>}       LiteralCalls
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...ir.parts import ToolCall
from ..engine.literal import GEMMA, PYTHON, LiteralSyntax, read_key, read_literal, write_literal
from ..engine.offered_tools import OfferedTools
from ..engine.reader import Malformed, Parsing, Reader, Truncated, terminals
from ..engine.style import ARGUMENTS, NAME, CallTemplate, LiteralArguments, ParseContext, StyleBase
from .json_calls import JsonCalls

_NAME = re.compile(r"[^\W\d][\w.\-/:]*").fullmatch
_KEY = re.compile(r"[^\W\d][\w\-]*").fullmatch
_NAME_ENDS = ("(", ")", "[", "]", "{", "}", "<", ">", "'", '"', "\n", ",", ";", "=")


class PythonicCalls(StyleBase, frozen=True):
    """`open` [ calls ] `close`. A `bare` bracket opens calls if a known tool's name and a parenthesis follow."""

    open: tuple[str, ...] = ()
    close: tuple[str, ...] = ()
    brackets: bool = True
    bare: bool = False
    bare_start: bool = False  # the same, only for offered tools at the start of the message
    json: bool = False  # a list of JSON calls is accepted too
    separator: str = ", "
    write_open: bool = True
    values: LiteralSyntax = PYTHON

    def openers(self, offered: OfferedTools) -> tuple[str, ...]:  # the protocol passes `offered`
        return self.open

    def weak_openers(self, offered: OfferedTools) -> tuple[str, ...]:  # the protocol passes `offered`
        return ("[",) if self.bare or (self.bare_start and offered) else ()

    def inline_openers(self, offered: OfferedTools) -> tuple[str, ...]:
        return ("[",) if self.bare else ()

    def read(self, turn: ParseContext, opener: str) -> Parsing[None]:
        """Read a list of calls after an opener. `[` as the opener must be followed by a name, else Malformed."""
        reader = turn.reader
        weak = opener == "["
        yield from reader.read_spaces()
        if weak and (yield from self._no_name(turn)):
            raise Malformed("the bracket does not open a call")
        bracket = weak or (yield from reader.read_one_of(("[",))) is not None
        if self.json and (yield from self._is_json(turn, bracket=bracket)):
            return
        if bracket:
            yield from reader.read_spaces()
            if (yield from reader.read_one_of(("]",))) is None:
                yield from self._read_calls(turn, weak=weak)
        elif (yield from reader.read_one_of(self.close)) is None:
            yield from self._read_calls(turn, weak=weak)
        else:
            return
        if not weak:
            yield from self._read_close(turn)

    def _is_json(self, turn: ParseContext, *, bracket: bool) -> Parsing[bool]:
        yield from turn.reader.read_spaces()
        if (yield from turn.reader.peek()) != "{":
            return False
        yield from JsonCalls(self.open, self.close, array=True).read_objects(turn, array=bracket)
        return True

    def _read_calls(self, turn: ParseContext, *, weak: bool) -> Parsing[None]:
        """Read calls up to the closing bracket or token; after a `weak` opener, a missing bracket is reported."""
        reader = turn.reader
        while True:
            yield from self._read_call(turn, weak=weak)
            reader.taken = []
            space = yield from reader.read_spaces()
            found = yield from reader.read_one_of(("]", ",", ";"))
            if found == "]" or (found is None and not (self.separator == "\n" and "\n" in space)):
                break
            if found is None and (yield from self._no_name(turn)):
                break
            yield from reader.read_spaces()
            if found == "," and (yield from reader.read_one_of(("]",))):
                break
        skipped, reader.taken = "".join(reader.taken), None
        if found is None and self.close and not weak:
            reader.unread(skipped)  # space before the closer
        elif found is None:
            turn.writer.add_text(skipped)
        if found is None and weak:
            turn.report_unclosed("the bracket after the calls")

    def _no_name(self, turn: ParseContext) -> Parsing[bool]:
        following = yield from turn.reader.peek()
        return not (following.isalpha() or following == "_")

    def _read_call(self, turn: ParseContext, *, weak: bool) -> Parsing[None]:
        """Read one call; Malformed if it is none, Truncated in its name. If `weak`, it must call an offered tool."""
        reader = turn.reader
        turn.spans.begin_call()
        name, end = yield from reader.read_word(terminals(*_NAME_ENDS), 128)
        turn.spans.mark_word(name, end or "")
        name = name.strip()
        if end is None and (not name or _NAME(name)):
            raise Truncated("the text ends inside a call's name")
        if end != "(" or not _NAME(name) or (weak and not turn.offered.has_tool(name)):
            reader.unread(end or "")
            raise Malformed(f"{name!r} is not a call")
        turn.start_call(name)
        try:
            yield from self.read_arguments(turn, name)
        except Truncated:
            turn.writer.end_object("truncated", reader.position)
            raise
        except Malformed as error:
            turn.writer.add_diagnostic("malformed", reader.position, str(error))
            yield from self._read_broken_arguments(turn)
            turn.writer.end_object("invalid", reader.position)
            return
        turn.writer.end_object("complete", reader.position)

    def read_arguments(self, turn: ParseContext, name: str) -> Parsing[None]:
        """Read and write arguments up to the closing parenthesis: `key=value`, positional, or `**{…}`."""
        reader = turn.reader
        given = 0
        yield from reader.read_spaces()
        while (yield from reader.read_one_of((")",))) is None:
            if given:
                yield from reader.expect(",")
                yield from reader.read_spaces()
                if (yield from reader.read_one_of((")",))):
                    return
            turn.spans.begin_arguments()
            if (yield from reader.read_one_of(("**",))):
                yield from self._read_unpacked(turn)
            else:
                key = yield from self._read_key(turn, name, given)
                turn.writer.begin_argument(key)
                turn.writer.end_argument(key, (yield from read_literal(reader, self.values, turn.writer.add_raw)))
            turn.spans.end_arguments()
            given += 1
            yield from reader.read_spaces()

    def _read_unpacked(self, turn: ParseContext) -> Parsing[None]:
        """Read `**{…}`: keys that are not identifiers."""
        found = yield from read_literal(turn.reader, self.values, _discard)
        if not isinstance(found, dict):
            raise Malformed("** must be followed by a dictionary")
        for key, value in found.items():
            turn.emit_argument(key, value)

    def _read_key(self, turn: ParseContext, name: str, given: int) -> Parsing[str]:
        """Read and return `key=`; for a positional argument, return the tool's parameter there, or raise Malformed."""
        reader = turn.reader
        first = yield from reader.peek()
        if first.isalpha() or first == "_":
            key, end = yield from reader.read_word(terminals(*_NAME_ENDS), 128)
            if end == "=" and _KEY(key.strip()):
                return key.strip()
            if end is None:
                raise Truncated("the text ends inside an argument's name")
            reader.unread(key + end)
        keys = turn.offered.keys(name)
        if keys is None or given >= len(keys):
            raise Malformed("an argument has no name")
        return keys[given]

    def _read_broken_arguments(self, turn: ParseContext) -> Parsing[None]:
        """Keep the rest of an invalid call as the raw text of its arguments, up to the end of the line or of the list."""
        stops = terminals("\n", *self.close, "]")
        found = yield from turn.reader.read_until(stops, turn.writer.add_raw)
        if found is not None:
            turn.reader.unread(found)

    def _read_close(self, turn: ParseContext) -> Parsing[None]:
        if self.close:
            yield from turn.close(self.close)

    def write(self, calls: Sequence[ToolCall]) -> str:
        body = self.separator.join(map(_write_call, calls))
        start = self.open[0] if self.open and self.write_open else ""
        end = self.close[0] if self.close and self.write_open else ""
        return f"{start}[{body}]{end}" if self.brackets else f"{start}{body}{end}"

    def template(self) -> CallTemplate:
        """Return the text of `write` as data."""
        start = self.open[0] if self.open and self.write_open else ""
        end = self.close[0] if self.close and self.write_open else ""
        left, right = ("[", "]") if self.brackets else ("", "")
        return CallTemplate(
            (NAME, "(", ARGUMENTS, ")"),
            LiteralArguments(PYTHON),
            f"{start}{left}",
            self.separator,
            f"{right}{end}",
            trigger=start,
            closed=bool(right or end),
            forbidden=self.open,
            forbidden_start=("[",) if self.bare_start else (),
        )


def _write_call(call: ToolCall) -> str:
    given = call.arguments or {}
    if all(map(_KEY, given)):
        return f"{call.name}({', '.join(f'{key}={write_literal(value, PYTHON)}' for key, value in given.items())})"
    return f"{call.name}(**{write_literal(given, PYTHON)})"


def _discard(piece: str) -> None:
    del piece


# Calls inside a sentence: `[NAME(input)]`. Only offered names are recognised.
#
# An arrow after the call asks for the result: the model stops there. The paper that introduced the notation (Schick
# et al. 2023) writes the arrow before the closing bracket, `[NAME(input) → result]`; both are read.


_ARROWS = ("→", "->")
_PYTHON = PythonicCalls(brackets=False)
_KEYWORD_KEY = re.compile(r"\s*([^\W\d][\w-]*)\s*=(?!=)").match


_BEGINS_VALUE = re.compile(r"(?:^|[(\[{,:=])\s*$").search


class InlineCalls(StyleBase, frozen=True):
    """The input is Python arguments or, for a tool with one parameter, its value as raw text."""

    def openers(self, offered: OfferedTools) -> tuple[str, ...]:
        return tuple(f"[{name}(" for name in offered.names)

    def read(self, turn: ParseContext, opener: str) -> Parsing[None]:
        """Read the input up to its parenthesis and emit the call; Malformed if no bracket, arrow or end follows."""
        reader, name = turn.reader, opener[1:-1]
        start = reader.position
        turn.spans.mark_name(start - len(name) - 1, start - 1)
        turn.spans.begin_arguments()
        pieces: list[str] = []
        if not (yield from _read_input(reader, pieces)):
            _emit_truncated(turn, name, "".join(pieces))
            return
        turn.spans.end_arguments(len(")"))
        yield from reader.read_spaces()
        end = yield from reader.read_one_of(("]", *_ARROWS))
        if end is None and (not reader.ended or reader.at < len(reader.text)):
            raise Malformed(f"expected a closing bracket or an arrow after {opener}…)")
        if end is None and not reader.finished:
            _emit_truncated(turn, name, "".join(pieces))
            return
        turn.start_call(name)
        _emit_arguments(turn, name, "".join(pieces), start)
        if end is None:
            turn.report_unclosed("the bracket after the call")
        elif end in _ARROWS or (yield from _reads_arrow(turn)):
            turn.end_turn("the turn ends at the arrow after its call")

    def write(self, calls: Sequence[ToolCall]) -> str:
        return " ".join(f"[{_PYTHON.write([call])}]" for call in calls)

    def template(self) -> CallTemplate:
        return CallTemplate(("[", NAME, "(", ARGUMENTS, ")]"), LiteralArguments(PYTHON), between=" ")


def _read_input(reader: Reader, pieces: list[str]) -> Parsing[bool]:
    """Collect the input up to the matching parenthesis; False if the text ends before it, Malformed at a line break.

    Quotes are significant only where they begin a Python value, because raw text may contain an apostrophe.
    """
    stops = terminals("(", ")", "'", '"', "\\", "\n")
    depth, quote = 1, ""
    while True:
        found = yield from reader.read_until(stops, pieces.append)
        if found is None:
            return False
        if found == "\n":
            raise Malformed("the input of a call does not extend over a line")
        if found == "\\":
            found += yield from reader.peek()
            reader.read_to(reader.at + len(found) - 1)
        elif quote:
            quote = "" if found == quote else quote
        elif found in "()":
            depth += 1 if found == "(" else -1
            if not depth:
                return True
        elif _BEGINS_VALUE("".join(pieces[-16:])[-16:]):
            quote = found
        pieces.append(found)


def _reads_arrow(turn: ParseContext) -> Parsing[bool]:
    """Read an arrow after the closing bracket; without one, the white space belongs to the text that follows."""
    found = yield from turn.read_next(_ARROWS)
    turn.reader.taken = None
    return found is not None


def _emit_truncated(turn: ParseContext, name: str, text: str) -> None:
    turn.start_call(name)
    turn.writer.add_raw(text)
    turn.writer.end_object("truncated", turn.reader.position)


def _emit_arguments(turn: ParseContext, name: str, text: str, start: int) -> None:
    """Emit the arguments of a complete input; one that is neither Python nor a raw value makes the call invalid."""
    writer = turn.writer
    keys = turn.offered.keys(name) or []
    key = _KEYWORD_KEY(text)
    if len(keys) == 1 and text.strip() and not text.lstrip().startswith(("'", '"')) and not (key and key[1] in keys):
        turn.emit_argument(keys[0], turn.convert(text.strip(), turn.offered.types(name, keys[0])))
        writer.end_object("complete", turn.reader.position)
        return
    inner = Reader()
    inner.feed(f"{text})")
    inner.offset, inner.ended = start, True
    try:
        for _ in _PYTHON.read_arguments(ParseContext(inner, writer), name):
            pass
        if inner.at < len(inner.text):
            raise Malformed(f"{inner.text[inner.at :]!r} is not an argument")
    except (Malformed, Truncated) as error:
        writer.add_diagnostic("malformed", inner.position, str(error))
        writer.add_raw(text)
        writer.end_object("invalid", turn.reader.position)
    else:
        writer.end_object("complete", turn.reader.position)


class LiteralCalls(StyleBase, frozen=True):
    """`open` `prefix` NAME {…} `close`."""

    open: str
    close: str
    prefix: str = "call:"
    language: LiteralSyntax = GEMMA

    def openers(self, offered: OfferedTools) -> tuple[str, ...]:  # the protocol passes `offered`
        return (self.open,)

    def read(self, turn: ParseContext, opener: str) -> Parsing[None]:  # the protocol passes `opener`
        """Read one call; Malformed or Truncated in its name. Malformed arguments make it invalid, up to `close`."""
        reader, writer = turn.reader, turn.writer
        yield from reader.read_spaces()
        yield from reader.read_one_of((self.prefix, ":"))  # some answers begin with the colon
        name, end = yield from reader.read_word(terminals("{", self.close, "<", "\n"), 128)
        if end is None:
            raise Truncated("the text ends inside a call's name")
        if end != "{" or not name.strip():
            reader.unread(end)
            raise Malformed(f"{name!r} is not a tool name")
        turn.spans.mark_word(name, end)
        turn.spans.begin_arguments(len(end))
        turn.start_call(name.strip())
        try:
            yield from self._read_arguments(turn)
        except Truncated:
            writer.end_object("truncated", reader.position)
            raise
        except Malformed as error:
            turn.spans.end_arguments()
            writer.add_diagnostic("malformed", reader.position, str(error))
            yield from reader.read_until(terminals(self.close), writer.add_raw)
            writer.end_object("invalid", reader.position)
            return
        writer.end_object("complete", reader.position)
        yield from turn.close((self.close,))

    def _read_arguments(self, turn: ParseContext) -> Parsing[None]:
        """Read and write `key:value` pairs up to the closing brace; Malformed for anything else."""
        reader = turn.reader
        given = 0
        yield from reader.read_spaces()
        while (yield from reader.read_one_of(("}",))) is None:
            if given:
                yield from reader.expect(",")
            key = yield from read_key(reader, self.language)
            turn.writer.begin_argument(key)
            turn.writer.end_argument(key, (yield from read_literal(reader, self.language, turn.writer.add_raw)))
            given += 1
            yield from reader.read_spaces()

    def write(self, calls: Sequence[ToolCall]) -> str:
        return "".join(
            f"{self.open}{self.prefix}{call.name}{write_literal(call.arguments or {}, self.language)}{self.close}"
            for call in calls
        )

    def template(self) -> CallTemplate:
        """Return the text of `write` as data."""
        call = (f"{self.open}{self.prefix}", NAME, ARGUMENTS, self.close)
        return CallTemplate(call, LiteralArguments(self.language, braces=True), trigger=self.open)
