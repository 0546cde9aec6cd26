"""The interface of a call style: the turn passed to it, and the written form of its calls as data.

A style reads calls from a `ParseContext` (the text, the events, the offered tools) and returns one `CallTemplate`. The
template describes exactly the text that `Style.write` produces, so a grammar of the template accepts rendered calls,
and the parser reads each text of the grammar in one way.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Literal, Protocol, TypeAlias

import msgspec

from ...ir.errors import ConfigError
from ...ir.parts import ToolCall
from ...ir.pointer import JSON
from ...ir.text import dumps, to_bytes
from ...ir.value import Value
from .event_builder import EventBuilder
from .literal import PYTHON, LiteralSyntax, parse_literal
from .offered_tools import OfferedTools, Types, convert_text, json_type
from .reader import Malformed, Parsing, Reader
from .spans import NO_SPANS, SpanMarks


class Slot(Value, frozen=True):
    """A variable part of a call. A `pattern` is a regular expression for an id or a number."""

    kind: Literal["name", "json_name", "attribute_name", "arguments", "pattern"]
    pattern: str = ""
    optional: bool = False


NAME = Slot("name")
JSON_NAME = Slot("json_name")
"""The name as a JSON string, with its quotes."""
ATTRIBUTE_NAME = Slot("attribute_name")
"""The name with the escapes of an XML attribute."""
ARGUMENTS = Slot("arguments")


class JsonArguments(Value, frozen=True):
    """One JSON object."""


class TagArguments(Value, frozen=True):
    """Each argument is `opening` value `closing`, with the value as raw text or as JSON.

    `{key}`, `{name}` and `{type}` in the texts are replaced; `types` selects the spelling of `{type}` as in
    `TaggedCalls.type_attribute`. A value never contains a `forbidden` text. If `trims_lines`, a line break at either
    end of a value belongs to the tags, so no value begins or ends with one.
    """

    opening: str
    closing: str
    forbidden: tuple[str, ...]
    types: Literal["", "string", "type"] = ""
    is_attribute: bool = False  # the key is the value of an attribute, with escapes
    trims_lines: bool = False
    drops_return: bool = False  # a carriage return before the line break of the closer belongs to it


class LiteralArguments(Value, frozen=True):
    """Literals of a language: `key=value` in parentheses, or a dictionary with braces if `braces`."""

    language: LiteralSyntax
    braces: bool = False


class NestedArguments(Value, frozen=True):
    """Nested tags named after their keys, each after `mark`; the items of a list are in `item`."""

    mark: str
    item: str = "item"


ArgumentNotation: TypeAlias = JsonArguments | TagArguments | LiteralArguments | NestedArguments


class CallTemplate(Value, frozen=True):
    """The text of a turn's calls: `before`, calls with `between` between two of them, `after`.

    In a turn that may also contain text, calls begin at `trigger`; the text before it in the template is free there.
    Without a trigger, they begin at the name of an offered tool after the literal before it. `only_at_start`: a call is
    recognised only at the start of the message. `closed`: text may follow the calls.

    `forbidden` are texts that open a call in another spelling, or that are only valid inside a call; `forbidden_start`
    the same at the start of the message. `reasoning` are pairs of texts around reasoning that the style itself reads.
    `not_before` is a pattern that free text must not end with where a trigger follows.
    """

    call: tuple[str | Slot, ...]
    arguments: ArgumentNotation
    before: str = ""
    between: str = ""
    after: str = ""
    trigger: str = ""
    only_at_start: bool = False
    closed: bool = True
    forbidden: tuple[str, ...] = ()
    forbidden_start: tuple[str, ...] = ()
    reasoning: tuple[tuple[str, str], ...] = ()
    not_before: str = ""


def closing_texts(template: CallTemplate, keys: Sequence[str]) -> tuple[str, ...]:
    """Return the texts that close a value, a call or all calls, the longest first; `keys` are names of arguments."""
    notation = template.arguments
    last = template.call[-1]
    tail = last if isinstance(last, str) else ""
    found = [tail + template.after, tail, template.after]
    if isinstance(notation, TagArguments):
        names = map(escape, keys) if notation.is_attribute else keys
        found += [notation.closing.replace("{key}", key) for key in names]
    elif isinstance(notation, NestedArguments):
        found += [f"{notation.mark}</{key}>" for key in (*keys, notation.item)]
    elif isinstance(notation, LiteralArguments):
        found += ["'" if notation.language.escapes else notation.language.quotes[0], ")", "]", "}"]
    return tuple(sorted(filter(None, dict.fromkeys(found)), key=len, reverse=True))


def write_json(value: JSON) -> str:
    """Encode a value as chat templates do (`tojson`); models were trained on this spacing."""
    return msgspec.json.format(to_bytes(value), indent=0).decode()


def write_arguments(call: ToolCall) -> str:
    """Write the arguments of a call; those that are not an object are written as the model wrote them."""
    return call.text if call.arguments is None else write_json(call.arguments)


_PYTHON_WORDS = frozenset({"True", "False", "None"})


class ParseContext:
    """One turn of the model, as passed to a style."""

    __slots__ = ("end_reason", "offered", "reader", "spans", "writer")

    def __init__(self, reader: Reader, writer: EventBuilder, spans: SpanMarks = NO_SPANS) -> None:
        self.reader = reader
        self.writer = writer
        self.offered: OfferedTools = writer.offered
        self.spans = spans
        self.end_reason = ""  # why the turn ends after this call

    def start_call(self, name: str, call_id: str = "") -> None:
        """Start a call: text read so far is no longer restored as text."""
        self.reader.taken = None
        self.writer.start_call(self.offered.resolve(name), self.reader.position, call_id)

    def end_turn(self, reason: str) -> None:
        """End the turn after this call: the text after it is ignored and reported."""
        self.end_reason = reason

    def convert(self, text: str, types: Types) -> JSON:
        """Convert the raw text of an argument by the types that its schema allows.

        Some templates print constants, lists and dictionaries as Python does. Such a value is read and reported; a list
        or a dictionary only if the schema does not also allow a string.
        """
        value = convert_text(text, types)
        bare = text.strip()
        if isinstance(value, str):
            value = _parse_container(bare, types, value)
            is_literal = not isinstance(value, str)
        else:
            is_literal = bare in _PYTHON_WORDS
        if is_literal:
            detail = f"{text[:200]!r} was read as a Python literal"
            self.writer.add_diagnostic("python_literal", self.reader.position, detail)
        return value

    def emit_argument(self, key: str, value: JSON) -> None:
        """Emit a complete argument of an object that the writer serialises."""
        self.writer.begin_argument(key)
        self.writer.add_raw(dumps(value))
        self.writer.end_argument(key, value)

    def close(self, closers: tuple[str, ...], *, surplus: tuple[str, ...] = (), fence: str = "") -> Parsing[None]:
        """Read a closer and count it as a part of the call. If there is none, report it; white space is then text.

        A `fence` belongs to the call, too: the closer may follow it, or is missing.
        """
        found = yield from self.read_next((*closers, fence) if fence else closers, surplus=surplus)
        if fence and found == fence:
            self.spans.extend_call()
            found = yield from self.read_next(closers)
        self.reader.taken = None
        if found is None:
            self.report_unclosed(closers[0])
        else:
            self.spans.extend_call()

    def read_next(self, tags: tuple[str, ...], *, surplus: tuple[str, ...] = ()) -> Parsing[str | None]:
        """Read one of `tags` after white space, and keep the text read so far in `taken`.

        Without a tag, the text is emitted, except the beginning of a tag at the end of a truncated text. Brackets in
        `surplus` before a tag are reported: some models write one too many.
        """
        reader = self.reader
        reader.taken = []
        yield from reader.read_spaces()
        brackets = ""
        while surplus and (bracket := (yield from reader.read_one_of(surplus))) is not None:
            brackets += bracket
            yield from reader.read_spaces()
        found = yield from reader.read_one_of(tags)
        if found is None:
            is_cut = self._read_partial_tag(tags)
            skipped, reader.taken = "".join(reader.taken), None
            if not is_cut:
                self.writer.add_text(skipped)
        elif brackets:
            self.writer.add_diagnostic("malformed", reader.position, f"surplus {brackets!r} after a call")
        return found

    def _read_partial_tag(self, tags: tuple[str, ...]) -> bool:
        """Read the beginning of one of `tags` at the end of a truncated text."""
        reader = self.reader
        rest = reader.text[reader.at :]
        if reader.finished or not rest or not any(tag.startswith(rest) for tag in tags):
            return False
        reader.read_to(len(reader.text))
        return True

    def report_unclosed(self, label: str) -> None:
        self.writer.add_diagnostic("unclosed", self.reader.position, f"{label} is missing")


def _parse_container(text: str, types: Types, default: JSON) -> JSON:
    """Return a list or dictionary in Python notation, or `default` if the text is neither or may be a string."""
    if not types or "string" in types or text[:1] not in ("[", "{", "("):
        return default
    try:
        value = parse_literal(text, PYTHON)
    except Malformed:
        return default
    return value if json_type(value) in types else default


class Style(Protocol):
    """A notation for calls. `read` starts after an opener and ends after the call, or raises Malformed.

    Openers are requested once per turn. A weak opener is also ordinary text (a bracket): it opens a call only if `read`
    finds one, at the start of the message, or anywhere if it is in `inline_openers`. `closers` are tags without meaning
    outside a call, `markers` other tags that only a call contains. `read_open_reasoning` starts inside reasoning that the
    prompt opened, in a style that also reads reasoning. `template` describes the text of `write` as data.
    """

    def openers(self, offered: OfferedTools) -> tuple[str, ...]: ...

    def weak_openers(self, offered: OfferedTools) -> tuple[str, ...]: ...

    def inline_openers(self, offered: OfferedTools) -> tuple[str, ...]: ...

    def closers(self) -> tuple[str, ...]: ...

    def markers(self) -> tuple[str, ...]: ...

    def read(self, turn: ParseContext, opener: str) -> Parsing[None]: ...

    def read_open_reasoning(self, turn: ParseContext) -> Parsing[None]: ...

    def write(self, calls: Sequence[ToolCall]) -> str: ...

    def template(self) -> CallTemplate: ...


class StyleBase(Value, frozen=True):
    """The common base of most styles, without weak openers."""

    def weak_openers(self, offered: OfferedTools) -> tuple[str, ...]:  # the protocol passes `offered`
        return ()

    def inline_openers(self, offered: OfferedTools) -> tuple[str, ...]:
        return ()

    def closers(self) -> tuple[str, ...]:
        return ()

    def markers(self) -> tuple[str, ...]:
        return ()

    def read_open_reasoning(self, turn: ParseContext) -> Parsing[None]:
        yield from ()

    def template(self) -> CallTemplate:
        """Return the written form of calls as data, for a grammar. A style without one has no grammar.

        Raise ConfigError for it.
        """
        hint = "implement template() in the style, or use a mask for the JSON of one tool's arguments"
        raise ConfigError(f"the style {type(self).__name__} has no call template", hint=hint)


class TurnFormat(Protocol):
    """The fields of a `Format` that decide how a turn is read, and from which a grammar is derived."""

    @property
    def name(self) -> str: ...
    @property
    def calls(self) -> Style: ...
    @property
    def reasoning(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def ends_reasoning(self) -> tuple[str, ...]: ...
    @property
    def calls_in_reasoning(self) -> bool: ...
    @property
    def noise(self) -> tuple[str, ...]: ...
    @property
    def heads(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def citations(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def halts(self) -> tuple[str, ...]: ...
    @property
    def one_call(self) -> bool: ...
