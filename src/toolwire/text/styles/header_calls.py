"""Calls with the name in a header, followed by the arguments as JSON: `open NAME name_end {…} close`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...ir.parts import ToolCall
from ...stream.strict import parse_arguments
from ..engine.envelope import read_arguments
from ..engine.json_end_scanner import read_json_value
from ..engine.offered_tools import OfferedTools
from ..engine.reader import Malformed, Parsing, Truncated, terminals
from ..engine.style import ARGUMENTS, NAME, CallTemplate, JsonArguments, ParseContext, Slot, StyleBase, write_arguments

_FENCE = "```"
_NUMBER = Slot("pattern", "[0-9]{1,4}")
_ID = Slot("pattern", "[a-zA-Z0-9]{9,10}")


class HeaderCalls(StyleBase, frozen=True):
    """`section_open` and `section_close` enclose all calls of a turn; they are special tokens, not text.

    `header` parses the text before `name_end`: it must match, with a group `name` and optionally a group `id`.
    """

    open: tuple[str, ...]
    name_end: tuple[str, ...]
    close: tuple[str, ...] = ()
    section_open: str = ""
    section_close: str = ""
    header: str = r"\s*(?P<name>[^\s<>{}\[\]]+)\s*"
    write_header: str = "{name}"
    between: str = ""

    def openers(self, offered: OfferedTools) -> tuple[str, ...]:  # the protocol passes `offered`
        return self.open

    def read(self, turn: ParseContext, opener: str) -> Parsing[None]:
        """Read one call; Malformed if its header is none, and Truncated if the text ends inside of it.

        A model may leave out `name_end`, so the brace of the arguments also ends the header.
        """
        reader = turn.reader
        header, terminal = yield from reader.read_word(terminals(*self.name_end, "{", *self.close))
        if terminal is None:
            raise Truncated("the text ends inside a call's header")
        found = re.fullmatch(self.header, header) or re.fullmatch(r"\s*(?P<name>[^\s<>{}]+)\s*", header)
        if found is None:
            raise Malformed(f"{header!r} is not the header of a call")
        fields = found.groupdict()
        if fields.get("name"):
            start = reader.position - len(terminal) - len(header)
            turn.spans.mark_name(start + found.start("name"), start + found.end("name"))
        if terminal == "{":
            reader.unread(terminal)
        if fields.get("name"):
            turn.start_call(fields["name"], fields.get("id") or "")
            yield from self._read_arguments(turn, terminal)
        else:
            yield from self._read_nameless(turn, header)
            yield from self._read_after(turn, terminal)

    def _read_arguments(self, turn: ParseContext, name_end: str) -> Parsing[None]:
        """Read the arguments and the closer, which may be the text after the name, `name_end`."""
        yield from turn.reader.read_spaces()
        if name_end in self.close or (yield from turn.reader.read_one_of(self.close)):
            turn.writer.end_json(turn.reader.position)
            return
        yield from read_arguments(turn, terminals(*self.close, *self.open, self.section_close))
        yield from self._read_after(turn, name_end)

    def _read_nameless(self, turn: ParseContext, header: str) -> Parsing[None]:
        """Read arguments after a header without a name, and emit a call of the only offered tool that accepts them.

        If there are none or several, the header is the name.
        """
        pieces: list[str] = []
        turn.spans.begin_arguments()
        yield from read_json_value(turn.reader, pieces.append)
        raw_arguments, _ = parse_arguments("".join(pieces))
        fitting = [
            name for name in turn.offered.names if all(turn.offered.may_have(name, key) for key in raw_arguments or ())
        ]
        turn.start_call(fitting[0] if raw_arguments is not None and len(fitting) == 1 else header.strip())
        turn.writer.add_json_arguments("".join(pieces))
        turn.writer.end_json(turn.reader.position)

    def _read_after(self, turn: ParseContext, name_end: str) -> Parsing[None]:
        """Read the closer. Arguments in a code block end with its fence, also if the rest of the closer is missing."""
        if self.close:
            yield from turn.close(self.close, surplus=("}", "]"), fence=_FENCE if _FENCE in name_end else "")

    def write(self, calls: Sequence[ToolCall]) -> str:
        written = [self._write_call(call, number) for number, call in enumerate(calls)]
        return f"{self.section_open}{self.between.join(written)}{self.section_close}"

    def _write_call(self, call: ToolCall, number: int) -> str:
        """Write one call. An id that is itself a header, as in formats that number the calls, is kept."""
        said = re.fullmatch(self.header, call.id)
        if said is not None and said["name"] == call.name:
            header = call.id  # the id has name and number, counted over the conversation
        else:
            header = self.write_header.format(name=call.name, id=call.id, number=number)
        text = write_arguments(call)
        return f"{self.open[0]}{header}{self.name_end[0]}{text}{self.close[0] if self.close else ''}"

    def template(self) -> CallTemplate:
        """Return the text of `write` as data."""
        slots = {"{name}": NAME, "{number}": _NUMBER, "{id}": _ID}
        header = [slots.get(part, part) for part in re.split(r"(\{\w+\})", self.write_header) if part]
        closing = self.close[0] if self.close else ""
        call = (self.open[0], *header, self.name_end[0], ARGUMENTS, closing)
        opener = self.section_open or self.open[0]
        return CallTemplate(
            call,
            JsonArguments(),
            self.section_open,
            self.between,
            self.section_close,
            trigger=opener,
            closed=bool(self.close),
            forbidden=tuple(tag for tag in self.open if tag != opener),
        )
