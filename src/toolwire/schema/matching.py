"""Estimate the cost of the patterns of a schema on a value, before the engine runs.

The engine is linear in the text, but the factor is the size of the automaton, and a value may be matched with many
patterns. The sum of both is estimated for each value and compared with a budget.
"""

from __future__ import annotations

from ..ir.pointer import JSON, Object
from .patterns import MATCH_BUDGET, match_cost
from .validation_cost import MAX_VISITS, ValidationCost

__all__ = ["PatternCost"]


class PatternCost(ValidationCost):
    """The patterns of one schema."""

    __slots__ = ("_cost_per_character",)
    max_pairs = 200_000
    """Most pairs cost nothing here, because few schemas have patterns; so the limit of units does not bound them."""

    def __init__(self, document: JSON) -> None:
        super().__init__(document)
        schemas = list(self.visits())
        self._cost_per_character = sum(map(_schema_rate, schemas)) if len(schemas) <= MAX_VISITS else MATCH_BUDGET

    def exceeds_budget(self, value: JSON) -> bool:
        """Return True if the patterns may cost more than the budget on this value."""
        # All patterns on all of the text: an upper bound that is cheap, and within the budget for most values.
        if self._cost_per_character * _text_length(value) <= MATCH_BUDGET:
            return False
        return self.cost_of(value, MATCH_BUDGET) >= MATCH_BUDGET

    def _weight(self, schema: Object, value: JSON) -> int:
        """Return the cost of the patterns of one schema on a string, or on the names of an object."""
        if type(value) is str:
            pattern = schema.get("pattern")
            return match_cost(pattern) * len(value) if type(pattern) is str else 0
        patterns = schema.get("patternProperties")
        if type(value) is dict and type(patterns) is dict:
            return sum(map(match_cost, patterns)) * sum(map(len, value))
        return 0


def _schema_rate(schema: Object) -> int:
    """Return the units for one character of a string or name that is matched with this schema."""
    pattern, patterns = schema.get("pattern"), schema.get("patternProperties")
    rate = match_cost(pattern) if type(pattern) is str else 0
    return rate + (sum(map(match_cost, patterns)) if type(patterns) is dict else 0)


def _text_length(value: JSON) -> int:
    """Count the characters of all strings and names in a value, which is not deeper than the validator allows."""
    if type(value) is str:
        return len(value)
    if type(value) is not dict and type(value) is not list:
        return 0
    total = sum(map(len, value)) if type(value) is dict else 0
    for item in value.values() if type(value) is dict else value:
        if type(item) is str:
            total += len(item)
        elif type(item) is dict or type(item) is list:
            total += _text_length(item)
    return total
