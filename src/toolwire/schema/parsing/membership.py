"""Membership in the value sets of nodes: a value that fits a node, and branches that exclude each other.

Both decide about unions: the branch to which a value belongs, and whether `oneOf` may become `anyOf`. This is not the
validator: unmodelled assertions and formats are ignored. A step budget bounds both checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from itertools import combinations
from typing import TypeAlias

from ...ir.pointer import JSON
from ..bounds import StepBudget, json_size
from ..validation.patterns import MATCH_LIMIT, SCHEMA_SIZE, engine_size, match_cost, matches
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
    hashable_key,
)

# Check that a value fits a node: types, enums, keys and bounds.
#
# This is not the validator: unmodelled assertions and formats are ignored. It decides which branch of a union a value
# belongs to. Results for objects and arrays are cached for the duration of one call, because the number of attempts
# for nested unions would otherwise double with every level. A step budget bounds the cost of unions with many
# branches on large values.


RefResolver: TypeAlias = Callable[[str], Node | None]
"""Resolves a reference; None if that is not possible."""


_MAX_HOPS = 3  # references that are followed without a value in between; each property starts again from 0
# each value is compared with a few branches; the limit stops unions of unions. Not measured
_STEPS, _STEPS_PER_VALUE = 20_000, 20
_UNITS_PER_STEP = 200  # of `match_cost`


def fits(node: Node, value: JSON, target: RefResolver, budget: StepBudget | None = None) -> bool:
    """Return True if a value fits a node, False if it does not or if the budget is exhausted."""
    if budget is None:
        budget = StepBudget(_STEPS + json_size(value) * _STEPS_PER_VALUE)
    return _Matcher(target, budget).fits(node, value, 0)


def branch_tags(nodes: Sequence[Node], target: RefResolver) -> frozenset[str]:
    """Return the names of properties whose constants differ between the branches of a union."""
    constants: dict[str, list[EnumNode]] = {}
    for node in [_resolve(node, target) for node in nodes]:
        if isinstance(node, ObjectNode):
            for name, inner in node.properties.items():
                if isinstance(inner, EnumNode):
                    constants.setdefault(name, []).append(inner)
    return frozenset(
        name
        for name, enums in constants.items()
        if len(enums) > 1 and len(set[Hashable]().union(*(enum.keys for enum in enums))) == sum(map(_size, enums))
    )


def is_selected(node: Node, value: JSON, target: RefResolver, tags: frozenset[str]) -> bool:
    """Return True if a value has the type, the tags and the constants of a branch; other constraints are ignored."""
    node = _resolve(node, target)
    if isinstance(node, (ArrayNode, TupleNode)):
        return type(value) is list
    return isinstance(node, ObjectNode) and type(value) is dict and _has_tags(node, value, tags)


def _resolve(node: Node, target: RefResolver) -> Node:
    for _ in range(_MAX_HOPS):
        if not isinstance(node, RefNode):
            break
        node = target(node.target) or AnyNode()
    return node


def _size(enum: EnumNode) -> int:
    return len(enum.keys)


def _has_tags(node: ObjectNode, value: dict[str, JSON], tags: frozenset[str]) -> bool:
    constants = {name: tag for name, tag in node.properties.items() if isinstance(tag, EnumNode)}
    return all(
        hashable_key(value.get(name)) in constant.keys
        for name, constant in constants.items()
        if name in tags or (_size(constant) == 1 and (name in value or name in node.required))
    )


class _Matcher:
    """State of one call. Results for objects and arrays are cached until it returns."""

    __slots__ = ("_budget", "_known", "_target")

    def __init__(self, target: RefResolver, budget: StepBudget) -> None:
        self._target = target
        self._budget = budget
        self._known: dict[tuple[int, int, int], bool] = {}  # by node, value (both outlive the call) and hops

    def fits(self, node: Node, value: JSON, hops: int) -> bool:
        """Check one value. `hops`: references followed for this value; a cycle of references accepts nothing."""
        if not self._budget.spend():
            return False
        if isinstance(node, AnyNode):
            return True
        if isinstance(node, EnumNode):
            return hashable_key(value) in node.keys
        if isinstance(node, NullNode):
            return value is None
        if isinstance(node, BooleanNode):
            return type(value) is bool
        if isinstance(node, StringNode):
            return type(value) is str and self._matches_string(node, value)
        if isinstance(node, NumberNode):
            return type(value) in (int, float) and _matches_number(node, value)
        key = (id(node), id(value), hops)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._matches_composite(node, value, hops)
        return found

    def _matches_string(self, node: StringNode, value: str) -> bool:
        """Check length and pattern; a pattern that would cost too much to match is taken as matching."""
        if len(value) < node.min_length or (node.max_length is not None and len(value) > node.max_length):
            return False
        if node.pattern is None:
            return True
        # a pattern that is not matched here excludes nothing: the validator decides
        return text_matches(node.pattern, value, self._budget) is not False and not self._budget.exhausted

    def _matches_composite(self, node: Node, value: JSON, hops: int) -> bool:
        """Check a reference, a union or a container. A reference that cannot be resolved accepts any value."""
        if isinstance(node, RefNode):
            target_node = self._target(node.target)
            return target_node is None or (hops < _MAX_HOPS and self.fits(target_node, value, hops + 1))
        if isinstance(node, UnionNode):
            return any(self.fits(branch, value, hops) for branch in node.branches)
        if isinstance(node, ObjectNode):
            return type(value) is dict and self._matches_object(node, value)
        if isinstance(node, (ArrayNode, TupleNode)):
            return type(value) is list and self._matches_array(node, value)
        return False

    def _matches_object(self, node: ObjectNode, value: dict[str, JSON]) -> bool:
        """Check required keys and values. A key that is neither declared nor covered by `rest` does not fit."""
        if not node.required.issubset(value):
            return False
        others = node.others if node.patterns else node.rest
        for key, item in value.items():
            inner = node.properties.get(key) or others
            if inner is None:
                return False  # keys that are not declared are not allowed here
            if not self.fits(inner, item, 0):
                return False
        return True

    def _matches_array(self, node: ArrayNode | TupleNode, value: list[JSON]) -> bool:
        """Check the length and every item; items after a tuple's own positions are checked against `rest`."""
        if len(value) < node.min_items or (node.max_items is not None and len(value) > node.max_items):
            return False
        if isinstance(node, ArrayNode):
            return node.items is None or all(self.fits(node.items, item, 0) for item in value)
        if len(value) > len(node.items) and node.rest is None:
            return False
        nodes = [*node.items, *([node.rest] * max(len(value) - len(node.items), 0))]
        pairs = zip(nodes, value, strict=False)
        return all(inner is None or self.fits(inner, item, 0) for inner, item in pairs)


def text_matches(pattern: str, text: str, budget: StepBudget) -> bool | None:
    """Return True if a pattern is found in a text; None if that would cost too much, or the pattern is not supported.

    All patterns that are matched under one budget fit into the cache of engines together, so each is compiled once.
    """
    if pattern not in budget.pattern_costs:
        size = engine_size(pattern)
        is_small = budget.pattern_bytes + size <= SCHEMA_SIZE
        budget.pattern_bytes += size if is_small else 0
        budget.pattern_costs[pattern] = match_cost(pattern) if is_small else None
    cost = budget.pattern_costs[pattern]
    if cost is None or cost * len(text) > MATCH_LIMIT or not budget.spend(cost * len(text) // _UNITS_PER_STEP):
        return None
    return matches(pattern, text)


def _matches_number(node: NumberNode, value: float) -> bool:
    """Return True if a number is within all bounds; a quotient by `multiple_of` is computed with floats."""
    return (
        (not node.integer or is_integer(value))
        and (node.minimum is None or value >= node.minimum)
        and (node.maximum is None or value <= node.maximum)
        and (node.exclusive_minimum is None or value > node.exclusive_minimum)
        and (node.exclusive_maximum is None or value < node.exclusive_maximum)
        and (not node.multiple_of or is_integer(value / node.multiple_of))
    )


def is_integer(value: float) -> bool:
    return type(value) is int or (type(value) is float and value.is_integer())


def json_equal(left: JSON, right: JSON) -> bool:
    """Compare by JSON equality: 1 equals 1.0, and neither equals true."""
    if type(left) is bool or type(right) is bool:
        return left is right
    if type(left) is dict and type(right) is dict:
        return left.keys() == right.keys() and all(json_equal(value, right[key]) for key, value in left.items())
    if type(left) is list and type(right) is list:
        return len(left) == len(right) and all(map(json_equal, left, right))
    return bool(left == right)


_KINDS: tuple[tuple[type, frozenset[str]], ...] = (
    (StringNode, frozenset({"string"})),
    (NumberNode, frozenset({"number"})),
    (BooleanNode, frozenset({"boolean"})),
    (NullNode, frozenset({"null"})),
    (ArrayNode, frozenset({"array"})),
    (TupleNode, frozenset({"array"})),
    (ObjectNode, frozenset({"object"})),
)


_MAX_DEPTH = 4  # levels of properties in which a difference is searched; tags are at the first or second
_OVERLAP_STEPS = 20_000  # as _STEPS; a union that is too large counts as not proved


def are_disjoint(branches: list[Node], target: RefResolver, budget: StepBudget | None = None) -> bool:
    """Return True only if it can be proved within the budget that no value fits two branches."""
    budget = StepBudget(_OVERLAP_STEPS) if budget is None else budget
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
