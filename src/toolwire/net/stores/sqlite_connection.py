"""The connection to a SQLite file, shared by the records and the runs of a store.

There is one connection under one lock, because SQLite allows only one writer. The file uses a write-ahead log. A
durable write is on disk (`synchronous=FULL`) before the operation returns; other writes survive a crash of the
process, but perhaps not of the machine.

A connection must not be used after a fork, not even to close it. So all connections are closed before a fork, and
parent and child open new ones on the next use.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakSet

from ...ir.errors import StoreError
from ...run.stored_runs import old_form
from .expiry import sweep_in_batches

__all__ = ["SqliteConnection"]

_VERSION = 5  # 1: without runs; 2 to 4: one state per run
_BUSY_TIMEOUT = 10.0  # seconds that a statement waits for writers of other processes

_MAX_WAL_BYTES = (
    16 * 1024 * 1024
)  # the log file is truncated to this size after a checkpoint; else it stays at its peak

# A sweep removes few rows per transaction, so that other processes can write in between.
_MAX_SWEEP_BATCH = 500  # rows; small runs take about a tenth of a second
_SWEEP_PAUSE = 0.11  # seconds; SQLite's busy handler tries again after at most 0.1 s, so a waiting writer gets its turn
_MAX_VACUUM_PAGES = 10_000  # per batch, 40 MB: a file with more free pages shrinks over several sweeps

_INDEXES = (
    "CREATE INDEX IF NOT EXISTS records_by_expiry ON records (expires_at) WHERE state = 'done'",
    "CREATE INDEX IF NOT EXISTS runs_by_expiry ON runs (max(expires_at, lease_until))",
)
_TABLES = (
    """
CREATE TABLE IF NOT EXISTS records (
    key BLOB PRIMARY KEY, tool BLOB NOT NULL, fingerprint BLOB NOT NULL, state TEXT NOT NULL, token BLOB NOT NULL,
    lease_until REAL NOT NULL, expires_at REAL NOT NULL, created_at REAL NOT NULL, durable INTEGER NOT NULL, result BLOB
)""",
    """
CREATE TABLE IF NOT EXISTS runs (
    run_id BLOB PRIMARY KEY, version INTEGER NOT NULL, status TEXT NOT NULL, token BLOB NOT NULL, summary BLOB NOT NULL,
    lease_until REAL NOT NULL, expires_at REAL NOT NULL, created_at REAL NOT NULL, updated_at REAL NOT NULL,
    tenant BLOB NOT NULL, rows INTEGER NOT NULL, digest BLOB NOT NULL
)""",
    """
CREATE TABLE IF NOT EXISTS run_rows (
    run_id BLOB NOT NULL, position INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (run_id, position)
)""",
    """
CREATE TRIGGER IF NOT EXISTS delete_run_rows AFTER DELETE ON runs
BEGIN DELETE FROM run_rows WHERE run_id = OLD.run_id; END""",
)
_COUNT_OLD_RUNS = "SELECT count(*) FROM runs WHERE max(expires_at, lease_until) > ?"


class SqliteConnection:
    """A connection that is opened on first use. The file is created with access for its owner only."""

    def __init__(self, path: str) -> None:
        self._path = str(Path(path).absolute())
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._synchronous = ""  # the mode of the connection; empty if unknown
        self._closed = False
        _CONNECTIONS.add(self)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._disconnect()

    @contextmanager
    def use(self) -> Iterator[sqlite3.Connection]:
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

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Lock the file for writing inside the block, and make its changes durable at the end."""
        with self.use() as connection:
            self.synchronise(connection, full=True)
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def sweep(self, statement: str, now: float, limit: int | None) -> int:
        """Delete rows in batches and shrink the file. `statement` deletes at most `:size` rows that expired by `:now`."""

        def remove(size: int) -> tuple[int, float]:
            with self.transaction() as connection:
                started = time.monotonic()  # only now other writers wait
                removed = connection.execute(statement, {"now": now, "size": size}).rowcount
                _shrink(connection)
            seconds = time.monotonic() - started
            with self.use() as connection:
                # The log is copied into the file, which only then becomes smaller. PASSIVE does not wait.
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            return removed, seconds

        return sweep_in_batches(remove, limit, max_batch=_MAX_SWEEP_BATCH, pause=_SWEEP_PAUSE)

    def synchronise(self, connection: sqlite3.Connection, *, full: bool) -> None:
        """Set the durability of the next writes."""
        wanted = "FULL" if full else "NORMAL"
        if self._synchronous != wanted:
            connection.execute(f"PRAGMA synchronous = {wanted}")
            self._synchronous = wanted

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

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _set_up(connection: sqlite3.Connection, path: str) -> None:
    """Enable the write-ahead log and create the schema.

    `auto_vacuum` has an effect only in an empty file, before the log is enabled. Without it, a file never shrinks.
    Changing the journal mode does not wait for other connections, whatever the timeout, so it is retried here.
    """
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute(f"PRAGMA journal_size_limit = {_MAX_WAL_BYTES}")
    deadline = time.monotonic() + _BUSY_TIMEOUT
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    version = _read_version(connection)
    if version < _VERSION:
        _change_schema(connection, path)
    elif version > _VERSION:
        raise StoreError(
            f"SQLite, {path}: the file has version {version}, expected {_VERSION}",
            hint="use another file, or the version of toolwire that created this one",
        )


def _read_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _change_schema(connection: sqlite3.Connection, path: str) -> None:
    """Create the tables. A table of an earlier version is replaced if all of its runs have expired, else refused."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _read_version(connection)
        if version < _VERSION:  # another process may have changed it meanwhile
            if version > 1:
                if connection.execute(_COUNT_OLD_RUNS, (time.time(),)).fetchone()[0]:
                    raise old_form(f"SQLite, {path}", "the table runs")
                connection.execute("DROP TABLE runs")
            for statement in (*_TABLES, *_INDEXES):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {_VERSION}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _shrink(connection: sqlite3.Connection) -> None:
    """Return free pages to the file system, but keep a quarter of the file: new runs reuse them without growing it."""
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    excess = connection.execute("PRAGMA freelist_count").fetchone()[0] - pages // 4
    for _ in range(min(excess, _MAX_VACUUM_PAGES)):
        connection.execute("PRAGMA incremental_vacuum(1)")  # `execute` takes only the first step, which frees one page


def _hint(error: Exception) -> str:
    if isinstance(error, OSError):
        return "check that the folder exists and that the folder and the file are writable"
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
        return f"another process has been writing for {_BUSY_TIMEOUT:.0f} seconds; try again when it is done"
    return "check that it is a toolwire file, on a local disk with free space"


_CONNECTIONS: WeakSet[SqliteConnection] = WeakSet()
_PAUSED: list[SqliteConnection] = []
_FORKING = threading.Lock()


def _before_fork() -> None:
    _FORKING.acquire()  # released in _after_fork, like the locks of the connections
    for connection in list(_CONNECTIONS):
        connection._lock.acquire()
        connection._disconnect()
        _PAUSED.append(connection)


def _after_fork() -> None:
    while _PAUSED:
        _PAUSED.pop()._lock.release()
    _FORKING.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
