"""A connection to SQLite or PostgreSQL for the gateway's tables.

A link blocks and reports every failure. A `StateDatabase` adds a thread, a time limit and a pause after failures:

    available    every transaction is tried
    cooling      after a failure or a timeout, transactions fail at once until `_COOLDOWN` has passed
    probing      then the next transactions are tried; the first success ends the outage, a failure prolongs it

The pause bounds the delay that an outage adds: during a cooldown no request waits. There is a single thread, because
SQLite has a single writer anyway, and one connection needs no pool. A transaction that is too late still runs to its end
in the thread. Its caller has gone on without it, so nothing may depend on its failure.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from logging import getLogger
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from ..._extras import install_command
from ...ir.errors import MissingExtra, StoreError
from ...net.stores.address import display_name, invalid_address, server_error

# One connection to a SQLite file or to PostgreSQL, for the tables of the gateway. Both are opened on first use.
#
# The methods block, so they are not called on the event loop. The tables are created with the connection.


Execute: TypeAlias = Callable[[str, Sequence[Any]], list[Any]]
"""A function that runs a statement in the current transaction, and returns its rows."""
R = TypeVar("R")
_SQLITE_HINT = "check that the folder exists and is writable; use SQLite on one machine only"
_BUSY_TIMEOUT = 10.0  # seconds for the writers of other processes; longer than any request waits for the state
_SERVER_TIME = "SELECT extract(epoch FROM clock_timestamp())::float8"
_STATEMENT_MILLISECONDS = 10_000  # a statement that waits longer fails, so a lost lock frees the thread


class SqliteLink:
    """A SQLite file, readable only by its owner. It is safe between processes of one machine."""

    def __init__(self, path: str, tables: Sequence[str]) -> None:
        self.name = f"SQLite, {path}"
        self._path = Path(path)
        self._tables = tables
        self._connection: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None  # of the event loop
        self._lock = threading.Lock()

    def read(self, work: Callable[[Execute], R]) -> R:
        """Run statements that only read, on the event loop: some microseconds, from the page cache.

        A reader never waits for a writer. Raise StoreError if there is no such file yet, or it cannot be read at once.
        """
        try:
            if self._reader is None:
                address = f"{self._path.absolute().as_uri()}?mode=ro"
                self._reader = sqlite3.connect(
                    address, uri=True, timeout=0, isolation_level=None, check_same_thread=False
                )
            reader = self._reader
            return work(lambda text, values: reader.execute(text, values).fetchall())
        except sqlite3.Error as error:
            raise StoreError(f"{self.name}: {error}", hint=_SQLITE_HINT) from None

    def execute(self, *statements: tuple[str, Sequence[Any]]) -> list[list[Any]]:
        found: list[list[Any]] = self._run(
            lambda connection: [connection.execute(text, values).fetchall() for text, values in statements]
        )
        return found

    def insert(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        self._run(lambda connection: connection.executemany(statement, rows))

    def transact(self, work: Callable[[Execute], R], writes: bool = True, /) -> R:
        def begin(connection: sqlite3.Connection) -> R:
            # a transaction that begins by reading could fail when it writes
            connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            return work(lambda text, values: connection.execute(text, values).fetchall())

        result: R = self._run(begin)
        return result

    def now(self, _: Execute, /) -> float:
        return time.time()

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            if self._reader is not None:
                self._reader.close()
                self._reader = None

    def _run(self, work: Any) -> Any:
        """Run `work` on the connection in a transaction. Connect first if necessary. Raise StoreError on failure."""
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._connect()
                with self._connection:
                    return work(self._connection)
            except (sqlite3.Error, OSError) as error:
                reason = error.strerror if isinstance(error, OSError) else error
                raise StoreError(f"{self.name}: {reason}", hint=_SQLITE_HINT) from None

    def _connect(self) -> sqlite3.Connection:
        """Open the file, readable only by its owner, and create the tables."""
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
        connection = sqlite3.connect(self._path, timeout=_BUSY_TIMEOUT, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA secure_delete = ON")  # deleted content is overwritten
            for table in self._tables:
                connection.execute(table)
        except BaseException:
            connection.close()
            raise
        return connection


class PostgresLink:
    """A PostgreSQL database, for any number of machines.

    `first` is the table that exists if all exist. `setting` is the name of the address, for errors.
    """

    def __init__(self, url: str, tables: Sequence[str], first: str, setting: str) -> None:
        """Check the address without connecting. Raise ConfigError if it is invalid, and MissingExtra without psycopg."""
        try:
            import psycopg
        except ImportError:
            raise MissingExtra("the package psycopg is not installed", hint=install_command("postgres")) from None
        self.name = f"PostgreSQL, {display_name(url)}"
        self._psycopg: Any = psycopg
        self._url = url
        self._tables = tables
        self._first = first
        self._connection: Any = None
        self._lock = threading.Lock()
        try:
            psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.Error:
            raise invalid_address("PostgreSQL", setting, url) from None

    def execute(self, *statements: tuple[str, Sequence[Any]]) -> list[list[Any]]:
        found: list[list[Any]] = self._run(
            lambda cursor: [_fetch_all(cursor.execute(_to_postgres(text), values)) for text, values in statements]
        )
        return found

    def insert(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        self._run(lambda cursor: cursor.executemany(_to_postgres(statement), rows))

    def transact(self, work: Callable[[Execute], R], _: bool = True, /) -> R:
        result: R = self._run(
            lambda cursor: work(lambda text, values: _fetch_all(cursor.execute(_to_postgres(text), values)))
        )
        return result

    def now(self, execute: Execute, /) -> float:
        [(seconds,)] = execute(_SERVER_TIME, ())
        return float(seconds)

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    def _run(self, work: Any) -> Any:
        """Run `work` on a cursor in a transaction. Raise StoreError on failure; then the next call connects anew."""
        with self._lock:
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = self._connect()
                with self._connection.transaction(), self._connection.cursor() as cursor:
                    return work(cursor)
            except (self._psycopg.Error, OSError) as error:
                self._disconnect()
                raise server_error("PostgreSQL", self._url, error) from None

    def _connect(self) -> Any:
        """Connect, and create the tables if they do not exist. The address's options take precedence over our timeouts."""
        options = {
            "connect_timeout": 3,
            "tcp_user_timeout": 10_000,
            "options": f"-c statement_timeout={_STATEMENT_MILLISECONDS}",
        }
        parameters = self._psycopg.conninfo.conninfo_to_dict(self._url)
        connection = self._psycopg.connect(**{**options, **parameters}, autocommit=True)
        try:
            first_table = connection.execute("SELECT to_regclass(%s)::text", (self._first,)).fetchone()[0]
            if first_table is None:  # if several processes start at once, one creates the tables and the others wait
                tables = "; ".join(self._tables)
                connection.execute(f"SELECT pg_advisory_xact_lock(hashtext('toolwire_tables')); {tables}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


SqlLink: TypeAlias = SqliteLink | PostgresLink
"""A database. Statements have `?` for their parameters, and raise StoreError on failure.

`execute` runs statements in one transaction and returns the rows of each, `insert` one statement for each row. `transact`
runs a function in a transaction, which waits for other writers only if it writes. `now` returns the seconds since 1970
by a clock that all users of the database share. `name` is fit for the log.
"""


def _fetch_all(cursor: Any) -> list[Any]:
    return list(cursor.fetchall()) if cursor.description is not None else []


def _to_postgres(statement: str) -> str:
    return statement.replace("?", "%s")


async def run_to_end(work: Callable[[], R]) -> R:
    """Call a function in a thread. A cancelled call ends only with its thread, and not before.

    Threads have no order: a lock that is taken after its release would last until it expires, and an entry that is saved
    after the release of its lock could replace a newer one.
    """
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):  # a further cancellation does not end the thread either
                await asyncio.wait({running})
        if not running.cancelled():
            running.exception()  # it is of no interest any more
        raise


# A database that several gateways share, and that may be unavailable for a while.
#
# It has a thread of its own, so the event loop never waits for it. Only SQLite is read on the event loop, because
# that costs less than the switch to a thread. A request waits a second at most. After a failure the database is not
# used for a moment, so that an outage delays few requests. The log has a line for the start of an outage, and one for
# its end.


_log = getLogger("toolwire.gateway")
_TIMEOUT = 1.0  # seconds, as in `StateRow.timeout`
_COOLDOWN = 1.0  # seconds after a failure; an outage delays the requests of one in two seconds at most


class StateDatabase:
    """A database for limits, turns and cooldowns. `clock` measures the time since a failure.

    `timeout` is the number of seconds for a transaction. `now` returns the time in a transaction.
    """

    def __init__(
        self, link: SqlLink, clock: Callable[[], float] = time.monotonic, *, timeout: float = _TIMEOUT
    ) -> None:
        self._link = link
        self._timeout = timeout
        self._clock = clock
        self.now = link.now
        self._cooldown_until: float | None = None  # set during an outage
        self._executor = ThreadPoolExecutor(1, "toolwire-state")

    async def transact(self, work: Callable[[Execute], R], *, writes: bool = True) -> R:
        """Run `work` in one transaction of the thread, or on the event loop if it only reads from SQLite.

        Raise StoreError, with a message fit for a client, on a failure or a timeout, which start a cooldown, and during
        the cooldown. The start and the end of an outage are logged.
        """
        if not writes and isinstance(self._link, SqliteLink):
            try:
                return self._link.read(work)
            except StoreError:
                pass  # the file may be new; the other connection creates the tables
        if self._cooldown_until is not None and self._clock() < self._cooldown_until:
            raise _unavailable_error()
        running = asyncio.get_running_loop().run_in_executor(self._executor, self._link.transact, work, writes)
        done, _ = await asyncio.wait({running}, timeout=self._timeout)
        fault = running.exception() if done else TimeoutError("no reply in time")
        if fault is not None:
            if not done:
                running.add_done_callback(_ignore_result)
            elif not isinstance(fault, StoreError):
                raise fault
            self._start_cooldown(fault)
            raise _unavailable_error()
        if self._cooldown_until is not None:
            self._cooldown_until = None
            _log.warning("the shared state is available again: %s", self._link.name)
        return running.result()

    async def open(self) -> None:
        """Connect and create the tables. A failure is logged, and has no other effect."""
        try:
            await self.transact(lambda execute: execute("SELECT 1", ()))
        except StoreError:
            pass  # an outage at the start is one like any other

    def _start_cooldown(self, fault: BaseException) -> None:
        if self._cooldown_until is None:
            message = fault if isinstance(fault, StoreError) else f"{self._link.name}: {fault}"
            _log.error("the shared state is unavailable: %s", message)
        self._cooldown_until = self._clock() + _COOLDOWN

    async def aclose(self) -> None:
        """Close the connection after the transaction in progress, or not at all if the database does not respond."""
        closing = asyncio.get_running_loop().run_in_executor(self._executor, self._link.close)
        await asyncio.wait({closing}, timeout=self._timeout)
        self._executor.shutdown(wait=False, cancel_futures=True)


def _ignore_result(running: asyncio.Future[Any]) -> None:
    """Retrieve the error of a late transaction, so that it is not reported as unhandled."""
    if not running.cancelled():
        running.exception()


def _unavailable_error() -> StoreError:
    return StoreError("the shared state of the gateways is unavailable", hint="try again in a moment")
