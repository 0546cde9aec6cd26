"""Types of parameters by their names in Python, Java and JavaScript, as datasets write them, to JSON Schema and back."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ...ir.pointer import JSON, Object

_TYPES = {
    "any": None,
    "array": "array",
    "arraylist": "array",
    "bigint": "integer",
    "bool": "boolean",
    "boolean": "boolean",
    "byte": "integer",
    "char": "string",
    "dict": "object",
    "dictionary": "object",
    "double": "number",
    "float": "number",
    "hashmap": "object",
    "hashtable": "object",
    "int": "integer",
    "integer": "integer",
    "list": "array",
    "long": "integer",
    "none": "null",
    "null": "null",
    "number": "number",
    "object": "object",
    "queue": "array",
    "set": "array",
    "short": "integer",
    "stack": "array",
    "str": "string",
    "string": "string",
    "tuple": "array",
}
_NAMES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list", "object": "dict"}
_BASE = re.compile(r"\s*+(?:typing\.)?(?:Optional\[)?\s*+([A-Za-z]+)")
_OPTIONAL = re.compile(r",\s*optional\b|\AOptional\[", re.IGNORECASE)
_MAX_DEPTH = 64  # as in `schema/parsing/parser.py`; a deeper part is left as it is
_SCHEMAS = frozenset({"items", "additionalProperties"})


def base_type(name: str) -> str | None:
    """Return the type in JSON Schema for a name such as "List[int], optional"; None if it allows any value."""
    found = _BASE.match(name)
    return _TYPES.get(found[1].lower()) if found else None


def is_optional(name: str) -> bool:
    """Return whether a name marks an optional parameter."""
    return _OPTIONAL.search(name) is not None


def type_name(kind: str) -> str:
    """Return the Python name of a type of JSON Schema."""
    return _NAMES.get(kind, kind)


def standard_schema(schema: JSON, find_type: Callable[[str], str | None] = base_type, depth: int = 0) -> Any:
    """Replace the names of types in a schema, also in its properties and items, by the names of JSON Schema.

    `find_type` returns the type for a name; None leaves it out.
    """
    if type(schema) is not dict or depth > _MAX_DEPTH:
        return schema
    out: Object = {}
    for key, value in schema.items():
        if key == "type" and type(value) is str:
            if (kind := find_type(value)) is not None:
                out[key] = kind
        elif key == "properties" and type(value) is dict:
            out[key] = {name: standard_schema(one, find_type, depth + 1) for name, one in value.items()}
        elif key in _SCHEMAS:
            out[key] = standard_schema(value, find_type, depth + 1)
        elif value is not None or key in ("default", "const"):
            out[key] = value
    return out
