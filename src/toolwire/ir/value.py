"""The base of all canonical values: frozen, cheap, printed and serialised without defaults."""

from __future__ import annotations

from msgspec import Struct


class Value(Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """The base of the canonical model."""
