"""Schemas of calls as a grammar for llama.cpp's decoder.

llama.cpp is built with llguidance, whose grammar gives the call on one line. `response_format` leaves the model free to write
spaces and line breaks, and takes two thirds more tokens (bench/local.py measures both). A schema that llguidance does not
know all of would be no grammar at all, without a word: so only keywords that it enforces go in. What is left out is checked
by whoever runs the tool.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..ir.pointer import JSON, Object
from ..ir.text import dumps
from ..schema.conform import walk

__all__ = ["LONGEST", "MOST_ITEMS", "bounded", "grammar_of", "unenforced"]

LONGEST = 200
"""Characters of a string whose schema has no limit: a small model may say the same word for ever."""
MOST_ITEMS = 8
"""Items of an array whose schema has no limit."""

_KEPT = frozenset(
    "type enum const minLength maxLength minimum maximum exclusiveMinimum exclusiveMaximum minItems maxItems required".split()
)
_SAYS_NOTHING = frozenset(
    "title description default examples deprecated readOnly writeOnly example nullable $schema $id $comment $anchor".split()
)
_READ = _KEPT | {
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
_LARGEST = 2**53 - 1
_ONE_LINE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def grammar_of(calls: JSON) -> str:
    """A grammar of exactly one call; `calls` is its schema, an `anyOf` where there are several tools."""
    defs: Object = {}
    shapes = calls.get("anyOf", [calls])
    bodies = [bounded(_closed(shape), f"{number}.", defs) for number, shape in enumerate(shapes)]
    schema: Object = {"anyOf": bodies, "$defs": defs, "x-guidance": _ONE_LINE}
    return f"%llguidance {{}}\nstart: %json {dumps(schema)}"


def unenforced(schema: Object) -> Iterator[tuple[str, str]]:
    """The keywords that the grammar does not hold the model to, each with a pointer to the schema that it stands in."""
    for at, node, _ in walk(schema):
        for keyword in sorted(node.keys() - _READ - _SAYS_NOTHING):
            if not keyword.startswith("x-"):
                yield at, keyword


def _closed(shape: Object) -> Object:
    """A tool that declares no parameters takes none."""
    arguments = {"additionalProperties": False, **shape["properties"]["arguments"]}
    return {**shape, "properties": {**shape["properties"], "arguments": arguments}}


def bounded(schema: JSON, prefix: str, defs: Object) -> JSON:
    """`schema` with an end in sight, in keywords that are enforced; its definitions go into `defs`, under `prefix`."""
    if not isinstance(schema, dict):
        return schema
    for group in ("$defs", "definitions"):
        for name, one in _objects(schema.get(group)).items():
            defs[prefix + name] = bounded(one, prefix, defs)
    if isinstance(target := schema.get("$ref"), str):
        return {"$ref": f"#/$defs/{prefix}{target.rpartition('/')[2]}"}
    kept: Object = {name: value for name, value in schema.items() if name in _KEPT}
    for name in ("anyOf", "oneOf"):
        if isinstance(schema.get(name), list):
            kept["anyOf"] = [bounded(one, prefix, defs) for one in schema[name]]
    kinds = _kinds(schema)
    if "object" in kinds:
        _bound_object(kept, schema, prefix, defs)
    if "array" in kinds:
        _bound_array(kept, schema, prefix, defs)
    if "string" in kinds and not kept.keys() & {"enum", "const"}:
        kept.setdefault("maxLength", max(LONGEST, kept.get("minLength", 0)))
    if "integer" in kinds and not kept.keys() & {"enum", "const"}:
        kept.setdefault("minimum", -_LARGEST)
        kept.setdefault("maximum", _LARGEST)
    return kept


def _bound_object(kept: Object, schema: Object, prefix: str, defs: Object) -> None:
    """Only what is declared; where nothing is, one entry: in an open object a small model writes the same key twice."""
    properties = _objects(schema.get("properties"))
    kept["properties"] = {name: bounded(one, prefix, defs) for name, one in properties.items()}
    others = schema.get("additionalProperties", True)
    kept["additionalProperties"] = False if properties else bounded(others, prefix, defs)
    if kept["additionalProperties"] is not False:
        kept["maxProperties"] = 1


def _bound_array(kept: Object, schema: Object, prefix: str, defs: Object) -> None:
    first = schema.get("prefixItems")
    if isinstance(first, list):
        kept["prefixItems"] = [bounded(one, prefix, defs) for one in first]
    if "items" in schema and not isinstance(schema["items"], list):
        kept["items"] = bounded(schema["items"], prefix, defs)
    kept.setdefault("maxItems", max(MOST_ITEMS, kept.get("minItems", 0), len(first or ())))


def _kinds(schema: Object) -> set[str]:
    kind = schema.get("type")
    if kind is None and "properties" in schema:
        return {"object"}
    return set(kind) if isinstance(kind, list) else {kind} if isinstance(kind, str) else set()


def _objects(value: Any) -> Object:
    return value if isinstance(value, dict) else {}
