"""Read /api/chat documents without decoding them: detection and JSON pointers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from ...ir.parts import Media, Part, Reasoning, ToolCall, ToolResult
from ...ir.pointer import JSON, Object, join, split
from ...ir.request import Request
from ...ir.response import Response
from ...ir.tools import Tool
from ..documents import declared_tools, scorer
from ..protocol import Kind

_FIELDS = {
    "max_tokens": "num_predict",
    "input_schema": "parameters",
    "reasoning": "think",
    "output": "format",
    "created": "created_at",
    "stop": "done_reason",
}
_COUNTS = {"input": "prompt_eval_count", "output": "eval_count"}


# fields of a canonical tool; other fields that a loss names are outside `function`
_DECLARED = frozenset(Tool.__struct_fields__) - {"extra"}


def locator(value: Request | Response) -> Callable[[str], str]:
    if isinstance(value, Request):
        return partial(_request_pointer, value, {})
    return partial(_response_pointer, list(_part_locations(value.parts)))


def _part_locations(parts: tuple[Part, ...]) -> Iterator[str]:
    """Yield the pointer of each part inside its message; a result is the whole message."""
    calls = images = 0
    for part in parts:
        if isinstance(part, ToolResult):
            yield ""
        elif isinstance(part, ToolCall):
            yield join("tool_calls", calls)
            calls += 1
        elif isinstance(part, Media):
            yield join("images", images)
            images += 1
        else:
            yield join("thinking" if isinstance(part, Reasoning) else "content")


def _request_pointer(request: Request, locations: dict[int, list[str]], path: str) -> str:
    """Map a canonical path in a request to a pointer; `locations` caches the parts of each message."""
    match split(path):
        case ["params", ("logprobs" | "top_logprobs") as name, *_]:
            return join(name)
        case ["params", name, *_]:
            return join("options", _FIELDS.get(name, name))
        case ["tools", index, field, *rest] if field in _DECLARED:
            return join("tools", index, "function", _FIELDS.get(field, field), *rest)
        case ["messages", index, "parts", number, *rest]:
            if int(index) not in locations:
                locations[int(index)] = list(_part_locations(request.messages[int(index)].parts))
            return join("messages", index) + locations[int(index)][int(number)] + join(*rest)
        case ["output", "schema", *rest]:
            return join("format", *rest)
        case ["reasoning" | "output" as field, *_]:
            return join(_FIELDS[field])
    return path


def _response_pointer(locations: list[str], path: str) -> str:
    """Map a canonical path in a response to a pointer; `locations` holds the pointers of its parts."""
    match split(path):
        case ["parts", number, *rest]:
            return join("message") + locations[int(number)] + join(*rest)
        case ["usage", name, *_]:
            return join(_COUNTS.get(name, name))
        case ["created" | "stop" as field, *_]:
            return join(_FIELDS[field])
    return path


_OWN_FIELDS = frozenset({"options", "keep_alive", "think", "format"})
_OWN_IN_MESSAGES = frozenset({"images", "thinking", "tool_name"})


def _is_own_request(body: Object) -> bool:
    """Return whether the body has a field that Chat, which is similar, does not have."""
    if not _OWN_FIELDS.isdisjoint(body):
        return True
    return any(
        not _OWN_IN_MESSAGES.isdisjoint(message) or any(map(_is_own_call, message.get("tool_calls") or ()))
        for message in body["messages"]
    )


def _is_own_call(call: Object) -> bool:
    return "id" not in call and type(call["function"].get("arguments", {})) is dict


def _is_answer(body: Object) -> bool:
    return type(body["message"]) is dict and type(body["done"]) is bool


DETECTION: Mapping[Kind, Callable[[JSON], int]] = {
    "request": scorer((1, lambda b: type(b["messages"]) is list), (30, _is_own_request)),
    "response": scorer((6, _is_answer)),
    "stream": scorer((6, lambda b: _is_answer(b) or type(b["error"]) is str)),
    "tools": scorer((1, lambda b: any("function" in tool for tool in declared_tools(b)))),
    "error": scorer((3, lambda b: type(b["error"]) is str)),
}
