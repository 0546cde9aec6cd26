"""Fit prompt-cache marks to the target: whether it supports one at that place, and its time to live."""

from __future__ import annotations

from typing import TypeAlias

from msgspec.structs import replace

from ..ir.losses import Losses
from ..ir.parts import Media, Part, Text, ToolCall, ToolResult
from ..ir.tools import Tool
from ..wire.protocol import Wire
from .history import DraftMessage
from .locations import location_pointer

__all__ = ["fit_mark", "limit_marks"]

_Marked: TypeAlias = Text | Media | ToolCall | ToolResult | Tool
_MINUTES = {"5m": 5, "30m": 30, "1h": 60, "12h": 720}


def fit_mark(marked: _Marked, element: str, wire: Wire, path: str, losses: Losses) -> str | None:
    """Return the target's time to live: the shortest sufficient one, or None if it supports no mark there.

    A mark that the target's own wire has written in another form (`:cache`) is kept.
    """
    ttl, can = marked.cache, wire.capabilities
    if ttl is None or ":cache" in marked.extra.get(f"{wire.name}~", {}):
        return ttl
    if element not in can.cache:
        losses.add(f"{path}/cache", "cache mark", "dropped", f"the target does not support one on a {element}", "info")
        return None
    if ttl == "default" or ttl in can.cache_ttls:
        return ttl
    wanted = _MINUTES.get(ttl, 0)
    fitted = next((known for known in can.cache_ttls if _MINUTES[known] >= wanted), can.cache_ttls[-1])
    losses.add(f"{path}/cache", "cache time to live", "rewritten", f"{ttl} was changed to {fitted}", "info")
    return fitted


def limit_marks(turns: list[DraftMessage], tools: list[Tool], limit: int, count: int, losses: Losses) -> list[Tool]:
    """Keep the last `limit` marks of a request, each of which covers everything before it. Return the tools.

    The prompt begins with the tools, then come the messages, which are changed in place; they have `count` marks.
    """
    marked_tools = [index for index, tool in enumerate(tools) if tool.cache is not None]
    surplus = len(marked_tools) + count - limit
    if surplus <= 0:
        return tools
    detail = f"the target accepts {limit}; the last ones are kept"
    dropped = set(marked_tools[:surplus])
    for index in marked_tools[:surplus]:
        losses.add(f"/tools/{index}/cache", "cache mark", "dropped", detail, "info")
    tools = [replace(tool, cache=None) if index in dropped else tool for index, tool in enumerate(tools)]
    surplus -= len(dropped)
    for number, turn in enumerate(turns):
        marked = [index for index, part in enumerate(turn.parts) if getattr(part, "cache", None) is not None]
        if surplus and marked:
            for index in marked[:surplus]:
                path = location_pointer(turn.locations[index])
                losses.add(f"{path}/cache", "cache mark", "dropped", detail, "info")
            turns[number] = _without_marks(turn, set(marked[:surplus]))
            surplus -= min(surplus, len(marked))
    return tools


def _without_marks(turn: DraftMessage, indices: set[int]) -> DraftMessage:
    parts = tuple([_without_mark(part) if index in indices else part for index, part in enumerate(turn.parts)])
    return DraftMessage(replace(turn.message, parts=parts), parts, turn.locations)


def _without_mark(part: Part) -> Part:
    return replace(part, cache=None) if isinstance(part, (Text, Media, ToolCall, ToolResult)) else part
