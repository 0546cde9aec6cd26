"""Fit prompt-cache marks to the target: whether it supports one at that place, and its time to live."""

from __future__ import annotations

from typing import TypeAlias

from ..ir.losses import Losses
from ..ir.parts import Media, Text, ToolCall, ToolResult
from ..ir.tools import Tool
from ..wire.protocol import Wire

__all__ = ["fit_mark"]

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
