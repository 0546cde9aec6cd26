"""Prove that the branches of a `oneOf` exclude each other, by keywords that constrained decoding always enforces.

`disjoint` works on parsed nodes; parsing costs more than the whole conversion to a decoding schema, so this check reads
the documents themselves. False means not proved.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

from ..ir.pointer import JSON, Object
from ..ir.text import dumps

__all__ = ["branches_disjoint", "type_names"]

_ALL_TYPES = frozenset({"null", "boolean", "number", "string", "array", "object"})
_MAX_PAIRS = 2_000
_MAX_DEPTH = 3
_MAX_HOPS = 8


def type_names(schema: Object) -> frozenset[str]:
    """Return the types that `type` allows; integers are numbers."""
    declared = schema.get("type")
    if type(declared) is str:
        return frozenset({"number" if declared == "integer" else declared})
    if type(declared) is list:
        return frozenset("number" if name == "integer" else name for name in declared if type(name) is str)
    return _ALL_TYPES


def branches_disjoint(branches: list[JSON], types: frozenset[str], follow: Callable[[str], JSON]) -> bool:
    """Return True if no value of `types` fits two branches; `follow` returns the target of a reference, or None."""
    known = [_resolve(branch, follow) for branch in branches]
    if _separated_by_tag(known, types, follow):
        return True
    if len(known) * (len(known) - 1) > 2 * _MAX_PAIRS:
        return False
    return all(_is_disjoint(left, right, types, follow, 0) for left, right in combinations(known, 2))


def _resolve(schema: JSON, follow: Callable[[str], JSON]) -> JSON:
    for _ in range(_MAX_HOPS):
        if type(schema) is not dict or type(schema.get("$ref")) is not str:
            return schema
        schema = follow(schema["$ref"])
    return None


def _separated_by_tag(branches: list[JSON], types: frozenset[str], follow: Callable[[str], JSON]) -> bool:
    """Return True for objects whose common required property has different constants: linear in their number."""
    if not all(type(branch) is dict and types & type_names(branch) == {"object"} for branch in branches):
        return False
    common = set.intersection(*(_required(branch) for branch in branches)) if branches else set()
    for name in sorted(common):
        seen: set[str] = set()
        if all(_adds_values(seen, _resolve(_property(branch, name), follow)) for branch in branches):
            return True
    return False


def _adds_values(seen: set[str], schema: JSON) -> bool:
    values = _values(schema)
    if values is None or not seen.isdisjoint(values):
        return False
    seen |= values
    return True


def _required(schema: Object) -> set[str]:
    names = schema.get("required")
    return {name for name in names if type(name) is str} if type(names) is list else set()


def _property(schema: Object, name: str) -> JSON:
    properties = schema.get("properties")
    return properties.get(name) if type(properties) is dict else None


def _values(schema: JSON) -> set[str] | None:
    """Return the values of `const` or `enum`, as text; None without such a keyword."""
    if type(schema) is not dict:
        return None
    if "const" in schema:
        return {_value_key(schema["const"])}
    listed = schema.get("enum")
    return {_value_key(value) for value in listed} if type(listed) is list else None


def _value_key(value: JSON) -> str:
    """Return the same text for equal JSON values: 1 and 1.0 are equal."""
    if type(value) is float and value.is_integer():
        return str(int(value))
    return dumps(value)


def _is_disjoint(left: JSON, right: JSON, types: frozenset[str], follow: Callable[[str], JSON], depth: int) -> bool:
    if left is False or right is False:
        return True
    if type(left) is not dict or type(right) is not dict or depth > _MAX_DEPTH:
        return False
    common = types & _kinds(left) & _kinds(right)
    if not common:
        return True
    values, others = _values(left), _values(right)
    if values is not None and others is not None and not _has_containers(left, right):
        return values.isdisjoint(others)
    return common == {"object"} and _objects_disjoint(left, right, follow, depth)


def _has_containers(*schemas: Object) -> bool:
    """Return True if a constant is an object or a list, whose text may differ for equal values."""
    values = [value for schema in schemas for value in [schema.get("const"), *(schema.get("enum") or ())]]
    return any(type(value) is dict or type(value) is list for value in values)


def _kinds(schema: Object) -> frozenset[str]:
    names = type_names(schema)
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    return names & {_kind_of(value) for value in listed} if type(listed) is list else names


def _kind_of(value: JSON) -> str:
    if value is None:
        return "null"
    return {bool: "boolean", str: "string", list: "array", dict: "object"}.get(type(value), "number")


def _objects_disjoint(left: Object, right: Object, follow: Callable[[str], JSON], depth: int) -> bool:
    if _excludes_required(left, right) or _excludes_required(right, left):
        return True
    for name in _required(left) & _required(right):
        first, second = _resolve(_property(left, name), follow), _resolve(_property(right, name), follow)
        if _is_disjoint(first, second, _ALL_TYPES, follow, depth + 1):
            return True
    return False


def _excludes_required(closed: Object, other: Object) -> bool:
    """Return True if the first object forbids a property that the other requires."""
    if closed.get("additionalProperties") is not False or "patternProperties" in closed:
        return False
    properties = closed.get("properties")
    return not _required(other) <= (properties.keys() if type(properties) is dict else set())
