"""Tool declarations and tool choice on Messages.

    {"name", "description", "input_schema", "strict", "cache_control", "defer_loading", "input_examples", …}

A tool with a `type` other than `custom` is a provider tool and is passed through unchanged. The switch for parallel
calls is a field of the tool choice, so a request for one call at a time creates a choice if there is none.
"""

from __future__ import annotations

from operator import attrgetter

from ...ir.errors import ProtocolError
from ...ir.losses import Losses, Severity
from ...ir.pointer import JSON, Object, join
from ...ir.request import Request
from ...ir.tools import ChoiceMode, Tool, ToolChoice
from ..fields import (
    decode_list,
    read_boolean,
    read_extra,
    read_optional_string,
    read_string,
    require_object,
    type_error,
    write_extra,
)
from .blocks import NAME, read_cache, write_cache

__all__ = ["read_choice", "read_discovered_tools", "read_tool", "write_choice", "write_tool"]

_TOOL = frozenset({"name", "description", "input_schema", "strict", "cache_control", "defer_loading", "input_examples"})


def read_tool(raw: JSON) -> Tool:
    """Read a declaration; a tool whose type is not `custom` is built in and stays as it is."""
    kind = require_object(raw).get("type")
    if kind is not None and kind != "custom":
        return Tool(str(raw.get("name", kind)), kind="builtin", extra={NAME: raw})
    schema = raw.get("input_schema")
    if type(schema) is not dict:
        if "input_schema" not in raw:
            raise ProtocolError("'input_schema' is missing")
        raise type_error("a JSON Schema object", schema, "input_schema")
    name, description = read_string(raw, "name"), read_optional_string(raw, "description")
    if len(raw) == 2 + (description is not None):
        return Tool(name, description, schema)
    extra = read_extra(raw, _TOOL, NAME)
    return Tool(
        name,
        description,
        schema,
        strict=read_boolean(raw, "strict"),
        examples=tuple(decode_list(raw, "input_examples", require_object)),
        deferred=read_boolean(raw, "defer_loading"),
        cache=read_cache(raw, extra),
        extra=extra,
    )


def read_discovered_tools(body: JSON) -> tuple[Tool, ...]:
    """Return the tools that a tool search found. `body` is a response, its content or one block.

    Anthropic returns only their names.
    """
    blocks = body.get("content", [body]) if type(body) is dict and body.get("type") == "message" else body
    found: list[Tool] = []
    for block in blocks if type(blocks) is list else [blocks]:
        if type(block) is dict and block.get("type") == "tool_search_tool_result":
            result = require_object(block.get("content"), "content")
            found += decode_list(
                result, "tool_references", lambda raw: Tool(read_string(require_object(raw), "tool_name"))
            )
    if not found:
        raise ProtocolError("found no tool_search_tool_result block", pointer="/content")
    return tuple(found)


_UNWRITABLE: tuple[tuple[str, Severity], ...] = (
    ("output_schema", "info"),
    ("namespace", "warning"),
    ("grammar", "warning"),
)
_options = attrgetter(
    "kind", "strict", "output_schema", "namespace", "grammar", "deferred", "examples", "cache", "extra"
)
_NO_OPTIONS: tuple[JSON, ...] = ("function", None, None, None, None, None, (), None, {})


def _no_arguments(tool: Tool) -> Object:
    """Return the schema of a tool without parameters, closed if the tool is strict."""
    closed: Object = {"additionalProperties": False} if tool.strict else {}
    return {"type": "object", "properties": {}, **closed}


def write_tool(tool: Tool, losses: Losses, path: str) -> Object | None:
    """Write a declaration; return None and report the loss for a built-in tool of another provider."""
    if tool.description is not None and tool.input_schema is not None and _options(tool) == _NO_OPTIONS:
        return {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
    return _write_any_tool(tool, losses, path)


def _write_any_tool(tool: Tool, losses: Losses, path: str) -> Object | None:
    """Write a declaration of any kind and with any fields."""
    if tool.kind == "builtin":
        if NAME in tool.extra:
            return tool.extra[NAME]
        losses.add(path, "built-in tool", "dropped", f"Anthropic has no built-in tool {tool.name!r}", "error")
        return None
    if tool.kind == "search":
        losses.add(f"{path}/kind", "search tool", "rewritten", "sent as a function", "info")
    if tool.output_schema is not None or tool.namespace is not None or tool.grammar is not None:
        _report_unwritable(tool, losses, path)
    out: Object = {"name": tool.name}
    if tool.description is not None:
        out["description"] = tool.description
    out["input_schema"] = _no_arguments(tool) if tool.input_schema is None else tool.input_schema
    if tool.strict is not None:
        out["strict"] = tool.strict
    if tool.deferred is not None:
        out["defer_loading"] = tool.deferred
    if tool.examples:
        out["input_examples"] = list(tool.examples)
    if not tool.extra and tool.cache is None:
        return out
    write_cache(tool.cache, tool.extra, out)
    return write_extra(out, tool.extra, NAME)


def _report_unwritable(tool: Tool, losses: Losses, path: str) -> None:
    for concept, severity in _UNWRITABLE:
        if getattr(tool, concept) is not None:
            losses.add(f"{path}/{concept}", concept, "dropped", "Anthropic declarations have no field for it", severity)


_MODES: dict[str, ChoiceMode] = {"auto": "auto", "any": "required", "none": "none", "tool": "tool"}
_TYPES: dict[ChoiceMode, str] = {"auto": "auto", "required": "any", "none": "none", "tool": "tool"}
_CHOICE = frozenset({"type", "name", "disable_parallel_tool_use"})


def read_choice(raw: JSON) -> tuple[ToolChoice | None, bool | None]:
    """Read the tool choice, and whether parallel calls are allowed."""
    if raw is None:
        return None, None
    kind = require_object(raw, "tool_choice").get("type")
    mode = _MODES.get(str(kind))
    if mode is None:
        raise ProtocolError(
            f"unknown tool choice {kind!r}", pointer="/tool_choice/type", hint="use auto, any, tool or none"
        )
    try:
        names = (read_string(raw, "name"),) if mode == "tool" else ()
        disabled = read_boolean(raw, "disable_parallel_tool_use")
    except ProtocolError as error:
        raise error.within("tool_choice") from None
    return ToolChoice(mode, names, extra=read_extra(raw, _CHOICE, NAME)), None if disabled is None else not disabled


def write_choice(request: Request, losses: Losses) -> Object | None:
    """Return `tool_choice`; a setting for parallel calls needs one, so `auto` is used if there is no choice."""
    choice = request.choice
    if choice is None:
        if request.parallel is None or not request.tools:
            return None
        choice = ToolChoice("auto")
    kind = _TYPES.get(choice.mode)
    if kind is None:
        kind = "any" if choice.required else "auto"
        losses.add(
            join("choice"), f"tool choice {choice.mode}", "weakened", f"Anthropic has no equivalent; sent as {kind!r}"
        )
    out: Object = {"type": kind}
    if kind == "tool":
        out["name"] = choice.names[0]
    if request.parallel is not None and kind != "none":
        out["disable_parallel_tool_use"] = not request.parallel
    return write_extra(out, choice.extra, NAME)
