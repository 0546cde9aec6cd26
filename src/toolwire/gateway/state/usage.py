"""Usage accounting: a row for every request that named a model, in a SQLite file or a PostgreSQL table.

    queue     at the end of a request, on the event loop: append the row, or count it as dropped
    write     in a thread: batches of rows, each in one transaction; a row leaves the queue after it is stored
    close     write the rest until a deadline, and log the number of lost rows

A row has an id of its own, and an insert ignores ids that exist: a batch whose commit succeeded without a reply is
written again, and counts once. Accounting is not a reason to refuse or delay a request, so an outage loses rows, visibly,
once the queue is full.
"""

from __future__ import annotations

import threading
from collections import deque
from logging import getLogger
from secrets import token_hex
from time import monotonic, sleep
from typing import Any, Protocol

from msgspec import Struct, convert
from msgspec.structs import astuple

from ...ir.errors import ConfigError, StoreError
from ...ir.terminal import count_of
from ...net.stores.address import display_name
from ..observe.request_log import RequestLog
from .database import PostgresLink, SqliteLink

# Requests never wait for it. Rows go into a bounded queue. A row that does not fit, because the store is unavailable
# or too slow, is counted, logged and lost. Rows in the queue when the gateway stops are written before it exits.


_log = getLogger("toolwire.gateway")
_QUEUE_SIZE = 20_000  # rows: an outage of 20 seconds at 1,000 requests a second
_BATCH = 1_000  # rows per transaction: few commits, and a short lock; not measured
_WRITE_INTERVAL = 0.2  # seconds; five commits a second at most (docs/gateway-operations.md)
_FAILURE_DELAY = 1.0  # seconds after a failure; the queue has room for many times as long
_REPORT_INTERVAL = 10.0  # seconds between two log lines about dropped rows
_CLOSE_TIMEOUT = 5.0  # seconds at the end, within the grace period of the parent (`workers._STOP_GRACE`)
_MAX_NAME_LENGTH = 200  # characters of a name that a client chooses; real names have fewer than 100


class UsageRow(Struct, frozen=True):
    """The usage of one request. `id` is ours, so that a row that is written twice counts once.

    `estimated` is set if the upstream did not report the number of tokens.
    """

    id: str
    time: float
    key: str  # its name
    model: str
    upstream: str
    upstream_model: str
    status: int
    error: str | None
    input: int
    output: int
    cached: int
    reasoning: int
    estimated: bool
    calls: int
    seconds: float


class UsageSum(Struct, frozen=True, array_like=True):
    """The totals of a group. `what` is a key, a model or a day."""

    what: str
    requests: int
    errors: int
    input: int
    output: int
    cached: int
    reasoning: int
    calls: int
    seconds: float


class UsageStore(Protocol):
    """A store of usage rows. Its methods may block, so they are not called on the event loop."""

    def add(self, rows: list[UsageRow]) -> None:
        """Add all rows or none. Raise StoreError on failure."""
        ...

    def sums(self, by: str, since: float) -> list[UsageSum]:
        """Sum up the rows by `key`, `model` or `day`."""
        ...

    def close(self) -> None: ...


def usage_row(request_log: RequestLog) -> UsageRow:
    """Convert a request log to a row; unknown counts are 0."""
    usage = request_log.usage
    return UsageRow(
        token_hex(12),
        request_log.started,
        request_log.caller,
        request_log.model[:_MAX_NAME_LENGTH],
        request_log.upstream,
        request_log.upstream_model[:_MAX_NAME_LENGTH],
        request_log.status,
        request_log.error,
        (usage and usage.input) or 0,
        (usage and usage.output) or 0,
        (usage and usage.cached) or 0,
        (usage and usage.reasoning) or 0,
        request_log.is_estimated,
        len(request_log.calls),
        round(request_log.seconds, 6),
    )


class UsageSink:
    """A sink that writes to a store. `dropped` is the number of rows lost since the start."""

    def __init__(self, store: UsageStore, *, queue: int = _QUEUE_SIZE) -> None:
        self.dropped = 0
        self._store = store
        self._max_queued = queue
        self._rows: deque[UsageRow] = deque()
        self._reported_drops = 0  # rows whose loss was logged
        self._next_report = 0.0
        self._failing = False  # the latest write failed
        self._stop = threading.Event()
        self._deadline = float("inf")  # for the last writes, set by `close`
        self._thread = threading.Thread(target=self._run, name="toolwire-usage", daemon=True)
        self._thread.start()

    def __call__(self, request_log: RequestLog, /) -> None:
        """Queue a row without waiting, or count it as dropped if the queue is full."""
        if not request_log.model:
            return  # a probe, a list of models, or a request without a valid key: no usage to account for
        if len(self._rows) < self._max_queued:
            self._rows.append(usage_row(request_log))
        else:
            self.dropped += 1

    def close(self) -> None:
        """Wait some seconds at most until pending rows are written, log lost rows, and close the store if it responds."""
        self._deadline = monotonic() + _CLOSE_TIMEOUT
        self._stop.set()
        self._thread.join(_CLOSE_TIMEOUT + _WRITE_INTERVAL)
        self._log_dropped()
        if self._rows:
            self.dropped += len(self._rows)
            _log.error("lost %s of usage: the store was unavailable until the end", count_of(len(self._rows), "row"))
        if self._thread.is_alive():
            _log.error("the usage store does not respond")  # closing it would block too
        else:
            self._rows.clear()
            self._store.close()

    def _run(self) -> None:
        """Write rows until `close`, then the rest until the deadline. This is the body of the thread."""
        while not self._stop.wait(_FAILURE_DELAY if self._failing else _WRITE_INTERVAL):
            self._write_all()
            self._log_dropped()
        while self._rows and monotonic() < self._deadline:
            self._write_all()
            if self._failing:
                sleep(_WRITE_INTERVAL)

    def _write_all(self) -> None:
        """Write the queue in batches, until a write fails. Log the start and the end of an outage.

        Rows leave the queue only after they are stored, so an outage loses none until the queue is full.
        """
        while self._rows:
            batch = [self._rows[index] for index in range(min(_BATCH, len(self._rows)))]
            try:
                self._store.add(batch)
            except StoreError as error:
                if not self._failing:
                    _log.error("cannot write usage: %s", error)
                self._failing = True
                return
            except Exception:  # noqa: BLE001  # rows that can never be written must not block others
                _log.exception("cannot write %s of usage", count_of(len(batch), "row"))
                self.dropped += len(batch)
                self._reported_drops += len(batch)
            else:
                self._log_recovered()
            for _ in batch:
                self._rows.popleft()

    def _log_recovered(self) -> None:
        if self._failing:
            self._failing = False
            _log.warning("usage is written again")

    def _log_dropped(self) -> None:
        """Log the rows that were dropped since the last time, every ten seconds, and at the end."""
        if self.dropped > self._reported_drops and (self._stop.is_set() or monotonic() >= self._next_report):
            self._next_report = monotonic() + _REPORT_INTERVAL
            lost = count_of(self.dropped - self._reported_drops, "row")
            _log.error("lost %s of usage: the queue is full", lost)
            self._reported_drops = self.dropped


# Stores for usage: a SQLite file, or a PostgreSQL table. Both are created on first use.


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
_SQLITE_DAY = "date(time, 'unixepoch')"
_POSTGRES_DAY = "to_char(to_timestamp(time) AT TIME ZONE 'UTC', 'YYYY-MM-DD')"
_SUMS = """
SELECT {what}, count(*), sum(CASE WHEN status >= 400 OR error IS NOT NULL THEN 1 ELSE 0 END), sum(input), sum(output),
    sum(cached), sum(reasoning), sum(calls), sum(seconds)
FROM toolwire_usage WHERE time >= ? GROUP BY 1 ORDER BY 1
"""


def open_usage(address: str) -> UsageStore:
    """Return the store at `address`. It is opened on first use. Raise ConfigError for an unknown scheme."""
    scheme = address.partition("://")[0] if "://" in address else ""
    if scheme in ("postgresql", "postgres"):
        return _SqlUsage(PostgresLink(address, _TABLES, "toolwire_usage", "state.usage"), _POSTGRES_DAY)
    if not scheme and address:
        return _SqlUsage(SqliteLink(address, _TABLES), _SQLITE_DAY)
    raise ConfigError(
        f"unsupported usage store: {display_name(address)}", hint="use a file, or postgresql://user@host/database"
    )


class _SqlUsage:
    """Usage in a SQLite file, or in PostgreSQL for any number of machines. `day` is the expression for a row's day."""

    def __init__(self, link: SqliteLink | PostgresLink, day: str) -> None:
        self._link = link
        self._group_columns = {"key": "key", "model": "model", "day": day}

    def add(self, rows: list[UsageRow]) -> None:
        """Insert rows, except those that are stored. Raise StoreError if the database is unavailable."""
        self._link.insert(_INSERT, [_to_row_values(row) for row in rows])

    def sums(self, by: str, since: float) -> list[UsageSum]:
        """Return the sums since a time, by "key", "model" or "day". Raise StoreError if the database is unavailable."""
        [found] = self._link.execute((_SUMS.format(what=self._group_columns[by]), (since,)))
        return [convert((group, *map(int, counts), seconds), UsageSum) for group, *counts, seconds in found]

    def close(self) -> None:
        self._link.close()


def _to_row_values(row: UsageRow) -> tuple[Any, ...]:
    """Replace NUL, which PostgreSQL cannot store in a text."""
    return tuple(value.replace("\0", "\ufffd") if isinstance(value, str) else value for value in astuple(row))
