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
from .envelope import unwrap, unwrap_members
from .fits import fits
from .nodes import Node, ObjectNode
from .read import parse_schema
from .steps import RepairStep
from .validate import DEPTH, Problem, Validator, depth_of, has_large_patterns, validator

__all__ = ["POLICIES", "Repair", "RepairPolicy", "RepairStep", "repair_arguments"]

RepairPolicy: TypeAlias = Literal["strict", "safe", "aggressive"]
_AROUND = frozenset({"prose", "surplus_closer"})
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
    Repair(arguments={'days': 3}, steps=(Step(name='trailing_comma'),))
    >>> repair_arguments('{"days": "3"}', schema).problems
    (Problem(path='/days', keyword='type', message='expected integer, got "3"'),)
    >>> repair_arguments('{"days": "3"}', schema, policy="aggressive")
    Repair(arguments={'days': 3}, steps=(Step(name='text_to_number', path='/days'),))
    """
    if policy not in POLICIES:
        raise ConfigError(f"unknown policy {policy!r}", hint=f"use one of {', '.join(POLICIES)}")
    content = to_bytes(schema)
    ladder = _large_ladder(content) if has_large_patterns(content) else _ladder(content)
    if type(given) is not str:
        return ladder.from_value(given, (), policy)
    return ladder.from_text(given, policy, finished)


@lru_cache(1024)
def _ladder(schema: bytes) -> _Repairer:
    return _Repairer(parse(schema))


_large_ladder = lru_cache(16)(_ladder.__wrapped__)  # like the cache of the validator that it holds


class _Repairer:
    """The stages, for one schema."""

    def __init__(self, schema: JSON) -> None:
        source = parse_schema(schema)
        self._root: Node = source.root
        self._target = source.defs.get
        self._validator: Validator = validator(schema)

    def from_text(self, text: str, policy: RepairPolicy, finished: bool) -> Repair:
        if not text or text.isspace():
            return self.from_value({}, (), policy)  # models call a tool without parameters like this
        if policy == "strict":
            try:
                return self.from_value(parse(text), (), policy)
            except ProtocolError as error:
                return _refusal(error)
        try:
            found = repair_json(text, finished=finished)
        except BrokenJSON as error:
            if policy == "safe" or error.reason == "truncated":
                return _refusal(error)
            return self._only_valid_interpretation(text, finished, error)
        doubt = self._schema_ambiguity(found)
        if doubt is not None:
            return Repair(None, _steps(found), (doubt,))
        return self.from_value(found.value, _steps(found), policy)

    def _schema_ambiguity(self, found: Repaired) -> Problem | None:
        """Return a problem of a repaired text that only the schema reveals; None if there is none."""
        if not _AROUND.isdisjoint(found.steps) and not self._has_known_names(found.value):
            words = (
                "there is text around the object, and it does not match the schema; write one object and nothing else"
            )
            return Problem("", "invalid", words)
        if any(self._accepts(one) and fits(self._root, one, self._target) for one in bracket_placements(found)):
            words = "ambiguous: a bracket is missing, at the end or further in; write the whole object again"
            return Problem("", "ambiguous", words)
        return None

    def from_value(self, value: JSON, steps: tuple[RepairStep, ...], policy: RepairPolicy) -> Repair:
        if policy == "strict" or depth_of(value) > DEPTH:
            return self._validated(value, steps)
        value, taken = unwrap(self._root, value, self._target)
        steps += taken
        if not self._accepts(value):
            value, taken = unwrap_members(self._root, value, self._target)
            steps += taken
        if policy == "aggressive" and not self._accepts(value):
            coercion = Coercion(self._target, coercion_budget(value))
            value = coercion.value(self._root, value, "")
            steps += tuple(coercion.steps)
        return self._validated(value, steps)

    def _validated(self, value: JSON, steps: tuple[RepairStep, ...]) -> Repair:
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
        if type(value) is not dict or not isinstance(root, ObjectNode) or root.rest is not None:
            return True
        return value.keys() <= root.properties.keys() or bool(unwrap(root, value, self._target)[1])

    def _only_valid_interpretation(self, text: str, finished: bool, error: BrokenJSON) -> Repair:
        try:
            found = list(interpretations(text, finished=finished))
        except BrokenJSON as too_many:
            return _refusal(too_many)
        fitting = [
            Repair(one.value, _steps(one))
            for one in found
            if self._accepts(one.value)
            and fits(self._root, one.value, self._target)
            and self._schema_ambiguity(one) is None
        ] or self._coerced(found)
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            words = " or ".join(dumps(one.arguments)[:80] for one in fitting[:3])
            problem = Problem(error.pointer, "ambiguous", f"{error.message}; can be read as {words}")
            return Repair(None, (), (problem,))
        return _refusal(error)

    def _coerced(self, found: list[Repaired]) -> list[Repair]:
        attempts = [
            self.from_value(one.value, _steps(one), "aggressive")
            for one in found
            if self._schema_ambiguity(one) is None
        ]
        fitting = [
            one for one in attempts if one.arguments is not None and fits(self._root, one.arguments, self._target)
        ]
        return list({dumps(one.arguments): one for one in fitting}.values())


def _steps(found: Repaired) -> tuple[RepairStep, ...]:
    return tuple(map(RepairStep, found.steps))


def _refusal(error: ProtocolError) -> Repair:
    keyword = error.reason if isinstance(error, BrokenJSON) else "json"
    advice = f"; {error.hint}" if error.hint else ""
    return Repair(None, (), (Problem(error.pointer, keyword, f"{error.message}{advice}"),))
