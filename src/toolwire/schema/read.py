"""From JSON Schema to nodes: every draft, OpenAPI's `nullable`, and the ways in which tools are declared in the wild.

    read({"type": ["string", "null"]})  →  Union(String, Null)

Where JSON Schema would accept more than anybody means, the reading is the one that generators and models follow: an
object with `properties` is an object, and keys that are not mentioned are not meant, unless the source opens it
(`additionalProperties`, `patternProperties`, or an object without any properties).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from ..ir.pointer import JSON, Object, below, join, resolve
from .intersect import Intersection
from .nodes import Any, Array, Boolean, Enum, Never, Node, Null, Number, Record, Ref, String, Tuple, Union, hashable
from .step_budget import StepBudget, size_of
from .unchecked import Unchecked, unchecked_patterns

__all__ = ["DEPTH", "Finding", "Source", "read"]

DEPTH = 64
"""Deeper than this nothing is looked at; a value there may be anything."""

_STEPS, _STEPS_PER_VALUE = 500, 4
"""What intersections may cost. The real tools of public servers need less than one step per JSON value."""
_MOST_NESTING = 16
"""Nodes being read at once beyond which a reference is read later, from an empty stack."""
_NOTES = ("title", "description", "default", "examples", "example", "deprecated")
_RESIDUE = (
    "not",
    "if",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "contains",
    "minContains",
    "maxContains",
    "uniqueItems",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "contentEncoding",
    "contentMediaType",
)
_REMARKS = frozenset({*_NOTES, *_RESIDUE})
_COMBINED = frozenset({"$ref", "$recursiveRef", "$dynamicRef", "allOf", "anyOf", "oneOf"})
_OF_TYPE = {
    "object": frozenset(
        "properties required additionalProperties patternProperties propertyNames minProperties maxProperties "
        "dependentRequired dependentSchemas unevaluatedProperties".split()
    ),
    "array": frozenset(
        "items prefixItems additionalItems minItems maxItems uniqueItems contains minContains maxContains "
        "unevaluatedItems".split()
    ),
    "string": frozenset({"minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
}
_OF_TYPE["integer"] = _OF_TYPE["number"]
_READ = _REMARKS.union(_COMBINED, *_OF_TYPE.values()) | {"type", "enum", "const", "nullable", "then", "else"}
_READ |= {"$defs", "definitions"}
_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")


_PERCENT = re.compile(r"%([0-7][0-9a-fA-F])")


class Finding(NamedTuple):
    """Something that is wrong with the schema itself."""

    at: str
    what: str


class Source(NamedTuple):
    """A schema as nodes. `defs` are what its references lead to, `unread` the keywords that say nothing here, both by
    JSON pointer. `unchecked` are patterns that the local validator does not check."""

    root: Node
    defs: dict[str, Node]
    findings: tuple[Finding, ...]
    unread: tuple[str, ...] = ()
    size: int = 0
    """The size of the document (`size_of`), from which allowances for further work are derived."""
    unchecked: tuple[Unchecked, ...] = ()


def read(schema: JSON) -> Source:
    reader = _Reader(schema)
    root = reader.node(schema, "", 0)
    reader.read_postponed()
    findings, unread = tuple(dict.fromkeys(reader.findings)), tuple(reader.unread)
    return Source(root, reader.defs, findings, unread, reader.size, tuple(unchecked_patterns(schema)))


class _Reader:
    def __init__(self, document: JSON) -> None:
        self.document = document
        self.size = size_of(document)
        self.defs: dict[str, Node] = {}
        self.findings: list[Finding] = []
        self.unread: list[str] = []
        self._reading: set[str] = set()
        self._nesting = 0
        self._postponed: list[str] = []
        self._anchors: dict[str, str] | None = None
        self._intersection = Intersection(self._target, StepBudget(_STEPS + self.size * _STEPS_PER_VALUE))

    def node(self, schema: JSON, at: str, depth: int) -> Node:
        self._nesting += 1
        try:
            return self._node(schema, at, depth)
        finally:
            self._nesting -= 1

    def _node(self, schema: JSON, at: str, depth: int) -> Node:
        if schema is True:
            return Any(at=at)
        if schema is False:
            return Never(at=at)
        if type(schema) is not dict:
            self.findings.append(Finding(at, f"a schema is an object or a boolean, not {type(schema).__name__}"))
            return Any(at=at)
        if depth > DEPTH:
            self.findings.append(Finding(at, f"nested deeper than {DEPTH}"))
            return Any(at=at)
        if not schema.keys() <= _READ:
            self.unread += [at + join(keyword) for keyword in schema if keyword not in _READ]
        node = self._own(schema, at, depth)
        if not _COMBINED.isdisjoint(schema):
            for part in self._combined(schema, at, depth):
                node = self._intersect(node, part, at)
        if schema.get("nullable") is True and not isinstance(node, (Any, Null)):
            node = Union((node, Null(at=at)), at=at) if not isinstance(node, Enum) else _with_null(node)
        if _REMARKS.isdisjoint(schema):
            return node
        notes = {key: schema[key] for key in _NOTES if key in schema}
        residue = {key: schema[key] for key in _RESIDUE if _says_something(key, schema.get(key))}
        if "if" in residue:
            residue["if"] = {key: schema[key] for key in ("if", "then", "else") if key in schema}
        if not notes and not residue:
            return node
        return replace(node, notes={**node.notes, **notes}, residue={**node.residue, **residue})

    def _combined(self, schema: Object, at: str, depth: int) -> Iterable[Node]:
        """What references and combinators add."""
        for keyword in ("$ref", "$recursiveRef", "$dynamicRef"):
            if type(schema.get(keyword)) is str:
                yield self._ref(schema[keyword], f"{at}/{keyword}", depth)
        for number, part in enumerate(_schemas(schema.get("allOf"))):
            yield self.node(part, f"{at}/allOf/{number}", depth + 1)
        for keyword in ("anyOf", "oneOf"):
            branches = [
                self.node(part, f"{at}/{keyword}/{number}", depth + 1)
                for number, part in enumerate(_schemas(schema.get(keyword)))
            ]
            if branches:
                yield _union(branches, keyword == "oneOf", at)

    def _own(self, schema: Object, at: str, depth: int) -> Node:
        """What type, enum and their keywords say."""
        types = self._types(schema, at)
        if "const" in schema or type(schema.get("enum")) is list:
            return self._enum(schema, types, at)
        if types is None:
            return Any(at=at)
        return _union([self._typed(name, schema, at, depth) for name in types], False, at)

    def _types(self, schema: Object, at: str) -> list[str] | None:
        """None: any."""
        said = schema.get("type")
        names = said if type(said) is list else [said]
        spelled = [name.lower() if type(name) is str and name.isupper() else name for name in names]  # Gemini's
        known = [name for name in spelled if name in _TYPES]
        if known:
            return ["number"] if set(known) == {"number", "integer"} else list(dict.fromkeys(known))
        if said is not None:
            self.findings.append(Finding(f"{at}/type", f"unknown type {said!r}"))
        if "const" in schema or "enum" in schema:
            return None
        meant = [name for name in ("object", "array", "string", "number") if not _OF_TYPE[name].isdisjoint(schema)]
        return meant[:1] or None

    def _enum(self, schema: Object, types: list[str] | None, at: str) -> Node:
        values = [schema["const"]] if "const" in schema else schema["enum"]
        if "const" in schema and type(schema.get("enum")) is list:
            listed = frozenset(map(hashable, schema["enum"]))
            values = [value for value in values if hashable(value) in listed]
        unique: dict[Hashable, JSON] = {}
        for value in values:
            if types is None or any(_is_a(value, name) for name in types):
                unique.setdefault(hashable(value), value)
        if not unique:
            self.findings.append(Finding(f"{at}/enum", "no value of the enum has the type: nothing can ever match"))
            return Never(at=at)
        return Enum(tuple(unique.values()), at=at)

    def _typed(self, name: str, schema: Object, at: str, depth: int) -> Node:
        if name == "object":
            return self._object(schema, at, depth)
        if name == "array":
            return self._array(schema, at, depth)
        if name == "string":
            return String(
                min_length=_count(schema.get("minLength")) or 0,
                max_length=_count(schema.get("maxLength")),
                pattern=schema.get("pattern") if type(schema.get("pattern")) is str else None,
                format=schema.get("format") if type(schema.get("format")) is str else None,
                at=at,
            )
        if name in ("number", "integer"):
            return _number(name == "integer", schema, at)
        return Boolean(at=at) if name == "boolean" else Null(at=at)

    def _object(self, schema: Object, at: str, depth: int) -> Node:
        given = schema.get("properties")
        properties = {
            key: self.node(value, below(at, "properties", key), depth + 1)
            for key, value in (given.items() if type(given) is dict else ())
        }
        names = schema.get("required")
        required = frozenset(name for name in names if type(name) is str) if type(names) is list else frozenset()
        extra = schema.get("additionalProperties")
        rest: Node | None = None
        if extra is True or type(extra) is dict:
            rest = self.node(extra, f"{at}/additionalProperties", depth + 1)
        patterns = schema.get("patternProperties")
        if type(patterns) is dict and patterns:
            rest = self._patterns(patterns, rest, at, depth)
        if extra is None and not properties and not required and not patterns and at:
            rest = Any(at=at)
        for name in sorted(required - properties.keys()):
            if extra is False and not patterns:
                self.findings.append(Finding(f"{at}/required", f"{name!r} is required and forbidden"))
                return Never(at=at)
            properties[name] = Any(at=at) if rest is None else rest
        impossible = [name for name in required if isinstance(properties[name], Never)]
        if impossible:
            self.findings.append(Finding(f"{at}/required", f"{impossible[0]!r} is required and can never match"))
            return Never(at=at)
        residue = {"patternProperties": patterns} if patterns else {}
        return Record(properties, required, rest, extra is False, residue=residue, at=at)

    def _patterns(self, patterns: Object, rest: Node | None, at: str, depth: int) -> Node:
        branches = [self.node(value, below(at, "patternProperties", key), depth + 1) for key, value in patterns.items()]
        return _union([*branches, *([rest] if rest is not None else [])], False, at)

    def _array(self, schema: Object, at: str, depth: int) -> Node:
        low, high = _count(schema.get("minItems")) or 0, _count(schema.get("maxItems"))
        items, first = schema.get("items"), schema.get("prefixItems")
        behind = items
        if type(items) is list:
            first, behind = items, schema.get("additionalItems")
        if type(first) is list and first:
            keyword = "items" if type(items) is list else "prefixItems"
            nodes = tuple(self.node(part, f"{at}/{keyword}/{index}", depth + 1) for index, part in enumerate(first))
            rest: Node | None = None if behind is False or (high is not None and high <= len(nodes)) else Any(at=at)
            if type(behind) is dict:
                rest = self.node(behind, f"{at}/items", depth + 1)
            return Tuple(nodes, rest, low, high, at=at)
        if items is False:
            return Array(None, low, 0, at=at) if not low else Never(at=at)
        return Array(None if items is None else self.node(items, f"{at}/items", depth + 1), low, high, at=at)

    def _ref(self, uri: str, at: str, depth: int) -> Node:
        target = self._pointer(uri)
        if target is None:
            self.findings.append(Finding(at, f"{uri!r} leads nowhere in this document"))
            return Any(at=at, residue={"$ref": uri})
        if target not in self.defs and target not in self._reading:
            self._reading.add(target)
            if self._nesting > _MOST_NESTING:
                self._postponed.append(target)
            else:
                self._definition(target)
        return Ref(target, at=at)

    def _definition(self, target: str) -> None:
        self.defs[target] = self.node(resolve(self.document, target), target, 1)
        self._reading.discard(target)

    def read_postponed(self) -> None:
        """Read the definitions at the end of long chains of references, which would exceed the recursion limit."""
        while self._postponed:
            self._definition(self._postponed.pop())

    def _pointer(self, uri: str) -> str | None:
        if uri in ("#", ""):
            return ""
        if uri.startswith("#/"):
            pointer = _PERCENT.sub(lambda found: chr(int(found[1], 16)), uri[1:])
            try:
                resolve(self.document, pointer)
            except (KeyError, IndexError, TypeError, ValueError):
                return None
            return pointer
        if self._anchors is None:
            self._anchors = dict(_anchors(self.document, "", 0))
        return self._anchors.get(uri)

    def _intersect(self, node: Node, other: Node, at: str) -> Node:
        exhausted = self._intersection.budget.exhausted
        result = self._intersection.of(node, other)
        unknown = isinstance(result, Any) and not isinstance(node, Any) and not isinstance(other, Any)
        if self._intersection.budget.exhausted and (unknown or not exhausted):
            self.findings.append(Finding(at, "too many combinations to work out: described as any value"))
        if isinstance(result, Never) and not isinstance(node, Never) and not isinstance(other, Never):
            self.findings.append(Finding(at, "what it combines excludes each other: nothing can ever match"))
        return result

    def _target(self, target: str) -> Node | None:
        """None while it is being read: a definition that contains itself by `allOf`."""
        return None if target in self._reading else self.defs.get(target)


def _anchors(schema: JSON, at: str, depth: int) -> Iterable[tuple[str, str]]:
    if depth > DEPTH:
        return
    if type(schema) is dict:
        for keyword, mark in (("$anchor", "#"), ("$dynamicAnchor", "#"), ("$id", ""), ("id", "")):
            if type(schema.get(keyword)) is str:
                yield f"{mark}{schema[keyword]}", at
    elif type(schema) is not list:
        return
    for key, value in schema.items() if type(schema) is dict else enumerate(schema):
        if (inner := below(at, key)) != at:
            yield from _anchors(value, inner, depth + 1)


def _schemas(value: JSON) -> list[JSON]:
    return value if type(value) is list else []


def _union(branches: list[Node], one_of: bool, at: str) -> Node:
    """Flat, without what can never match."""
    flat: list[Node] = []
    for branch in branches:
        if isinstance(branch, Union) and not branch.notes and not branch.residue and not (branch.one_of or one_of):
            flat.extend(branch.branches)
        elif not isinstance(branch, Never):
            flat.append(branch)
    if not flat:
        return Never(at=at)
    return flat[0] if len(flat) == 1 else Union(tuple(flat), one_of, at=at)


def _with_null(node: Enum) -> Enum:
    return node if None in node.values else replace(node, values=(*node.values, None))


def _says_something(keyword: str, value: JSON) -> bool:
    if value is None or value == {} or (keyword.startswith("min") and value == 0):
        return False
    return value is not False if keyword == "uniqueItems" else True


def _count(value: JSON) -> int | None:
    return int(value) if type(value) in (int, float) and value >= 0 else None


def _number(integer: bool, schema: Object, at: str) -> Number:
    low, high = _bound(schema.get("minimum")), _bound(schema.get("maximum"))
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if above is True:  # draft 4
        low, above = None, low
    if below is True:
        high, below = None, high
    return Number(integer, low, high, _bound(above), _bound(below), _bound(schema.get("multipleOf")), at=at)


def _bound(value: JSON) -> float | None:
    return value if type(value) in (int, float) else None


_IS: dict[str, Callable[[JSON], bool]] = {
    "object": lambda value: type(value) is dict,
    "array": lambda value: type(value) is list,
    "string": lambda value: type(value) is str,
    "number": lambda value: type(value) in (int, float),
    "integer": lambda value: type(value) is int or (type(value) is float and value.is_integer()),
    "boolean": lambda value: type(value) is bool,
    "null": lambda value: value is None,
}


def _is_a(value: JSON, name: str) -> bool:
    return _IS[name](value)
