"""Stores for usage: a SQLite file, or a PostgreSQL table. Both are created on first use."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import convert
from msgspec.structs import astuple

from ...ir.errors import ConfigError, MissingExtra, StoreError
from ...net.stores.address import display_name, redact
from .usage import UsageRow, UsageStore, UsageSum

__all__ = ["PostgresUsage", "SqliteUsage", "open_usage"]

_BUSY_TIMEOUT = 10.0  # seconds for the writers of other processes
_TABLE = """
CREATE TABLE IF NOT EXISTS toolwire_usage (
    id TEXT PRIMARY KEY, time DOUBLE PRECISION NOT NULL, key TEXT NOT NULL, model TEXT NOT NULL, upstream TEXT NOT NULL,
    upstream_model TEXT NOT NULL, status INTEGER NOT NULL, error TEXT, input BIGINT NOT NULL, output BIGINT NOT NULL,
    cached BIGINT NOT NULL, reasoning BIGINT NOT NULL, estimated BOOLEAN NOT NULL, calls INTEGER NOT NULL,
    seconds DOUBLE PRECISION NOT NULL
)"""
_INDEX = "CREATE INDEX IF NOT EXISTS toolwire_usage_time ON toolwire_usage (time)"
_INSERT = (
    f"INSERT INTO toolwire_usage VALUES ({', '.join('?' * len(UsageRow.__struct_fields__))}) ON CONFLICT DO NOTHING"
)
_GROUP_COLUMNS = {"key": "key", "model": "model"}
_SUMS = """
SELECT {what}, count(*), sum(CASE WHEN status >= 400 OR error IS NOT NULL THEN 1 ELSE 0 END), sum(input), sum(output),
    sum(cached), sum(reasoning), sum(calls), sum(seconds)
FROM toolwire_usage WHERE time >= ? GROUP BY 1 ORDER BY 1
"""


def open_usage(address: str) -> UsageStore:
    """Return the store at `address`. It is opened on first use."""
    scheme = address.partition("://")[0] if "://" in address else ""
    if scheme in ("postgresql", "postgres"):
        return PostgresUsage(address)
    if not scheme and address:
        return SqliteUsage(address)
    raise ConfigError(
        f"unsupported usage store: {display_name(address)}", hint="use a file, or postgresql://user@host/database"
    )


class SqliteUsage:
    """Usage in a SQLite file, readable only by its owner. It is safe between processes of one machine."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()

    def add(self, rows: list[UsageRow]) -> None:
        self._run(lambda connection: connection.executemany(_INSERT, map(astuple, rows)))

    def sums(self, by: str, since: float) -> list[UsageSum]:
        group_column = {**_GROUP_COLUMNS, "day": "date(time, 'unixepoch')"}[by]
        fetched = self._run(lambda connection: connection.execute(_SUMS.format(what=group_column), (since,)).fetchall())
        return _to_sums(fetched)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _run(self, work: Any) -> Any:
        """Run `work` on the connection in a transaction; StoreError on failure."""
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._connect()
                with self._connection:
                    return work(self._connection)
            except (sqlite3.Error, OSError) as error:
                hint = "check that the folder exists and is writable; use SQLite on one machine only"
                raise StoreError(f"SQLite, {self._path}: {error}", hint=hint) from None

    def _connect(self) -> sqlite3.Connection:
        """Open the file, readable only by its owner, and create the table."""
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
        connection = sqlite3.connect(self._path, timeout=_BUSY_TIMEOUT, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(_TABLE)
            connection.execute(_INDEX)
        except BaseException:
            connection.close()
            raise
        return connection


class PostgresUsage:
    """Usage in PostgreSQL, for any number of machines."""

    def __init__(self, url: str) -> None:
        try:
            import psycopg
        except ImportError:
            raise MissingExtra(
                "the package psycopg is not installed", hint="pip install -e '.[postgres]' in a checkout of toolwire"
            ) from None
        self._psycopg: Any = psycopg
        self._url = url
        self._connection: Any = None
        self._lock = threading.Lock()
        try:
            psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.Error:
            hint = "use postgresql://user:password@host:5432/database"
            raise ConfigError(f"invalid state.usage: {display_name(url)}", hint=hint) from None

    def add(self, rows: list[UsageRow]) -> None:
        self._run(lambda cursor: cursor.executemany(_to_postgres(_INSERT), [_to_row_values(row) for row in rows]))

    def sums(self, by: str, since: float) -> list[UsageSum]:
        group_column = {**_GROUP_COLUMNS, "day": "to_char(to_timestamp(time) AT TIME ZONE 'UTC', 'YYYY-MM-DD')"}[by]
        statement = _to_postgres(_SUMS.format(what=group_column))
        return _to_sums(self._run(lambda cursor: cursor.execute(statement, (since,)).fetchall()))

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    def _run(self, work: Any) -> Any:
        """Run `work` on a cursor in a transaction. After a failure, the next call connects anew."""
        with self._lock:
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = self._connect()
                with self._connection.transaction(), self._connection.cursor() as cursor:
                    return work(cursor)
            except (self._psycopg.Error, OSError) as error:
                self._disconnect()
                message = redact(str(error), self._url) or type(error).__name__
                hint = "check that the server is running and the credentials are valid"
                raise StoreError(f"PostgreSQL, {display_name(self._url)}: {message}", hint=hint) from None

    def _connect(self) -> Any:
        """Connect and create the table. Options in the address take precedence over our timeouts."""
        options = {"connect_timeout": 3, "tcp_user_timeout": 10_000}
        parameters = self._psycopg.conninfo.conninfo_to_dict(self._url)
        connection = self._psycopg.connect(**{**options, **parameters}, autocommit=True)
        try:
            _make_table(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _make_table(connection: Any) -> None:
    table = connection.execute("SELECT to_regclass('toolwire_usage')::text").fetchone()[0]
    if table is None:  # if several processes start at once, one creates it and the others wait
        connection.execute(f"SELECT pg_advisory_xact_lock(hashtext('toolwire_usage')); {_TABLE}; {_INDEX}")


def _to_postgres(statement: str) -> str:
    return statement.replace("?", "%s")


def _to_row_values(row: UsageRow) -> tuple[Any, ...]:
    """Replace NUL, which PostgreSQL cannot store in a text."""
    return tuple(value.replace("\0", "\ufffd") if isinstance(value, str) else value for value in astuple(row))


def _to_sums(rows: Sequence[Sequence[Any]]) -> list[UsageSum]:
    return [convert((group_column, *map(int, counts), seconds), UsageSum) for group_column, *counts, seconds in rows]
