"""Calls in tags, each argument as raw text between its tags (see `raw_value`); and tags that several formats share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Any, Literal

from ...ir.parts import ToolCall
from ...ir.pointer import JSON
from ...ir.text import dumps
from ..engine.envelope import CallFields, read_envelope
from ..engine.json_end_scanner import read_json_value
from ..engine.offered_tools import ANY, OfferedTools, Types, json_type
from ..engine.raw_value import ValueTags, find_attributes, parse_attributes, read_raw_value, report_head
from ..engine.reader import ForeignFormat, Malformed, Parsing, Truncated, terminals
from ..engine.style import (
    ARGUMENTS,
    ATTRIBUTE_NAME,
    NAME,
    CallTemplate,
    ParseContext,
    Slot,
    StyleBase,
    TagArguments,
    write_json,
)

_PLAIN_TAG = re.compile(r"<\w+>").fullmatch
_NO_NAME = re.compile(r"[<>{}\s`]").search
_TYPE_NAMES = {"integer": "number"}
_TEXT = frozenset({"string"})
_NOT_TEXT = frozenset({"null", "boolean", "integer", "number", "object", "array"})
_TYPES = _TEXT | _NOT_TEXT
_JSON_BEGINS = frozenset('[{"-+.0123456789tfnTFN \t\r\n')


class TaggedCalls(StyleBase, frozen=True):
    """`call_open` NAME `head_end` (`key_open` KEY `key_end` [`value_open`] VALUE `value_close`)* `call_close`.

    Calls may be inside a section; `bare` calls may also be outside one.
    """

    call_open: str
    call_close: str
    key_open: str
    value_close: str
    value_open: str = ""
    section_open: str = ""
    section_close: str = ""
    bare: bool = False
    own_section: bool = False  # each call is written in its own section
    index_attribute: str = ""  # the number of the call, counted from one
    head_end: str = ">"
    key_end: str = ">"
    attribute: str = ""  # NAME is in this attribute of the tag; "" if it is the text itself
    key_attribute: str = ""
    type_attribute: Literal["", "string", "type"] = ""
    type_tags: tuple[str, str] | None = None  # tags around the type, which may precede `value_open`
    trim: bool = False  # one line break on each side of a value belongs to the tags
    cdata: bool = False
    json_body: bool = False  # one JSON object is accepted instead of arguments in tags
    json_tags: tuple[str, str] = ("", "")  # the tags around such an object; the first one ends with `key_end`
    one: bool = False  # one call per turn; its closer is the stop sequence
    line: str = "\n"  # the text between tags
    between: str = ""  # the text between two calls, if there is none between tags

    def openers(self, offered: OfferedTools) -> tuple[str, ...]:  # the protocol passes `offered`
        if not self.section_open:
            return (self.call_open,)
        return (self.section_open, self.call_open) if self.bare else (self.section_open,)

    def read(self, turn: ParseContext, opener: str) -> Parsing[None]:
        """Read a bare call, or all calls of a section up to its closer.

        Raise ForeignFormat for JSON where the format has none.
        """
        reader = turn.reader
        if opener != self.section_open:
            yield from self._read_call(turn, in_section=False)
            yield from self._read_missing_closer(turn)
            return
        yield from reader.read_spaces()
        if self._drops_empty_section and (yield from reader.read_one_of((self.section_close,))) is not None:
            turn.writer.add_diagnostic("malformed", reader.position, f"there is no call in {opener}")
            reader.taken = None
            return
        object_follows = (yield from reader.peek()) == "{"
        if object_follows and not self.json_body:
            raise ForeignFormat(f"expected {self.call_open} after {opener}, got a JSON object")
        if object_follows:
            yield from read_envelope(turn, CallFields(), terminals(self.section_close))
        else:
            yield from reader.expect(self.call_open)
            yield from self._read_call(turn, in_section=True)
        while True:
            found = yield from turn.read_next((self.section_close, self.call_open))
            if found != self.call_open:
                break
            yield from self._read_call(turn, in_section=True)
        reader.taken = None
        if found is None:
            turn.report_unclosed(self.section_close)

    @property
    def _drops_empty_section(self) -> bool:
        """True for tags that only a model writes. Plain ones, as `<tool_call></tool_call>`, may be text about calls."""
        return _PLAIN_TAG(self.section_open) is None

    def closers(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.value_close, self.call_close, self.section_close)))

    def markers(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.section_open, self.call_open, self.key_open, self.value_open)))

    def _read_missing_closer(self, turn: ParseContext) -> Parsing[None]:
        """Read the section's closer after a call whose section opener is missing."""
        if not self.section_close or self.one:
            return
        yield from turn.read_next((self.section_close,))
        turn.reader.taken = None

    def _read_call(self, turn: ParseContext, *, in_section: bool) -> Parsing[None]:
        """Read the name and the arguments of one call; raise Malformed if the tag is only mentioned in text."""
        reader = turn.reader
        turn.spans.begin_call(len(self.call_open))
        if not self.attribute:
            yield from reader.read_spaces()
            if self.json_body and (yield from reader.peek()) == "{":
                yield from read_envelope(turn, CallFields(), terminals(self.call_close))
                yield from turn.close((self.call_close,))
                return
        tags = terminals(self.head_end, self.key_open, self.call_close)
        head, end = yield from reader.read_word(tags)
        if end is None:
            complete = head[: tags.partial_start(head)].strip()
            prose = not self.attribute and bool(_NO_NAME(complete))
            raise (Malformed if prose else Truncated)("the text ends inside a call's name")
        self._mark_name(turn, head, end)
        if end != self.head_end:
            reader.unread(end)
        name = parse_attributes(head).get(self.attribute, "") if self.attribute else head.replace("\\n", "").strip()
        if not name or (_NO_NAME(name) and name not in turn.offered.names):
            raise Malformed(f"{head!r} is not a tool name")
        empty = bool(self.attribute) and head.endswith("/")
        if not empty and not (yield from self._is_call(turn, in_section=in_section)):
            raise Malformed(f"expected an argument or the end of the call after {name!r}")
        turn.start_call(name)
        if self.attribute:
            report_head(turn, head)
        if not empty:
            yield from _Arguments(self, turn, name, in_section=in_section).read()
        if turn.writer.in_call:
            turn.writer.end_object("complete", reader.position)

    def _mark_name(self, turn: ParseContext, head: str, end: str) -> None:
        """Mark the name in the head of a call, or the value of its attribute."""
        values = [match for match in find_attributes(head) if match[1] == self.attribute]
        if values:
            start = turn.reader.position - len(end) - len(head)
            value = values[-1].lastgroup or 0
            turn.spans.mark_name(start + values[-1].start(value), start + values[-1].end(value))
        else:
            turn.spans.mark_word(head, end)

    def _is_call(self, turn: ParseContext, *, in_section: bool) -> Parsing[bool]:
        """Return whether the text after the name belongs to a call; a sentence that mentions the tag does not."""
        reader = turn.reader
        yield from reader.read_spaces()
        outer = (self.section_close,) if in_section else ()
        tags = tuple(filter(None, (self.key_open, self.call_close, self.json_tags[0], *outer)))
        found = yield from reader.read_one_of(tags)
        if found is not None:
            reader.unread(found)
            return True
        rest = reader.text[reader.at : reader.at + 64]
        if reader.ended and any(tag.startswith(rest) for tag in tags):
            return True
        return self.json_body and (yield from reader.peek()) == "{"

    def parse_key(self, head: str) -> str:
        return parse_attributes(head).get(self.key_attribute, "") if self.key_attribute else head.strip()

    def write(self, calls: Sequence[ToolCall]) -> str:
        """Write all calls: each in its own section, in one section, or without a section."""
        line = self.line
        written = [self._write_call(call, number) for number, call in enumerate(calls, 1)]
        if self.section_open and self.own_section:
            return line.join(f"{self.section_open}{line}{call}{line}{self.section_close}" for call in written)
        body = (line or self.between).join(written)
        return f"{self.section_open}{line}{body}{line}{self.section_close}" if self.section_open else body

    def _write_call(self, call: ToolCall, number: int) -> str:
        """Write one call with its arguments; `number` counts from one, for `index_attribute`."""
        head = f' {self.attribute}="{escape(call.name)}"' if self.attribute else call.name
        if self.index_attribute:
            head += f' {self.index_attribute}="{number}"'
        lines = [f"{self.call_open}{head}{self.head_end.rstrip(chr(10))}"]
        lines += [self._write_argument(key, value) for key, value in (call.arguments or {}).items()]
        return self.line.join([*lines, self.call_close])

    def _write_argument(self, key: str, value: JSON) -> str:
        """Write one argument as raw text, with its type as an attribute if the format has one."""
        text = value if isinstance(value, str) else write_json(value)
        head = f' {self.key_attribute}="{escape(key)}"' if self.key_attribute else key
        if self.type_attribute == "string":
            head += f' string="{"true" if isinstance(value, str) else "false"}"'
        elif self.type_attribute == "type":
            head += f' type="{_TYPE_NAMES.get(json_type(value), json_type(value))}"'
        opening = f"{self.key_end}{self.line if self.value_open else ''}{self.value_open}"
        edge = "\n" if self.trim else ""
        return f"{self.key_open}{head}{opening}{edge}{text}{edge}{self.value_close}"

    def template(self) -> CallTemplate:
        """Return the text of `write` as data."""
        line, tail = self.line, self.head_end.rstrip(chr(10))
        name: tuple[str | Slot, ...] = (NAME, tail)
        if self.attribute:
            name = (f' {self.attribute}="', ATTRIBUTE_NAME, '"', tail)
        if self.index_attribute:
            name = (*name[:-1], f' {self.index_attribute}="', Slot("pattern", "[1-9][0-9]{0,3}"), '"', tail)
        call = (self.call_open, *name, ARGUMENTS, f"{line}{self.call_close}")
        before, between, after = "", line or self.between, ""
        if self.section_open:
            before, after = f"{self.section_open}{line}", f"{line}{self.section_close}"
        if self.section_open and self.own_section:
            between = f"{after}{line}{before}"
        opener = self.section_open or self.call_open
        tags = tuple(tag for tag in (*self.markers(), *self.closers()) if tag != opener)
        return CallTemplate(
            call,
            self._argument_template(),
            before,
            between,
            after,
            trigger=opener,
            forbidden=tuple(dict.fromkeys(tags)),
        )

    def _argument_template(self) -> TagArguments:
        """Return the text of `_write_argument` as data."""
        head = f' {self.key_attribute}="{{key}}"' if self.key_attribute else "{key}"
        if self.type_attribute:
            head += f' {self.type_attribute}="{{type}}"'
        edge = "\n" if self.trim else ""
        opening = f"{self.key_end}{self.line if self.value_open else ''}{self.value_open}{edge}"
        own = (self.value_close, self.key_open, self.call_open, self.call_close, self.section_close)
        return TagArguments(
            f"{self.line}{self.key_open}{head}{opening}",
            f"{edge}{self.value_close}",
            tuple(filter(None, (*own, "<![CDATA[" if self.cdata else ""))),
            types=self.type_attribute,
            is_attribute=bool(self.key_attribute),
            drops_return=self.trim,
        )


class _Arguments:
    """The arguments of one call."""

    def __init__(self, style: TaggedCalls, turn: ParseContext, name: str, *, in_section: bool) -> None:
        self.style = style
        self.turn = turn
        self.name = name
        self.in_section = in_section
        self.given: set[str] = set()  # keys read so far; a key tag inside a value cannot repeat them
        self.frame = ValueTags(
            style.value_close,
            style.call_open,
            (style.key_open,),
            style.call_close,
            style.section_open if in_section else "",
            style.section_close if in_section else "",
            newline=style.trim,
            eager=style.one,
        )

    def read(self) -> Parsing[None]:
        """Read all arguments; end the call as truncated (and raise Truncated) or invalid if they are not complete."""
        turn = self.turn
        try:
            yield from self._read_arguments()
        except Truncated:
            if turn.writer.in_call:
                turn.writer.end_object("truncated", turn.reader.position)
            raise
        except Malformed as error:
            turn.writer.add_diagnostic("malformed", turn.reader.position, str(error))
            yield from turn.reader.read_until(terminals(self.style.call_close), turn.writer.add_raw)
            turn.writer.end_object("invalid", turn.reader.position)

    def _read_arguments(self) -> Parsing[None]:
        """Read arguments up to the closer of the call."""
        reader, style = self.turn.reader, self.style
        while True:
            yield from reader.read_spaces()
            found = yield from reader.read_one_of((style.key_open, style.call_close))
            if found == style.call_close:
                return
            if found is None:
                yield from self._read_unexpected()
                return
            self.turn.spans.begin_arguments(len(found))
            yield from self._read_argument()
            self.turn.spans.end_arguments()

    def _read_argument(self) -> Parsing[None]:
        """Read one argument after `key_open`. One without a value is reported and skipped.

        Raise Malformed for one without a name, and Truncated if the text ends inside it.
        """
        reader, style, writer = self.turn.reader, self.style, self.turn.writer
        ends = terminals(style.key_end, style.value_close, style.call_close, style.key_open)
        head, end = yield from reader.read_word(ends)
        if end is None:
            raise Truncated("the text ends inside an argument's name")
        if end == style.value_close and "=" in head:  # <parameter=key=value</parameter>
            key, _, text = head.partition("=")
            writer.add_diagnostic("malformed", reader.position, f"the tag of the argument {key!r} is not closed")
            self.given.add(key)
            self.turn.emit_argument(key, self.turn.convert(text, self.turn.offered.types(self.name, key)))
            return
        key = style.parse_key(head)
        if style.key_attribute:
            report_head(self.turn, head)
        types = self._argument_types(key, head)
        if style.value_open and end == style.key_end:
            yield from reader.read_spaces()
            yield from reader.read_one_of(("\\n",))  # a line break that was escaped once too often
            if style.type_tags is not None:
                types = yield from self._read_type(style.type_tags, types)
            end = (yield from reader.read_one_of((style.value_open,))) and style.key_end
        if end != style.key_end:
            if end is not None:
                reader.unread(end)
            if reader.ended and reader.at == len(reader.text):
                raise Truncated("the text ends before an argument's value")
            writer.add_diagnostic("malformed", reader.position, f"the argument {head!r} has no value")
            return
        yield from self._read_value(key, types)
        if not key:
            raise Malformed(f"an argument has no name: {head!r}")

    def _argument_types(self, key: str, head: str) -> Types:
        """Return the types of a value: from the tag's type attribute if it has one, else from the schema."""
        kind = self.style.type_attribute
        said = parse_attributes(head).get(kind) if kind else None
        if said is None:
            return self.turn.offered.types(self.name, key)
        if kind == "string":
            return _TEXT if said == "true" else _NOT_TEXT
        return frozenset({said})

    def _read_type(self, tags: tuple[str, str], types: Types) -> Parsing[Types]:
        """Read the type before a value, if there is one. It selects one of the types that the schema allows."""
        reader = self.turn.reader
        if (yield from reader.read_one_of((tags[0],))) is None:
            return types
        said, _ = yield from reader.read_word(terminals(tags[1]))
        yield from reader.read_spaces()
        kind = said.partition("[")[0].strip().lower()
        return frozenset({kind}) if kind in types or (types == ANY and kind in _TYPES) else types

    def _read_value(self, key: str, types: Types) -> Parsing[None]:
        """Read a value: a string is passed on as it arrives; a value of another type waits for its closer.

        Raise Truncated if the text ends before that.
        """
        reader, writer, style = self.turn.reader, self.turn.writer, self.style
        if style.trim:
            yield from reader.read_one_of(("\r\n", "\n"))
        if types == ANY and (yield from reader.peek()) not in _JSON_BEGINS:
            types = _TEXT
        self.given.add(key)
        pieces: list[str] = []
        streams = types == _TEXT and not style.cdata
        if streams:
            writer.begin_argument(key)
            writer.add_raw('"')

        def sink(piece: str) -> None:
            pieces.append(piece)
            if streams:
                writer.add_string(piece)

        closed = yield from read_raw_value(reader, self.frame, self._is_key, sink)
        if not streams:
            writer.begin_argument(key)
        if not closed:
            if not streams:
                writer.add_raw("".join(pieces))
            raise Truncated("the text ends inside an argument")
        if closed != style.value_close:
            self.turn.report_unclosed(style.value_close)
        text = "".join(pieces)
        value = self.turn.convert(_strip_cdata(text) if style.cdata else text, types)
        writer.add_raw('"' if streams else dumps(value))
        writer.end_argument(key, value)

    def _is_key(self, text: str, at: int, is_certain: bool) -> bool | None:
        """Decide whether the tag opened before `at` is an argument (see `KeyTest`); None if it is incomplete."""
        stop = text.find(self.style.key_end, at, at + 256)
        if stop < 0:
            return None if len(text) - at < 256 else False
        key = self.style.parse_key(text[at:stop])
        if not is_certain:
            return not _NO_NAME(key)
        return bool(key) and not _NO_NAME(key) and key not in self.given and self.turn.offered.may_have(self.name, key)

    def _read_unexpected(self) -> Parsing[None]:
        """Handle text that is neither an argument nor the end of the call.

        A JSON object is the arguments, and a missing closer is reported. Any other text makes the call invalid;
        Truncated if it is the beginning of a tag at the end of the text.
        """
        reader, writer, style = self.turn.reader, self.turn.writer, self.style
        if style.json_body and (yield from reader.peek()) == "{":
            yield from self._read_json(style.call_close)
            return
        opening, closing = style.json_tags
        if opening and not self.given and (yield from reader.read_one_of((opening,))):
            yield from reader.read_word(terminals(style.key_end))
            yield from self._read_json(closing, style.call_close)
            return
        rest = reader.text[reader.at :]
        if reader.ended and style.call_close.startswith(rest):
            reader.read_to(len(reader.text))
            if style.one and reader.finished and self.turn.offered.has_required(self.name, self.given):
                self.turn.report_unclosed(style.call_close)  # stopped at its stop sequence
                return
            raise Truncated("the text ends between two arguments")
        if reader.ended and style.key_open.startswith(rest):
            reader.read_to(len(reader.text))
            raise Truncated("the text ends where an argument begins")
        if self.in_section and (yield from reader.read_one_of((style.section_close,))):
            reader.unread(style.section_close)
            self.turn.report_unclosed(style.call_close)
            return
        start = reader.position
        stops = terminals(style.call_close, self.frame.section_close)
        end = yield from reader.read_until(stops, writer.add_raw)
        writer.add_diagnostic("malformed", start, "text between the arguments")
        writer.end_object("invalid", reader.position)
        if end is not None and end == self.frame.section_close:
            reader.unread(end)

    def _read_json(self, *closers: str) -> Parsing[None]:
        """Read one JSON object as all arguments of the call, and the closers after it.

        Malformed JSON makes the call invalid, and the text up to `call_close` is skipped. Raise Truncated, after the
        call has ended as truncated, if the text ends inside the object.
        """
        reader, writer = self.turn.reader, self.turn.writer
        self.turn.spans.begin_arguments()
        try:
            value = yield from read_json_value(reader, writer.add_json_arguments)
        except Truncated:
            writer.end_json(reader.position, is_truncated=True)
            raise
        except Malformed:
            yield from reader.read_until(terminals(self.style.call_close), writer.add_raw)
            writer.end_json(reader.position)
            return
        writer.end_json(reader.position, value=value)
        for closer in closers:
            yield from self.turn.close((closer,))


def _strip_cdata(text: str) -> str:
    bare = text.strip()
    return bare[9:-3] if bare.startswith("<![CDATA[") and bare.endswith("]]>") else text


def arg_pairs(
    *, call: str = "tool_call", head_end: str = "\n", line: str = "\n", section: str = "", suffix: str = "", **more: Any
) -> TaggedCalls:
    """`<tool_call>NAME` with `<arg_key>` and `<arg_value>` for each argument, as first used by GLM.

    `suffix` is the end of every tag name: `:opensource` for `<tool_call:opensource>`.
    """
    return TaggedCalls(
        f"<{call}{suffix}>",
        f"</{call}{suffix}>",
        f"<arg_key{suffix}>",
        f"</arg_value{suffix}>",
        value_open=f"<arg_value{suffix}>",
        key_end=f"</arg_key{suffix}>",
        head_end=head_end,
        section_open=f"<{section}{suffix}>" if section else "",
        section_close=f"</{section}{suffix}>" if section else "",
        line=line,
        **more,
    )


def invocations(section_open: str, section_close: str, *, prefix: str = "", **more: Any) -> TaggedCalls:
    """`<invoke name="NAME">` with `<parameter name="KEY">` in a section, as first used by Claude."""
    return TaggedCalls(
        f"<{prefix}invoke",
        f"</{prefix}invoke>",
        f"<{prefix}parameter",
        f"</{prefix}parameter>",
        attribute="name",
        key_attribute="name",
        section_open=section_open,
        section_close=section_close,
        **more,
    )
