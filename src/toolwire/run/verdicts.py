"""The results of a policy check."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ..ir.value import Value
from .gates import Pending

__all__ = ["Ask", "Deny", "PolicyCheck"]


class Deny(Value, frozen=True):
    """Refuse the call. The model reads `why`."""

    why: str


class Ask(Value, frozen=True):
    """Run the call only if a person approves it."""

    why: str


PolicyCheck: TypeAlias = Callable[[Pending], Deny | Ask | None]
