"""Tool names and call ids that the target accepts, and the reverse mapping of names.

A legal name is kept. Any other name is cleaned and gets a hash of the original, so it is the same in every turn, does
not depend on the other tools, and never collides. A tool in a namespace becomes `namespace__name` if the target has no
namespaces.

An id is legal, and unique in the whole conversation. Some servers count from zero in every turn, some clients omit
ids. An id that cannot be kept is replaced by nine digits and letters, which every wire accepts. They are derived from
the old id and its place, so the next turn gives the same id. Hashes are the same in every process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from ...wire.protocol import Limits

_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"


def short_hash(text: str, length: int) -> str:
    """Hash `text` to `length` characters (at most 12)."""
    from hashlib import blake2b  # costs two milliseconds, and most requests need no hash

    number = int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())
    characters = []
    for _ in range(length):
        number, digit = divmod(number, 36)
        characters.append(_ALPHABET[digit])
    return "".join(characters)


class NameMap:
    """A bijection between the names of a request and legal names."""

    __slots__ = ("_has_other_names", "_length", "_namespaces", "_original_names", "_pattern", "_wire_names")

    def __init__(self, limits: Limits, namespaces: bool) -> None:
        self._pattern = limits.name
        self._length = limits.name_length
        self._namespaces = namespaces
        self._has_other_names = False  # a legal name differs from the name in the request, or its namespace
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
        if not self._has_other_names:
            return True
        originals = self._original_names
        for name in names:
            original = originals.get((None, name))
            if original is not None and original != (None, name):
                return False
        return True

    def __len__(self) -> int:
        return len(self._wire_names)

    def copy(self) -> NameMap:
        """Return a map with the same mappings."""
        copied = NameMap.__new__(NameMap)
        copied._pattern, copied._length, copied._namespaces = self._pattern, self._length, self._namespaces
        copied._has_other_names = self._has_other_names
        copied._wire_names, copied._original_names = self._wire_names.copy(), self._original_names.copy()
        return copied

    def add_all(self, other: NameMap) -> None:
        """Add the mappings of another map for the same target; this map must be empty."""
        self._has_other_names = other._has_other_names
        self._wire_names.update(other._wire_names)
        self._original_names.update(other._original_names)

    def _add_mapping(self, namespace: str | None, name: str) -> str:
        scope = namespace if self._namespaces else None
        wire = self._make_legal(namespace, name, scope)
        if wire != name or namespace is not None:
            self._has_other_names = True
        self._wire_names[namespace, name] = wire
        self._original_names[scope, wire] = namespace, name
        return wire

    def _make_legal(self, namespace: str | None, name: str, scope: str | None) -> str:
        """Return a legal name that is unused in `scope`; a changed name ends in a hash, so it is stable and unique."""
        full_name = name if namespace is None or self._namespaces else f"{namespace}__{name}"
        if _is_legal(self._pattern, self._length, full_name) and (scope, full_name) not in self._original_names:
            return full_name
        clean = re.sub(r"[^a-zA-Z0-9_-]+", "_", full_name) or "tool"
        if not re.fullmatch(self._pattern, clean):
            clean = clean.replace("-", "_")  # the pattern of some wires has no hyphen
        if not re.fullmatch(self._pattern, clean):
            clean = f"_{clean}"  # nor a digit at the start
        for attempt in range(1000):
            suffix = short_hash(f"{namespace or ''}\n{name}\n{attempt}", 8)
            wire = f"{clean[: self._length - 9]}_{suffix}"  # 9: the underscore and the hash
            if (scope, wire) not in self._original_names:
                return wire
        raise AssertionError("no free name found for this tool")


def _is_legal(pattern: str, length: int, name: str) -> bool:
    return len(name) <= length and _fits_pattern(pattern, name)


@lru_cache(4096)
def _fits_pattern(pattern: str, name: str) -> bool:
    return re.fullmatch(pattern, name) is not None


class IdAllocator:
    """Assign ids; `used` holds the ids already taken."""

    __slots__ = ("_is_legal", "_length", "salt", "used")

    def __init__(self, limits: Limits | None = None) -> None:
        self._is_legal = None if limits is None else _matcher(limits.id)
        self._length = 0 if limits is None else limits.id_length
        self.used: set[str] = set()
        self.salt = ""  # distinguishes the ids of this conversation

    def assign(self, call_id: str, name: str) -> str:
        """Return the id for a new call and mark it as used: `call_id` if it is legal and unused, else a hash."""
        if call_id and call_id not in self.used:
            is_legal = self._is_legal
            if is_legal is None or (len(call_id) <= self._length and is_legal(call_id) is not None):
                self.used.add(call_id)
                return call_id
        for attempt in range(len(self.used) + 1000):
            candidate = short_hash(f"{self.salt}\n{call_id}\n{name}\n{len(self.used)}\n{attempt}", 9)
            if candidate not in self.used:
                self.used.add(candidate)
                return candidate
        raise AssertionError("no free call id found")


def are_usable(ids: list[str], limits: Limits) -> bool:
    """Return whether an allocator would keep all these ids of a conversation; there is at least one."""
    if len(set(ids)) < len(ids) or "" in ids or max(map(len, ids)) > limits.id_length:
        return False
    return None not in map(_matcher(limits.id), ids)


@lru_cache(32)
def _matcher(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern).fullmatch
