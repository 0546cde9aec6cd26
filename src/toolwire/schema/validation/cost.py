"""Count the schema applications that validating a value takes if every alternative is tried.

Definitions with alternatives, used by alternatives of other definitions, multiply: with forty small ones, a check takes
longer than a lifetime. The count itself takes a time that does not multiply.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ...ir.pointer import JSON, Object, resolve

MAX_VISITS = 20_000  # a schema with more paths is measured with each value instead
_LEAVE: Final = object()
_PERCENT = re.compile(r"%([0-7][0-9a-fA-F])")
_REFS = ("$ref", "$dynamicRef", "$recursiveRef")
_IN_PLACE_LISTS = ("anyOf", "oneOf", "allOf")
_IN_PLACE = ("not", "if", "then", "else")
_MAPS = ("properties", "patternProperties")
_OBJECT_SCHEMAS = ("additionalProperties", "unevaluatedProperties")
_ARRAY_SCHEMAS = ("items", "contains", "additionalItems", "unevaluatedItems")


class ValidationCost:
    """The effort of applying one schema to values."""

    __slots__ = ("_anchors", "_document", "_targets")
    max_pairs = 1_000_000
    """Pairs of a schema and a value that are counted."""

    def __init__(self, document: JSON) -> None:
        self._document = document
        self._anchors: dict[str, JSON] | None = None
        self._targets: dict[str, JSON] = {}

    def has_many_paths(self) -> bool:
        """Return True if following every reference, each once per path, visits more than `MAX_VISITS` schemas."""
        return sum(1 for _ in self.visits()) > MAX_VISITS

    def visits(self) -> Iterator[Object]:
        """Yield the schemas visited by following every reference, each once per path; about the first 20,000."""
        unvisited: list[tuple[JSON, str | None]] = [(self._document, None)]
        path: set[str] = set()
        count = 0
        while unvisited and count <= MAX_VISITS:
            schema, ref = unvisited.pop()
            if schema is _LEAVE:
                path.discard(str(ref))
                continue
            if ref is not None:
                if ref in path:
                    continue
                path.add(ref)
                unvisited.append((_LEAVE, ref))
            count += 1
            schema = schema if type(schema) is dict else {}
            yield schema
            unvisited += [(item, None) for item in _subschemas(schema)]
            refs = {schema[keyword] for keyword in _REFS if type(schema.get(keyword)) is str}
            unvisited += [(self._resolve_target(ref), ref) for ref in refs]

    def cost_of(self, value: JSON, limit: int) -> int:
        """Count the schemas that are applied to `value` and its parts, as if no result were cached; at most `limit`."""
        try:
            return self._count(self._document, value, {}, limit)
        except RecursionError:
            return limit

    def _count(self, schema: JSON, value: JSON, known: dict[tuple[int, int], int], limit: int) -> int:
        """Count for one schema and value, at most `limit`. `known` caches counts, so the time does not multiply."""
        if type(schema) is not dict:
            return 1
        key = (id(schema), id(value))
        if key in known:
            return known[key]
        if len(known) >= min(limit, self.max_pairs):
            return limit
        known[key] = total = self._weight(schema, value)  # a reference back to this pair is not followed again
        for inner, item in self._pairs(schema, value):
            total += self._count(inner, item, known, limit)
            if total >= limit:
                break
        known[key] = min(total, limit)
        return known[key]

    def _weight(self, schema: Object, value: JSON) -> int:
        """Return the cost of applying this schema to this value, without their subschemas and parts."""
        return 1 + (len(schema["enum"]) if type(schema.get("enum")) is list else 0)

    def _pairs(self, schema: Object, value: JSON) -> Iterator[tuple[JSON, JSON]]:  # noqa: C901
        """Yield the schemas that apply to the value itself or to a part of it, each with that value."""
        for item in _in_place_schemas(schema):
            yield item, value
        for keyword in _REFS:
            if type(schema.get(keyword)) is str:
                yield self._resolve_target(schema[keyword]), value
        if type(value) is dict:
            names = schema.get("propertyNames")
            for key, item in value.items():
                if type(names) is dict:
                    yield names, key
                for inner in _member_schemas(schema, key):
                    yield inner, item
        elif type(value) is list:
            first = schema.get("prefixItems")
            for index, item in enumerate(value):
                if type(first) is list and index < len(first):
                    yield first[index], item
                for keyword in _ARRAY_SCHEMAS:
                    if type(schema.get(keyword)) is dict:
                        yield schema[keyword], item

    def _resolve_target(self, ref: str) -> JSON:
        if ref not in self._targets:
            self._targets[ref] = self._find(ref)
        return self._targets[ref]

    def _find(self, ref: str) -> JSON:
        """Return the schema that a reference points to; None if the document does not contain it."""
        if not ref.startswith("#") or ref[1:2] not in ("", "/"):
            if self._anchors is None:
                self._anchors = _find_anchors(self._document)
            return self._anchors.get(ref)
        try:
            return resolve(self._document, _PERCENT.sub(lambda found: chr(int(found[1], 16)), ref[1:]))
        except (KeyError, IndexError, TypeError, ValueError):
            return None


def _in_place_schemas(schema: Object) -> Iterator[JSON]:
    """Yield the subschemas that apply to the same value as `schema`."""
    for keyword in _IN_PLACE_LISTS:
        if type(schema.get(keyword)) is list:
            yield from schema[keyword]
    for keyword in _IN_PLACE:
        if keyword in schema:
            yield schema[keyword]
    for keyword in ("dependentSchemas", "dependencies"):
        if type(schema.get(keyword)) is dict:
            yield from schema[keyword].values()


def _member_schemas(schema: Object, key: str) -> Iterator[JSON]:
    """Yield the subschemas that may apply to the property `key`; every pattern counts, because none is matched here."""
    properties, patterns = schema.get("properties"), schema.get("patternProperties")
    if type(properties) is dict and key in properties:
        yield properties[key]
    elif type(patterns) is not dict:
        for keyword in _OBJECT_SCHEMAS:
            if type(schema.get(keyword)) is dict:
                yield schema[keyword]
    if type(patterns) is dict:
        yield from patterns.values()


def _subschemas(schema: Object) -> Iterator[JSON]:
    """Yield all direct subschemas, without references."""
    yield from _in_place_schemas(schema)
    for keyword in _MAPS:
        if type(schema.get(keyword)) is dict:
            yield from schema[keyword].values()
    for keyword in (*_OBJECT_SCHEMAS, *_ARRAY_SCHEMAS, "propertyNames"):
        if type(schema.get(keyword)) is dict:
            yield schema[keyword]
    if type(schema.get("prefixItems")) is list:
        yield from schema["prefixItems"]


def _find_anchors(document: JSON) -> dict[str, JSON]:
    """Map the names of schemas, as references use them, to the schemas."""
    found: dict[str, JSON] = {}
    pending = [document]
    while pending:
        item = pending.pop()
        if type(item) is dict:
            names = (
                item.get("$id"),
                item.get("id"),
                *(f"#{item.get(keyword)}" for keyword in ("$anchor", "$dynamicAnchor")),
            )
            found.update((name, item) for name in names if type(name) is str)
            pending += item.values()
        elif type(item) is list:
            pending += item
    return found
