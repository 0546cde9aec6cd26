"""Limit the calls of a subagent to the effect that its tool declares.

The policy and the schedule of the calling run decide by this effect. A transfer or a tool that appears later must not
make it wrong, so every call of the subagent's run is checked.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.parts import ToolCall, ToolResult
from ..ir.tools import Effect
from .results import refusal
from .toolbox import Entry

__all__ = ["is_stronger", "refuse_stronger_effect", "strongest_effect"]

_EFFECTS: tuple[Effect, ...] = ("pure", "read", "idempotent", "write")  # by increasing consequence


def strongest_effect(entries: Iterable[Entry]) -> Effect:
    return _EFFECTS[max((_EFFECTS.index(entry.tool.effect) for entry in entries), default=0)]


def is_stronger(effect: Effect, limit: Effect | None) -> bool:
    """Return True if `effect` has more consequences than `limit`; a limit of None allows all effects."""
    return limit is not None and _EFFECTS.index(effect) > _EFFECTS.index(limit)


def refuse_stronger_effect(call: ToolCall, entry: Entry | None, limit: Effect | None) -> ToolResult | None:
    """Return the refusal of a call whose tool has a stronger effect than `limit`; None if the call may run."""
    if entry is None or not is_stronger(entry.tool.effect, limit):
        return None
    message = (
        f"Not allowed: {call.name} is a {entry.tool.effect} tool, but this agent is used as a {limit} tool of another "
        f"agent. Nothing was run."
    )
    return refusal(call, "denied", message)
