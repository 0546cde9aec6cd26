"""What all canonical values have in common: frozen, cheap, printed and written without their defaults."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["Value"]


class Value(Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """The base of the canonical model."""
