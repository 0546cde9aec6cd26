"""Repair a model's arguments so that they match the schema; or return the problems, in messages for the model.

    strict       parse, validate
    safe         … and repair unambiguous errors: of the text (toolwire.stream.repair), then superfluous wrapping
    aggressive   … and guess: readings of broken text, then coercions of values. A reading is used if it is the only one
                 that fits the schema

Each stage is tried only if the ones before it were not enough, and every step is named in the result. Truncated text is
never completed, under any policy. Use `safe` for tools with side effects.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, TypeAlias

from ..ir.errors import BrokenJSON, ConfigError, ProtocolError
from ..ir.pointer import JSON, Object
from ..ir.text import dumps, to_bytes
from ..ir.value import Value
from ..stream.repair import Repaired, interpretations, repair_json
from ..stream.strict import parse, type_label
from .brackets import bracket_placements
from .coerce import Coercion, coercion_budget
from .content_cache import content_cache
from .fits import fits
from .nodes import Node, ObjectNode
from .parse import parse_schema
from .steps import RepairStep
from .unwrap_arguments import unwrap, unwrap_members
from .validate import DEPTH, Problem, Validator, has_large_patterns, nesting_depth, validator

__all__ = ["POLICIES", "Repair", "RepairPolicy", "RepairStep", "repair_arguments"]

RepairPolicy: TypeAlias = Literal["strict", "safe", "aggressive"]
_SURROUNDING_STEPS = frozenset({"prose", "surplus_closer"})
MAX_VALUES = 5_000
"""Arguments with more values are validated and not repaired: each value may take 0.05 ms."""
POLICIES: tuple[RepairPolicy, ...] = ("strict", "safe", "aggressive")


class Repair(Value, frozen=True):
    """`arguments` that match the schema, and the steps of the repair; or None, and the problems."""

    arguments: Object | None
    steps: tuple[RepairStep, ...] = ()
    problems: tuple[Problem, ...] = ()


def repair_arguments(given: JSON, schema: JSON, *, policy: RepairPolicy = "safe", finished: bool = True) -> Repair:
    """Repair the text of a model, or a value. `finished`: the model stopped by itself, not at a limit.

    >>> schema = {"type": "object", "properties": {"days": {"type": "integer"}}, "required": ["days"]}
    >>> repair_arguments('{"days": 3,}', schema)
    Repair(arguments={'days': 3}, steps=(RepairStep(name='trailing_comma'),))
    >>> repair_arguments('{"days": "3"}', schema).problems
    (Problem(path='/days', keyword='type', message='expected integer, got "3"'),)
    >>> repair_arguments('{"days": "3"}', schema, policy="aggressive")
    Repair(arguments={'days': 3}, steps=(RepairStep(name='text_to_number', path='/days'),))
    """
    if policy not in POLICIES:
        raise ConfigError(f"unknown policy {policy!r}", hint=f"use one of {', '.join(POLICIES)}")
    content = to_bytes(schema)
    repairer = _large_repairer(content) if has_large_patterns(content) else _repairer(content)
    if type(given) is not str:
        return repairer.from_value(given, (), policy)
    return repairer.from_text(given, policy, finished)


@content_cache(4 * 1024 * 1024)
def _repairer(schema: bytes) -> _Repairer:
    return _Repairer(parse(schema))


_large_repairer = lru_cache(16)(_repairer.uncached)  # like the cache of the validator that it holds


class _Repairer:
    """The stages, for one schema."""

    def __init__(self, schema: JSON) -> None:
        source = parse_schema(schema)
        self._root: Node = source.root
        self._target = source.defs.get
        self._validator: Validator = validator(schema)

    def from_text(self, text: str, policy: RepairPolicy, finished: bool) -> Repair:
        """Parse and repair text, then its value. `aggressive` tries other readings, but not of truncated text."""
        if not text or text.isspace():
            return self.from_value({}, (), policy)  # models call a tool without parameters like this
        if policy == "strict":
            try:
                return self.from_value(parse(text), (), policy)
            except ProtocolError as error:
                return _refused_repair(error)
        try:
            found = repair_json(text, finished=finished)
        except BrokenJSON as error:
            if policy == "safe" or error.reason == "truncated":
                return _refused_repair(error)
            return self._repair_by_interpretation(text, finished, error)
        ambiguity = self._schema_ambiguity(found)
        if ambiguity is not None:
            return Repair(None, _repair_steps(found), (ambiguity,))
        return self.from_value(found.value, _repair_steps(found), policy)

    def _schema_ambiguity(self, found: Repaired) -> Problem | None:
        """Return a problem of a repaired text that only the schema reveals; None if there is none."""
        if not _SURROUNDING_STEPS.isdisjoint(found.steps) and not self._has_known_names(found.value):
            message = (
                "there is text around the object, and it does not match the schema; write one object and nothing else"
            )
            return Problem("", "invalid", message)
        if any(
            self._accepts(candidate) and fits(self._root, candidate, self._target)
            for candidate in bracket_placements(found)
        ):
            message = "ambiguous: a bracket is missing, at the end or further in; write the whole object again"
            return Problem("", "ambiguous", message)
        return None

    def from_value(self, value: JSON, steps: tuple[RepairStep, ...], policy: RepairPolicy) -> Repair:
        """Unwrap, coerce and validate a value as far as the policy allows; only an invalid value is coerced."""
        if policy == "strict" or nesting_depth(value) > DEPTH or _has_many_values(value):
            return self._validate(value, steps)
        value, new_steps = unwrap(self._root, value, self._target)
        steps += new_steps
        if not self._accepts(value):
            value, new_steps = unwrap_members(self._root, value, self._target)
            steps += new_steps
        if policy == "aggressive" and not self._accepts(value):
            coercion = Coercion(self._target, coercion_budget(value))
            value = coercion.coerce(self._root, value, "")
            steps += tuple(coercion.steps)
        return self._validate(value, steps)

    def _validate(self, value: JSON, steps: tuple[RepairStep, ...]) -> Repair:
        if type(value) is not dict:
            problem = Problem("", "type", f"expected an object with the arguments, got {type_label(value)}")
            return Repair(None, steps, (problem,))
        problems = self._validator.problems(value)
        return Repair(None, steps, problems) if problems else Repair(value, steps)

    def _accepts(self, value: JSON) -> bool:
        return type(value) is dict and self._validator.accepts(value)

    def _has_known_names(self, value: JSON) -> bool:
        """Return True if the schema declares the names; JSON Schema by itself accepts any others."""
        root = self._root
        if type(value) is not dict or not isinstance(root, ObjectNode) or root.others is not None:
            return True
        return value.keys() <= root.properties.keys() or bool(unwrap(root, value, self._target)[1])

    def _repair_by_interpretation(self, text: str, finished: bool, error: BrokenJSON) -> Repair:
        """Use the only reading of broken text that fits the schema; several are a problem that names them."""
        try:
            found = list(interpretations(text, finished=finished))
        except BrokenJSON as too_many:
            return _refused_repair(too_many)
        valid_repairs = [
            Repair(candidate.value, _repair_steps(candidate))
            for candidate in found
            if self._accepts(candidate.value)
            and fits(self._root, candidate.value, self._target)
            and self._schema_ambiguity(candidate) is None
        ] or self._coerce_all(found)
        if len(valid_repairs) == 1:
            return valid_repairs[0]
        if valid_repairs:
            message = " or ".join(dumps(candidate.arguments)[:80] for candidate in valid_repairs[:3])
            problem = Problem(error.pointer, "ambiguous", f"{error.message}; can be read as {message}")
            return Repair(None, (), (problem,))
        return _refused_repair(error)

    def _coerce_all(self, found: list[Repaired]) -> list[Repair]:
        """Coerce every reading, and return the different results that fit."""
        attempts = [
            self.from_value(candidate.value, _repair_steps(candidate), "aggressive")
            for candidate in found
            if self._schema_ambiguity(candidate) is None
        ]
        valid_repairs = [
            candidate
            for candidate in attempts
            if candidate.arguments is not None and fits(self._root, candidate.arguments, self._target)
        ]
        return list({dumps(candidate.arguments): candidate for candidate in valid_repairs}.values())


def _repair_steps(found: Repaired) -> tuple[RepairStep, ...]:
    return tuple(map(RepairStep, found.steps))


def _refused_repair(error: ProtocolError) -> Repair:
    keyword = error.reason if isinstance(error, BrokenJSON) else "json"
    advice = f"; {error.hint}" if error.hint else ""
    return Repair(None, (), (Problem(error.pointer, keyword, f"{error.message}{advice}"),))


def _has_many_values(value: JSON) -> bool:
    """Check whether a value has more than MAX_VALUES values, after at most that number of steps."""
    waiting, count = [value], 0
    while waiting:
        current = waiting.pop()
        if isinstance(current, (dict, list)):
            count += len(current)
            if count > MAX_VALUES:
                return True
            waiting += current.values() if isinstance(current, dict) else current
    return False
