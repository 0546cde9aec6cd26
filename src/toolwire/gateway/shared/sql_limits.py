"""Limits shared by several machines: the windows of `limits.py` in PostgreSQL.

A row has the amounts of a key. It is locked, read, decided on and written in one transaction, so a limit is exact. The
requests that arrive during a transaction share the next one, with one read and one write for each key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import msgspec
from msgspec import Struct

from ...ir.errors import StoreError
from .keys import Caller
from .limits import MAX_LIFETIME, SLICES, Limit, LimitWindow, admit_request, limits_of, rate_limit_error
from .response_store import entry_key
from .sql_link import Execute
from .sql_state import StateDatabase

__all__ = ["LIMIT_TABLES", "SqlLimiter"]

LIMIT_TABLES = (
    """
CREATE TABLE IF NOT EXISTS toolwire_limits (
    id BYTEA PRIMARY KEY, amounts BYTEA NOT NULL, expires_at DOUBLE PRECISION NOT NULL
)""",
)
_SWEEP_INTERVAL = 60.0  # seconds between two deletions of expired rows
_BATCH = 200  # requests
# locks the row until the end of the transaction
_LOCK = """
INSERT INTO toolwire_limits (id, amounts, expires_at) VALUES (?, ?, ?)
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at RETURNING amounts
"""
_SAVE = "UPDATE toolwire_limits SET amounts = ? WHERE id = ?"
_EXPIRED = "SELECT id FROM toolwire_limits WHERE expires_at <= ? OR expires_at > ?"
_DELETE = "DELETE FROM toolwire_limits WHERE id = ? AND (expires_at <= ? OR expires_at > ?)"

_Amounts: TypeAlias = dict[str, dict[int, int]]  # by name of the limit and number of the slice
_decoder = msgspec.msgpack.Decoder(_Amounts)
_NONE = msgspec.msgpack.encode({})


class _Count(Struct, eq=False):
    """A request to count (`tokens` is None), or the tokens of an answer. `exceeded` is the decision."""

    id: bytes  # of the row
    limits: Sequence[Limit]
    tokens: int | None
    done: asyncio.Future[None]
    exceeded: tuple[Limit, float] | None = None


class SqlLimiter:
    """Limits in a database. Both methods raise StoreError while it is unavailable.

    `clock` replaces the clock of the database.
    """

    def __init__(self, database: StateDatabase, clock: Callable[[Execute], float] | None = None) -> None:
        self._database = database
        self._clock = clock or database.now
        self._queue: list[_Count] = []
        self._task: asyncio.Task[None] | None = None
        self._next_sweep = 0.0

    async def admit(self, caller: Caller) -> None:
        limits = limits_of(caller)
        exceeded = await self._submit(caller, limits, None) if limits else None
        if exceeded is not None:
            raise rate_limit_error(caller, *exceeded)

    async def spend(self, caller: Caller, tokens: int) -> None:
        limits = [limit for limit in limits_of(caller) if not limit.counts_requests]
        if limits:
            await self._submit(caller, limits, tokens)

    async def _submit(self, caller: Caller, limits: Sequence[Limit], tokens: int | None) -> tuple[Limit, float] | None:
        """Add a count to the next transaction, and return its decision."""
        count = _Count(entry_key(caller.name), limits, tokens, asyncio.get_running_loop().create_future())
        self._queue.append(count)
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run_queued())
        await count.done
        return count.exceeded

    async def _run_queued(self) -> None:
        """Run the queue batch by batch. After a failure, everything in the queue fails at once."""
        while self._queue:
            batch, self._queue = self._queue[:_BATCH], self._queue[_BATCH:]
            fault: Exception | None = None
            try:
                await self._database.transact(partial(self._decide, batch))
            except Exception as error:  # noqa: BLE001  # whatever the error is, no caller may wait forever
                fault = error
                batch, self._queue = [*batch, *self._queue], []  # they would wait in vain
            for count in batch:
                if count.done.done():
                    continue  # the caller was cancelled
                if fault is None:
                    count.done.set_result(None)
                else:
                    count.done.set_exception(fault)
            if fault is None:
                await self._sweep()

    def _decide(self, batch: Sequence[_Count], execute: Execute) -> None:
        """Decide all counts of a batch. Rows are locked in the order of their ids, so no deadlock is possible."""
        now = self._clock(execute)
        counts_by_id: dict[bytes, list[_Count]] = {}
        for count in batch:
            counts_by_id.setdefault(count.id, []).append(count)
        for row_id, counts in sorted(counts_by_id.items()):
            expires_at = now + max((SLICES + 2) * limit.slice for count in counts for limit in count.limits)
            [(data,)] = execute(_LOCK, (row_id, _NONE, expires_at))
            windows = _Windows(_decoder.decode(data), now)
            for count in counts:
                windows.apply(count)
            execute(_SAVE, (msgspec.msgpack.encode(windows.amounts), row_id))

    async def _sweep(self) -> None:
        """Delete expired rows once a minute, each in a transaction of its own, so that it waits for one row at most."""
        now = asyncio.get_running_loop().time()
        if now < self._next_sweep:
            return
        self._next_sweep = now + _SWEEP_INTERVAL
        try:
            expired, at = await self._database.transact(self._find_expired)
            for row_id in expired:
                await self._database.transact(partial(_delete_expired, row_id, at))
        except StoreError:
            pass  # already logged; the rows are deleted later

    def _find_expired(self, execute: Execute) -> tuple[list[bytes], float]:
        now = self._clock(execute)
        return [bytes(row_id) for (row_id,) in execute(_EXPIRED, (now, now + MAX_LIFETIME))], now


def _delete_expired(row_id: bytes, now: float, execute: Execute) -> None:
    execute(_DELETE, (row_id, now, now + MAX_LIFETIME))


class _Windows:
    """The windows of one row at the time `now`, made on first use."""

    def __init__(self, amounts: _Amounts, now: float) -> None:
        self._stored = amounts
        self._now = now
        self._windows: dict[str, LimitWindow] = {}

    def apply(self, count: _Count) -> None:
        """Decide on a request, or count tokens."""
        entries = [(limit, self._window(limit)) for limit in count.limits]
        if count.tokens is None:
            count.exceeded = admit_request(entries, self._now)
            return
        for _, window in entries:
            window.add(count.tokens, self._now)

    def _window(self, limit: Limit) -> LimitWindow:
        window = self._windows.get(limit.name)
        if window is None:
            window = self._windows[limit.name] = LimitWindow(limit.slice, self._stored.get(limit.name), self._now)
        return window

    @property
    def amounts(self) -> _Amounts:
        return {**self._stored, **{name: window.amounts for name, window in self._windows.items()}}
