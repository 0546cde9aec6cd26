"""Store records in PostgreSQL: one statement per operation, each in its own transaction, with the server's clock.

The table `toolwire_records` is created on first use; its comment contains the version. A key may exceed the maximum
size of an index entry, so its hash is the primary key.

The server keeps acknowledged writes unless `synchronous_commit` or `fsync` is off, or a standby with replication lag
takes over.

A statement that waits longer than five seconds, for a lock or for a busy server, fails: the caller receives a
StoreError. A `statement_timeout` of the address, the role or the database takes precedence.

Safe between threads, processes and machines. Each active thread uses its own connection from a small pool; a
connection is not used after a fork.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

from ...ir.errors import ConfigError, MissingExtra, StoreError
from ...run.records import DAY, Claim, Record, RecordState
from .address import display_name, redact
from .rows import COLUMNS, as_bytes, record_from_row

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
except ImportError:
    raise MissingExtra(
        "the package psycopg is not installed", hint="pip install -e '.[postgres]' in a checkout of toolwire"
    ) from None

__all__ = ["PostgresStore"]

_CONNECT_SECONDS = 3
_NETWORK_TIMEOUT_MILLISECONDS = 10_000
_STATEMENT_MILLISECONDS = 5_000
_MAX_IDLE = 8  # maximum number of idle connections
_SWEEP_BATCH = 10_000  # rows; keeps each statement below its timeout, however many rows there are

_VERSION = "toolwire records, version 1"
_LOCK_ID = 0x746F6F6C77697265  # "toolwire": the advisory lock for creating the table
_NOW = "extract(epoch FROM now())::float8"
_IS_EXPIRED = f"(r.state = 'done' AND r.expires_at <= {_NOW})"
_IS_UNKNOWN = f"(r.state = 'unknown' OR (r.state = 'running' AND r.lease_until <= {_NOW}))"
_STATE = f"CASE WHEN {_IS_UNKNOWN} THEN 'unknown' ELSE r.state END"
_EFFECTIVE_COLUMNS = COLUMNS.replace("state", f"{_STATE} AS state")
_MAY_CLAIM = f"({_IS_EXPIRED} OR (%(reclaim)s AND {_IS_UNKNOWN} AND r.fingerprint = %(fingerprint)s))"

_LIMIT_STATEMENTS = f"""
SELECT set_config(name, '{_STATEMENT_MILLISECONDS}', false) FROM pg_settings WHERE name = 'statement_timeout' AND setting = '0'
"""
_FIND_TABLE = (
    "SELECT obj_description(to_regclass('toolwire_records'), 'pg_class'), to_regclass('toolwire_records')::text"
)
_MAKE_TABLE = f"""
SELECT pg_advisory_xact_lock({_LOCK_ID});
CREATE TABLE IF NOT EXISTS toolwire_records (
    id bytea PRIMARY KEY, key bytea NOT NULL, tool bytea NOT NULL, fingerprint bytea NOT NULL, state text NOT NULL,
    token bytea NOT NULL, lease_until float8 NOT NULL, expires_at float8 NOT NULL, created_at float8 NOT NULL, result bytea
);
COMMENT ON TABLE toolwire_records IS '{_VERSION}';
"""
# The statement reads first: returning an existing record takes no lock and writes nothing.
_CLAIM = f"""
WITH there AS MATERIALIZED (
    SELECT {_EFFECTIVE_COLUMNS} FROM toolwire_records r WHERE id = %(id)s AND NOT {_MAY_CLAIM}
), taken AS (
    INSERT INTO toolwire_records AS r (id, {COLUMNS})
    SELECT %(id)s, %(key)s, %(tool)s, %(fingerprint)s, 'running', %(token)s, {_NOW} + %(lease)s, {_NOW} + %(ttl)s, {_NOW}, NULL
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
UPDATE toolwire_records SET lease_until = {_NOW} + %(lease)s WHERE id = %(id)s AND token = %(token)s AND state = 'running'
"""
_COMPLETE = f"""
UPDATE toolwire_records SET state = %(state)s, result = %(result)s, expires_at = {_NOW} + %(ttl)s
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
UPDATE toolwire_records r SET state = 'done', token = '', result = %(result)s, expires_at = {_NOW} + %(ttl)s
WHERE id = %(id)s AND {_IS_UNKNOWN}
"""
_DELETE_UNKNOWN = f"DELETE FROM toolwire_records r WHERE id = %(id)s AND {_IS_UNKNOWN}"
_SWEEP = f"""
DELETE FROM toolwire_records WHERE id IN (
    SELECT id FROM toolwire_records r WHERE {_IS_EXPIRED} LIMIT %(most)s FOR UPDATE SKIP LOCKED
)
"""


class PostgresStore:
    """A store with a small connection pool. A statement that fails on a lost connection is retried once."""

    def __init__(self, url: str) -> None:
        self._url = url
        try:
            parsed = conninfo_to_dict(url)
        except psycopg.Error:
            raise ConfigError(
                f"invalid store address: {display_name(url)}",
                hint="use postgresql://user:password@host:5432/database",
            ) from None
        limits = {"connect_timeout": _CONNECT_SECONDS, "tcp_user_timeout": _NETWORK_TIMEOUT_MILLISECONDS}
        self._parameters: dict[str, Any] = {**limits, **parsed}
        self._idle: list[Any] = []  # idle connections
        self._process = os.getpid()  # the process that opened them
        self._ready = False  # the table was checked or created
        self._closed = False

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
            rows = self._run(_CLAIM, values).fetchall()
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
        rows = self._run(_GET, {"id": _record_id(key)}).fetchall()
        return record_from_row(rows[0]) if rows else None

    def records(self, state: RecordState | None = None, limit: int = 100) -> list[Record]:
        return [record_from_row(row) for row in self._run(_LIST, {"state": state, "limit": limit}).fetchall()]

    def resolve(self, key: str, result: str | None, ttl: float = DAY) -> bool:
        if result is None:
            return self._change(_DELETE_UNKNOWN, {"id": _record_id(key)})
        return self._change(_RESOLVE, {"id": _record_id(key), "result": as_bytes(result), "ttl": float(ttl)})

    def sweep(self) -> int:
        swept = removed = int(self._run(_SWEEP, {"most": _SWEEP_BATCH}).rowcount)
        while removed == _SWEEP_BATCH:
            removed = int(self._run(_SWEEP, {"most": _SWEEP_BATCH}).rowcount)
            swept += removed
        return swept

    def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def _change(self, statement: str, values: dict[str, Any]) -> bool:
        return bool(self._run(statement, values).rowcount == 1)

    def _run(self, statement: str, values: dict[str, Any]) -> Any:
        """Execute a statement; the returned cursor has all rows already."""
        if self._closed:
            raise StoreError("the store is closed", hint="open a new store")
        try:
            idle_connection = self._pop_idle()
            if idle_connection is not None:
                try:
                    return self._execute(idle_connection, statement, values)
                except psycopg.OperationalError:
                    if not idle_connection.closed:
                        raise
                    self._idle.clear()  # the server closed the others, too
            return self._execute(self._connect(), statement, values)
        except psycopg.Error as error:
            raise StoreError(
                f"PostgreSQL, {display_name(self._url)}: {redact(str(error), self._url) or type(error).__name__}",
                hint="check that the server is running and the credentials are valid",
            ) from None

    def _pop_idle(self) -> Any:
        """Return an idle connection of this process, or None. Connections inherited by a fork belong to the parent."""
        if self._process != os.getpid():
            self._idle, self._process = [], os.getpid()
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _execute(self, connection: Any, statement: str, values: dict[str, Any]) -> Any:
        """Execute a statement, and return the connection to the pool unless it is closed or the pool is full."""
        try:
            return connection.execute(statement, values, binary=True)
        finally:
            if not connection.closed and len(self._idle) < _MAX_IDLE and not self._closed:
                self._idle.append(connection)
            else:
                connection.close()

    def _connect(self) -> Any:
        """Open a connection with a statement timeout; the first one also checks or creates the table."""
        connection = psycopg.connect(**self._parameters, autocommit=True)
        try:
            connection.execute(_LIMIT_STATEMENTS)
            if not self._ready:
                self._find_or_make_table(connection)
        except BaseException:
            connection.close()
            raise
        self._ready = True
        return connection

    def _find_or_make_table(self, connection: Any) -> None:
        """Create the table, or refuse one of another version."""
        comment, table = connection.execute(_FIND_TABLE).fetchone()
        if table is None:
            connection.execute(_MAKE_TABLE)  # several statements in one message are one transaction
        elif comment != _VERSION:
            raise StoreError(
                f"PostgreSQL, {display_name(self._url)}: the table toolwire_records is {comment!r}, expected {_VERSION!r}",
                hint="use another database or schema, or the version of toolwire that created the table",
            )


def _record_id(key: str) -> bytes:
    return hashlib.sha256(as_bytes(key)).digest()
