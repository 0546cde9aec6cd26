"""The tools that a run offers: their stable order, their definitions, and the limit of their effects.

A call must mean the definition that was offered. The run of a subagent is limited to the effect that its tool
declares: the policy and the schedule of the calling run decide by this effect. A transfer or a tool that appears later
must not make it wrong, so every call of the subagent's run is checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import is_
from typing import Literal, Protocol, TypeAlias

from ...ir.parts import ToolCall, ToolResult
from ...ir.tools import Effect, Tool
from ...ir.value import Value
from ..values.keys import definition_hash, has_same_definition
from ..values.results import refusal
from .toolbox import Entry

# Limit the calls of a subagent to the effect that its tool declares.
#
# The policy and the schedule of the calling run decide by this effect. A transfer or a tool that appears later must
# not make it wrong, so every call of the subagent's run is checked.


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


# The tools that a run offers: their stable order, and the check that a call means the definition that was offered.


_HASH_LENGTH = 32  # hexadecimal digits: 128 bits

OfferState: TypeAlias = Literal["offered", "changed", "absent"]
"""A tool that the run offers as it is now, offers with another definition, or does not offer."""


class ToolFinder(Protocol):
    """The search of a run for tools that it does not offer yet."""

    def find(self, query: str, k: int, max_effect: Effect | None) -> Sequence[Tool]: ...


class ToolReference(Value, frozen=True, array_like=True):
    """A tool by its name and the hash of its definition. Its declaration is in the toolbox of the agent."""

    name: str
    hash: str

    def matches(self, tool: Tool) -> bool:
        """Return True if the tool has the definition that was offered."""
        return tool.name == self.name and definition_hash(tool)[:_HASH_LENGTH] == self.hash


class ToolOffer:
    """Prepares the tools of each turn. Most turns offer the same tools as the turn before: the work is done once."""

    def __init__(self) -> None:
        self._given: Sequence[Tool] = ()
        self._limits: tuple[str | None, Effect | None] = (None, None)
        self._prepared: tuple[Tool, ...] | None = None
        self._indexed: tuple[Tool, ...] = ()
        self._by_name: dict[str, Tool] = {}
        self._referenced: tuple[Tool, ...] = ()
        self._references: tuple[ToolReference, ...] = ()

    def merge(
        self,
        offered: tuple[Tool, ...],
        tools: Sequence[Tool],
        *,
        order: Sequence[str] | None = None,
        reserved: str | None,
        max_effect: Effect | None,
    ) -> tuple[Tool, ...]:
        """Return the tools for the next turn. Tools that were offered before keep their position; new ones are last.

        `order`: the names of the tools that were offered before; by default from `offered`. Left out are the tool
        with the `reserved` name, and tools with a stronger effect than `max_effect`.
        """
        limits = (reserved, max_effect)
        if (
            order is None
            and offered is self._prepared
            and limits == self._limits
            and _are_identical(tools, self._given)
        ):
            return offered
        allowed = [tool for tool in tools if tool.name != reserved and not is_stronger(tool.effect, max_effect)]
        current = {tool.name: strip_function(tool) for tool in allowed}
        names = [tool.name for tool in offered] if order is None else order
        kept = [current.pop(name) for name in names if name in current]
        merged = (*kept, *current.values())
        self._given, self._limits = tuple(tools), limits
        self._prepared = offered if merged == offered else merged
        return self._prepared

    def state_of(self, offered: tuple[Tool, ...], tool: Tool) -> OfferState:
        """Compare a tool with the offered tool of the same name."""
        if offered is not self._indexed:
            self._indexed, self._by_name = offered, {known.name: known for known in offered}
        known = self._by_name.get(tool.name)
        if known is None:
            return "absent"
        return "offered" if has_same_definition(known, tool) else "changed"

    def make_references(self, offered: tuple[Tool, ...]) -> tuple[ToolReference, ...]:
        """Return a reference to each offered tool."""
        if offered is not self._referenced:
            self._references = tuple(
                [ToolReference(tool.name, definition_hash(tool)[:_HASH_LENGTH]) for tool in offered]
            )
            self._referenced = offered
        return self._references


def resolve_references(references: Iterable[ToolReference], tools: Iterable[Tool]) -> tuple[Tool, ...]:
    """Return the present declarations of referenced tools, without those that changed or are gone."""
    known = {tool.name: tool for tool in tools}
    found = [(reference, known.get(reference.name)) for reference in references]
    return tuple([strip_function(tool) for reference, tool in found if tool is not None and reference.matches(tool)])


def strip_function(tool: Tool) -> Tool:
    """Return the tool without its function: the state of a run is plain data."""
    return Tool(**{name: getattr(tool, name) for name in Tool.__struct_fields__}) if type(tool) is not Tool else tool


def _are_identical(tools: Sequence[Tool], others: Sequence[Tool]) -> bool:
    return len(tools) == len(others) and all(map(is_, tools, others))
