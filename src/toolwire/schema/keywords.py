"""The keywords of JSON Schema, all drafts, by purpose."""

from __future__ import annotations

from ..ir.pointer import JSON

__all__ = [
    "ANNOTATIONS",
    "ASSERTING",
    "COMBINED",
    "CONDITIONS",
    "DATA",
    "DESCRIPTIVE",
    "EVALUATING",
    "KEYWORDS_BY_TYPE",
    "KIND_OF_KEYWORD",
    "MAPS",
    "MISPLACED",
    "READ_KEYWORDS",
    "TYPED",
    "TYPES",
    "UNMODELLED",
]

DATA = frozenset({"enum", "const", "default", "example", "examples"})
"""Keywords whose value is data, never a schema."""
MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"})
"""Keywords whose value is an object of subschemas."""
CONDITIONS = frozenset({"if", "dependentSchemas", "dependentRequired", "dependencies"})
"""Assertions that depend on other contents of an object."""
ANNOTATIONS = ("title", "description", "default", "examples", "example", "deprecated")
"""Annotations for the reader of a schema."""
UNMODELLED = (
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
DESCRIPTIVE = frozenset({*ANNOTATIONS, *UNMODELLED})
COMBINED = frozenset({"$ref", "$recursiveRef", "$dynamicRef", "allOf", "anyOf", "oneOf"})
EVALUATING = COMBINED | CONDITIONS
"""Keywords whose subschemas evaluate properties of the same object."""
KEYWORDS_BY_TYPE = {
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
KEYWORDS_BY_TYPE["integer"] = KEYWORDS_BY_TYPE["number"]
"""Keywords that imply a type where none is given."""
KIND_OF_KEYWORD = {
    keyword: kind for kind in ("object", "array", "string", "number") for keyword in KEYWORDS_BY_TYPE[kind]
}
"""The type to whose values a keyword applies."""
ASSERTING = frozenset(KIND_OF_KEYWORD)
MISPLACED = {
    kind: ASSERTING - KEYWORDS_BY_TYPE.get(kind, frozenset()) - {"format"}
    for kind in (*KEYWORDS_BY_TYPE, "boolean", "null")
}
"""Keywords that never apply to values of a type. `format` is also an annotation of numbers."""
READ_KEYWORDS = DESCRIPTIVE.union(COMBINED, *KEYWORDS_BY_TYPE.values()) | {
    "type",
    "enum",
    "const",
    "nullable",
    "then",
    "else",
}
READ_KEYWORDS |= {"$defs", "definitions"}
"""All keywords that are read."""
TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")


def has_old_forms(schema: JSON) -> bool:
    """Return True for a form that 2020-12 does not have: a list of `items`, a boolean `exclusiveMinimum`."""
    pending = [schema]
    while pending:
        item = pending.pop()
        if type(item) is list:
            pending += item
        elif type(item) is dict:
            if (
                type(item.get("items")) is list
                or type(item.get("exclusiveMinimum", item.get("exclusiveMaximum"))) is bool
            ):
                return True
            pending += item.values()
    return False
