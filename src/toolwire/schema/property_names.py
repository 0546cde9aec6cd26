"""Rename properties whose names a dialect does not accept."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache

from ..ir.pointer import JSON

__all__ = ["PropertyNames", "is_legal", "mentions_illegal"]


class PropertyNames:
    """The property names of one object, without collisions."""

    def __init__(self, pattern: str | None, names: Collection[str]) -> None:
        self._pattern = pattern
        self._taken = set(names)
        self._next: dict[str, int] = {}

    def legal_name(self, name: str) -> str:
        """Return the name itself if the dialect accepts it; otherwise a similar name that is not taken."""
        if self._pattern is None or is_legal(self._pattern, name):
            return name
        clean = re.sub(r"[^a-zA-Z0-9_]+", "_", name)[:50].strip("_") or "property"
        if not re.match(r"[a-zA-Z_]", clean):
            clean = f"_{clean}"
        return self.allocate(clean)

    def allocate(self, name: str) -> str:
        """Return the name with a number appended if it is taken, and mark it as taken."""
        candidate, number = name, self._next.get(name, 2)
        while candidate in self._taken:
            candidate, number = f"{name}_{number}", number + 1
        self._taken.add(candidate)
        self._next[name] = number  # lower numbers are taken: many names of one stem cost one step each
        return candidate


def is_legal(pattern: str, name: str) -> bool:
    return _is_legal_cached(pattern, name) if len(name) <= _MAX_CACHED_NAME else _is_legal(pattern, name)


def _is_legal(pattern: str, name: str) -> bool:
    return re.fullmatch(pattern, name) is not None


_MAX_CACHED_NAME = 256  # characters; the number of entries is no bound for the memory of longer names
_is_legal_cached = lru_cache(4096)(_is_legal)


def mentions_illegal(pattern: str | None, schema: JSON) -> bool:
    """Return True if a schema names a property that is renamed in the dialect."""
    return pattern is not None and any(not is_legal(pattern, name) for name in _property_names(schema))


def _property_names(schema: JSON) -> Iterator[str]:
    """Yield the property names that a schema mentions. Data such as `enum` is searched as well."""
    pending = [schema]
    while pending:
        item = pending.pop()
        if type(item) is list:
            pending += item
        elif type(item) is dict:
            yield from _string_items(item.get("required"))
            for keyword in ("properties", "dependentSchemas", "dependentRequired", "dependencies"):
                if type(item.get(keyword)) is dict:
                    yield from item[keyword]
                    for names in item[keyword].values():
                        yield from _string_items(names)
            pending += item.values()


def _string_items(value: JSON) -> Iterator[str]:
    return (item for item in (value if type(value) is list else ()) if type(item) is str)
