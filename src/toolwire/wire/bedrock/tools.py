"""Tool declarations and the tool choice of Converse.

    {"toolSpec": {"name", "description", "inputSchema": {"json": schema}, "strict"}}
    {"systemTool": {"name"}}        a tool that the provider runs
    {"cachePoint": {"type": "default"}}        marks the tool before it

The choice is `auto`, `any` or one `tool`. There is no `none`: a request without `toolConfig` forbids calls, but Bedrock rejects
it if the history has calls ("The toolConfig field must be defined when using toolUse and toolResult content blocks").
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ...ir.errors import ProtocolError
from ...ir.losses import Losses
from ...ir.parts import ToolCall, ToolResult
from ...ir.pointer import JSON, Object, join
from ...ir.request import Request
from ...ir.tools import ChoiceMode, Tool, ToolChoice
from ..fields import (
    decode_list,
    read_boolean,
    read_extra,
    read_optional_string,
    read_string,
    report_tool_fields,
    require_object,
    write_builtin,
    write_extra,
)
from .blocks import read_mark, write_mark
from .media import NAME

_FORM = "bedrock~"  # the key of `extra` for the source's spelling; names with a colon are notes of ours
_SPEC, _SCHEMA, _CHOICE = f"{NAME}/toolSpec", f"{NAME}/inputSchema", f"{NAME}/toolChoice"
_MODES: dict[str, ChoiceMode] = {"auto": "auto", "any": "required", "tool": "tool"}
_NO_ARGUMENTS: Object = {"type": "object", "properties": {}}


def read_tools(declarations: Object) -> tuple[Tool, ...]:
    """Read `tools` of `toolConfig`, or of any object. Raise ProtocolError if a declaration is invalid."""
    tools: list[Tool] = []
    for tool in decode_list(declarations, "tools", _read_tool):
        mark = read_mark(tool.extra[NAME]) if tool.name == "cachePoint" and tool.kind == "builtin" else None
        if mark is not None and tools and tools[-1].kind == "function" and tools[-1].cache is None:
            tools[-1] = replace(tools[-1], cache=mark[0], extra={**tools[-1].extra, **mark[1]})
        else:
            tools.append(tool)
    return tuple(tools)


def _read_tool(raw: JSON) -> Tool:
    """Read a declaration. One that is no function is a built-in tool, whose name is in its only member, if it has one."""
    block = require_object(raw)
    if "toolSpec" not in block:
        kind, inner = next(iter(block.items()), ("tool", None))
        name = inner.get("name") if type(inner) is dict else None
        return Tool(name if type(name) is str else kind, kind="builtin", extra={NAME: block})
    fields = require_object(block["toolSpec"], "toolSpec")
    try:
        schema = require_object(fields.get("inputSchema"), "inputSchema")
        tool = Tool(
            read_string(fields, "name"),
            read_optional_string(fields, "description") or None,
            require_object(schema.get("json"), "inputSchema", "json"),
            strict=read_boolean(fields, "strict"),
        )
    except ProtocolError as error:
        raise error.within("toolSpec") from None
    extra = read_extra(block, ("toolSpec",), NAME)
    read_extra(fields, ("name", "description", "inputSchema", "strict"), _SPEC, extra)
    read_extra(schema, ("json",), _SCHEMA, extra)
    return replace(tool, extra=extra) if extra else tool


def write_tools(tools: Sequence[Tool], losses: Losses) -> list[Object]:
    """Write declarations, with cache points after the marked ones; add losses."""
    written: list[Object] = []
    for index, tool in enumerate(tools):
        declaration = _write_tool(tool, losses, join("tools", index))
        if declaration is not None:
            written.append(declaration)
            if tool.cache is not None:
                written.append(write_mark(tool.cache, tool.extra))
    return written


def _write_tool(tool: Tool, losses: Losses, path: str) -> Object | None:
    """Write a declaration; return None and report the loss for a built-in tool of another provider."""
    if tool.kind == "builtin":
        return write_builtin(tool, NAME, "Bedrock", losses, path)
    if tool.kind == "search":
        losses.add(f"{path}/kind", "search tool", "rewritten", "sent as a function", "info")
    unwritable = [name for name in ("output_schema", "namespace", "grammar") if getattr(tool, name) is not None]
    if tool.deferred:
        unwritable.append("deferred")
    if tool.examples:
        unwritable.append("examples")
    report_tool_fields(unwritable, "Converse", losses, path)
    fields: Object = {"name": tool.name}
    if tool.description:
        fields["description"] = tool.description
    elif tool.description is not None:
        losses.add(f"{path}/description", "description", "dropped", "Bedrock rejects an empty one", "info")
    schema = _NO_ARGUMENTS if tool.input_schema is None else tool.input_schema
    fields["inputSchema"] = write_extra({"json": schema}, tool.extra, _SCHEMA)
    if tool.strict is not None:
        fields["strict"] = tool.strict
    return write_extra({"toolSpec": write_extra(fields, tool.extra, _SPEC)}, tool.extra, NAME)


def read_choice(raw: JSON) -> ToolChoice | None:
    """Read `toolChoice`; raise ProtocolError for an unknown one."""
    if raw is None:
        return None
    choice = require_object(raw, "toolChoice")
    kind = next(filter(_MODES.__contains__, choice), None)
    if kind is None:
        raise ProtocolError(
            f"unknown tool choice {next(iter(choice), '')!r}", pointer="/toolChoice", hint="use auto, any or tool"
        )
    fields = {} if choice[kind] is None else require_object(choice[kind], "toolChoice", kind)
    try:
        names = (read_string(fields, "name"),) if kind == "tool" else ()
    except ProtocolError as error:
        raise error.within("toolChoice", kind) from None
    extra = read_extra(choice, _MODES, NAME)
    extra.get(_FORM, {}).pop(kind, None)  # `{}` is the usual value
    read_extra(fields, ("name",) if names else (), _CHOICE, extra)
    return ToolChoice(_MODES[kind], names, extra={name: value for name, value in extra.items() if value})


def write_tool_config(request: Request, losses: Losses) -> Object:
    """Return `toolConfig`: the tools and the choice. It is empty if the request forbids calls and has none in its history."""
    choice = request.choice
    if choice is not None and choice.mode == "none" and request.tools and not _has_calls(request):
        losses.add(join("choice"), "tool choice none", "rewritten", "no tools are declared", "info")
        for index in range(len(request.tools)):
            losses.add(join("tools", index), "tool", "dropped", "tool choice none forbids calls", "info")
        return {}
    out: Object = {}
    if tools := write_tools(request.tools, losses):
        out["tools"] = tools
    if choice is not None and (written := _write_choice(choice, losses)) is not None:
        out["toolChoice"] = written
    return out


def _has_calls(request: Request) -> bool:
    return any(isinstance(part, (ToolCall, ToolResult)) for message in request.messages for part in message.parts)


def _write_choice(choice: ToolChoice, losses: Losses) -> Object | None:
    """Write the choice; a mode that Converse lacks is sent as the nearest one and reported."""
    mode = choice.mode
    if mode == "none":
        detail = "Converse has no such choice, and requires the declarations of the calls in the history; left out"
        losses.add(join("choice"), "tool choice none", "weakened", detail)
        return None
    if mode in ("allowed", "validated"):
        mode = "required" if choice.required else "auto"
        losses.add(
            join("choice"), f"tool choice {choice.mode}", "weakened", f"Converse has no equivalent; sent as {mode!r}"
        )
    kind = next(kind for kind, known in _MODES.items() if known == mode)
    fields: Object = {"name": choice.names[0]} if mode == "tool" else {}
    return write_extra({kind: write_extra(fields, choice.extra, _CHOICE)}, choice.extra, NAME)
