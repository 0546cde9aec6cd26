"""Where things stand in a Responses request, and how to recognise one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...ir.losses import Losses
from ...ir.parts import Refusal, Text
from ...ir.pointer import JSON, join, split
from ...ir.request import Message, Request
from ..protocol import Kind
from ..signs import blocks, score, tools_of
from .items import write_items

__all__ = ["SIGNS", "locate"]

_FIELDS = {
    "choice": "tool_choice",
    "parallel": "parallel_tool_calls",
    "output": "text",
    "max_tokens": "max_output_tokens",
    "cache_key": "prompt_cache_key",
    "verbosity": "text",
    "input_schema": "parameters",
    "deferred": "defer_loading",
    "cache": "prompt_cache_breakpoint",
}


def locate(request: Request, path: str) -> str:
    """The pointer into the Responses document for a canonical `path`."""
    match split(path):
        case ["params", name, *_]:
            return join(_FIELDS.get(name, name))
        case ["tools", index, *rest]:
            return _tool(request, int(index)) + join(*(_FIELDS.get(name, name) for name in rest))
        case ["messages", index, *rest]:
            return _message(request, int(index), rest)
        case [field, *rest]:
            return join(_FIELDS.get(field, field), *(rest if field == "reasoning" else []))
    return path


def _tool(request: Request, index: int) -> str:
    """Tools of one namespace stand inside it."""
    entry, inside = -1, -1
    space: str | None = None
    for tool in request.tools[: index + 1]:
        if tool.namespace is None or tool.namespace != space:
            entry, inside = entry + 1, 0
        else:
            inside += 1
        space = tool.namespace
    return join("tools", entry) if space is None else join("tools", entry, "tools", inside)


def _message(request: Request, index: int, rest: list[str]) -> str:
    if index == 0 and _is_instructions(request):
        return join("instructions")
    before = request.messages[int(_is_instructions(request)) : index]
    item = sum(len(list(write_items(message, "", Losses()))) for message in before)
    message = request.messages[index]
    if rest[:1] != ["parts"] or len(rest) < 2:
        return join("input", item, *rest)
    number = int(rest[1])
    earlier = (
        list(write_items(Message(message.role, message.parts[:number], message.extra), "", Losses())) if number else []
    )
    inner = [_FIELDS.get(name, name) for name in rest[2:]]
    words = isinstance(message.parts[number], (Text, Refusal)) and bool(earlier) and "content" in earlier[-1]
    if words and ":item" not in getattr(message.parts[number], "extra", {}).get("openai_responses~", {}):
        content = earlier[-1]["content"]
        return join("input", item + len(earlier) - 1, "content", len(content) if type(content) is list else 1, *inner)
    return join("input", item + len(earlier), *inner)


def _is_instructions(request: Request) -> bool:
    messages = request.messages
    if not messages or messages[0].role != "system" or messages[0].extra:
        return False
    return not (len(messages) > 1 and messages[1].role == "system")


_ITEMS = frozenset(
    {"message", "function_call", "function_call_output", "reasoning", "custom_tool_call", "item_reference"}
)

SIGNS: Mapping[Kind, Callable[[JSON], int]] = {
    "request": score(
        (6, lambda b: type(b["input"]) in (list, str) and "messages" not in b),
        (
            3,
            lambda b: (
                not {"instructions", "max_output_tokens", "previous_response_id", "include", "text"}.isdisjoint(b)
            ),
        ),
        (3, lambda b: any(item.get("type") in _ITEMS for item in blocks(b, "input"))),
    ),
    "response": score((5, lambda b: b.get("object") == "response" or type(b["output"]) is list)),
    "stream": score((5, lambda b: str(b["type"]).startswith("response."))),
    "tools": score(
        (
            4,
            lambda b: any(
                tool.get("type") in ("function", "custom", "namespace") and "name" in tool for tool in tools_of(b)
            ),
        ),
        (1, lambda b: not any("function" in tool or "input_schema" in tool for tool in tools_of(b))),
    ),
    "error": score((1, lambda b: type(b["error"]) is dict)),
}
