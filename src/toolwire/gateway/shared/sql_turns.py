"""Turns shared by several processes: in SQLite, for one machine, or in PostgreSQL, each for the time in the settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from ...ir.errors import StoreError
from .response_store import OwnerBounds, entry_key
from .sql_link import Execute
from .sql_state import StateDatabase

__all__ = ["TURN_TABLES", "SqlTurns"]

TURN_TABLES = (
    """
CREATE TABLE IF NOT EXISTS toolwire_turns (
    id BYTEA PRIMARY KEY, turn BYTEA NOT NULL, size BIGINT NOT NULL, expires_at DOUBLE PRECISION NOT NULL
)""",
    "CREATE INDEX IF NOT EXISTS toolwire_turns_end ON toolwire_turns (expires_at, size)",
)
_SWEEP_INTERVAL = 60.0  # seconds between two deletions of old rows
_SAVE = """
INSERT INTO toolwire_turns (id, turn, size, expires_at) VALUES (?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET turn = excluded.turn, size = excluded.size, expires_at = excluded.expires_at
"""
_LOAD = "SELECT id, turn FROM toolwire_turns WHERE id IN ({marks}) AND expires_at > ?"
_SWEEP = "DELETE FROM toolwire_turns WHERE expires_at <= ?"
_EVICT = """
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
        """Save a turn under several ids, in their order, so that no deadlock is possible. True if a sweep is due."""
        now = self._clock(execute)
        for row_id in row_ids:
            execute(_SAVE, (row_id, data, len(data), now + self._seconds))
        is_due = now >= self._next_sweep
        if is_due:
            self._next_sweep = now + _SWEEP_INTERVAL
        return is_due

    def _sweep(self, execute: Execute) -> None:
        """Delete expired turns, and the oldest beyond the bounds."""
        execute(_SWEEP, (self._clock(execute),))
        if self._bounds is not None:
            execute(_EVICT, (self._bounds.max_bytes, self._bounds.max_entries))

    async def load(self, caller: str, keys: Sequence[str]) -> dict[str, bytes]:
        keys_by_id = {entry_key(caller, key): key for key in keys}
        rows = await self._database.transact(partial(self._load, tuple(keys_by_id)), writes=False)
        return {keys_by_id[bytes(row_id)]: bytes(data) for row_id, data in rows}

    def _load(self, row_ids: Sequence[bytes], execute: Execute) -> list[tuple[bytes, bytes]]:
        statement = _LOAD.format(marks=", ".join("?" * len(row_ids)))
        return execute(statement, (*row_ids, self._clock(execute)))
