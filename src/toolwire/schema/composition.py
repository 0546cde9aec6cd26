"""Compose schemas out of others: a union of a tool set's calls, and an object around any root type.

An embedded schema changes its position in the document, so its references are moved with it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.errors import SchemaError
from ..ir.pointer import JSON, Object, join
from ..ir.tools import Tool

DATA_KEYWORDS = frozenset({"const", "default", "enum", "examples"})
"""Keywords whose values are data: an object there is no schema."""
NAME_MAPS = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
"""Keywords whose values map names to schemas: a name there may be equal to a keyword."""


def call_union(tools: Iterable[Tool], *, name_key: str = "name", arguments_key: str = "arguments") -> Object:
    """Return the schema of one call: an object with the name of a tool and its arguments.

    Undeclared arguments are forbidden unless the schema of the tool mentions them. Built-in tools of providers are left
    out. Pass the result to `decoding_schema`. SchemaError if there is no tool, or a schema is nested too deeply.
    """
    shapes: list[Object] = []
    for tool in tools:
        if tool.kind != "builtin":
            at = f"/anyOf/{len(shapes)}/properties{join(arguments_key)}"
            try:
                arguments = relocate_refs(arguments_schema(tool), at)
            except RecursionError:
                raise SchemaError(f"the schema of {tool.name!r} is nested too deeply", hint="flatten it") from None
            shapes.append(
                {
                    "type": "object",
                    "properties": {name_key: {"const": tool.name}, arguments_key: arguments},
                    "required": [name_key, arguments_key],
                    "additionalProperties": False,
                }
            )
    if not shapes:
        raise SchemaError("no tool can be called", hint="offer at least one function")
    return {"anyOf": shapes}


def arguments_schema(tool: Tool) -> Object:
    """Return the schema of the arguments. A tool without declared parameters accepts none."""
    if tool.kind == "freeform":
        text: Object = {"type": "string"}
        return {"type": "object", "properties": {"input": text}, "required": ["input"], "additionalProperties": False}
    return {"type": "object", "additionalProperties": False, **(tool.input_schema or {})}


def relocate_refs(schema: JSON, at: str) -> JSON:
    """Make the references of a schema relative to the document in which it is moved to `at`.

    A schema with an identifier stays as it is: its references are relative to itself.
    """
    if type(schema) is list:
        return [relocate_refs(item, at) for item in schema]
    if type(schema) is not dict or type(schema.get("$id")) is str:
        return schema
    moved = {key: _relocate_value(key, value, at) for key, value in schema.items()}
    for keyword in ("$ref", "$recursiveRef", "$dynamicRef"):
        ref = moved.get(keyword)
        if type(ref) is str and (ref == "#" or ref.startswith("#/")):
            moved[keyword] = f"#{at}{ref[1:]}"
    return moved


def _relocate_value(key: str, value: JSON, at: str) -> JSON:
    if key in DATA_KEYWORDS:
        return value
    if key in NAME_MAPS and type(value) is dict:
        return {name: relocate_refs(part, at) for name, part in value.items()}
    return relocate_refs(value, at)


# Wrap a schema of any root type in an object, as the only property. Tools take objects only.


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
