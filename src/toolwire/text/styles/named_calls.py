"""Calls whose tags are the names themselves: `<tool><key>value</key></tool>`. Only offered names are recognised."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.parts import ToolCall
from ...ir.text import dumps
from ..engine.call_template import ARGUMENTS, NAME, CallTemplate, TagArguments
from ..engine.offered_tools import OfferedTools
from ..engine.raw_value import ValueTags, read_raw_value
from ..engine.reader import Parsing, Truncated, terminals
from ..engine.style import ParseContext, StyleBase
from ..engine.written_json import write_json

__all__ = ["NamedCalls"]


class NamedCalls(StyleBase, frozen=True):
    """One call per turn; one line break on each side of a value belongs to its tags."""

    def openers(self, offered: OfferedTools) -> tuple[str, ...]:
        return tuple(f"<{name}>" for name in offered.names)

    def read(self, turn: ParseContext, opener: str) -> Parsing[None]:
        """Read the call whose opening tag is the name of an offered tool."""
        name = opener[1:-1]
        turn.spans.mark_name(turn.reader.position - len(opener) + 1, turn.reader.position - 1)
        turn.start_call(name)
        try:
            yield from self._read_arguments(turn, name)
        except Truncated:
            turn.writer.end_object("truncated", turn.reader.position)
            raise
        turn.writer.end_object("complete", turn.reader.position)

    def _read_arguments(self, turn: ParseContext, name: str) -> Parsing[None]:
        """Read arguments up to the closing tag. Each parameter of the tool is accepted once."""
        reader = turn.reader
        remaining = list(turn.offered.keys(name) or ())
        closing = f"</{name}>"
        while True:
            yield from reader.read_spaces()
            tags = (closing, *(f"<{key}>" for key in remaining))
            found = yield from reader.read_one_of(tags)
            if found == closing:
                return
            if found is not None:
                remaining.remove(found[1:-1])
                turn.spans.begin_arguments(len(found))
                yield from self._read_argument(turn, name, found[1:-1], remaining)
                turn.spans.end_arguments()
            elif self._is_stopped(turn, name, closing, remaining):
                turn.report_unclosed(closing)
                return
            else:
                yield from self._skip_unknown(turn, tags)

    def _is_stopped(self, turn: ParseContext, name: str, closing: str, remaining: list[str]) -> bool:
        """Return whether generation ended at the stop sequence, or directly before it."""
        reader = turn.reader
        given = {key for key in turn.offered.keys(name) or () if key not in remaining}
        cut = reader.ended and reader.finished and closing.startswith(reader.text[reader.at :])
        return cut and turn.offered.has_required(name, given)

    def _skip_unknown(self, turn: ParseContext, tags: tuple[str, ...]) -> Parsing[None]:
        """Skip and report text that is not an argument of this tool."""
        reader = turn.reader
        pieces: list[str] = []
        found = yield from reader.read_until(terminals(*tags), pieces.append)
        if pieces:
            turn.writer.add_diagnostic("malformed", reader.position, f"{''.join(pieces)[:200]!r} is not an argument")
        if found is None:
            raise Truncated("the text ends between two arguments")
        reader.unread(found)

    def _read_argument(self, turn: ParseContext, name: str, key: str, remaining: list[str]) -> Parsing[None]:
        """Read one value; `remaining` are the parameters that may follow it. A string streams as it arrives."""
        reader, writer = turn.reader, turn.writer
        yield from reader.read_one_of(("\r\n", "\n"))
        others = tuple(f"<{other}>" for other in remaining)
        # Parameters have common names (<path>, <title>): such a tag inside a value does not end it.
        frame = ValueTags(f"</{key}>", f"<{name}>", others, f"</{name}>", newline=True, eager=True, implicit=False)
        types = turn.offered.types(name, key)
        streams = types == frozenset({"string"})
        pieces: list[str] = []
        writer.begin_argument(key)
        if streams:
            writer.add_json('"')

        def sink(piece: str) -> None:
            pieces.append(piece)
            if streams:
                writer.add_string(piece)

        closed = yield from read_raw_value(reader, frame, _is_any_key, sink)
        if not closed:
            if not streams:
                writer.add_broken_arguments("".join(pieces))
            raise Truncated("the text ends inside an argument")
        if closed != frame.value_close:
            turn.report_unclosed(frame.value_close)
        value = turn.convert("".join(pieces), types)
        writer.add_json('"' if streams else dumps(value))
        writer.end_argument(key, value)

    def write(self, calls: Sequence[ToolCall]) -> str:
        return "\n".join(map(_write_call, calls))

    def template(self) -> CallTemplate:
        """Return the text of `write` as data."""
        arguments = TagArguments(
            "\n<{key}>", "</{key}>", ("</{key}>", "<{name}>", "</{name}>"), trims_lines=True, drops_return=True
        )
        return CallTemplate(("<", NAME, ">", ARGUMENTS, "\n</", NAME, ">"), arguments, between="\n")


def _is_any_key(text: str, at: int, is_certain: bool) -> bool:
    del text, at, is_certain
    return True


def _write_call(call: ToolCall) -> str:
    lines = [f"<{call.name}>"]
    for key, value in (call.arguments or {}).items():
        lines.append(f"<{key}>{value if isinstance(value, str) else write_json(value)}</{key}>")
    return "\n".join([*lines, f"</{call.name}>"])
