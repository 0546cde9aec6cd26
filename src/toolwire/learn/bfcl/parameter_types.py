"""The leaderboard's parameter types, which are names of Python, Java and JavaScript types, as JSON Schema."""

from __future__ import annotations

from typing import Any

from ...ir.pointer import Object

__all__ = ["parameter_schema"]

_TYPES = {
    "dict": "object",
    "HashMap": "object",
    "Hashtable": "object",
    "float": "number",
    "double": "number",
    "long": "integer",
    "short": "integer",
    "byte": "integer",
    "Bigint": "integer",
    "tuple": "array",
    "list": "array",
    "Array": "array",
    "ArrayList": "array",
    "Queue": "array",
    "Set": "array",
    "Stack": "array",
    "bool": "boolean",
    "Boolean": "boolean",
    "String": "string",
    "char": "string",
}
_ANY = ("any", "Any", "")


def parameter_schema(parameters: Object, *, any_type: str | None = None) -> Object:
    """Return the JSON Schema of a function's parameters.

    A parameter of any type has no `type`, or `any_type` if that is given: the leaderboard presents it as a string.
    """
    schema = dict(parameters)
    if isinstance(name := schema.get("type"), str):
        if name not in _ANY:
            schema["type"] = _TYPES.get(name, name)
        elif any_type is not None:
            schema["type"] = any_type
        else:
            del schema["type"]
    if isinstance(properties := schema.get("properties"), dict):
        schema["properties"] = {key: _nested(value, any_type) for key, value in properties.items()}
    for keyword in ("items", "additionalProperties"):
        if keyword in schema:
            schema[keyword] = _nested(schema[keyword], any_type)
    return schema


def _nested(value: Any, any_type: str | None) -> Any:
    return parameter_schema(value, any_type=any_type) if isinstance(value, dict) else value
