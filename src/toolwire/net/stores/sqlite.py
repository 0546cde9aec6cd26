"""Store records and runs in one SQLite file: the default. Safe between threads and processes of one machine.

A durable claim and its completion are on disk (`synchronous=FULL`) before the operation returns; other writes survive
a crash of the process, but perhaps not of the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ...run.records import DAY, Claim, Record, RecordState
from .expiry import ExpiryClock
from .record_rules import effective_state, may_claim, new_record
from .rows import COLUMNS, as_bytes, record_from_row
from .sqlite_connection import SqliteConnection
from .sqlite_runs import SqliteRuns

__all__ = ["SqliteStore"]

_CLAIM = f"""
INSERT INTO records ({COLUMNS}, durable)
VALUES (:key, :tool, :fingerprint, 'running', :token, :now + :lease, :now + :ttl, :now, NULL, :durable)
ON CONFLICT (key) DO UPDATE SET
    tool = excluded.tool, fingerprint = excluded.fingerprint, state = excluded.state, token = excluded.token,
    lease_until = excluded.lease_until, expires_at = excluded.expires_at, created_at = excluded.created_at,
    result = NULL, durable = excluded.durable
WHERE (records.state = 'done' AND records.expires_at <= :expiry_now)
   OR (:reclaim AND records.fingerprint = excluded.fingerprint
       AND (records.state = 'unknown' OR (records.state = 'running' AND records.lease_until <= :now)))
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
_IS_UNKNOWN = "(state = 'unknown' OR (state = 'running' AND lease_until <= :now))"
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
        """Claim a key, or return the existing record.

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
        """Store a result. It is as durable as the claim was."""
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
