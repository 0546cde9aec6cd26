"""Check that the branches of a `oneOf` exclude each other, so that `anyOf` means the same."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import combinations

from .fits import Target, fits
from .nodes import Any, Array, Boolean, Enum, Node, Null, Number, Record, Ref, String, Tuple, Union
from .step_budget import StepBudget

__all__ = ["disjoint", "resolved"]

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
_STEPS = 20_000


def disjoint(branches: list[Node], target: Target, budget: StepBudget | None = None) -> bool:
    """Return True only if it can be proved within the budget that no value fits two branches."""
    budget = StepBudget(_STEPS) if budget is None else budget
    known = [resolved(branch, target) for branch in branches]
    if _told_apart_by_values(known, budget):
        return True
    pairs = combinations(known, 2)
    return all(_apart(one, other, target, budget) for one, other in pairs) and not budget.exhausted


def _told_apart_by_values(branches: list[Node], budget: StepBudget) -> bool:
    """Return True for enums without a common value, or objects with such an enum as a common required property.

    This covers titled enums and discriminated unions in linear time.
    """
    if _enums_apart(branches):
        return True
    records = [branch for branch in branches if isinstance(branch, Record)]
    if not records or len(records) < len(branches):
        return False
    for tag in frozenset.intersection(*(record.required for record in records)):
        if not budget.spend(len(records)):
            return False
        if _enums_apart([record.properties.get(tag) for record in records]):
            return True
    return False


def _enums_apart(nodes: Sequence[Node | None]) -> bool:
    enums = [node for node in nodes if isinstance(node, Enum)]
    if len(enums) < len(nodes):
        return False
    return len(frozenset[Hashable]().union(*(enum.keys for enum in enums))) == sum(len(enum.keys) for enum in enums)


def resolved(node: Node, target: Target) -> Node:
    """Follow references; return the reference itself if it cannot be resolved, or the chain is too long."""
    for _ in range(8):
        if not isinstance(node, Ref):
            return node
        found = target(node.target)
        if found is None:
            return node
        node = found
    return node


def _apart(one: Node, other: Node, target: Target, budget: StepBudget, depth: int = 0) -> bool:
    if depth > _DEEPEST or not budget.spend():
        return False
    if isinstance(one, Union):
        return all(_apart(resolved(branch, target), other, target, budget, depth + 1) for branch in one.branches)
    if isinstance(other, Union):
        return _apart(other, one, target, budget, depth + 1)
    if isinstance(one, (Any, Ref)) or isinstance(other, (Any, Ref)):
        return False
    if isinstance(one, Enum):
        return not any(fits(other, value, target, budget) for value in one.values)
    if isinstance(other, Enum):
        return _apart(other, one, target, budget, depth + 1)
    if isinstance(one, Record) and isinstance(other, Record):
        return _objects_apart(one, other, target, budget, depth + 1)
    return _kinds(one).isdisjoint(_kinds(other))


def _kinds(node: Node) -> frozenset[str]:
    return next((kinds for cls, kinds in _KINDS if isinstance(node, cls)), frozenset())


def _lacks_nothing(one: Record, other: Record) -> bool:
    """Return True if a value of `one` may fit `other`."""
    return other.required.issubset(one.properties) and not (
        other.closed and not one.required.issubset(other.properties)
    )


def _objects_apart(one: Record, other: Record, target: Target, budget: StepBudget, depth: int) -> bool:
    # undeclared keys are not written, so a key that one requires and the other does not declare separates them
    if one.rest is None and other.rest is None:
        if not _lacks_nothing(one, other) and not _lacks_nothing(other, one):
            return True
    for key in one.required & other.required:
        mine, theirs = one.properties.get(key), other.properties.get(key)
        if mine is not None and theirs is not None:
            if _apart(resolved(mine, target), resolved(theirs, target), target, budget, depth):
                return True
    return False
