"""Validate arguments against their schema: all problems at once, each with a message that a model can act on.

jsonschema-rs does the validation. It has no access to the network or to files, and gets no documents that are so deep
that it would crash, or so ambiguous that it would never finish; formats are asserted. Patterns run on an engine that is
linear in the text, with a budget for each check; a pattern that the engine refuses is a finding of the schema, not an
error of the arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from ..ir.errors import InvalidArguments, SchemaError
from ..ir.pointer import JSON, join
from ..ir.text import dumps, to_bytes
from ..ir.value import Value
from ..stream.strict import parse
from .content_cache import content_cache
from .formats import format_checks
from .matching import PatternCost
from .nullable import replace_nullable
from .patterns import engine_options
from .step_budget import json_size
from .unchecked import remove_patterns, total_size, unchecked_patterns
from .validation_cost import ValidationCost

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = ["DEPTH", "Problem", "Validator", "has_large_patterns", "nesting_depth", "validator"]

DEPTH = 64
MAX_PROBLEMS = 50
MAX_VALIDATION_COST = 1_000_000
"""Schemas that may be applied to parts of one value: about a quarter of a second."""
MAX_LISTING_COST = 20_000
"""The limit for listing problems: the engine collects one error for every branch that does not match."""
_ALWAYS_CHECKED_COST = 50_000_000
"""Product of the sizes of schema and value below which validation is always fast."""
_UNCHECKED = (
    "cannot be checked: the schema has too many alternatives for arguments of this size; send smaller arguments"
)
_UNLISTED = "does not match the schema; it has too many alternatives to list which part is wrong"
_UNMATCHED = "cannot be checked: the text is too long for the patterns of the schema; shorten it"
_LARGE_PATTERNS = 250_000
"""Bytes of automata. Schemas with more share a small cache, to bound the memory."""


class Problem(Value, frozen=True):
    """One problem of the arguments."""

    path: str
    keyword: str
    message: str

    def __str__(self) -> str:
        return f"{self.path or '/'}: {self.message}"


class Validator:
    """A compiled validator for one schema.

    `findings`: the patterns that are not checked, with pointer and reason. `accepts_scalars`: `accepts` for an object
    whose values are scalars, as in most calls; there is no depth to check.
    """

    __slots__ = ("_check", "_cost", "_matching", "_multiplies", "_refers", "_size", "accepts_scalars", "findings")

    def __init__(self, schema: JSON) -> None:
        """Compile the schema without refused patterns, and prepare the cost estimates that bound each check."""
        if nesting_depth(schema) > DEPTH:
            raise SchemaError(f"the schema is nested deeper than {DEPTH} levels", hint="flatten it or use $ref")
        text = to_bytes(schema)
        unchecked = unchecked_patterns(schema) if b'"pattern' in text else []
        self.findings = [str(one) for one in unchecked]
        if b'"nullable"' in text:
            schema = replace_nullable(schema)
        if unchecked:
            schema = remove_patterns(schema, frozenset(one.pattern for one in unchecked))
        self._size = json_size(schema)
        self._cost = ValidationCost(schema)
        self._refers = b'"$ref"' in text or b'Ref"' in text
        self._multiplies = self._refers and self._cost.has_many_paths()
        self._matching = PatternCost(schema) if b'"pattern' in text else None
        self._check = _compile(schema)
        self.accepts_scalars = _scalar_check(self._check.is_valid, self._matching)

    def accepts(self, value: JSON) -> bool:
        """Return True if the value is valid; False also if it is too deep or too expensive to check."""
        if type(value) is dict:
            for inner in value.values():
                if type(inner) is dict or type(inner) is list:
                    break
            else:
                return self.accepts_scalars(value)
        return nesting_depth(value) <= DEPTH and self._refusal_reason(value) is None and self._check.is_valid(value)

    def _refusal_reason(self, value: JSON) -> str | None:
        """Return a message if validation could block.

        Recursive definitions alone are harmless: the engine caches their results.
        """
        if self._matching is not None and self._matching.exceeds_budget(value):
            return _UNMATCHED
        if not self._multiplies and (
            self._size < _ALWAYS_CHECKED_COST // 1_000_000 or self._size * json_size(value) < _ALWAYS_CHECKED_COST
        ):
            return None
        return _UNCHECKED if self._cost.cost_of(value, MAX_VALIDATION_COST) >= MAX_VALIDATION_COST else None

    def problems(self, value: JSON) -> tuple[Problem, ...]:
        """List the problems, at most fifty."""
        if nesting_depth(value) > DEPTH:
            return (Problem("", "depth", f"nested deeper than {DEPTH}"),)
        if (reason := self._refusal_reason(value)) is not None:
            return (Problem("", "effort", reason),)
        if self._check.is_valid(value):
            return ()
        # without references, the work is bounded by the product of the sizes
        if self._refers or self._size * json_size(value) > MAX_LISTING_COST:
            if self._cost.cost_of(value, MAX_LISTING_COST) >= MAX_LISTING_COST:
                return (Problem("", "effort", _UNLISTED),)
        found: list[Problem] = []
        for error in self._check.iter_errors(value):
            found.append(_make_problem(error))
            if len(found) == MAX_PROBLEMS:
                break
        return tuple(found)

    def check(self, arguments: JSON) -> None:
        """Raise InvalidArguments with all problems, if there are any."""
        found = self.problems(arguments)
        if found:
            summary = "; ".join(map(str, found))
            raise InvalidArguments(summary, pointer=found[0].path, hint="call again with arguments that fit the schema")


def validator(schema: JSON) -> Validator:
    """Return the validator of a schema, compiled once for the same content."""
    content = to_bytes(schema)
    return _validator_cached_large(content) if has_large_patterns(content) else _validator_cached(content)


@content_cache(4 * 1024 * 1024)
def has_large_patterns(content: bytes) -> bool:
    """Return True if the patterns of a schema take so much memory that only few such schemas are cached."""
    return b'"pattern' in content and total_size(parse(content)) > _LARGE_PATTERNS


@content_cache(4 * 1024 * 1024)
def _validator_cached(content: bytes) -> Validator:
    return Validator(parse(content))


_validator_cached_large = lru_cache(16)(_validator_cached.uncached)


def _scalar_check(is_valid: Callable[[JSON], bool], matching: PatternCost | None) -> Callable[[JSON], bool]:
    if matching is None:
        return is_valid
    return lambda value: not matching.exceeds_budget(value) and is_valid(value)


def _compile(schema: JSON) -> jsonschema_rs.Validator:
    """Compile with jsonschema-rs, offline; SchemaError if this is not a valid schema."""
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(
            schema,
            validate_formats=True,
            formats=format_checks(schema),
            offline=True,
            pattern_options=engine_options(),
        )
    except (jsonschema_rs.ReferencingError, ValueError) as error:
        raise SchemaError(f"not a JSON Schema: {error}") from error


def nesting_depth(value: JSON) -> int:
    """Measure the nesting depth of containers, without recursion."""
    deepest, level = 0, [value]
    while level:
        level = [
            inner
            for one in level
            if type(one) is dict or type(one) is list
            for inner in (one.values() if type(one) is dict else one)
        ]
        deepest += 1
        if deepest > DEPTH + 1:
            break
    return deepest


def _make_problem(error: jsonschema_rs.ValidationError) -> Problem:
    """Convert an error of the engine to a message that names the expected and the actual value."""
    path = join(*error.instance_path)
    keyword = error.kind.name
    details = error.kind.as_dict()
    shown_value = _short_value(error.instance)
    if keyword == "required":
        return Problem(path, keyword, f"the property {details['property']!r} is missing")
    if keyword == "type":
        return Problem(path, keyword, f"expected {_join_kinds(details['types'])}, got {shown_value}")
    if keyword == "enum":
        return Problem(path, keyword, f"expected one of {_short_value(details['options'])}, got {shown_value}")
    return Problem(path, keyword, _shorten_message(error.message))


def _shorten_message(message: str) -> str:
    return message if len(message) <= 300 else f"{message[:297]}…"


def _join_kinds(kinds: JSON) -> str:
    return " or ".join(kinds) if type(kinds) is list else str(kinds)


def _short_value(value: JSON) -> str:
    text = dumps(value)
    return text if len(text) <= 120 else f"{text[:117]}…"
