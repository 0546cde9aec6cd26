"""Validate arguments against their schema: all problems at once, each with a message that a model can act on.

jsonschema-rs does the validation, in a bounded time: the cost of alternatives and of patterns is estimated for each
value first, and a check that would cost too much is refused. OpenAPI's `nullable` is translated before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from ...ir.errors import InvalidArguments, SchemaError
from ...ir.pointer import JSON, Object, join
from ...ir.text import dumps, shorten, to_bytes
from ...ir.value import Value
from ...stream.strict import parse
from ..bounds import content_cache, json_size
from ..keywords import copy_schema
from .cost import MAX_VISITS, ValidationCost
from .patterns import (
    MATCH_BUDGET,
    engine_options,
    format_checks,
    match_cost,
    remove_patterns,
    total_size,
    unchecked_patterns,
)

if TYPE_CHECKING:
    import jsonschema_rs


# Estimate the cost of the patterns of a schema on a value, before the engine runs.
#
# The engine is linear in the text, but the factor is the size of the automaton, and a value may be matched with many
# patterns. The sum of both is estimated for each value and compared with a budget.


class PatternCost(ValidationCost):
    """The patterns of one schema."""

    __slots__ = ("_cost_per_character",)
    max_pairs = 200_000
    """Most pairs cost nothing here, because few schemas have patterns; so the limit of units does not bound them."""

    def __init__(self, document: JSON) -> None:
        super().__init__(document)
        schemas = list(self.visits())
        self._cost_per_character = sum(map(_schema_rate, schemas)) if len(schemas) <= MAX_VISITS else MATCH_BUDGET

    def exceeds_budget(self, value: JSON) -> bool:
        """Return True if the patterns may cost more than the budget on this value."""
        # All patterns on all of the text: an upper bound that is cheap, and within the budget for most values.
        if self._cost_per_character * _text_length(value) <= MATCH_BUDGET:
            return False
        return self.cost_of(value, MATCH_BUDGET) >= MATCH_BUDGET

    def _weight(self, schema: Object, value: JSON) -> int:
        """Return the cost of the patterns of one schema on a string, or on the names of an object."""
        if type(value) is str:
            pattern = schema.get("pattern")
            return match_cost(pattern) * len(value) if type(pattern) is str else 0
        patterns = schema.get("patternProperties")
        if type(value) is dict and type(patterns) is dict:
            return sum(map(match_cost, patterns)) * sum(map(len, value))
        return 0


def _schema_rate(schema: Object) -> int:
    """Return the units for one character of a string or name that is matched with this schema."""
    pattern, patterns = schema.get("pattern"), schema.get("patternProperties")
    rate = match_cost(pattern) if type(pattern) is str else 0
    return rate + (sum(map(match_cost, patterns)) if type(patterns) is dict else 0)


def _text_length(value: JSON) -> int:
    """Count the characters of all strings and names in a value, which is not deeper than the validator allows."""
    if type(value) is str:
        return len(value)
    if type(value) is not dict and type(value) is not list:
        return 0
    total = sum(map(len, value)) if type(value) is dict else 0
    for item in value.values() if type(value) is dict else value:
        if type(item) is str:
            total += len(item)
        elif type(item) is dict or type(item) is list:
            total += _text_length(item)
    return total


# Translate OpenAPI's `nullable: true` into JSON Schema.
#
# Only the keyword counts: a property named `nullable`, or the same key in an `enum` or a `default`, is data. The
# possible targets of references stay in place: types and enums are extended there, and only combinators move, into an
# `anyOf` with null.


_COMBINATORS = ("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "then", "else")


def replace_nullable(schema: JSON) -> JSON:
    """Return a copy in which `nullable: true` is replaced by a null type.

    >>> replace_nullable({"type": "string", "nullable": True})
    {'type': ['string', 'null']}
    """
    return copy_schema(schema, _allow_null)


def _allow_null(_: Object, schema: Object) -> Object:
    """Extend a schema with `nullable` by null in place, and remove the keyword."""
    if schema.get("nullable") is not True:
        return schema
    del schema["nullable"]
    kinds = schema.get("type")
    if kinds is not None:
        types = kinds if type(kinds) is list else [kinds]
        schema["type"] = types if "null" in types else [*types, "null"]
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    if type(schema.get("enum")) is list and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]
    combined = {keyword: schema.pop(keyword) for keyword in _COMBINATORS if keyword in schema}
    if combined:
        schema["anyOf"] = [combined, {"type": "null"}]
    return schema


# jsonschema-rs does the validation. It has no access to the network or to files, and gets no documents that are so
# deep that it would crash, or so ambiguous that it would never finish; formats are asserted. Patterns run on an
# engine that is linear in the text, with a budget for each check; a pattern that the engine refuses is a finding of
# the schema, not an error of the arguments.


DEPTH = 64  # as in parsing/parser.py; the engine recurses in native code
MAX_PROBLEMS = 50  # a model corrects a few at a time, and a list of 10,000 items may have one each
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
        """Compile the schema without refused patterns, and prepare the cost estimates that bound each check.

        SchemaError if it is not a valid schema, or nested too deeply.
        """
        if nesting_depth(schema) > DEPTH:
            raise SchemaError(f"the schema is nested deeper than {DEPTH} levels", hint="flatten it or use $ref")
        text = to_bytes(schema)
        unchecked = unchecked_patterns(schema) if b'"pattern' in text else []
        self.findings = [str(use) for use in unchecked]
        if b'"nullable"' in text:
            schema = replace_nullable(schema)
        if unchecked:
            schema = remove_patterns(schema, frozenset(use.pattern for use in unchecked))
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
        """List the problems, at most fifty; one problem alone if the value is too deep or too expensive to check."""
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
    """Measure the nesting depth of containers, without recursion, and stop beyond the limit."""
    deepest, level = 0, [value]
    while level:
        level = [
            inner
            for outer in level
            if type(outer) is dict or type(outer) is list
            for inner in (outer.values() if type(outer) is dict else outer)
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
    return Problem(path, keyword, shorten(error.message, 300))


def _join_kinds(kinds: JSON) -> str:
    return " or ".join(kinds) if type(kinds) is list else str(kinds)


def _short_value(value: JSON) -> str:
    return shorten(dumps(value), 120)
