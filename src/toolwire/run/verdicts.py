"""The results of a policy check."""

from __future__ import annotations

from ..ir.value import Value

__all__ = ["Ask", "Deny"]


class Deny(Value, frozen=True):
    """Refuse the call. The model reads `why`."""

    why: str


class Ask(Value, frozen=True):
    """Run the call only if a person approves it."""

    why: str
