"""Count the schema applications that validating a value takes if every alternative is tried.

Definitions with alternatives, used by alternatives of other definitions, multiply: with forty small ones, a check takes
longer than a lifetime. The count itself takes a time that does not multiply.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ..ir.pointer import JSON, Object, resolve

__all__ = ["MANY", "ValidationCost"]

MANY = 20_000
_MOST_PAIRS = 1_000_000  # of a schema and a value
_LEAVE: Final = object()
_PERCENT = re.compile(r"%([0-7][0-9a-fA-F])")
_REFS = ("$ref", "$dynamicRef", "$recursiveRef")
_HERE_LISTS = ("anyOf", "oneOf", "allOf")
_HERE = ("not", "if", "then", "else")
_MAPS = ("properties", "patternProperties")
_OF_OBJECTS = ("additionalProperties", "unevaluatedProperties")
_OF_LISTS = ("items", "contains", "additionalItems", "unevaluatedItems")


class ValidationCost:
    """The effort of applying one schema to values."""

    __slots__ = ("_anchors", "_document", "_targets")

    def __init__(self, document: JSON) -> None:
        self._document = document
        self._anchors: dict[str, JSON] | None = None
        self._targets: dict[str, JSON] = {}

    def has_many_paths(self) -> bool:
        """Return True if following every reference, each once per path, visits more than `MANY` schemas."""
        return sum(1 for _ in self.visits()) > MANY

    def visits(self) -> Iterator[Object]:
        """Yield the schemas visited by following every reference, each once per path; about the first 20,000."""
        waiting: list[tuple[JSON, str | None]] = [(self._document, None)]
        way: set[str] = set()
        count = 0
        while waiting and count <= MANY:
            schema, ref = waiting.pop()
            if schema is _LEAVE:
                way.discard(str(ref))
                continue
            if ref is not None:
                if ref in way:
                    continue
                way.add(ref)
                waiting.append((_LEAVE, ref))
            count += 1
            schema = schema if type(schema) is dict else {}
            yield schema
            waiting += [(one, None) for one in _inside(schema)]
            refs = {schema[word] for word in _REFS if type(schema.get(word)) is str}
            waiting += [(self._target(ref), ref) for ref in refs]

    def of(self, value: JSON, most: int) -> int:
        """Count the schemas that are applied to `value` and its parts, as if no result were cached; at most `most`."""
        try:
            return self._count(self._document, value, {}, most)
        except RecursionError:
            return most

    def _count(self, schema: JSON, value: JSON, known: dict[tuple[int, int], int], most: int) -> int:
        if type(schema) is not dict:
            return 1
        key = (id(schema), id(value))
        if key in known:
            return known[key]
        if len(known) >= min(most, _MOST_PAIRS):
            return most
        known[key] = total = self._weight(schema, value)  # a reference back to this pair is not followed again
        for inner, one in self._pairs(schema, value):
            total += self._count(inner, one, known, most)
            if total >= most:
                break
        known[key] = min(total, most)
        return known[key]

    def _weight(self, schema: Object, value: JSON) -> int:
        """Return the cost of applying this schema to this value, without their subschemas and parts."""
        return 1 + (len(schema["enum"]) if type(schema.get("enum")) is list else 0)

    def _pairs(self, schema: Object, value: JSON) -> Iterator[tuple[JSON, JSON]]:
        """Yield the schemas that apply to the value itself or to a part of it, each with that value."""
        for one in _here(schema):
            yield one, value
        for word in _REFS:
            if type(schema.get(word)) is str:
                yield self._target(schema[word]), value
        if type(value) is dict:
            names = schema.get("propertyNames")
            for key, one in value.items():
                if type(names) is dict:
                    yield names, key
                for inner in _of_member(schema, key):
                    yield inner, one
        elif type(value) is list:
            first = schema.get("prefixItems")
            for index, one in enumerate(value):
                if type(first) is list and index < len(first):
                    yield first[index], one
                for word in _OF_LISTS:
                    if type(schema.get(word)) is dict:
                        yield schema[word], one

    def _target(self, ref: str) -> JSON:
        if ref not in self._targets:
            self._targets[ref] = self._find(ref)
        return self._targets[ref]

    def _find(self, ref: str) -> JSON:
        if not ref.startswith("#") or ref[1:2] not in ("", "/"):
            if self._anchors is None:
                self._anchors = _anchors(self._document)
            return self._anchors.get(ref)
        try:
            return resolve(self._document, _PERCENT.sub(lambda found: chr(int(found[1], 16)), ref[1:]))
        except (KeyError, IndexError, TypeError, ValueError):
            return None


def _here(schema: Object) -> Iterator[JSON]:
    for word in _HERE_LISTS:
        if type(schema.get(word)) is list:
            yield from schema[word]
    for word in _HERE:
        if word in schema:
            yield schema[word]
    for word in ("dependentSchemas", "dependencies"):
        if type(schema.get(word)) is dict:
            yield from schema[word].values()


def _of_member(schema: Object, key: str) -> Iterator[JSON]:
    properties, patterns = schema.get("properties"), schema.get("patternProperties")
    if type(properties) is dict and key in properties:
        yield properties[key]
    elif type(patterns) is not dict:
        for word in _OF_OBJECTS:
            if type(schema.get(word)) is dict:
                yield schema[word]
    if type(patterns) is dict:
        yield from patterns.values()


def _inside(schema: Object) -> Iterator[JSON]:
    yield from _here(schema)
    for word in _MAPS:
        if type(schema.get(word)) is dict:
            yield from schema[word].values()
    for word in (*_OF_OBJECTS, *_OF_LISTS, "propertyNames"):
        if type(schema.get(word)) is dict:
            yield schema[word]
    if type(schema.get("prefixItems")) is list:
        yield from schema["prefixItems"]


def _anchors(document: JSON) -> dict[str, JSON]:
    """Map the names of schemas, as references use them, to the schemas."""
    found: dict[str, JSON] = {}
    pending = [document]
    while pending:
        one = pending.pop()
        if type(one) is dict:
            names = (one.get("$id"), one.get("id"), *(f"#{one.get(word)}" for word in ("$anchor", "$dynamicAnchor")))
            found.update((name, one) for name in names if type(name) is str)
            pending += one.values()
        elif type(one) is list:
            pending += one
    return found
