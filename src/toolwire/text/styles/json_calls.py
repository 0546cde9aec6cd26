"""Calls as JSON: one object in tags, several in an array, or bare at the start of the message."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.parts import ToolCall
from ...ir.text import dumps
from ..engine.envelope import CallFields, read_envelope
from ..engine.offered_tools import OfferedTools
from ..engine.reader import Parsing, Terminals, terminals
from ..engine.style import (
    ARGUMENTS,
    JSON_NAME,
    CallTemplate,
    JsonArguments,
    ParseContext,
    Slot,
    StyleBase,
    write_arguments,
)


class JsonCalls(StyleBase, frozen=True):
    """`open` call objects `close`. Several calls are an array, a sequence, or each in its own tags.

    The fence of a code block in `open` is a weak opener: the block may contain other JSON, which is text.
    """

    open: tuple[str, ...] = ()
    close: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()  # "{" or "[": a message that begins with it may be a call
    bare_inline: tuple[str, ...] = ()  # the same, after other text
    keys: CallFields = CallFields()
    array: bool = False  # several calls are written as one array
    layout: tuple[str, str, str] = ("[", ", ", "]")  # the text before, between and after the items of the array
    shared_tags: bool = False  # several calls are written in one pair of tags
    between: str = "\n"  # the text between two calls
    separators: tuple[str, ...] = (";", ",")
    pad: tuple[str, str] = ("", "")  # the text after the opening and before the closing tag
    write_open: bool = True

    def openers(self, offered: OfferedTools) -> tuple[str, ...]:  # the protocol passes `offered`
        return tuple(tag for tag in self.open if not _is_fence(tag))

    def weak_openers(self, offered: OfferedTools) -> tuple[str, ...]:  # the protocol passes `offered`
        return (*self.bare, *self.inline_openers(offered))

    def inline_openers(self, offered: OfferedTools) -> tuple[str, ...]:
        fences = tuple(filter(_is_fence, self.open))
        return (*fences, *self.bare_inline) if offered else fences

    def read(self, turn: ParseContext, opener: str) -> Parsing[None]:
        """Read calls after an opener. A bare opener is part of the JSON, so it is unread first."""
        reader = turn.reader
        bare = opener in self.bare or opener in self.bare_inline
        if bare:
            reader.unread(opener)
        yield from reader.read_spaces()
        while not bare and (yield from reader.read_one_of(self.open)):  # the opener is repeated
            turn.writer.add_diagnostic("malformed", reader.position, f"{opener!r} is repeated")
            yield from reader.read_spaces()
        array = (yield from reader.read_one_of(("[",))) is not None
        yield from self.read_objects(turn, array=array, bare=bare, sure=not (bare or _is_fence(opener)))

    def read_objects(self, turn: ParseContext, *, array: bool, bare: bool = False, sure: bool = True) -> Parsing[None]:
        """Read the calls of an opened array, or a sequence of calls.

        If not `sure`, they may be ordinary JSON, and an object must look like a call.
        """
        if array:
            yield from self._read_array(turn, sure=sure)
        more = not array
        while more:
            yield from read_envelope(turn, self.keys, self._give_up, is_certain=sure)
            more = yield from self._read_after_object(turn, closed=bare)
        if array:
            yield from self._read_after_object(turn, closed=bare)

    def _read_array(self, turn: ParseContext, *, sure: bool) -> Parsing[None]:
        """Read the calls of an array after its bracket. A missing comma or closing bracket is reported."""
        reader = turn.reader
        yield from reader.read_spaces()
        found = yield from reader.read_one_of(("]",))
        while found is None or found == ",":
            yield from read_envelope(turn, self.keys, self._give_up, is_certain=sure)
            reader.taken = []
            spaces = yield from reader.read_spaces()
            found = yield from reader.read_one_of(("]", ",", "[", "{"))
            if found in ("[", "{"):  # the array or the next call begins without a comma
                turn.report_unclosed("a comma between two calls")
                reader.unread("{" if found == "{" else "")
                found = ","
            if found is None:
                turn.report_unclosed("the bracket after the calls")
                reader.unread(spaces)  # they belong to the text that follows
                break
            if found == ",":
                yield from reader.read_spaces()

    def _read_after_object(self, turn: ParseContext, *, closed: bool) -> Parsing[bool]:
        """Read up to the closing tag; return True if another call comes before it."""
        reader = turn.reader
        surplus = ("}", "]") if self.close else ()
        found = yield from turn.read_next((*self.separators, *self.close, "{"), surplus=surplus)
        if found in self.separators:
            yield from reader.read_spaces()
            found = yield from reader.read_one_of((*self.close, "{"))
            if found is None and (reader.finished or reader.at < len(reader.text)):
                turn.writer.add_text("".join(reader.taken or ()))
        if found == "{":
            reader.unread(found)
            return True
        reader.taken = None
        if found is None and self.close and not closed:
            turn.report_unclosed(self.close[0])
        return False

    @property
    def _give_up(self) -> Terminals:
        return terminals(*self.close, *self.open)

    def write(self, calls: Sequence[ToolCall]) -> str:
        """Write all calls: as one array, as a sequence, or each in its own tags."""
        objects = [self._write_object(call, number) for number, call in enumerate(calls)]
        start = self.open[0] if self.open and self.write_open else ""
        end = self.close[0] if self.close and self.write_open else ""
        before, after = f"{start}{self.pad[0]}", f"{self.pad[1]}{end}"
        if self.array:
            first, between, last = self.layout
            return f"{before}{first}{between.join(objects)}{last}{after}"
        if self.shared_tags or (not self.close and not self.pad[0]):
            return before + self.between.join(objects) + after
        return self.between.join(f"{before}{text}{after}" for text in objects)

    def _write_object(self, call: ToolCall, number: int) -> str:
        """Write one call with the keys of the format; `number` is the id if one must come first."""
        text = write_arguments(call)
        keys = self.keys
        if keys.name_is_key:
            return f"{{{dumps(call.name)}: {text}}}"
        body = f'"{keys.name[0]}": {dumps(call.name)}, "{keys.arguments[0]}": {text}'
        if keys.id_last and call.id:
            return f'{{{body}, "{keys.id[0]}": {dumps(call.id)}}}'
        if keys.id_first:
            return f'{{"{keys.id[0]}": {dumps(call.id or str(number))}, {body}}}'
        return f"{{{body}}}"

    def template(self) -> CallTemplate:
        """Return the text of `write` as data."""
        start = self.open[0] if self.open and self.write_open else ""
        end = self.close[0] if self.close and self.write_open else ""
        before, between, after = f"{start}{self.pad[0]}", self.between, f"{self.pad[1]}{end}"
        if self.array:
            first, between, last = self.layout
            before, after = before + first, last + after
        elif not (self.shared_tags or (not self.close and not self.pad[0])):
            between = f"{after}{between}{before}"
        return CallTemplate(
            self._object_template(),
            JsonArguments(),
            before,
            between,
            after,
            trigger=start,
            only_at_start=not start and not self.bare_inline,
            closed=bool(end),
            forbidden=tuple(tag for tag in (*self.open, *self.bare_inline) if not _is_fence(tag)),
            forbidden_start=self.bare,
        )

    def _object_template(self) -> tuple[str | Slot, ...]:
        """Return the parts of one call object, as `_write_object` writes them."""
        keys = self.keys
        if keys.name_is_key:
            return "{", JSON_NAME, ": ", ARGUMENTS, "}"
        body = (f'"{keys.name[0]}": ', JSON_NAME, f', "{keys.arguments[0]}": ', ARGUMENTS)
        if keys.id_last:
            return "{", *body, Slot("pattern", f', "{keys.id[0]}": "[a-zA-Z0-9]{{9}}"', optional=True), "}"
        if keys.id_first:
            return f'{{"{keys.id[0]}": "', Slot("pattern", "[a-zA-Z0-9_]{1,40}"), '", ', *body, "}"
        return "{", *body, "}"


def _is_fence(opener: str) -> bool:
    return opener.startswith("```")
