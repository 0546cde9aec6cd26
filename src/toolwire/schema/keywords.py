"""The keywords of JSON Schema, all drafts, by purpose."""

from __future__ import annotations

from ..ir.pointer import JSON

__all__ = [
    "COMBINED",
    "CONDITIONS",
    "DATA",
    "EVALUATING",
    "MAPS",
    "NOTES",
    "OF_TYPE",
    "READ",
    "REMARKS",
    "RESIDUE",
    "TYPED",
    "TYPES",
]

DATA = frozenset({"enum", "const", "default", "example", "examples"})
"""Keywords whose value is data, never a schema."""
MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"})
"""Keywords whose value is an object of subschemas."""
CONDITIONS = frozenset({"if", "dependentSchemas", "dependentRequired", "dependencies"})
"""Assertions that depend on other contents of an object."""
NOTES = ("title", "description", "default", "examples", "example", "deprecated")
"""Annotations for the reader of a schema."""
RESIDUE = (
    "not",
    "if",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "contains",
    "minContains",
    "maxContains",
    "uniqueItems",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "contentEncoding",
    "contentMediaType",
)
"""Assertions that nodes have no field for."""
TYPED = frozenset({"type", "enum", "const"})
REMARKS = frozenset({*NOTES, *RESIDUE})
COMBINED = frozenset({"$ref", "$recursiveRef", "$dynamicRef", "allOf", "anyOf", "oneOf"})
EVALUATING = COMBINED | CONDITIONS
"""Keywords whose subschemas evaluate properties of the same object."""
OF_TYPE = {
    "object": frozenset(
        "properties required additionalProperties patternProperties propertyNames minProperties maxProperties "
        "dependentRequired dependentSchemas unevaluatedProperties".split()
    ),
    "array": frozenset(
        "items prefixItems additionalItems minItems maxItems uniqueItems contains minContains maxContains "
        "unevaluatedItems".split()
    ),
    "string": frozenset({"minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
}
OF_TYPE["integer"] = OF_TYPE["number"]
"""Keywords that imply a type where none is given."""
READ = REMARKS.union(COMBINED, *OF_TYPE.values()) | {"type", "enum", "const", "nullable", "then", "else"}
READ |= {"$defs", "definitions"}
"""All keywords that are read."""
TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")


def has_old_forms(schema: JSON) -> bool:
    """Return True for a form that 2020-12 does not have: a list of `items`, a boolean `exclusiveMinimum`."""
    pending = [schema]
    while pending:
        one = pending.pop()
        if type(one) is list:
            pending += one
        elif type(one) is dict:
            if type(one.get("items")) is list or type(one.get("exclusiveMinimum", one.get("exclusiveMaximum"))) is bool:
                return True
            pending += one.values()
    return False
