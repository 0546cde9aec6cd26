"""Unwrap arguments with one layer too many: JSON in a string, or under `arguments`, `parameters`, `args`, `input`.

Unwrapping is lossless: it happens only where the wrapped form does not fit the schema and the unwrapped one does.
"""

from __future__ import annotations

from ..ir.errors import BrokenJSON
from ..ir.pointer import JSON, child_pointer, join
from ..stream.repair import repair_json
from .coerce import coercion_budget, resolve_refs
from .fits import RefResolver, fits
from .nodes import ArrayNode, Node, ObjectNode, TupleNode, UnionNode
from .step_budget import StepBudget
from .steps import RepairStep

__all__ = ["unwrap", "unwrap_members"]

_ALIASES = ("arguments", "parameters", "args", "input")
_MAX_LAYERS = 4
_DEPTH = 64


def unwrap(root: Node, value: JSON, target: RefResolver) -> tuple[JSON, tuple[RepairStep, ...]]:
    """Return the arguments without their wrapping, and the steps that removed it."""
    steps: list[RepairStep] = []
    root = resolve_refs(root, target)
    for _ in range(_MAX_LAYERS):
        inner = _unwrap_once(root, value)
        if inner is None:
            break
        value, step = inner
        steps.append(step)
    return value, tuple(steps)


def unwrap_members(root: Node, value: JSON, target: RefResolver) -> tuple[JSON, tuple[RepairStep, ...]]:
    """Parse the objects and lists that the arguments contain as text."""
    members = _MemberUnwrapper(target, coercion_budget(value))
    return members.unwrap(root, value, "", 0), tuple(members.steps)


def _unwrap_once(root: Node, value: JSON) -> tuple[JSON, RepairStep] | None:
    """Remove one layer; None if there is none. An alias that the schema declares as a property is not a layer."""
    if type(value) is str:  # arguments are never text
        inner = _parse_container(value)
        return None if inner is None else (inner, RepairStep("unwrapped_text"))
    if type(value) is not dict or len(value) != 1 or not isinstance(root, ObjectNode) or root.others is not None:
        return None
    ((key, inner),) = value.items()
    if key not in _ALIASES or key in root.properties or not root.properties:
        return None
    if type(inner) is str:
        inner = _parse_container(inner)
    known = type(inner) is dict and (inner.keys() <= root.properties.keys() or _unwrap_once(root, inner) is not None)
    return (inner, RepairStep("unwrapped_alias", join(key))) if known else None


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
            inner = _parse_container(value)
            if inner is not None and fits(node, inner, self._target, self._budget):
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
    pending, seen = [node], set[int]()
    while pending:
        item = resolve_refs(pending.pop(), target)
        if isinstance(item, (ObjectNode, ArrayNode, TupleNode)):
            return True
        if isinstance(item, UnionNode) and id(item) not in seen:  # a union may refer to itself
            seen.add(id(item))
            pending += item.branches
    return False


def _parse_container(text: str) -> JSON:
    """Parse the object or list in `text`, or return None. It is not truncated: the string around it is closed."""
    try:
        value = repair_json(text, finished=False).value
    except BrokenJSON:
        return None
    return value if type(value) in (dict, list, str) else None
