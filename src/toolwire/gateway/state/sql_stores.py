"""Cooldowns, limits and turns in tables: of SQLite for one machine, of PostgreSQL for any number.

Decisions about limits read, decide and write in one transaction that holds the row's lock. Those of concurrent requests
share a transaction, so that a busy gateway needs fewer commits. Within it, rows are locked in the order of their ids, so
that two gateways cannot wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias

import msgspec
from msgspec import Struct

from ...ir.errors import StoreError
from ..keys import MAX_LIFETIME, SLICES, Caller, Limit, LimitWindow, admit_request, limits_of, rate_limit_error
from ..responses.store import OwnerBounds, entry_key
from ..routing.health import MAX_COOLDOWNS
from .database import Execute, StateDatabase

COOLDOWN_TABLES = (
    "CREATE TABLE IF NOT EXISTS toolwire_cooldowns (label TEXT PRIMARY KEY, ends_at DOUBLE PRECISION NOT NULL)",
)
_LOAD_COOLDOWNS = "SELECT label, ends_at FROM toolwire_cooldowns WHERE ends_at > ? ORDER BY ends_at DESC LIMIT ?"
_START = """
INSERT INTO toolwire_cooldowns (label, ends_at) VALUES (?, ?)
ON CONFLICT (label) DO UPDATE SET ends_at = excluded.ends_at
"""
_END = "DELETE FROM toolwire_cooldowns WHERE label = ?"
_SWEEP_COOLDOWNS = """
DELETE FROM toolwire_cooldowns WHERE ends_at <= ? OR label NOT IN (
    SELECT label FROM toolwire_cooldowns ORDER BY ends_at DESC LIMIT ?
)
"""


class SqlCooldowns:
    """Cooldowns in a table. `clock` replaces the clock of the database."""

    def __init__(self, database: StateDatabase, clock: Callable[[Execute], float] | None = None) -> None:
        self._database = database
        self._clock = clock or database.now

    async def load(self) -> dict[str, float]:
        return await self._database.transact(self._load, writes=False)

    def _load(self, execute: Execute) -> dict[str, float]:
        now = self._clock(execute)
        return {label: ends_at - now for label, ends_at in execute(_LOAD_COOLDOWNS, (now, MAX_COOLDOWNS))}

    async def save(self, changes: Mapping[str, float]) -> None:
        await self._database.transact(partial(self._save, changes))

    def _save(self, changes: Mapping[str, float], execute: Execute) -> None:
        """Write the changes in the order of their labels, so that no deadlock is possible, and delete old cooldowns."""
        now = self._clock(execute)
        for label, seconds in sorted(changes.items()):
            name = label.replace("\0", "\ufffd")  # PostgreSQL cannot store NUL in a text
            if seconds > 0:
                execute(_START, (name, now + seconds))
            else:
                execute(_END, (name,))
        execute(_SWEEP_COOLDOWNS, (now, MAX_COOLDOWNS))


# A row of limits has the amounts of a key. It is locked, read, decided on and written in one transaction, so a limit is exact.
# The requests that arrive during a transaction share the next one, with one read and one write for each key.


LIMIT_TABLES = (
    """
CREATE TABLE IF NOT EXISTS toolwire_limits (
    id BYTEA PRIMARY KEY, amounts BYTEA NOT NULL, expires_at DOUBLE PRECISION NOT NULL
)""",
)
_SWEEP_INTERVAL = 60.0  # seconds between two deletions of expired rows; the shortest window has a minute
_BATCH = 200  # requests, so that a transaction ends far within the timeout; not measured
# locks the row until the end of the transaction
_LOCK_LIMITS = """
INSERT INTO toolwire_limits (id, amounts, expires_at) VALUES (?, ?, ?)
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at RETURNING amounts
"""
_SAVE_LIMITS = "UPDATE toolwire_limits SET amounts = ? WHERE id = ?"
_EXPIRED = "SELECT id FROM toolwire_limits WHERE expires_at <= ? OR expires_at > ?"
_DELETE_LIMITS = "DELETE FROM toolwire_limits WHERE id = ? AND (expires_at <= ? OR expires_at > ?)"

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
        """Decide the queue batch by batch, and sweep. After a failure, everything in the queue fails at once."""
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
        """Decide and store all counts of a batch. Rows are locked in the order of their ids, so there is no deadlock."""
        now = self._clock(execute)
        counts_by_id: dict[bytes, list[_Count]] = {}
        for count in batch:
            counts_by_id.setdefault(count.id, []).append(count)
        for row_id, counts in sorted(counts_by_id.items()):
            expires_at = now + max((SLICES + 2) * limit.slice for count in counts for limit in count.limits)
            [(data,)] = execute(_LOCK_LIMITS, (row_id, _NONE, expires_at))
            windows = _Windows(_decoder.decode(data), now)
            for count in counts:
                windows.apply(count)
            execute(_SAVE_LIMITS, (msgspec.msgpack.encode(windows.amounts), row_id))

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
    execute(_DELETE_LIMITS, (row_id, now, now + MAX_LIFETIME))


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


TURN_TABLES = (
    """
CREATE TABLE IF NOT EXISTS toolwire_turns (
    id BYTEA PRIMARY KEY, turn BYTEA NOT NULL, size BIGINT NOT NULL, expires_at DOUBLE PRECISION NOT NULL
)""",
    "CREATE INDEX IF NOT EXISTS toolwire_turns_end ON toolwire_turns (expires_at, size)",
)
_SAVE_TURN = """
INSERT INTO toolwire_turns (id, turn, size, expires_at) VALUES (?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET turn = excluded.turn, size = excluded.size, expires_at = excluded.expires_at
"""
_LOAD_TURNS = "SELECT id, turn FROM toolwire_turns WHERE id IN ({marks}) AND expires_at > ?"
_SWEEP_TURNS = "DELETE FROM toolwire_turns WHERE expires_at <= ?"
_EVICT_TURNS = """
DELETE FROM toolwire_turns WHERE id IN (
    SELECT id FROM (
        SELECT id, sum(size) OVER newest AS total, row_number() OVER newest AS position
        FROM toolwire_turns WINDOW newest AS (ORDER BY expires_at DESC, id DESC)
    ) AS ranked WHERE total > ? OR position > ?
)
"""


class SqlTurns:
    """Turns in a table. `bounds`, if given, are enforced once a minute: the oldest turns are dropped.

    `clock` replaces the clock of the database.
    """

    def __init__(
        self,
        database: StateDatabase,
        seconds: float,
        *,
        bounds: OwnerBounds | None = None,
        clock: Callable[[Execute], float] | None = None,
    ) -> None:
        self._database = database
        self._seconds = seconds
        self._clock = clock or database.now
        self._bounds = bounds
        self._next_sweep = 0.0

    async def save(self, caller: str, keys: Sequence[str], data: bytes) -> None:
        row_ids = sorted(entry_key(caller, key) for key in keys)
        if await self._database.transact(partial(self._save, row_ids, data)):
            with suppress(StoreError):  # already logged; the turn is stored
                await self._database.transact(self._sweep)

    def _save(self, row_ids: Sequence[bytes], data: bytes, execute: Execute) -> bool:
        """Save a turn under several ids, in their order, so that there is no deadlock. Return whether a sweep is due."""
        now = self._clock(execute)
        for row_id in row_ids:
            execute(_SAVE_TURN, (row_id, data, len(data), now + self._seconds))
        is_due = now >= self._next_sweep
        if is_due:
            self._next_sweep = now + _SWEEP_INTERVAL
        return is_due

    def _sweep(self, execute: Execute) -> None:
        """Delete expired turns, and the oldest beyond the bounds."""
        execute(_SWEEP_TURNS, (self._clock(execute),))
        if self._bounds is not None:
            execute(_EVICT_TURNS, (self._bounds.max_bytes, self._bounds.max_entries))

    async def load(self, caller: str, keys: Sequence[str]) -> dict[str, bytes]:
        keys_by_id = {entry_key(caller, key): key for key in keys}
        rows = await self._database.transact(partial(self._load, tuple(keys_by_id)), writes=False)
        return {keys_by_id[bytes(row_id)]: bytes(data) for row_id, data in rows}

    def _load(self, row_ids: Sequence[bytes], execute: Execute) -> list[tuple[bytes, bytes]]:
        statement = _LOAD_TURNS.format(marks=", ".join("?" * len(row_ids)))
        return execute(statement, (*row_ids, self._clock(execute)))
