"""Wrap a schema of any root type in an object, as the only property. Tools take objects only.

Separate because its rule about references concerns no other module.
"""

from __future__ import annotations

from ..ir.pointer import JSON, Object

__all__ = ["is_object_schema", "wrap_root"]

_HEAD = ("$schema", "$id", "$defs", "definitions")  # stay at the root, so that references to definitions stay valid
_DATA = frozenset({"const", "enum", "default", "examples"})
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})


def is_object_schema(schema: JSON) -> bool:
    """Return True if the schema itself states that every value is an object."""
    return type(schema) is dict and schema.get("type") == "object"


def wrap_root(schema: Object, name: str) -> Object:
    """Return the schema of an object with one required property `name`, whose value matches `schema`.

    >>> wrap_root({"type": "array", "items": {"$ref": "#"}}, "result")["properties"]
    {'result': {'type': 'array', 'items': {'$ref': '#/properties/result'}}}
    """
    moved = {key: _move_references(key, value, f"#/properties/{name}") for key, value in schema.items()}
    return {
        **{key: moved.pop(key) for key in _HEAD if key in moved},
        "type": "object",
        "properties": {name: moved},
        "required": [name],
        "additionalProperties": False,
    }


def _move_references(keyword: str, value: JSON, root: str) -> JSON:
    """Point local references to the new location of the old root; anchors and definitions keep theirs."""
    if keyword in _REFERENCES and type(value) is str:
        is_moved = value == "#" or (value.startswith("#/") and not value.startswith(("#/$defs/", "#/definitions/")))
        return root + value[1:] if is_moved else value
    if keyword in _DATA:
        return value
    if type(value) is dict:
        return {key: _move_references(key, inner, root) for key, inner in value.items()}
    if type(value) is list:
        return [_move_references("", inner, root) for inner in value]
    return value
