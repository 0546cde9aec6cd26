"""Thought, Action, Action Input: lines with a label."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.parts import ToolCall
from ..engine.call_template import ARGUMENTS, NAME, CallTemplate, JsonArguments
from ..engine.envelope import read_arguments
from ..engine.offered_tools import OfferedTools
from ..engine.reader import Malformed, Parsing, Truncated, terminals
from ..engine.style import ParseContext, StyleBase
from ..engine.written_json import write_arguments

__all__ = ["ReactCalls"]

_THOUGHT, _ACTION, _INPUT, _ANSWER, _OBSERVATION = (
    "Thought:",
    "Action:",
    "Action Input:",
    "Final Answer:",
    "Observation:",
)
_LINES = (_THOUGHT, _ACTION, _ANSWER)
_ENDS = ("\nObservation:", "\nThought:", "\nAction:", "\nFinal Answer:")


class ReactCalls(StyleBase, frozen=True):
    """Input that is not a JSON object is the tool's only argument."""

    def openers(self, offered: OfferedTools) -> tuple[str, ...]:  # required by the protocol
        return tuple(f"\n{line}" for line in _LINES)

    def weak_openers(self, offered: OfferedTools) -> tuple[str, ...]:  # required by the protocol
        return _LINES

    def read(self, turn: ParseContext, opener: str) -> Parsing[None]:
        """Read a labelled line: an action is a call, a thought is reasoning, a final answer is text."""
        reader, writer = turn.reader, turn.writer
        line = opener.strip()
        if line == _ACTION:
            yield from self._read_action(turn)
            return
        reader.taken = None
        writer.end_item()
        yield from reader.read_one_of((" ",))
        if line == _THOUGHT:
            end = yield from reader.read_until(terminals(*_ENDS), writer.add_reasoning)
            if end is not None:
                reader.unread(end)
            writer.end_item()

    def _read_action(self, turn: ParseContext) -> Parsing[None]:
        """Read the tool name and the input line. JSON input is the arguments; other input is one argument."""
        reader = turn.reader
        name, end = yield from reader.read_word(terminals("\n"))
        if end is None:
            raise Truncated("the text ends inside an action's name")
        turn.spans.mark_word(name, end)
        name = name.strip().strip("`")
        yield from reader.read_spaces()
        if (yield from reader.read_one_of((_INPUT,))) is None:
            raise Malformed(f"the action {name!r} has no input")
        if not name:
            raise Malformed("the action has no name")
        turn.start_call(name)
        yield from reader.read_spaces()
        if (yield from reader.peek()) == "{":
            yield from read_arguments(turn, terminals(*_ENDS))
        else:
            yield from self._read_plain_input(turn, name)

    def _read_plain_input(self, turn: ParseContext, name: str) -> Parsing[None]:
        """Read the text up to the end of the input, as the only argument of the tool."""
        reader, writer = turn.reader, turn.writer
        pieces: list[str] = []
        turn.spans.begin_arguments()
        end = yield from reader.read_until(terminals(*_ENDS), pieces.append)
        if end is not None:
            reader.unread(end)
        raw = "".join(pieces)
        turn.spans.end_arguments(len(raw) - len(raw.rstrip()))
        text = raw.strip()
        keys = turn.offered.keys(name) or []
        if end is None and not reader.finished:
            writer.end_object("truncated", reader.position)
        elif len(keys) == 1 and text:
            turn.emit_argument(keys[0], turn.convert(text, turn.offered.types(name, keys[0])))
            writer.end_object("complete", reader.position)
        elif not text:
            writer.end_object("complete", reader.position)
        else:
            writer.add_json_arguments(text)
            writer.end_json(reader.position)

    def write(self, calls: Sequence[ToolCall]) -> str:
        return "\n".join(f"{_ACTION} {call.name}\n{_INPUT} {write_arguments(call)}" for call in calls)

    def template(self) -> CallTemplate:
        """Return the text of `write` as data. An action with the name of an offered tool is a call."""
        call = (f"{_ACTION} ", NAME, f"\n{_INPUT} ", ARGUMENTS)
        thoughts = ((_THOUGHT, "\n"),)
        return CallTemplate(call, JsonArguments(), between="\n", closed=False, reasoning=thoughts)
