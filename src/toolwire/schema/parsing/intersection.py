"""Intersect two schema nodes: `allOf`, and keywords beside a combinator or a reference.

Unions multiply: intersecting n unions of m branches gives m**n combinations. Every node produced is therefore counted
against one budget for the whole schema. When it is exhausted, the result is `AnyNode`, which accepts every value of the
true intersection; the caller reports it, and the validator still checks the original schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce

from msgspec.structs import replace

from ...ir.pointer import Object
from ..bounds import StepBudget
from .membership import RefResolver, fits, text_matches
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
    annotate,
    is_free,
)

# a definition that names another needs two; one that contains itself would be expanded forever
_MAX_HOPS = 2
_MAX_BRANCHES = 100  # pairs of two unions; all become branches of the result. More is kept as an unmodelled `allOf`
_MAX_DEPTH = 64  # as DEPTH in parser.py
_COPIED_PER_STEP = 16
"""Dictionary entries that are copied without inspection, in C, at the cost of one step."""
_PATTERNS_PER_STEP = 2
"""Patterns that a key is matched against at the cost of one step."""


class Intersection:
    """The intersections of one schema. `target` resolves references; None while a definition is being read."""

    __slots__ = ("_depth", "_target", "budget")

    def __init__(self, target: RefResolver, budget: StepBudget) -> None:
        self._target = target
        self._depth = 0
        self.budget = budget

    def intersect(self, left: Node, right: Node, hops: int = 0) -> Node:
        """Return a node for the values that both nodes accept. Where annotations differ, `left` takes precedence.

        `hops` counts the references that were followed. Beyond the limits, the budget is set to exhausted, and the
        result accepts any value.
        """
        if isinstance(right, AnyNode):
            return annotate(left, right)
        if isinstance(left, AnyNode):
            return annotate(right, left, override=True)
        if isinstance(left, NeverNode) or isinstance(right, NeverNode):
            return NeverNode(at=left.at)
        if not self.budget.spend() or self._depth > _MAX_DEPTH:
            # too deep counts as exhausted, so that it is reported
            self.budget.remaining = min(self.budget.remaining, -1)
            return _unknown_node(left, right)
        self._depth += 1
        try:
            return self._intersect_kinds(left, right, hops)
        finally:
            self._depth -= 1

    def _intersect_kinds(self, left: Node, right: Node, hops: int) -> Node:
        """Dispatch on the kinds of two nodes, neither of which is Any or Never.

        A product of too many branches is not computed: the right union is then only described.
        """
        if isinstance(left, RefNode) or isinstance(right, RefNode):
            return self._intersect_refs(left, right, hops)
        if isinstance(left, UnionNode) and isinstance(right, UnionNode):
            if len(left.branches) * len(right.branches) > _MAX_BRANCHES:
                return annotate(left, AnyNode(unmodelled={"and": "one of several other schemas"}, at=right.at))
        if isinstance(left, UnionNode):
            return annotate(self._intersect_branches(left, right, hops, first=True), left, override=True)
        if isinstance(right, UnionNode):
            return annotate(self._intersect_branches(right, left, hops, first=False), right)
        if isinstance(left, EnumNode) or isinstance(right, EnumNode):
            return self._intersect_enums(left, right)
        return annotate(self._intersect_same_kind(left, right, hops), right)

    def _intersect_refs(self, left: Node, right: Node, hops: int) -> Node:
        """Intersect with the target of a reference; one that cannot be followed is kept as an unmodelled `allOf`."""
        if isinstance(left, RefNode) and isinstance(right, RefNode) and left.target == right.target:
            return annotate(left, right)
        ref, rest = (left, right) if isinstance(left, RefNode) else (right, left)
        assert isinstance(ref, RefNode)
        found = self._target(ref.target) if hops < _MAX_HOPS else None
        if found is None:  # still being read, or a definition that contains itself
            part = AnyNode(unmodelled={"allOf": [{"$ref": f"#{ref.target}"}]}, at=ref.at, origins={"allOf": ref.at})
            return annotate(annotate(rest, part), ref)
        found = annotate(found, ref, override=True)
        return self.intersect(found, rest, hops + 1) if ref is left else self.intersect(rest, found, hops + 1)

    def _intersect_branches(self, union: UnionNode, right: Node, hops: int, *, first: bool) -> Node:
        """Intersect every branch of `union` with `right`; `first`: the branch comes first."""
        remaining: list[Node] = []
        for branch in union.branches:
            node = self.intersect(branch, right, hops) if first else self.intersect(right, branch, hops)
            if self.budget.exhausted:
                return _unknown_node(union, right)
            if not isinstance(node, NeverNode):
                remaining.append(node)
        if not remaining:
            return NeverNode(at=union.at)
        return remaining[0] if len(remaining) == 1 else replace(union, branches=tuple(remaining))

    def _intersect_enums(self, left: Node, right: Node) -> Node:
        """Keep the values of the enum that fit the other node."""
        enum, rest = (left, right) if isinstance(left, EnumNode) else (right, left)
        assert isinstance(enum, EnumNode)
        values = tuple(value for value in enum.values if fits(rest, value, self._target, self.budget))
        if self.budget.exhausted:  # values that were not checked are kept
            return annotate(enum, rest)
        return annotate(replace(enum, values=values), rest) if values else NeverNode(at=left.at)

    def _intersect_same_kind(self, left: Node, right: Node, hops: int) -> Node:
        """Intersect two nodes of one JSON type; nodes of different types have no common value."""
        if isinstance(left, StringNode) and isinstance(right, StringNode):
            return _intersect_strings(left, right)
        if isinstance(left, NumberNode) and isinstance(right, NumberNode):
            return _intersect_numbers(left, right)
        if isinstance(left, ObjectNode) and isinstance(right, ObjectNode):
            return self._intersect_objects(left, right, hops)
        if isinstance(left, (ArrayNode, TupleNode)) and isinstance(right, (ArrayNode, TupleNode)):
            return self._intersect_arrays(left, right, hops)
        return left if type(left) is type(right) else NeverNode(at=left.at)

    def _intersect_objects(self, left: ObjectNode, right: ObjectNode, hops: int) -> Node:
        """Intersect property by property; a required property without a possible value makes the result Never."""
        unaffected = right.rest is None and not right.closed and not right.patterns
        keys = list(right.properties)
        if not unaffected:  # otherwise a property that only `left` has stays as it is
            keys = [*left.properties, *(key for key in keys if key not in left.properties)]
        copied = len(left.properties) + len(left.required)
        if not self.budget.spend(len(keys) + copied // _COPIED_PER_STEP):
            return _unknown_node(left, right)
        required = left.required | right.required
        properties = dict(left.properties)
        for key in keys:
            node = self._intersect_property(key, left, right, hops)
            if isinstance(node, NeverNode) and key in required:
                return NeverNode(at=left.at)
            properties[key] = node
        rest = self._intersect_rest(left, right, hops)
        is_right = (right.closed and not left.closed) or (left.rest is None and right.rest is not None)
        merged = replace(
            left,
            properties=properties,
            required=required,
            rest=None if isinstance(rest, NeverNode) else rest,
            closed=left.closed or right.closed or isinstance(rest, NeverNode),
            patterns=self._intersect_patterns(left, right, hops),
            origins=_origins(left, right, ["additionalProperties"] if is_right else []),
        )
        if merged.rest is None and not merged.patterns:  # otherwise a forbidden key would be one of the others
            possible = {key: node for key, node in properties.items() if not isinstance(node, NeverNode)}
            return merged if len(possible) == len(properties) else replace(merged, properties=possible)
        return _require_both_patterns(merged, left, right)

    def _intersect_property(self, key: str, left: ObjectNode, right: ObjectNode, hops: int) -> Node:
        """Return the node of a property; `NeverNode` if one side forbids it."""
        left_property, right_property = self._property_node(key, left, hops), self._property_node(key, right, hops)
        if left_property is None:
            return NeverNode() if right_property is None else right_property
        return left_property if right_property is None else self.intersect(left_property, right_property, hops)

    def _property_node(self, key: str, side: ObjectNode, hops: int) -> Node | None:
        """Return the node that one side has for a key; None if it does not constrain the key."""
        if key in side.properties:
            return side.properties[key]
        matching = self.pattern_nodes(key, side.patterns)
        if matching is None:
            return None
        if matching:
            return reduce(lambda first, second: self.intersect(first, second, hops), matching)
        return NeverNode() if side.rest is None and side.closed else side.rest

    def pattern_nodes(self, key: str, patterns: Mapping[str, Node]) -> list[Node] | None:
        """Return the nodes of the patterns that a key matches; None if a pattern cannot be matched here."""
        if not patterns:
            return []
        if not self.budget.spend(1 + len(patterns) // _PATTERNS_PER_STEP):
            return None
        found: list[Node] = []
        for pattern, node in patterns.items():
            match = text_matches(pattern, key, self.budget)
            if match is None:
                return None
            if match:
                found.append(node)
        return found

    def _intersect_rest(self, left: ObjectNode, right: ObjectNode, hops: int) -> Node | None:
        """Return the node of keys that neither side declares. A side that does not mention them does not forbid them.

        An object that declares nothing is any object, but only as long as no other part declares something.
        """
        if left.rest is not None and right.rest is not None:
            if is_free(left) or is_free(right):
                return left.rest if is_free(right) else right.rest
            return self.intersect(left.rest, right.rest, hops)
        opened, silent = (left, right) if left.rest is not None else (right, left)
        if opened.rest is None or silent.closed:
            return None
        if not is_free(opened):
            return opened.rest
        return None if silent.properties or silent.patterns else AnyNode(at=left.at)

    def _intersect_patterns(self, left: ObjectNode, right: ObjectNode, hops: int) -> dict[str, Node]:
        """Return the patterns of both sides. A pattern of one side is subject to `rest` of a side without patterns."""
        found: dict[str, Node] = {}
        for pattern in dict.fromkeys((*left.patterns, *right.patterns)):
            owner, other = (left, right) if pattern in left.patterns else (right, left)
            node = owner.patterns[pattern]
            if pattern in other.patterns:
                node = self.intersect(node, other.patterns[pattern], hops)
            elif not other.patterns and other.rest is not None:
                node = self.intersect(node, other.rest, hops)
            elif not other.patterns and other.closed:
                continue  # `other` allows declared keys only
            found[pattern] = node
        return found

    def _intersect_arrays(self, left: ArrayNode | TupleNode, right: ArrayNode | TupleNode, hops: int) -> Node:
        """Intersect two arrays. If no item can fit both, only the empty array is left, or Never if it is too short."""
        low, high = max(left.min_items, right.min_items), _smaller(left.max_items, right.max_items)
        if high is not None and low > high:
            return NeverNode(at=left.at)
        if isinstance(left, ArrayNode) and isinstance(right, ArrayNode):
            items = left.items if right.items is None else right.items if left.items is None else None
            if left.items is not None and right.items is not None:
                items = self.intersect(left.items, right.items, hops)
                if isinstance(items, NeverNode):
                    return NeverNode(at=left.at) if low else ArrayNode(None, 0, 0, at=left.at)
            origins = _origins(left, right, _stricter_counts(left, right, "Items"))
            return replace(left, items=items, min_items=low, max_items=high, origins=origins)
        return self._intersect_tuples(left, right, low, high, hops)

    def _intersect_tuples(
        self, left: ArrayNode | TupleNode, right: ArrayNode | TupleNode, low: int, high: float | None, hops: int
    ) -> Node:
        """Intersect a tuple with a tuple or an array, position by position; `low` and `high` bound the result's length.

        At a position without a possible value, the array ends, or the result is Never if it must be longer.
        """
        first, second = (left, right) if isinstance(left, TupleNode) else (right, left)
        assert isinstance(first, TupleNode)
        width = max(len(first.items), len(second.items) if isinstance(second, TupleNode) else 0)
        if not self.budget.spend(width):
            return _unknown_node(left, right)
        nodes = tuple(
            self.intersect(_item_node(first, index), _item_node(second, index), hops) for index in range(width)
        )
        rest: Node | None = self.intersect(
            first.rest or AnyNode(), (second.rest if isinstance(second, TupleNode) else second.items) or AnyNode(), hops
        )
        impossible = next((index for index, node in enumerate(nodes) if isinstance(node, NeverNode)), None)
        if impossible is not None:  # no value is possible there, so the array ends before it
            if low > impossible:
                return NeverNode(at=left.at)
            return replace(first, items=nodes[:impossible], rest=None, min_items=low, max_items=impossible)
        closed = first.rest is None or (isinstance(second, TupleNode) and second.rest is None)
        origins = _origins(first, second, _stricter_counts(first, second, "Items"))
        rest = None if closed else rest
        return replace(first, items=nodes, rest=rest, min_items=low, max_items=high, origins=origins)


def _unknown_node(left: Node, right: Node) -> Node:
    """Return a superset of every intersection; the annotations are kept for the model."""
    return AnyNode(at=left.at, annotations={**right.annotations, **left.annotations})


def _origins(left: Node, right: Node, keywords: Iterable[str]) -> dict[str, str]:
    """Return the origins of an intersection at `left.at` in which `keywords` come from `right`."""
    taken = {keyword: right.pointer(keyword) for keyword in keywords}
    return {**left.origins, **taken} if taken else left.origins


def _require_both_patterns(merged: ObjectNode, left: ObjectNode, right: ObjectNode) -> Node:
    """Keep as unmodelled the requirements of one side for keys that match a pattern of the other side only."""
    if left.patterns.keys() == right.patterns.keys() or not (left.patterns and right.patterns):
        return merged
    result: Node = merged
    for side in (left, right):
        origins = {keyword: side.pointer("additionalProperties") for keyword in ("allOf", "and")}
        unmodelled: Object = {}
        if side.closed and side.rest is None:
            keys, patterns = dict.fromkeys(side.properties, True), dict.fromkeys(side.patterns, True)
            part = {"properties": keys, "patternProperties": patterns, "additionalProperties": False}
            unmodelled = {"allOf": [part]}
        elif side.rest is not None and not isinstance(side.rest, AnyNode):
            unmodelled = {"and": "additionalProperties of another schema"}
        result = annotate(result, AnyNode(unmodelled=unmodelled, at=side.at, origins=origins))
    return result


def _intersect_strings(left: StringNode, right: StringNode) -> Node:
    """Intersect two strings; a second pattern or format is kept as an unmodelled `allOf`."""
    low, high = max(left.min_length, right.min_length), _smaller(left.max_length, right.max_length)
    if high is not None and low > high:
        return NeverNode(at=left.at)
    from_right = [*_stricter_counts(left, right, "Length")]
    node: Node = left
    for keyword, mine, other in (("pattern", left.pattern, right.pattern), ("format", left.format, right.format)):
        if other and not mine:
            from_right.append(keyword)
        elif other and mine != other:
            node = annotate(node, _part_of_all(right, keyword, other))
    return replace(
        node,
        min_length=low,
        max_length=high,
        pattern=left.pattern or right.pattern,
        format=left.format or right.format,
        origins=_origins(node, right, from_right),
    )


def _part_of_all(side: Node, keyword: str, value: object) -> Node:
    """Return the unmodelled assertion for a second value of a keyword."""
    origins = {"allOf": side.pointer(keyword)}
    return AnyNode(unmodelled={"allOf": [{keyword: value}]}, at=side.at, origins=origins)


def _stricter_counts(left: Node, right: Node, noun: str) -> list[str]:
    """List the keywords for counts, `min…` and `max…`, whose value comes from `right` only."""
    low, high = f"min_{noun.lower()}", f"max_{noun.lower()}"
    found = [f"min{noun}"] if getattr(right, low) > getattr(left, low) else []
    most = getattr(right, high)
    if most is not None and (getattr(left, high) is None or most < getattr(left, high)):
        found.append(f"max{noun}")
    return found


def _intersect_numbers(left: NumberNode, right: NumberNode) -> Node:
    """Intersect two numbers; a second `multipleOf` is kept as an unmodelled `allOf`."""
    node: Node = left
    if left.multiple_of and right.multiple_of and left.multiple_of != right.multiple_of:
        node = annotate(node, _part_of_all(right, "multipleOf", right.multiple_of))
    bounds = {
        "minimum": _larger(left.minimum, right.minimum),
        "maximum": _smaller(left.maximum, right.maximum),
        "exclusive_minimum": _larger(left.exclusive_minimum, right.exclusive_minimum),
        "exclusive_maximum": _smaller(left.exclusive_maximum, right.exclusive_maximum),
        "multiple_of": left.multiple_of or right.multiple_of,
    }
    from_right = [_NUMBER_KEYWORDS[field] for field, value in bounds.items() if value != getattr(left, field)]
    return replace(
        node,
        integer=left.integer or right.integer,
        format=left.format or right.format,
        origins=_origins(node, right, [*from_right, *(["format"] if right.format and not left.format else [])]),
        **bounds,
    )


_NUMBER_KEYWORDS = {
    "minimum": "minimum",
    "maximum": "maximum",
    "exclusive_minimum": "exclusiveMinimum",
    "exclusive_maximum": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}


def _smaller(left: float | None, right: float | None) -> float | None:
    return right if left is None else left if right is None else min(left, right)


def _larger(left: float | None, right: float | None) -> float | None:
    return right if left is None else left if right is None else max(left, right)


def _item_node(node: ArrayNode | TupleNode, index: int) -> Node:
    if isinstance(node, ArrayNode):
        return node.items or AnyNode()
    return node.items[index] if index < len(node.items) else node.rest or NeverNode()
