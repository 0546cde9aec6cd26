"""Generate calls from the schema of a tool: valid, boundary, adversarial and invalid ones, the same for the same seed.

Each boundary call changes one value of a valid call, so that a fault names its cause. Some calls change all values at
once (all empty, all zero), because a fault may need two of them, such as an empty interval.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from typing import Literal, TypeAlias

from ...ir.pointer import JSON, Object
from ...ir.text import dumps
from ...ir.value import Value
from ...run.calls.signature import copy_json
from ...schema.parsing.nodes import (
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
from ...schema.parsing.parser import ParsedSchema, parse_schema
from ...schema.validation.validator import Validator
from ..instances import generate_matching, instances
from .strings import INTEGERS, KEYS, NUMBERS, PATH_ATTACKS, PATH_NAMES, SAMPLE_FILES, TEXTS, deep_value

CaseKind: TypeAlias = Literal["example", "valid", "boundary", "invalid"]

_DEPTH = 3  # levels of nested values that are varied
_MAX_ENUM = 12
_MAX_WORDS = 10
_MANY_ITEMS = 200
_WRONG_TYPES: tuple[JSON, ...] = ({"unexpected": [1]}, ["a", {}], "not a number")
"""Values that no coercion makes valid. Many servers accept `"5"` or `true` for a number, and null for an omission."""
_Variation: TypeAlias = tuple[str, JSON]


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

    for example in islice(examples, 10):
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
        if not isinstance(root, ObjectNode):
            return []
        every = {name: self._plain(node, name, 0) for name, node in root.properties.items()}
        return [{name: value for name, value in every.items() if name in root.required}, every]

    def _plain(self, node: Node, name: str, depth: int) -> JSON:
        """Return a common value of a node: its default or first example, a sample file for a path, the number 1."""
        node = self._resolve(node)
        examples = node.annotations.get("examples")
        if isinstance(examples, list) and examples:
            return copy_json(examples[0])
        if node.annotations.get("default") is not None:
            return copy_json(node.annotations["default"])
        if isinstance(node, StringNode):
            return self._plain_text(node, name)
        if isinstance(node, NumberNode):
            return next((value for _, value in _vary_number(node)), 1) if _has_bounds(node) else 1
        if isinstance(node, EnumNode):
            return node.values[0] if node.values else None
        if isinstance(node, UnionNode):
            return self._plain(next(iter(node.branches)), name, depth)
        if isinstance(node, ArrayNode):
            item = AnyNode() if node.items is None else node.items
            return [self._plain(item, name, depth + 1)] * max(1, node.min_items) if depth < _DEPTH else []
        if isinstance(node, TupleNode):
            return [self._plain(item, name, depth + 1) for item in node.items]
        if isinstance(node, ObjectNode):
            return {
                key: self._plain(inner, key, depth + 1)
                for key, inner in node.properties.items()
                if key in node.required
            }
        return False if isinstance(node, BooleanNode) else None if isinstance(node, NullNode) else "sample"

    def _plain_text(self, node: StringNode, name: str) -> str:
        if node.pattern is not None:
            return generate_matching(node.pattern, self._chance)
        if node.format is not None:
            return next(iter(instances({"type": "string", "format": node.format}, count=1)), "sample")
        return _fit_length("notes.txt" if _is_path(name) else "sample", node)

    def vary_call(self, base: Object) -> Iterator[CallCase]:
        """Yield variations of all arguments in turn, then of all arguments at once."""
        root = self._resolve(self._source.root)
        if not isinstance(root, ObjectNode):
            return
        lists = {name: list(self._vary(node, name, 0)) for name, node in root.properties.items()}
        together = self._vary_together(base, lists)
        extra = ((f"key {key!r}", key) for key in KEYS) if root.rest is not None else iter(())
        for row, all_at_once, other in zip_longest(zip_longest(*lists.values()), together, extra):
            for name, variation in zip(lists, row or (), strict=False):
                if variation is not None:
                    yield CallCase("boundary", {**copy_json(base), name: variation[1]}, f"{name}: {variation[0]}")
            if all_at_once is not None:
                yield all_at_once
            if other is not None:
                yield CallCase("boundary", {**copy_json(base), other[1]: "value"}, other[0])

    def _vary_together(self, base: Object, lists: dict[str, list[_Variation]]) -> Iterator[CallCase]:
        if len(lists) < 2:
            return
        for row in islice(zip_longest(*lists.values()), 4):
            values = {
                name: variation[1] for name, variation in zip(lists, row, strict=True) if variation and name in base
            }
            yield CallCase("boundary", {**copy_json(base), **values}, "all arguments at a boundary")

    def _resolve(self, node: Node) -> Node:
        for _ in range(8):
            if not isinstance(node, RefNode):
                break
            found = self._source.root if node.target == "" else self._source.defs.get(node.target)
            node = AnyNode() if found is None else found
        return node

    def _vary(self, node: Node, name: str, depth: int) -> Iterator[_Variation]:
        """Yield labelled values of a node. `name` is the parameter that it belongs to."""
        node = self._resolve(node)
        if isinstance(node, StringNode):
            yield from self._vary_string(node, name)
        elif isinstance(node, NumberNode):
            yield from _vary_number(node)
        elif isinstance(node, BooleanNode):
            yield from (("true", True), ("false", False))
        elif isinstance(node, EnumNode):
            yield from ((f"{value!r}", value) for value in node.values[:_MAX_ENUM])
        elif isinstance(node, NullNode):
            yield "null", None
        elif isinstance(node, ArrayNode):
            yield from self._vary_array(node, name, depth)
        elif isinstance(node, TupleNode):
            yield from self._vary_tuple(node, name, depth)
        elif isinstance(node, ObjectNode):
            yield from self._vary_object(node, depth)
        elif isinstance(node, UnionNode):
            for row in zip_longest(*(list(self._vary(branch, name, depth)) for branch in node.branches)):
                yield from (variation for variation in row if variation is not None)
        else:
            yield from _vary_any()

    def _vary_string(self, node: StringNode, name: str) -> Iterator[_Variation]:
        """Yield strings within the length limits; from the pattern if there is one."""
        if node.pattern is not None:
            for _ in range(5):
                yield "text that matches the pattern", generate_matching(node.pattern, self._chance)
        texts = [*TEXTS[:2], *self._words[:_MAX_WORDS], *TEXTS[2:]]
        if node.min_length:
            yield "shortest text", "a" * node.min_length
        if node.max_length is not None:
            yield "longest text", "é" * min(node.max_length, 100_000)
        paths = [*SAMPLE_FILES, ".", *PATH_ATTACKS] if _is_path(name) else list(PATH_ATTACKS[:3])
        for text, path in zip_longest(texts, paths):
            if text is not None:
                yield _text_label(text), _fit_length(text, node)
            if path is not None:
                yield "a path", path

    def _vary_array(self, node: ArrayNode, name: str, depth: int) -> Iterator[_Variation]:
        item_node = AnyNode() if node.items is None else node.items
        items = list(islice(self._vary(item_node, name, depth + 1), 40)) if depth < _DEPTH else []
        if node.min_items == 0:
            yield "an empty list", []
        low = max(node.min_items, 1)
        high = node.max_items
        for number, (label, item) in enumerate(items):
            yield f"a list with {label}", [item] * low
            if number == 0 and (high is None or high > 1):
                yield "a list with two equal items", [item] * max(low, 2)
                mixed = [value for _, value in items[: max(low, min(high or 8, 8))]]
                yield "a list of different items", mixed
                yield "a long list", [item] * min(high or _MANY_ITEMS, _MANY_ITEMS)

    def _vary_tuple(self, node: TupleNode, name: str, depth: int) -> Iterator[_Variation]:
        if depth >= _DEPTH:
            return
        columns = [list(islice(self._vary(item, name, depth + 1), 12)) for item in node.items]
        for row in zip_longest(*columns):
            filled = [
                column[0][1] if one is None and column else None if one is None else one[1]
                for one, column in zip(row, columns, strict=True)
            ]
            yield "a tuple at a boundary", filled

    def _vary_object(self, node: ObjectNode, depth: int) -> Iterator[_Variation]:
        """Yield the empty object, then one with each variation of each property."""
        if not node.required:
            yield "an empty object", {}
        if depth >= _DEPTH:
            return
        lists = {
            key: list(islice(self._vary(inner, key, depth + 1), 30))
            for key, inner in list(node.properties.items())[:20]
        }
        base = {
            key: self._plain(inner, key, depth + 1) for key, inner in node.properties.items() if key in node.required
        }
        yield "only the required keys", base
        for row in zip_longest(*lists.values()):
            for key, variation in zip(lists, row, strict=True):
                if variation is not None:
                    yield f"{key}: {variation[0]}", {**copy_json(base), key: variation[1]}
        if node.rest is not None:
            inner = next(iter(self._vary(node.rest, "", depth + 1)), ("", "value"))[1]
            for key in KEYS:
                yield f"the key {key[:20]!r}", {**copy_json(base), key: inner}
            yield "many keys", {**copy_json(base), **{f"key{number}": inner for number in range(_MANY_ITEMS)}}


def _vary_number(node: NumberNode) -> Iterator[_Variation]:
    """Yield the bounds and their neighbours, then numbers that programs often do not expect. The validator selects."""
    step = node.multiple_of or 1
    for bound, sign in ((node.minimum, 1), (node.maximum, -1)):
        if bound is not None:
            exact = int(bound) if node.integer else bound
            yield f"the bound {bound:g}", exact
            yield f"next to the bound {bound:g}", exact + sign * step
    for bound, sign in ((node.exclusive_minimum, 1), (node.exclusive_maximum, -1)):
        if bound is not None:
            yield f"next to the bound {bound:g}", (int(bound) if node.integer else bound) + sign * step
    for value in INTEGERS if node.integer else NUMBERS:
        yield f"{value}", value if node.multiple_of is None else value * node.multiple_of


def _has_bounds(node: NumberNode) -> bool:
    return any(
        bound is not None
        for bound in (node.minimum, node.maximum, node.exclusive_minimum, node.exclusive_maximum, node.multiple_of)
    )


def _is_path(name: str) -> bool:
    return any(part in name.lower() for part in PATH_NAMES)


def _vary_any() -> Iterator[_Variation]:
    yield from (("null", None), ("an empty object", {}), ("an empty list", []), ("zero", 0), ("empty text", ""))
    yield "deeply nested", deep_value(40)
    yield from ((_text_label(text), text) for text in TEXTS[1:8])


def _fit_length(text: str, node: StringNode) -> str:
    """Extend or cut a text to the allowed length."""
    if len(text) < node.min_length:
        text += "a" * (node.min_length - len(text))
    return text if node.max_length is None else text[: node.max_length]


def _text_label(text: str) -> str:
    return f"text of {len(text):,} characters" if len(text) > 60 else f"{text!r}"
