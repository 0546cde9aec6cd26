"""Convert schemas of OpenAPI documents to JSON Schema.

Keywords that only OpenAPI has are removed or translated (`nullable`, `example`, boolean bounds). Read-only properties
are not part of a request, write-only ones not of a response. References become `$defs` of the tool, so that
recursive schemas stay references.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Literal, NamedTuple, TypeAlias

from ..ir.errors import SchemaError
from ..ir.pointer import JSON, Object
from .references import References

__all__ = ["Direction", "SchemaReader"]

Direction: TypeAlias = Literal["request", "response"]

MAX_DEFS = 2_000
"""Maximum number of definitions of one tool."""
MAX_TOOL_NODES = 200_000
"""Maximum number of nodes of the definitions of one tool."""
MAX_TOTAL_NODES = 50_000_000
"""Maximum number of nodes of the definitions of all tools together; the tools share their values."""
_SUBSCHEMAS = frozenset(
    "additionalProperties additionalItems items not if then else contains propertyNames unevaluatedItems "
    "unevaluatedProperties contentSchema".split()
)
_SUBSCHEMA_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SUBSCHEMA_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas"})
_REMOVED = frozenset(
    "discriminator xml externalDocs example nullable readOnly writeOnly $schema $id $anchor $comment $dynamicRef "
    "$dynamicAnchor $recursiveRef $recursiveAnchor $defs definitions".split()
)
_TEXTS = ("title", "description")


class _Converted(NamedTuple):
    """A converted schema, and the pointers of the definitions that it refers to."""

    source: JSON  # kept, so that its id is not reused
    schema: JSON
    pointers: tuple[str, ...]
    nodes: int


class SchemaReader:
    """Converts the schemas of one document. Every schema is converted once per direction."""

    def __init__(self, document: Object, references: References) -> None:
        self._references = references
        self._is_3_0 = str(document.get("openapi", "")).startswith("3.0")
        self._converted: dict[tuple[int, Direction], _Converted] = {}
        self._names: dict[str, str] = {}  # by pointer
        self._taken_names: set[str] = set()
        self._total_nodes = 0

    def inline(self, schema: JSON, direction: Direction) -> JSON:
        """Convert a schema without its definitions; `with_defs` adds them to the schema around it."""
        return self._convert(schema, direction).schema

    def with_defs(self, root: Object, parts: list[JSON], direction: Direction) -> Object:
        """Return `root` with the definitions that its `parts`, unconverted schemas, refer to."""
        defs: Object = {}
        pending = [pointer for part in parts for pointer in self._convert(part, direction).pointers]
        seen = set(pending)
        nodes = 0
        while pending:
            pointer = pending.pop()
            converted = self._convert(self._references.at(pointer), direction)
            defs[self._def_name(pointer)] = converted.schema
            nodes += converted.nodes
            if len(defs) > MAX_DEFS or nodes > MAX_TOOL_NODES:
                raise SchemaError(f"the operation refers to more than {MAX_DEFS:,} schemas or {MAX_TOOL_NODES:,} nodes")
            fresh = [other for other in converted.pointers if other not in seen]
            seen.update(fresh)
            pending += fresh
        self._total_nodes += nodes
        if self._total_nodes > MAX_TOTAL_NODES:
            raise DefinitionLimit(
                f"the schemas of the operations have more than {MAX_TOTAL_NODES:,} nodes",
                hint="select some with tags= or operations=",
            )
        return {**root, "$defs": dict(sorted(defs.items()))} if defs else root

    def _convert(self, schema: JSON, direction: Direction) -> _Converted:
        """Convert a schema once per direction."""
        key = (id(schema), direction)
        found = self._converted.get(key)
        if found is None:
            pointers: dict[str, None] = {}
            converted = self._convert_node(schema, direction, pointers.setdefault)
            found = self._converted[key] = _Converted(schema, converted, tuple(pointers), _count_nodes(converted))
        return found

    def _convert_node(self, node: JSON, direction: Direction, note: Callable[[str], None]) -> JSON:
        if type(node) is not dict:
            return node if type(node) is bool else {}
        ref = node.get("$ref")
        if type(ref) is str:
            pointer = self._references.pointer(ref)
            self._references.at(pointer)  # an unresolvable reference is an error of this operation
            note(pointer)
            out: Object = {"$ref": f"#/$defs/{self._def_name(pointer)}"}
            kept = {key: value for key, value in node.items() if not self._is_3_0 or key in _TEXTS}
            out.update(dict(self._convert_keywords(kept, direction, note)))
        else:
            out = dict(self._convert_keywords(node, direction, note))
        return _add_null(_convert_bounds(out)) if node.get("nullable") is True else _convert_bounds(out)

    def _convert_keywords(
        self, node: Object, direction: Direction, note: Callable[[str], None]
    ) -> Iterator[tuple[str, JSON]]:
        """Yield the keywords of a schema with converted subschemas."""
        hidden = self._hidden_properties(node, direction)
        for key, value in node.items():
            if key in _REMOVED or key == "$ref" or key.startswith("x-"):
                continue
            if key in _SUBSCHEMAS:
                yield key, self._convert_node(value, direction, note)
            elif key in _SUBSCHEMA_LISTS and type(value) is list:
                yield key, [self._convert_node(element, direction, note) for element in value]
            elif key in _SUBSCHEMA_MAPS and type(value) is dict:
                shown = ((name, element) for name, element in value.items() if name not in hidden)
                yield key, {name: self._convert_node(element, direction, note) for name, element in shown}
            elif key == "required" and type(value) is list:
                if required := [name for name in value if type(name) is str and name not in hidden]:
                    yield key, required
            else:
                yield key, value
        if "example" in node and "examples" not in node:
            yield "examples", [node["example"]]

    def _hidden_properties(self, node: Object, direction: Direction) -> frozenset[str]:
        """Return the properties that do not belong to this direction."""
        properties = node.get("properties")
        if type(properties) is not dict:
            return frozenset()
        mark = "readOnly" if direction == "request" else "writeOnly"
        return frozenset(
            name for name, element in properties.items() if type(element) is dict and self._is_marked(element, mark)
        )

    def _is_marked(self, schema: Object, mark: str) -> bool:
        return schema.get(mark) is True or ("$ref" in schema and self._references.follow(schema).get(mark) is True)

    def _def_name(self, pointer: str) -> str:
        """Return the name of a definition: the last segment of its pointer, with a hash if another one has it."""
        name = self._names.get(pointer)
        if name is None:
            name = re.sub(r"[^a-zA-Z0-9_.-]", "_", pointer.rpartition("/")[2])[:64] or "root"
            if name in self._taken_names or not pointer.startswith("/components/schemas/"):
                name = f"{name}_{sha256(pointer.encode()).hexdigest()[:8]}"
            self._names[pointer] = name
            self._taken_names.add(name)
        return name


class DefinitionLimit(SchemaError):
    """The whole document exceeds a limit, not only one operation."""


def _count_nodes(value: JSON) -> int:
    """Count the values in a schema, which is a tree."""
    count, pending = 1, [value]
    while pending:
        container = pending.pop()
        if type(container) in (dict, list):
            count += len(container)
            pending += container.values() if type(container) is dict else container
    return count


def _convert_bounds(out: Object) -> Object:
    """Convert the boolean `exclusiveMinimum` and `exclusiveMaximum` of 3.0."""
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if type(out.get(exclusive)) is bool and out.pop(exclusive) and bound in out:
            out[exclusive] = out.pop(bound)
    return out


def _add_null(out: Object) -> Object:
    """Accept null, too: `nullable: true` of 3.0."""
    if type(out.get("type")) is str and not {"enum", "const", "$ref", "allOf", "anyOf", "oneOf"} & out.keys():
        return {**out, "type": [out["type"], "null"]}
    texts = {key: out.pop(key) for key in _TEXTS if key in out}
    return {**texts, "anyOf": [out, {"type": "null"}]}
