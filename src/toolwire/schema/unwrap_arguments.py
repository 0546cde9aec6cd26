"""Remove superfluous layers around arguments (toolwire.schema.wrappers), and parse members that hold JSON as text.

Unwrapping is lossless: it happens only where the wrapped form does not fit the schema and exactly one unwrapped form
does. Where none does, layers are removed as long as the names inside are those of parameters, so that the problems that
are reported concern the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TypeAlias

from ..ir.pointer import JSON, child_pointer, join
from .coerce import coercion_budget, resolve_refs
from .fits import RefResolver, fits
from .nodes import ArrayNode, Node, ObjectNode, TupleNode, UnionNode
from .spellings import find_branches, find_spellings, parse_as_written
from .step_budget import StepBudget
from .steps import RepairStep
from .wrappers import may_be_call, parse_container, remove_layer

__all__ = ["Unwrapped", "declared_names", "unwrap", "unwrap_members"]

_MAX_LAYERS = 6
_DEPTH = 64

Unwrapped: TypeAlias = tuple[JSON, tuple[RepairStep, ...]]


def unwrap(
    root: Node, value: JSON, target: RefResolver, accepts: Callable[[JSON], bool], names: Collection[str] = ()
) -> list[Unwrapped]:
    """Return the possible arguments without their layers, or with a name for a bare list; several if ambiguous.

    `accepts` decides whether arguments are valid, `names` are those of the tool, if they are known.
    """
    root = resolve_refs(root, target)
    declared = declared_names(root, target)
    is_free = isinstance(root, ObjectNode) and not root.properties and not root.closed
    layers: list[Unwrapped] = [(value, ())]
    for _ in range(_MAX_LAYERS):
        outer, steps = layers[-1]
        inner = remove_layer(outer, declared, names)
        if inner is None or (is_free and type(outer) is dict):  # any name may be intended
            break
        layers.append((inner[0], (*steps, inner[1])))
    if (len(layers) == 1 and type(value) is not list) or accepts(value):
        return layers[:1]
    valid = [layer for layer in layers[1:] if accepts(layer[0])]
    if isinstance(root, ObjectNode):
        valid += [named for layer in layers for named in _named_lists(root, layer, target) if accepts(named[0])]
    return valid or [_last_known(root, layers)]


def _named_lists(root: ObjectNode, layer: Unwrapped, target: RefResolver) -> Iterator[Unwrapped]:
    """Yield the arguments in which a list without a name is the value of the only parameter with lists.

    That parameter is required, or is the only one: otherwise the items may be the values of the others. An empty list
    may also be an empty object. Objects that may be arguments themselves are several calls, not one list.
    """
    items, steps = layer
    if type(items) is not list or any(
        type(item) is dict and (not root.properties.keys().isdisjoint(item) or may_be_call(item, frozenset()))
        for item in items
    ):
        return
    lists = [name for name, node in root.properties.items() if _accepts_lists(node, target)]
    for name in lists if len(lists) == 1 else ():
        is_meant = root.required == {name} or (len(root.properties) == 1 and bool(items))
        if is_meant and fits(root.properties[name], items, target):
            yield {name: items}, (*steps, RepairStep("named_list", join(name)))


def _last_known(root: Node, layers: list[Unwrapped]) -> Unwrapped:
    """Return the innermost object that has only names of parameters, or the value as it is."""
    if isinstance(root, ObjectNode) and root.others is None and root.properties:
        for inner, steps in reversed(layers):
            if type(inner) is dict and inner.keys() <= root.properties.keys():
                return inner, steps
    return next((layer for layer in layers if type(layer[0]) is dict), layers[-1])


def declared_names(root: Node, target: RefResolver) -> frozenset[str]:
    """Return the names of parameters, also of all branches of a union."""
    declared, pending, seen = set[str](), [root], set[int]()
    while pending:
        node = resolve_refs(pending.pop(), target)
        if isinstance(node, ObjectNode):
            declared |= node.properties.keys()
        elif isinstance(node, UnionNode) and id(node) not in seen:
            seen.add(id(node))
            pending += node.branches
    return frozenset(declared)


def unwrap_members(root: Node, value: JSON, target: RefResolver) -> tuple[JSON, tuple[RepairStep, ...]]:
    """Parse the objects and lists that the arguments contain as text."""
    members = _MemberUnwrapper(target, coercion_budget(value))
    return members.unwrap(root, value, "", 0), tuple(members.steps)


class _MemberUnwrapper:
    """One walk over a value; `steps` are its changes."""

    __slots__ = ("_budget", "_target", "steps")

    def __init__(self, target: RefResolver, budget: StepBudget) -> None:
        self._target = target
        self._budget = budget
        self.steps: list[RepairStep] = []

    def unwrap(self, node: Node, value: JSON, path: str, depth: int) -> JSON:
        """Parse strings that hold an object or a list, where only the parsed form fits the schema."""
        node = resolve_refs(node, self._target)
        if depth > _DEPTH or self._budget.exhausted or fits(node, value, self._target, self._budget):
            return value
        if type(value) is str and _may_hold_container(node, self._target):
            inner = parse_container(value)
            if inner is not None and fits(node, inner, self._target, self._budget):
                if find_spellings(node, inner, parse_as_written(value), self._target).doubtful:
                    return value
                self.steps.append(RepairStep("unwrapped_text", path))
                return inner
        if type(value) is dict and isinstance(node, ObjectNode):
            others = node.others
            return {
                key: item if known is None else self.unwrap(known, item, child_pointer(path, key), depth + 1)
                for key, item in value.items()
                for known in (node.properties.get(key, others),)
            }
        if type(value) is list and isinstance(node, ArrayNode) and node.items is not None:
            items = node.items
            return [self.unwrap(items, item, child_pointer(path, at), depth + 1) for at, item in enumerate(value)]
        return value


def _may_hold_container(node: Node, target: RefResolver) -> bool:
    """Return True if the node accepts an object or a list, directly or in a branch of a union."""
    return any(isinstance(branch, (ObjectNode, ArrayNode, TupleNode)) for branch in find_branches([node], target))


def _accepts_lists(node: Node, target: RefResolver) -> bool:
    return any(isinstance(branch, (ArrayNode, TupleNode)) for branch in find_branches([node], target))
