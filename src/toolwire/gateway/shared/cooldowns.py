"""Cooldowns of targets that failed: of one process, or shared by all gateways of a `[state]`.

A cooldown only changes the order of targets, so no request waits for the shared state: it is read and written in the
background, and a request uses the cooldowns that are known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from ...ir.errors import StoreError

__all__ = ["MAX_COOLDOWNS", "CooldownStore", "Cooldowns", "InProcessCooldowns", "SharedCooldowns"]

MAX_COOLDOWNS = 1024
"""The number of targets that are remembered; clients may request any number of models."""
_READ_INTERVAL = 0.5  # seconds between two reads of the shared cooldowns
_WRITE_DELAY = 0.02  # seconds in which changes are collected


class Cooldowns(Protocol):
    """The targets in cooldown, by label. No method waits."""

    def is_cooling(self, label: str) -> bool: ...

    def start(self, label: str, seconds: float) -> None: ...

    def end(self, label: str) -> None: ...


class CooldownStore(Protocol):
    """Cooldowns that several gateways share. Every method may raise StoreError."""

    async def load(self) -> dict[str, float]:
        """Return the remaining seconds of each cooldown."""
        ...

    async def save(self, changes: Mapping[str, float]) -> None:
        """Start cooldowns of so many seconds; end those of 0 seconds."""
        ...


class InProcessCooldowns:
    """Cooldowns of one process."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def is_cooling(self, label: str) -> bool:
        return bool(self._until) and self._until.get(label, 0.0) > self._clock()

    def start(self, label: str, seconds: float) -> None:
        """Start a cooldown. If too many are known, those that are over are dropped, or else all."""
        now = self._clock()
        if len(self._until) >= MAX_COOLDOWNS:
            cooling = {known: until for known, until in self._until.items() if until > now}
            self._until = cooling if len(cooling) < MAX_COOLDOWNS else {}
        self._until[label] = now + seconds

    def end(self, label: str) -> None:
        self._until.pop(label, None)

    def replace(self, remaining: Mapping[str, float]) -> None:
        """Replace all cooldowns by those with the given remaining seconds."""
        now = self._clock()
        self._until = {label: now + seconds for label, seconds in remaining.items()}

    def __len__(self) -> int:
        return len(self._until)


class SharedCooldowns:
    """Cooldowns in a store, with a local copy. While the store is unavailable, the copy is used and changed alone."""

    def __init__(self, store: CooldownStore, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._copy = InProcessCooldowns(clock)
        self._changes: dict[str, float] = {}  # seconds by label; not written yet
        self._next_read = 0.0
        self._task: asyncio.Task[None] | None = None

    def is_cooling(self, label: str) -> bool:
        if self._clock() >= self._next_read:
            self._start_exchange()
        return self._copy.is_cooling(label)

    def start(self, label: str, seconds: float) -> None:
        self._copy.start(label, seconds)
        self._change(label, seconds)

    def end(self, label: str) -> None:
        """End a cooldown that is known here. This is called after every success, so usually there is none."""
        if self._copy.is_cooling(label):
            self._copy.end(label)
            self._change(label, 0.0)

    def _change(self, label: str, seconds: float) -> None:
        if len(self._changes) < MAX_COOLDOWNS:
            self._changes[label] = seconds
        self._start_exchange()

    def _start_exchange(self) -> None:
        self._next_read = self._clock() + _READ_INTERVAL
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._exchange())

    async def _exchange(self) -> None:
        """Write the changes, then read all cooldowns; again if there were changes in the meantime."""
        try:
            while True:
                if self._changes:
                    await asyncio.sleep(_WRITE_DELAY)
                    changes, self._changes = self._changes, {}
                    await self._store.save(changes)
                remaining = await self._store.load()
                if not self._changes:
                    self._copy.replace(remaining)
                    return
        except StoreError:
            self._changes = {}  # the failure is logged; the local copy stays in place

    async def aclose(self) -> None:
        """Wait for a write in progress."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=1.0)
            self._task.cancel()
