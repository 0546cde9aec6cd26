"""The parts of a message: what one side says to the other.

Pure values. They know no wire, no socket and no clock; identity (which turn, which store) is somebody else's concern.
They are frozen, and the JSON inside them (`arguments`, `input_schema`, `extra`) is to be treated as frozen too: decoders
share it with the document it came from, nothing is copied.

`extra` holds, by wire, what only that wire has a word for. Three kinds of keys:

    "anthropic"            fields that are written back verbatim into the object that this value becomes on that wire
    "openai_chat/choice"   the same for an object around it that has no value of its own here
    "gemini~"              how it was written (a string or a list of one, camelCase or snake_case): form, never meaning

Only the first two are meaning, so only they can be lost when the value travels to another wire.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec.structs import replace

from .pointer import JSON, Object
from .text import dumps
from .value import Value

__all__ = [
    "Artefact",
    "CallKind",
    "CallState",
    "Extra",
    "Media",
    "MediaKind",
    "Opaque",
    "Part",
    "Reasoning",
    "Refusal",
    "Text",
    "ToolCall",
    "ToolResult",
    "what_is",
]

Extra: TypeAlias = dict[str, Object]
MediaKind: TypeAlias = Literal["image", "audio", "video", "file"]
CallKind: TypeAlias = Literal["function", "freeform"]
CallState: TypeAlias = Literal["complete", "truncated", "invalid"]


class Artefact(Value, frozen=True):
    """Opaque bytes that a provider wants back unmodified: a signature, encrypted reasoning, a fingerprint.

    Bound to the provider and model that made it, and anchored to the part that holds it. It goes back to its owner and
    to nobody else.
    """

    provider: str
    kind: str
    data: str
    model: str | None = None


class Text(Value, frozen=True, tag_field="part", tag="text"):
    """Words. `cache` marks a prompt-cache breakpoint after this part: its time to live, or "default"."""

    text: str
    cache: str | None = None
    artefacts: tuple[Artefact, ...] = ()
    extra: Extra = {}


class Media(Value, frozen=True, tag_field="part", tag="media"):
    """An image, sound, video or file: inline (`data`, base64), by `url`, or by the `file_id` that its `owner` knows."""

    kind: MediaKind
    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    name: str | None = None
    detail: str | None = None
    cache: str | None = None
    owner: str | None = None
    extra: Extra = {}


class Reasoning(Value, frozen=True, tag_field="part", tag="reasoning"):
    """What the model thought, as far as the provider shows it (`text` or `summary`), and what proves it (artefacts)."""

    text: str = ""
    summary: tuple[str, ...] = ()
    artefacts: tuple[Artefact, ...] = ()
    extra: Extra = {}


class Refusal(Value, frozen=True, tag_field="part", tag="refusal"):
    """The model declines, in words."""

    text: str
    extra: Extra = {}


class Opaque(Value, frozen=True, tag_field="part", tag="opaque"):
    """A part that only `wire` knows. It survives there and is a loss anywhere else."""

    wire: str
    type: str
    value: Object


class ToolCall(Value, frozen=True, tag_field="part", tag="call"):
    """The model asks for a tool.

    `raw` is the argument text exactly as the wire gave it (None where the wire carries an object), `arguments` the
    object it parses to (None where it does not). Only a `complete` call may ever be run. A freeform call has its input
    in `raw`.
    """

    id: str
    name: str
    arguments: Object | None = None
    raw: str | None = None
    state: CallState = "complete"
    kind: CallKind = "function"
    namespace: str | None = None
    cache: str | None = None
    artefacts: tuple[Artefact, ...] = ()
    extra: Extra = {}

    @property
    def text(self) -> str:
        """The argument text: `raw` where there is one, else the object as compact JSON."""
        return self.raw if self.raw is not None else dumps(self.arguments or {})

    def spelled_out(self) -> ToolCall:
        """No text at all is how some say "no arguments"; whoever parses it wants to see an empty object."""
        return replace(self, raw=None) if self.raw == "" and self.arguments is not None else self

    def result(self, value: JSON = "", *, is_error: bool = False) -> ToolResult:
        """The answer to this call.

        >>> ToolCall("call_1", "get_weather").result({"celsius": 22}).structured
        {'celsius': 22}
        """
        if isinstance(value, str):
            return ToolResult(self.id, self.name, (Text(value),), None, is_error, self.kind, self.namespace)
        return ToolResult(self.id, self.name, (), value, is_error, self.kind, self.namespace)


class ToolResult(Value, frozen=True, tag_field="part", tag="result"):
    """What the tool gave: words and media in `parts`, or a JSON value in `structured`."""

    call_id: str
    name: str | None = None
    parts: tuple[Text | Media | Opaque, ...] = ()
    structured: JSON = None
    is_error: bool = False
    kind: CallKind = "function"
    namespace: str | None = None
    cache: str | None = None
    extra: Extra = {}

    @property
    def text(self) -> str:
        """All of it in words, for wires that know no other result."""
        words = "".join([part.text for part in self.parts if isinstance(part, Text)]) if self.parts else ""
        return words if words or self.structured is None else dumps(self.structured)


def what_is(part: Part) -> str:
    """A part's name in a sentence: "image", "call", or the type of what only one wire knows."""
    if isinstance(part, Media):
        return part.kind
    if isinstance(part, Opaque):
        return part.type
    return str(type(part).__struct_config__.tag)


Part: TypeAlias = Text | Media | Reasoning | Refusal | ToolCall | ToolResult | Opaque
