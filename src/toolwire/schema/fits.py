"""Check that a value fits a node: types, enums, keys and bounds.

This is not the validator: unmodelled assertions and formats are ignored. It decides which branch of a union a value
belongs to. Results for objects and arrays are cached for the duration of one call, because the number of attempts for
nested unions would otherwise double with every level. A step budget bounds the cost of unions with many branches on
large values.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias

from ..ir.pointer import JSON
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
from .patterns import MATCH_LIMIT, SCHEMA_SIZE, engine_size, match_cost, matches
from .step_budget import StepBudget, json_size

__all__ = ["RefResolver", "branch_tags", "fits", "is_integer", "is_selected", "json_equal", "text_matches"]

RefResolver: TypeAlias = Callable[[str], Node | None]
"""Resolves a reference; None if that is not possible."""


_MAX_HOPS = 3
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
        for key, one in value.items():
            inner = node.properties.get(key) or others
            if inner is None:
                return False  # keys that are not declared are not allowed here
            if not self.fits(inner, one, 0):
                return False
        return True

    def _matches_array(self, node: ArrayNode | TupleNode, value: list[JSON]) -> bool:
        """Check the length and every item; items after those of a tuple are checked against `rest`."""
        if len(value) < node.min_items or (node.max_items is not None and len(value) > node.max_items):
            return False
        if isinstance(node, ArrayNode):
            return node.items is None or all(self.fits(node.items, one, 0) for one in value)
        if len(value) > len(node.items) and node.rest is None:
            return False
        nodes = [*node.items, *([node.rest] * max(len(value) - len(node.items), 0))]
        pairs = zip(nodes, value, strict=False)
        return all(inner is None or self.fits(inner, one, 0) for inner, one in pairs)


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


def json_equal(one: JSON, other: JSON) -> bool:
    """Compare by JSON equality: 1 equals 1.0, and neither equals true."""
    if type(one) is bool or type(other) is bool:
        return one is other
    if type(one) is dict and type(other) is dict:
        return one.keys() == other.keys() and all(json_equal(value, other[key]) for key, value in one.items())
    if type(one) is list and type(other) is list:
        return len(one) == len(other) and all(map(json_equal, one, other))
    return bool(one == other)
