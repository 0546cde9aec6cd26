"""The parts of a message.

Pure values, independent of wires, sockets and clocks. Identity (which turn, which store) is handled elsewhere.
They are frozen, and the JSON inside them (`arguments`, `input_schema`, `extra`) must be treated as frozen too: decoders
share it with the source document without copying.

`extra` holds, by wire, the fields that only that wire has. There are three kinds of keys:

    "anthropic"            fields that are written back verbatim into the object that this value becomes on that wire
    "openai_chat/choice"   fields of an enclosing object that has no canonical value of its own
    "gemini~"              the source form (a string or a list of one, camelCase or snake_case): never meaning

Only the first two carry meaning, so only they can be lost when the value is translated to another wire.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec.structs import replace

from .notebook import repr_html
from .pointer import JSON, Object
from .text import dumps
from .value import Value

Extra: TypeAlias = dict[str, Object]
MediaKind: TypeAlias = Literal["image", "audio", "video", "file"]
CallKind: TypeAlias = Literal["function", "freeform", "search", "typed"]
CallState: TypeAlias = Literal["complete", "truncated", "invalid"]


class Artefact(Value, frozen=True):
    """Opaque bytes that a provider wants back unmodified: a signature, encrypted reasoning, a fingerprint.

    An artefact belongs to the provider and model that made it and to the part that holds it. It is sent back to that
    provider only.
    """

    provider: str
    kind: str
    data: str
    model: str | None = None


class Text(Value, frozen=True, tag_field="part", tag="text"):
    """Text. `cache` marks a prompt-cache breakpoint after this part: its time to live, or "default"."""

    text: str
    cache: str | None = None
    artefacts: tuple[Artefact, ...] = ()
    extra: Extra = {}


def is_empty_with_artefact(text: Text, provider: str) -> bool:
    """Return whether a text only carries an artefact of another provider, as the last part of a Gemini answer may."""
    return not text.text and any(artefact.provider != provider for artefact in text.artefacts)


class Media(Value, frozen=True, tag_field="part", tag="media"):
    """An image, sound, video or file: inline (`data`, base64), by `url`, or by a `file_id` of its `owner`."""

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
    """The model's reasoning as far as the provider shows it (`text` or `summary`), and its signatures (`artefacts`)."""

    text: str = ""
    summary: tuple[str, ...] = ()
    artefacts: tuple[Artefact, ...] = ()
    extra: Extra = {}

    @property
    def joined_text(self) -> str:
        """The sections of the summary, then the text, for wires whose reasoning is one text."""
        return "\n\n".join([*self.summary, self.text] if self.text else self.summary) if self.summary else self.text


class Refusal(Value, frozen=True, tag_field="part", tag="refusal"):
    """The text of a model's refusal."""

    text: str
    extra: Extra = {}


class Opaque(Value, frozen=True, tag_field="part", tag="opaque"):
    """A part specific to `wire`. It is preserved there and is a loss on any other wire."""

    wire: str
    type: str
    value: Object


class ToolCall(Value, frozen=True, tag_field="part", tag="call"):
    """A tool call by the model.

    `raw` is the argument text exactly as the wire gave it (None where the wire carries an object), `arguments` the
    parsed object (None if it cannot be parsed). Only a `complete` call may be run. A freeform call has its input in
    `raw`. A `typed` call is one of a typed tool for which the client's wire has an item of its own.
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
    _columns = "name text state id"
    _repr_html_ = repr_html

    @property
    def text(self) -> str:
        """The argument text: `raw` if set, else the arguments as compact JSON."""
        return self.raw if self.raw is not None else dumps(self.arguments or {})

    def with_explicit_arguments(self) -> ToolCall:
        """Replace empty argument text, which some models write for "no arguments", by an empty object."""
        return replace(self, raw=None) if self.raw == "" and self.arguments is not None else self

    def result(self, value: JSON = "", *, is_error: bool = False) -> ToolResult:
        """Build the result of this call.

        >>> ToolCall("call_1", "get_weather").result({"celsius": 22}).structured
        {'celsius': 22}
        """
        if isinstance(value, str):
            return ToolResult(self.id, self.name, (Text(value),), None, is_error, self.kind, self.namespace)
        return ToolResult(self.id, self.name, (), value, is_error, self.kind, self.namespace)


class ToolResult(Value, frozen=True, tag_field="part", tag="result"):
    """The result of a tool: text and media in `parts`, or a JSON value in `structured`.

    `found` are the names of the deferred tools that the result of a search loads (see `ir.tools`).
    """

    call_id: str
    name: str | None = None
    parts: tuple[Text | Media | Opaque, ...] = ()
    structured: JSON = None
    is_error: bool = False
    kind: CallKind = "function"
    namespace: str | None = None
    cache: str | None = None
    extra: Extra = {}
    found: tuple[str, ...] = ()
    _columns = "name text is_error call_id"
    _repr_html_ = repr_html

    @property
    def text(self) -> str:
        """The whole result as text, for wires that support only text results."""
        text = "".join([part.text for part in self.parts if isinstance(part, Text)]) if self.parts else ""
        if not text and self.structured is not None:
            return dumps(self.structured)
        return f"Found tools: {', '.join(self.found)}" if self.found and not text else text


def part_label(part: Part) -> str:
    """Return a label for a part in a message: "image", "call", or the type of an opaque part."""
    if isinstance(part, Media):
        return part.kind
    if isinstance(part, Opaque):
        return part.type
    return str(type(part).__struct_config__.tag)


Part: TypeAlias = Text | Media | Reasoning | Refusal | ToolCall | ToolResult | Opaque
