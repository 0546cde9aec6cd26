"""Fit prompt-cache marks to the target: whether it supports one at that place, and its time to live."""

from __future__ import annotations

from typing import TypeAlias

from msgspec.structs import replace

from ..ir.losses import Losses
from ..ir.parts import Media, Text, ToolCall, ToolResult
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


def limit_marks(turns: list[DraftMessage], tools: list[Tool], limit: int | None, losses: Losses) -> list[Tool]:
    """Keep the last `limit` marks of a request, each of which covers everything before it. Return the tools.

    The prompt begins with the tools, then come the messages, which are changed in place.
    """
    if limit is None:
        return tools
    places = [(-1, index) for index, tool in enumerate(tools) if tool.cache is not None]
    for number, turn in enumerate(turns):
        places += [(number, index) for index, part in enumerate(turn.parts) if getattr(part, "cache", None) is not None]
    for number, index in places[: max(len(places) - limit, 0)]:
        if number < 0:
            path, tools = f"/tools/{index}", [*tools[:index], replace(tools[index], cache=None), *tools[index + 1 :]]
        else:
            path = location_pointer(turns[number].locations[index])
            turns[number] = _without_mark(turns[number], index)
        losses.add(
            f"{path}/cache", "cache mark", "dropped", f"the target accepts {limit}; the last ones are kept", "info"
        )
    return tools


def _without_mark(turn: DraftMessage, index: int) -> DraftMessage:
    parts = list(turn.parts)
    parts[index] = replace(parts[index], cache=None)
    return DraftMessage(replace(turn.message, parts=tuple(parts)), parts, turn.locations)
