"""Whether the branches of a `oneOf` exclude each other, so that `anyOf` says the same."""

from __future__ import annotations

from itertools import combinations

from .fits import Target, fits
from .nodes import Any, Array, Boolean, Enum, Node, Null, Number, Record, Ref, String, Tuple, Union

__all__ = ["disjoint"]

_KINDS: tuple[tuple[type, frozenset[str]], ...] = (
    (String, frozenset({"string"})),
    (Number, frozenset({"number"})),
    (Boolean, frozenset({"boolean"})),
    (Null, frozenset({"null"})),
    (Array, frozenset({"array"})),
    (Tuple, frozenset({"array"})),
    (Record, frozenset({"object"})),
)


_DEEPEST = 4


def disjoint(branches: list[Node], target: Target) -> bool:
    """True only where it can be proved."""
    known = [_resolved(branch, target) for branch in branches]
    return all(_apart(one, other, target) for one, other in combinations(known, 2))


def _resolved(node: Node, target: Target) -> Node:
    for _ in range(8):
        if not isinstance(node, Ref):
            return node
        found = target(node.target)
        if found is None:
            return node
        node = found
    return node


def _apart(one: Node, other: Node, target: Target, depth: int = 0) -> bool:
    if depth > _DEEPEST:
        return False
    if isinstance(one, Union):
        return all(_apart(_resolved(branch, target), other, target, depth + 1) for branch in one.branches)
    if isinstance(other, Union):
        return _apart(other, one, target, depth + 1)
    if isinstance(one, (Any, Ref)) or isinstance(other, (Any, Ref)):
        return False
    if isinstance(one, Enum):
        return not any(fits(other, value, target) for value in one.values)
    if isinstance(other, Enum):
        return _apart(other, one, target, depth + 1)
    if isinstance(one, Record) and isinstance(other, Record):
        return _objects_apart(one, other, target, depth + 1)
    return _kinds(one).isdisjoint(_kinds(other))


def _kinds(node: Node) -> frozenset[str]:
    return next((kinds for cls, kinds in _KINDS if isinstance(node, cls)), frozenset())


def _lacks_nothing(one: Record, other: Record) -> bool:
    """Whether a value of `one` may pass for one of `other`."""
    return other.required.issubset(one.properties) and not (
        other.closed and not one.required.issubset(other.properties)
    )


def _objects_apart(one: Record, other: Record, target: Target, depth: int) -> bool:
    # keys that are not mentioned are not written, so a key that the one wants and the other does not know keeps them apart
    if one.rest is None and other.rest is None:
        if not _lacks_nothing(one, other) and not _lacks_nothing(other, one):
            return True
    for key in one.required & other.required:
        mine, theirs = one.properties.get(key), other.properties.get(key)
        if mine is not None and theirs is not None:
            if _apart(_resolved(mine, target), _resolved(theirs, target), target, depth):
                return True
    return False
