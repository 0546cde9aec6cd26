"""Store records in one SQLite file: the default. Safe between threads and processes of one machine.

There is one connection under one lock, because SQLite allows only one writer. The file uses a write-ahead log. A
durable claim and its completion are on disk (`synchronous=FULL`) before the operation returns; other writes survive a
crash of the process, but perhaps not of the machine.

A connection must not be used after a fork, not even to close it. So all connections are closed before a fork, and
parent and child open new ones on the next use.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakSet

from ...ir.errors import StoreError
from ...run.records import DAY, Claim, Record, RecordState
from .expiry import ExpiryClock
from .record_rules import effective_state, may_claim, new_record
from .rows import COLUMNS, as_bytes, record_from_row

__all__ = ["SqliteStore"]

_VERSION = 1
_BUSY_TIMEOUT = 10.0  # seconds that a statement waits for writers of other processes

_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS records (
    key BLOB PRIMARY KEY, tool BLOB NOT NULL, fingerprint BLOB NOT NULL, state TEXT NOT NULL, token BLOB NOT NULL,
    lease_until REAL NOT NULL, expires_at REAL NOT NULL, created_at REAL NOT NULL, durable INTEGER NOT NULL, result BLOB
);
PRAGMA user_version = {_VERSION};
COMMIT;
"""
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
_SWEEP = "DELETE FROM records WHERE state = 'done' AND expires_at <= ?"


class SqliteStore:
    """A store in a file. The file is created on first use, with access for its owner only."""

    def __init__(
        self, path: str, clock: Callable[[], float] = time.time, ticks: Callable[[], float] | None = None
    ) -> None:
        self._path = str(Path(path).absolute())
        self._clock = clock
        self._expiry = ExpiryClock(clock, ticks)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._synchronous = ""  # the mode of the connection; empty if unknown
        self._closed = False
        _STORES.add(self)

    def claim(self, claim: Claim) -> Record:
        """Claim a key, or return the existing record.

        If another process claims it between read and write, try again.
        """
        with self._use_connection() as connection:
            while True:
                now, expiry_now = self._clock(), self._expiry.now()
                # Read first: returning an existing record takes no write lock.
                row = connection.execute(_READ, (as_bytes(claim.key),)).fetchone()
                existing = _effective_record(row, now, expiry_now)
                if existing is not None and not may_claim(claim, existing):
                    return existing
                self._synchronise(connection, full=claim.durable)
                if connection.execute(_CLAIM, _claim_values(claim, now, expiry_now)).fetchall():
                    return new_record(claim, now)

    def renew(self, key: str, token: str, lease: float) -> bool:
        return self._change(_RENEW, (self._clock() + lease, as_bytes(key), as_bytes(token)), full=False)

    def complete(self, key: str, token: str, result: str, ttl: float, state: RecordState = "done") -> bool:
        """Store a result. It is as durable as the claim was."""
        with self._use_connection() as connection:
            key_and_token = (as_bytes(key), as_bytes(token))
            durable = connection.execute(_DURABLE, key_and_token).fetchone()
            if durable is None:
                return False
            self._synchronise(connection, full=bool(durable[0]))
            values = {"key": key_and_token[0], "token": key_and_token[1], "state": state, "result": as_bytes(result)}
            done = connection.execute(_COMPLETE, {**values, "expires_at": self._expiry.end_of(ttl)})
            return done.rowcount == 1

    def release(self, key: str, token: str) -> bool:
        return self._change(_RELEASE, (as_bytes(key), as_bytes(token)), full=False)

    def get(self, key: str) -> Record | None:
        with self._use_connection() as connection:
            row = connection.execute(_READ, (as_bytes(key),)).fetchone()
            return _effective_record(row, self._clock(), self._expiry.now())

    def records(self, state: RecordState | None = None, limit: int = 100) -> list[Record]:
        with self._use_connection() as connection:
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

    def sweep(self) -> int:
        with self._use_connection() as connection:
            return connection.execute(_SWEEP, (self._expiry.now(),)).rowcount

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._disconnect()

    def _change(self, statement: str, values: Any, *, full: bool) -> bool:
        with self._use_connection() as connection:
            self._synchronise(connection, full=full)
            return connection.execute(statement, values).rowcount == 1

    @contextmanager
    def _use_connection(self) -> Iterator[sqlite3.Connection]:
        """Lock the connection inside the block, and open it if necessary; errors are raised as StoreError."""
        with self._lock:
            if self._closed:
                raise StoreError("the store is closed", hint="open a new store")
            try:
                if self._connection is None:
                    self._connection = self._connect()
                yield self._connection
            except (sqlite3.Error, OSError) as error:
                raise StoreError(f"SQLite, {self._path}: {error}", hint=_hint(error)) from None

    def _connect(self) -> sqlite3.Connection:
        """Open the file. The new connection's `synchronous` mode is unknown, so the next write sets it."""
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))  # SQLite gives its log the same permissions
        connection = sqlite3.connect(self._path, timeout=_BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)
        try:
            _set_up(connection, self._path)
        except BaseException:
            connection.close()
            raise
        self._synchronous = ""
        return connection

    def _synchronise(self, connection: sqlite3.Connection, *, full: bool) -> None:
        wanted = "FULL" if full else "NORMAL"
        if self._synchronous != wanted:
            connection.execute(f"PRAGMA synchronous = {wanted}")
            self._synchronous = wanted

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _set_up(connection: sqlite3.Connection, path: str) -> None:
    """Enable the write-ahead log and create the schema.

    Changing the journal mode does not wait for other connections, whatever the timeout, so it is retried here.
    """
    deadline = time.monotonic() + _BUSY_TIMEOUT
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version == 0:
        connection.executescript(_SCHEMA)
    elif version != _VERSION:
        raise StoreError(
            f"SQLite, {path}: the file has version {version}, expected {_VERSION}",
            hint="use another file, or the version of toolwire that created this one",
        )


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


def _hint(error: Exception) -> str:
    if isinstance(error, OSError):
        return "check that the folder exists and that the folder and the file are writable"
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
        return f"another process has been writing for {_BUSY_TIMEOUT:.0f} seconds; try again when it is done"
    return "check that it is a toolwire file, on a local disk with free space"


_STORES: WeakSet[SqliteStore] = WeakSet()
_PAUSED: list[SqliteStore] = []
_FORKING = threading.Lock()


def _before_fork() -> None:
    _FORKING.acquire()  # released in _after_fork, like the locks of the stores
    for store in list(_STORES):
        store._lock.acquire()
        store._disconnect()
        _PAUSED.append(store)


def _after_fork() -> None:
    while _PAUSED:
        _PAUSED.pop()._lock.release()
    _FORKING.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
