'''What a server offers beside tools: resources and prompts, made of functions.

    @resource("notes://{day}", media_type="text/markdown")
    def notes(day: str) -> str:
        """What was noted on a day."""

    @prompt
    def review(code: str, style: Literal["kind", "strict"] = "kind") -> str:
        """Review a piece of code."""

A resource whose address has a {name} is a template. A prompt's arguments are its function's parameters. What a function gives
is text, bytes, media, or a list of such; a prompt may give Messages, too.
'''

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, overload
from urllib.parse import unquote

from ..ir.errors import ConfigError
from ..ir.losses import Losses
from ..ir.parts import Media, Opaque, Text
from ..ir.pointer import Object
from ..ir.request import Message
from ..ir.text import dumps
from ..ir.value import Value
from ..schema.infer import tool
from ..wire.mcp.content import encode_block
from ..wire.mcp.versions import LATEST

__all__ = ["Prompt", "Resource", "contents_of", "messages_of", "offered_by", "prompt", "resource"]

_VARIABLE = re.compile(r"\{(\w+)\}")


class Resource(Value, frozen=True):
    """Something that can be read by its address."""

    uri: str
    name: str
    function: Callable[..., Any]
    description: str | None = None
    media_type: str | None = None
    title: str | None = None

    @property
    def is_template(self) -> bool:
        return _VARIABLE.search(self.uri) is not None

    def declared(self) -> Object:
        """As a list shows it."""
        out: Object = {"uriTemplate" if self.is_template else "uri": self.uri, "name": self.name}
        said = (("title", self.title), ("description", self.description), ("mimeType", self.media_type))
        out.update((key, value) for key, value in said if value is not None)
        return out

    def match(self, uri: str) -> dict[str, str] | None:
        """The variables of a template; None where this is not its address."""
        if not self.is_template:
            return {} if uri == self.uri else None
        found = _match_template(self.uri, uri)
        return None if found is None else {name: unquote(value) for name, value in found.items()}


def _match_template(template: str, uri: str) -> dict[str, str] | None:
    """Match a URI, segment by segment, because no variable contains a slash."""
    wanted, given = template.split("/"), uri.split("/")
    found: dict[str, str] = {}
    for pattern, text in zip(wanted, given, strict=False):
        values = _match_segment(_VARIABLE.split(pattern), text)
        if values is None:
            return None
        found |= values
    return found if len(wanted) == len(given) else None


def _match_segment(pieces: list[str], text: str) -> dict[str, str] | None:
    """Match literals and variables in turn, `pieces` being literal, name, literal, …, literal.

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
    """Messages that a user may ask for. `complete` gives, by argument, what could stand there."""

    name: str
    function: Callable[..., Any]
    parameters: Object
    description: str | None = None
    title: str | None = None
    complete: Mapping[str, Callable[[str], Iterable[str]]] = {}

    def declared(self) -> Object:
        """As a list shows it."""
        required = self.parameters.get("required", ())
        out: Object = {"name": self.name}
        said = (("title", self.title), ("description", self.description))
        out.update((key, value) for key, value in said if value is not None)
        out["arguments"] = [
            {
                "name": name,
                **({"description": schema["description"]} if "description" in schema else {}),
                "required": name in required,
            }
            for name, schema in self.parameters.get("properties", {}).items()
        ]
        return out

    def completions(self, argument: str, begun: str) -> list[str]:
        """What an argument that begins so could be."""
        if argument in self.complete:
            return [value for value in self.complete[argument](begun) if value.startswith(begun)]
        choices = self.parameters.get("properties", {}).get(argument, {}).get("enum", ())
        return [value for value in choices if isinstance(value, str) and value.startswith(begun)]


def resource(
    uri: str, *, name: str | None = None, media_type: str | None = None, title: str | None = None
) -> Callable[[Callable[..., Any]], Resource]:
    """Makes a function a resource."""

    def make(function: Callable[..., Any]) -> Resource:
        made = Resource(uri, name or function.__name__, function, _words(function), media_type, title)
        named = set(_VARIABLE.findall(uri))
        taken = set(tool(function).input_schema["properties"])  # type: ignore[index]
        if named != taken:
            hint = f"the address has {sorted(named)}, the function takes {sorted(taken)}"
            raise ConfigError(f"the resource {uri} and its function do not agree", hint=hint)
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
    """Makes a function a prompt; with arguments, a decorator that does."""

    def make(function: Callable[..., Any]) -> Prompt:
        declared = tool(function)
        return Prompt(
            name or declared.name, function, declared.input_schema or {}, _words(function), title, complete or {}
        )

    return make if function is None else make(function)


def _words(function: Callable[..., Any]) -> str | None:
    return tool(function).description


def offered_by(module: ModuleType) -> tuple[list[Resource], list[Prompt]]:
    """The resources and prompts of a module, in the order in which they stand there."""
    members = [value for name, value in vars(module).items() if not name.startswith("_")]
    resources = [value for value in members if isinstance(value, Resource)]
    return resources, [value for value in members if isinstance(value, Prompt)]


def contents_of(value: Any, uri: str, media_type: str | None) -> list[Object]:
    """What a resource's function gave, as the contents of its address."""
    items = value if isinstance(value, (list, tuple)) else [value]
    return [_content(item, uri, media_type) for item in items]


def _content(item: Any, uri: str, media_type: str | None) -> Object:
    out: Object = {"uri": uri}
    if isinstance(item, Media) and item.data is not None:
        return {**out, **_typed(item.media_type or media_type), "blob": item.data}
    if isinstance(item, (bytes, bytearray)):
        return {**out, **_typed(media_type or "application/octet-stream"), "blob": b64encode(item).decode()}
    if isinstance(item, Text):
        item = item.text
    if isinstance(item, str):
        return {**out, **_typed(media_type), "text": item}
    return {**out, **_typed(media_type or "application/json"), "text": dumps(item)}


def _typed(media_type: str | None) -> Object:
    return {} if media_type is None else {"mimeType": media_type}


def messages_of(value: Any, version: str = LATEST) -> list[Object]:
    """What a prompt's function gave, as messages of one block each."""
    items = value if isinstance(value, (list, tuple)) else [value]
    return [message for item in items for message in _messages(item, version)]


def _messages(item: Any, version: str) -> list[Object]:
    if isinstance(item, str):
        item = Text(item)
    if isinstance(item, (Text, Media, Opaque)):
        item = Message("user", (item,))
    if not isinstance(item, Message):
        raise ConfigError(f"a prompt gives text, media or messages, not {type(item).__name__}")
    role = "assistant" if item.role == "assistant" else "user"
    blocks = [part for part in item.parts if isinstance(part, (Text, Media, Opaque))]
    return [{"role": role, "content": encode_block(block, version, Losses(), "")} for block in blocks]
