"""Call ids that the target accepts: legal, and unique in the whole conversation.

Some servers count from zero in every turn, some clients omit ids. An id that cannot be kept is replaced by nine digits
and letters, which every wire accepts. They are derived from the old id and its place, so the next turn gives the same
id.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from ..wire.protocol import Limits
from .short_hash import short_hash

__all__ = ["IdAllocator", "are_usable"]


class IdAllocator:
    """Assign ids; `used` holds the ids already taken."""

    __slots__ = ("_is_legal", "_length", "salt", "used")

    def __init__(self, limits: Limits | None = None) -> None:
        self._is_legal = None if limits is None else _matcher(limits.id)
        self._length = 0 if limits is None else limits.id_length
        self.used: set[str] = set()
        self.salt = ""  # distinguishes the ids of this conversation

    def assign(self, call_id: str, name: str) -> str:
        """Return the id for a new call: its own if possible."""
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
