"""Calls with a name and a literal of the format's own language: `call:f{a:<|"|>x<|"|>}`."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.parts import ToolCall
from ..engine.call_template import ARGUMENTS, NAME, CallTemplate, LiteralArguments
from ..engine.literal import GEMMA, LiteralSyntax, read_key, read_literal, write_literal
from ..engine.offered_tools import OfferedTools
from ..engine.reader import Malformed, Parsing, Truncated, terminals
from ..engine.style import ParseContext, StyleBase

__all__ = ["LiteralCalls"]


class LiteralCalls(StyleBase, frozen=True):
    """`open` `prefix` NAME {…} `close`."""

    open: str
    close: str
    prefix: str = "call:"
    language: LiteralSyntax = GEMMA

    def openers(self, offered: OfferedTools) -> tuple[str, ...]:  # required by the protocol
        return (self.open,)

    def read(self, turn: ParseContext, opener: str) -> Parsing[None]:  # required by the protocol
        """Read one call. Malformed arguments make it invalid, and the text up to `close` is skipped."""
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
            yield from reader.read_until(terminals(self.close), writer.add_broken_arguments)
            writer.end_object("invalid", reader.position)
            return
        writer.end_object("complete", reader.position)
        yield from turn.close((self.close,))

    def _read_arguments(self, turn: ParseContext) -> Parsing[None]:
        """Read `key:value` pairs up to the closing brace."""
        reader = turn.reader
        given = 0
        yield from reader.read_spaces()
        while (yield from reader.read_one_of(("}",))) is None:
            if given:
                yield from reader.expect(",")
            key = yield from read_key(reader, self.language)
            turn.writer.begin_argument(key)
            turn.writer.end_argument(key, (yield from read_literal(reader, self.language, turn.writer.add_json)))
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
