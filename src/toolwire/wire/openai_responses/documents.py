"""Read Responses documents without decoding them: detection and JSON pointers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from ...ir.parts import Media, Opaque, Part, Refusal, Text, ToolResult
from ...ir.pointer import JSON, Object, join, split
from ...ir.request import Request
from ...ir.response import Response
from ..documents import blocks, declared_tools, scorer
from ..protocol import Kind
from .content import is_content
from .tools import is_loaded_later

_FIELDS = {
    "choice": "tool_choice",
    "parallel": "parallel_tool_calls",
    "max_tokens": "max_output_tokens",
    "cache_key": "prompt_cache_key",
    "input_schema": "parameters",
    "deferred": "defer_loading",
    "cache": "prompt_cache_breakpoint",
}


def locator(value: Request | Response) -> Callable[[str], str]:
    if isinstance(value, Request):
        return _request_locator(value)
    return partial(_response_pointer, _assistant_locations(value.parts, "output", 0)[0])


def _tool_pointers(request: Request) -> Iterator[str]:
    """Yield the location of each tool; the tools of a namespace are inside it."""
    entry, inside = -1, -1
    space: str | None = None
    for tool in request.tools:
        if tool.deferred and is_loaded_later(tool, request.tools):
            yield join("input")
            continue
        if tool.namespace is None or tool.namespace != space:
            entry, inside = entry + 1, 0
        else:
            inside += 1
        space = tool.namespace
        yield join("tools", entry) if space is None else join("tools", entry, "tools", inside)


def _request_locator(request: Request) -> Callable[[str], str]:
    """Find the items and parts of all messages once, and return a function from paths to pointers."""
    skipped = int(_is_instructions(request))
    items: list[str] = [join("instructions")] * skipped
    parts: list[list[str]] = [[join("instructions")]] * skipped
    item = 0
    for message in request.messages[skipped:]:
        items.append(join("input", item))
        if message.role == "assistant":
            locations, item = _assistant_locations(message.parts, "input", item)
            parts.append(locations)
        else:
            parts.append([_part_pointer(part, number, item) for number, part in enumerate(message.parts)])
            item += 1
    return partial(_locate, list(_tool_pointers(request)), items, parts)


def _locate(tools: list[str], items: list[str], parts: list[list[str]], path: str) -> str:
    """Map a canonical path to a pointer; `tools`, `items` and `parts` hold the pointers of tools, messages and parts."""
    match split(path):
        case ["params", "verbosity"]:
            return join("text", "verbosity")
        case ["params", "logprobs"]:
            return join("include")
        case ["params", name, *_]:
            return join(_FIELDS.get(name, name))
        case ["tools", index, "namespace", *rest] if "/tools/" in tools[int(index)][1:]:
            return tools[int(index)].rpartition("/tools/")[0] + join(*rest)
        case ["tools", index, *rest]:
            return tools[int(index)] + join(*(_FIELDS.get(name, name) for name in rest[:1]), *rest[1:])
        case ["messages", index, "parts", number, "item", *rest]:
            return parts[int(index)][int(number)].rpartition("/content/")[0] + join(*rest)
        case ["messages", index, "parts", number, *rest]:
            return parts[int(index)][int(number)] + join(*(_FIELDS.get(name, name) for name in rest))
        case ["messages", index, *rest]:
            return items[int(index)] + join(*rest)
        case ["choice", "choice", *rest]:
            return join("tool_choice", *rest)
        case ["output", *rest]:
            return join("text", "format", *rest)
        case [field, *rest]:
            return join(_FIELDS.get(field, field), *rest)
    return path


def _part_pointer(part: Part, number: int, item: int) -> str:
    """Return the location of a part of a message from outside the model; a result is an item by itself."""
    by_itself = isinstance(part, (ToolResult, Opaque)) and not is_content(part)
    return join("input", item) if by_itself else join("input", item, "content", number)


def _assistant_locations(parts: tuple[Part, ...], field: str, item: int) -> tuple[list[str], int]:
    """Return the location of each part of the model's output, and the number of the next item."""
    locations: list[str] = []
    last_content = -1  # the number of the last content in an open item
    item -= 1
    for part in parts:
        if not isinstance(part, (Text, Refusal, Media)) and not is_content(part):
            item, last_content = item + 1, -1
            locations.append(join(field, item))
            continue
        if last_content < 0 or ":item" in getattr(part, "extra", {}).get("openai_responses~", {}):
            item, last_content = item + 1, -1
        last_content += 1
        locations.append(join(field, item, "content", last_content))
    return locations, item + 1


def _response_pointer(locations: list[str], path: str) -> str:
    """Map a canonical path in a response to a pointer; `locations` holds the pointers of its parts."""
    match split(path):
        case ["parts", number, *rest]:
            return locations[int(number)] + join(*rest)
        case ["stop", *_]:
            return join("status")
    return path


def _is_instructions(request: Request) -> bool:
    messages = request.messages
    if not messages or messages[0].role != "system" or messages[0].extra or len(messages[0].parts) != 1:
        return False
    return not (len(messages) > 1 and messages[1].role == "system")


_ITEMS = frozenset(
    {"message", "function_call", "function_call_output", "reasoning", "custom_tool_call", "item_reference"}
)


def _is_stored(body: Object) -> bool:
    """Return whether the provider stores the conversation, so that `input` may be absent."""
    return bool(body.get("previous_response_id") or body.get("conversation")) or type(body.get("prompt")) is dict


DETECTION: Mapping[Kind, Callable[[JSON], int]] = {
    "request": scorer(
        (6, lambda b: "messages" not in b and (type(b.get("input")) in (list, str) or _is_stored(b))),
        (
            3,
            lambda b: (
                not {"instructions", "max_output_tokens", "previous_response_id", "include", "text"}.isdisjoint(b)
            ),
        ),
        (3, lambda b: any(item.get("type") in _ITEMS for item in blocks(b, "input"))),
    ),
    "response": scorer((5, lambda b: b.get("object") == "response" or type(b["output"]) is list)),
    "stream": scorer((5, lambda b: str(b["type"]).startswith("response."))),
    "tools": scorer(
        (
            4,
            lambda b: any(
                tool.get("type") in ("function", "custom", "namespace") and "name" in tool for tool in declared_tools(b)
            ),
        ),
        (1, lambda b: not any("function" in tool or "input_schema" in tool for tool in declared_tools(b))),
    ),
    "error": scorer((1, lambda b: type(b["error"]) is dict)),
}
