"""Entries of the Responses state: stored responses, conversations, and the upstreams that keep a response themselves.

A store holds bytes by owner (the name of a client's key) and id, so no client reads another client's entries. Every
owner has a bound in bytes and in entries; beyond it, the entries that were not used for the longest time are dropped.
An entry expires by the clock of the gateway. Keys are hashes: neither names of owners nor ids are in the store.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from time import monotonic, time
from typing import Protocol

from msgspec import Struct

from ...ir.errors import ConfigError
from ...net.stores.address import display_name
from ..settings import ResponsesRow, resolve_address
from .sql_link import PostgresLink, SqliteLink, SqlLink

__all__ = ["InMemoryResponses", "OwnerBounds", "ResponseStore", "SqlResponses", "entry_key", "open_responses"]

_REDIS_SCHEMES = ("redis://", "rediss://", "unix://")
_SWEEP_INTERVAL = 60.0  # seconds between two deletions of expired rows


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


def open_responses(
    row: ResponsesRow, environment: Mapping[str, str], clock: Callable[[], float] = time
) -> ResponseStore:
    """Open the store of the settings. It connects on first use; ConfigError or MissingExtra if it never could.

    Without `responses.store`, only the upstreams of responses are stored, in memory.
    """
    bounds = OwnerBounds(row.key_bytes, row.key_entries)
    address = resolve_address(row.store, row.store_env, "responses.store", environment)
    if address is None or address == "memory:":
        return InMemoryResponses(bounds, clock)
    if address.startswith(_REDIS_SCHEMES):
        from .redis_link import RedisLink
        from .redis_responses import RedisResponses

        return RedisResponses(RedisLink(address, monotonic, "responses.store"), bounds, clock)
    if address.startswith(("postgresql://", "postgres://")):
        return SqlResponses(PostgresLink(address, TABLES, "toolwire_responses", "responses.store"), bounds, clock)
    path = address.removeprefix("sqlite:///")
    if "://" in path or not path:
        hint = "use a file, sqlite:///FILE, redis://host:6379/0 or postgresql://user@host/database"
        raise ConfigError(f"unsupported responses.store: {display_name(address)}", hint=hint)
    return SqlResponses(SqliteLink(path, TABLES), bounds, clock)


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


TABLES = (
    """
CREATE TABLE IF NOT EXISTS toolwire_responses (
    id BYTEA PRIMARY KEY, owner BYTEA NOT NULL, data BYTEA NOT NULL, size BIGINT NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL, used_at DOUBLE PRECISION NOT NULL
)""",
    "CREATE INDEX IF NOT EXISTS toolwire_responses_owner ON toolwire_responses (owner, used_at, size)",
    "CREATE INDEX IF NOT EXISTS toolwire_responses_end ON toolwire_responses (expires_at)",
    """
CREATE TABLE IF NOT EXISTS toolwire_response_locks (
    id BYTEA PRIMARY KEY, token TEXT NOT NULL, lease_until DOUBLE PRECISION NOT NULL
)""",
)
"""The schema in SQLite and PostgreSQL; both accept these types."""

_SAVE = """
INSERT INTO toolwire_responses (id, owner, data, size, expires_at, used_at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    data = excluded.data, size = excluded.size, expires_at = excluded.expires_at, used_at = excluded.used_at
"""
_TOTALS = "SELECT count(*), sum(size) FROM toolwire_responses WHERE owner = ?"
_EVICT = """
DELETE FROM toolwire_responses WHERE id IN (
    SELECT id FROM (
        SELECT id, sum(size) OVER newest AS total, row_number() OVER newest AS position
        FROM toolwire_responses WHERE owner = ? WINDOW newest AS (ORDER BY used_at DESC, id DESC)
    ) AS ranked WHERE total > ? OR position > ?
)
"""
_LOAD = "SELECT id, data FROM toolwire_responses WHERE id IN ({marks}) AND expires_at > ?"
_RENEW = "UPDATE toolwire_responses SET expires_at = ?, used_at = ? WHERE id IN ({marks}) AND expires_at > ?"
_DELETE = "DELETE FROM toolwire_responses WHERE id IN ({marks})"
_SWEEP = "DELETE FROM toolwire_responses WHERE expires_at <= ?"
_LOCK = """
INSERT INTO toolwire_response_locks (id, token, lease_until) VALUES (?, ?, ?)
ON CONFLICT (id) DO UPDATE SET token = excluded.token, lease_until = excluded.lease_until
WHERE toolwire_response_locks.lease_until <= ? OR toolwire_response_locks.token = excluded.token
RETURNING 1
"""
_UNLOCK = "DELETE FROM toolwire_response_locks WHERE id = ? AND token = ?"
_SWEEP_LOCKS = "DELETE FROM toolwire_response_locks WHERE lease_until <= ?"


class SqlResponses:
    """Entries in a table of SQLite or PostgreSQL. Statements run in worker threads."""

    def __init__(self, link: SqlLink, bounds: OwnerBounds, clock: Callable[[], float]) -> None:
        self._link = link
        self._bounds = bounds
        self._clock = clock
        self._next_sweep = 0.0

    async def save(self, owner: str, entry_id: str, data: bytes, seconds: float) -> None:
        await asyncio.to_thread(self._save, owner, entry_id, data, seconds)

    def _save(self, owner: str, entry_id: str, data: bytes, seconds: float) -> None:
        """Save an entry, then delete expired entries (once a minute) and those beyond the owner's bounds."""
        now, owner_key = self._clock(), entry_key(owner)
        row = (entry_key(owner, entry_id), owner_key, data, len(data), now + seconds, now)
        _, [(count, size)] = self._link.execute((_SAVE, row), (_TOTALS, (owner_key,)))
        if now >= self._next_sweep:
            self._next_sweep = now + _SWEEP_INTERVAL
            self._link.execute((_SWEEP, (now,)), (_SWEEP_LOCKS, (now,)))
        if count > self._bounds.max_entries or size > self._bounds.max_bytes:
            self._link.execute((_EVICT, (owner_key, self._bounds.max_bytes, self._bounds.max_entries)))

    async def load(self, owner: str, entry_ids: Sequence[str], renew: float | None = None) -> dict[str, bytes]:
        if not entry_ids:
            return {}
        ids_by_key = {entry_key(owner, entry_id): entry_id for entry_id in entry_ids}
        now, keys = self._clock(), tuple(ids_by_key)
        statements = [(_with_marks(_LOAD, keys), (*keys, now))]
        if renew is not None:
            statements.append((_with_marks(_RENEW, keys), (now + renew, now, *keys, now)))
        rows, *_ = await asyncio.to_thread(self._link.execute, *statements)
        return {ids_by_key[bytes(key)]: bytes(data) for key, data in rows}

    async def delete(self, owner: str, entry_ids: Sequence[str]) -> None:
        keys = [entry_key(owner, entry_id) for entry_id in entry_ids]
        if keys:
            await asyncio.to_thread(self._link.execute, (_with_marks(_DELETE, keys), keys))

    async def lock(self, owner: str, entry_id: str, token: str, seconds: float) -> bool:
        now = self._clock()
        values = (entry_key(owner, entry_id), token, now + seconds, now)
        [rows] = await asyncio.to_thread(self._link.execute, (_LOCK, values))
        return bool(rows)

    async def unlock(self, owner: str, entry_id: str, token: str) -> None:
        await asyncio.to_thread(self._link.execute, (_UNLOCK, (entry_key(owner, entry_id), token)))

    async def aclose(self) -> None:
        await asyncio.to_thread(self._link.close)


def _with_marks(statement: str, values: Sequence[object]) -> str:
    return statement.format(marks=", ".join("?" * len(values)))
