"""Stored responses in a table: of SQLite for one machine, of PostgreSQL for any number of machines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..responses.store import HeldLock, LockReleases, OwnerBounds, entry_key, lock_lost
from .database import Execute, SqlLink, run_to_end

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

_SWEEP_INTERVAL = 60.0  # seconds between two deletions of expired rows
_SAVE_ENTRY = """
INSERT INTO toolwire_responses (id, owner, data, size, expires_at, used_at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    data = excluded.data, size = excluded.size, expires_at = excluded.expires_at, used_at = excluded.used_at
"""
_TOTALS = "SELECT count(*), sum(size) FROM toolwire_responses WHERE owner = ?"
_EVICT_ENTRIES = """
DELETE FROM toolwire_responses WHERE id IN (
    SELECT id FROM (
        SELECT id, sum(size) OVER newest AS total, row_number() OVER newest AS position
        FROM toolwire_responses WHERE owner = ? WINDOW newest AS (ORDER BY used_at DESC, id DESC)
    ) AS ranked WHERE total > ? OR position > ?
)
"""
_LOAD_ENTRIES = "SELECT id, data FROM toolwire_responses WHERE id IN ({marks}) AND expires_at > ?"
_RENEW = "UPDATE toolwire_responses SET expires_at = ?, used_at = ? WHERE id IN ({marks}) AND expires_at > ?"
_DELETE_ENTRIES = "DELETE FROM toolwire_responses WHERE id IN ({marks})"
_SWEEP_ENTRIES = "DELETE FROM toolwire_responses WHERE expires_at <= ?"
_LOCK_ENTRY = """
INSERT INTO toolwire_response_locks (id, token, lease_until) VALUES (?, ?, ?)
ON CONFLICT (id) DO UPDATE SET token = excluded.token, lease_until = excluded.lease_until
WHERE toolwire_response_locks.lease_until <= ? OR toolwire_response_locks.token = excluded.token
RETURNING 1
"""
_HOLD_LOCK = "UPDATE toolwire_response_locks SET token = token WHERE id = ? AND token = ? RETURNING 1"
_UNLOCK = "DELETE FROM toolwire_response_locks WHERE id = ? AND token = ?"
_SWEEP_LOCKS = "DELETE FROM toolwire_response_locks WHERE lease_until <= ?"


class SqlResponses:
    """Entries in a table of SQLite or PostgreSQL. Statements run in worker threads."""

    def __init__(self, link: SqlLink, bounds: OwnerBounds, clock: Callable[[], float]) -> None:
        self._link = link
        self._bounds = bounds
        self._clock = clock
        self._next_sweep = 0.0
        self._releases = LockReleases(self._unlock)

    async def save(self, owner: str, entry_id: str, data: bytes, seconds: float, lock: HeldLock | None = None) -> None:
        await run_to_end(partial(self._save, owner, entry_id, data, seconds, lock))

    def _save(self, owner: str, entry_id: str, data: bytes, seconds: float, lock: HeldLock | None) -> None:
        """Save an entry, then delete expired entries and locks (once a minute) and entries beyond the owner's bounds."""
        now, owner_key = self._clock(), entry_key(owner)
        row = (entry_key(owner, entry_id), owner_key, data, len(data), now + seconds, now)

        def write(execute: Execute) -> list[Any]:
            _require_lock(execute, owner, lock)
            execute(_SAVE_ENTRY, row)
            return execute(_TOTALS, (owner_key,))

        [(count, size)] = self._link.transact(write)
        if now >= self._next_sweep:
            self._next_sweep = now + _SWEEP_INTERVAL
            self._link.execute((_SWEEP_ENTRIES, (now,)), (_SWEEP_LOCKS, (now,)))
        if count > self._bounds.max_entries or size > self._bounds.max_bytes:
            self._link.execute((_EVICT_ENTRIES, (owner_key, self._bounds.max_bytes, self._bounds.max_entries)))

    async def load(self, owner: str, entry_ids: Sequence[str], renew: float | None = None) -> dict[str, bytes]:
        """Load the entries that have not expired. `renew` sets the seconds until they expire, and counts as a use."""
        if not entry_ids:
            return {}
        ids_by_key = {entry_key(owner, entry_id): entry_id for entry_id in entry_ids}
        now, keys = self._clock(), tuple(ids_by_key)
        statements = [(_with_marks(_LOAD_ENTRIES, keys), (*keys, now))]
        if renew is not None:
            statements.append((_with_marks(_RENEW, keys), (now + renew, now, *keys, now)))
        rows, *_ = await asyncio.to_thread(self._link.execute, *statements)
        return {ids_by_key[bytes(key)]: bytes(data) for key, data in rows}

    async def delete(self, owner: str, entry_ids: Sequence[str], lock: HeldLock | None = None) -> None:
        keys = [entry_key(owner, entry_id) for entry_id in entry_ids]

        def write(execute: Execute) -> None:
            _require_lock(execute, owner, lock)
            execute(_with_marks(_DELETE_ENTRIES, keys), keys)

        if keys:
            await run_to_end(partial(self._link.transact, write))

    async def lock(self, owner: str, entry_id: str, token: str, seconds: float) -> bool:
        now = self._clock()
        values = (entry_key(owner, entry_id), token, now + seconds, now)
        [rows] = await run_to_end(partial(self._link.execute, (_LOCK_ENTRY, values)))
        return bool(rows)

    async def unlock(self, owner: str, entry_id: str, token: str) -> None:
        await self._releases.release(owner, entry_id, token)

    async def _unlock(self, owner: str, entry_id: str, token: str) -> None:
        await run_to_end(partial(self._link.execute, (_UNLOCK, (entry_key(owner, entry_id), token))))

    async def aclose(self) -> None:
        await self._releases.aclose()
        await asyncio.to_thread(self._link.close)


def _require_lock(execute: Execute, owner: str, lock: HeldLock | None) -> None:
    """Raise LockLost if a lock is lost. The row of a lock stays locked until the end of the transaction."""
    if lock is not None and not execute(_HOLD_LOCK, (entry_key(owner, lock.entry_id), lock.token)):
        raise lock_lost()


def _with_marks(statement: str, values: Sequence[object]) -> str:
    return statement.format(marks=", ".join("?" * len(values)))
