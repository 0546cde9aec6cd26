"""Calls inside a sentence: `[NAME(input)]`. Only offered names are recognised.

An arrow after the call asks for the result: the model stops there. The paper that introduced the notation (Schick et
al. 2023) writes the arrow before the closing bracket, `[NAME(input) → result]`; both are read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...ir.parts import ToolCall
from ..engine.call_template import ARGUMENTS, NAME, CallTemplate, LiteralArguments
from ..engine.literal import PYTHON
from ..engine.offered_tools import OfferedTools
from ..engine.reader import Malformed, Parsing, Reader, Truncated, terminals
from ..engine.style import ParseContext, StyleBase
from .pythonic_calls import PythonicCalls

__all__ = ["InlineCalls"]

_ARROWS = ("→", "->")
_PYTHON = PythonicCalls(brackets=False)
_KEY = re.compile(r"\s*([^\W\d][\w-]*)\s*=(?!=)").match


_BEGINS_VALUE = re.compile(r"(?:^|[(\[{,:=])\s*$").search


class InlineCalls(StyleBase, frozen=True):
    """The input is Python arguments or, for a tool with one parameter, its value as raw text."""

    def openers(self, offered: OfferedTools) -> tuple[str, ...]:
        return tuple(f"[{name}(" for name in offered.names)

    def read(self, turn: ParseContext, opener: str) -> Parsing[None]:
        """Read the input up to its parenthesis. A bracket or an arrow must follow, or the end of the text."""
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
    """Collect the input up to the matching parenthesis; False if the text ends before it.

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
    turn.writer.add_broken_arguments(text)
    turn.writer.end_object("truncated", turn.reader.position)


def _emit_arguments(turn: ParseContext, name: str, text: str, start: int) -> None:
    """Emit the arguments of a complete input; one that is neither Python nor a raw value makes the call invalid."""
    writer = turn.writer
    keys = turn.offered.keys(name) or []
    key = _KEY(text)
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
        writer.add_broken_arguments(text)
        writer.end_object("invalid", turn.reader.position)
    else:
        writer.end_object("complete", turn.reader.position)
