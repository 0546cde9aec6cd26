"""Read Converse documents without decoding them: detection and JSON pointers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ...ir.parts import Part
from ...ir.pointer import JSON, Object, join, split
from ...ir.request import Request
from ...ir.response import Response
from ...ir.tools import Tool
from ..documents import blocks, declared_tools, scorer
from ..protocol import Kind

_PARAMS = {"max_tokens": "maxTokens", "top_p": "topP", "stop": "stopSequences"}


def count_leading_system(request: Request) -> int:
    """Count the leading messages that go into the field `system`."""
    count = 0
    for message in request.messages:
        if message.role not in ("system", "developer") or ":place" in message.extra.get("bedrock~", {}):
            break
        count += 1
    return count


def locator(value: Request | Response) -> Callable[[str], str]:
    if isinstance(value, Request):
        return partial(_request_pointer, value, count_leading_system(value))
    return partial(_response_pointer, value)


def _position(values: Sequence[Part] | Sequence[Tool], number: int) -> int:
    """Return the position of a part or a tool among the blocks, which include a cache point after each marked one."""
    return number + sum(getattr(value, "cache", None) is not None for value in values[:number])


def _part_pointer(parts: Sequence[Part], number: int, rest: list[str]) -> list[str | int]:
    position = _position(parts, number)
    if rest[:1] == ["cache"]:
        return [position + 1, "cachePoint"]
    return [position, *("content" if name == "parts" else name for name in rest)]


def _response_pointer(response: Response, path: str) -> str:
    match split(path):
        case ["parts", number, *rest]:
            return join("output", "message", "content", *_part_pointer(response.parts, int(number), rest))
        case ["stop", *_]:
            return join("stopReason")
    return path


def _request_pointer(request: Request, system: int, path: str) -> str:
    """Map a canonical path in a request to a pointer; the first `system` messages are in the field `system`."""
    match split(path):
        case ["params", "top_k"]:
            return join("additionalModelRequestFields", "top_k")
        case ["params", "service_tier" | "metadata" as name, *_]:
            return join({"service_tier": "serviceTier", "metadata": "requestMetadata"}[name])
        case ["params", name, *_]:
            return join("inferenceConfig", _PARAMS.get(name, name))
        case ["tools", index, *rest]:
            return _tool_pointer(request.tools, int(index), rest)
        case ["choice", *_]:
            return join("toolConfig", "toolChoice")
        case ["reasoning", "effort"]:
            return join("outputConfig", "effort")
        case ["reasoning", *rest]:
            names = {"budget": ["budget_tokens"], "mode": ["type"]}
            inner = names.get(rest[0], rest) if rest else []
            return join("additionalModelRequestFields", "thinking", *inner)
        case ["output", "schema", *_]:
            return join("outputConfig", "textFormat", "structure", "jsonSchema", "schema")
        case ["output", *rest]:
            return join("outputConfig", "textFormat", *(["structure", "jsonSchema", *rest] if rest else []))
        case ["messages", index, *rest]:
            return _message_pointer(request, system, int(index), rest)
    return path


def _tool_pointer(tools: Sequence[Tool], index: int, rest: list[str]) -> str:
    start = join("toolConfig", "tools", _position(tools, index))
    match rest:
        case ["cache"]:
            return join("toolConfig", "tools", _position(tools, index) + 1)
        case [] | ["kind"]:
            return start
        case ["input_schema", *inner]:
            return start + join("toolSpec", "inputSchema", "json", *inner)
        case ["toolSpec", *inner]:
            return start + join("toolSpec", *inner)
    return start + (join(*rest) if tools[index].kind == "builtin" else join("toolSpec", *rest))


def _message_pointer(request: Request, system: int, index: int, rest: list[str]) -> str:
    parts = request.messages[index].parts
    is_part = rest[:1] == ["parts"] and len(rest) > 1
    if index < system:
        before = sum(_position(message.parts, len(message.parts)) for message in request.messages[:index])
        if not is_part:
            return join("system")
        first, *inner = _part_pointer(parts, int(rest[1]), rest[2:])
        return join("system", before + int(first), *inner)
    start = join("messages", index - system)
    if is_part:
        return start + join("content", *_part_pointer(parts, int(rest[1]), rest[2:]))
    return start + join(*("content" if name == "parts" else name for name in rest))


_MEMBERS = frozenset(
    "text image document video audio toolUse toolResult guardContent cachePoint reasoningContent citationsContent "
    "searchResult toolAddition toolRemoval".split()
)
_OWN = frozenset(
    "inferenceConfig guardrailConfig additionalModelRequestFields additionalModelResponseFieldPaths promptVariables "
    "requestMetadata performanceConfig outputConfig modelId".split()
)
_EVENTS = frozenset(
    "messageStart contentBlockStart contentBlockDelta contentBlockStop messageStop metadata internalServerException "
    "modelStreamErrorException validationException throttlingException serviceUnavailableException".split()
)
_ERROR = frozenset({"message", "Message", "__type", "originalStatusCode", "originalMessage", "resourceName"})


def _has_own_blocks(body: Object) -> bool:
    """Return whether the content of a message is blocks of Converse: objects without a type, named by a member."""
    found = [block for block in blocks(body, "messages") if "role" not in block]
    return bool(found) and all("type" not in block and not _MEMBERS.isdisjoint(block) for block in found)


def _is_own_tool(tool: Object) -> bool:
    return type(tool.get("toolSpec")) is dict or type(tool.get("systemTool")) is dict


DETECTION: Mapping[Kind, Callable[[JSON], int]] = {
    "request": scorer(
        (1, lambda b: type(b["messages"]) is list and "contents" not in b),
        (7, _has_own_blocks),
        (7, lambda b: not _OWN.isdisjoint(b)),
        (7, lambda b: any(map(_is_own_tool, b["toolConfig"]["tools"]))),
        (3, lambda b: any("text" in block and "type" not in block for block in b["system"])),
    ),
    "response": scorer((8, lambda b: type(b["output"]["message"]["content"]) is list)),
    "stream": scorer((6, lambda b: not _EVENTS.isdisjoint(b) and len(b) == 1)),
    "tools": scorer((6, lambda b: any(map(_is_own_tool, declared_tools(b))))),
    "error": scorer((2, lambda b: _ERROR.issuperset(b) and type(b.get("message", b.get("Message"))) is str)),
}
