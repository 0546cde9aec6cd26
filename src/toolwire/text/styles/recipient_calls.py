"""Messages to recipients: `>>>all` is text, `>>>NAME` is a call. The first `>>>` may be part of the prompt."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...ir.parts import ToolCall
from ..engine.call_template import ARGUMENTS, NAME, CallTemplate, JsonArguments
from ..engine.envelope import read_arguments
from ..engine.offered_tools import OfferedTools
from ..engine.reader import Malformed, Parsing, Truncated, terminals
from ..engine.style import ParseContext, StyleBase
from ..engine.written_json import write_arguments

__all__ = ["RecipientCalls"]

_OPEN, _EVERYBODY = ">>>", "all"
_NAME = re.compile(r"[\w.:/-]+").fullmatch


class RecipientCalls(StyleBase, frozen=True):
    """`>>>NAME`, a line break, JSON."""

    def openers(self, offered: OfferedTools) -> tuple[str, ...]:  # required by the protocol
        return (_OPEN,)

    def weak_openers(self, offered: OfferedTools) -> tuple[str, ...]:
        return tuple(f"{name}\n" for name in (_EVERYBODY, *offered.names))

    def read(self, turn: ParseContext, opener: str) -> Parsing[None]:
        """Read one message: text to `all` is left to the turn parser, any other recipient is a tool."""
        reader = turn.reader
        name = opener.rstrip("\n")
        if opener == _OPEN:
            name, end = yield from reader.read_word(terminals("\n", "<", " "), 128)
            if end is None:
                raise Truncated("the text ends inside a recipient's name")
            if end != "\n" or not _NAME(name):
                raise Malformed(f"{name!r} is not a recipient")
        if name == _EVERYBODY:
            reader.taken = None
            turn.writer.end_item()
            return
        turn.spans.mark_word(name, "\n")
        turn.start_call(name)
        yield from reader.read_spaces()
        yield from read_arguments(turn, terminals(_OPEN))

    def write(self, calls: Sequence[ToolCall]) -> str:
        return "".join(f"{_OPEN}{call.name}\n{write_arguments(call)}" for call in calls)

    def template(self) -> CallTemplate:
        return CallTemplate((_OPEN, NAME, "\n", ARGUMENTS), JsonArguments(), closed=False)
