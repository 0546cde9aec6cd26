"""Generate values of a schema, and texts of a regular expression, the same ones for the same seed.

    for value in instances(schema, seed="create_ticket", count=12):
        ...

Keys that a schema does not mention are generated only if it allows them explicitly (`additionalProperties`, a map). The
validator has accepted every value; a schema with contradictions, or one that is hard to match, may give fewer values.
"""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from ..ir.pointer import JSON
from ..schema.parsing import nodes
from ..schema.parsing.membership import RefResolver
from ..schema.parsing.parser import ParsedSchema, parse_schema
from ..schema.validation.patterns import refusal
from ..schema.validation.validator import Validator

_ANY = "abcXYZ019 _-é\n"
_CATEGORIES = {
    "CATEGORY_DIGIT": "0123456789",
    "CATEGORY_WORD": "abcXYZ09_",
    "CATEGORY_SPACE": " \t\n",
    "CATEGORY_NOT_DIGIT": "abc -_",
    "CATEGORY_NOT_WORD": " -!.",
    "CATEGORY_NOT_SPACE": "abc09-",
}


def generate_matching(pattern: str, chance: random.Random) -> str:
    """Generate a text that matches the pattern; a poor guess for a pattern that is refused or cannot be parsed.

    The pattern is only parsed, with Python's parser, and never matched. A refused pattern could require a text of any
    length.
    """
    if refusal(pattern) is not None:
        return "a"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed = re._parser.parse(pattern)  # type: ignore[attr-defined]
    except (re.error, OverflowError, RecursionError):
        return "a"
    return "".join(_generate(parsed, chance))


def _generate(parsed: Iterable[Any], chance: random.Random) -> Iterable[str]:
    """Yield the pieces of a matching text, for each operation of Python's parsed pattern.

    Repetitions are at most three above their minimum; assertions such as ^ add nothing.
    """
    for operation, argument in parsed:
        name = str(operation)
        if name == "LITERAL":
            yield chr(argument)
        elif name == "NOT_LITERAL":
            yield next(char for char in _ANY if ord(char) != argument)
        elif name == "ANY":
            yield chance.choice("abcXYZ019 _-é")
        elif name == "IN":
            yield _choose(argument, chance)
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            low, high, inner = argument
            for _ in range(chance.randint(low, min(int(high), low + 3))):
                yield from _generate(inner, chance)
        elif name == "SUBPATTERN":
            yield from _generate(argument[-1], chance)
        elif name == "ATOMIC_GROUP":
            yield from _generate(argument, chance)
        elif name == "BRANCH":
            yield from _generate(chance.choice(argument[1]), chance)


def _choose(choices: list[Any], chance: random.Random) -> str:
    negated = any(str(operation) == "NEGATE" for operation, _ in choices)
    members = [str(char) for choice in choices for char in _set_members(*choice)]
    if negated:
        members = [char for char in _ANY if char not in members]
    return chance.choice(members or ["a"])


def _set_members(operation: Any, argument: Any) -> Iterable[str]:
    """Return the characters of one member of a character class, at most 61 of a range; none for a negation."""
    name = str(operation)
    if name == "LITERAL":
        return [chr(argument)]
    if name == "RANGE":
        low, high = argument
        return [chr(code) for code in range(low, min(high, low + 60) + 1)]
    if name == "CATEGORY":
        return _CATEGORIES.get(str(argument), "a")
    return []


_DEPTH = 5  # levels; a recursive schema shows its form in fewer, not measured
_SCALARS = (nodes.NullNode, nodes.EnumNode, nodes.StringNode, nodes.NumberNode, nodes.BooleanNode)
_MAX_TRIES = 6  # for a value that the validator accepts; most schemas need a single try
_SAMPLE_STRINGS = ("", "a", "Paris", "hello world", "naïve café", "2", "null", '{"a": 1}', "x" * 40, "line\nbreak")
_FORMATS = {
    "date-time": ("2026-01-31T10:20:30Z", "1999-12-31T23:59:59+02:00"),
    "date": ("2026-01-31", "2000-02-29"),
    "time": ("10:20:30Z", "23:59:59+02:00"),
    "duration": ("P1D", "PT36H"),
    "email": ("a@example.com",),
    "idn-email": ("a@example.com",),
    "hostname": ("example.com",),
    "idn-hostname": ("example.com",),
    "ipv4": ("192.0.2.1",),
    "ipv6": ("2001:db8::1",),
    "uri": ("https://example.com/a?b=c",),
    "url": ("https://example.com/a?b=c",),
    "uri-reference": ("/a/b",),
    "iri": ("https://example.com/a",),
    "uuid": ("123e4567-e89b-12d3-a456-426614174000",),
    "json-pointer": ("/a/0",),
    "regex": ("^a+$",),
    "byte": ("aGk=",),
    "binary": ("hi",),
}


def instances(schema: JSON, *, seed: str = "", count: int = 12, validator: Validator | None = None) -> Iterator[JSON]:
    """Yield up to `count` values that the schema accepts, the same for the same seed.

    A value that the validator rejects is made again, up to `_MAX_TRIES` times. Raises `SchemaError` for an invalid
    schema.
    """
    source = parse_schema(schema)
    check = Validator(schema) if validator is None else validator
    maker = _InstanceGenerator(source, random.Random(seed))
    for _ in range(count):
        for _ in range(_MAX_TRIES):
            value = maker.make(source.root, 0)
            if check.accepts(value):
                yield value
                break


class _InstanceGenerator:
    """Generates random values of the nodes of one schema."""

    def __init__(self, source: ParsedSchema, chance: random.Random) -> None:
        self._chance = chance
        self._target: RefResolver = lambda pointer: source.root if pointer == "" else source.defs.get(pointer)

    def make(self, node: nodes.Node, depth: int) -> JSON:
        """Generate a value of a node. Beyond `_DEPTH`, prefer scalars, so that recursive schemas end."""
        chance = self._chance
        if isinstance(node, nodes.EnumNode):
            return chance.choice(node.values)
        if isinstance(node, nodes.StringNode):
            return self._make_string(node)
        if isinstance(node, nodes.NumberNode):
            return self._make_number(node)
        if isinstance(node, nodes.BooleanNode):
            return chance.random() < 0.5
        if isinstance(node, nodes.ObjectNode):
            return self._make_object(node, depth)
        if isinstance(node, nodes.ArrayNode):
            size = self._random_size(node.min_items, node.max_items, depth)
            return [self.make(node.items or nodes.AnyNode(), depth + 1) for _ in range(size)]
        if isinstance(node, nodes.TupleNode):
            return self._make_tuple(node, depth)
        if isinstance(node, nodes.UnionNode):
            shallow = [branch for branch in node.branches if isinstance(branch, _SCALARS)]
            return self.make(chance.choice(shallow if depth > _DEPTH and shallow else node.branches), depth)
        if isinstance(node, nodes.RefNode):
            found = self._target(node.target)
            return self.make(found if found is not None and depth < 4 * _DEPTH else nodes.NullNode(), depth + 1)
        if isinstance(node, nodes.NullNode):
            return None
        return chance.choice((None, True, 0, 1.5, "text", [1, "a"], {"k": [None]}, {}))

    def _random_size(self, low: int, high: int | None, depth: int) -> int:
        maximum = low if depth > _DEPTH else low + 2
        return self._chance.randint(low, maximum if high is None else min(high, max(maximum, low)))

    def _make_string(self, node: nodes.StringNode) -> str:
        """Generate a string from the pattern, else from the format, else from samples of the right length."""
        if node.pattern is not None:
            return generate_matching(node.pattern, self._chance)
        if node.format in _FORMATS:
            return self._chance.choice(_FORMATS[node.format])
        text = self._chance.choice(_SAMPLE_STRINGS)
        while len(text) < node.min_length:
            text += self._chance.choice("abc xyz0")
        return text if node.max_length is None else text[: node.max_length]

    def _make_number(self, node: nodes.NumberNode) -> float:
        """Generate a number within the bounds, often a bound itself."""
        low = node.minimum if node.minimum is not None else node.exclusive_minimum
        high = node.maximum if node.maximum is not None else node.exclusive_maximum
        if low is None and high is None:
            low, high = -3, 100
        low = low if low is not None else (high or 0) - 10
        high = high if high is not None else low + 50
        step = node.multiple_of or (1 if node.integer else 0.25)
        first = -(-low // step)
        last = high // step
        if last < first:
            return low
        picked = self._chance.choice((first, last, first + 1, self._chance.uniform(first, last)))
        value = max(min(round(picked), last), first) * step
        if node.exclusive_minimum is not None and value <= node.exclusive_minimum:
            value += step
        if node.exclusive_maximum is not None and value >= node.exclusive_maximum:
            value -= step
        return int(value) if node.integer or (value == int(value) and self._chance.random() < 0.5) else value

    def _make_object(self, node: nodes.ObjectNode, depth: int) -> dict[str, JSON]:
        """Generate an object with none, half or all of its optional properties, and some undeclared keys if allowed."""
        chance = self._chance
        likely = 0.0 if depth > _DEPTH else chance.choice((0.0, 0.5, 1.0))
        out: dict[str, JSON] = {}
        for name, inner in node.properties.items():
            if name in node.required or chance.random() < likely:
                out[name] = self.make(inner, depth + 1)
        for pattern, inner in node.patterns.items():
            if depth <= _DEPTH and not isinstance(inner, nodes.NeverNode) and chance.random() < likely:
                out.setdefault(self._make_string(nodes.StringNode(pattern=pattern)), self.make(inner, depth + 1))
        if node.rest is not None and depth <= _DEPTH:
            low = node.unmodelled.get("minProperties", 0) if type(node.unmodelled.get("minProperties")) is int else 0
            for key in chance.sample(("k1", "other key", "x-y", "ключ"), chance.randint(min(low, 3), 3)):
                out.setdefault(key, self.make(node.rest, depth + 1))
        return out

    def _make_tuple(self, node: nodes.TupleNode, depth: int) -> list[JSON]:
        maximum = len(node.items) + (2 if node.rest is not None else 0)
        size = self._chance.randint(
            min(node.min_items, maximum), maximum if node.max_items is None else min(maximum, node.max_items)
        )
        items = [*node.items, *([node.rest] * max(size - len(node.items), 0))]
        return [self.make(inner or nodes.AnyNode(), depth + 1) for inner in items[:size]]
