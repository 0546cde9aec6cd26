"""Read the elements of a document: canonical values with verified pointers.

Elements form groups: a tool with its name and parameters, a call with its name, id and arguments. A group whose own
pointer cannot be verified has no elements; a member that cannot be verified is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Literal, TypeAlias

from msgspec import Struct

from ...ir.errors import ToolwireError
from ...ir.losses import Losses
from ...ir.parts import Media, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from ...ir.pointer import JSON, Object, join, nearest_existing, resolve
from ...ir.request import Request
from ...ir.response import Response
from ...ir.text import shorten
from ...ir.tools import Tool
from ...ir.value import Value
from ...wire import get
from ..translation.tool_lists import decode_readable_tools, find_declarations, source_locator

_PartKind: TypeAlias = Literal["tool", "call", "result", "text", "reasoning", "media"]
_FieldKind: TypeAlias = Literal["name", "id", "description", "parameters", "parameter", "arguments", "argument"]
_SettingKind: TypeAlias = Literal["model", "param", "choice", "stop", "usage", "type", "message", "status"]
ElementKind: TypeAlias = _PartKind | _FieldKind | _SettingKind
GroupValue: TypeAlias = Tool | Part | None
Locate: TypeAlias = Callable[[str], str]

MAX_ELEMENTS = 5_000
"""Elements of a document. A request of Claude Code with 100 tools has 900; links to more cost more than they show."""
_LABEL = 60  # characters of a label: it is a heading of a tooltip, not the content
_NESTING = 8  # levels of parameters and arguments; deeper ones are highlighted with their parents
_SEARCHED = 4  # levels between a part and its fields: media in `functionResponse/parts/0/inlineData` have the most
_VALUES = 400  # visited in the search for a field, so that a large argument object is not searched
_NAMES, _DESCRIPTIONS = frozenset({"name"}), frozenset({"description"})
_IDS = frozenset({"id", "call_id", "tool_use_id", "tool_call_id", "toolUseId"})
_ARGUMENTS = ("arguments", "input", "args")
_SCHEMAS = ("input_schema", "inputSchema", "parameters", "parametersJsonSchema")
_TEXTS = frozenset({"text", "content", "output", "thinking", "refusal", "reasoning", "reasoning_content", "response"})
_MEDIA = frozenset({"data", "url", "image_url", "fileUri", "file_uri", "file_id", "file_data", "bytes", "uri"})
_PARAMS = (
    "max_tokens temperature top_p top_k stop seed n presence_penalty frequency_penalty user metadata store service_tier"
).split()


class Member(Value, frozen=True):
    """An element inside a group. `suffix` is its id without the group's id, such as ".name" or ".a/city".

    `inner` is a pointer inside the JSON text that the string at `pointer` contains.
    """

    suffix: str
    kind: ElementKind
    label: str
    pointer: str
    value: JSON
    inner: str | None = None


class Group(Struct, eq=False):
    """A tool, a part of a message, or a setting of the request, with its members.

    `role` is the role of its message, `position` its indices in the canonical value: (tool,) or (message, part).
    """

    kind: ElementKind
    id: str
    label: str
    pointer: str
    value: JSON | GroupValue
    members: list[Member]
    role: str = ""
    position: tuple[int, ...] = ()


class Reading(Struct, eq=False):
    """The elements of a document, and its canonical value, None for a list of tools or an error.

    `unread` parts and tools of a large document have no elements.
    """

    groups: list[Group]
    canonical: Request | Response | None
    tools: tuple[Tool, ...] = ()
    unread: int = 0


def read_elements(document: JSON, wire: str, kind: str) -> Reading:
    """Return the elements of a request, an answer, an error or a list of tools."""
    if kind == "tools":
        return _read_tools(document, wire)
    if kind == "request":
        request = get(wire).decode_request(document)
        return _read_request(document, request, get(wire).locator(request))
    if kind == "response":
        response = get(wire).decode_response(document)
        return _read_response(document, response, get(wire).locator(response))
    return Reading(list(_read_error(document, wire)), None)


# The wires' error objects. Gemini has its status in `code`, Interactions its type; Ollama, Cohere and Bedrock have a text only.
_ERROR_FIELDS: tuple[tuple[ElementKind, str], ...] = (
    ("type", "/error/type"),
    ("type", "/error/status"),
    ("type", "/error/code"),
    ("message", "/error/message"),
    ("message", "/error"),
    ("message", "/message"),
    ("status", "/error/code"),
)


def _read_error(document: JSON, wire: str) -> Iterator[Group]:
    """Yield the type, the message and the status of an error document."""
    fault = get(wire).decode_error(None, document)
    values: dict[str, JSON] = {}  # of several fields for one kind, the first one counts
    for kind, pointer in _ERROR_FIELDS:
        value = None if kind in values else _value_at(document, pointer)
        if type(value) is str if kind == "type" else value == getattr(fault, kind):
            values[kind] = value
            yield Group(kind, kind, shorten(str(value), _LABEL), pointer, value, [])


def _read_tools(document: JSON, wire: str) -> Reading:
    declared, place = find_declarations(document, wire)
    try:
        tools, indices = decode_readable_tools(declared, wire, Losses())
    except ToolwireError:
        return Reading([], None)
    groups, read = _collect([], _tool_groups(document, tools, source_locator(tools, indices, wire, place)))
    return Reading(groups, None, tools, len(tools) - read)


def _read_request(document: JSON, request: Request, locate: Locate) -> Reading:
    settings: list[Group] = []
    for name in _PARAMS:
        if (value := getattr(request.params, name)) is not None:
            settings += _setting(document, "param", f"param/{name}", locate(join("params", name)), value)
    if request.model:
        settings += _setting(document, "model", "model", join("model"), request.model)
    if request.choice is not None:
        settings += _setting(document, "choice", "choice", locate(join("choice")), request.choice.mode)
    messages = _message_groups(document, request, locate)
    groups, read = _collect(settings, chain(_tool_groups(document, request.tools, locate), messages))
    parts = [1] * len(request.tools) + [len(message.parts) for message in request.messages]
    return Reading(groups, request, request.tools, sum(parts[read:]))


def _message_groups(document: JSON, request: Request, locate: Locate) -> Iterator[list[Group]]:
    """Yield the groups of each message."""
    numbers: Counter[str] = Counter()
    for index, message in enumerate(request.messages):
        groups = list(_part_groups(document, message.parts, join("messages", index), locate, numbers))
        for group in groups:
            group.role, group.position = message.role, (index, *group.position)
        yield groups


def _collect(settings: list[Group], batches: Iterable[list[Group]]) -> tuple[list[Group], int]:
    """Return the groups of a document up to the limit, and the number of tools and messages that were read.

    All groups of a message are read, because those that share a pointer are left out.
    """
    groups, size, read = settings, len(settings), 0
    for batch in batches:
        groups += batch
        size += sum(1 + len(group.members) for group in batch)
        read += 1
        if size > MAX_ELEMENTS:
            break
    return _with_own_pointers(groups), read


def _read_response(document: JSON, response: Response, locate: Locate) -> Reading:
    groups = list(_part_groups(document, response.parts, "", locate, Counter()))
    if response.model:
        pointer = next((p for p in ("/model", "/modelVersion") if _value_at(document, p) == response.model), "")
        groups += _setting(document, "model", "model", pointer, response.model)
    if response.stop is not None:
        groups += _setting(document, "stop", "stop", locate(join("stop")), response.stop.reason)
    return Reading(_with_own_pointers(groups), response)


def _setting(document: JSON, kind: ElementKind, name: str, pointer: str, value: JSON) -> list[Group]:
    """Return the group of a field of the whole document, if it exists there."""
    if not pointer or _value_at(document, pointer) is None:
        return []
    return [Group(kind, name, name.rpartition("/")[2], pointer, value, [])]


def _tool_groups(document: JSON, tools: tuple[Tool, ...], locate: Locate) -> Iterator[list[Group]]:
    """Yield the group of each tool, as a list that is empty without a verified pointer."""
    for index, tool in enumerate(tools):
        base = locate(join("tools", index))
        name = _find_field(document, base, _NAMES, tool.name)
        if name is None:
            yield []
            continue
        members = [Member(".name", "name", tool.name, name, tool.name)]
        if tool.description and (pointer := _find_field(document, base, _DESCRIPTIONS, tool.description)) is not None:
            members.append(Member(".description", "description", "description", pointer, tool.description))
        parent = name.rpartition("/")[0]
        declaration = resolve(document, parent)
        for field in _SCHEMAS:
            schema = declaration.get(field)
            if type(schema) is dict:
                at = parent + join(field)
                if schema.keys() == {"json"} and type(schema["json"]) is dict:  # on Converse
                    at, schema = at + join("json"), schema["json"]
                members.append(Member(".parameters", "parameters", "parameters", at, tool.input_schema))
                members += _parameters(schema, at, "", 0)
                break
        yield [Group("tool", f"t{index}", tool.name, base, tool, members, position=(index,))]


def _parameters(schema: Object, pointer: str, path: str, depth: int) -> Iterator[Member]:
    """Yield the properties of a schema and of the schemas in it. `~items` in a path is no escaped property name."""
    properties = schema.get("properties")
    if type(properties) is dict and depth < _NESTING:
        for name, inner in properties.items():
            inner_path, at = path + join(name), pointer + join("properties", name)
            yield Member(f".p{inner_path}", "parameter", name, at, inner)
            if type(inner) is dict:
                yield from _parameters(inner, at, inner_path, depth + 1)
    items = schema.get("items")
    if type(items) is dict and depth < _NESTING:
        yield from _parameters(items, pointer + join("items"), f"{path}/~items", depth + 1)


_LETTERS = {"call": "c", "result": "r", "text": "x", "reasoning": "g", "media": "m"}


def _part_groups(
    document: JSON, parts: tuple[Part, ...], path: str, locate: Locate, numbers: Counter[str]
) -> Iterator[Group]:
    """Yield the groups of the parts of a message. `numbers` counts the parts of each kind in the document."""
    for index, part in enumerate(parts):
        at = path + join("parts", index)
        found = [_read_part(document, part, locate(at))]
        if isinstance(part, ToolResult):
            found += [
                _read_media(document, item, locate(at + join("parts", number)), locate(at))
                for number, item in enumerate(part.parts)
                if isinstance(item, Media)
            ]
        for group in found:
            if group is not None:
                letter = _LETTERS[group.kind]
                group.id, group.position = f"{letter}{numbers[letter]}", (index,)
                numbers[letter] += 1
                yield group


def _read_part(document: JSON, part: Part, base: str) -> Group | None:
    if isinstance(part, ToolCall):
        return _read_call(document, part, base)
    if isinstance(part, ToolResult):
        return _read_result(document, part, base)
    if isinstance(part, (Text, Refusal, Reasoning)):
        text = part.joined_text if isinstance(part, Reasoning) else part.text
        kind: ElementKind = "reasoning" if isinstance(part, Reasoning) else "text"
        pointer = _find_text(document, base, text)
        return None if pointer is None else Group(kind, "", shorten(text, _LABEL), pointer, part, [])
    if isinstance(part, Media):
        return _read_media(document, part, base)
    return None


def _read_media(document: JSON, media: Media, base: str, around: str | None = None) -> Group | None:
    """Return the group of an image or file at `base`, or else of the only place below `around` with its content."""
    content = media.data or media.url or media.file_id
    if not content:
        return None
    value = _value_at(document, base)
    if value == content or _holds_content(value, content):
        return Group("media", "", media.kind, base, media, [])
    if around is None:
        return None
    written = (content, f"data:{media.media_type};base64,{content}")
    pointer = next(filter(None, (_find_field(document, around, _MEDIA, text) for text in written)), None)
    return None if pointer is None else Group("media", "", media.kind, pointer.rpartition("/")[0], media, [])


def _read_call(document: JSON, call: ToolCall, base: str) -> Group | None:
    name = _find_field(document, base, _NAMES, call.name)
    if name is None:
        return None
    members = [Member(".name", "name", call.name, name, call.name)]
    if call.id and (pointer := _find_field(document, base, _IDS, call.id)) is not None:
        members.append(Member(".id", "id", call.id, pointer, call.id))
    parent = name.rpartition("/")[0]
    holder = resolve(document, parent)
    for field in _ARGUMENTS:
        written = holder.get(field)
        at = parent + join(field)
        if type(written) is dict and written == call.arguments:
            members.append(Member(".args", "arguments", "arguments", at, call.arguments))
            members += read_arguments(written, at)
        elif type(written) is str and written == call.text:
            members.append(Member(".args", "arguments", "arguments", at, call.arguments))
            if call.arguments is not None and call.kind != "freeform":
                members += read_arguments(call.arguments, at, text_at=at)
    return Group("call", "", call.name, base, call, members)


def read_arguments(
    value: JSON, pointer: str = "", *, text_at: str | None = None, path: str = "", depth: int = 0
) -> Iterator[Member]:
    """Yield the arguments in the object or array at `pointer`. `text_at` points at a string with them as JSON text."""
    if depth >= _NESTING:
        return
    items = value.items() if type(value) is dict else enumerate(value) if type(value) is list else ()
    for key, inner in items:
        inner_path = path + join(key)
        at, text_pointer = (pointer + join(key), None) if text_at is None else (text_at, inner_path)
        yield Member(f".a{inner_path}", "argument", str(key), at, inner, text_pointer)
        yield from read_arguments(inner, at, text_at=text_at, path=inner_path, depth=depth + 1)


def _read_result(document: JSON, result: ToolResult, base: str) -> Group | None:
    """Return the group of a result whose call id or text is found."""
    members: list[Member] = []
    if result.call_id and (pointer := _find_field(document, base, _IDS, result.call_id)) is not None:
        members.append(Member(".id", "id", result.call_id, pointer, result.call_id))
    text = result.text
    if text and (pointer := _find_text(document, base, text)) is not None:
        members.append(Member(".text", "text", shorten(text, _LABEL), pointer, text))
    if result.name and (pointer := _find_field(document, base, _NAMES, result.name)) is not None:
        members.append(Member(".name", "name", result.name, pointer, result.name))
    if not members:
        return None
    return Group("result", "", shorten(text, _LABEL), base, result, members)


def _value_at(document: JSON, pointer: str) -> JSON:
    """Return the value at a pointer, None if there is none."""
    try:
        return resolve(document, pointer)
    except (KeyError, IndexError, TypeError, ValueError):
        return None


def _find_text(document: JSON, base: str, text: str) -> str | None:
    """Return the pointer of a text: the value at `base`, a field below it, or a string in place of a list around it."""
    if not text:
        return None
    nearest = nearest_existing(document, base)
    value = _value_at(document, nearest)
    if value == text:
        return nearest
    return _find_field(document, nearest, _TEXTS, text) if nearest.count("/") == base.count("/") else None


def _find_field(document: JSON, base: str, keys: frozenset[str], value: JSON) -> str | None:
    """Return the pointer of the only field with one of these keys and this value, at the least depth below `base`."""
    level: list[tuple[str, JSON]] = [(base, _value_at(document, base))]
    visited = 0
    for _ in range(_SEARCHED + 1):
        below: list[tuple[str, JSON]] = []
        found: list[str] = []
        for pointer, container in level:
            items = container.items() if type(container) is dict else ()
            if type(container) is list:
                items = enumerate(container)  # type: ignore[assignment]
            for key, inner in items:
                visited += 1
                if visited > _VALUES:
                    return None
                if key in keys and inner == value and type(inner) is type(value):
                    found.append(pointer + join(key))
                elif type(inner) in (dict, list):
                    below.append((pointer + join(key), inner))
        if found:
            return found[0] if len(found) == 1 else None
        level = below
    return None


def _holds_content(value: JSON, content: str) -> bool:
    """Return whether an object has the content of media in a field, also as the end of a data URL."""
    if type(value) is not dict:
        return False
    return any(
        _holds_content(inner, content)
        or (key in _MEDIA and type(inner) is str and inner.endswith(content) and (inner == content or "," in inner))
        for key, inner in value.items()
    )


def _with_own_pointers(groups: list[Group]) -> list[Group]:
    """Leave out groups that share a pointer with another: a wrong pointer may find an equal value."""
    counts = Counter(group.pointer for group in groups)
    return [group for group in groups if counts[group.pointer] == 1]
