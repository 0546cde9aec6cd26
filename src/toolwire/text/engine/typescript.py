"""Render a tool as a TypeScript type, as models of the harmony format were trained to read it."""

from __future__ import annotations

from typing import Any

from ...ir.text import dumps
from ...ir.tools import Tool

__all__ = ["render_typescript"]

_SIMPLE = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
_DEPTH = 8


def render_typescript(tool: Tool) -> str:
    """Render the tool as `type NAME = (_: {…}) => any;`."""
    comment = "".join(f"// {line}\n" for line in (tool.description or "").splitlines())
    schema = tool.input_schema or {}
    if not schema.get("properties"):
        return f"{comment}type {tool.name} = () => any;"
    return f"{comment}type {tool.name} = (_: {_render_object(schema, 0)}) => any;"


def _render_object(schema: dict[str, Any], depth: int) -> str:
    """Render the properties, each after its description as a comment; `?` marks an optional one."""
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    lines = []
    for name, part in schema["properties"].items():
        described = part.get("description") if isinstance(part, dict) else None
        lines += [f"// {line}" for line in str(described).splitlines()] if described else []
        default = f", // default: {dumps(part['default'])}" if isinstance(part, dict) and "default" in part else ","
        lines.append(f"{name}{'' if name in needed else '?'}: {_render_type(part, depth + 1)}{default}")
    return "{\n" + "\n".join(lines) + "\n}"


def _render_type(schema: Any, depth: int) -> str:
    """Render a schema as a type; `any` for a schema that has no simple type, or beyond the depth limit."""
    if not isinstance(schema, dict) or depth > _DEPTH:
        return "any"
    if isinstance(schema.get("enum"), list):
        return " | ".join(map(dumps, schema["enum"])) or "any"
    if "const" in schema:
        return dumps(schema["const"])
    for word in ("anyOf", "oneOf"):
        if isinstance(schema.get(word), list):
            return " | ".join(dict.fromkeys(_render_type(branch, depth + 1) for branch in schema[word])) or "any"
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(_render_type({**schema, "type": one}, depth + 1) for one in kind) or "any"
    if kind == "array":
        return f"{_parenthesise(_render_type(schema.get('items'), depth + 1))}[]"
    if kind == "object":
        return _render_object(schema, depth) if isinstance(schema.get("properties"), dict) else "object"
    return _SIMPLE.get(kind, "any") if isinstance(kind, str) else "any"


def _parenthesise(name: str) -> str:
    return f"({name})" if " | " in name else name
