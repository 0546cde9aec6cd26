"""Schemas that a provider may reject because of undocumented limits: deep ones, and those with many states.

For a provider that compiles a schema into an automaton, text (names, enums) and every possible item of a bounded list
cost states. The estimate counts a state for each character and two around each value, times the number of items.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.pointer import JSON, Object
from .conform import subschemas, walk
from .dialects import Dialect

__all__ = ["estimated_states", "provider_risks"]

_MAX_STATES = 10**9


def provider_risks(schema: Object, dialect: Dialect) -> Iterator[str]:
    """Yield the reasons why the dialect's provider may reject a schema that breaks none of its rules."""
    if dialect.likely_depth is not None:
        depth = max(around for _, _, around in walk(schema))
        if depth > dialect.likely_depth:
            yield f"{depth} levels of nested objects; some models reject more than {dialect.likely_depth}"
    if dialect.likely_states is not None:
        states = estimated_states(schema)
        if states > dialect.likely_states:
            yield f"about {states} states; schemas with {dialect.likely_states} have been rejected"


def estimated_states(schema: Object) -> int:
    """Estimate the states of the automaton for a schema.

    >>> estimated_states({"type": "object", "properties": {"tags": {"type": "array", "maxItems": 10, "items": {"enum": ["ab"]}}}})
    48
    """
    total = 0
    pending = [(schema, 1)]
    while pending and total < _MAX_STATES:
        node, multiplicity = pending.pop()
        total += multiplicity * (2 + _text_length(node))
        items = node.get("maxItems")
        inner = multiplicity * items if type(items) is int and items > 1 else multiplicity
        pending += [(subschema, inner) for subschema in subschemas(node)]
    return min(total, _MAX_STATES)


def _text_length(node: Object) -> int:
    """Count the characters that the model may have to write."""
    properties, values = node.get("properties"), node.get("enum")
    names = sum(map(len, properties)) if type(properties) is dict else 0
    return names + (sum(map(_value_length, values)) if type(values) is list else 0)


def _value_length(value: JSON) -> int:
    return len(value) if type(value) is str else 1
