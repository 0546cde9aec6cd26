"""Turns whose messages or lines are labelled: by the type of their content, by a recipient, or as a ReAct step.

A label begins the next item, so no closer is needed. Turns with channels are in `channel_calls`.

Messages to recipients: `>>>all` is text, `>>>NAME` is a call. The first `>>>` may be part of the prompt.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...ir.parts import ToolCall
from ...ir.text import dumps
from ..engine.envelope import CallFields, read_arguments, read_envelope
from ..engine.offered_tools import OfferedTools
from ..engine.reader import Malformed, Parsing, Truncated, terminals
from ..engine.style import (
    ARGUMENTS,
    JSON_NAME,
    NAME,
    CallTemplate,
    JsonArguments,
    ParseContext,
    StyleBase,
    write_arguments,
)

# Messages whose content has a type: text, thinking, or a call as JSON. The name in the header is ignored.


_MESSAGE, _END = "<|message_model|>", "<|end_message|>"
_CALL, _TEXT_CALL = "<|content_invoke_tool_json|>", "<|content_invoke_tool_text|>"
_TEXT, _THINKING = "<|content_text|>", "<|content_thinking|>"
_KEYS = CallFields(arguments=("args", "arguments", "parameters"))


class MessageCalls(StyleBase, frozen=True):
    """`<|message_model|>NAME<|content_invoke_tool_json|>{"name": …, "args": …}<|end_message|>`."""

    def openers(self, offered: OfferedTools) -> tuple[str, ...]:  # the protocol passes `offered`
        return (_MESSAGE, _CALL, _TEXT_CALL)

    def weak_openers(self, offered: OfferedTools) -> tuple[str, ...]:
        return tuple(f"{name}{_CALL}" for name in offered.names)  # the prompt may contain the start of the message

    def read(self, turn: ParseContext, opener: str) -> Parsing[None]:
        """Read one message by its content type; text and thinking are left to the turn parser.

        Raise Truncated if the text ends inside the header, and Malformed if no content follows it.
        """
        reader = turn.reader
        header = ""
        if opener == _MESSAGE:
            header, found = yield from reader.read_word(terminals(_CALL, _TEXT_CALL, _TEXT, _THINKING, _END, _MESSAGE))
            if found is None:
                raise Truncated("the text ends inside a message's header")
            if found in (_END, _MESSAGE) and header.strip():
                reader.unread(found)
                raise Malformed(f"no content follows the header {header[:100]!r}")
            opener = found
        if opener.endswith(_CALL):
            yield from self._read_call(turn)
        elif opener == _TEXT_CALL:
            turn.spans.mark_word(header, opener)
            yield from self._read_text_call(turn, header.strip())
        else:
            reader.taken = None
            reader.unread(opener)

    def _read_call(self, turn: ParseContext) -> Parsing[None]:
        reader = turn.reader
        yield from reader.read_spaces()
        yield from read_envelope(turn, _KEYS, terminals(_END))
        yield from turn.close((_END,), surplus=("}", "]"))

    def _read_text_call(self, turn: ParseContext, name: str) -> Parsing[None]:
        """Read a call with text input, of the tool in the header; the text is its argument `text`."""
        reader, writer = turn.reader, turn.writer
        turn.start_call(name)
        pieces: list[str] = []
        turn.spans.begin_arguments()
        end = yield from reader.read_until(terminals(_END), pieces.append)
        turn.spans.end_arguments(len(end or ""))
        text = "".join(pieces)
        writer.begin_argument("text")
        writer.add_raw(dumps(text))
        writer.end_argument("text", text)
        writer.end_object("complete" if end else "truncated", reader.position)

    def write(self, calls: Sequence[ToolCall]) -> str:
        return "".join(
            f'{_MESSAGE}{call.name}{_CALL}{{"name": {dumps(call.name)}, "args": {write_arguments(call)}}}{_END}'
            for call in calls
        )

    def template(self) -> CallTemplate:
        """Return the text of `write` as data. The name in the header is ignored by the parser, so it is free."""
        call = (_MESSAGE, NAME, _CALL, '{"name": ', JSON_NAME, ', "args": ', ARGUMENTS, "}", _END)
        return CallTemplate(call, JsonArguments(), trigger=_CALL, forbidden=(_TEXT_CALL,))


_OPEN, _EVERYBODY = ">>>", "all"
_NAME = re.compile(r"[\w.:/-]+").fullmatch


class RecipientCalls(StyleBase, frozen=True):
    """`>>>NAME`, a line break, JSON."""

    def openers(self, offered: OfferedTools) -> tuple[str, ...]:  # the protocol passes `offered`
        return (_OPEN,)

    def weak_openers(self, offered: OfferedTools) -> tuple[str, ...]:
        return tuple(f"{name}\n" for name in (_EVERYBODY, *offered.names))

    def read(self, turn: ParseContext, opener: str) -> Parsing[None]:
        """Read one message: text to `all` is left to the turn parser, any other recipient is a tool.

        Raise Truncated if the text ends inside the recipient, and Malformed if it is none.
        """
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

    def openers(self, offered: OfferedTools) -> tuple[str, ...]:  # the protocol passes `offered`
        return tuple(f"\n{line}" for line in _LINES)

    def weak_openers(self, offered: OfferedTools) -> tuple[str, ...]:  # the protocol passes `offered`
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
        """Read the tool name and the input line. JSON input is the arguments; other input is one argument.

        Raise Malformed without a name or an input, and Truncated inside the name.
        """
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
        """Read the text up to the end of the input, as the only argument of the tool, and end the call.

        A tool with several parameters gets it as JSON text, which makes the call invalid if it is none.
        """
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
