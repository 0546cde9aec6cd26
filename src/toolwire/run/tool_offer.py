"""The tools that a run offers: their stable order, and the check that a call means the definition that was offered."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_

from ..ir.tools import Effect, Tool
from .definitions import has_same_definition
from .effect_limit import is_stronger

__all__ = ["ToolOffer", "strip_function"]


class ToolOffer:
    """Prepares the tools of each turn. Most turns offer those of the turn before: their work is done once."""

    def __init__(self) -> None:
        self._given: Sequence[Tool] = ()
        self._limits: tuple[str | None, Effect | None] = (None, None)
        self._prepared: tuple[Tool, ...] | None = None
        self._indexed: tuple[Tool, ...] = ()
        self._by_name: dict[str, Tool] = {}

    def merge(
        self, offered: tuple[Tool, ...], tools: Sequence[Tool], *, reserved: str | None, max_effect: Effect | None
    ) -> tuple[Tool, ...]:
        """Return the tools for the next turn. Tools that were offered before keep their position; new ones are last.

        Left out are the tool with the `reserved` name, and tools with a stronger effect than `max_effect`.
        """
        limits = (reserved, max_effect)
        if offered is self._prepared and limits == self._limits and _are_identical(tools, self._given):
            return offered
        allowed = [tool for tool in tools if tool.name != reserved and not is_stronger(tool.effect, max_effect)]
        current = {tool.name: strip_function(tool) for tool in allowed}
        kept = [current.pop(tool.name) for tool in offered if tool.name in current]
        merged = (*kept, *current.values())
        self._given, self._limits = tuple(tools), limits
        self._prepared = offered if merged == offered else merged
        return self._prepared

    def has_definition(self, offered: tuple[Tool, ...], tool: Tool) -> bool:
        """Return True if `offered` contains the tool with this definition."""
        if offered is not self._indexed:
            self._indexed, self._by_name = offered, {known.name: known for known in offered}
        known = self._by_name.get(tool.name)
        return known is not None and has_same_definition(known, tool)


def strip_function(tool: Tool) -> Tool:
    """Return the tool without its function: the state of a run is plain data."""
    return Tool(**{name: getattr(tool, name) for name in Tool.__struct_fields__}) if type(tool) is not Tool else tool


def _are_identical(tools: Sequence[Tool], others: Sequence[Tool]) -> bool:
    return len(tools) == len(others) and all(map(is_, tools, others))
