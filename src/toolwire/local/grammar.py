"""Convert the schemas of calls to a grammar for llama.cpp's constrained decoding.

llama.cpp is built with llguidance, whose grammar produces the call on one line. `response_format` lets the model write
spaces and line breaks, and takes two thirds more tokens (bench/local.py measures both). A schema that llguidance does
not fully support would silently give no grammar at all, so only keywords that it enforces are included. The code that
runs the tool checks the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..ir.pointer import JSON, Object
from ..ir.text import dumps
from ..schema.conform import walk

__all__ = ["MAX_ITEMS", "MAX_LENGTH", "bound_schema", "build_grammar", "unenforced_keywords"]

MAX_LENGTH = 200
"""Maximum length of a string whose schema has no limit, because a small model may repeat itself forever."""
MAX_ITEMS = 8
"""Maximum number of items of an array whose schema has no limit."""

_ENFORCED_KEYWORDS = frozenset(
    "type enum const minLength maxLength minimum maximum exclusiveMinimum exclusiveMaximum minItems maxItems required".split()
)
_ANNOTATION_KEYWORDS = frozenset(
    "title description default examples deprecated readOnly writeOnly example nullable $schema $id $comment $anchor".split()
)
_READ_KEYWORDS = _ENFORCED_KEYWORDS | {
    "properties",
    "additionalProperties",
    "items",
    "prefixItems",
    "anyOf",
    "oneOf",
    "$ref",
    "$defs",
    "definitions",
}
_MAX_INTEGER = 2**53 - 1
_COMPACT_JSON = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def build_grammar(calls: JSON) -> str:
    """Build a grammar of exactly one call; `calls` is its schema, an `anyOf` if there are several tools."""
    defs: Object = {}
    shapes = calls.get("anyOf", [calls])
    bodies = [bound_schema(_forbid_additional(shape), f"{number}.", defs) for number, shape in enumerate(shapes)]
    schema: Object = {"anyOf": bodies, "$defs": defs, "x-guidance": _COMPACT_JSON}
    return f"%llguidance {{}}\nstart: %json {dumps(schema)}"


def unenforced_keywords(schema: Object) -> Iterator[tuple[str, str]]:
    """Yield (pointer to the subschema, keyword) for each keyword that the grammar does not enforce."""
    for at, node, _ in walk(schema):
        for keyword in sorted(node.keys() - _READ_KEYWORDS - _ANNOTATION_KEYWORDS):
            if not keyword.startswith("x-"):
                yield at, keyword


def _forbid_additional(shape: Object) -> Object:
    """Forbid undeclared arguments, so that a tool without parameters accepts none."""
    arguments = {"additionalProperties": False, **shape["properties"]["arguments"]}
    return {**shape, "properties": {**shape["properties"], "arguments": arguments}}


def bound_schema(schema: JSON, prefix: str, defs: Object) -> JSON:
    """Add limits to `schema` and keep only enforced keywords; its definitions go into `defs`, under `prefix`."""
    if not isinstance(schema, dict):
        return schema
    for group in ("$defs", "definitions"):
        for name, one in _object_or_empty(schema.get(group)).items():
            defs[prefix + name] = bound_schema(one, prefix, defs)
    if isinstance(target := schema.get("$ref"), str):
        return {"$ref": f"#/$defs/{prefix}{target.rpartition('/')[2]}"}
    kept: Object = {name: value for name, value in schema.items() if name in _ENFORCED_KEYWORDS}
    for name in ("anyOf", "oneOf"):
        if isinstance(schema.get(name), list):
            kept["anyOf"] = [bound_schema(one, prefix, defs) for one in schema[name]]
    kinds = _declared_types(schema)
    if "object" in kinds:
        _bound_object(kept, schema, prefix, defs)
    if "array" in kinds:
        _bound_array(kept, schema, prefix, defs)
    if "string" in kinds and not kept.keys() & {"enum", "const"}:
        kept.setdefault("maxLength", max(MAX_LENGTH, kept.get("minLength", 0)))
    if "integer" in kinds and not kept.keys() & {"enum", "const"}:
        kept.setdefault("minimum", -_MAX_INTEGER)
        kept.setdefault("maximum", _MAX_INTEGER)
    return kept


def _bound_object(kept: Object, schema: Object, prefix: str, defs: Object) -> None:
    """Allow only declared properties; without any, one entry, because a small model repeats keys in an open object."""
    properties = _object_or_empty(schema.get("properties"))
    kept["properties"] = {name: bound_schema(one, prefix, defs) for name, one in properties.items()}
    others = schema.get("additionalProperties", True)
    kept["additionalProperties"] = False if properties else bound_schema(others, prefix, defs)
    if kept["additionalProperties"] is not False:
        kept["maxProperties"] = 1


def _bound_array(kept: Object, schema: Object, prefix: str, defs: Object) -> None:
    """Bound the items of an array. The limit must not be below `minItems` or the number of prefix items."""
    first = schema.get("prefixItems")
    if isinstance(first, list):
        kept["prefixItems"] = [bound_schema(one, prefix, defs) for one in first]
    if "items" in schema and not isinstance(schema["items"], list):
        kept["items"] = bound_schema(schema["items"], prefix, defs)
    kept.setdefault("maxItems", max(MAX_ITEMS, kept.get("minItems", 0), len(first or ())))


def _declared_types(schema: Object) -> set[str]:
    kind = schema.get("type")
    if kind is None and "properties" in schema:
        return {"object"}
    return set(kind) if isinstance(kind, list) else {kind} if isinstance(kind, str) else set()


def _object_or_empty(value: Any) -> Object:
    return value if isinstance(value, dict) else {}
