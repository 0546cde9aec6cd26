"""Calls whose tags are names: of the tool and its parameters, or of the keys of nested values.

Only offered names are recognised as tags, or only tags after a token that no value contains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.parts import ToolCall
from ...ir.pointer import JSON, Object
from ...ir.text import dumps
from ..engine.event_builder import EventBuilder
from ..engine.offered_tools import OfferedTools, Types, child_schema, schema_types
from ..engine.raw_value import ValueTags, read_raw_value
from ..engine.reader import Malformed, Parsing, Truncated, terminals
from ..engine.style import (
    ARGUMENTS,
    NAME,
    CallTemplate,
    NestedArguments,
    ParseContext,
    StyleBase,
    TagArguments,
    write_json,
)

# Calls whose tags are the names themselves: `<tool><key>value</key></tool>`. Only offered names are recognised.


class NamedCalls(StyleBase, frozen=True):
    """One call per turn; one line break on each side of a value belongs to its tags."""

    def openers(self, offered: OfferedTools) -> tuple[str, ...]:
        return tuple(f"<{name}>" for name in offered.names)

    def read(self, turn: ParseContext, opener: str) -> Parsing[None]:
        """Read the call whose opening tag is the name of an offered tool.

        Raise Truncated, after the call has ended as truncated, if the text ends in it.
        """
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
        """Skip and report text up to one of `tags` that is not an argument of this tool; Truncated without a tag."""
        reader = turn.reader
        pieces: list[str] = []
        found = yield from reader.read_until(terminals(*tags), pieces.append)
        if pieces:
            turn.writer.add_diagnostic("malformed", reader.position, f"{''.join(pieces)[:200]!r} is not an argument")
        if found is None:
            raise Truncated("the text ends between two arguments")
        reader.unread(found)

    def _read_argument(self, turn: ParseContext, name: str, key: str, remaining: list[str]) -> Parsing[None]:
        """Read one value; `remaining` are the parameters that may follow it. A string streams as it arrives.

        Raise Truncated if the text ends inside it.
        """
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
            writer.add_raw('"')

        def sink(piece: str) -> None:
            pieces.append(piece)
            if streams:
                writer.add_string(piece)

        closed = yield from read_raw_value(reader, frame, _is_any_key, sink)
        if not closed:
            if not streams:
                writer.add_raw("".join(pieces))
            raise Truncated("the text ends inside an argument")
        if closed != frame.value_close:
            turn.report_unclosed(frame.value_close)
        value = turn.convert("".join(pieces), types)
        writer.add_raw('"' if streams else dumps(value))
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


_DEPTH = 64  # as in engine/literal.py
_ITEM = "item"
_TEXT = frozenset({"string"})


class NestedCalls(StyleBase, frozen=True):
    """`mark`<tool_call> `mark`<invoke name="N"> `mark`<key>value`mark`</key> … ; a list is a sequence of <item>."""

    mark: str
    section: str = "tool_call"
    call: str = "invoke"

    def openers(self, offered: OfferedTools) -> tuple[str, ...]:  # the protocol passes `offered`
        return (f"{self.mark}<{self.section}>",)

    def read(self, turn: ParseContext, opener: str) -> Parsing[None]:  # the protocol passes `opener`
        """Read all calls of a section up to its closing tag; report a section without one.

        Raise Malformed if no call follows the opener, and Truncated if the text ends inside of a call.
        """
        reader = turn.reader
        opening, closing = f'{self.mark}<{self.call} name="', f"{self.mark}</{self.section}>"
        yield from reader.read_spaces()
        yield from reader.expect(opening)
        while True:
            yield from self._read_call(turn)
            found = yield from turn.read_next((opening, closing))
            if found != opening:
                break
        reader.taken = None  # the tags are markup: nothing of them is emitted as text
        if found is None:  # neither tag follows
            turn.report_unclosed(closing)

    def _read_call(self, turn: ParseContext) -> Parsing[None]:
        """Read one call. Malformed arguments make it invalid, and the text up to its closing tag is skipped.

        Raise Malformed for an invalid name, and Truncated, after the call has ended as truncated, if the text ends in
        it.
        """
        reader, writer = turn.reader, turn.writer
        turn.spans.begin_call(len(f'{self.mark}<{self.call} name="'))
        name, end = yield from reader.read_word(terminals('">', "<", "\n"))
        if end is None:
            raise Truncated("the text ends inside a call's name")
        if end != '">' or not name:
            raise Malformed(f"{name!r} is not a tool name")
        turn.spans.mark_word(name, end)
        turn.start_call(name)
        schema = turn.offered.schema(name)
        try:
            while (key := (yield from self._read_tag(turn))) != f"/{self.call}":
                if key.startswith("/"):
                    raise Malformed(f"<{key}> closes nothing")
                turn.spans.begin_arguments(len(f"{self.mark}<{key}>"))
                yield from self._read_argument(turn, key, schema)
                turn.spans.end_arguments()
        except Truncated:
            writer.end_object("truncated", reader.position)
            raise
        except Malformed as error:
            writer.add_diagnostic("malformed", reader.position, str(error))
            yield from reader.read_until(terminals(f"{self.mark}</{self.call}>"), writer.add_raw)
            writer.end_object("invalid", reader.position)
            return
        writer.end_object("complete", reader.position)

    def _read_argument(self, turn: ParseContext, key: str, schema: Object) -> Parsing[None]:
        """Read one argument.

        If its value is malformed, emit its key, so that the text shows it, and raise Malformed.
        """
        output = _ArgumentOutput(
            turn.writer, key, streams=schema_types(child_schema(schema, key, schema), schema) == _TEXT
        )
        try:
            value = yield from self._read_value(turn, key, child_schema(schema, key, schema), schema, output)
        except Malformed:
            output.abandon()
            raise
        output.end(value)

    def _read_tag(self, turn: ParseContext) -> Parsing[str]:
        """Read the next tag, without its brackets. Raise Truncated if it has no end."""
        yield from turn.reader.read_spaces()
        yield from turn.reader.expect(f"{self.mark}<")
        tag, end = yield from turn.reader.read_word(terminals(">"))
        if end is None:
            raise Truncated("the text ends inside a tag")
        return tag

    def _read_value(
        self,
        turn: ParseContext,
        key: str,
        schema: Any,
        root: Any,
        output: _ArgumentOutput | None = None,
        depth: int = 0,
    ) -> Parsing[JSON]:
        """Read a value up to `</key>`: nested tags are an array or an object, text is converted by `schema`.

        `root` is the document that references in `schema` refer to. `output` receives the text of a top-level argument.
        Raise Malformed for other tags, mixed text and tags, or too many levels, and Truncated at the end of the text.
        """
        if depth > _DEPTH:
            raise Malformed(f"nested more than {_DEPTH} levels deep")
        pieces: list[str] = []

        def sink(piece: str) -> None:
            pieces.append(piece)
            if output is not None:
                output.append(piece)

        if (yield from turn.reader.read_until(terminals(self.mark), sink)) is None:
            raise Truncated("the text ends inside an argument")
        turn.reader.unread(self.mark)
        types = schema_types(schema, root)
        children: list[tuple[str, JSON]] = []
        while (tag := (yield from self._read_tag(turn))) != f"/{key}":
            if tag.startswith("/"):
                raise Malformed(f"<{tag}> where </{key}> is expected")
            inner = _inner_schema(schema, tag, types, root)
            children.append((tag, (yield from self._read_value(turn, tag, inner, root, depth=depth + 1))))
        text = "".join(pieces)
        if children and text.strip():
            raise Malformed(f"text and tags mixed in <{key}>")
        if children:
            return _combine(turn, children, types, declared=child_schema(schema, _ITEM, root) is not None)
        if not text and "string" not in types and ("array" in types or "object" in types):
            return [] if "array" in types else {}
        return turn.convert(text, types)

    def write(self, calls: Sequence[ToolCall]) -> str:
        body = "\n".join(self._write_call(call) for call in calls)
        return f"{self.mark}<{self.section}>\n{body}\n{self.mark}</{self.section}>"

    def _write_call(self, call: ToolCall) -> str:
        given = "".join(self._write_value(key, value) for key, value in (call.arguments or {}).items())
        return f'{self.mark}<{self.call} name="{call.name}">{given}{self.mark}</{self.call}>'

    def _write_value(self, key: str, value: JSON) -> str:
        """Write a value in its tag, with members and items as nested tags."""
        if isinstance(value, dict):
            inner = "".join(self._write_value(name, item) for name, item in value.items())
        elif isinstance(value, list):
            inner = "".join(self._write_value(_ITEM, item) for item in value)
        else:
            inner = value if isinstance(value, str) else write_json(value)
        return f"{self.mark}<{key}>{inner}{self.mark}</{key}>"

    def template(self) -> CallTemplate:
        """Return the text of `write` as data."""
        opening = f"{self.mark}<{self.section}>"
        return CallTemplate(
            (f'{self.mark}<{self.call} name="', NAME, '">', ARGUMENTS, f"{self.mark}</{self.call}>"),
            NestedArguments(self.mark, _ITEM),
            f"{opening}\n",
            "\n",
            f"\n{self.mark}</{self.section}>",
            trigger=opening,
        )


def _inner_schema(schema: Any, tag: str, types: Types, root: Any) -> Any:
    """Return the schema for a tag inside a value: of a member, of an item, or of either if both are possible."""
    if "array" not in types or (tag != _ITEM and "object" in types):
        return child_schema(schema, tag, root)
    found = [child_schema(schema, 0, root), child_schema(schema, tag, root) if "object" in types else None]
    return {"anyOf": found} if None not in found else found[0] or found[1]


def _combine(turn: ParseContext, children: list[tuple[str, JSON]], types: Types, *, declared: bool) -> JSON:
    """Return nested tags as an array or as an object, by the types that the schema allows.

    Where it allows both, a sequence of <item> is an array, except a single one that is a `declared` member. A member
    that is given several times is a list, and is reported.
    """
    are_items = all(tag == _ITEM for tag, _ in children)
    if "array" in types and "object" in types:
        is_array = are_items and (len(children) > 1 or not declared)
    elif "object" in types:
        is_array = False
    else:
        is_array = are_items or "array" in types
    if is_array:
        return [value for _, value in children]
    members: dict[str, list[JSON]] = {}
    for tag, value in children:
        members.setdefault(tag, []).append(value)
    for tag, values in members.items():
        if len(values) > 1:
            turn.writer.add_diagnostic(
                "malformed", turn.reader.position, f"<{tag}> is given {len(values)} times; it is read as a list"
            )
    return {tag: values if len(values) > 1 else values[0] for tag, values in members.items()}


class _ArgumentOutput:
    """Emit an argument: a string from its first character on, any other value when it is complete."""

    def __init__(self, writer: EventBuilder, key: str, *, streams: bool) -> None:
        self.writer = writer
        self.key = key
        self.streams = streams
        self.has_begun = False
        self.held: list[str] = []  # text that is not emitted yet: a value, or white space before a string

    def begin(self) -> None:
        if not self.has_begun:
            self.has_begun = True
            self.writer.begin_argument(self.key)

    def append(self, piece: str) -> None:
        """Emit more of a string. White space is held until text follows, because nested tags may follow it."""
        if not self.streams or (not self.has_begun and piece.isspace()):
            self.held.append(piece)
            return
        if not self.has_begun:
            self.begin()
            self.writer.add_raw('"')
            self.writer.add_string("".join(self.held))
        self.writer.add_string(piece)

    def abandon(self) -> None:
        """Emit the key and the raw text of a value that is malformed or truncated."""
        if not self.has_begun:
            self.begin()
            self.writer.add_raw("".join(self.held))

    def end(self, value: JSON) -> None:
        """Close a string that was emitted piece by piece, or emit the whole value."""
        if self.has_begun:
            self.writer.add_raw('"')
        else:
            self.begin()
            self.writer.add_raw(dumps(value))
        self.writer.end_argument(self.key, value)
