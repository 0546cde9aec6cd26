"""Decode a list of tool declarations; an unreadable declaration removes only its own tool."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.errors import ProtocolError
from ..ir.losses import Losses
from ..ir.pointer import JSON, join
from ..ir.tools import Tool
from ..wire import get, mcp

__all__ = ["readable_tools"]


def readable_tools(declarations: Sequence[JSON], wire: str, losses: Losses) -> tuple[tuple[Tool, ...], list[int]]:
    """Return the tools and their positions in the list; raise ProtocolError if none is readable."""
    decode = mcp.decode_tools if wire == mcp.NAME else get(wire).decode_tools
    tools: list[Tool] = []
    indices: list[int] = []
    refused: list[ProtocolError] = []
    for declaration in declarations:
        at = len(tools) + len(refused)
        try:
            read = decode([declaration])
        except ProtocolError as error:
            refused.append(error)
            losses.add(join("tools", at), "tool", "dropped", f"it cannot be read: {error.message}", "error")
            continue
        tools += read
        indices += range(at, at + len(read))
    if refused and not tools:
        raise refused[0]
    return tuple(tools), indices
