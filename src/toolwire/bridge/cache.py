"""Fit prompt-cache marks to the target: whether it supports one at that place, and its time to live."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import TypeAlias

from msgspec.structs import replace

from ..ir.losses import Losses
from ..ir.parts import Extra, Media, Part, Text, ToolCall, ToolResult
from ..ir.tools import Tool
from ..wire.protocol import Wire
from .history import DraftMessage
from .locations import location_pointer

__all__ = ["fit_mark", "has_body_mark", "limit_marks"]

_Marked: TypeAlias = Text | Media | ToolCall | ToolResult | Tool
_MINUTES = {"5m": 5, "30m": 30, "1h": 60, "12h": 720}


def has_body_mark(extra: Extra, wire: str) -> bool:
    """Return whether the fields of a request on `wire` have Anthropic's mark of the whole body.

    Anthropic sets it on the last block, and counts it as one of the marks. Chat routers read it, too.
    """
    return wire in extra and type(extra[wire].get("cache_control")) is dict


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


def limit_marks(
    turns: list[DraftMessage], tools: list[Tool], wire: Wire, count: int, losses: Losses, *, has_body_mark: bool = False
) -> list[Tool]:
    """Keep as many marks as the target accepts, the last ones, and put longer times to live first. Return the tools.

    The prompt begins with the tools, then come the messages, which are changed in place; they have `count` marks.
    """
    limit = wire.limits.cache_marks
    if limit is None:
        return tools
    limit -= has_body_mark
    marked_tools = [index for index, tool in enumerate(tools) if tool.cache is not None]
    surplus = len(marked_tools) + count - limit
    if surplus > 0:
        detail = f"the target accepts {limit}; the last ones are kept"
        dropped = set(marked_tools[:surplus])
        for index in marked_tools[:surplus]:
            losses.add(f"/tools/{index}/cache", "cache mark", "dropped", detail, "info")
        tools = [replace(tool, cache=None) if index in dropped else tool for index, tool in enumerate(tools)]
        _drop_first_marks(turns, surplus - len(dropped), detail, losses)
    return _order_ttls(turns, tools, wire.capabilities.cache_ttls, losses)


def _drop_first_marks(turns: list[DraftMessage], surplus: int, detail: str, losses: Losses) -> None:
    for number, turn in enumerate(turns):
        marked = _marked_parts(turn)
        if surplus and marked:
            for index in marked[:surplus]:
                path = location_pointer(turn.locations[index])
                losses.add(f"{path}/cache", "cache mark", "dropped", detail, "info")
            turns[number] = _with_marks(turn, dict.fromkeys(marked[:surplus]))
            surplus -= min(surplus, len(marked))


def _order_ttls(turns: list[DraftMessage], tools: list[Tool], ttls: tuple[str, ...], losses: Losses) -> list[Tool]:
    """Raise the time to live of each mark to the longest after it. Return the tools; messages are changed in place.

    Anthropic rejects a longer time after a shorter one (agno-agi/agno#8406). The later mark stores everything before it
    for as long, and at the same price.
    """
    marks: list[tuple[int, int, str | None]] = [
        (-1, index, tool.cache) for index, tool in enumerate(tools) if tool.cache is not None
    ]
    marks += [
        (number, index, _mark_of(turn.parts[index]))
        for number, turn in enumerate(turns)
        for index in _marked_parts(turn)
    ]
    ranks = [ttls.index(ttl) if ttl in ttls else 0 for _, _, ttl in marks]  # "default" is the first
    longest_after = [*accumulate(reversed(ranks), max)][::-1]
    for (number, index, ttl), rank, longest in zip(marks, ranks, longest_after, strict=True):
        if rank == longest:
            continue
        path = f"/tools/{index}" if number < 0 else location_pointer(turns[number].locations[index])
        detail = f"{ttl} was changed to {ttls[longest]}, which a later mark has"
        losses.add(f"{path}/cache", "cache time to live", "rewritten", detail, "info")
        if number < 0:
            tools = [*tools[:index], replace(tools[index], cache=ttls[longest]), *tools[index + 1 :]]
        else:
            turns[number] = _with_marks(turns[number], {index: ttls[longest]})
    return tools


def _mark_of(part: Part) -> str | None:
    return getattr(part, "cache", None)


def _marked_parts(turn: DraftMessage) -> list[int]:
    return [index for index, part in enumerate(turn.parts) if _mark_of(part) is not None]


def _with_marks(turn: DraftMessage, marks: Mapping[int, str | None]) -> DraftMessage:
    parts = tuple([_with_mark(part, marks[index]) if index in marks else part for index, part in enumerate(turn.parts)])
    return DraftMessage(replace(turn.message, parts=parts), parts, turn.locations)


def _with_mark(part: Part, ttl: str | None) -> Part:
    return replace(part, cache=ttl) if isinstance(part, (Text, Media, ToolCall, ToolResult)) else part
