"""Read Interactions documents without decoding them: detection and JSON pointers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ...ir.parts import Media, Opaque, Part, Refusal, Text, ToolResult
from ...ir.pointer import JSON, Object, join, split
from ...ir.request import Request
from ...ir.response import Response
from ..documents import blocks, declared_tools, scorer
from ..protocol import Kind
from .content import FORM, is_content, is_content_document
from .steps import is_bare, is_joined

_FIELDS = {"max_tokens": "max_output_tokens", "stop": "stop_sequences", "input_schema": "parameters"}
_TOP = ("store", "service_tier")
_THINKING = {"effort": "thinking_level", "mode": "thinking_level", "budget": "thinking_level"}


def locator(value: Request | Response) -> Callable[[str], str]:
    if isinstance(value, Request):
        return _request_locator(value)
    key = "outputs" if value.extra.get(FORM, {}).get(":steps") == "outputs" else "steps"
    return partial(_response_pointer, _model_locations(value.parts, key, 0)[0])


def _request_locator(request: Request) -> Callable[[str], str]:
    """Find the steps and parts of all messages once, and return a function from paths to pointers."""
    steps: list[str] = []
    parts: list[list[str]] = []
    step = 0
    single = request.extra.get(FORM, {}).get(":input")
    for message in request.messages:
        if message.role in ("system", "developer"):
            steps.append(join("system_instruction"))
            parts.append([join("system_instruction")] * len(message.parts))
            continue
        steps.append(join("input", step))
        if message.role == "assistant":
            locations, step = _model_locations(message.parts, "input", step)
        else:
            locations, step = _user_locations(message.parts, step, is_bare=":step" in message.extra.get(FORM, {}))
        if single in ("string", "single"):
            locations = [join("input")] * len(locations)
            steps[-1] = join("input")
        parts.append(locations)
    return partial(_locate, request, steps, parts)


def _locate(request: Request, steps: list[str], parts: list[list[str]], path: str) -> str:
    """Map a canonical path to a pointer; `steps` and `parts` hold the pointers of messages and their parts."""
    match split(path):
        case ["params", name, *_]:
            return join(name) if name in _TOP else join("generation_config", _FIELDS.get(name, name))
        case ["tools", index, *rest]:
            return join("tools", index, *(_FIELDS.get(name, name) for name in rest[:1]), *rest[1:])
        case ["messages", index, "parts", number, *rest]:
            return _locate_in_part(parts[int(index)][int(number)], rest)
        case ["messages", index, *rest]:
            return steps[int(index)] + join(*rest)
        case ["choice" | "parallel" as field, *rest]:
            return join("generation_config", "tool_choice", *rest if field == "choice" else ())
        case ["reasoning", name, *rest]:
            return join("generation_config", _THINKING.get(name, "thinking_summaries"), *rest)
        case ["output", *rest]:
            return _locate_output(request, rest)
    return path


def _locate_in_part(location: str, path: list[str]) -> str:
    """Map a path inside a part at `location`: of its step, of a content in a result, or of the part itself."""
    match path:
        case ["step", *rest]:
            return location.rpartition("/content/")[0] + join(*rest)
        case ["parts", inner, *rest]:
            return location + join("result", inner, *rest)
    return location + join(*path)


def _locate_output(request: Request, path: list[str]) -> str:
    """Map a path inside the form of the answer, which may be an entry of a list, or a bare schema."""
    form = {} if request.output is None else request.output.extra.get(FORM, {})
    match path:
        case ["format", "others", *_]:
            return join("response_format")
        case ["format", *rest]:  # fields that no other wire has
            return join(*rest)
        case ["schema", *rest] if form.get(":format") == "bare":
            path = rest
    place = [form[":index"]] if ":index" in form else []
    return join("response_format", *place, *path)


def _user_locations(parts: tuple[Part, ...], step: int, *, is_bare: bool) -> tuple[list[str], int]:
    """Return the location of each part of a user's message, and the number of the next step.

    Results are steps by themselves, unless they were read from a content. Contents between them share a step.
    """
    locations: list[str] = []
    content = -1  # the number of the last content in an open step
    for part in parts:
        by_itself = isinstance(part, (ToolResult, Opaque)) and not is_content(part)
        if by_itself and ":place" not in getattr(part, "extra", {}).get(FORM, {}):
            step, content = step + (content >= 0), -1
            locations.append(join("input", step))
            step += 1
        elif is_bare:
            locations.append(join("input", step))
            step += 1
        else:
            content += 1
            locations.append(join("input", step, "content", content))
    return locations, step + (content >= 0 or not parts)


def _model_locations(parts: tuple[Part, ...], field: str, step: int) -> tuple[list[str], int]:
    """Return the location of each part of the model's output, and the number of the next step."""
    locations: list[str] = []
    content = -1
    step -= 1
    for part in parts:
        if not isinstance(part, (Text, Refusal, Media)) and not is_content(part):
            step, content = step + 1, -1
            locations.append(join(field, step))
            continue
        if content < 0 or not is_joined(part):
            step, content = step + 1, -1
        if is_bare(part):
            locations.append(join(field, step))
            continue
        content += 1
        locations.append(join(field, step, "content", content))
    return locations, step + 1


def _response_pointer(locations: list[str], path: str) -> str:
    """Map a canonical path in a response to a pointer; `locations` holds the pointers of its parts."""
    match split(path):
        case ["parts", number, *rest]:
            return _locate_in_part(locations[int(number)], rest)
        case ["stop", *_]:
            return join("status")
    return path


_STEPS = frozenset({"user_input", "model_output", "thought", "function_result"})
_OWN_FIELDS = frozenset(
    {"generation_config", "system_instruction", "previous_interaction_id", "response_mime_type", "agent"}
)
_OWN_EVENTS = ("interaction.", "step.")
_TOOL_TYPES = frozenset({"google_search", "url_context", "code_execution", "google_maps", "mcp_server", "retrieval"})


def _has_input(body: Object) -> bool:
    """Return whether a document has an input, or continues an interaction without one."""
    given = body.get("input")
    return type(given) in (str, list) or is_content_document(given) or "continuation_token" in body


def _is_own_item(item: Object) -> bool:
    """Return whether an item of `input` is a step, or a content; a Responses item with such a type has a role."""
    return item.get("type") in _STEPS or (is_content_document(item) and "role" not in item)


def _is_own_call(item: Object) -> bool:
    return item.get("type") == "function_call" and type(item.get("arguments")) is dict


DETECTION: Mapping[Kind, Callable[[JSON], int]] = {
    "request": scorer(
        (5, lambda b: "messages" not in b and "type" not in b and _has_input(b)),
        (5, lambda b: not _OWN_FIELDS.isdisjoint(b)),
        (5, lambda b: any(map(_is_own_item, blocks(b, "input"))) or _is_own_item(b["input"])),
        (4, lambda b: any(map(_is_own_call, blocks(b, "input")))),
    ),
    "response": scorer(
        (7, lambda b: b.get("object") == "interaction" or type(b["steps"]) is list or _is_bare_interaction(b))
    ),
    "stream": scorer((7, lambda b: str(b["event_type"]).startswith(_OWN_EVENTS) or b["event_type"] == "error")),
    "tools": scorer(
        (3, lambda b: any("type" in tool and _is_declaration(tool) for tool in declared_tools(b))),
        (3, lambda b: any(tool.get("type") in _TOOL_TYPES for tool in declared_tools(b))),
    ),
    "error": scorer(
        (1, lambda b: "code" in b["error"] and "type" not in b["error"]),
        (2, lambda b: type(b["error"]["code"]) is str and b["error"].keys() == {"code", "message"}),
    ),
}


def _is_bare_interaction(body: JSON) -> bool:
    return "status" in body and ("outputs" in body or "total_input_tokens" in body.get("usage", {}))


def _is_declaration(tool: Object) -> bool:
    is_function = tool.get("type") == "function" and "name" in tool and "strict" not in tool
    return is_function or tool.get("type") in _TOOL_TYPES
