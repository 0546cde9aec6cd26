"""Bound the end of an output from its schema: how long it can be, and how much one token can lengthen it.

The shortest end of an output consists of the rest of each open object and array, and of the rest of the open text or
number. A schema bounds these parts:

    rest of an object or array    its required values, which count from the moment it is opened
    rest of a text or number      the rest of its pattern, constant, minimum length or bounds

So a token lengthens the end only by a value that it begins or commits to: an optional property, one more item or key,
a branch of a union, a constant of an enum. `Growth.step` is the largest of them, with the values that the same token
may begin inside of it. `Growth.total` is the sum along the deepest way into the schema; it bounds every end, so an
output with more remaining tokens needs no search at all. A schema without such a deepest way (recursive, or any JSON)
opens a bracket for every level, which is counted while the output is written (`Growth.rate`).

All sizes are in tokens and rounded up. A size that is too large closes an output somewhat early; one that is too small
would leave it open. Where no bound is known, `start(max_tokens=…)` refuses the schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..ir.pointer import JSON, Object
from ..ir.text import dumps
from .growth import LEAST_TEXT, MAX_EXAMPLES, Growth, pattern_examples, pattern_size, unbounded
from .tokenizer import MaskTokenizer

_LEAST = 8  # tokens: a quote, a colon and a value for an open key, and brackets that one token opens
_FORMAT = 40  # tokens of a formatted string; a date-time with its time zone has 35 characters, a UUID 36
_CUT = 2  # tokens: a text that is cut inside a token may have so many tokens more
_SUBWORD_VOCABULARY = 2_000  # byte and character vocabularies are smaller; their tokens are one byte each
_LETTERS = 4  # characters of one token that fills a minimum length, with a vocabulary of subwords
_PASSES = 2  # over the definitions; the second pass knows the size of a recursive definition
_NESTED = 3  # values that one token begins inside each other, such as ` [{"`
_MAX_MULTIPLE = 1_000  # of `multipleOf`: a search tries the digits up to the next multiple
MEMBER = 4
"""Tokens around a member of an object in JSON: a comma, quotes, a colon."""


def estimate_growth(
    schemas: Iterable[Object], tokenizer: MaskTokenizer, *, around: int = 0, separators: int = MEMBER
) -> Growth:
    """Bound the outputs that contain a value of any of these decoding schemas.

    `around` is the number of tokens around the value, and `separators` around each member. Raise TokenLimitError if there is
    a value whose rest is not bounded.
    """
    bounds = _SchemaBounds(tokenizer, separators)
    total = 0
    for schema in schemas:
        try:
            total = max(total, bounds.measure_document(schema).worst)
        except RecursionError:
            raise unbounded("the definitions are nested too deep") from None
    rate = max(1, bounds.container + separators) if bounds.is_recursive else 1
    total += around + _LEAST
    largest = bounds.largest + rate * _NESTED if bounds.is_recursive else bounds.largest
    text_step = max(LEAST_TEXT, bounds.text)
    return Growth(
        max(_LEAST, largest + separators, text_step),
        text_step,
        total,
        rate,
        tuple(bounds.required),
        tuple(bounds.examples)[:MAX_EXAMPLES],
    )


class _Bound(NamedTuple):
    """Tokens of a smallest value, and the most that are left at any place inside a value."""

    size: int
    worst: int


_ANY = _Bound(2, 2)  # brackets inside of it are counted while the output is written
_OF_OBJECTS = frozenset("properties patternProperties additionalProperties required minProperties".split())
_SCALARS = ("string", "number", "integer", "boolean", "null")
_OF_ARRAYS = frozenset("items prefixItems minItems".split())


def _may_be(schema: Object, kind: str, keywords: frozenset[str]) -> bool:
    """Return True for an object or array whose values a keyword describes; others count as any JSON."""
    declared = schema.get("type")
    return kind in declared if declared is not None else not keywords.isdisjoint(schema)


def _is_scalar(schema: JSON) -> bool:
    if type(schema) is not dict:
        return False
    return "const" in schema or "enum" in schema or schema.get("type") in _SCALARS


class _SchemaBounds:
    """Measures subschemas, each definition once per pass, and collects the maxima of all of them.

    `largest` is the largest value that one token may begin or commit to, `text` the longest rest of a text or a number,
    and `container` the largest rest of an object or array.
    """

    __slots__ = (
        "_before",
        "_definitions",
        "_is_subword",
        "_known",
        "_open",
        "_separators",
        "_tokenizer",
        "container",
        "examples",
        "is_recursive",
        "largest",
        "required",
        "text",
    )

    def __init__(self, tokenizer: MaskTokenizer, separators: int) -> None:
        self._tokenizer = tokenizer
        self._is_subword = tokenizer.vocabulary_size > _SUBWORD_VOCABULARY
        self._separators = separators
        self._definitions: Object = {}
        self._known: dict[str, _Bound] = {}
        self._before: dict[str, _Bound] = {}  # the results of the pass before
        self._open: set[str] = set()  # definitions that are measured now
        self.largest = 0
        self.text = 0
        self.examples: dict[bytes, None] = {}
        self.container = 0
        self.is_recursive = False
        self.required: dict[bytes, None] = {}  # in the order of their declaration

    def measure_document(self, schema: Object) -> _Bound:
        """Measure a schema with its definitions."""
        self._definitions = schema.get("$defs", {})
        self._known = {}
        found = self._measure(schema)
        if self._definitions:
            for _ in range(1, _PASSES):
                self._before, self._known = self._known, {}
                found = self._measure(schema)
        return found

    def _measure(self, schema: JSON) -> _Bound:
        """Bound the values of a schema; keywords beside each other are added, and branches count with the largest."""
        if type(schema) is not dict or not schema:
            return _ANY
        constants = [schema["const"]] if "const" in schema else schema.get("enum")
        if constants is not None:
            return self._constants(constants)
        scalar = self._string_rest(schema) + self._number_rest(schema) + 2
        parts = [_Bound(scalar, scalar)]
        if _may_be(schema, "object", _OF_OBJECTS):
            parts.append(self._object(schema))
        if _may_be(schema, "array", _OF_ARRAYS):
            parts.append(self._array(schema))
        parts += map(self._measure, schema.get("allOf", ()))
        if schema.get("anyOf"):
            parts.append(self._union(schema["anyOf"]))
        if "$ref" in schema:
            parts.append(self._definition(schema["$ref"].rpartition("/")[2]))
        found = _Bound(sum(bound.size for bound in parts), sum(bound.worst for bound in parts))
        if type(schema.get("type")) is not str:  # a token may choose the largest type
            self._begin(found)
        return found

    def _union(self, branches: list[JSON]) -> _Bound:
        """Bound the largest branch. A letter of a constant or a pattern may choose between objects or arrays."""
        bounds = [self._measure(branch) for branch in branches]
        containers = [bound.worst for branch, bound in zip(branches, bounds, strict=True) if not _is_scalar(branch)]
        if len(containers) > 1:
            self.text = max(self.text, *containers)
        return _Bound(max(bound.size for bound in bounds), max(map(self._begin, bounds)))

    def _begin(self, bound: _Bound, around: int = 0) -> int:
        """Return the tokens of a value that one token may begin, with the tokens around it."""
        size = around + bound.worst
        self.largest = max(self.largest, size)
        return size

    def _definition(self, name: str) -> _Bound:
        if name in self._open:
            self.is_recursive = True
            size = self._before.get(name, _ANY).size
            return _Bound(size, size)
        if name not in self._known:
            self._open.add(name)
            self._known[name] = self._measure(self._definitions.get(name))
            self._open.discard(name)
        return self._known[name]

    def _constants(self, constants: list[JSON]) -> _Bound:
        """Measure the longest constant: the next letter of a text may choose it."""
        size = 2
        for text in sorted((dumps(value).encode("utf-8", "replace") for value in constants), key=len, reverse=True):
            if len(text) + _CUT <= size:  # a token has at least one byte
                break
            size = max(size, self._text_size(text))
        self.text = max(self.text, size)
        bound = _Bound(size, size)
        if len(constants) > 1:
            self._begin(bound)
        return bound

    def _text_size(self, text: bytes) -> int:
        return len(self._tokenizer.engine.tokenize_bytes(text)) + _CUT

    def _string_rest(self, schema: Object) -> int:
        rest = self._pattern(schema["pattern"]) if "pattern" in schema else 0
        rest += _FORMAT if "format" in schema else 0
        least: int = schema.get("minLength", 0)
        if rest or not self._is_subword:  # a text with a pattern is not filled with long tokens
            rest += least
        else:
            rest = least // _LETTERS + min(least, _LETTERS)
        self.text = max(self.text, rest)
        return rest

    def _pattern(self, pattern: str) -> int:
        """Return the longest rest of a pattern, and collect its examples as they are written in JSON."""
        size = pattern_size(pattern)
        for text in pattern_examples(pattern):
            self.examples[dumps(text)[1:-1].encode("utf-8", "replace")] = None
        return size

    def _number_rest(self, schema: Object) -> int:
        """Return the digits of all bounds. Raise TokenLimitError for multiples whose digits a search may not find."""
        multiple = schema.get("multipleOf", 1)
        if multiple > _MAX_MULTIPLE and 10**6 % multiple:
            raise unbounded(f"multipleOf {multiple} is more than {_MAX_MULTIPLE:,}, and no divisor of a million")
        bounds = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
        digits = sum(len(repr(schema[name])) for name in bounds if name in schema)
        self.text = max(self.text, digits)
        return digits

    def _array(self, schema: Object) -> _Bound:
        prefix = [self._measure(item) for item in schema.get("prefixItems", ())]
        other = self._measure(schema["items"]) if "items" in schema else _ANY
        least: int = schema.get("minItems", 0)
        size = sum(bound.size + self._separators for bound in prefix[:least])
        size += (other.size + self._separators) * max(least - len(prefix), 0)
        inside = max(self._begin(bound, self._separators) for bound in (*prefix, other))
        self.container = max(self.container, size)
        return _Bound(size, size + inside)

    def _object(self, schema: Object) -> _Bound:
        """Bound an object with all its required properties, and collect their names."""
        size = inside = 0
        required = set(schema.get("required", ()))
        declared = schema.get("properties", {})
        for name, subschema in declared.items():
            bound = self._measure(subschema)
            key = name.encode("utf-8", "replace")
            around = self._text_size(key) + self._separators
            if name in required:
                size += around + bound.size
                inside = max(inside, bound.worst - bound.size)
                self.required[key] = None
            else:
                inside = max(inside, self._begin(bound, around))
        other = self._undeclared(schema)
        missing = required.difference(declared)
        for name in (name.encode("utf-8", "replace") for name in schema.get("required", ()) if name in missing):
            size += self._text_size(name) + other
            self.required[name] = None
        size += max(schema.get("minProperties", 0) - len(required), 0) * max(other, 2 * self._separators)
        self.container = max(self.container, size)
        return _Bound(size, size + max(inside, other))

    def _undeclared(self, schema: Object) -> int:
        """Return the tokens of the largest member whose name is not declared."""
        others = [("", schema["additionalProperties"])] if "additionalProperties" in schema else [("", True)]
        size = 0
        for pattern, subschema in (*schema.get("patternProperties", {}).items(), *others):
            if subschema is not False:
                key = self._pattern(pattern) if pattern else 0
                self.text = max(self.text, key)
                size = max(size, self._begin(self._measure(subschema), key + self._separators))
        return size
