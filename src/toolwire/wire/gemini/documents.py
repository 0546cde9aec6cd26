"""Read generateContent documents without decoding them: detection and JSON pointers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from ...ir.pointer import JSON, join, split
from ...ir.request import Request
from ...ir.response import Response
from ...ir.tools import Tool
from ..documents import declared_tools, scorer
from ..protocol import Kind
from .field_names import NAME, single_fields
from .schemas import document_pointer

_FIELDS = {
    "max_tokens": "maxOutputTokens",
    "top_p": "topP",
    "top_k": "topK",
    "stop": "stopSequences",
    "n": "candidateCount",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    "logprobs": "responseLogprobs",
    "top_logprobs": "logprobs",
    "input_schema": "parametersJsonSchema",
    "output_schema": "responseJsonSchema",
}


_THINKING = {"budget": "thinkingBudget", "effort": "thinkingLevel", "visible": "includeThoughts"}


def locator(value: Request | Response) -> Callable[[str], str]:
    return (
        partial(_request_pointer, value, list(_tool_pointers(value)))
        if isinstance(value, Request)
        else _response_pointer
    )


def _response_pointer(path: str) -> str:
    """Map a canonical path in a response to a pointer into the document."""
    match split(path):
        case ["alternatives", index, *rest]:
            return _candidate_pointer(int(index) + 1, rest)
        case ["parts" | "stop", *_] as rest:
            return _candidate_pointer(0, rest)
        case ["usage", *rest]:
            return join("usageMetadata", *rest)
    return path


def _candidate_pointer(index: int, path: list[str]) -> str:
    """Map a path inside an answer to a pointer into the candidate `index`."""
    match path:
        case ["parts", *rest]:
            return join("candidates", index, "content", "parts", *rest)
        case ["stop"]:
            return join("candidates", index, "finishReason")
        case ["stop", *rest]:
            return join("candidates", index, *rest)
    return join("candidates", index, *path)


def _request_pointer(request: Request, tools: list[str], path: str) -> str:
    """Map a canonical path in a request to a pointer; `tools` holds the pointer of each tool."""
    match split(path):
        case ["params", name, *_]:
            return join("generationConfig", _FIELDS.get(name, name))
        case ["tools", index, *rest]:
            return tools[int(index)] + _tool_field_pointer(request.tools[int(index)], rest)
        case ["messages", index, *rest]:
            return _message_pointer(request, int(index), rest)
        case ["choice", *rest]:
            rest = rest[1:] if rest[:1] == ["functionCallingConfig"] else rest
            return join("toolConfig", "functionCallingConfig", *rest)
        case ["reasoning", *rest]:
            return join("generationConfig", "thinkingConfig", *(_THINKING.get(name, name) for name in rest))
        case ["output", "schema", *rest] if request.output is not None:
            original = request.output.extra.get("gemini~", {}).get(":schema")
            if original is None:
                return join("generationConfig", "responseJsonSchema", *rest)
            return join("generationConfig", "responseSchema") + document_pointer(original, rest)
        case ["output", "format", field, *rest]:  # fields that no other wire has
            return join("generationConfig", field, *rest)
        case ["output", *_]:
            return join("generationConfig", "responseMimeType")
    return path


def _tool_field_pointer(tool: Tool, path: list[str]) -> str:
    """Map a path inside a tool; a schema may have been converted from an OpenAPI field."""
    match path:
        case ["input_schema" | "output_schema" as name, *rest]:
            field = "parameters" if name == "input_schema" else "response"
            original = tool.extra.get("gemini~", {}).get(f":{field}")
            if original is not None:
                return join(field) + document_pointer(original, rest)
    return join(*(_FIELDS.get(name, name) for name in path[:1]), *path[1:])


def _message_pointer(request: Request, index: int, rest: list[str]) -> str:
    """Map the path `rest` inside a message to a pointer.

    A leading system message is `systemInstruction`, so the others move up by one. A single value may be written without
    a list around it.
    """
    first_is_system = bool(request.messages) and request.messages[0].role == "system"
    match rest:
        case ["parts", part, "parts", item, *tail]:  # media in a result
            field = ["inlineData", "displayName"] if tail == ["name"] else tail
            rest = ["parts", part, "functionResponse", "parts", item, *field]
    if rest[:1] == ["parts"] and "parts" in single_fields(request.messages[index].extra, NAME):
        rest = ["parts", *rest[2:]]
    if index == 0 and first_is_system:
        return join("systemInstruction", *rest)
    number = () if "contents" in single_fields(request.extra, NAME) else (index - first_is_system,)
    return join("contents", *number, *rest)


def _tool_pointers(request: Request) -> Iterator[str]:
    """Yield the pointer of each tool. A single entry or declaration may be written without a list around it."""
    declared: dict[int, int] = {}  # number of functions so far, by entry
    in_list = "tools" not in single_fields(request.extra, NAME)
    for tool in request.tools:
        number = tool.extra.get("gemini~", {}).get(":entry", 0)
        entry = join("tools", number) if in_list else join("tools")
        if tool.kind == "builtin":
            yield entry + join(tool.name)
        elif "functionDeclarations" in single_fields(tool.extra, "gemini/tool"):
            yield entry + join("functionDeclarations")
        else:
            yield entry + join("functionDeclarations", declared.setdefault(number, 0))
            declared[number] += 1


DETECTION: Mapping[Kind, Callable[[JSON], int]] = {
    "request": scorer((8, lambda b: type(b["contents"]) in (list, dict))),
    "response": scorer((6, lambda b: "candidates" in b or "promptFeedback" in b or _is_usage_only(b))),
    "stream": scorer((6, lambda b: "candidates" in b or "promptFeedback" in b)),
    "tools": scorer((6, lambda b: any(_is_declaration(tool) for tool in declared_tools(b)))),
    "error": scorer(
        (4, lambda b: type(_unwrap_list(b)["error"]["status"]) is str and "code" in _unwrap_list(b)["error"])
    ),
}


def _is_usage_only(body: JSON) -> bool:
    """Return whether the body is an answer without candidates."""
    return "usageMetadata" in body and "modelVersion" in body


def _is_declaration(tool: JSON) -> bool:
    return not {"functionDeclarations", "function_declarations", "parametersJsonSchema"}.isdisjoint(tool)


def _unwrap_list(body: JSON) -> JSON:
    return body[0] if type(body) is list else body
