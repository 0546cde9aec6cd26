"""Repair a model's arguments so that they match the schema; or return the problems, in messages for the model.

    strict       parse, validate
    safe         … and repair unambiguous errors: of the text (toolwire.stream.repair), then superfluous wrapping
                 (toolwire.schema.repair.wrappers). No value is changed
    aggressive   … and guess: readings of broken text, then coercions of values

A reading that the text alone does not determine is used if it is the only one that fits the schema.

Each stage is tried only if the ones before it were not enough, and every step is named in the result. Truncated text is
never completed, under any policy. Use `safe` for tools with side effects.

Possible positions of a missing bracket.

    {"where": {"city": "Paris", "days": 3}

lacks its last bracket, or the one after "Paris". The text alone does not decide between them; the schema may.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import Literal, TypeAlias

from ...ir.errors import BrokenJSON, ConfigError, ProtocolError
from ...ir.pointer import JSON, Object
from ...ir.text import dumps, to_bytes
from ...ir.value import Value
from ...stream.repair import Repaired, checked_readings, interpretations, repair_json
from ...stream.strict import parse, type_label
from ..bounds import content_cache
from ..parsing.membership import fits
from ..parsing.nodes import Node, ObjectNode
from ..parsing.parser import parse_schema
from ..validation.validator import DEPTH, Problem, Validator, has_large_patterns, nesting_depth, validator
from .coercion import Coercion, RepairStep, coercion_budget
from .spellings import Renamed, Spellings, ambiguous_spelling, find_spellings, rename_members, written_arguments
from .wrappers import Unwrapped, declared_names, may_be_call, other_tool, unwrap, unwrap_members

_MAX_PLACEMENTS = 64  # places of one missing bracket; each is validated, and several that fit are ambiguous in any case


def bracket_placements(repaired: Repaired) -> Iterator[JSON]:
    """Yield the other values of the text, for a missing bracket that belongs further in.

    The repair added it at the end. Each alternative moves the last members of an inner container to the outer one.
    """
    if not repaired.closed:
        return
    path = _last_containers(repaired.value)
    for depth in range(repaired.closed, len(path)):
        outer, inner = path[depth - 1], path[depth]
        if type(outer) is not type(inner):
            continue  # members cannot become items, nor items members
        for kept_count in range(max(len(inner) - _MAX_PLACEMENTS, 1), len(inner)):
            yield _replace_last(path[:depth], _move_members(outer, inner, kept_count))


def _last_containers(value: JSON) -> list[JSON]:
    """Return the value, its last member, the last member of that, and so on."""
    path: list[JSON] = []
    while type(value) in (dict, list):
        path.append(value)
        if not value:
            break
        value = list(value.values())[-1] if type(value) is dict else value[-1]
    return path


def _move_members(outer: JSON, inner: JSON, kept_count: int) -> JSON:
    """Return `outer` with all but the first `kept_count` members of its last member moved out of it."""
    if type(outer) is list:
        return [*outer[:-1], inner[:kept_count], *inner[kept_count:]]
    members = list(inner.items())
    return {**dict(members[kept_count:]), **outer, list(outer)[-1]: dict(members[:kept_count])}


def _replace_last(path: list[JSON], value: JSON) -> JSON:
    """Return the root with `value` in place of the last container of `path`."""
    for outer in reversed(path[:-1]):
        value = [*outer[:-1], value] if type(outer) is list else {**outer, list(outer)[-1]: value}
    return value


RepairPolicy: TypeAlias = Literal["strict", "safe", "aggressive"]
_SURROUNDING_STEPS = frozenset({"prose", "surplus_closer"})
MAX_VALUES = 5_000
"""Of arguments with more values, only broken text and its names are repaired: other repairs take up to 0.05 ms each."""
POLICIES: tuple[RepairPolicy, ...] = ("strict", "safe", "aggressive")


class Repair(Value, frozen=True):
    """`arguments` that match the schema, and the steps of the repair; or None, and the problems."""

    arguments: Object | None
    steps: tuple[RepairStep, ...] = ()
    problems: tuple[Problem, ...] = ()


def repair_arguments(
    given: JSON,
    schema: JSON,
    *,
    policy: RepairPolicy = "safe",
    finished: bool = True,
    names: Collection[str] = (),
) -> Repair:
    """Repair the text of a model, or a value. `finished`: the model stopped by itself, not at a limit.

    `names`: the names by which the model knows the tool. A call of another name inside the text is refused then.

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
    if type(given) is str:
        return repairer.from_text(given, policy, finished, names)
    return repairer.from_value(given, (), policy, names)


@content_cache(4 * 1024 * 1024)
def _repairer(schema: bytes) -> _Repairer:
    return _Repairer(parse(schema))


_large_repairer = lru_cache(16)(_repairer.uncached)  # like the cache of the validator that it holds


class _Repairer:
    """A schema, parsed once for all repairs."""

    def __init__(self, schema: JSON) -> None:
        source = parse_schema(schema)
        self.root: Node = source.root
        self.target = source.defs.get
        self.declared = declared_names(self.root, self.target)
        self.validator: Validator = validator(schema)

    def from_text(self, text: str, policy: RepairPolicy, finished: bool, names: Collection[str] = ()) -> Repair:
        return _ArgumentRepair(self, policy, finished, names).from_text(text)

    def from_value(
        self, value: JSON, steps: tuple[RepairStep, ...], policy: RepairPolicy, names: Collection[str] = ()
    ) -> Repair:
        return _ArgumentRepair(self, policy, finished=True, names=names).from_value(value, steps)

    def accepts(self, value: JSON) -> bool:
        return type(value) is dict and self.validator.accepts(value)

    def matches(self, value: JSON) -> bool:
        """Return True if a value is valid and has no undeclared names, which JSON Schema by itself accepts."""
        return self.accepts(value) and fits(self.root, value, self.target)

    def rename(self, value: JSON, guess: bool = False) -> Renamed:
        return rename_members(self.root, value, self.target, guess=guess)

    def matches_renamed(self, value: JSON) -> bool:
        """Like `matches`, after the repair of misspelt names."""
        return self.matches(value) or self.matches(self.rename(value).value)

    def has_known_names(self, value: JSON) -> bool:
        """Return True if the schema declares the names; JSON Schema by itself accepts any others."""
        root = self.root
        if type(value) is not dict or not isinstance(root, ObjectNode) or root.others is not None:
            return True
        return value.keys() <= root.properties.keys()


class _ArgumentRepair:
    """The stages, for the arguments of one call."""

    def __init__(self, schema: _Repairer, policy: RepairPolicy, finished: bool, names: Collection[str]) -> None:
        self._schema = schema
        self._policy = policy
        self._finished = finished
        self._names = names

    def from_text(self, text: str) -> Repair:
        """Parse and repair text, then its value; empty text is an empty object.

        Text that cannot be repaired is refused, or read in several ways if it is complete.
        """
        if not text or text.isspace():
            return self.from_value({}, ())  # models call a tool without parameters like this
        if self._policy == "strict":
            try:
                return self.from_value(parse(text), ())
            except ProtocolError as error:
                return _refused_repair(error)
        try:
            found = repair_json(text, finished=self._finished)
        except BrokenJSON as error:
            if error.reason == "truncated":
                return _refused_repair(error)
            return self._from_readings(text, error)
        return self._from_reading(found)

    def _from_reading(self, found: Repaired) -> Repair:
        ambiguity = self._schema_ambiguity(found)
        if ambiguity is not None:
            return Repair(None, _repair_steps(found), (ambiguity,))
        return self.from_value(found.value, _repair_steps(found), found.as_written)

    def _schema_ambiguity(self, found: Repaired) -> Problem | None:
        """Return a problem of a repaired text that only the schema reveals; None if there is none."""
        if not _SURROUNDING_STEPS.isdisjoint(found.steps) and not self._may_have_known_names(found.value):
            message = (
                "there is text around the object, and it does not match the schema; write one object and nothing else"
            )
            return Problem("", "invalid", message)
        if any(self._schema.matches(candidate) for candidate in bracket_placements(found)):
            message = "ambiguous: a bracket is missing, at the end or further in; write the whole object again"
            return Problem("", "ambiguous", message)
        return None

    def _may_have_known_names(self, value: JSON) -> bool:
        if value == {} and self._schema.declared:
            return False  # empty braces may belong to the text around them
        return self._schema.has_known_names(value) or any(steps for _, steps in self._unwrap(value))

    def from_value(self, value: JSON, steps: tuple[RepairStep, ...], as_written: JSON = None) -> Repair:
        """Unwrap, coerce and validate a value as far as the policy allows; only an invalid value is coerced.

        `as_written`: the value with some numbers as text (`Repaired.as_written`), if there are any. A value that can be
        read in two ways, or that is a call of another tool, is a problem for the model. A value with very many members
        is only renamed and validated, to bound the work.
        """
        if self._policy == "strict" or nesting_depth(value) > DEPTH:
            return self._validate(value, steps)
        if _has_many_values(value):
            renaming = self._schema.rename(value) if steps else Renamed(value)
            if renaming.doubtful:
                return Repair(None, steps, (_ambiguous_key(renaming.doubtful[0]),))
            return self._validate(renaming.value, steps + renaming.steps)
        unwrapped = self._unwrap(value)
        if len(unwrapped) > 1:
            return _ambiguous_repair("", "there are several layers", [inner for inner, _ in unwrapped])
        other = other_tool(value, self._schema.declared, self._names)
        as_written = written_arguments(value if as_written is None else as_written, unwrapped[0][1])
        ((value, layers),) = unwrapped
        steps += layers
        value, as_written, renamed, doubtful = self._rename(value, as_written, bool(steps))
        steps += renamed
        if doubtful:
            return Repair(None, steps, (_ambiguous_key(doubtful[0]),))
        if other is not None and not self._schema.accepts(value):
            message = f"a call of {other[:64]!r}, which is another tool; write only the arguments of this tool"
            return Repair(None, steps, (Problem("", "invalid", message),))
        if any(layer.name != "unwrapped_text" for layer in layers) and not self._schema.has_known_names(value):
            message = "the arguments are wrapped, and their names do not match the schema; write one object"
            return Repair(None, steps, (Problem("", "invalid", message),))
        spellings = find_spellings(self._schema.root, value, as_written, self._schema.target)
        if (alternative := ambiguous_spelling(value, spellings, self._schema.matches)) is not None:
            path, text, other_value = alternative
            return _ambiguous_repair(path, f"ambiguous: {text} may be a number or text", [value, other_value])
        return self._coerce(value, steps, spellings)

    def _rename(
        self, value: JSON, as_written: JSON, is_repaired: bool
    ) -> tuple[JSON, JSON, tuple[RepairStep, ...], tuple[str, ...]]:
        """Replace misspelt property names. Valid arguments are left unchanged unless their text was repaired.

        Return the value, the value as written, the steps, and the paths of keys that are ambiguous.
        """
        steps: tuple[RepairStep, ...] = ()
        doubtful: tuple[str, ...] = ()
        for guess in (False, True)[: 1 + (self._policy == "aggressive")]:
            if self._schema.accepts(value) and (guess or not is_repaired):
                break
            found = self._schema.rename(value, guess)
            if found.steps:
                as_written = found.value if as_written is value else self._schema.rename(as_written, guess).value
                value, steps = found.value, steps + found.steps
            if not guess:
                doubtful = found.doubtful
        return value, as_written, steps, doubtful

    def _coerce(self, value: JSON, steps: tuple[RepairStep, ...], spellings: Spellings) -> Repair:
        """Unwrap text in members, coerce if the policy is aggressive, and validate.

        A valid value, and one that may be a call, is only validated.
        """
        if self._schema.accepts(value) or may_be_call(value, self._schema.declared):
            return self._validate(value, steps)
        value, new_steps = unwrap_members(self._schema.root, value, self._schema.target)
        if new_steps:
            renamed = self._schema.rename(value)  # inside the text of a member
            value, new_steps = renamed.value, new_steps + renamed.steps
            if renamed.doubtful:
                return Repair(None, steps + new_steps, (_ambiguous_key(renamed.doubtful[0]),))
        steps += new_steps
        if self._policy == "aggressive" and not self._schema.accepts(value):
            coercion = Coercion(self._schema.target, coercion_budget(value), spellings.texts)
            value = coercion.coerce(self._schema.root, value, "")
            steps += tuple(coercion.steps)
        return self._validate(value, steps)

    def _unwrap(self, value: JSON) -> list[Unwrapped]:
        return unwrap(self._schema.root, value, self._schema.target, self._schema.matches_renamed, self._names)

    def _validate(self, value: JSON, steps: tuple[RepairStep, ...]) -> Repair:
        if type(value) is not dict:
            problem = Problem("", "type", f"expected an object with the arguments, got {type_label(value)}")
            return Repair(None, steps, (problem,))
        problems = self._schema.validator.problems(value)
        return Repair(None, steps, problems) if problems else Repair(value, steps)

    def _from_readings(self, text: str, error: BrokenJSON) -> Repair:
        """Use the only reading of broken text that fits the schema; several are a problem that names them.

        Readings with guesses are tried only if there are no others, and coercions of values only for the former.
        """
        try:
            found = self._valid_repairs(checked_readings(text, finished=self._finished, names=self._names))
            if not found and self._policy == "aggressive":
                readings = list(interpretations(text, finished=self._finished, names=self._names))
                exact = [reading for reading in readings if self._schema.matches(reading.value)]
                found = self._valid_repairs(exact) or self._valid_repairs(readings)
        except BrokenJSON as too_many:
            return _refused_repair(too_many)
        if len(found) > 1:
            return _ambiguous_repair(error.pointer, error.message, [repair.arguments for repair, _ in found])
        for repair, is_doubtful in found:
            if not is_doubtful:
                return repair
        return _refused_repair(error)

    def _valid_repairs(self, readings: Iterable[Repaired]) -> list[tuple[Repair, bool]]:
        """Repair the values of all readings; return the different results that fit, and whether they are doubtful."""
        repairs: dict[str, tuple[Repair, bool]] = {}
        for found in readings:
            repair = self._from_reading(found)
            if repair.arguments is not None and self._schema.matches(repair.arguments):
                repairs.setdefault(dumps(repair.arguments), (repair, found.doubtful))
        return list(repairs.values())


def _repair_steps(found: Repaired) -> tuple[RepairStep, ...]:
    return tuple(map(RepairStep, found.steps))


def _ambiguous_key(path: str) -> Problem:
    message = "ambiguous: the key may be another spelling of a parameter; write each parameter once"
    return Problem(path, "ambiguous", message)


def _refused_repair(error: ProtocolError) -> Repair:
    keyword = error.reason if isinstance(error, BrokenJSON) else "json"
    advice = f"; {error.hint}" if error.hint else ""
    return Repair(None, (), (Problem(error.pointer, keyword, f"{error.message}{advice}"),))


def _ambiguous_repair(pointer: str, message: str, values: Iterable[JSON]) -> Repair:
    """Refuse arguments that can be read as any of `values`, and name up to three of them."""
    candidates = " or ".join([dumps(value)[:80] for value in values][:3])
    return Repair(None, (), (Problem(pointer, "ambiguous", f"{message}; can be read as {candidates}"),))


def _has_many_values(value: JSON) -> bool:
    """Return whether a value has more than MAX_VALUES values, after at most that number of steps."""
    waiting, count = [value], 0
    while waiting:
        current = waiting.pop()
        if isinstance(current, (dict, list)):
            count += len(current)
            if count > MAX_VALUES:
                return True
            waiting += current.values() if isinstance(current, dict) else current
    return False
