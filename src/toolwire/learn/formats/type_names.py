"""Types of parameters by their Python names, as xLAM and ToolACE write them, to JSON Schema and back."""

from __future__ import annotations

import re
from typing import Any

from ...ir.pointer import JSON, Object

__all__ = ["base_type", "is_optional", "standard_schema", "type_name"]

_TYPES = {
    "any": None,
    "array": "array",
    "bool": "boolean",
    "boolean": "boolean",
    "dict": "object",
    "dictionary": "object",
    "double": "number",
    "float": "number",
    "int": "integer",
    "integer": "integer",
    "list": "array",
    "long": "integer",
    "none": "null",
    "null": "null",
    "number": "number",
    "object": "object",
    "set": "array",
    "str": "string",
    "string": "string",
    "tuple": "array",
}
_NAMES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list", "object": "dict"}
_BASE = re.compile(r"\s*(?:typing\.)?(?:Optional\[)?\s*([A-Za-z]+)")
_OPTIONAL = re.compile(r",\s*optional\b|\AOptional\[", re.IGNORECASE)
_MAX_DEPTH = 64
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


def standard_schema(schema: JSON, depth: int = 0) -> Any:
    """Replace the Python names of types in a schema, also in its properties and items, by those of JSON Schema."""
    if type(schema) is not dict or depth > _MAX_DEPTH:
        return schema
    found: Object = {}
    for key, value in schema.items():
        if key == "type" and type(value) is str:
            if (kind := base_type(value)) is not None:
                found[key] = kind
        elif key == "properties" and type(value) is dict:
            found[key] = {name: standard_schema(one, depth + 1) for name, one in value.items()}
        elif key in _SCHEMAS:
            found[key] = standard_schema(value, depth + 1)
        elif value is not None or key in ("default", "const"):
            found[key] = value
    return found
