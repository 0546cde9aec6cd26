"""Generate calls from the schema of a tool: valid, boundary, adversarial and invalid ones, the same for the same seed.

Each boundary call changes one value of a valid call, so that a fault names its cause. Some calls change all values at
once (all empty, all zero), because a fault may need two of them, such as an empty interval.

The values are enumerated in the order of their tables, not drawn at random: 60 calls must contain the most useful ones.
Hypothesis was tried (6.170, strategies over the same tables, a schema with two texts and a bounded integer): it draws
with replacement, so that 60 examples contained 6.5 of the first 12 texts on average of 20 seeds, instead of all 12, and
a tool that fails for "²" only was found with 2 of 5 seeds. It does not shrink explicit examples, its draws for a seed
differ between its versions, and `toolwire test` needs no extra.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from typing import Any, Literal, TypeAlias, TypeVar

from ...ir.pointer import JSON, Object
from ...ir.text import dumps
from ...ir.value import Value
from ...run.calls.signature import copy_json
from ...schema.parsing import nodes
from ...schema.parsing.parser import ParsedSchema, parse_schema
from ...schema.validation.validator import Validator
from ..instances import generate_matching, instances
from .strings import INTEGERS, KEYS, NUMBERS, PATH_ATTACKS, PATH_NAMES, SAMPLE_FILES, TEXTS, deep_value

CaseKind: TypeAlias = Literal["example", "valid", "boundary", "invalid"]

# The numbers below are enough for calls that differ; none is measured. A run has 60 calls of a tool (--cases), so that
# more values of one kind would only displace others.
_DEPTH = 3  # levels of nested values that are varied: an object in a list in an argument
_MAX_EXAMPLES = 10  # a sixth of --cases
_MAX_ENUM = 12  # most enumerations are shorter
_MAX_WORDS = 10  # before the other texts, which have 40
_MAX_NESTED = 40  # values of an item or a nested property: the variations multiply with each level
_MAX_TOGETHER = 4  # calls with all arguments changed: the first values are empty, zero, or at a bound
_MAX_REFS = 8  # a chain of references ends, even if it is a cycle
_MATCHING_TEXTS = 5  # they differ only by chance
_MANY_ITEMS = 200  # shows quadratic time, and still fits into a request
_MAX_LENGTH = 100_000  # a schema may allow gigabytes
_DEEP = 40  # below Python's limit of 1,000 frames, also with several frames for each level
_WRONG_TYPES: tuple[JSON, ...] = ({"unexpected": [1]}, ["a", {}], "not a number")
"""Values that no coercion makes valid. Many servers accept `"5"` or `true` for a number, and null for an omission."""
_PLAIN_VALUES: dict[type[nodes.Node], JSON] = {nodes.BooleanNode: False, nodes.NullNode: None}
VariedType = TypeVar("VariedType")


class CallCase(Value, frozen=True):
    """One generated call. `label` names the changed location and is "" for a random valid call."""

    kind: CaseKind
    arguments: Object
    label: str = ""


def generate_cases(
    schema: Object, *, seed: str = "", count: int = 60, examples: Iterable[Object] = (), words: Sequence[str] = ()
) -> list[CallCase]:
    """Return up to `count` different calls that the schema accepts: examples, random ones, then boundaries.

    `words` are texts that the tool may know, such as the keys of a table.
    """
    check = Validator(schema)
    found: dict[str, CallCase] = {}

    def add(case: CallCase) -> None:
        if len(found) < count and check.accepts(case.arguments):
            found.setdefault(dumps(case.arguments), case)

    for example in islice(examples, _MAX_EXAMPLES):
        add(CallCase("example", example))
    generator = _BoundaryGenerator(parse_schema(schema), random.Random(seed), words)
    plain = [arguments for arguments in generator.plain_calls() if check.accepts(arguments)]
    for arguments in (*plain, *instances(schema, seed=seed, count=max(4, count // 5), validator=check)):
        add(CallCase("valid", arguments))
    for base in plain or [case.arguments for case in list(found.values())[:2]]:
        for case in generator.vary_call(base):
            add(case)
    return list(found.values())


def generate_invalid(schema: Object, valid: Object) -> Iterator[CallCase]:
    """Yield calls that the schema rejects: a missing or an additional argument, and values of a wrong type."""
    check = Validator(schema)
    candidates: list[CallCase] = []
    for name in schema.get("required") or ():
        without = {key: value for key, value in valid.items() if key != name}
        candidates.append(CallCase("invalid", without, f"without {name}"))
        candidates.append(CallCase("invalid", {**valid, name: None}, f"{name} is null"))
    candidates.append(CallCase("invalid", {**valid, "unexpected_argument": 1}, "additional argument"))
    for name in schema.get("properties") or {}:
        for wrong in _WRONG_TYPES:
            candidates.append(CallCase("invalid", {**valid, name: wrong}, f"{name} of a wrong type"))
    return (case for case in candidates if not check.accepts(case.arguments))


class _BoundaryGenerator:
    """Generates variations of the values of one schema."""

    def __init__(self, source: ParsedSchema, chance: random.Random, words: Sequence[str]) -> None:
        self._source = source
        self._words = words
        self._chance = chance

    def plain_calls(self) -> list[Object]:
        """Return two calls with common values, which a tool probably accepts: required arguments only, and all."""
        root = self._resolve(self._source.root)
        if not isinstance(root, nodes.ObjectNode):
            return []
        every = {name: self._plain(node, name, 0) for name, node in root.properties.items()}
        return [{name: value for name, value in every.items() if name in root.required}, every]

    def _plain(self, node: nodes.Node, name: str, depth: int) -> JSON:
        """Return a common value of a node: its first example or default, a sample file for a path, the number 1."""
        node = self._resolve(node)
        examples = node.annotations.get("examples")
        if isinstance(examples, list) and examples:
            return copy_json(examples[0])
        if node.annotations.get("default") is not None:
            return copy_json(node.annotations["default"])
        match node:
            case nodes.StringNode():
                return self._plain_text(node, name)
            case nodes.NumberNode():
                return next(_vary_number(node)) if _has_bounds(node) else 1
            case nodes.EnumNode():
                return node.values[0] if node.values else None
            case nodes.UnionNode():
                return self._plain(next(iter(node.branches)), name, depth)
            case nodes.ArrayNode():
                if depth >= _DEPTH:
                    return []
                return [self._plain(node.items or nodes.AnyNode(), name, depth + 1)] * max(1, node.min_items)
            case nodes.TupleNode():
                return [self._plain(item, name, depth + 1) for item in node.items]
            case nodes.ObjectNode():
                return self._plain_object(node, depth)
        return _PLAIN_VALUES.get(type(node), "sample")

    def _plain_object(self, node: nodes.ObjectNode, depth: int) -> Object:
        return {
            key: self._plain(inner, key, depth + 1) for key, inner in node.properties.items() if key in node.required
        }

    def _plain_text(self, node: nodes.StringNode, name: str) -> str:
        if node.pattern is not None:
            return generate_matching(node.pattern, self._chance)
        if node.format is not None:
            return next(iter(instances({"type": "string", "format": node.format}, count=1)), "sample")
        return _fit_length("notes.txt" if _is_path(name) else "sample", node)

    def vary_call(self, base: Object) -> Iterator[CallCase]:
        """Yield variations of all arguments in turn, and of all arguments at once."""
        root = self._resolve(self._source.root)
        if isinstance(root, nodes.ObjectNode):
            for change in self._changes(root, base, 0):
                location = next(iter(change)) if len(change) == 1 else "all arguments at a boundary"
                yield CallCase("boundary", {**copy_json(base), **change}, location)

    def _changes(self, node: nodes.ObjectNode, base: Object, depth: int) -> Iterator[Object]:
        """Yield changed properties of an object: each property in turn, all of `base` at once, and undeclared keys."""
        limit = _MAX_NESTED if depth else None
        columns = [
            [{key: value} for value in islice(self._vary(inner, key, depth), limit)]
            for key, inner in islice(node.properties.items(), limit)
        ]
        if len(columns) > 1:
            rows = list(islice(zip_longest(*columns), _MAX_TOGETHER))
            columns.append([{k: v for change in row if change for k, v in change.items() if k in base} for row in rows])
        if node.rest is not None:
            columns.append([{key: self._plain(node.rest, "", depth)} for key in KEYS])
        return _take_turns(columns)

    def _resolve(self, node: nodes.Node) -> nodes.Node:
        for _ in range(_MAX_REFS):
            if not isinstance(node, nodes.RefNode):
                break
            node = (self._source.root if node.target == "" else self._source.defs.get(node.target)) or nodes.AnyNode()
        return node

    def _vary(self, node: nodes.Node, name: str, depth: int) -> Iterator[JSON]:
        """Yield values of a node. `name` is the parameter that it belongs to."""
        match self._resolve(node):
            case nodes.StringNode() as text:
                return self._vary_string(text, name)
            case nodes.NumberNode() as number:
                return _vary_number(number)
            case nodes.BooleanNode():
                return iter((True, False))
            case nodes.EnumNode(values=values):
                return iter(values[:_MAX_ENUM])
            case nodes.NullNode():
                return iter((None,))
            case nodes.ArrayNode() as array:
                return self._vary_array(array, name, depth)
            case nodes.TupleNode() as row:
                return self._vary_tuple(row, name, depth)
            case nodes.ObjectNode() as record:
                return self._vary_object(record, depth)
            case nodes.UnionNode(branches=branches):
                return _take_turns([self._vary(branch, name, depth) for branch in branches])
        return iter((None, {}, [], 0, "", deep_value(_DEEP), *TEXTS[1:8]))

    def _vary_string(self, node: nodes.StringNode, name: str) -> Iterator[str]:
        """Yield strings within the length limits; from the pattern if there is one."""
        if node.pattern is not None:
            yield from (generate_matching(node.pattern, self._chance) for _ in range(_MATCHING_TEXTS))
        if node.min_length:
            yield "a" * node.min_length
        if node.max_length is not None:
            yield "é" * min(node.max_length, _MAX_LENGTH)
        texts = [*TEXTS[:2], *self._words[:_MAX_WORDS], *TEXTS[2:]]
        paths = [*SAMPLE_FILES, ".", *PATH_ATTACKS] if _is_path(name) else PATH_ATTACKS[:3]
        yield from _take_turns([(_fit_length(text, node) for text in texts), paths])

    def _vary_array(self, node: nodes.ArrayNode, name: str, depth: int) -> Iterator[list[JSON]]:
        """Yield arrays at the bounds of their length: empty, shortest, with different items, with equal items, long."""
        varied = self._vary(node.items or nodes.AnyNode(), name, depth + 1) if depth < _DEPTH else ()
        items = list(islice(varied, _MAX_NESTED))
        if node.min_items == 0:
            yield []
        low, high = max(node.min_items, 1), node.max_items
        for number, item in enumerate(items):
            yield [item] * low
            if number == 0 and (high is None or high > 1):
                yield [item] * max(low, 2)
                yield items[: max(low, min(high or 8, 8))]
                yield [item] * min(high or _MANY_ITEMS, _MANY_ITEMS)

    def _vary_tuple(self, node: nodes.TupleNode, name: str, depth: int) -> Iterator[list[JSON]]:
        """Vary all items of a tuple at once; an item with fewer values starts again."""
        columns = [list(islice(self._vary(item, name, depth + 1), _MAX_ENUM)) for item in node.items]
        for number in range(max(map(len, columns), default=0) if depth < _DEPTH else 0):
            yield [column[number % len(column)] if column else None for column in columns]

    def _vary_object(self, node: nodes.ObjectNode, depth: int) -> Iterator[Object]:
        """Yield the empty object, then one with each variation of each property."""
        if not node.required:
            yield {}
        if depth >= _DEPTH:
            return
        base = self._plain_object(node, depth)
        yield base
        if node.rest is not None:
            value = self._plain(node.rest, "", depth + 1)
            yield {**copy_json(base), **{f"key{number}": value for number in range(_MANY_ITEMS)}}
        for change in self._changes(node, base, depth + 1):
            yield {**copy_json(base), **change}


def _take_turns(columns: Iterable[Iterable[VariedType]]) -> Iterator[VariedType]:
    """Yield the first item of each column, then the second ones: a small number of calls then varies everything."""
    missing: Any = object()
    for row in zip_longest(*columns, fillvalue=missing):
        yield from (item for item in row if item is not missing)


def _vary_number(node: nodes.NumberNode) -> Iterator[float]:
    """Yield the bounds and their neighbours, then numbers that programs often do not expect. The validator selects."""
    step = node.multiple_of or 1
    exact: Callable[[float], float] = int if node.integer else lambda bound: bound
    for bound, sign in ((node.minimum, 1), (node.maximum, -1)):
        if bound is not None:
            yield from (exact(bound), exact(bound) + sign * step)
    for bound, sign in ((node.exclusive_minimum, 1), (node.exclusive_maximum, -1)):
        if bound is not None:
            yield exact(bound) + sign * step
    for value in INTEGERS if node.integer else NUMBERS:
        yield value if node.multiple_of is None else value * node.multiple_of


def _has_bounds(node: nodes.NumberNode) -> bool:
    bounds = (node.minimum, node.maximum, node.exclusive_minimum, node.exclusive_maximum, node.multiple_of)
    return any(bound is not None for bound in bounds)


def _is_path(name: str) -> bool:
    return any(part in name.lower() for part in PATH_NAMES)


def _fit_length(text: str, node: nodes.StringNode) -> str:
    """Extend or cut a text to the allowed length."""
    return text.ljust(node.min_length, "a")[: node.max_length]
