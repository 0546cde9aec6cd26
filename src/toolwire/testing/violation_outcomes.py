"""Determine, for each dialect, where a call that violates its schema fails.

    unwritable    the provider compiles the lowered schema, which does not admit the call
    stated        the lowered schema forbids it; the call of a model that does not comply is refused here
    local         the lowered schema cannot express it; refused here, by the original
    lifted        it has a valid meaning there (null for absent, digits for a number), and arrives as that

An invalid call never arrives unchanged: the original schema refuses it, whatever the dialect.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from ..ir.pointer import JSON
from ..schema.lowering.lowered import lower
from ..schema.parsing.membership import json_equal
from ..schema.validation.validator import Problem, validator

__all__ = ["Enforcement", "ViolationOutcome", "violation_outcome"]

Enforcement = Literal["unwritable", "stated", "local", "lifted"]


class ViolationOutcome(NamedTuple):
    """The outcome of an invalid call; `enforcement` is one of the cases of the module docstring."""

    enforcement: Enforcement
    problems: tuple[Problem, ...]
    """The problems reported to the model, in the terms of the original."""
    arrives: JSON = None
    """The arguments that the tool receives, if the call has a valid meaning."""


def violation_outcome(schema: JSON, dialect: str, arguments: JSON) -> ViolationOutcome | None:
    """Return the refusal, or None if the arguments are valid."""
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
