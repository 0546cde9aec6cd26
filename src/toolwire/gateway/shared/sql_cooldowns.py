"""Cooldowns shared by several processes, in SQLite or PostgreSQL. Separate because the tables of a state are separate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from .cooldowns import MAX_COOLDOWNS
from .sql_link import Execute
from .sql_state import StateDatabase

__all__ = ["COOLDOWN_TABLES", "SqlCooldowns"]

COOLDOWN_TABLES = (
    "CREATE TABLE IF NOT EXISTS toolwire_cooldowns (label TEXT PRIMARY KEY, ends_at DOUBLE PRECISION NOT NULL)",
)
_LOAD = "SELECT label, ends_at FROM toolwire_cooldowns WHERE ends_at > ? ORDER BY ends_at DESC LIMIT ?"
_START = """
INSERT INTO toolwire_cooldowns (label, ends_at) VALUES (?, ?)
ON CONFLICT (label) DO UPDATE SET ends_at = excluded.ends_at
"""
_END = "DELETE FROM toolwire_cooldowns WHERE label = ?"
_SWEEP = """
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
        return {label: ends_at - now for label, ends_at in execute(_LOAD, (now, MAX_COOLDOWNS))}

    async def save(self, changes: Mapping[str, float]) -> None:
        await self._database.transact(partial(self._save, changes))

    def _save(self, changes: Mapping[str, float], execute: Execute) -> None:
        """Write the changes in the order of their labels, so that no deadlock is possible."""
        now = self._clock(execute)
        for label, seconds in sorted(changes.items()):
            name = label.replace("\0", "\ufffd")  # PostgreSQL cannot store NUL in a text
            if seconds > 0:
                execute(_START, (name, now + seconds))
            else:
                execute(_END, (name,))
        execute(_SWEEP, (now, MAX_COOLDOWNS))
