"""Check that the branches of a `oneOf` exclude each other, so that `anyOf` means the same."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import combinations

from .fits import RefResolver, fits
from .nodes import (
    AnyNode,
    ArrayNode,
    BooleanNode,
    EnumNode,
    Node,
    NullNode,
    NumberNode,
    ObjectNode,
    RefNode,
    StringNode,
    TupleNode,
    UnionNode,
)
from .step_budget import StepBudget

__all__ = ["disjoint", "resolved"]

_KINDS: tuple[tuple[type, frozenset[str]], ...] = (
    (StringNode, frozenset({"string"})),
    (NumberNode, frozenset({"number"})),
    (BooleanNode, frozenset({"boolean"})),
    (NullNode, frozenset({"null"})),
    (ArrayNode, frozenset({"array"})),
    (TupleNode, frozenset({"array"})),
    (ObjectNode, frozenset({"object"})),
)


_DEEPEST = 4
_STEPS = 20_000


def disjoint(branches: list[Node], target: RefResolver, budget: StepBudget | None = None) -> bool:
    """Return True only if it can be proved within the budget that no value fits two branches."""
    budget = StepBudget(_STEPS) if budget is None else budget
    known = [resolved(branch, target) for branch in branches]
    if _disjoint_by_values(known, budget):
        return True
    pairs = combinations(known, 2)
    return all(_are_disjoint(one, other, target, budget) for one, other in pairs) and not budget.exhausted


def _disjoint_by_values(branches: list[Node], budget: StepBudget) -> bool:
    """Return True for enums without a common value, or objects with such an enum as a common required property.

    This covers titled enums and discriminated unions in linear time.
    """
    if _enums_disjoint(branches):
        return True
    records = [branch for branch in branches if isinstance(branch, ObjectNode)]
    if not records or len(records) < len(branches):
        return False
    for tag in frozenset.intersection(*(record.required for record in records)):
        if not budget.spend(len(records)):
            return False
        if _enums_disjoint([record.properties.get(tag) for record in records]):
            return True
    return False


def _enums_disjoint(nodes: Sequence[Node | None]) -> bool:
    enums = [node for node in nodes if isinstance(node, EnumNode)]
    if len(enums) < len(nodes):
        return False
    return len(frozenset[Hashable]().union(*(enum.keys for enum in enums))) == sum(len(enum.keys) for enum in enums)


def resolved(node: Node, target: RefResolver) -> Node:
    """Follow references; return the reference itself if it cannot be resolved, or the chain is too long."""
    for _ in range(8):
        if not isinstance(node, RefNode):
            return node
        found = target(node.target)
        if found is None:
            return node
        node = found
    return node


def _are_disjoint(one: Node, other: Node, target: RefResolver, budget: StepBudget, depth: int = 0) -> bool:
    if depth > _DEEPEST or not budget.spend():
        return False
    if isinstance(one, UnionNode):
        return all(_are_disjoint(resolved(branch, target), other, target, budget, depth + 1) for branch in one.branches)
    if isinstance(other, UnionNode):
        return _are_disjoint(other, one, target, budget, depth + 1)
    if isinstance(one, (AnyNode, RefNode)) or isinstance(other, (AnyNode, RefNode)):
        return False
    if isinstance(one, EnumNode):
        return not any(fits(other, value, target, budget) for value in one.values)
    if isinstance(other, EnumNode):
        return _are_disjoint(other, one, target, budget, depth + 1)
    if isinstance(one, ObjectNode) and isinstance(other, ObjectNode):
        return _objects_disjoint(one, other, target, budget, depth + 1)
    return _kinds(one).isdisjoint(_kinds(other))


def _kinds(node: Node) -> frozenset[str]:
    return next((kinds for cls, kinds in _KINDS if isinstance(node, cls)), frozenset())


def _may_satisfy(one: ObjectNode, other: ObjectNode) -> bool:
    """Return True if a value of `one` may fit `other`."""
    return other.required.issubset(one.properties) and not (
        other.closed and not one.required.issubset(other.properties)
    )


def _objects_disjoint(one: ObjectNode, other: ObjectNode, target: RefResolver, budget: StepBudget, depth: int) -> bool:
    # undeclared keys are not written, so a key that one requires and the other does not declare separates them
    if one.rest is None and other.rest is None:
        if not _may_satisfy(one, other) and not _may_satisfy(other, one):
            return True
    for key in one.required & other.required:
        mine, theirs = one.properties.get(key), other.properties.get(key)
        if mine is not None and theirs is not None:
            if _are_disjoint(resolved(mine, target), resolved(theirs, target), target, budget, depth):
                return True
    return False
