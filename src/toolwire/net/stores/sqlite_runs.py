"""Store runs in the SQLite file of the records. Each change reads and writes in one transaction.

The table `runs` has a row per run, the table `run_rows` the logs. A trigger deletes the log of a deleted run, so that no
statement can forget it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from ...run.stored_runs import WEEK, RunStatus, StoredRun, check_run
from .rows import RUN_COLUMNS, as_bytes, run_from_row
from .run_rules import existing_run, is_leased_to_another, is_repeated_append, may_append, next_version
from .sqlite_connection import SqliteConnection

__all__ = ["SqliteRuns"]

_READ = f"SELECT {RUN_COLUMNS} FROM runs WHERE run_id = ?"
_COLUMNS = RUN_COLUMNS.split(", ")
_WRITE = f"""
INSERT INTO runs ({RUN_COLUMNS}) VALUES ({", ".join("?" * len(_COLUMNS))})
ON CONFLICT (run_id) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _COLUMNS[1:])}
"""
_ADD_ROW = "INSERT INTO run_rows (run_id, position, data) VALUES (?, ?, ?)"
_READ_ROWS = "SELECT data FROM run_rows WHERE run_id = ? AND position >= ? AND position < ? ORDER BY position"
_DELETE_ROWS = "DELETE FROM run_rows WHERE run_id = ?"
_LIST = f"""
SELECT {RUN_COLUMNS} FROM runs
WHERE max(expires_at, lease_until) > :now AND (:status IS NULL OR status = :status)
  AND (:tenant IS NULL OR tenant = :tenant)
ORDER BY created_at DESC, rowid DESC LIMIT :limit
"""
_LEASE = "UPDATE runs SET token = ?, lease_until = ? WHERE run_id = ?"
# An expired run must not be revived: a sweep may have deleted a part of its log.
_CHANGE_LEASE = """
UPDATE runs SET token = ?, lease_until = ?
WHERE run_id = ? AND token = ? AND token <> x'' AND max(expires_at, lease_until) > ?
"""
_DELETE = "DELETE FROM runs WHERE run_id = ? AND max(expires_at, lease_until) > ? AND (token = x'' OR lease_until <= ?)"
_SWEEP = "DELETE FROM runs WHERE rowid = (SELECT rowid FROM runs WHERE max(expires_at, lease_until) <= :now LIMIT 1)"
# The log of a large run is deleted in several transactions: other writers would wait seconds for 200 MB at once.
_SWEEP_ROWS = """
DELETE FROM run_rows WHERE rowid IN (
    SELECT rowid FROM run_rows
    WHERE run_id = (SELECT run_id FROM runs WHERE max(expires_at, lease_until) <= :now LIMIT 1) LIMIT 8
)
"""


class SqliteRuns:
    """The runs of a `SqliteStore`. Rows are on disk before `append` returns."""

    def __init__(self, file: SqliteConnection, clock: Callable[[], float]) -> None:
        self._file = file
        self._clock = clock

    def append(
        self,
        run: StoredRun,
        rows: Sequence[bytes],
        expected_version: int,
        *,
        ttl: float = WEEK,
        lease: float = 60.0,
        restart: bool = False,
    ) -> StoredRun | None:
        """Append to the log of a run if its version is `expected_version`; 0 for a new run."""
        check_run(run, rows)
        run_id = as_bytes(run.run_id)
        with self._file.transaction() as connection:
            now = self._clock()
            existing = _read(connection, run.run_id, now)
            if not may_append(existing, run, expected_version, now):
                return existing if is_repeated_append(existing, run, rows, expected_version) else None
            if existing is None or restart:
                existing = existing and replace(existing, rows=0)
                connection.execute(_DELETE_ROWS, (run_id,))
            stored = next_version(existing, run, rows, now, ttl, lease)
            connection.execute(_WRITE, _run_values(stored))
            first = stored.rows - len(rows)
            connection.executemany(_ADD_ROW, [(run_id, first + number, row) for number, row in enumerate(rows)])
            return stored

    def rows(self, run_id: str, start: int, stop: int) -> Sequence[bytes]:
        with self._file.use() as connection:
            return [row for (row,) in connection.execute(_READ_ROWS, (as_bytes(run_id), start, stop))]

    def get(self, run_id: str) -> StoredRun | None:
        with self._file.use() as connection:
            return _read(connection, run_id, self._clock())

    def list(
        self, status: RunStatus | None = None, limit: int = 100, *, tenant: str | None = None
    ) -> tuple[StoredRun, ...]:
        """List runs, the newest first."""
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
        now = self._clock()
        return self._change(_CHANGE_LEASE, (as_bytes(token), now + seconds, as_bytes(run_id), as_bytes(token), now))

    def release(self, run_id: str, token: str) -> bool:
        return self._change(_CHANGE_LEASE, (b"", 0.0, as_bytes(run_id), as_bytes(token), self._clock()))

    def delete(self, run_id: str) -> bool:
        now = self._clock()
        return self._change(_DELETE, (as_bytes(run_id), now, now))

    def sweep(self, limit: int | None = None) -> int:
        return self._file.sweep(_SWEEP, self._clock(), limit, _SWEEP_ROWS)

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
        run.rows,
        as_bytes(run.digest),
    )
