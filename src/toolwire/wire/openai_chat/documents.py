"""Read Chat documents without decoding them: detection, and JSON pointers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from ...ir.parts import Part, Reasoning, Refusal, ToolCall, ToolResult
from ...ir.pointer import JSON, Object, join, split
from ...ir.request import Request
from ...ir.response import Response
from ...ir.tools import Tool
from ..documents import blocks, declared_tools, scorer
from ..protocol import Kind
from .content import NAME, is_in_content
from .hosted import OPTIONS
from .tools import is_bare_function

_FIELDS = {
    "choice": "tool_choice",
    "parallel": "parallel_tool_calls",
    "reasoning": "reasoning_effort",
    "output": "response_format",
    "max_tokens": "max_completion_tokens",
    "cache_key": "prompt_cache_key",
    "input_schema": "parameters",
}


# fields of a canonical tool, which are inside `function`; other fields that a loss names are beside it
_DECLARED = frozenset(Tool.__struct_fields__) - {"extra"}


def locator(value: Request | Response) -> Callable[[str], str]:
    """Return a function from canonical paths in `value` to pointers; it searches the parts of a message once."""
    locations = _PartLocations()
    return (
        partial(_request_pointer, value, locations)
        if isinstance(value, Request)
        else partial(_response_pointer, value, locations)
    )


class _PartLocations:
    """Locations of the parts of messages; each message is searched once."""

    def __init__(self) -> None:
        self._known: dict[int, list[str]] = {}

    def location_of(self, index: int, parts: tuple[Part, ...], number: str) -> str:
        if index not in self._known:
            self._known[index] = list(_part_locations(parts))
        return self._known[index][int(number)]


def _part_locations(parts: tuple[Part, ...]) -> Iterator[str]:
    """Yield the pointer of each part inside its message; a result is the whole message."""
    calls = content = 0
    for part in parts:
        if isinstance(part, ToolResult):
            yield ""
        elif isinstance(part, ToolCall):
            yield join("tool_calls", calls)
            calls += 1
        elif isinstance(part, Refusal) and not is_in_content(part):
            yield join("refusal")
        elif isinstance(part, Reasoning) and not is_in_content(part):
            yield join(part.extra.get("openai_chat~", {}).get(":field", "reasoning_content"))
        else:
            yield join("content", content)
            content += 1


def _is_search(request: Request, index: int) -> bool:
    """Return whether a tool is the web search, which is a field of the request."""
    return (
        index < len(request.tools) and request.tools[index].kind == "builtin" and request.tools[index].name == OPTIONS
    )


def _request_pointer(request: Request, locations: _PartLocations, path: str) -> str:
    """Map a canonical path in a request to a pointer; legacy fields are found by their form."""
    match split(path):
        case ["params", name, *_]:
            key = _FIELDS.get(name, name)
            return join(
                "max_tokens" if ":max_tokens" in request.extra.get("openai_chat~", {}) and name == "max_tokens" else key
            )
        case ["tools", index, *rest] if _is_search(request, int(index)):
            return join(OPTIONS, *rest)
        case ["tools", index, field, *rest] if field in _DECLARED:
            return join("tools", index) + _declaration_pointer(request.tools[int(index)], field, rest)
        case ["messages", index, "parts", number, *rest]:
            parts = request.messages[int(index)].parts
            return join("messages", index) + locations.location_of(int(index), parts, number) + join(*rest)
        case ["choice", "function_call", *_]:
            return path.removeprefix("/choice")
        case ["choice", *rest]:
            form = {} if request.choice is None else request.choice.extra.get("openai_chat~", {})
            field = "function_call" if form.get(":choice") == "function_call" else "tool_choice"
            return join(field, *(rest[1:] if rest[:1] == ["choice"] else rest))
        case ["reasoning"] if "reasoning" in request.extra.get("openai_chat", {}):
            return path  # OpenRouter's object of that name
        case ["messages" | "tools" | "max_tokens", *_]:
            return path
        case ["output", *rest]:
            return _output_pointer(request, rest)
        case [field, *rest]:
            return join(_FIELDS.get(field, field), *rest)
    return path


def _declaration_pointer(tool: Tool, field: str, rest: list[str]) -> str:
    """Map a field of a tool to a pointer into its declaration, where a bare function has no object around it."""
    form = tool.extra.get(f"{NAME}~", {})
    if field == "cache":
        return join("cache_control") if "cache_control" in form else join("function", "cache_control")
    inner = join(_FIELDS.get(field, field), *rest)
    return inner if ":bare" in form else join("function") + inner


def _output_pointer(request: Request, path: list[str]) -> str:
    """Map a path inside the output format; the fields of a schema are in `json_schema`, unless its type is another."""
    form = {} if request.output is None else request.output.extra.get("openai_chat~", {})
    if path[:1] in (["schema"], ["name"], ["description"], ["strict"]) and ":type" not in form:
        return join("response_format", "json_schema", *path)
    return join("response_format", *path)


def _response_pointer(response: Response, locations: _PartLocations, path: str) -> str:
    """Map a canonical path in a response to a pointer into the document."""
    match split(path):
        case ["alternatives", index, *rest]:
            return _choice_pointer(int(index) + 1, response.alternatives[int(index)].parts, locations, rest)
        case ["parts" | "stop", *_] as rest:
            return _choice_pointer(0, response.parts, locations, rest)
    return path


def _choice_pointer(index: int, parts: tuple[Part, ...], locations: _PartLocations, path: list[str]) -> str:
    """Map a path inside an answer to a pointer into the choice `index`."""
    match path:
        case ["parts", number, *rest]:
            return join("choices", index, "message") + locations.location_of(index, parts, number) + join(*rest)
        case ["stop"]:
            return join("choices", index, "finish_reason")
        case ["stop", *rest]:
            return join("choices", index, *rest)
    return join("choices", index, "message", *path)


_CHAT_ONLY = frozenset(
    "n stop response_format stream_options parallel_tool_calls max_completion_tokens reasoning_effort frequency_penalty "
    "presence_penalty logprobs logit_bias seed functions".split()
)

_PARTS = frozenset({"image_url", "input_audio", "file", "video_url", "document_url"})


def _is_declaration(tool: Object) -> bool:
    return "function" in tool or "custom" in tool


DETECTION: Mapping[Kind, Callable[[JSON], int]] = {
    "request": scorer(
        (3, lambda b: type(b["messages"]) is list),
        (4, lambda b: any("function" in tool for tool in declared_tools(b))),
        (
            4,
            lambda b: any(
                m.get("role") in ("tool", "developer", "function") or "tool_calls" in m for m in blocks(b, "messages")
            ),
        ),
        (2, lambda b: not _CHAT_ONLY.isdisjoint(b)),
        (1, lambda b: "max_tokens" not in b),
        (5, lambda b: b["messages"][0]["role"] == "system"),
        (2, lambda b: "model" in b and ("claude" not in b["model"] or "/" in b["model"])),
        (2, lambda b: any(m.get("type") in _PARTS for m in blocks(b, "messages"))),
    ),
    "response": scorer(
        (
            5,
            lambda b: (
                type(b["choices"]) is list and (b.get("object") == "chat.completion" or "message" in b["choices"][0])
            ),
        ),
    ),
    "stream": scorer((5, lambda b: b.get("object") == "chat.completion.chunk" or "delta" in b["choices"][0])),
    "tools": scorer(
        (2, lambda b: any(_is_declaration(tool) or is_bare_function(tool) for tool in declared_tools(b))),
        (3, lambda b: any(_is_declaration(tool) for tool in declared_tools(b))),
    ),
    "error": scorer((2, lambda b: type(b["error"]) in (dict, str)), (1, lambda b: "type" in b["error"])),
}
