"""The Responses state in SQLite, for one machine, or in PostgreSQL, for any number of machines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from .response_store import OwnerBounds, entry_key
from .sql_link import SqlLink

__all__ = ["TABLES", "SqlResponses"]

_SWEEP_INTERVAL = 60.0  # seconds between two deletions of expired rows
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
