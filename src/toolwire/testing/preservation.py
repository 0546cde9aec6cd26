"""Measure lowered schemas: whether they preserve the meaning of the original, and where an invalid call fails.

Measure on generated values whether a lowered schema preserves the meaning of the original.

    complete    every value of the original can be written under the lowered schema, and lifts back to itself
    sound       every value of the lowered schema lifts to a value of the original
    honest      where one of them does not hold, a loss reports it

Values are equal up to an explicit null under an optional property: absent and null are the same to a model.

Determine, for each dialect, where a call that violates its schema fails.

    unwritable    the provider compiles the lowered schema, which does not admit the call
    stated        the lowered schema forbids it; the call of a model that does not comply is refused here
    local         the lowered schema cannot express it; refused here, by the original
    lifted        it has a valid meaning there (null for absent, digits for a number), and arrives as that

An invalid call never arrives unchanged: the original schema refuses it, whatever the dialect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from ..ir.errors import SchemaError
from ..ir.pointer import JSON, Object
from ..schema.dialects import Dialect
from ..schema.lowering.conformance import violations
from ..schema.lowering.lowered import lower
from ..schema.parsing.membership import json_equal
from ..schema.validation.validator import Problem, Validator, validator
from .instances import instances


class PreservationResult(NamedTuple):
    """The outcome for one schema.

    `conforms`: to the dialect. `complete`: every valid value can be written and comes back. `sound`: every value that
    the lowered schema allows is valid. `reported`: the caller passed that there is a loss.
    """

    conforms: bool
    complete: bool
    sound: bool
    reported: bool
    example: JSON = None
    """A value that was not preserved, if there is one."""

    @property
    def is_perfect(self) -> bool:
        return self.conforms and self.complete and self.sound

    @property
    def is_honest(self) -> bool:
        return self.is_perfect or self.reported


def check_preservation(
    schema: Object,
    lowered: Object,
    dialect: Dialect,
    *,
    lift: Callable[[JSON], JSON] = lambda value: value,
    encode: Callable[[JSON], JSON] = lambda value: value,
    reported: bool = False,
    seed: str = "",
    count: int = 12,
) -> PreservationResult | None:
    """Measure whether values survive lowering and lifting, and whether lowered values are valid in `schema`.

    None if the schema is invalid or no value of it could be generated. The first value that fails is part of the
    result.
    """
    try:
        original = Validator(schema)
    except SchemaError:
        return None
    values = [value for value in instances(schema, seed=seed, count=count, validator=original) if type(value) is dict]
    if not values:
        return None
    try:
        # An unchanged schema permits the same keys on both sides; closing it would judge other values than it does.
        written_by = lowered if lowered == schema else close_schema(lowered)
        there = Validator(written_by)
    except SchemaError:
        return PreservationResult(conforms=False, complete=False, sound=False, reported=reported)
    conforms = not violations(lowered, dialect)
    for value in values:
        written = encode(value)
        if not there.accepts(written) or not json_equal(drop_null(lift(written)), drop_null(value)):
            return PreservationResult(conforms, complete=False, sound=True, reported=reported, example=value)
    for value in instances(written_by, seed=seed, count=count, validator=there):
        if not original.accepts(lift(value)):
            return PreservationResult(conforms, complete=True, sound=False, reported=reported, example=value)
    return PreservationResult(conforms, complete=True, sound=True, reported=reported)


def close_schema(schema: JSON) -> JSON:
    """Forbid keys that the schema does not mention, as models understand it.

    Only where the schema has a `type`: without it, `properties` also describe values that are no objects at all, and
    often a branch of a union whose other keys are declared beside it.
    """
    if type(schema) is list:
        return [close_schema(item) for item in schema]
    if type(schema) is not dict:
        return schema
    out = {
        key: close_schema(value) if key not in ("enum", "const", "default") else value for key, value in schema.items()
    }
    if type(out.get("properties")) is dict and "type" in out and "additionalProperties" not in out:
        out["additionalProperties"] = False
    return out


def drop_null(value: JSON) -> JSON:
    if type(value) is dict:
        return {key: drop_null(one) for key, one in value.items() if one is not None}
    return [drop_null(one) for one in value] if type(value) is list else value


Enforcement = Literal["unwritable", "stated", "local", "lifted"]


class ViolationOutcome(NamedTuple):
    """The outcome of an invalid call; `enforcement` is one of the cases of the module docstring."""

    enforcement: Enforcement
    problems: tuple[Problem, ...]
    """The problems reported to the model, in the terms of the original."""
    arrives: JSON = None
    """The arguments that the tool receives, if the call has a valid meaning."""


def violation_outcome(schema: JSON, dialect: str, arguments: JSON) -> ViolationOutcome | None:
    """Return where the arguments are refused (by the dialect, locally, by lifting), or None if they are valid."""
    lowered = lower(schema, dialect)
    written = lowered.encode(arguments)
    arrives = lowered.lift(written)
    problems = validator(schema).problems(arrives)
    admitted = validator(lowered.schema).accepts(written)
    if not admitted and lowered.dialect.enforced:
        return ViolationOutcome("unwritable", problems)
    if problems:
        return ViolationOutcome("local" if admitted else "stated", problems)
    return None if json_equal(arrives, arguments) else ViolationOutcome("lifted", (), arrives)
