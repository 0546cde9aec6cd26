"""Stores for usage: a SQLite file, or a PostgreSQL table. Both are created on first use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import convert
from msgspec.structs import astuple

from ...ir.errors import ConfigError
from ...net.stores.address import display_name
from ..shared.sql_link import PostgresLink, SqliteLink
from .usage import UsageRow, UsageStore, UsageSum

__all__ = ["PostgresUsage", "SqliteUsage", "open_usage"]

_TABLE = """
CREATE TABLE IF NOT EXISTS toolwire_usage (
    id TEXT PRIMARY KEY, time DOUBLE PRECISION NOT NULL, key TEXT NOT NULL, model TEXT NOT NULL, upstream TEXT NOT NULL,
    upstream_model TEXT NOT NULL, status INTEGER NOT NULL, error TEXT, input BIGINT NOT NULL, output BIGINT NOT NULL,
    cached BIGINT NOT NULL, reasoning BIGINT NOT NULL, estimated BOOLEAN NOT NULL, calls INTEGER NOT NULL,
    seconds DOUBLE PRECISION NOT NULL
)"""
_INDEX = "CREATE INDEX IF NOT EXISTS toolwire_usage_time ON toolwire_usage (time)"
_TABLES = (_TABLE, _INDEX)
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
    """Usage in a SQLite file."""

    def __init__(self, path: str) -> None:
        self._link = SqliteLink(path, _TABLES)

    def add(self, rows: list[UsageRow]) -> None:
        self._link.insert(_INSERT, [astuple(row) for row in rows])

    def sums(self, by: str, since: float) -> list[UsageSum]:
        group_column = {**_GROUP_COLUMNS, "day": "date(time, 'unixepoch')"}[by]
        [found] = self._link.execute((_SUMS.format(what=group_column), (since,)))
        return _to_sums(found)

    def close(self) -> None:
        self._link.close()


class PostgresUsage:
    """Usage in PostgreSQL, for any number of machines."""

    def __init__(self, url: str) -> None:
        self._link = PostgresLink(url, _TABLES, "toolwire_usage", "state.usage")

    def add(self, rows: list[UsageRow]) -> None:
        self._link.insert(_INSERT, [_to_row_values(row) for row in rows])

    def sums(self, by: str, since: float) -> list[UsageSum]:
        group_column = {**_GROUP_COLUMNS, "day": "to_char(to_timestamp(time) AT TIME ZONE 'UTC', 'YYYY-MM-DD')"}[by]
        [found] = self._link.execute((_SUMS.format(what=group_column), (since,)))
        return _to_sums(found)

    def close(self) -> None:
        self._link.close()


def _to_row_values(row: UsageRow) -> tuple[Any, ...]:
    """Replace NUL, which PostgreSQL cannot store in a text."""
    return tuple(value.replace("\0", "\ufffd") if isinstance(value, str) else value for value in astuple(row))


def _to_sums(rows: Sequence[Sequence[Any]]) -> list[UsageSum]:
    return [convert((group_column, *map(int, counts), seconds), UsageSum) for group_column, *counts, seconds in rows]
