'''Resources and prompts of a server, made from functions.

    @resource("notes://{day}", media_type="text/markdown")
    def notes(day: str) -> str:
        """Return the notes of a day."""

    @prompt
    def review(code: str, style: Literal["kind", "strict"] = "kind") -> str:
        """Review a piece of code."""

A resource whose URI contains a {name} is a template. The arguments of a prompt are the parameters of its function. A
function returns text, bytes, media, or a list of these; a prompt may also return Messages.
'''

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, overload
from urllib.parse import unquote

from ...ir.errors import ConfigError
from ...ir.losses import Losses
from ...ir.parts import Media, Opaque, Text
from ...ir.pointer import Object
from ...ir.request import Message
from ...ir.text import dumps
from ...ir.value import Value
from ...schema.inference.tools import infer_tool
from ...wire.mcp.versions import LATEST
from ..protocol.content import encode_block

_VARIABLE = re.compile(r"\{(\w+)\}")


class Resource(Value, frozen=True):
    """A resource that can be read by its URI."""

    uri: str
    name: str
    function: Callable[..., Any]
    description: str | None = None
    media_type: str | None = None
    title: str | None = None

    @property
    def is_template(self) -> bool:
        return _VARIABLE.search(self.uri) is not None

    def to_declaration(self) -> Object:
        """Return the entry of the resource in a list."""
        out: Object = {"uriTemplate" if self.is_template else "uri": self.uri, "name": self.name}
        fields = (("title", self.title), ("description", self.description), ("mimeType", self.media_type))
        out.update((key, value) for key, value in fields if value is not None)
        return out

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the variables of a template, or None if the URI does not match."""
        if not self.is_template:
            return {} if uri == self.uri else None
        found = _match_template(self.uri, uri)
        return None if found is None else {name: unquote(value) for name, value in found.items()}


def _match_template(template: str, uri: str) -> dict[str, str] | None:
    """Return the values of the variables if a URI matches, else None. No variable contains a slash."""
    template_segments, uri_segments = template.split("/"), uri.split("/")
    found: dict[str, str] = {}
    for pattern, text in zip(template_segments, uri_segments, strict=False):
        values = _match_segment(_VARIABLE.split(pattern), text)
        if values is None:
            return None
        found |= values
    return found if len(template_segments) == len(uri_segments) else None


def _match_segment(pieces: list[str], text: str) -> dict[str, str] | None:
    """Return the values of the variables if a segment matches, else None; `pieces` are literal, name, literal, …

    Every variable takes at least one character, the first ones as many as possible. Placing the literals from the right
    gives that in one pass; a regular expression would try all combinations of several variables.
    """
    first, names, literals = pieces[0], pieces[1::2], pieces[2::2]
    if not names:
        return {} if text == first else None
    if not (text.startswith(first) and text.endswith(literals[-1])):
        return None
    found: dict[str, str] = {}
    end = len(text) - len(literals[-1])
    for name, before in zip(reversed(names), [*reversed(literals[:-1]), None], strict=True):
        start = 0 if before is None else text.rfind(before, 0, max(end - 1, 0))
        value_start = start + len(first if before is None else before)
        if start < 0 or value_start >= end:
            return None
        found[name] = text[value_start:end]
        end = start
    return found


class Prompt(Value, frozen=True):
    """Messages that a user may request. `complete` maps an argument to a function that suggests its values."""

    name: str
    function: Callable[..., Any]
    parameters: Object
    description: str | None = None
    title: str | None = None
    complete: Mapping[str, Callable[[str], Iterable[str]]] = {}

    def to_declaration(self) -> Object:
        """Return the entry of the prompt in a list."""
        required = self.parameters.get("required", ())
        out: Object = {"name": self.name}
        fields = (("title", self.title), ("description", self.description))
        out.update((key, value) for key, value in fields if value is not None)
        out["arguments"] = [
            {
                "name": name,
                **({"description": schema["description"]} if "description" in schema else {}),
                "required": name in required,
            }
            for name, schema in self.parameters.get("properties", {}).items()
        ]
        return out

    def completions(self, argument: str, prefix: str) -> list[str]:
        """Return the values of an argument that start with `prefix`."""
        if argument in self.complete:
            return [value for value in self.complete[argument](prefix) if value.startswith(prefix)]
        choices = self.parameters.get("properties", {}).get(argument, {}).get("enum", ())
        return [value for value in choices if isinstance(value, str) and value.startswith(prefix)]


def resource(
    uri: str, *, name: str | None = None, media_type: str | None = None, title: str | None = None
) -> Callable[[Callable[..., Any]], Resource]:
    """Make a decorator that turns a function into a resource."""

    def make(function: Callable[..., Any]) -> Resource:
        """Make the resource. The variables of its URI must be the parameters of the function.

        Raise ConfigError if not.
        """
        made = Resource(uri, name or function.__name__, function, _description(function), media_type, title)
        named = set(_VARIABLE.findall(uri))
        taken = set(infer_tool(function).input_schema["properties"])  # type: ignore[index]
        if named != taken:
            hint = f"the URI has {sorted(named)}, the function takes {sorted(taken)}"
            raise ConfigError(f"the variables of resource {uri} do not match the parameters of its function", hint=hint)
        return made

    return make


@overload
def prompt(function: Callable[..., Any], /) -> Prompt: ...


@overload
def prompt(
    *,
    name: str | None = None,
    title: str | None = None,
    complete: Mapping[str, Callable[[str], Iterable[str]]] = ...,
) -> Callable[[Callable[..., Any]], Prompt]: ...


def prompt(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    title: str | None = None,
    complete: Mapping[str, Callable[[str], Iterable[str]]] | None = None,
) -> Prompt | Callable[[Callable[..., Any]], Prompt]:
    """Turn a function into a prompt; with keyword arguments, return a decorator."""

    def make(function: Callable[..., Any]) -> Prompt:
        declared = infer_tool(function)
        return Prompt(
            name or declared.name, function, declared.input_schema or {}, _description(function), title, complete or {}
        )

    return make if function is None else make(function)


def _description(function: Callable[..., Any]) -> str | None:
    return infer_tool(function).description


def find_offers(module: ModuleType) -> tuple[list[Resource], list[Prompt]]:
    """Return the resources and prompts of a module, in the order of their definition."""
    members = [value for name, value in vars(module).items() if not name.startswith("_")]
    resources = [value for value in members if isinstance(value, Resource)]
    return resources, [value for value in members if isinstance(value, Prompt)]


def make_contents(value: Any, uri: str, media_type: str | None) -> list[Object]:
    """Convert the return value of a resource's function to the contents of its URI."""
    items = value if isinstance(value, (list, tuple)) else [value]
    return [_to_content(item, uri, media_type) for item in items]


def _to_content(item: Any, uri: str, media_type: str | None) -> Object:
    """Convert one value: bytes and media to a blob, text to text, anything else to JSON."""
    out: Object = {"uri": uri}
    if isinstance(item, Media) and item.data is not None:
        return {**out, **_mime_type_field(item.media_type or media_type), "blob": item.data}
    if isinstance(item, (bytes, bytearray)):
        return {**out, **_mime_type_field(media_type or "application/octet-stream"), "blob": b64encode(item).decode()}
    if isinstance(item, Text):
        item = item.text
    if isinstance(item, str):
        return {**out, **_mime_type_field(media_type), "text": item}
    return {**out, **_mime_type_field(media_type or "application/json"), "text": dumps(item)}


def _mime_type_field(media_type: str | None) -> Object:
    return {} if media_type is None else {"mimeType": media_type}


def make_messages(value: Any, version: str = LATEST) -> list[Object]:
    """Convert the return value of a prompt's function to messages of one block each."""
    items = value if isinstance(value, (list, tuple)) else [value]
    return [message for item in items for message in _to_messages(item, version)]


def _to_messages(item: Any, version: str) -> list[Object]:
    """Convert one value to messages, one per part, because an MCP prompt message has a single content block.

    ConfigError for a value that is neither text, media nor a message.
    """
    if isinstance(item, str):
        item = Text(item)
    if isinstance(item, (Text, Media, Opaque)):
        item = Message("user", (item,))
    if not isinstance(item, Message):
        raise ConfigError(f"a prompt must return text, media or messages, got {type(item).__name__}")
    role = "assistant" if item.role == "assistant" else "user"
    blocks = [part for part in item.parts if isinstance(part, (Text, Media, Opaque))]
    return [{"role": role, "content": encode_block(block, version, Losses(), "")} for block in blocks]
