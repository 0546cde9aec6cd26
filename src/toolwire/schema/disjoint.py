"""Check that the branches of a `oneOf` exclude each other, so that `anyOf` means the same."""

from __future__ import annotations

from collections import Counter
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

__all__ = ["are_disjoint", "resolve_node"]

_KINDS: tuple[tuple[type, frozenset[str]], ...] = (
    (StringNode, frozenset({"string"})),
    (NumberNode, frozenset({"number"})),
    (BooleanNode, frozenset({"boolean"})),
    (NullNode, frozenset({"null"})),
    (ArrayNode, frozenset({"array"})),
    (TupleNode, frozenset({"array"})),
    (ObjectNode, frozenset({"object"})),
)


_MAX_DEPTH = 4
_STEPS = 20_000


def are_disjoint(branches: list[Node], target: RefResolver, budget: StepBudget | None = None) -> bool:
    """Return True only if it can be proved within the budget that no value fits two branches."""
    budget = StepBudget(_STEPS) if budget is None else budget
    known = [resolve_node(branch, target) for branch in branches]
    if _disjoint_by_values(known, budget):
        return True
    pairs = combinations(known, 2)
    return all(_are_disjoint(left, right, target, budget) for left, right in pairs) and not budget.exhausted


def _disjoint_by_values(branches: list[Node], budget: StepBudget) -> bool:
    """Return True for enums without a common value, and for objects that a common or an own required property separates.

    This covers titled enums and discriminated unions in linear time.
    """
    if _enums_disjoint(branches):
        return True
    records = [branch for branch in branches if isinstance(branch, ObjectNode)]
    if not records or len(records) < len(branches):
        return False
    if budget.spend(sum(len(record.properties) for record in records)) and _have_own_keys(records):
        return True
    for tag in frozenset.intersection(*(record.required for record in records)):
        if not budget.spend(len(records)):
            return False
        if _enums_disjoint([record.properties.get(tag) for record in records]):
            return True
    return False


def _have_own_keys(records: list[ObjectNode]) -> bool:
    """Return True if every object requires a key that no other object declares or allows."""
    if any(record.others is not None for record in records):
        return False
    declared = Counter(key for record in records for key in record.properties)
    return all(any(declared[key] == 1 for key in record.required) for record in records)


def _enums_disjoint(nodes: Sequence[Node | None]) -> bool:
    enums = [node for node in nodes if isinstance(node, EnumNode)]
    if len(enums) < len(nodes):
        return False
    return len(frozenset[Hashable]().union(*(enum.keys for enum in enums))) == sum(len(enum.keys) for enum in enums)


def resolve_node(node: Node, target: RefResolver) -> Node:
    """Follow references; return the reference itself if it cannot be resolved, or the chain is too long."""
    for _ in range(8):
        if not isinstance(node, RefNode):
            return node
        found = target(node.target)
        if found is None:
            return node
        node = found
    return node


def _are_disjoint(left: Node, right: Node, target: RefResolver, budget: StepBudget, depth: int = 0) -> bool:
    """Return True if no value fits both nodes.

    False means not proved: the budget or the depth is exhausted, or a node accepts any value.
    """
    if depth > _MAX_DEPTH or not budget.spend():
        return False
    if isinstance(left, UnionNode):
        return all(
            _are_disjoint(resolve_node(branch, target), right, target, budget, depth + 1) for branch in left.branches
        )
    if isinstance(right, UnionNode):
        return _are_disjoint(right, left, target, budget, depth + 1)
    if isinstance(left, (AnyNode, RefNode)) or isinstance(right, (AnyNode, RefNode)):
        return False
    if isinstance(left, EnumNode):
        return not any(fits(right, value, target, budget) for value in left.values)
    if isinstance(right, EnumNode):
        return _are_disjoint(right, left, target, budget, depth + 1)
    if isinstance(left, ObjectNode) and isinstance(right, ObjectNode):
        return _objects_disjoint(left, right, target, budget, depth + 1)
    return _kinds(left).isdisjoint(_kinds(right))


def _kinds(node: Node) -> frozenset[str]:
    return next((kinds for cls, kinds in _KINDS if isinstance(node, cls)), frozenset())


def _may_satisfy(left: ObjectNode, right: ObjectNode) -> bool:
    """Return True if a value of `left` may fit `right`."""
    return right.required.issubset(left.properties) and not (
        right.closed and not left.required.issubset(right.properties)
    )


def _objects_disjoint(left: ObjectNode, right: ObjectNode, target: RefResolver, budget: StepBudget, depth: int) -> bool:
    """Return True if the required keys of two objects exclude each other, or a common required property is disjoint."""
    # undeclared keys are not written, so a key that one requires and the other does not declare separates them
    if left.others is None and right.others is None:
        if not _may_satisfy(left, right) and not _may_satisfy(right, left):
            return True
    for key in left.required & right.required:
        left_property, right_property = left.properties.get(key), right.properties.get(key)
        if left_property is not None and right_property is not None:
            if _are_disjoint(
                resolve_node(left_property, target), resolve_node(right_property, target), target, budget, depth
            ):
                return True
    return False
