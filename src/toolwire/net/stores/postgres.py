"""Store records and runs in PostgreSQL: one statement per operation, each in its own transaction, with the server's clock.

The summaries of runs are in `toolwire_runs`, their logs in `toolwire_run_rows`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from ...run.values.records import (
    DAY,
    MAX_LEASE,
    PAGE_ROWS,
    WEEK,
    Claim,
    Record,
    RecordState,
    RunStatus,
    StoredRun,
    append_digest,
    check_run,
)
from .postgres_pool import NOW, PostgresPool, PostgresTable
from .rules import (
    COLUMNS,
    RUN_COLUMNS,
    as_bytes,
    as_text,
    is_repeated_append,
    record_from_row,
    run_from_row,
    sweep_in_batches,
)

# An append is one transaction: the statement that changes the summary compares the version and locks the row, so the
# second of two writers finds another version; then the rows are inserted, a page per statement.


_RUNS_VERSION = "toolwire runs, version 3"
RUNS = PostgresTable(
    "toolwire_runs",
    _RUNS_VERSION,
    f"""
CREATE TABLE IF NOT EXISTS toolwire_runs (
    id bytea PRIMARY KEY, run_id bytea NOT NULL, version bigint NOT NULL, status text NOT NULL, token bytea NOT NULL,
    summary bytea NOT NULL, lease_until float8 NOT NULL, expires_at float8 NOT NULL, created_at float8 NOT NULL,
    updated_at float8 NOT NULL, tenant bytea NOT NULL, rows bigint NOT NULL, digest bytea NOT NULL
);
CREATE TABLE IF NOT EXISTS toolwire_run_rows (
    id bytea NOT NULL REFERENCES toolwire_runs ON DELETE CASCADE, position bigint NOT NULL, data bytea NOT NULL,
    PRIMARY KEY (id, position)
);
CREATE INDEX IF NOT EXISTS toolwire_runs_by_expiry ON toolwire_runs (greatest(expires_at, lease_until));
CREATE INDEX IF NOT EXISTS toolwire_runs_ready ON toolwire_runs (updated_at) WHERE status = 'running' AND token = '';
COMMENT ON TABLE toolwire_runs IS '{_RUNS_VERSION}';
""",
    has_old_runs="toolwire runs, version 2",
)
_RUN_EXISTS = f"greatest(r.expires_at, r.lease_until) > {NOW}"
_IS_RUN_EXPIRED = f"greatest(r.expires_at, r.lease_until) <= {NOW}"  # NOT (…) would not use the index
_IS_LEASE_OVER = f"(r.lease_until <= {NOW} OR r.lease_until > {NOW} + {MAX_LEASE})"
_IS_RUN_FREE = f"(r.token = '' OR r.token = %(token)s OR {_IS_LEASE_OVER})"
_LEASE_END = f"CASE WHEN %(leased)s THEN {NOW} + %(lease)s ELSE 0 END"
_HOLDER_AFTER_PUT = "CASE WHEN %(leased)s THEN %(token)s ELSE ''::bytea END"
_CREATE_RUN = f"""
INSERT INTO toolwire_runs AS r (id, {RUN_COLUMNS})
VALUES (%(id)s, %(run_id)s, 1, %(status)s, {_HOLDER_AFTER_PUT}, %(summary)s, {_LEASE_END}, {NOW} + %(ttl)s, {NOW}, {NOW}, %(tenant)s, %(count)s, %(digest)s)
ON CONFLICT (id) DO UPDATE SET
    version = 1, status = excluded.status, token = excluded.token, summary = excluded.summary,
    lease_until = excluded.lease_until, expires_at = excluded.expires_at, created_at = excluded.created_at,
    updated_at = excluded.updated_at, tenant = excluded.tenant, rows = excluded.rows,
    digest = excluded.digest
WHERE NOT {_RUN_EXISTS}
RETURNING {RUN_COLUMNS}
"""
_CONTINUE_RUN = f"""
UPDATE toolwire_runs r SET
    version = version + 1, status = %(status)s, token = {_HOLDER_AFTER_PUT}, summary = %(summary)s, lease_until = {_LEASE_END},
    expires_at = {NOW} + %(ttl)s, updated_at = {NOW}, digest = %(digest)s,
    rows = CASE WHEN %(restart)s THEN 0 ELSE rows END + %(count)s
WHERE id = %(id)s AND version = %(expected)s AND tenant = %(tenant)s AND {_RUN_EXISTS} AND {_IS_RUN_FREE}
RETURNING {RUN_COLUMNS}
"""
_GET_RUN = f"SELECT {RUN_COLUMNS} FROM toolwire_runs r WHERE id = %(id)s AND {_RUN_EXISTS}"
_DELETE_ROWS = "DELETE FROM toolwire_run_rows WHERE id = %(id)s"
_ADD_ROWS = """
INSERT INTO toolwire_run_rows (id, position, data)
SELECT %(id)s, %(first)s + number - 1, data FROM unnest(%(rows)s::bytea[]) WITH ORDINALITY AS page (data, number)
"""
_READ_ROWS = """
SELECT data FROM toolwire_run_rows WHERE id = %(id)s AND position >= %(start)s AND position < %(stop)s ORDER BY position
"""
_LIST_RUNS = f"""
SELECT {RUN_COLUMNS} FROM toolwire_runs r
WHERE {_RUN_EXISTS} AND (%(status)s::text IS NULL OR status = %(status)s::text)
    AND (%(tenant)s::bytea IS NULL OR tenant = %(tenant)s::bytea)
ORDER BY created_at DESC LIMIT %(limit)s
"""
_READY_RUNS = f"""
SELECT run_id FROM toolwire_runs r
WHERE status = 'running' AND token = '' AND {_RUN_EXISTS} ORDER BY updated_at DESC LIMIT %(limit)s
"""
_TAKE_LEASE = f"""
UPDATE toolwire_runs r SET token = %(token)s, lease_until = {NOW} + %(seconds)s
WHERE id = %(id)s AND {_RUN_EXISTS} AND {_IS_RUN_FREE}
RETURNING {RUN_COLUMNS}
"""
_IS_HELD = f"id = %(id)s AND token = %(token)s AND token <> '' AND {_RUN_EXISTS}"
_RENEW_LEASE = f"UPDATE toolwire_runs r SET lease_until = {NOW} + %(seconds)s WHERE {_IS_HELD}"
_RELEASE_LEASE = f"UPDATE toolwire_runs r SET token = '', lease_until = 0 WHERE {_IS_HELD}"
_DELETE_RUN = f"DELETE FROM toolwire_runs r WHERE id = %(id)s AND {_RUN_EXISTS} AND (r.token = '' OR {_IS_LEASE_OVER})"
_SWEEP_RUNS = f"""
DELETE FROM toolwire_runs WHERE id IN (
    SELECT id FROM toolwire_runs r WHERE {_IS_RUN_EXPIRED} LIMIT %(most)s FOR UPDATE SKIP LOCKED
)
"""
_RUNS_SWEEP_BATCH = 1_000  # rows; a run is larger than a record


class PostgresRuns:
    """The runs of a `PostgresStore`."""

    def __init__(self, pool: PostgresPool) -> None:
        self._pool = pool

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
        values = {
            "id": _row_id(run.run_id),
            "run_id": as_bytes(run.run_id),
            "status": run.status,
            "token": as_bytes(run.token),
            "summary": as_bytes(run.summary),
            "tenant": as_bytes(run.tenant),
            "digest": as_bytes(append_digest(run, rows)),
            "count": len(rows),
            "restart": restart,
            "ttl": float(ttl),
            "lease": float(lease),
            "leased": run.status == "running" and run.token != "",
            "expected": expected_version,
        }

        def write(connection: Any) -> StoredRun | None:
            """Change the summary and insert the rows, or return None if the version or the lease does not fit."""
            row = connection.execute(_CONTINUE_RUN if expected_version else _CREATE_RUN, values, binary=True).fetchone()
            if row is None:
                return None
            stored = run_from_row(row)
            if stored.rows == len(rows):  # a new log: there may be rows of an expired run
                connection.execute(_DELETE_ROWS, values)
            for start in range(0, len(rows), PAGE_ROWS):
                page = {"first": stored.rows - len(rows) + start, "rows": list(rows[start : start + PAGE_ROWS])}
                connection.execute(_ADD_ROWS, values | page)
            return stored

        stored = self._pool.transact(write)
        if stored is not None:
            return stored
        existing = self.get(run.run_id)
        return existing if is_repeated_append(existing, run, rows, expected_version) else None

    def rows(self, run_id: str, start: int, stop: int) -> Sequence[bytes]:
        values = {"id": _row_id(run_id), "start": start, "stop": stop}
        return [row for (row,) in self._pool.run(_READ_ROWS, values)]

    def get(self, run_id: str) -> StoredRun | None:
        return self._read_one(_GET_RUN, {"id": _row_id(run_id)})

    def list(
        self, status: RunStatus | None = None, limit: int = 100, *, tenant: str | None = None
    ) -> tuple[StoredRun, ...]:
        """List runs, the newest first."""
        values = {"status": status, "tenant": None if tenant is None else as_bytes(tenant), "limit": limit}
        return tuple(map(run_from_row, self._pool.run(_LIST_RUNS, values).fetchall()))

    def ready(self, limit: int = 1000) -> Sequence[str]:
        """Return the ids of running runs that no process continues, the latest change first."""
        return [as_text(run_id) for (run_id,) in self._pool.run(_READY_RUNS, {"limit": limit})]

    def lease(self, run_id: str, token: str, seconds: float) -> StoredRun | None:
        return self._read_one(_TAKE_LEASE, _lease_values(run_id, token, seconds))

    def renew(self, run_id: str, token: str, seconds: float) -> bool:
        return self._change(_RENEW_LEASE, _lease_values(run_id, token, seconds))

    def release(self, run_id: str, token: str) -> bool:
        return self._change(_RELEASE_LEASE, {"id": _row_id(run_id), "token": as_bytes(token)})

    def delete(self, run_id: str) -> bool:
        return self._change(_DELETE_RUN, {"id": _row_id(run_id)})

    def sweep(self, limit: int | None = None) -> int:
        """Delete expired runs in batches, so that no statement exceeds its timeout."""
        return sweep_in_batches(
            lambda size: int(self._pool.run(_SWEEP_RUNS, {"most": size}).rowcount), limit, max_batch=_RUNS_SWEEP_BATCH
        )

    def _read_one(self, statement: str, values: dict[str, Any]) -> StoredRun | None:
        row = self._pool.run(statement, values).fetchone()
        return None if row is None else run_from_row(row)

    def _change(self, statement: str, values: dict[str, Any]) -> bool:
        return bool(self._pool.run(statement, values).rowcount == 1)


def _lease_values(run_id: str, token: str, seconds: float) -> dict[str, Any]:
    return {"id": _row_id(run_id), "token": as_bytes(token), "seconds": float(seconds)}


def _row_id(run_id: str) -> bytes:
    return hashlib.sha256(as_bytes(run_id)).digest()


# The tables are created on first use; their comments contain the version. A key may exceed the maximum size of an index
# entry (8 KiB pages: about 2.7 kB), so its hash is the primary key.
#
# The server keeps acknowledged writes unless `synchronous_commit` or `fsync` is off, or a standby with replication
# lag takes over. Safe between threads, processes and machines.


_SWEEP_BATCH = 10_000  # rows; keeps each statement below its timeout, however many rows there are

_VERSION = "toolwire records, version 1"
_IS_EXPIRED = f"(r.state = 'done' AND r.expires_at <= {NOW})"
_IS_UNKNOWN = f"(r.state = 'unknown' OR (r.state = 'running' AND {_IS_LEASE_OVER}))"
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
        """Claim a key and return the new record, or return the existing record."""
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
