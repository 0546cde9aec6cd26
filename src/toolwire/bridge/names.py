"""Tool names that the target accepts, and their reverse mapping.

A legal name is kept. Any other name is cleaned and gets a hash of the original, so it is the same in every turn, does
not depend on the other tools, and never collides. A tool in a namespace becomes `namespace__name` if the target has no
namespaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from ..wire.protocol import Limits
from .short_hash import short_hash

__all__ = ["NameMap"]


class NameMap:
    """A bijection between the names of a request and legal names."""

    __slots__ = ("_length", "_namespaces", "_original_names", "_pattern", "_wire_names")

    def __init__(self, limits: Limits, namespaces: bool) -> None:
        self._pattern = limits.name
        self._length = limits.name_length
        self._namespaces = namespaces
        self._wire_names: dict[tuple[str | None, str], str] = {}
        self._original_names: dict[tuple[str | None, str], tuple[str | None, str]] = {}

    @property
    def originals(self) -> tuple[tuple[str | None, str], ...]:
        """The names (namespace, name) that were mapped so far, in their order."""
        return tuple(self._wire_names)

    def to_wire(self, namespace: str | None, name: str) -> str:
        found = self._wire_names.get((namespace, name))
        return found if found is not None else self._add_mapping(namespace, name)

    def from_wire(self, namespace: str | None, name: str) -> tuple[str | None, str]:
        """Return the original (namespace, name); an unmapped name is unchanged.

        Responses calls a deferred function that is in no namespace with its name as the namespace.
        """
        found = self._original_names.get((namespace if self._namespaces else None, name))
        if found is None and namespace == name:
            found = self._original_names.get((None, name))
        return (namespace, name) if found is None else found

    def keeps_all(self, names: Iterable[str]) -> bool:
        """Return whether `from_wire` keeps all these names of tools in no namespace."""
        originals = self._original_names
        for name in names:
            original = originals.get((None, name))
            if original is not None and original != (None, name):
                return False
        return True

    def __len__(self) -> int:
        return len(self._wire_names)

    def add_all(self, other: NameMap) -> None:
        """Add the mappings of another map for the same target; this map must be empty."""
        self._wire_names.update(other._wire_names)
        self._original_names.update(other._original_names)

    def _add_mapping(self, namespace: str | None, name: str) -> str:
        scope = namespace if self._namespaces else None
        wire = self._make_legal(namespace, name, scope)
        self._wire_names[namespace, name] = wire
        self._original_names[scope, wire] = namespace, name
        return wire

    def _make_legal(self, namespace: str | None, name: str, scope: str | None) -> str:
        """Return a legal, unused name; a changed name ends in a hash, so that it is stable and unique."""
        full_name = name if namespace is None or self._namespaces else f"{namespace}__{name}"
        if _is_legal(self._pattern, self._length, full_name) and (scope, full_name) not in self._original_names:
            return full_name
        clean = re.sub(r"[^a-zA-Z0-9_-]+", "_", full_name) or "tool"
        if not re.fullmatch(self._pattern, clean):
            clean = clean.replace("-", "_")
        if not re.fullmatch(self._pattern, clean):
            clean = f"_{clean}"
        for attempt in range(1000):
            suffix = short_hash(f"{namespace or ''}\n{name}\n{attempt}", 8)
            wire = f"{clean[: self._length - 9]}_{suffix}"
            if (scope, wire) not in self._original_names:
                return wire
        raise AssertionError("no free name found for this tool")


def _is_legal(pattern: str, length: int, name: str) -> bool:
    return len(name) <= length and _fits_pattern(pattern, name)


@lru_cache(4096)
def _fits_pattern(pattern: str, name: str) -> bool:
    return re.fullmatch(pattern, name) is not None
