"""Intersect two schema nodes: `allOf`, and keywords beside a combinator or a reference.

Unions multiply: intersecting n unions of m branches gives m**n combinations. Every node produced is therefore counted
against one budget for the whole schema. When it is exhausted, the result is `AnyNode`, which accepts every value of the
true intersection; the caller reports it, and the validator still checks the original schema.
"""

from __future__ import annotations

from msgspec.structs import replace

from .fits import RefResolver, fits
from .nodes import (
    AnyNode,
    ArrayNode,
    EnumNode,
    NeverNode,
    Node,
    NumberNode,
    ObjectNode,
    RefNode,
    StringNode,
    TupleNode,
    UnionNode,
)
from .step_budget import StepBudget

__all__ = ["Intersection"]

_MOST_HOPS = 2
_MOST_BRANCHES = 100
_MOST_DEPTH = 64
_COPIED_PER_STEP = 16
"""Dictionary entries that are copied without inspection, in C, at the cost of one step."""


class Intersection:
    """The intersections of one schema. `target` resolves references; None while a definition is being read."""

    __slots__ = ("_depth", "_target", "budget")

    def __init__(self, target: RefResolver, budget: StepBudget) -> None:
        self._target = target
        self._depth = 0
        self.budget = budget

    def of(self, one: Node, other: Node, hops: int = 0) -> Node:
        """Return the values that both nodes accept. Where annotations differ, those of `one` take precedence."""
        if isinstance(other, AnyNode):
            return _annotated(one, other)
        if isinstance(one, AnyNode):
            return _annotated(other, one, first=True)
        if isinstance(one, NeverNode) or isinstance(other, NeverNode):
            return NeverNode(at=one.at)
        if not self.budget.spend() or self._depth > _MOST_DEPTH:
            self.budget.left = min(self.budget.left, -1)  # too deep counts as exhausted, so that it is reported
            return _unknown(one, other)
        self._depth += 1
        try:
            return self._of_kinds(one, other, hops)
        finally:
            self._depth -= 1

    def _of_kinds(self, one: Node, other: Node, hops: int) -> Node:
        if isinstance(one, RefNode) or isinstance(other, RefNode):
            return self._refs(one, other, hops)
        if isinstance(one, UnionNode) and isinstance(other, UnionNode):
            if len(one.branches) * len(other.branches) > _MOST_BRANCHES:
                return replace(one, unmodelled={**one.unmodelled, "and": "one of several other schemas"})
        if isinstance(one, UnionNode):
            return _annotated(self._branches(one, other, hops, first=True), one, first=True)
        if isinstance(other, UnionNode):
            return _annotated(self._branches(other, one, hops, first=False), other)
        if isinstance(one, EnumNode) or isinstance(other, EnumNode):
            return self._enums(one, other)
        return _annotated(self._same_kind(one, other, hops), other)

    def _refs(self, one: Node, other: Node, hops: int) -> Node:
        if isinstance(one, RefNode) and isinstance(other, RefNode) and one.target == other.target:
            return _annotated(one, other)
        ref, rest = (one, other) if isinstance(one, RefNode) else (other, one)
        assert isinstance(ref, RefNode)
        found = self._target(ref.target) if hops < _MOST_HOPS else None
        if found is None:  # still being read, or a definition that contains itself
            return replace(rest, unmodelled={**rest.unmodelled, "allOf": [{"$ref": f"#{ref.target}"}]})
        return self.of(found, rest, hops + 1) if ref is one else self.of(rest, found, hops + 1)

    def _branches(self, union: UnionNode, other: Node, hops: int, *, first: bool) -> Node:
        """Intersect every branch of `union` with `other`; `first`: the branch comes first."""
        kept: list[Node] = []
        for branch in union.branches:
            node = self.of(branch, other, hops) if first else self.of(other, branch, hops)
            if self.budget.exhausted:
                return _unknown(union, other)
            if not isinstance(node, NeverNode):
                kept.append(node)
        if not kept:
            return NeverNode(at=union.at)
        return kept[0] if len(kept) == 1 else replace(union, branches=tuple(kept))

    def _enums(self, one: Node, other: Node) -> Node:
        enum, rest = (one, other) if isinstance(one, EnumNode) else (other, one)
        assert isinstance(enum, EnumNode)
        values = tuple(value for value in enum.values if fits(rest, value, self._target, self.budget))
        if self.budget.exhausted:  # values that were not checked are kept
            return _annotated(enum, rest)
        return _annotated(replace(enum, values=values), rest) if values else NeverNode(at=one.at)

    def _same_kind(self, one: Node, other: Node, hops: int) -> Node:
        if isinstance(one, StringNode) and isinstance(other, StringNode):
            return _strings(one, other)
        if isinstance(one, NumberNode) and isinstance(other, NumberNode):
            return _numbers(one, other)
        if isinstance(one, ObjectNode) and isinstance(other, ObjectNode):
            return self._records(one, other, hops)
        if isinstance(one, (ArrayNode, TupleNode)) and isinstance(other, (ArrayNode, TupleNode)):
            return self._arrays(one, other, hops)
        return one if type(one) is type(other) else NeverNode(at=one.at)

    def _records(self, one: ObjectNode, other: ObjectNode, hops: int) -> Node:
        unaffected = other.rest is None and not other.closed  # a property that only `one` has stays as it is
        keys = list(other.properties)
        if not unaffected:
            keys = [*one.properties, *(key for key in keys if key not in one.properties)]
        copied = len(one.properties) + len(one.required)
        if not self.budget.spend(len(keys) + copied // _COPIED_PER_STEP):
            return _unknown(one, other)
        required = one.required | other.required
        properties = dict(one.properties)
        for key in keys:
            node = self._property(key, one, other, hops)
            if not isinstance(node, NeverNode):
                properties[key] = node
            elif key in required:
                return NeverNode(at=one.at)
            else:
                properties.pop(key, None)
        rest = None
        if one.rest is not None and other.rest is not None:
            rest = self.of(one.rest, other.rest, hops)
        elif not (one.closed or other.closed):
            rest = one.rest if not other.properties else other.rest if not one.properties else None
        return replace(
            one,
            properties=properties,
            required=required,
            rest=None if isinstance(rest, NeverNode) else rest,
            closed=one.closed or other.closed,
        )

    def _property(self, key: str, one: ObjectNode, other: ObjectNode, hops: int) -> Node:
        """Return the node of a property; `NeverNode` if one side forbids it."""
        mine, theirs = one.properties.get(key, one.rest), other.properties.get(key, other.rest)
        if mine is None:
            return NeverNode() if one.closed or theirs is None else theirs
        if theirs is None:
            return NeverNode() if other.closed else mine
        return self.of(mine, theirs, hops)

    def _arrays(self, one: ArrayNode | TupleNode, other: ArrayNode | TupleNode, hops: int) -> Node:
        low, high = max(one.min_items, other.min_items), _least(one.max_items, other.max_items)
        if high is not None and low > high:
            return NeverNode(at=one.at)
        if isinstance(one, ArrayNode) and isinstance(other, ArrayNode):
            items = one.items if other.items is None else other.items if one.items is None else None
            if one.items is not None and other.items is not None:
                items = self.of(one.items, other.items, hops)
                if isinstance(items, NeverNode):
                    return NeverNode(at=one.at) if low else ArrayNode(None, 0, 0, at=one.at)
            return replace(one, items=items, min_items=low, max_items=high)
        return self._tuples(one, other, low, high, hops)

    def _tuples(
        self, one: ArrayNode | TupleNode, other: ArrayNode | TupleNode, low: int, high: float | None, hops: int
    ) -> Node:
        first, second = (one, other) if isinstance(one, TupleNode) else (other, one)
        assert isinstance(first, TupleNode)
        width = max(len(first.items), len(second.items) if isinstance(second, TupleNode) else 0)
        if not self.budget.spend(width):
            return _unknown(one, other)
        nodes = tuple(self.of(_item(first, index), _item(second, index), hops) for index in range(width))
        rest = self.of(
            first.rest or AnyNode(), (second.rest if isinstance(second, TupleNode) else second.items) or AnyNode(), hops
        )
        impossible = next((index for index, node in enumerate(nodes) if isinstance(node, NeverNode)), None)
        if impossible is not None:  # no value is possible there, so the array ends before it
            if low > impossible:
                return NeverNode(at=one.at)
            return replace(first, items=nodes[:impossible], rest=None, min_items=low, max_items=impossible)
        closed = first.rest is None or (isinstance(second, TupleNode) and second.rest is None)
        return replace(first, items=nodes, rest=None if closed else rest, min_items=low, max_items=high)


def _unknown(one: Node, other: Node) -> Node:
    """Return a superset of every intersection; the annotations are kept for the model."""
    return AnyNode(at=one.at, annotations={**other.annotations, **one.annotations})


def _annotated(node: Node, by: Node, *, first: bool = False) -> Node:
    if not by.annotations and not by.unmodelled:
        return node
    annotations = {**node.annotations, **by.annotations} if first else {**by.annotations, **node.annotations}
    return replace(node, annotations=annotations, unmodelled={**by.unmodelled, **node.unmodelled})


def _strings(one: StringNode, other: StringNode) -> Node:
    unmodelled = dict(one.unmodelled)
    pattern, form = one.pattern or other.pattern, one.format or other.format
    if one.pattern and other.pattern and one.pattern != other.pattern:
        unmodelled["allOf"] = [{"pattern": other.pattern}]
    if one.format and other.format and one.format != other.format:
        unmodelled["allOf"] = [*unmodelled.get("allOf", []), {"format": other.format}]
    low, high = max(one.min_length, other.min_length), _least(one.max_length, other.max_length)
    if high is not None and low > high:
        return NeverNode(at=one.at)
    return replace(one, min_length=low, max_length=high, pattern=pattern, format=form, unmodelled=unmodelled)


def _numbers(one: NumberNode, other: NumberNode) -> Node:
    unmodelled = dict(one.unmodelled)
    if one.multiple_of and other.multiple_of and one.multiple_of != other.multiple_of:
        unmodelled["allOf"] = [{"multipleOf": other.multiple_of}]
    return replace(
        one,
        integer=one.integer or other.integer,
        minimum=_most(one.minimum, other.minimum),
        maximum=_least(one.maximum, other.maximum),
        exclusive_minimum=_most(one.exclusive_minimum, other.exclusive_minimum),
        exclusive_maximum=_least(one.exclusive_maximum, other.exclusive_maximum),
        multiple_of=one.multiple_of or other.multiple_of,
        unmodelled=unmodelled,
    )


def _least(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else min(one, other)


def _most(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else max(one, other)


def _item(node: ArrayNode | TupleNode, index: int) -> Node:
    if isinstance(node, ArrayNode):
        return node.items or AnyNode()
    return node.items[index] if index < len(node.items) else node.rest or NeverNode()
