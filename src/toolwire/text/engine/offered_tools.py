"""The offered tools, which determine the meaning of names, keys and untyped values."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ...ir.errors import ProtocolError
from ...ir.pointer import JSON, Object
from ...ir.tools import Tool
from ...stream.strict import parse

__all__ = ["ANY", "OfferedTools", "Types", "child_schema", "convert_text", "json_type", "schema_types"]

Types = frozenset[str]
ANY: Types = frozenset()
"""No schema covers it: text that looks like JSON is JSON."""

_TEXT_ONLY = frozenset({"string"})
_WORD_VALUES: dict[str, tuple[str, JSON]] = {
    "true": ("boolean", True),
    "false": ("boolean", False),
    "null": ("null", None),
    "none": ("null", None),
}
_DEPTH = 16
_INTEGER = re.compile(r"[+-]?[0-9]{1,300}").fullmatch
_MISSING: JSON = object()  # a sentinel, never returned to callers


class OfferedTools:
    """Look up names and keys of the offered tools; without tools, everything is possible."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._schemas = {tool.name: tool.input_schema for tool in tools}
        self._types: dict[tuple[str, str], Types] = {}

    def __bool__(self) -> bool:
        return bool(self._schemas)

    @property
    def names(self) -> list[str]:
        return list(self._schemas)

    def has_tool(self, name: str) -> bool:
        return not self._schemas or name in self._schemas

    def schema(self, name: str) -> Object:
        return self._schemas.get(name) or {}

    def keys(self, name: str) -> list[str] | None:
        """Return the names of a tool's parameters, or None if any name is allowed."""
        schema = self._schemas.get(name)
        if not isinstance(schema, dict) or not isinstance(schema.get("properties"), dict):
            return None
        if schema.get("additionalProperties") not in (None, False) or "patternProperties" in schema:
            return None
        return list(schema["properties"])

    def may_have(self, name: str, key: str) -> bool:
        """Return whether `key` can be a parameter of the tool `name`."""
        known = self.keys(name)
        return known is None or key in known

    def has_required(self, name: str, given: set[str]) -> bool:
        """Return whether all required parameters are given."""
        required = self.schema(name).get("required")
        return set(required if isinstance(required, list) else ()) <= given

    def resolve(self, name: str) -> str:
        """Return the offered tool of this name, with or without a namespace that the model put before it."""
        if not self._schemas or name in self._schemas:
            return name
        space, _, bare = name.rpartition(".")
        return bare if bare in self._schemas and space in ("functions", "function", "tools", bare) else name

    def types(self, name: str, key: str) -> Types:
        """Return the JSON types that a parameter accepts, or ANY if undeclared."""
        found = self._types.get((name, key))
        if found is None:
            schema = self._schemas.get(name)
            found = self._types[name, key] = schema_types(child_schema(schema, key, schema), schema)
        return found


def schema_types(schema: Any, root: Any) -> Types:
    """Return the JSON types that a schema allows."""
    return _collect_types(schema, root, 0)


def child_schema(schema: Any, key: str | int, root: Any) -> Any:
    """Return the schema of a property or an item, or None."""
    for _ in range(_DEPTH):
        if not (isinstance(schema, dict) and isinstance(schema.get("$ref"), str)):
            break
        schema = _resolve(schema["$ref"], root)
    if not isinstance(schema, dict):
        return None
    if isinstance(key, int):
        return schema.get("items")
    properties = schema.get("properties")
    return properties.get(key) if isinstance(properties, dict) else None


def _collect_types(schema: Any, root: Any, depth: int) -> Types:
    """Collect the types of a schema through `$ref`, `anyOf`, `oneOf`, `allOf`, `enum` and `const`.

    The depth is limited, because references may be cyclic.
    """
    if not isinstance(schema, dict) or depth > _DEPTH:
        return ANY
    if isinstance(schema.get("$ref"), str):
        return _collect_types(_resolve(schema["$ref"], root), root, depth + 1)
    kind = schema.get("type")
    if isinstance(kind, str):
        return frozenset({kind}) | ({"null"} if schema.get("nullable") is True else frozenset())
    if isinstance(kind, list):
        return frozenset(name for name in kind if isinstance(name, str))
    for word in ("anyOf", "oneOf"):
        if isinstance(schema.get(word), list):
            branches = [_collect_types(branch, root, depth + 1) for branch in schema[word]]
            return frozenset().union(*branches) if all(branches) else ANY
    if isinstance(schema.get("allOf"), list):
        return next((found for part in schema["allOf"] if (found := _collect_types(part, root, depth + 1))), ANY)
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    return frozenset(map(json_type, values)) if isinstance(values, list) else ANY


def _resolve(pointer: str, root: Any) -> Any:
    """Resolve a `$ref` inside the document `root`; return None if the target does not exist."""
    node = root
    for step in pointer.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, dict) or name not in node:
            return None
        node = node[name]
    return node


def json_type(value: JSON) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, dict) else "array"


def convert_text(text: str, types: Types) -> JSON:
    """Convert `text` to a value by the types that the schema allows, never by its appearance.

    >>> convert_text("007", frozenset({"string"})), convert_text("42", frozenset({"integer"})), convert_text("42", ANY), convert_text("Paris", ANY)
    ('007', 42, 42, 'Paris')

    A text that fits none of the types stays a text; the validator reports the problem.
    """
    if types == _TEXT_ONLY:
        return text
    bare = text.strip()
    word = _WORD_VALUES.get(bare.lower())
    if word is not None and word[0] in types and (bare != "none" or "string" not in types):
        return word[1]
    if "integer" in types and _INTEGER(bare):
        return int(bare)
    value = _parse_json(bare, types)
    if value is _MISSING:
        return text
    if isinstance(value, str):
        return value if types and "string" not in types else text
    return value if not types or _is_allowed(json_type(value), types) else text


def _parse_json(text: str, types: Types) -> JSON:
    """Parse a text as JSON; if a string is not allowed, also one whose quotes were escaped once too often."""
    try:
        return parse(text)
    except ProtocolError:
        if not types or "string" in types or "\\" not in text:
            return _MISSING
    try:
        return parse(str(parse(f'"{text}"')))
    except ProtocolError:
        return _MISSING


def _is_allowed(kind: str, types: Types) -> bool:
    return kind in types or (kind == "integer" and "number" in types)
