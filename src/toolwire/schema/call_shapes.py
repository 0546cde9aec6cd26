"""The schema of one call of a tool set: a union of objects with the name of a tool and its arguments."""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.errors import SchemaError
from ..ir.pointer import JSON, Object, join
from ..ir.tools import Tool

__all__ = ["DATA_KEYWORDS", "NAME_MAPS", "arguments_schema", "call_union", "relocate_refs"]

DATA_KEYWORDS = frozenset({"const", "default", "enum", "examples"})
"""Keywords whose values are data: an object there is no schema."""
NAME_MAPS = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
"""Keywords whose values map names to schemas: a name there may be equal to a keyword."""


def call_union(tools: Iterable[Tool], *, name_key: str = "name", arguments_key: str = "arguments") -> Object:
    """Return the schema of one call: an object with the name of a tool and its arguments.

    Undeclared arguments are forbidden unless the schema of the tool mentions them. Built-in tools of providers are left
    out. Pass the result to `decoding_schema`.
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
        return {name: relocate_refs(one, at) for name, one in value.items()}
    return relocate_refs(value, at)
