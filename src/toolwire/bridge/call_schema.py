"""The schema of an answer that is a call, for servers that compile a JSON Schema to a grammar.

    call_schema([tool], parallel=False)     # {"type": "object", "properties": {"name": {"const": …}, "arguments": …}, …}

The schema is written for the converters of servers. They generate properties in the declared order, so the name comes
before the arguments. Definitions are at the root, because older converters resolve references only through objects.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.errors import EncodeError
from ..ir.pointer import JSON, Object
from ..ir.tools import Tool
from ..schema.composition import DATA_KEYWORDS, NAME_MAPS
from ..schema.lowering.lowered import Lowered, lower

__all__ = ["MAX_CALLS", "call_schema", "close_arguments", "lower_arguments"]

MAX_CALLS = 16
"""Calls of one answer with parallel calls: a small model may repeat itself forever."""
_DEFINITIONS = "#/$defs/"
_OPEN_KEYWORDS = frozenset("additionalProperties patternProperties anyOf oneOf allOf $ref if".split())


def lower_arguments(schema: Object, dialect: str) -> Lowered | None:
    """Lower the schema of arguments to `dialect`; None if the arguments would change their shape."""
    try:
        lowered = lower(schema, dialect)
    except (EncodeError, RecursionError):
        return None
    return lowered if lowered.conforms and not lowered.changes_arguments else None


def call_schema(tools: Sequence[Tool], *, parallel: bool) -> Object:
    """Return the schema of one call of one of the tools, or of an array of calls.

    The schemas of the tools are as `lower_arguments` returns them: the targets of their references are in `$defs`.
    """
    definitions: Object = {}
    shapes = [_call_shape(tool, f"tool{number}_", definitions) for number, tool in enumerate(tools)]
    schema: Object = shapes[0] if len(shapes) == 1 else {"anyOf": shapes}
    if parallel:
        schema = {"type": "array", "items": schema, "minItems": 1, "maxItems": MAX_CALLS}
    return {**schema, "$defs": definitions} if definitions else schema


def close_arguments(schema: Object) -> Object:
    """Forbid undeclared arguments, unless the schema mentions them or another schema may declare them."""
    return {**schema, "additionalProperties": False} if _OPEN_KEYWORDS.isdisjoint(schema) else schema


def _call_shape(tool: Tool, prefix: str, definitions: Object) -> Object:
    """Return the schema of a call of one tool; the definitions of its arguments are moved to `definitions`."""
    arguments = tool.input_schema or {"type": "object"}
    for name, definition in arguments.get("$defs", {}).items():
        definitions[prefix + name] = _prefix_references(definition, prefix)
    arguments = close_arguments({name: value for name, value in arguments.items() if name != "$defs"})
    return {
        "type": "object",
        "properties": {"name": {"const": tool.name}, "arguments": _prefix_references(arguments, prefix)},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _prefix_references(schema: JSON, prefix: str) -> JSON:
    """Return the schema with the moved definitions as targets of its references."""
    if type(schema) is list:
        return [_prefix_references(item, prefix) for item in schema]
    if type(schema) is not dict:
        return schema
    moved = {name: _prefix_value(name, value, prefix) for name, value in schema.items()}
    if type(target := moved.get("$ref")) is str:
        moved["$ref"] = _DEFINITIONS + prefix + target.removeprefix(_DEFINITIONS)
    if moved.get("type") == "object" and moved.get("properties") == {} and "additionalProperties" not in moved:
        del moved["properties"]  # llama.cpp takes it for an object without any entry
    return moved


def _prefix_value(keyword: str, value: JSON, prefix: str) -> JSON:
    if keyword in DATA_KEYWORDS:
        return value
    if keyword in NAME_MAPS and type(value) is dict:
        return {name: _prefix_references(one, prefix) for name, one in value.items()}
    return _prefix_references(value, prefix)
