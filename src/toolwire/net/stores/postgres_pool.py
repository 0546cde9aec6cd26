"""The connections to PostgreSQL, shared by the records and the runs of a store.

A statement that waits longer than five seconds, for a lock or for a busy server, fails: the caller receives a
StoreError. A `statement_timeout` of the address, the role or the database takes precedence.

Each active thread uses its own connection from a small pool; a connection is not used after a fork.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from ..._extras import install_command
from ...ir.errors import MissingExtra, StoreError
from ...ir.value import Value
from ...run.values.records import old_form
from .address import display_name, invalid_address, server_error

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
except ImportError:
    raise MissingExtra("the package psycopg is not installed", hint=install_command("postgres")) from None

T = TypeVar("T")

NOW = "extract(epoch FROM now())::float8"
"""The clock of the server, as an SQL expression."""

_CONNECT_SECONDS = 3  # of a server in the same network; the event loop is not blocked, but the call waits
# For lost packets; above the statement timeout, so that a busy server reports the statement.
_NETWORK_TIMEOUT_MILLISECONDS = 10_000
# Every statement takes milliseconds; a call should fail before its own timeout of a minute.
_STATEMENT_MILLISECONDS = 5_000
_MAX_IDLE = 8  # idle connections; the threads of `StoreSteps` are as many
_LOCK_ID = 0x746F6F6C77697265  # "toolwire": the advisory lock for creating the tables
_LOCK_TABLES = f"SELECT pg_advisory_xact_lock({_LOCK_ID});"
_LIMIT_STATEMENTS = f"""
SELECT set_config(name, '{_STATEMENT_MILLISECONDS}', false) FROM pg_settings WHERE name = 'statement_timeout' AND setting = '0'
"""
_IS_STORED = f"greatest(expires_at, lease_until) > {NOW}"
_FIND_TABLE = "SELECT obj_description(to_regclass(%s), 'pg_class'), to_regclass(%s)::text"


class PostgresTable(Value, frozen=True):
    """A table of the store. `version` is its comment; `statement` creates it."""

    name: str
    version: str
    statement: str
    has_old_runs: str = ""  # the version whose runs have another form


class PostgresPool:
    """A small connection pool. A statement that fails on a lost connection is retried once."""

    def __init__(self, url: str, tables: tuple[PostgresTable, ...]) -> None:
        """Parse the address without connecting. Raise ConfigError if it is invalid."""
        self._url = url
        self._tables = tables
        try:
            parsed = conninfo_to_dict(url)
        except psycopg.Error:
            raise invalid_address("PostgreSQL", "store address", url) from None
        limits = {"connect_timeout": _CONNECT_SECONDS, "tcp_user_timeout": _NETWORK_TIMEOUT_MILLISECONDS}
        self._parameters: dict[str, Any] = {**limits, **parsed}
        self._idle: list[Any] = []  # idle connections
        self._process = os.getpid()  # the process that opened them
        self._ready = False  # the tables were checked or created
        self._closed = False

    def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def run(self, statement: str, values: dict[str, Any]) -> Any:
        """Execute a statement; the returned cursor has all rows already."""
        return self._use(lambda connection: connection.execute(statement, values, binary=True))

    def transact(self, work: Callable[[Any], T]) -> T:
        """Call `work` with a connection, inside a transaction. It is called again if the connection was lost."""

        def run(connection: Any) -> T:
            with connection.transaction():
                return work(connection)

        return self._use(run)

    def _use(self, work: Callable[[Any], T]) -> T:
        """Call `work` with an idle or a new connection, again with a new one if the idle one was lost.

        Raise StoreError if that fails, or the store is closed.
        """
        if self._closed:
            raise StoreError("the store is closed", hint="open a new store")
        try:
            idle_connection = self._pop_idle()
            if idle_connection is not None:
                try:
                    return self._execute(idle_connection, work)
                except psycopg.OperationalError:
                    if not idle_connection.closed:
                        raise
                    self._idle.clear()  # the server closed the others, too
            return self._execute(self._connect(), work)
        except psycopg.Error as error:
            raise server_error("PostgreSQL", self._url, error) from None

    def _pop_idle(self) -> Any:
        """Return an idle connection of this process, or None. Connections inherited by a fork belong to the parent."""
        if self._process != os.getpid():
            self._idle, self._process = [], os.getpid()
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _execute(self, connection: Any, work: Callable[[Any], T]) -> T:
        """Use a connection, and return it to the pool unless it is closed or the pool is full."""
        try:
            return work(connection)
        finally:
            if not connection.closed and len(self._idle) < _MAX_IDLE and not self._closed:
                self._idle.append(connection)
            else:
                connection.close()

    def _connect(self) -> Any:
        """Open a connection with a statement timeout. The first connection also checks or creates the tables."""
        connection = psycopg.connect(**self._parameters, autocommit=True)
        try:
            connection.execute(_LIMIT_STATEMENTS)
            if not self._ready:
                for table in self._tables:
                    self._find_or_make_table(connection, table)
        except BaseException:
            connection.close()
            raise
        self._ready = True
        return connection

    def _replace_old_table(self, connection: Any, table: PostgresTable) -> None:
        """Replace a table with runs in the old form if all of them have expired, else raise StoreError."""
        with connection.transaction():
            connection.execute(_LOCK_TABLES)
            (comment, _) = connection.execute(_FIND_TABLE, (table.name, table.name)).fetchone()
            if comment != table.has_old_runs:
                return  # another process replaced it meanwhile
            if connection.execute(f"SELECT EXISTS (SELECT FROM {table.name} WHERE {_IS_STORED})").fetchone()[0]:
                raise old_form(f"PostgreSQL, {display_name(self._url)}", f"the table {table.name}")
            connection.execute(f"DROP TABLE {table.name}; {table.statement}")

    def _find_or_make_table(self, connection: Any, table: PostgresTable) -> None:
        """Create the table, or replace an expired old one. Raise StoreError for a table of another version."""
        comment, found = connection.execute(_FIND_TABLE, (table.name, table.name)).fetchone()
        if found is not None and comment is None:
            # The table is newer than the statement, which sees the name of a table at once, but not its comment.
            comment, found = connection.execute(_FIND_TABLE, (table.name, table.name)).fetchone()
        if found is None:
            connection.execute(_LOCK_TABLES + table.statement)  # several statements in one message are one transaction
        elif comment and comment == table.has_old_runs:
            self._replace_old_table(connection, table)
        elif comment != table.version:
            raise StoreError(
                f"PostgreSQL, {display_name(self._url)}: the table {table.name} is {comment!r}, expected {table.version!r}",
                hint="use another database or schema, or the version of toolwire that created the table",
            )
