"""Bounds on the work that an untrusted schema or value can cause.

Schemas come from clients and MCP servers, values from models. A computation that could cost more than a multiple of its
input counts its steps against a `StepBudget` and falls back to a weaker answer that is always safe. Allowances grow
with the size of the input, so the total cost of a request stays linear in its length. Steps are counted, not timed: the
same input gives the same result on every machine.
"""

from __future__ import annotations

from ..ir.pointer import JSON

__all__ = ["StepBudget", "json_size"]

_CHARACTERS_PER_STEP = 32


class StepBudget:
    """The steps that one computation has left, and the patterns that it has matched."""

    __slots__ = ("pattern_bytes", "pattern_costs", "remaining")

    def __init__(self, steps: int) -> None:
        self.remaining = steps
        self.pattern_costs: dict[str, int | None] = {}  # of one character of text; None: not matched, too large
        self.pattern_bytes = 0  # of their engines

    def spend(self, steps: int = 1) -> bool:
        """Count `steps`; False once the allowance is exceeded."""
        self.remaining -= steps
        return self.remaining >= 0

    @property
    def exhausted(self) -> bool:
        return self.remaining < 0


def json_size(document: JSON) -> int:
    """Count the JSON values in a document, plus one for every 32 characters of text.

    >>> json_size({"type": "object", "required": ["city"]})
    4
    """
    count, characters = 0, 0
    pending = [document]
    while pending:
        value = pending.pop()
        count += 1
        if type(value) is dict:
            characters += sum(map(len, value))
            pending.extend(value.values())
        elif type(value) is list:
            pending.extend(value)
        elif type(value) is str:
            characters += len(value)
    return count + characters // _CHARACTERS_PER_STEP
