"""Name the tool that exceeded a limit in the terms of the request; a provider knows its sent name or its position."""

from __future__ import annotations

from msgspec.structs import asdict, replace

from ..ir.errors import ToolwireError
from ..ir.pointer import JSON, join, nearest_existing, resolve, split
from ..ir.request import Request
from ..ir.response import Breach
from ..ir.tools import Tool
from ..wire.protocol import Wire

__all__ = ["resolve_breach"]


def resolve_breach(breach: Breach, wire: Wire, request: Request, fitted: list[tuple[Tool, int]]) -> Breach:
    """Return the breach with the caller's tool name and pointers into `request`; its tools were sent as `fitted`."""
    sent = _sent_name(breach, wire, tuple(tool for tool, _ in fitted))
    tool, index = next(((tool, index) for tool, index in fitted if tool.name == sent), (None, -1))
    if tool is None or index < 0:
        return breach
    original = request.tools[index]
    pointer = _name_properties(breach.pointer, tool.input_schema)
    return replace(
        breach, tool=original.name, at=join("tools", index), pointer=nearest_existing(asdict(original), pointer)
    )


def _sent_name(breach: Breach, wire: Wire, tools: tuple[Tool, ...]) -> str | None:
    """Return the sent name of the tool in `breach`.

    If the provider reports only a position, the sent declarations are rebuilt to find the tool there.
    """
    if isinstance(breach.tool, str):
        return breach.tool
    if breach.tool is None:
        return None
    try:
        declaration = resolve({"tools": wire.encode_tools(tools)[0]}, breach.at)
        (tool,) = wire.decode_tools([declaration])
    except (ToolwireError, LookupError, TypeError, ValueError):
        return None  # not in the sent document: the provider refers to something else
    return tool.name


def _name_properties(pointer: str, schema: JSON) -> str:
    """Replace a property's position among its siblings by its name."""
    segments: list[str] = []
    for segment in split(pointer):
        if segments and segments[-1] == "properties" and segment.startswith("["):
            try:
                parent = resolve({"input_schema": schema}, join(*segments))
                segment = list(parent)[int(segment[1:-1])]
            except (LookupError, TypeError, ValueError):
                break
        segments.append(segment)
    return join(*segments)
