"""Convert schemas of OpenAPI documents to JSON Schema.

Keywords that only OpenAPI has are removed or translated (`nullable`, `example`, boolean bounds). Read-only properties
are not part of a request, write-only ones not of a response. References become `$defs` of the tool, so that
recursive schemas stay references.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Literal, NamedTuple, TypeAlias

from ..ir.errors import SchemaError
from ..ir.pointer import JSON, Object
from ..schema.validation.validator import validator
from .document import References

Direction: TypeAlias = Literal["request", "response"]

MAX_DEFS = 2_000
"""Maximum number of definitions of one tool."""
MAX_TOTAL_DEFS = 1_000_000
"""Maximum number of definitions of all tools together; the tools share their values."""
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
_SAME_OBJECT = frozenset({"allOf", "anyOf", "oneOf", "then", "else"})
"""Keywords whose schemas are for the same object; not those that negate, where less means more."""
_MAX_COMPOSED = 100  # schemas that are searched for hidden properties; references may form a cycle
_TEXTS = ("title", "description")


class DocumentLimit(SchemaError):
    """The whole document exceeds a limit, not only one operation."""


class _Converted(NamedTuple):
    """A converted schema, the pointers of the definitions that it refers to, and the reason if it is invalid."""

    source: JSON  # kept, so that its id is not reused
    schema: JSON
    pointers: tuple[str, ...]
    problem: str | None


class SchemaReader:
    """Converts the schemas of one document. Every schema is converted once per direction."""

    def __init__(self, document: Object, references: References) -> None:
        self._references = references
        self._is_3_0 = str(document.get("openapi", "")).startswith("3.0")
        self._converted: dict[tuple[int, Direction], _Converted] = {}
        self._names: dict[str, str] = {}  # by pointer
        self._taken_names: set[str] = set()
        self._definitions: dict[tuple[frozenset[str], Direction], Object] = {}  # by root pointers
        self._total_defs = 0

    def inline(self, schema: JSON, direction: Direction) -> JSON:
        """Convert a schema without its definitions; `with_defs` adds them to the schema around it."""
        return self._convert(schema, direction).schema

    def with_defs(self, root: Object, parts: list[JSON], direction: Direction) -> Object:
        """Return `root` with the definitions that its `parts`, unconverted schemas, refer to."""
        pointers = frozenset(pointer for part in parts for pointer in self._convert(part, direction).pointers)
        if not pointers:
            return root
        key = (pointers, direction)
        if key not in self._definitions:
            self._definitions[key] = self._collect_defs(pointers, direction)
        return {**root, "$defs": self._definitions[key]}

    def _collect_defs(self, roots: frozenset[str], direction: Direction) -> Object:
        """Convert the definitions that can be reached from the roots, and return them by name.

        Raise SchemaError if a definition is invalid, a reference cannot be resolved, or they are too many for one
        operation, and DocumentLimit if they are too many in all.
        """
        defs: Object = {}
        pending = list(roots)
        seen = set(roots)
        while pending:
            pointer = pending.pop()
            converted = self._convert(self._references.at(pointer), direction)
            defs[self._def_name(pointer)] = converted.schema
            if len(defs) > MAX_DEFS:
                raise SchemaError(f"the operation refers to more than {MAX_DEFS:,} schemas")
            self._total_defs += 1
            if self._total_defs > MAX_TOTAL_DEFS:
                hint = "select some with tags= or operations="
                raise DocumentLimit(f"the operations refer to more than {MAX_TOTAL_DEFS:,} schemas", hint=hint)
            fresh = [other for other in converted.pointers if other not in seen]
            seen.update(fresh)
            pending += fresh
        return dict(sorted(defs.items()))

    def _convert(self, schema: JSON, direction: Direction) -> _Converted:
        """Convert a schema, once per direction; SchemaError if it is for requests and not valid (`_find_problem`)."""
        key = (id(schema), direction)
        found = self._converted.get(key)
        if found is None:
            pointers: dict[str, None] = {}
            converted = self._convert_node(schema, direction, pointers.setdefault)
            problem = self._find_problem(converted, pointers) if direction == "request" else None
            found = self._converted[key] = _Converted(schema, converted, tuple(pointers), problem)
        if found.problem is not None:
            raise SchemaError(found.problem)
        return found

    def _find_problem(self, schema: JSON, pointers: Iterable[str]) -> str | None:
        """Return the reason why a schema is invalid, apart from its definitions, or None.

        Providers refuse all tools of a request if one of them has an invalid schema.
        """
        try:
            validator({"allOf": [schema], "$defs": {self._def_name(pointer): True for pointer in pointers}})
        except SchemaError as error:
            return str(error)
        return None

    def _convert_node(
        self, node: JSON, direction: Direction, note: Callable[[str], None], hidden: frozenset[str] = frozenset()
    ) -> JSON:
        """Convert a schema and its subschemas, and call `note` with the pointer of each reference.

        `hidden`: properties that an outer schema hides. In OpenAPI 3.0, only texts may be beside `$ref`. SchemaError
        for a reference that cannot be resolved.
        """
        if type(node) is not dict:
            return node if type(node) is bool else {}
        ref = node.get("$ref")
        if type(ref) is str:
            pointer = self._references.pointer(ref)
            self._references.at(pointer)  # an unresolvable reference is an error of this operation
            note(pointer)
            out: Object = {"$ref": f"#/$defs/{self._def_name(pointer)}"}
            kept = {key: value for key, value in node.items() if not self._is_3_0 or key in _TEXTS}
            out.update(dict(self._convert_keywords(kept, direction, note, hidden)))
        else:
            out = dict(self._convert_keywords(node, direction, note, hidden))
        return _add_null(_convert_bounds(out)) if node.get("nullable") is True else _convert_bounds(out)

    def _convert_keywords(
        self, node: Object, direction: Direction, note: Callable[[str], None], hidden: frozenset[str] = frozenset()
    ) -> Iterator[tuple[str, JSON]]:
        """Yield the keywords of a schema with converted subschemas, without OpenAPI's own keywords and `$ref`.

        Properties that the direction hides are removed, and so are `hidden` ones from `required`. `example` becomes
        `examples`. `note` receives the pointer of each reference.
        """
        own = self._hidden_properties(node, direction)
        hidden = hidden | (self._composed_hidden(node, direction) if "allOf" in node or "$ref" in node else own)
        for key, value in node.items():
            if key in _REMOVED or key == "$ref" or key.startswith("x-"):
                continue
            if key in _SUBSCHEMAS:
                inherited = hidden if key in _SAME_OBJECT else frozenset()
                yield key, self._convert_node(value, direction, note, inherited)
            elif key in _SUBSCHEMA_LISTS and type(value) is list:
                inherited = hidden if key in _SAME_OBJECT else frozenset()
                yield key, [self._convert_node(element, direction, note, inherited) for element in value]
            elif key in _SUBSCHEMA_MAPS and type(value) is dict:
                shown = ((name, element) for name, element in value.items() if name not in own)
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

    def _composed_hidden(self, node: Object, direction: Direction) -> frozenset[str]:
        """Return the properties that `allOf` and references of a schema hide: they cannot be required beside them.

        A property that another of these schemas shows is not hidden.
        """
        hidden: set[str] = set()
        shown: set[str] = set()
        pending: list[JSON] = [node]
        for _ in range(_MAX_COMPOSED):
            if not pending:
                break
            schema = pending.pop()
            if type(schema) is not dict:
                continue
            properties, parts = schema.get("properties"), schema.get("allOf")
            marked = self._hidden_properties(schema, direction)
            hidden |= marked
            shown.update(name for name in (properties if type(properties) is dict else ()) if name not in marked)
            pending += parts[:_MAX_COMPOSED] if type(parts) is list else []
            if type(schema.get("$ref")) is str:
                pending.append(self._references.at(self._references.pointer(schema["$ref"])))
        return frozenset(hidden - shown)

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
