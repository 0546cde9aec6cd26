"""Call ids that the target takes: legal, and unique in the whole conversation.

Some servers count from zero in every turn, some clients leave ids out. An id that cannot stay becomes nine characters of
digits and letters, which every wire takes, derived from the old one and its place, so that the next turn makes the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from ..wire.protocol import Limits
from .short_hash import short_hash

__all__ = ["Ids"]


class Ids:
    """Hands out ids; `used` are those that are taken."""

    __slots__ = ("_legal", "_length", "salt", "used")

    def __init__(self, limits: Limits | None = None) -> None:
        self._legal = None if limits is None else _matcher(limits.id)
        self._length = 0 if limits is None else limits.id_length
        self.used: set[str] = set()
        self.salt = ""  # what tells this conversation's ids from others'

    def assign(self, call_id: str, name: str) -> str:
        """The id for a new call: its own if that can be."""
        if call_id and call_id not in self.used:
            legal = self._legal
            if legal is None or (len(call_id) <= self._length and legal(call_id) is not None):
                self.used.add(call_id)
                return call_id
        for attempt in range(len(self.used) + 1000):
            made = short_hash(f"{self.salt}\n{call_id}\n{name}\n{len(self.used)}\n{attempt}", 9)
            if made not in self.used:
                self.used.add(made)
                return made
        raise AssertionError("there are more ids than hashes")


@lru_cache(32)
def _matcher(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern).fullmatch
