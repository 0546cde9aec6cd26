"""The health of all targets: of one process, or with cooldowns that all gateways of a `[state]` share.

A shared cooldown only makes a target less preferred, so no request waits for the shared state: it is read and written in
the background, and a request uses the cooldowns that are known. Each process has its own trials and probes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Protocol

from ...ir.errors import StoreError
from ...net.model.health import HealthState, RetryBudget, TargetHealth

__all__ = ["MAX_COOLDOWNS", "CooldownStore", "HealthTable", "SharedHealthTable"]

MAX_COOLDOWNS = 1024
"""The number of targets that are remembered; clients may request any number of models."""
_READ_INTERVAL = 0.5  # seconds between two reads of the shared cooldowns
_WRITE_DELAY = 0.02  # seconds in which changes are collected


class CooldownStore(Protocol):
    """Cooldowns that several gateways share. Every method may raise StoreError."""

    async def load(self) -> dict[str, float]:
        """Return the remaining seconds of each cooldown."""
        ...

    async def save(self, changes: Mapping[str, float]) -> None:
        """Start cooldowns of so many seconds; end those of 0 seconds."""
        ...


class HealthTable:
    """The health of targets, by label, and the retry budgets of upstreams, by name. They outlive a reload."""

    def __init__(self, clock: Callable[[], float], random: Random | None = None) -> None:
        self.clock = clock
        self.cooldown = 10.0
        self.processes = 1  # that send trials and probes
        self._random = random or Random()
        self._by_label: dict[str, TargetHealth] = {}
        self._budgets: dict[str, RetryBudget] = {}
        self.probes: Counter[tuple[str, str]] = Counter()  # by upstream and outcome

    def health_of(self, label: str, upstream: str, retry_ratio: float, *, can_probe: bool) -> TargetHealth:
        """Return the health of a target, with the current settings. If too many are known, healthy ones are dropped."""
        budget = self._budgets.setdefault(upstream, RetryBudget(retry_ratio))
        budget.ratio, budget.processes = retry_ratio, self.processes
        health = self._by_label.get(label)
        if health is None:
            if len(self._by_label) >= MAX_COOLDOWNS:
                failing = {known: old for known, old in self._by_label.items() if old.state != "closed"}
                self._by_label = failing if len(failing) < MAX_COOLDOWNS else {}
            health = self._by_label[label] = TargetHealth(budget=budget, random=self._random)
        health.cooldown, health.can_probe, health.processes = self.cooldown, can_probe, self.processes
        return health

    def refresh(self) -> None:
        """Read the cooldowns of other processes soon."""

    def note_change(self, label: str, health: TargetHealth) -> None:
        """Share a change of the state with other processes."""

    def states(self) -> dict[str, HealthState]:
        """Return the states of the targets that are not closed, by label."""
        return {label: health.state for label, health in self._by_label.items() if health.state != "closed"}

    def refused_retries(self) -> dict[str, int]:
        """Return the numbers of retries that the budgets refused, by upstream."""
        return {upstream: budget.refused for upstream, budget in list(self._budgets.items()) if budget.refused}

    def __len__(self) -> int:
        return len(self._by_label)


class SharedHealthTable(HealthTable):
    """Health with cooldowns in a store. While the store is unavailable, this process has its own alone."""

    def __init__(self, store: CooldownStore, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self._store = store
        self._changes: dict[str, float] = {}  # seconds by label; not written yet
        self._ends: dict[str, float] = {}  # by label, as the store had them at the last read
        self._next_read = 0.0
        self._task: asyncio.Task[None] | None = None

    def refresh(self) -> None:
        if self.clock() >= self._next_read:
            self._start_exchange()

    def note_change(self, label: str, health: TargetHealth) -> None:
        """Write the cooldown of a target, or its end. A trial changes nothing for others."""
        if health.state != "half-open" and len(self._changes) < MAX_COOLDOWNS:
            self._changes[label] = max(health.cooldown_end - self.clock(), 0.0)
            self._start_exchange()

    def _start_exchange(self) -> None:
        self._next_read = self.clock() + _READ_INTERVAL
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
                    self._apply(remaining)
                    return
        except StoreError:
            self._changes = {}  # the failure is logged; the states of this process stay in place

    def _apply(self, remaining: Mapping[str, float]) -> None:
        """Apply the cooldowns of other processes to the targets that this one uses, also those that ended early."""
        now = self.clock()
        for label, health in self._by_label.items():
            if label in remaining:
                health.share_cooldown(now, remaining[label])
            elif now < self._ends.get(label, now) - _READ_INTERVAL:  # which is longer than a read usually takes
                health.share_success(now)
        self._ends = {label: now + seconds for label, seconds in remaining.items()}

    async def aclose(self) -> None:
        """Wait for a write in progress."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=1.0)
            self._task.cancel()
