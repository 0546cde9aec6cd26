"""Decode a list of tool declarations; an unreadable declaration removes only its own tool."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.errors import ProtocolError
from ..ir.losses import Losses
from ..ir.pointer import JSON, join
from ..ir.tools import Tool
from ..wire import get, mcp

__all__ = ["decode_readable_tools"]


def decode_readable_tools(
    declarations: Sequence[JSON], wire: str, losses: Losses
) -> tuple[tuple[Tool, ...], list[int]]:
    """Return the tools and their positions in the list; raise ProtocolError if none is readable."""
    decode = mcp.decode_tools if wire == mcp.NAME else get(wire).decode_tools
    tools: list[Tool] = []
    indices: list[int] = []
    errors: list[ProtocolError] = []
    for declaration in declarations:
        index = len(tools) + len(errors)
        try:
            decoded = decode([declaration])
        except ProtocolError as error:
            errors.append(error)
            losses.add(join("tools", index), "tool", "dropped", f"it cannot be read: {error.message}", "error")
            continue
        tools += decoded
        indices += range(index, index + len(decoded))
    if errors and not tools:
        raise errors[0]
    return tuple(tools), indices
