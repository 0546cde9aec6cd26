"""Where does a call that breaks its schema fail, in each dialect?

    unwritable    the provider compiles the schema that it gets, and that does not admit the call
    told          the schema that the provider gets forbids it; a model that does not obey is refused here
    local         the schema that the provider gets cannot say it; refused here, by the original
    lifted        it means something valid there (null for absent, digits for a number), and arrives as that

A call never arrives as it is: what breaks the original is refused by the original, whatever the dialect.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from ..ir.pointer import JSON
from ..schema.fits import same
from ..schema.lowering import lower
from ..schema.validate import Problem, validator

__all__ = ["Refusal", "Where", "refusal"]

Where = Literal["unwritable", "told", "local", "lifted"]


class Refusal(NamedTuple):
    where: Where
    problems: tuple[Problem, ...]
    """What is told to the model, in the terms of the original."""
    arrives: JSON = None
    """What the tool gets, where the call means something valid."""


def refusal(schema: JSON, dialect: str, arguments: JSON) -> Refusal | None:
    """None where the arguments break nothing."""
    lowered = lower(schema, dialect)
    written = lowered.encode(arguments)
    arrives = lowered.lift(written)
    problems = validator(schema).problems(arrives)
    admitted = validator(lowered.schema).accepts(written)
    if not admitted and lowered.dialect.enforced:
        return Refusal("unwritable", problems)
    if problems:
        return Refusal("local" if admitted else "told", problems)
    return None if same(arrives, arguments) else Refusal("lifted", (), arrives)
