"""The interface of a call style, and the turn passed to it: the text, the events, the offered tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...ir.errors import ConfigError
from ...ir.parts import ToolCall
from ...ir.pointer import JSON
from ...ir.text import dumps
from ...ir.value import Value
from .call_template import CallTemplate
from .event_builder import EventBuilder
from .literal import PYTHON, parse_literal
from .offered_tools import OfferedTools, Types, convert_text, json_type
from .reader import Malformed, Parsing, Reader
from .spans import NO_SPANS, SpanMarks

__all__ = ["ParseContext", "Style", "StyleBase"]


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
        self.writer.add_json(dumps(value))
        self.writer.end_argument(key, value)

    def close(self, closers: tuple[str, ...], *, surplus: tuple[str, ...] = (), fence: str = "") -> Parsing[None]:
        """Read a closer. If there is none, the white space belongs to the text that follows.

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

    def weak_openers(self, offered: OfferedTools) -> tuple[str, ...]:  # required by the protocol
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
        """Return the written form of calls as data, for a grammar. A style without one has no grammar."""
        hint = "implement template() in the style, or use a mask for the JSON of one tool's arguments"
        raise ConfigError(f"the style {type(self).__name__} has no call template", hint=hint)
