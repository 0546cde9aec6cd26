"""Store runs in the SQLite file of the records. Each change reads and writes in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ...run.stored_runs import WEEK, RunStatus, StoredRun, check_run_size
from .rows import RUN_COLUMNS, as_bytes, run_from_row
from .run_rules import existing_run, is_leased_to_another, is_repeated_put, may_put, next_version
from .sqlite_connection import SqliteConnection

__all__ = ["SqliteRuns"]

_READ = f"SELECT {RUN_COLUMNS} FROM runs WHERE run_id = ?"
_WRITE = f"INSERT OR REPLACE INTO runs ({RUN_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_LIST = f"""
SELECT {RUN_COLUMNS.replace(", state", ", x''")} FROM runs
WHERE max(expires_at, lease_until) > :now AND (:status IS NULL OR status = :status)
  AND (:tenant IS NULL OR tenant = :tenant)
ORDER BY created_at DESC, rowid DESC LIMIT :limit
"""
_LEASE = "UPDATE runs SET token = ?, lease_until = ? WHERE run_id = ?"
_CHANGE_LEASE = "UPDATE runs SET token = ?, lease_until = ? WHERE run_id = ? AND token = ? AND token <> x''"
_DELETE = "DELETE FROM runs WHERE run_id = ? AND max(expires_at, lease_until) > ? AND (token = x'' OR lease_until <= ?)"
_SWEEP = """
DELETE FROM runs WHERE rowid IN (SELECT rowid FROM runs WHERE max(expires_at, lease_until) <= :now LIMIT :size)
"""


class SqliteRuns:
    """The runs of a `SqliteStore`. A run is on disk before `put` returns."""

    def __init__(self, file: SqliteConnection, clock: Callable[[], float]) -> None:
        self._file = file
        self._clock = clock

    def put(self, run: StoredRun, expected_version: int, *, ttl: float = WEEK, lease: float = 60.0) -> StoredRun | None:
        """Store a run if its version is `expected_version`; 0 for a new run."""
        check_run_size(run)
        with self._file.transaction() as connection:
            now = self._clock()
            existing = _read(connection, run.run_id, now)
            if not may_put(existing, run, expected_version, now):
                return existing if is_repeated_put(existing, run, expected_version) else None
            stored = next_version(existing, run, now, ttl, lease)
            connection.execute(_WRITE, _run_values(stored))
            return stored

    def get(self, run_id: str) -> StoredRun | None:
        with self._file.use() as connection:
            return _read(connection, run_id, self._clock())

    def list(
        self, status: RunStatus | None = None, limit: int = 100, *, tenant: str | None = None
    ) -> tuple[StoredRun, ...]:
        """List runs without their state, the newest first."""
        with self._file.use() as connection:
            values = {"now": self._clock(), "status": status, "tenant": _optional_bytes(tenant), "limit": limit}
            rows = connection.execute(_LIST, values).fetchall()
        return tuple(map(run_from_row, rows))

    def lease(self, run_id: str, token: str, seconds: float) -> StoredRun | None:
        """Take or renew the lease of a run."""
        with self._file.transaction() as connection:
            now = self._clock()
            existing = _read(connection, run_id, now)
            if existing is None or is_leased_to_another(existing, token, now):
                return None
            connection.execute(_LEASE, (as_bytes(token), now + seconds, as_bytes(run_id)))
            return replace(existing, token=token, lease_until=now + seconds)

    def renew(self, run_id: str, token: str, seconds: float) -> bool:
        values = (as_bytes(token), self._clock() + seconds, as_bytes(run_id), as_bytes(token))
        return self._change(_CHANGE_LEASE, values)

    def release(self, run_id: str, token: str) -> bool:
        return self._change(_CHANGE_LEASE, (b"", 0.0, as_bytes(run_id), as_bytes(token)))

    def delete(self, run_id: str) -> bool:
        now = self._clock()
        return self._change(_DELETE, (as_bytes(run_id), now, now))

    def sweep(self, limit: int | None = None) -> int:
        return self._file.sweep(_SWEEP, self._clock(), limit)

    def _change(self, statement: str, values: tuple[Any, ...]) -> bool:
        with self._file.use() as connection:
            return connection.execute(statement, values).rowcount == 1


def _read(connection: sqlite3.Connection, run_id: str, now: float) -> StoredRun | None:
    row = connection.execute(_READ, (as_bytes(run_id),)).fetchone()
    return None if row is None else existing_run(run_from_row(row), now)


def _optional_bytes(text: str | None) -> bytes | None:
    return None if text is None else as_bytes(text)


def _run_values(run: StoredRun) -> tuple[Any, ...]:
    """Return the values of a row in the order of RUN_COLUMNS."""
    return (
        as_bytes(run.run_id),
        run.version,
        run.status,
        as_bytes(run.token),
        as_bytes(run.summary),
        run.lease_until,
        run.expires_at,
        run.created_at,
        run.updated_at,
        as_bytes(run.tenant),
        as_bytes(run.state),
    )
