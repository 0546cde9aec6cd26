"""TW041: what at least one provider would not take as it is written, whatever it means to the others."""

from __future__ import annotations

from collections.abc import Iterator

from ..schema.dialects import DIALECTS, PORTABLE
from .findings import Hit
from .schema_rules import Schema, schema_rule

__all__: list[str] = []

# Strict dialects demand `additionalProperties: false` and others refuse it: no schema pleases both. Whether a closed object
# says so is left to lowering, which loses nothing by it; an object that is open, or a map, is another matter.
_CLOSING = ("additionalProperties is not false", "additionalProperties is not known here")


@schema_rule(
    "TW041",
    "error",
    "portable",
    "something that not every provider takes as it is",
    "keep to the core: required properties, plain types, lists with items, string enums, anyOf, descriptions",
    asked=True,
)
def not_portable(schema: Schema) -> Iterator[Hit]:
    refused: dict[str, list[str]] = {}
    for row in DIALECTS.values():
        for found in dict.fromkeys(schema.violations(row.name)) if row is not PORTABLE else ():
            refused.setdefault(found, []).append(row.name)
    closed = {at for at, node in schema.nodes if node.get("additionalProperties", False) is False}
    for found, who in refused.items():
        at, _, words = found.partition(": ")
        at = "" if at == "/" else at
        if words not in _CLOSING or at not in closed:
            yield Hit(at, f"{words} ({', '.join(who)})")
