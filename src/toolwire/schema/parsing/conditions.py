"""Properties that only conditions mention.

Conditions are `if`, `then`, `else`, `dependentSchemas`, `dependentRequired` and `dependencies`.
An object is described with the keys that its schema mentions. This includes the keys of its conditions: without them,
an instance that meets the condition could not be written. They become optional properties; whether the condition holds
is left to the validator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from ...ir.pointer import JSON, Object, child_pointer
from ...ir.text import dumps
from ..bounds import StepBudget
from ..keywords import CONDITIONS
from .nodes import AnyNode, NeverNode, Node, ObjectNode, UnionNode, any_of

_OPENING = ("patternProperties", "additionalProperties", "unevaluatedProperties")
_MAX_VARIANTS = 8
"""Schemas of one conditional property; with more, its values may be anything."""

Follow = Callable[[str, str], tuple[JSON, str] | None]
"""Resolves a reference at a pointer to the target schema and its pointer."""


def has_conditions(schema: Object) -> bool:
    """Return True if the schema, or a part of its `allOf`, has a condition."""
    if not CONDITIONS.isdisjoint(schema):
        return True
    parts = schema.get("allOf")
    return type(parts) is list and any(type(part) is dict and has_conditions(part) for part in parts)


class _Visit(NamedTuple):
    """A schema to visit in the search for mentioned keys."""

    schema: JSON
    at: str
    conditional: bool  # reached through a condition; only then do its properties count
    named_only: bool = False
    """Only names count, values may be anything: an `if` describes the compared values, not the allowed ones."""


class _MentionedKeys(NamedTuple):
    """The keys that the conditions of one object mention."""

    properties: dict[str, dict[str, JSON]]
    """The schemas of each property, by JSON pointer; none for a property of which only the name is known."""
    opens: bool
    """A condition allows keys that it does not name."""


class Conditions:
    """The conditional properties of one document. Each schema is read once, however many conditions refer to it."""

    __slots__ = ("_budget", "_follow", "_nodes", "_read", "_resolve", "_texts")

    def __init__(
        self,
        read: Callable[[JSON, str, int], Node],
        follow: Follow,
        resolve: Callable[[Node], Node],
        budget: StepBudget,
    ) -> None:
        """Take callbacks of the parser: `read` parses a schema, `resolve` returns the target of a reference node."""
        self._read = read
        self._follow = follow
        self._resolve = resolve
        self._budget = budget
        self._nodes: dict[str, Node] = {}
        self._texts: dict[str, str] = {}

    def extend(self, node: ObjectNode | UnionNode, schema: Object, at: str, depth: int) -> Node | None:
        """Add the properties that the conditions of `schema` mention to `node`; None if the budget is exhausted."""
        mentioned = self._find_mentioned(schema, at)
        branches = node.branches if isinstance(node, UnionNode) else (node,)
        known = [item.properties.keys() for item in branches if isinstance(item, ObjectNode)]
        missing = [name for name in mentioned.properties if not all(name in names for names in known)]
        if not self._budget.spend(len(branches) * (1 + len(missing))):
            return None
        extra = {name: self._merge_variants(mentioned.properties[name], at, depth) for name in missing}
        extended = tuple(_extend_object(branch, extra, mentioned.opens) for branch in branches)
        if self._budget.exhausted:
            return None
        return replace(node, branches=extended) if isinstance(node, UnionNode) else extended[0]

    def _find_mentioned(self, schema: Object, at: str) -> _MentionedKeys:
        """Collect the keys that the conditions below `schema` mention, with their schemas by pointer.

        Every schema is visited once, as long as the budget lasts.
        """
        found: dict[str, dict[str, JSON]] = {}
        opens = False
        pending, visited = [_Visit(schema, at, conditional=False)], set[str]()
        while pending:
            visit = pending.pop()
            if type(visit.schema) is not dict or visit.at in visited:
                continue
            visited.add(visit.at)
            if not self._budget.spend(1 + len(visit.schema)):
                break
            for name in _property_names(visit):
                found.setdefault(name, {})
            if visit.conditional:
                opens = opens or any(visit.schema.get(keyword) for keyword in _OPENING)
                for name, inner in _object_items(visit.schema.get("properties")):
                    known = found.setdefault(name, {}) if inner is not False else {}
                    if not visit.named_only and self._budget.spend():
                        known[child_pointer(visit.at, "properties", name)] = inner
            pending += self._subschemas(visit)
        return _MentionedKeys(found, opens)

    def _subschemas(self, visit: _Visit) -> Iterator[_Visit]:
        """Yield the schemas for the same object: conditions, combinators and, inside a condition, references."""
        schema, at = visit.schema, visit.at
        for keyword in ("if", "then", "else"):
            if "if" in schema and keyword in schema:
                yield _Visit(schema[keyword], child_pointer(at, keyword), True, visit.named_only or keyword == "if")
        for keyword in ("dependentSchemas", "dependencies"):
            for name, inner in _object_items(schema.get(keyword)):
                yield _Visit(inner, child_pointer(at, keyword, name), True, visit.named_only)
        for keyword in ("allOf", "anyOf", "oneOf") if visit.conditional else ("allOf",):
            for index, inner in enumerate(schema[keyword] if type(schema.get(keyword)) is list else ()):
                yield visit._replace(schema=inner, at=child_pointer(at, keyword, index))
        if visit.conditional and type(schema.get("$ref")) is str:
            target = self._follow(schema["$ref"], at)
            if target is not None:
                yield visit._replace(schema=target[0], at=target[1])

    def _merge_variants(self, variants: dict[str, JSON], at: str, depth: int) -> Node:
        """Join the different schemas of a conditional property; any value if there are none or too many."""
        different = {self._schema_text(pointer, schema): pointer for pointer, schema in variants.items()}
        if not 0 < len(different) <= _MAX_VARIANTS:
            return AnyNode(at=at)
        for pointer in different.values():
            if pointer not in self._nodes:
                self._nodes[pointer] = AnyNode(at=pointer)  # while it is being read
                self._nodes[pointer] = self._read(variants[pointer], pointer, depth + 1)
        return self._union_variants([self._resolve(self._nodes[pointer]) for pointer in different.values()], at)

    def _schema_text(self, pointer: str, schema: JSON) -> str:
        if pointer not in self._texts:
            self._texts[pointer] = dumps(schema)
        return self._texts[pointer]

    def _union_variants(self, variants: list[Node], at: str) -> Node:
        """Return the union of the variants. Objects become one object, because several conditions may hold at once.

        It requires what all of them require, and joins their properties; any value if the budget is exhausted.
        """
        records = [item for item in variants if isinstance(item, ObjectNode)]
        if len(records) < 2:
            return any_of(variants, one_of=False, at=at)
        properties: dict[str, list[Node]] = {}
        for record in records:
            if not self._budget.spend(1 + len(record.properties)):
                return AnyNode(at=at)
            for name, node in record.properties.items():
                properties.setdefault(name, []).append(node)
        rests = [others for record in records if (others := record.others) is not None]
        merged = ObjectNode(
            {name: self._union_variants(nodes, at) for name, nodes in properties.items()},
            frozenset.intersection(*(record.required for record in records)),
            self._union_variants(rests, at) if rests else None,
            at=at,
        )
        return any_of([merged, *(item for item in variants if not isinstance(item, ObjectNode))], one_of=False, at=at)


def _extend_object(node: Node, extra: dict[str, Node], opens: bool) -> Node:
    """Add optional properties, unless the source already allows or forbids undeclared keys."""
    if not isinstance(node, ObjectNode) or node.closed or node.others is not None:
        return node
    added = {
        name: item for name, item in extra.items() if name not in node.properties and not isinstance(item, NeverNode)
    }
    return replace(node, properties={**node.properties, **added}, rest=AnyNode(at=node.at) if opens else None)


def _property_names(visit: _Visit) -> Iterator[str]:
    """Yield the property names that a schema mentions without a schema for them: required or dependent properties."""
    schema = visit.schema
    if visit.conditional and type(schema.get("required")) is list:
        yield from (name for name in schema["required"] if type(name) is str)
    for keyword in ("dependentRequired", "dependencies", "dependentSchemas"):
        for name, needed in _object_items(schema.get(keyword)):
            yield name
            if type(needed) is list:
                yield from (item for item in needed if type(item) is str)


def _object_items(value: JSON) -> Iterator[tuple[str, JSON]]:
    return iter(value.items()) if type(value) is dict else iter(())
