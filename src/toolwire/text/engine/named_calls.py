"""Calls whose tags are the names themselves: `<tool><key>value</key></tool>`. Only names that were offered count."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.parts import ToolCall
from ...ir.text import dumps
from .offered import Offered, typed
from .raw_value import Frame, raw_value
from .reader import Steps, Truncated
from .style import StyleBase, Turn

__all__ = ["NamedCalls"]


class NamedCalls(StyleBase, frozen=True):
    """One call a turn; one line break on each side of a value belongs to its tags."""

    def openers(self, offered: Offered) -> tuple[str, ...]:
        return tuple(f"<{name}>" for name in offered.names)

    def read(self, turn: Turn, opener: str) -> Steps[None]:
        name = opener[1:-1]
        turn.start_call(name)
        try:
            yield from self._arguments(turn, name)
        except Truncated:
            turn.writer.end_object("truncated", turn.reader.position)
            raise
        turn.writer.end_object("complete", turn.reader.position)

    def _arguments(self, turn: Turn, name: str) -> Steps[None]:
        reader = turn.reader
        left = list(turn.offered.keys(name) or ())
        closing = f"</{name}>"
        while True:
            yield from reader.spaces()
            found = yield from reader.one_of((closing, *(f"<{key}>" for key in left)))
            if found == closing:
                return
            if found is None:
                if self._stopped(turn, name, closing, left):
                    turn.unclosed(closing)
                    return
                yield from self._unknown(turn, closing)
                continue
            key = found[1:-1]
            left.remove(key)
            yield from self._argument(turn, name, key, left)

    def _stopped(self, turn: Turn, name: str, closing: str, left: list[str]) -> bool:
        """Generation ended at the stop mark, or right before it."""
        reader = turn.reader
        given = {key for key in turn.offered.keys(name) or () if key not in left}
        cut = reader.ended and reader.finished and closing.startswith(reader.text[reader.at :])
        return cut and turn.offered.satisfied(name, given)

    def _unknown(self, turn: Turn, closing: str) -> Steps[None]:
        """A line that is no argument of this tool: skipped, and said so."""
        reader = turn.reader
        if reader.ended and reader.at == len(reader.text):
            raise Truncated("the text stops between two arguments")
        start = reader.position
        following = yield from reader.peek(len(closing))
        if following != closing:
            reader.take_to(reader.at + 1)
            turn.writer.note("malformed", start, f"{following!r} is not an argument")

    def _argument(self, turn: Turn, name: str, key: str, left: list[str]) -> Steps[None]:
        reader, writer = turn.reader, turn.writer
        yield from reader.one_of(("\r\n", "\n"))
        frame = Frame(
            f"</{key}>", f"<{name}>", tuple(f"<{other}>" for other in left), f"</{name}>", newline=True, eager=True
        )
        types = turn.offered.types(name, key)
        streams = types == frozenset({"string"})
        pieces: list[str] = []
        writer.begin_argument(key)
        if streams:
            writer.json('"')

        def sink(piece: str) -> None:
            pieces.append(piece)
            if streams:
                writer.string(piece)

        if not (yield from raw_value(reader, frame, _always, sink)):
            raise Truncated("the text stops inside of an argument")
        value = typed("".join(pieces), types)
        writer.json('"' if streams else dumps(value))
        writer.end_argument(key, value)

    def write(self, calls: Sequence[ToolCall]) -> str:
        return "\n".join(map(_write_call, calls))


def _always(text: str, at: int, surely: bool) -> bool:
    del text, at, surely
    return True


def _write_call(call: ToolCall) -> str:
    lines = [f"<{call.name}>"]
    for key, value in (call.arguments or {}).items():
        lines.append(f"<{key}>{value if isinstance(value, str) else dumps(value)}</{key}>")
    return "\n".join([*lines, f"</{call.name}>"])
