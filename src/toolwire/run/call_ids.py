"""Unique ids for the calls of a run.

A decision and a result refer to a call by its id. Some models repeat ids, in one turn or from turn to turn; the second
call with an id gets another one, in the conversation as well.
"""

from __future__ import annotations

from collections.abc import Set
from operator import is_

from msgspec.structs import replace

from ..ir.parts import Part, ToolCall

__all__ = ["CallIds"]

_MAX_LENGTH = 40  # the limit of OpenAI's chat completions for the id of a call


class CallIds:
    """The ids of a conversation. The same ids in the same order get the same replacements."""

    def __init__(self, known: Set[str] = frozenset()) -> None:
        self._before = known  # not copied: a conversation may have many
        self._known: set[str] = set()
        self._numbers: dict[str, int] = {}  # the last number that was added to an id

    def make_unique(self, call_id: str) -> str:
        """Return the id, or a new one if a call has it already."""
        number, unique = self._numbers.get(call_id, 1), call_id
        while unique in self._known or unique in self._before:
            number += 1
            suffix = f"_{number}"
            unique = call_id[: max(_MAX_LENGTH, len(call_id)) - len(suffix)] + suffix
        self._numbers[call_id] = number
        self._known.add(unique)
        return unique

    def rename_calls(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """Return the parts of a response, in which each call has an id of its own; the same object if they have."""
        renamed = tuple(self._rename(part) if isinstance(part, ToolCall) else part for part in parts)
        return parts if all(map(is_, renamed, parts)) else renamed

    def _rename(self, call: ToolCall) -> ToolCall:
        unique = self.make_unique(call.id)
        return call if unique == call.id else replace(call, id=unique)
