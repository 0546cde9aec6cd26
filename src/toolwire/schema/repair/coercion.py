"""Coerce values to the types of the schema, with the names of all repair steps.

    "3" where an integer is expected → 3        7 where text is expected → "7"   "x" where a list is expected → ["x"]
    "true" where a boolean is expected → true   "METRIC" for the enum "metric"   null for an optional property → absent
    "yes" where a boolean is expected → true    "null" where null is expected → null, also for an optional property

These are guesses. Each is made only where the schema allows no other interpretation of the value, and only if the
result fits. A value that two branches of a union would coerce differently is left unchanged. Every change records its
path.

The names are stable, because reports and policies rely on them: a step is lossless or guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

from ...ir.errors import ProtocolError
from ...ir.pointer import JSON, child_pointer
from ...ir.text import dumps
from ...ir.value import Value
from ...stream.attempt import GUESSES as _LEXICAL_GUESSES
from ...stream.attempt import LexicalStep
from ...stream.notation import GROUPED_NUMBER
from ...stream.strict import parse
from ..bounds import StepBudget, json_size
from ..parsing.membership import RefResolver, fits, json_equal
from ..parsing.nodes import (
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

# The names of repair steps, lossless or guessed. They are stable: reports and policies rely on them.


_Unwrapping: TypeAlias = Literal[
    "unwrapped_text", "unwrapped_alias", "unwrapped_list", "unwrapped_call", "named_list", "key_spelling"
]
_Coercing: TypeAlias = Literal[
    "text_to_number",
    "text_to_boolean",
    "number_to_text",
    "wrapped_in_list",
    "enum_case",
    "key_case",
    "null_dropped",
    "text_to_null",
]
SchemaStep: TypeAlias = _Unwrapping | _Coercing
_GUESSES = _LEXICAL_GUESSES | frozenset(get_args(_Coercing))


class RepairStep(Value, frozen=True):
    """One step of a repair. `path` is its location; empty for the text as a whole."""

    name: LexicalStep | SchemaStep
    path: str = ""

    @property
    def lossless(self) -> bool:
        """True if the text had no other meaning; False for a guess."""
        return self.name not in _GUESSES

    def __str__(self) -> str:
        return f"{self.name} at {self.path}" if self.path else self.name


_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,400})(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,3})?")
_GROUPED = re.compile(r"-?[1-9][0-9]{0,2}\.[0-9]{3}")  # 1.000 is one, or one thousand
_SEPARATOR = re.compile(r"[,;\n]")
_BOOLEANS = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False}
_NULLS = frozenset({"null", "none"})
_NO_SPELLINGS: Mapping[str, str] = MappingProxyType({})
_MAX_HOPS = 16  # references that lead to references; a cycle must end
_STEPS, _STEPS_PER_VALUE = 20_000, 20  # unions within unions may be tried in very many ways


def resolve_refs(node: Node, target: RefResolver) -> Node:
    """Follow the references of a node; return Any where they cannot be resolved."""
    for _ in range(_MAX_HOPS):
        if not isinstance(node, RefNode):
            return node
        node = target(node.target) or AnyNode()
    return AnyNode()


def coercion_budget(value: JSON) -> StepBudget:
    return StepBudget(_STEPS + json_size(value) * _STEPS_PER_VALUE)


class Coercion:
    """One walk over a value; `steps` are its changes. `spellings`: paths of numbers whose text is not canonical."""

    __slots__ = ("_attempted", "_budget", "_spellings", "_target", "steps")

    def __init__(
        self,
        target: RefResolver,
        budget: StepBudget,
        spellings: Mapping[str, str] = _NO_SPELLINGS,
        attempted: set[tuple[int, int]] | None = None,
    ) -> None:
        self._target = target
        self._spellings = spellings
        self._budget = budget
        self._attempted = set() if attempted is None else attempted  # (union, value): a union may refer to itself
        self.steps: list[RepairStep] = []

    def coerce(self, node: Node, value: JSON, path: str) -> JSON:
        """Return the value coerced to the node; unchanged if it already fits, or if no conversion makes it fit."""
        node = resolve_refs(node, self._target)
        if not self._budget.spend() or self._matches(node, value):
            return value
        if isinstance(node, UnionNode):
            return self._coerce_union(node, value, path)
        if isinstance(node, ObjectNode) and type(value) is dict:
            return self._coerce_object(node, value, path)
        if isinstance(node, (ArrayNode, TupleNode)) and type(value) is list:
            return self._coerce_items(node, value, path)
        if isinstance(node, ArrayNode):
            return self._wrap_in_list(node, value, path)
        if isinstance(node, (NullNode, EnumNode)) and _is_null(value) and self._matches(node, None):
            self._add_step("text_to_null", path)
            return None
        for step, convert in _CONVERSIONS.get(type(node), ()):
            if isinstance(node, EnumNode) and not self._budget.spend(len(node.values)):
                return value
            is_spelled = step == "number_to_text" and path in self._spellings
            changed = self._spellings[path] if is_spelled else convert(node, value)
            if changed is not None and self._matches(node, changed):
                self._add_step(step, path)
                return changed
        return value

    def _matches(self, node: Node, value: JSON) -> bool:
        return fits(node, value, self._target, self._budget)

    def _add_step(self, name: SchemaStep, path: str) -> None:
        self.steps.append(RepairStep(name, path))

    def _coerce_union(self, node: UnionNode, value: JSON, path: str) -> JSON:
        """Coerce to the only result that the branches give; two different results are ambiguous: nothing changes."""
        key = (id(node), id(value))
        if key in self._attempted:
            return value
        self._attempted.add(key)
        found: dict[str, tuple[JSON, list[RepairStep]]] = {}
        for branch in node.branches:
            attempt = Coercion(self._target, self._budget, self._spellings, self._attempted)
            changed = attempt.coerce(branch, value, path)
            if self._matches(branch, changed):
                found.setdefault(dumps(changed), (changed, attempt.steps))
        self._attempted.discard(key)
        if len(found) != 1 or self._budget.exhausted:  # a branch that was not tried may fit as well
            return value
        ((changed, steps),) = found.values()
        self.steps += steps
        return changed

    def _coerce_object(self, node: ObjectNode, value: dict[str, JSON], path: str) -> JSON:
        """Coerce each declared property, and drop a null for an optional property that does not accept null."""
        out: dict[str, JSON] = {}
        others = node.others
        for key, item in value.items():
            known = node.properties.get(key, others)
            if known is None:
                out[key] = item
                continue
            changed = item if item is None else self.coerce(known, item, child_pointer(path, key))
            if key in node.required or not _is_null(changed) or self._matches(known, changed):
                out[key] = changed
            else:
                self._add_step("null_dropped", child_pointer(path, key))
        return out

    def _coerce_items(self, node: ArrayNode | TupleNode, value: list[JSON], path: str) -> JSON:
        """Coerce each item with its node; items without a node are left unchanged."""
        if isinstance(node, ArrayNode):
            nodes: list[Node | None] = [node.items] * len(value)
        else:
            nodes = [*node.items, *([node.rest] * (len(value) - len(node.items)))]
        return [
            item if known is None else self.coerce(known, item, child_pointer(path, index))
            for index, (known, item) in enumerate(zip(nodes, value, strict=False))
        ]

    def _wrap_in_list(self, node: ArrayNode, value: JSON, path: str) -> JSON:
        """Wrap a value in a list.

        Text with separators may itself be a list, and empty text is no item: both are left unchanged.
        """
        if _is_null(value) or value == "" or (type(value) is str and _SEPARATOR.search(value)):
            return value
        spellings = {f"{path}/0": self._spellings[path]} if path in self._spellings else _NO_SPELLINGS
        attempt = Coercion(self._target, self._budget, spellings, self._attempted)
        item = value if node.items is None else attempt.coerce(node.items, value, f"{path}/0")
        if not self._matches(node, [item]):
            return value
        self._add_step("wrapped_in_list", path)
        self.steps += attempt.steps
        return [item]


def _is_null(value: JSON) -> bool:
    """Return True for null and its names as text."""
    return value is None or (type(value) is str and value.strip().casefold() in _NULLS)


def _to_number(node: Node, value: JSON) -> JSON:
    """Parse a string that is exactly a number; None if it would be rounded, or may contain a thousands separator."""
    if type(value) is not str:
        return None
    if GROUPED_NUMBER.fullmatch(value):
        value = value.replace("_", "")
    if _NUMBER.fullmatch(value.strip()) is None:
        return None
    is_fraction = isinstance(node, NumberNode) and not node.integer
    if not is_fraction and _GROUPED.fullmatch(value.strip()):
        return None
    try:
        number = parse(value)
    except ProtocolError:
        return None
    exact = type(number) is int or Decimal(repr(number)) == Decimal(value.strip())
    return number if exact else None


def _to_boolean(_: Node, value: JSON) -> JSON:
    return _BOOLEANS.get(value.strip().casefold()) if type(value) is str else None


def _to_text(_: Node, value: JSON) -> JSON:
    """Convert integers only: 1.10 has already become 1.1."""
    return str(value) if type(value) is int else None


def _to_listed_case(node: Node, value: JSON) -> JSON:
    """Return the enum value that differs only in case or surrounding whitespace, if there is exactly one."""
    assert isinstance(node, EnumNode)
    if type(value) is not str:
        return None
    folded = value.strip().casefold()
    matches = [item for item in node.values if type(item) is str and item.casefold() == folded]
    return matches[0] if len(matches) == 1 else None


def _to_listed_number(node: Node, value: JSON) -> JSON:
    assert isinstance(node, EnumNode)
    number = _to_number(node, value)
    return next((item for item in node.values if number is not None and json_equal(item, number)), None)


def _to_listed_boolean(node: Node, value: JSON) -> JSON:
    assert isinstance(node, EnumNode)
    boolean = _to_boolean(node, value)
    return next((item for item in node.values if type(item) is bool and item is boolean), None)


_Conversion = Callable[[Node, JSON], JSON]
_CONVERSIONS: dict[type, tuple[tuple[SchemaStep, _Conversion], ...]] = {
    NumberNode: (("text_to_number", _to_number),),
    BooleanNode: (("text_to_boolean", _to_boolean),),
    StringNode: (("number_to_text", _to_text),),
    EnumNode: (
        ("enum_case", _to_listed_case),
        ("text_to_number", _to_listed_number),
        ("text_to_boolean", _to_listed_boolean),
        ("number_to_text", _to_text),
    ),
}
