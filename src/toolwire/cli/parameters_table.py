"""Describe the properties of a schema as rows of a table: name, type, required or default, description.

Nested objects are flattened to dotted names. Schemas of servers are untrusted, so that depth and number are bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..ir.text import dumps

__all__ = ["parameter_rows", "type_text"]

_MAX_DEPTH = 4
_MAX_ROWS = 200
_MAX_CHOICES = 8  # values of an enum
_MAX_TEXT = 60  # characters of a value


def parameter_rows(schema: Any) -> list[tuple[str, str, str, str]]:
    """Return one row per property: name, type, `required` or the default, and the description."""
    rows: list[tuple[str, str, str, str]] = []
    for row in _walk(schema, schema, "", 0):
        if len(rows) == _MAX_ROWS:
            rows.append(("…", "", "", "more properties are not shown"))
            break
        rows.append(row)
    return rows


def _walk(root: Any, schema: Any, prefix: str, depth: int) -> Iterator[tuple[str, str, str, str]]:
    node = _resolve(root, schema)
    properties = node.get("properties")
    required = node.get("required")
    required_names = set(filter(_is_text, required)) if type(required) is list else set()
    for name, given in properties.items() if type(properties) is dict else ():
        value = _resolve(root, given)
        path = f"{prefix}{name}"
        yield path, type_text(value, root), _presence(value, required=name in required_names), _description(value)
        nested = value.get("items") if value.get("type") == "array" else value
        if depth < _MAX_DEPTH and type(_resolve(root, nested).get("properties")) is dict:
            yield from _walk(root, nested, f"{path}[]." if nested is not value else f"{path}.", depth + 1)


def type_text(schema: Any, root: Any = None) -> str:
    """Describe the type of a schema briefly: `integer`, `array of string`, `"a" | "b"`."""
    return _type_text(schema, schema if root is None else root, 0)


def _type_text(schema: Any, root: Any, depth: int) -> str:
    node = _resolve(root, schema)
    if depth > _MAX_DEPTH:
        return "…"
    values = [node["const"]] if "const" in node else node.get("enum")
    if type(values) is list:
        shown = " | ".join(_shorten(dumps(value)) for value in values[:_MAX_CHOICES])
        return f"{shown} | …" if len(values) > _MAX_CHOICES else shown
    for key in ("anyOf", "oneOf"):
        branches = node.get(key)
        if type(branches) is list and branches:
            texts = dict.fromkeys(_type_text(branch, root, depth + 1) for branch in branches[:_MAX_CHOICES])
            return " | ".join(texts)
    kind = node.get("type")
    if kind == "array":
        return f"array of {_type_text(node['items'], root, depth + 1)}" if type(node.get("items")) is dict else "array"
    if type(kind) is list:
        return " | ".join(filter(_is_text, kind))
    return kind if type(kind) is str else "object" if "properties" in node else "any"


def _resolve(root: Any, schema: Any) -> dict[str, Any]:
    """Follow local references to a definition; anything else is an empty schema."""
    for _ in range(_MAX_DEPTH):
        reference = schema.get("$ref") if type(schema) is dict else None
        if type(reference) is not str:
            break
        schema = _look_up(root, reference)
    return schema if type(schema) is dict else {}


def _look_up(root: Any, reference: str) -> Any:
    node = root
    for name in reference.removeprefix("#/").split("/"):
        node = node.get(name) if type(node) is dict else None
    return node


def _presence(schema: dict[str, Any], *, required: bool) -> str:
    if required:
        return "required"
    return f"= {_shorten(dumps(schema['default']))}" if "default" in schema else ""


def _description(schema: dict[str, Any]) -> str:
    text = schema.get("description")
    return " ".join(text[:2000].split()) if type(text) is str else ""


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"


def _is_text(value: Any) -> bool:
    return type(value) is str
