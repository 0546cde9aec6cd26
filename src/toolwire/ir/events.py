"""A response as a sequence of stream events.

The events read from one wire are the events written to another: one vocabulary for both directions. Every item (a text,
a piece of reasoning, a call) opens with a Start, grows by Deltas and closes with an End, all under one `key`. The
decoder assigns the key, and it has no other meaning; numbering on a wire is the encoder's task. Items may be open at
the same time, with interleaved deltas.

Three rules:

1. Deltas are append-only. Emitted text is never retracted.
2. A `CallEnd` with state `complete` means that the call may be run now, whatever comes after it.
3. `ResponseEnd` or `StreamFault` is the last event. A stream that stops before it is truncated.
"""

from __future__ import annotations

from typing import ClassVar, Self, TypeAlias

from .parts import Artefact, CallKind, CallState, Extra, Part
from .pointer import JSON, Object
from .response import Fault, Stop, Usage
from .text import escape, unescape
from .value import Value


class ResponseStart(Value, frozen=True):
    """The start of a response, with the fields that are known before its first item."""

    id: str = ""
    model: str = ""
    created: int | None = None
    extra: Extra = {}


class TextStart(Value, frozen=True):
    """The start of a text of the choice number `choice`; `refusal` if the text is a refusal."""

    key: int
    choice: int = 0
    refusal: bool = False
    extra: Extra = {}
    cache: str | None = None


class _Delta(Value, frozen=True, gc=False):
    key: int
    escaped: bytes

    @property
    def text(self) -> str:
        return unescape(self.escaped)

    @classmethod
    def of(cls, key: int, text: str) -> Self:
        return cls(key, escape(text))


class TextDelta(_Delta, frozen=True, gc=False):
    """More text. `escaped` is the text as the inside of a JSON string (see `ir.text`)."""

    section: ClassVar[None] = None  # as of a `ReasoningDelta` of the text


class TextEnd(Value, frozen=True):
    """The end of a text. `artefacts` are opaque data of the provider, such as signatures."""

    key: int
    artefacts: tuple[Artefact, ...] = ()
    extra: Extra = {}


class ReasoningStart(Value, frozen=True):
    """The start of a piece of reasoning."""

    key: int
    choice: int = 0
    extra: Extra = {}


class ReasoningDelta(_Delta, frozen=True, gc=False):
    """More reasoning: of the text, or of the summary section number `section`."""

    section: int | None = None

    @classmethod
    def of(cls, key: int, text: str, section: int | None = None) -> Self:
        return cls(key, escape(text), section)


class ReasoningEnd(Value, frozen=True):
    """The end of a piece of reasoning. `artefacts` are opaque data of the provider, such as signatures."""

    key: int
    artefacts: tuple[Artefact, ...] = ()
    extra: Extra = {}


class CallStart(Value, frozen=True):
    """The start of a call; `kind` determines whether its deltas are JSON arguments or freeform input."""

    key: int
    id: str
    name: str
    kind: CallKind = "function"
    namespace: str | None = None
    choice: int = 0
    extra: Extra = {}
    cache: str | None = None


class CallDelta(_Delta, frozen=True, gc=False):
    """More argument text (or freeform input), still escaped."""

    section: ClassVar[None] = None  # as of a `ReasoningDelta` of the text


class ArgumentEnd(Value, frozen=True):
    """One top-level argument is complete, even if the call is not (see `stream.scanner`)."""

    key: int
    name: str
    value: JSON


class CallEnd(Value, frozen=True):
    """The end of a call. `raw` is None on wires that carry an object; there the deltas are our own serialisation."""

    key: int
    arguments: Object | None = None
    raw: str | None = None
    state: CallState = "complete"
    artefacts: tuple[Artefact, ...] = ()
    extra: Extra = {}


class PartStart(Value, frozen=True):
    """The position of a `WholePart` that comes later, after other items; `part` has the fields known so far."""

    key: int
    part: Part
    choice: int = 0


class WholePart(Value, frozen=True):
    """A part that arrives in one piece: media, or a part specific to one wire."""

    key: int
    part: Part
    choice: int = 0


class UsageUpdate(Value, frozen=True):
    """The usage so far. A later update replaces it."""

    usage: Usage


class Ping(Value, frozen=True):
    """A keep-alive without content."""


class ResponseEnd(Value, frozen=True):
    """The end of the response: the stop of each choice, None for one that is unfinished.

    `extra` belongs to the response, `choice_extras` to its alternatives, in order.
    """

    stops: tuple[Stop | None, ...]
    extra: Extra = {}
    choice_extras: tuple[Extra, ...] = ()


class StreamFault(Value, frozen=True):
    """The provider failed in the middle of a stream. `end` holds the stop reasons that it reported, if any."""

    fault: Fault
    end: ResponseEnd = ResponseEnd(())


Event: TypeAlias = (
    ResponseStart
    | TextStart
    | TextDelta
    | TextEnd
    | ReasoningStart
    | ReasoningDelta
    | ReasoningEnd
    | CallStart
    | CallDelta
    | ArgumentEnd
    | CallEnd
    | PartStart
    | WholePart
    | UsageUpdate
    | Ping
    | StreamFault
    | ResponseEnd
)
