"""Estimate how much one token can lengthen the shortest end of an output: the largest value that it may begin.

Separate because it reads schemas, while `closing` works on any grammar.
"""

from __future__ import annotations

from ..ir.pointer import JSON, Object
from ..ir.text import dumps
from ..schema.validation.patterns import match_cost
from .tokenizer import MaskTokenizer

__all__ = ["largest_step"]

_LEAST = 6
_MOST = 200
_FORMAT = 40
_MAX_DEPTH = 12
_MAX_VISITS = 4_000
_SUBWORD_VOCABULARY = 2_000


def largest_step(schema: Object, tokenizer: MaskTokenizer) -> tuple[int, frozenset[bytes]]:
    """Return the number of tokens, estimated from constants, keys and minimum lengths, and the required names."""
    estimate = _Estimate(schema.get("$defs", {}))
    estimate.measure(schema, 0)
    per_token = 2 if tokenizer.vocabulary_size > _SUBWORD_VOCABULARY else 1
    return max(_LEAST, min(estimate.largest // per_token, _MOST)), frozenset(estimate.required)


class _Estimate:
    """The largest smallest value, in bytes, of all subschemas visited so far."""

    __slots__ = ("_defs", "_left", "_open", "largest", "required")

    def __init__(self, definitions: Object) -> None:
        self._defs = definitions
        self._left = _MAX_VISITS
        self._open: set[str] = set()
        self.largest = 0
        self.required: set[bytes] = set()

    def measure(self, schema: JSON, depth: int) -> int:
        """Return the bytes of a smallest value, and remember the largest one."""
        self._left -= 1
        if type(schema) is not dict or depth > _MAX_DEPTH or self._left < 0:
            return 2
        size = self._measure(schema, depth)
        self.largest = max(self.largest, size)
        return size

    def _measure(self, schema: Object, depth: int) -> int:
        sizes = [self._constant_size(schema), self._string_size(schema)]
        sizes += [self.measure(branch, depth + 1) for key in ("anyOf", "allOf") for branch in schema.get(key, ())]
        ref = schema.get("$ref")
        if ref is not None and ref not in self._open:
            self._open.add(ref)
            sizes.append(self.measure(self._defs.get(ref.rpartition("/")[2]), depth + 1))
            self._open.discard(ref)
        sizes.append(self._object_size(schema, depth))
        first = [self.measure(one, depth + 1) + 2 for one in schema.get("prefixItems", ())]
        rest = self.measure(schema["items"], depth + 1) + 2 if "items" in schema else 4
        sizes.append(
            2 + sum(first[: schema.get("minItems", 0)]) + rest * max(schema.get("minItems", 0) - len(first), 0)
        )
        return max(sizes)

    def _constant_size(self, schema: Object) -> int:
        values = [schema["const"]] if "const" in schema else schema.get("enum", ())
        return max((len(dumps(value)) for value in values[:_MAX_VISITS]), default=2)

    def _string_size(self, schema: Object) -> int:
        length: int = schema.get("minLength", 0)
        pattern = min(match_cost(schema["pattern"]), 4 * _MOST) if "pattern" in schema else 0
        return 2 + length + pattern + (_FORMAT if "format" in schema else 0)

    def _object_size(self, schema: Object, depth: int) -> int:
        """Return the size with all required properties; an optional one may be begun in addition."""
        needed, optional = 2, 0
        required = schema.get("required", ())
        for name, one in schema.get("properties", {}).items():
            size = len(name) + 6 + self.measure(one, depth + 1)
            if name in required:
                needed += size
                self.required.add(name.encode("utf-8", "replace"))
            else:
                optional = max(optional, size)
        self.largest = max(self.largest, optional)
        return needed
