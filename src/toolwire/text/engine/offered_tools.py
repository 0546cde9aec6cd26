"""The offered tools, which determine the meaning of names, keys and untyped values."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ...ir.errors import ProtocolError
from ...ir.pointer import JSON, Object
from ...ir.tools import Tool
from ...stream.strict import parse

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
_TYPE_ALIASES = {
    "int": "integer",
    "float": "number",
    "double": "number",
    "bool": "boolean",
    "str": "string",
    "dict": "object",
    "list": "array",
    "tuple": "array",
}
"""Types of programming languages, which are common in hand-written schemas."""

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
    """Return the JSON types that a schema allows, through `$ref`, `anyOf`, `oneOf`, `allOf`, `enum` and `const`."""
    kinds: set[str] = set()
    return frozenset(kinds) if _add_types(schema, root, kinds, set()) else ANY


def child_schema(schema: Any, key: str | int, root: Any) -> Any:
    """Return the schema of a property or an item, or None. Several alternatives give an `anyOf`."""
    found: list[Any] = []
    _add_children(schema, key, root, found, set())
    return {"anyOf": found} if len(found) > 1 else found[0] if found else None


def _add_children(schema: Any, key: str | int, root: Any, found: list[Any], seen: set[int]) -> None:
    """Add to `found` the schemas of a property, or of an item for an int, in all branches.

    Each node is visited once: references may be cyclic.
    """
    if not isinstance(schema, dict) or id(schema) in seen:
        return
    seen.add(id(schema))
    if isinstance(schema.get("$ref"), str):
        _add_children(_resolve(schema["$ref"], root), key, root, found, seen)
    if isinstance(key, int):
        own = schema.get("items")
    else:
        properties = schema.get("properties")
        own = properties.get(key) if isinstance(properties, dict) else None
        own = schema.get("additionalProperties") if own is None else own
    if isinstance(own, dict):
        found.append(own)
    for word in ("anyOf", "oneOf", "allOf"):
        for branch in schema[word] if isinstance(schema.get(word), list) else ():
            _add_children(branch, key, root, found, seen)


def _add_types(schema: Any, root: Any, kinds: set[str], seen: set[int]) -> bool:
    """Add the types of a schema to `kinds`; return False if it allows any type. Each node is visited once."""
    if not isinstance(schema, dict):
        return False
    if id(schema) in seen:
        return True
    seen.add(id(schema))
    if schema.get("nullable") is True:
        kinds.add("null")
    if isinstance(schema.get("$ref"), str):
        return _add_types(_resolve(schema["$ref"], root), root, kinds, seen)
    kind = schema.get("type")
    if isinstance(kind, (str, list)):
        named = [kind] if isinstance(kind, str) else kind
        kinds.update(_TYPE_ALIASES.get(name, name) for name in named if isinstance(name, str))
        return True
    for word in ("anyOf", "oneOf"):
        if isinstance(schema.get(word), list):
            return all(_add_types(branch, root, kinds, seen) for branch in schema[word])
    if isinstance(schema.get("allOf"), list):
        return any(_add_types(part, root, kinds, seen) for part in schema["allOf"])
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    kinds.update(map(json_type, values if isinstance(values, list) else ()))
    return isinstance(values, list)


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
    """Return the name of a value's JSON type; whole numbers are integers only if they are written so."""
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

    Where a string is allowed as well, only a JSON number is a number: `007` and `+33` may be codes.

    A text that fits none of the types stays a text; the validator reports the problem.
    """
    if types == _TEXT_ONLY:
        return text
    bare = text.strip()
    word = _WORD_VALUES.get(bare.lower())
    if word is not None and word[0] in types and (bare != "none" or "string" not in types):
        return word[1]
    if "integer" in types and "string" not in types and _INTEGER(bare):
        return int(bare)
    value = _parse_json(bare, types)
    if value is _MISSING:
        return text
    if isinstance(value, str):
        return value if types and "string" not in types else text
    return value if not types or _is_allowed(json_type(value), types) else text


def _parse_json(text: str, types: Types) -> JSON:
    """Parse a text as JSON, or return _MISSING.

    If a string is not allowed, also text with quotes escaped once too often.
    """
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
