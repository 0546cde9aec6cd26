"""Constraints of providers: a rule, the provider that documents it, the check, and the source of the statement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

from ...ir.pointer import Object
from ...ir.value import Value
from ..findings import Hit
from .models import ModelName
from .shapes import ShapeProblem

__all__ = ["CONSTRAINTS", "CheckedBody", "Constraint", "Violation", "constraint"]


class CheckedBody(NamedTuple):
    """A request body, with the provider and the model that it is meant for."""

    body: Object
    provider: str
    wire: str
    model: ModelName
    version: str | None = None
    problems: tuple[ShapeProblem, ...] = ()
    """Differences from the shapes of the wire, for a provider that checks them."""


BodyCheck: TypeAlias = Callable[[CheckedBody], Iterable[Hit]]


class Constraint(NamedTuple):
    """A check of one rule for the bodies of one wire.

    `vendors` are the providers that it applies to; it is empty if it applies to every provider of the wire.
    """

    rule: str
    wire: str
    check: BodyCheck
    source: str
    error: str = ""
    vendors: tuple[str, ...] = ()


class Violation(Value, frozen=True):
    """A constraint that a body violates. `error` is the provider's own message, where it is known."""

    rule: str
    provider: str
    path: str
    message: str
    fix: str
    source: str
    error: str = ""


CONSTRAINTS: dict[str, list[Constraint]] = {}
"""The constraints by wire."""


def constraint(
    rule_id: str, wire: str, source: str, *, error: str = "", vendors: str = ""
) -> Callable[[Callable[[CheckedBody], Iterator[Hit]]], Callable[[CheckedBody], Iterator[Hit]]]:
    """Return a decorator that registers a check. `source` names the document and its date."""

    def register(check: Callable[[CheckedBody], Iterator[Hit]]) -> Callable[[CheckedBody], Iterator[Hit]]:
        for name in wire.split():
            row = Constraint(rule_id, name, check, source, error, tuple(vendors.split()))
            CONSTRAINTS.setdefault(name, []).append(row)
        return check

    return register
