"""TW041: schema features that at least one provider does not accept unchanged.

Separate because it is the only rule that compares all dialects. Its import registers the schema rules before the
quality rules, and that order is the order of findings.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..schema.dialects import DIALECTS, PORTABLE
from .findings import Hit
from .schema_rules import AuditedSchema, schema_rule

__all__: list[str] = []

# Strict dialects require `additionalProperties: false` and others reject it, so no schema satisfies both. Lowering adds
# or removes it on closed objects without loss; only open objects and maps are reported.
_CLOSING = ("additionalProperties is not false", "additionalProperties is not supported")


@schema_rule(
    "TW041",
    "error",
    "portable",
    "schema not accepted unchanged by every provider",
    "use only the portable core: required properties, plain types, lists with items, string enums, anyOf, descriptions",
    asked=True,
)
def check_not_portable(schema: AuditedSchema) -> Iterator[Hit]:
    """Report each violation once, with all dialects that refuse it."""
    refused: dict[str, list[str]] = {}
    for row in DIALECTS.values():
        for found in dict.fromkeys(schema.violations(row.name)) if row is not PORTABLE else ():
            refused.setdefault(found, []).append(row.name)
    closed = {at for at, node in schema.nodes if node.get("additionalProperties", False) is False}
    for found, providers in refused.items():
        at, _, message = found.partition(": ")
        at = "" if at == "/" else at
        if message not in _CLOSING or at not in closed:
            yield Hit(at, f"{message} ({', '.join(providers)})")
