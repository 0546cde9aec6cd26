"""Read /v2/chat documents without decoding them: detection and JSON pointers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from ...ir.parts import Part, Refusal, Text, ToolCall, ToolResult
from ...ir.pointer import JSON, Object, join, split
from ...ir.request import Request
from ...ir.response import Response
from ...ir.tools import Tool
from ..documents import declared_tools, scorer
from ..protocol import Kind
from .content import FORM
from .messages import is_in_plan
from .response import STOP_REASONS

_FIELDS = {
    "choice": "tool_choice",
    "reasoning": "thinking",
    "budget": "token_budget",
    "output": "response_format",
    "schema": "json_schema",
    "top_p": "p",
    "top_k": "k",
    "stop": "stop_sequences",
    "input_schema": "parameters",
}
_COUNTS = {"input": "tokens/input_tokens", "output": "tokens/output_tokens", "cached": "cached_tokens"}
# fields of a canonical tool, which are inside `function`; other fields that a loss names are beside it
_DECLARED = frozenset(Tool.__struct_fields__) - {"extra"}


def locator(value: Request | Response) -> Callable[[str], str]:
    if isinstance(value, Request):
        return partial(_request_pointer, value, {})
    return partial(_response_pointer, list(_part_locations(value.parts, is_list=True)))


def _part_locations(parts: tuple[Part, ...], *, is_list: bool) -> Iterator[str]:
    """Yield the pointer of each part inside its message; a result is the whole message."""
    calls = content = 0
    for part in parts:
        if isinstance(part, ToolResult):
            yield ""
        elif isinstance(part, ToolCall):
            yield join("tool_calls", calls)
            calls += 1
        elif is_in_plan(part):
            yield join("tool_plan")
        else:
            yield join("content", content) if is_list else join("content")
            content += 1


def _is_list(request: Request, index: int) -> bool:
    """Return whether the content of a message is a list."""
    message = request.messages[index]
    form = message.extra.get(FORM, {}).get(":content")
    if form is not None:
        return bool(form == "list")
    content = [part for part in message.parts if not isinstance(part, ToolCall) and not is_in_plan(part)]
    return len(content) > 1 or not isinstance((*content, Text(""))[0], (Text, Refusal))


def _request_pointer(request: Request, locations: dict[int, list[str]], path: str) -> str:
    """Map a canonical path in a request to a pointer; `locations` caches the parts of each message."""
    match split(path):
        case ["params", name, *_]:
            return join(_FIELDS.get(name, name))
        case ["tools", _, "strict"]:
            return join("strict_tools")
        case ["tools", index, field, *rest] if field in _DECLARED:
            return join("tools", index, "function", _FIELDS.get(field, field), *rest)
        case ["messages", index, "parts", number, *rest]:
            place = int(index)
            if place not in locations:
                parts = request.messages[place].parts
                locations[place] = list(_part_locations(parts, is_list=_is_list(request, place)))
            return join("messages", index) + locations[place][int(number)] + join(*rest)
        case ["reasoning" | "output" | "choice" as field, *rest]:
            return join(_FIELDS[field], *[_FIELDS.get(name, name) for name in rest[:1]], *rest[1:])
    return path


def _response_pointer(locations: list[str], path: str) -> str:
    """Map a canonical path in a response to a pointer into the document."""
    match split(path):
        case ["parts", number, *rest]:
            return join("message") + locations[int(number)] + join(*rest)
        case ["usage", name, *_]:
            return f"/usage/{_COUNTS.get(name, name)}"
        case ["stop", *_]:
            return join("finish_reason")
        case ["citations", *rest]:
            return join("message", "citations", *rest)
    return path


_OWN_FIELDS = frozenset({"strict_tools", "documents", "citation_options", "safety_mode", "k", "p"})
_OWN_IN_MESSAGES = frozenset({"tool_plan", "citations"})
_EVENTS = frozenset(
    "message-start content-start content-delta content-end tool-plan-delta tool-call-start tool-call-delta "
    "tool-call-end citation-start citation-end message-end".split()
)


def _is_own_request(body: Object) -> bool:
    """Return whether the body has a field that Chat, which is similar, does not have."""
    thinking = body.get("thinking")
    if body.get("tool_choice") in ("REQUIRED", "NONE") or (type(thinking) is dict and "token_budget" in thinking):
        return True
    if not _OWN_FIELDS.isdisjoint(body):
        return True
    return any(not _OWN_IN_MESSAGES.isdisjoint(message) for message in body["messages"])


def _names_command(body: Object) -> bool:
    return str(body["model"]).startswith(("command-", "c4ai-", "cohere."))


DETECTION: Mapping[Kind, Callable[[JSON], int]] = {
    "request": scorer(
        (1, lambda b: type(b["messages"]) is list),
        (30, _is_own_request),
        (10, _names_command),
        (4, lambda b: "stop_sequences" in b and "max_tokens" not in b),  # Anthropic requires max_tokens
    ),
    "response": scorer(
        (3, lambda b: type(b["message"]) is dict and "done" not in b),
        (5, lambda b: b["finish_reason"] in STOP_REASONS),
        (2, lambda b: "tool_plan" in b["message"] or type(b["message"]["content"]) is list),
    ),
    "stream": scorer((7, lambda b: b["type"] in _EVENTS)),
    "tools": scorer((1, lambda b: any("function" in tool for tool in declared_tools(b)))),
    "error": scorer((1, lambda b: type(b["message"]) is str and not {"error", "type", "code", "object"} & b.keys())),
}
