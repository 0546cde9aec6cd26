"""Entries of the Responses state: stored responses, conversations, and the upstreams that keep a response themselves.

A store holds bytes by owner (the name of a client's key) and id, so no client reads another client's entries. Every
owner has a bound in bytes and in entries; beyond it, the entries that were not used for the longest time are dropped.
An entry expires by the clock of the gateway. Keys are hashes: neither names of owners nor ids are in the store.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Protocol

from msgspec import Struct

__all__ = ["InMemoryResponses", "OwnerBounds", "ResponseStore", "entry_key"]


class OwnerBounds(Struct, frozen=True):
    """The bounds of one owner."""

    max_bytes: int
    max_entries: int


class ResponseStore(Protocol):
    """A store of entries. Every method may raise StoreError."""

    async def save(self, owner: str, entry_id: str, data: bytes, seconds: float) -> None:
        """Store or replace an entry for `seconds`, and drop old entries of its owner beyond the bounds."""
        ...

    async def load(self, owner: str, entry_ids: Sequence[str], renew: float | None = None) -> dict[str, bytes]:
        """Return the entries that exist and have not expired; `renew` sets the seconds until they expire."""
        ...

    async def delete(self, owner: str, entry_ids: Sequence[str]) -> None: ...

    async def lock(self, owner: str, entry_id: str, token: str, seconds: float) -> bool:
        """Lock an id for the holder of `token`; again extends the lock. False if another token holds it."""
        ...

    async def unlock(self, owner: str, entry_id: str, token: str) -> None: ...

    async def aclose(self) -> None: ...


def entry_key(*names: str) -> bytes:
    """Hash an owner, or an owner and an id; lengths keep different names apart."""
    encoded = [name.encode("utf-8", "surrogatepass") for name in names]
    return sha256(b"".join(b"%d:%b" % (len(name), name) for name in encoded)).digest()


class _MemoryEntry(Struct):
    data: bytes
    expires_at: float


class InMemoryResponses:
    """Entries in the memory of one process."""

    def __init__(self, bounds: OwnerBounds, clock: Callable[[], float]) -> None:
        self._bounds = bounds
        self._clock = clock
        self._entries: dict[str, OrderedDict[str, _MemoryEntry]] = {}  # by owner, the least recently used first
        self._sizes: dict[str, int] = {}  # bytes by owner
        self._locks: dict[bytes, tuple[str, float]] = {}  # (token, end)

    async def save(self, owner: str, entry_id: str, data: bytes, seconds: float) -> None:
        entries = self._entries.setdefault(owner, OrderedDict())
        self._drop(owner, entry_id)
        entries[entry_id] = _MemoryEntry(data, self._clock() + seconds)
        self._sizes[owner] = self._sizes.get(owner, 0) + len(data)
        while self._is_full(owner):
            self._drop(owner, next(iter(entries)))

    def _is_full(self, owner: str) -> bool:
        """Check the bounds, and whether the oldest entry has expired."""
        entries = self._entries[owner]
        if self._sizes[owner] > self._bounds.max_bytes or len(entries) > self._bounds.max_entries:
            return True
        return bool(entries) and next(iter(entries.values())).expires_at <= self._clock()

    def _drop(self, owner: str, entry_id: str) -> None:
        entries = self._entries.get(owner)
        entry = None if entries is None else entries.pop(entry_id, None)
        if entry is not None:
            self._sizes[owner] -= len(entry.data)

    async def load(self, owner: str, entry_ids: Sequence[str], renew: float | None = None) -> dict[str, bytes]:
        entries, now = self._entries.get(owner, OrderedDict()), self._clock()
        found: dict[str, bytes] = {}
        for entry_id in entry_ids:
            entry = entries.get(entry_id)
            if entry is None or entry.expires_at <= now:
                continue
            found[entry_id] = entry.data
            if renew is not None:
                entry.expires_at = now + renew
                entries.move_to_end(entry_id)
        return found

    async def delete(self, owner: str, entry_ids: Sequence[str]) -> None:
        for entry_id in entry_ids:
            self._drop(owner, entry_id)

    async def lock(self, owner: str, entry_id: str, token: str, seconds: float) -> bool:
        now = self._clock()
        self._locks = {key: lock for key, lock in self._locks.items() if lock[1] > now}
        key = entry_key(owner, entry_id)
        if self._locks.get(key, (token, now))[0] != token:
            return False
        self._locks[key] = (token, now + seconds)
        return True

    async def unlock(self, owner: str, entry_id: str, token: str) -> None:
        key = entry_key(owner, entry_id)
        if self._locks.get(key, ("", 0.0))[0] == token:
            del self._locks[key]

    async def aclose(self) -> None:
        self._entries.clear()
