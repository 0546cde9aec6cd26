"""Store records and runs in one SQLite file: the default. Safe between threads and processes of one machine.

Each change of a run reads and writes in one transaction.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from ...run.values.records import DAY, MAX_LEASE, WEEK, Claim, Record, RecordState, RunStatus, StoredRun, check_run
from .rules import (
    COLUMNS,
    RUN_COLUMNS,
    ExpiryClock,
    as_bytes,
    as_text,
    effective_state,
    existing_run,
    is_leased_to_another,
    is_repeated_append,
    may_append,
    may_claim,
    new_record,
    next_version,
    record_from_row,
    run_from_row,
)
from .sqlite_connection import SqliteConnection

# The table `runs` has a row per run, the table `run_rows` the logs. A trigger deletes the log of a deleted run, so
# that no statement can forget it.


_READ_RUN = f"SELECT {RUN_COLUMNS} FROM runs WHERE run_id = ?"
_RUN_COLUMN_NAMES = RUN_COLUMNS.split(", ")
_WRITE_RUN = f"""
INSERT INTO runs ({RUN_COLUMNS}) VALUES ({", ".join("?" * len(_RUN_COLUMN_NAMES))})
ON CONFLICT (run_id) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _RUN_COLUMN_NAMES[1:])}
"""
_ADD_ROW = "INSERT INTO run_rows (run_id, position, data) VALUES (?, ?, ?)"
_READ_ROWS = "SELECT data FROM run_rows WHERE run_id = ? AND position >= ? AND position < ? ORDER BY position"
_DELETE_ROWS = "DELETE FROM run_rows WHERE run_id = ?"
_LIST_RUNS = f"""
SELECT {RUN_COLUMNS} FROM runs
WHERE max(expires_at, lease_until) > :now AND (:status IS NULL OR status = :status)
  AND (:tenant IS NULL OR tenant = :tenant)
ORDER BY created_at DESC, rowid DESC LIMIT :limit
"""
_READY_RUNS = """
SELECT run_id FROM runs
WHERE status = 'running' AND token = x'' AND max(expires_at, lease_until) > :now ORDER BY updated_at DESC LIMIT :limit
"""
_IS_LEASE_OVER = f"(lease_until <= :now OR lease_until > :now + {MAX_LEASE})"
_TAKE_LEASE = "UPDATE runs SET token = ?, lease_until = ? WHERE run_id = ?"
# An expired run must not be revived: a sweep may have deleted a part of its log.
_CHANGE_LEASE = """
UPDATE runs SET token = ?, lease_until = ?
WHERE run_id = ? AND token = ? AND token <> x'' AND max(expires_at, lease_until) > ?
"""
_DELETE_RUN = (
    "DELETE FROM runs WHERE run_id = :run_id AND max(expires_at, lease_until) > :now"
    f" AND (token = x'' OR {_IS_LEASE_OVER})"
)
_SWEEP_RUNS = (
    "DELETE FROM runs WHERE rowid = (SELECT rowid FROM runs WHERE max(expires_at, lease_until) <= :now LIMIT 1)"
)
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
        """Append to the log of a run if its version is `expected_version`, 0 for a new run. Return the stored run.

        `restart` replaces the log. Return None if another process has changed or leased the run. An identical append that
        succeeded before is accepted.
        """
        check_run(run, rows)
        run_id = as_bytes(run.run_id)
        with self._file.transaction() as connection:
            now = self._clock()
            existing = _read_run(connection, run.run_id, now)
            if not may_append(existing, run, expected_version, now):
                return existing if is_repeated_append(existing, run, rows, expected_version) else None
            if existing is None or restart:
                existing = existing and replace(existing, rows=0)
                connection.execute(_DELETE_ROWS, (run_id,))
            stored = next_version(existing, run, rows, now, ttl, lease)
            connection.execute(_WRITE_RUN, _run_values(stored))
            first = stored.rows - len(rows)
            connection.executemany(_ADD_ROW, [(run_id, first + number, row) for number, row in enumerate(rows)])
            return stored

    def rows(self, run_id: str, start: int, stop: int) -> Sequence[bytes]:
        with self._file.use() as connection:
            return [row for (row,) in connection.execute(_READ_ROWS, (as_bytes(run_id), start, stop))]

    def get(self, run_id: str) -> StoredRun | None:
        with self._file.use() as connection:
            return _read_run(connection, run_id, self._clock())

    def list(
        self, status: RunStatus | None = None, limit: int = 100, *, tenant: str | None = None
    ) -> tuple[StoredRun, ...]:
        """List runs, the newest first."""
        with self._file.use() as connection:
            values = {"now": self._clock(), "status": status, "tenant": _optional_bytes(tenant), "limit": limit}
            rows = connection.execute(_LIST_RUNS, values).fetchall()
        return tuple(map(run_from_row, rows))

    def ready(self, limit: int = 1000) -> Sequence[str]:
        """Return the ids of running runs that no process continues, the latest change first."""
        with self._file.use() as connection:
            rows = connection.execute(_READY_RUNS, {"now": self._clock(), "limit": limit})
            return [as_text(run_id) for (run_id,) in rows]

    def lease(self, run_id: str, token: str, seconds: float) -> StoredRun | None:
        """Take or renew the lease of a run, and return it, or None if it is absent or leased to another token."""
        with self._file.transaction() as connection:
            now = self._clock()
            existing = _read_run(connection, run_id, now)
            if existing is None or is_leased_to_another(existing, token, now):
                return None
            connection.execute(_TAKE_LEASE, (as_bytes(token), now + seconds, as_bytes(run_id)))
            return replace(existing, token=token, lease_until=now + seconds)

    def renew(self, run_id: str, token: str, seconds: float) -> bool:
        now = self._clock()
        return self._change(_CHANGE_LEASE, (as_bytes(token), now + seconds, as_bytes(run_id), as_bytes(token), now))

    def release(self, run_id: str, token: str) -> bool:
        return self._change(_CHANGE_LEASE, (b"", 0.0, as_bytes(run_id), as_bytes(token), self._clock()))

    def delete(self, run_id: str) -> bool:
        return self._change(_DELETE_RUN, {"run_id": as_bytes(run_id), "now": self._clock()})

    def sweep(self, limit: int | None = None) -> int:
        return self._file.sweep(_SWEEP_RUNS, self._clock(), limit, _SWEEP_ROWS)

    def _change(self, statement: str, values: Any) -> bool:
        with self._file.use() as connection:
            return connection.execute(statement, values).rowcount == 1


def _read_run(connection: sqlite3.Connection, run_id: str, now: float) -> StoredRun | None:
    row = connection.execute(_READ_RUN, (as_bytes(run_id),)).fetchone()
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


# A durable claim and its completion are on disk (`synchronous=FULL`) before the operation returns; other writes
# survive a crash of the process, but perhaps not of the machine.


_CLAIM = f"""
INSERT INTO records ({COLUMNS}, durable)
VALUES (:key, :tool, :fingerprint, 'running', :token, :now + :lease, :now + :ttl, :now, NULL, :durable)
ON CONFLICT (key) DO UPDATE SET
    tool = excluded.tool, fingerprint = excluded.fingerprint, state = excluded.state, token = excluded.token,
    lease_until = excluded.lease_until, expires_at = excluded.expires_at, created_at = excluded.created_at,
    result = NULL, durable = excluded.durable
WHERE (records.state = 'done' AND records.expires_at <= :expiry_now)
   OR (:reclaim AND records.fingerprint = excluded.fingerprint
       AND (records.state = 'unknown' OR (records.state = 'running' AND {_IS_LEASE_OVER})))
RETURNING 1
"""
_READ = f"SELECT {COLUMNS} FROM records WHERE key = ?"
_DURABLE = "SELECT durable FROM records WHERE key = ? AND token = ?"
_RENEW = "UPDATE records SET lease_until = ? WHERE key = ? AND token = ? AND state = 'running'"
_COMPLETE = """
UPDATE records SET state = :state, result = :result, expires_at = :expires_at
WHERE key = :key AND token = :token AND (state <> 'done' OR (:state = 'done' AND result = :result))
"""
_RELEASE = "DELETE FROM records WHERE key = ? AND token = ? AND state = 'running'"
_IS_UNKNOWN = f"(state = 'unknown' OR (state = 'running' AND {_IS_LEASE_OVER}))"
_LIST = f"""
SELECT {COLUMNS} FROM records
WHERE NOT (state = 'done' AND expires_at <= :expiry_now)
  AND (:state IS NULL OR :state = CASE WHEN {_IS_UNKNOWN} THEN 'unknown' ELSE state END)
ORDER BY created_at DESC, rowid DESC LIMIT :limit
"""
_RESOLVE = f"""
UPDATE records SET state = 'done', token = x'', result = :result, expires_at = :expires_at
WHERE key = :key AND {_IS_UNKNOWN}
"""
_DELETE_UNKNOWN = f"DELETE FROM records WHERE key = :key AND {_IS_UNKNOWN}"
_SWEEP = """
DELETE FROM records
WHERE rowid = (SELECT rowid FROM records WHERE state = 'done' AND expires_at <= :now LIMIT 1)
"""


class SqliteStore:
    """A store in a file. The file is created on first use, with access for its owner only."""

    def __init__(
        self, path: str, clock: Callable[[], float] = time.time, ticks: Callable[[], float] | None = None
    ) -> None:
        self._file = SqliteConnection(path)
        self._clock = clock
        self._expiry = ExpiryClock(clock, ticks)
        self.runs = SqliteRuns(self._file, clock)

    def claim(self, claim: Claim) -> Record:
        """Claim a key and return the new record, or return the existing record.

        If another process claims it between read and write, try again.
        """
        with self._file.use() as connection:
            while True:
                now, expiry_now = self._clock(), self._expiry.now()
                # Read first: returning an existing record takes no write lock.
                row = connection.execute(_READ, (as_bytes(claim.key),)).fetchone()
                existing = _effective_record(row, now, expiry_now)
                if existing is not None and not may_claim(claim, existing):
                    return existing
                self._file.synchronise(connection, full=claim.durable)
                if connection.execute(_CLAIM, _claim_values(claim, now, expiry_now)).fetchall():
                    return new_record(claim, now)

    def renew(self, key: str, token: str, lease: float) -> bool:
        return self._change(_RENEW, (self._clock() + lease, as_bytes(key), as_bytes(token)), full=False)

    def complete(self, key: str, token: str, result: str, ttl: float, state: RecordState = "done") -> bool:
        """Store the result for the holder of `token`, as durable as the claim was. Return False for another token.

        A done record accepts only an identical result.
        """
        with self._file.use() as connection:
            key_and_token = (as_bytes(key), as_bytes(token))
            durable = connection.execute(_DURABLE, key_and_token).fetchone()
            if durable is None:
                return False
            self._file.synchronise(connection, full=bool(durable[0]))
            values = {"key": key_and_token[0], "token": key_and_token[1], "state": state, "result": as_bytes(result)}
            done = connection.execute(_COMPLETE, {**values, "expires_at": self._expiry.end_of(ttl)})
            return done.rowcount == 1

    def release(self, key: str, token: str) -> bool:
        return self._change(_RELEASE, (as_bytes(key), as_bytes(token)), full=False)

    def get(self, key: str) -> Record | None:
        with self._file.use() as connection:
            row = connection.execute(_READ, (as_bytes(key),)).fetchone()
            return _effective_record(row, self._clock(), self._expiry.now())

    def records(self, state: RecordState | None = None, limit: int = 100) -> list[Record]:
        with self._file.use() as connection:
            now, expiry_now = self._clock(), self._expiry.now()
            values = {"now": now, "expiry_now": expiry_now, "state": state, "limit": limit}
            rows = connection.execute(_LIST, values).fetchall()
        found = [_effective_record(row, now, expiry_now) for row in rows]
        return [record for record in found if record is not None]

    def resolve(self, key: str, result: str | None, ttl: float = DAY) -> bool:
        now = self._clock()
        if result is None:
            return self._change(_DELETE_UNKNOWN, {"key": as_bytes(key), "now": now}, full=True)
        values = {"key": as_bytes(key), "now": now, "result": as_bytes(result), "expires_at": self._expiry.end_of(ttl)}
        return self._change(_RESOLVE, values, full=True)

    def sweep(self, limit: int | None = None) -> int:
        swept = self._file.sweep(_SWEEP, self._expiry.now(), limit)
        return swept + self.runs.sweep(None if limit is None else limit - swept)

    def vacuum(self) -> None:
        """Rewrite the file without free pages. Other processes cannot write meanwhile."""
        with self._file.use() as connection:
            connection.execute("VACUUM")  # also applies `auto_vacuum` to a file of an earlier version

    def close(self) -> None:
        self._file.close()

    def _change(self, statement: str, values: Any, *, full: bool) -> bool:
        with self._file.use() as connection:
            self._file.synchronise(connection, full=full)
            return connection.execute(statement, values).rowcount == 1


def _claim_values(claim: Claim, now: float, expiry_now: float) -> dict[str, Any]:
    """Return the parameters of the `_CLAIM` statement."""
    return {
        "key": as_bytes(claim.key),
        "tool": as_bytes(claim.tool),
        "fingerprint": as_bytes(claim.fingerprint),
        "token": as_bytes(claim.token),
        "lease": claim.lease,
        "ttl": claim.ttl,
        "reclaim": claim.reclaim,
        "durable": claim.durable,
        "now": now,
        "expiry_now": expiry_now,
    }


def _effective_record(row: Any, now: float, expiry_now: float) -> Record | None:
    return None if row is None else effective_state(record_from_row(row), now, expiry_now)
