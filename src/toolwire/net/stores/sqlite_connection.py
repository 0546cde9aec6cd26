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
from ...run.values.records import old_form
from .rules import BATCH_SECONDS

_VERSION = 5  # 1: without runs; 2 to 4: one state per run
_BUSY_TIMEOUT = 10.0  # seconds that a statement waits for writers of other processes: a hundred batches of a sweep

# The log file is truncated to this size after a checkpoint; otherwise it stays at its peak.
_MAX_WAL_BYTES = 16 * 1024 * 1024
_SWEEP_PAUSE = 0.11  # seconds; SQLite's busy handler tries again after at most 0.1 s, so a waiting writer gets its turn
_MAX_SHRINKS = 5  # batches that only shrink the file, in a sweep with a limit: a second, about 180 MB
_INCREMENTAL = 2  # the value of `auto_vacuum` in files that can shrink

_INDEXES = (
    "CREATE INDEX IF NOT EXISTS records_by_expiry ON records (expires_at) WHERE state = 'done'",
    "CREATE INDEX IF NOT EXISTS runs_by_expiry ON runs (max(expires_at, lease_until))",
    "CREATE INDEX IF NOT EXISTS runs_ready ON runs (updated_at) WHERE status = 'running' AND token = x''",
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
        """Lock the connection inside the block, and open it if necessary. Raise StoreError for errors, or if closed."""
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
        """Lock the file for writing inside the block, and make its changes durable at the end, or undo them on an error."""
        with self.use() as connection:
            self.synchronise(connection, full=True)
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def sweep(self, statement: str, now: float, limit: int | None, parts: str | None = None) -> int:
        """Delete up to `limit` rows in batches, shrink the file, and return their number.

        `statement` deletes one row that expired by `:now`.

        `parts` deletes a few rows that belong to it, and is executed before it until there are none. A batch ends by its
        time, not by the number of rows: a run can have a kilobyte or many megabytes. With a limit, the file shrinks by
        a few batches; the next sweep continues.
        """
        swept, is_left, batches_left = 0, True, float("inf") if limit is None else _MAX_SHRINKS
        while True:
            with self.transaction() as connection:
                deadline = time.monotonic() + BATCH_SECONDS  # only now other writers wait
                while (is_left := is_left and swept != limit) and time.monotonic() < deadline:
                    if parts is not None and connection.execute(parts, {"now": now}).rowcount:
                        continue
                    removed = connection.execute(statement, {"now": now}).rowcount
                    swept, is_left = swept + removed, removed > 0
                shrinks = _shrink(connection, deadline)
            with self.use() as connection:
                # The log is copied into the file, which only then becomes smaller. PASSIVE does not wait.
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            if not is_left:
                batches_left -= 1
                if not shrinks or not batches_left:
                    return swept
            time.sleep(_SWEEP_PAUSE)

    def synchronise(self, connection: sqlite3.Connection, *, full: bool) -> None:
        """Set the durability of the next writes."""
        wanted = "FULL" if full else "NORMAL"
        if self._synchronous != wanted:
            connection.execute(f"PRAGMA synchronous = {wanted}")
            self._synchronous = wanted

    def _connect(self) -> sqlite3.Connection:
        """Open the file, create it if necessary, and set it up.

        The new connection's `synchronous` mode is unknown, so the next write sets it.
        """
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
    """Enable the write-ahead log, and create or change the schema. Raise StoreError for a file of a later version.

    `auto_vacuum` has an effect only in an empty file, before the log is enabled. Without it, a file never shrinks.
    Changing the journal mode does not wait for other connections, whatever the timeout, so it is retried here.
    """
    connection.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}")
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
    if _read_version(connection) < _VERSION:
        _change_schema(connection, path)
    version = _read_version(connection)  # again: another process may have changed the schema to a later one meanwhile
    if version > _VERSION:
        raise StoreError(
            f"SQLite, {path}: the file has version {version}, expected {_VERSION}",
            hint="use another file, or the version of toolwire that created this one",
        )


def _read_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _change_schema(connection: sqlite3.Connection, path: str) -> None:
    """Create the tables, unless another process has done so. A table of an earlier version is replaced.

    Raise StoreError if some of its runs have not expired.
    """
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


def _shrink(connection: sqlite3.Connection, deadline: float) -> bool:
    """Return free pages to the file system until the deadline, and return True if some are left.

    A quarter of the file is kept: new runs reuse these pages without growing it.
    """
    if connection.execute("PRAGMA auto_vacuum").fetchone()[0] != _INCREMENTAL:
        return False
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    free = connection.execute("PRAGMA freelist_count").fetchone()[0]
    excess = (4 * free - pages) // 3  # without these, a quarter of the remaining pages is free
    while excess > 0 and time.monotonic() < deadline:
        connection.execute("PRAGMA incremental_vacuum(1)")  # `execute` takes only the first step, which frees one page
        excess -= 1
    return bool(excess > 0)


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
