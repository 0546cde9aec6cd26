"""Messages whose content has a type: text, thinking, or a call as JSON. The name in the header is ignored."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.parts import ToolCall
from ...ir.text import dumps
from ..engine.call_template import ARGUMENTS, JSON_NAME, NAME, CallTemplate, JsonArguments
from ..engine.envelope import CallFields, read_envelope
from ..engine.offered_tools import OfferedTools
from ..engine.reader import Malformed, Parsing, Truncated, terminals
from ..engine.style import ParseContext, StyleBase
from ..engine.written_json import write_arguments

__all__ = ["MessageCalls"]

_MESSAGE, _END = "<|message_model|>", "<|end_message|>"
_CALL, _TEXT_CALL = "<|content_invoke_tool_json|>", "<|content_invoke_tool_text|>"
_TEXT, _THINKING = "<|content_text|>", "<|content_thinking|>"
_KEYS = CallFields(arguments=("args", "arguments", "parameters"))


class MessageCalls(StyleBase, frozen=True):
    """`<|message_model|>NAME<|content_invoke_tool_json|>{"name": …, "args": …}<|end_message|>`."""

    def openers(self, offered: OfferedTools) -> tuple[str, ...]:  # required by the protocol
        return (_MESSAGE, _CALL, _TEXT_CALL)

    def weak_openers(self, offered: OfferedTools) -> tuple[str, ...]:
        return tuple(f"{name}{_CALL}" for name in offered.names)  # the prompt may contain the start of the message

    def read(self, turn: ParseContext, opener: str) -> Parsing[None]:
        """Read one message by its content type; text and thinking are left to the turn parser."""
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
        """Read a call with text input, of the tool in the header."""
        reader, writer = turn.reader, turn.writer
        turn.start_call(name)
        pieces: list[str] = []
        turn.spans.begin_arguments()
        end = yield from reader.read_until(terminals(_END), pieces.append)
        turn.spans.end_arguments(len(end or ""))
        text = "".join(pieces)
        writer.begin_argument("text")
        writer.add_json(dumps(text))
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
