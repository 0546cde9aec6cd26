"""Store records and runs in PostgreSQL: one statement per operation, each in its own transaction, with the server's clock.

The tables `toolwire_records`, `toolwire_runs` and `toolwire_run_rows` are created on first use; their comments contain the
version. A key may
exceed the maximum size of an index entry, so its hash is the primary key.

The server keeps acknowledged writes unless `synchronous_commit` or `fsync` is off, or a standby with replication lag
takes over. Safe between threads, processes and machines.
"""

from __future__ import annotations

import hashlib
from typing import Any

from ...run.records import DAY, Claim, Record, RecordState
from .expiry import sweep_in_batches
from .postgres_pool import NOW, PostgresPool, PostgresTable
from .postgres_runs import RUNS, PostgresRuns
from .rows import COLUMNS, as_bytes, record_from_row

__all__ = ["PostgresStore"]

_SWEEP_BATCH = 10_000  # rows; keeps each statement below its timeout, however many rows there are

_VERSION = "toolwire records, version 1"
_IS_EXPIRED = f"(r.state = 'done' AND r.expires_at <= {NOW})"
_IS_UNKNOWN = f"(r.state = 'unknown' OR (r.state = 'running' AND r.lease_until <= {NOW}))"
_STATE = f"CASE WHEN {_IS_UNKNOWN} THEN 'unknown' ELSE r.state END"
_EFFECTIVE_COLUMNS = COLUMNS.replace("state", f"{_STATE} AS state")
_MAY_CLAIM = f"({_IS_EXPIRED} OR (%(reclaim)s AND {_IS_UNKNOWN} AND r.fingerprint = %(fingerprint)s))"

_RECORDS = PostgresTable(
    "toolwire_records",
    _VERSION,
    f"""
CREATE TABLE IF NOT EXISTS toolwire_records (
    id bytea PRIMARY KEY, key bytea NOT NULL, tool bytea NOT NULL, fingerprint bytea NOT NULL, state text NOT NULL,
    token bytea NOT NULL, lease_until float8 NOT NULL, expires_at float8 NOT NULL, created_at float8 NOT NULL, result bytea
);
CREATE INDEX IF NOT EXISTS toolwire_records_by_expiry ON toolwire_records (expires_at) WHERE state = 'done';
COMMENT ON TABLE toolwire_records IS '{_VERSION}';
""",
)
# The statement reads first: returning an existing record takes no lock and writes nothing.
_CLAIM = f"""
WITH there AS MATERIALIZED (
    SELECT {_EFFECTIVE_COLUMNS} FROM toolwire_records r WHERE id = %(id)s AND NOT {_MAY_CLAIM}
), taken AS (
    INSERT INTO toolwire_records AS r (id, {COLUMNS})
    SELECT %(id)s, %(key)s, %(tool)s, %(fingerprint)s, 'running', %(token)s, {NOW} + %(lease)s, {NOW} + %(ttl)s, {NOW}, NULL
    WHERE NOT EXISTS (SELECT FROM there)
    ON CONFLICT (id) DO UPDATE SET
        tool = excluded.tool, fingerprint = excluded.fingerprint, state = excluded.state, token = excluded.token,
        lease_until = excluded.lease_until, expires_at = excluded.expires_at, created_at = excluded.created_at, result = NULL
    WHERE {_MAY_CLAIM}
    RETURNING {COLUMNS}
)
SELECT * FROM taken UNION ALL SELECT * FROM there
"""
_RENEW = f"""
UPDATE toolwire_records SET lease_until = {NOW} + %(lease)s WHERE id = %(id)s AND token = %(token)s AND state = 'running'
"""
_COMPLETE = f"""
UPDATE toolwire_records SET state = %(state)s, result = %(result)s, expires_at = {NOW} + %(ttl)s
WHERE id = %(id)s AND token = %(token)s AND (state <> 'done' OR (%(state)s = 'done' AND result = %(result)s))
"""
_RELEASE = "DELETE FROM toolwire_records WHERE id = %(id)s AND token = %(token)s AND state = 'running'"
_GET = f"SELECT {_EFFECTIVE_COLUMNS} FROM toolwire_records r WHERE id = %(id)s AND NOT {_IS_EXPIRED}"
_LIST = f"""
SELECT {_EFFECTIVE_COLUMNS} FROM toolwire_records r
WHERE NOT {_IS_EXPIRED} AND (%(state)s::text IS NULL OR %(state)s::text = {_STATE})
ORDER BY created_at DESC LIMIT %(limit)s
"""
_RESOLVE = f"""
UPDATE toolwire_records r SET state = 'done', token = '', result = %(result)s, expires_at = {NOW} + %(ttl)s
WHERE id = %(id)s AND {_IS_UNKNOWN}
"""
_DELETE_UNKNOWN = f"DELETE FROM toolwire_records r WHERE id = %(id)s AND {_IS_UNKNOWN}"
_SWEEP = f"""
DELETE FROM toolwire_records WHERE id IN (
    SELECT id FROM toolwire_records r WHERE {_IS_EXPIRED} LIMIT %(most)s FOR UPDATE SKIP LOCKED
)
"""


class PostgresStore:
    """A store with a small connection pool."""

    def __init__(self, url: str) -> None:
        self._pool = PostgresPool(url, (_RECORDS, RUNS))
        self.runs = PostgresRuns(self._pool)

    def claim(self, claim: Claim) -> Record:
        """Claim a key, or return the existing record."""
        values = {
            "id": _record_id(claim.key),
            "key": as_bytes(claim.key),
            "tool": as_bytes(claim.tool),
            "fingerprint": as_bytes(claim.fingerprint),
            "token": as_bytes(claim.token),
            "lease": float(claim.lease),
            "ttl": float(claim.ttl),
            "reclaim": claim.reclaim,
        }
        while True:
            rows = self._pool.run(_CLAIM, values).fetchall()
            if rows:
                return record_from_row(rows[0])
            # Another claim succeeded after the snapshot of this statement: try again.

    def renew(self, key: str, token: str, lease: float) -> bool:
        return self._change(_RENEW, {"id": _record_id(key), "token": as_bytes(token), "lease": float(lease)})

    def complete(self, key: str, token: str, result: str, ttl: float, state: RecordState = "done") -> bool:
        """Store the result for the holder of `token`. A done record accepts only an identical result."""
        values = {
            "id": _record_id(key),
            "token": as_bytes(token),
            "result": as_bytes(result),
            "ttl": float(ttl),
            "state": state,
        }
        return self._change(_COMPLETE, values)

    def release(self, key: str, token: str) -> bool:
        return self._change(_RELEASE, {"id": _record_id(key), "token": as_bytes(token)})

    def get(self, key: str) -> Record | None:
        rows = self._pool.run(_GET, {"id": _record_id(key)}).fetchall()
        return record_from_row(rows[0]) if rows else None

    def records(self, state: RecordState | None = None, limit: int = 100) -> list[Record]:
        return [record_from_row(row) for row in self._pool.run(_LIST, {"state": state, "limit": limit}).fetchall()]

    def resolve(self, key: str, result: str | None, ttl: float = DAY) -> bool:
        if result is None:
            return self._change(_DELETE_UNKNOWN, {"id": _record_id(key)})
        return self._change(_RESOLVE, {"id": _record_id(key), "result": as_bytes(result), "ttl": float(ttl)})

    def sweep(self, limit: int | None = None) -> int:
        swept = sweep_in_batches(
            lambda size: int(self._pool.run(_SWEEP, {"most": size}).rowcount), limit, max_batch=_SWEEP_BATCH
        )
        return swept + self.runs.sweep(None if limit is None else limit - swept)

    def close(self) -> None:
        self._pool.close()

    def _change(self, statement: str, values: dict[str, Any]) -> bool:
        return bool(self._pool.run(statement, values).rowcount == 1)


def _record_id(key: str) -> bytes:
    return hashlib.sha256(as_bytes(key)).digest()
