"""The health of all targets: cooldowns after failures, and probes of silent upstreams."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from logging import getLogger
from random import Random
from typing import Literal, Protocol, TypeAlias, cast

from msgspec import Struct

from ...asgi.interruption import Interruption
from ...ir.errors import ConfigError, StoreError, ToolwireError
from ...ir.response import UpstreamError
from ...net.model.health import HealthState, RetryBudget, TargetHealth
from ...net.model.server_facts import list_models
from .upstreams import ConfiguredUpstream

# The health of all targets: of one process, or with cooldowns that all gateways of a `[state]` share.
#
# A shared cooldown only makes a target less preferred, so no request waits for the shared state: it is read and
# written in the background, and a request uses the cooldowns that are known. Each process has its own trials and
# probes.


MAX_COOLDOWNS = 1024
"""The number of targets that are remembered; clients may request any number of models."""
_READ_INTERVAL = 0.5  # seconds between two reads of the shared cooldowns, which last ten by default
_WRITE_DELAY = 0.02  # seconds in which changes are collected: an outage changes all targets of an upstream


class CooldownStore(Protocol):
    """Cooldowns that several gateways share. Every method may raise StoreError."""

    async def load(self) -> dict[str, float]:
        """Return the remaining seconds of each cooldown."""
        ...

    async def save(self, changes: Mapping[str, float]) -> None:
        """Start cooldowns of so many seconds, by label; 0 seconds end a cooldown."""
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
        """Return the health of a target, and set it and its upstream's retry budget to the current settings.

        If too many targets are known, healthy ones are dropped.
        """
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
        """Write the changes, then read and apply all cooldowns; again if there were changes in the meantime.

        If the store fails, the changes are dropped.
        """
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
        """Apply the cooldowns of other processes, and their early ends, to the targets that this process uses."""
        now = self.clock()
        for label, health in self._by_label.items():
            if label in remaining:
                health.share_cooldown(now, remaining[label])
            # The store does not have it any more, long before its end: a read usually takes less than the interval.
            elif now < self._ends.get(label, now) - _READ_INTERVAL:
                health.share_success(now)
        self._ends = {label: now + seconds for label, seconds in remaining.items()}

    async def aclose(self) -> None:
        """Wait for a write in progress."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=1.0)
            self._task.cancel()


# Ask upstreams whether they are reachable, with one bounded request for their list of models.
#
# `probe_upstreams` asks all of them, for `toolwire serve check`. `SilenceWatch` asks those whose requests get no
# byte, and those whose cooldown after a silence is over, as `net.model.health` decides.


_log = getLogger("toolwire.gateway")
_MAX_PROBES = 8  # at the same time, so that an outage of many targets causes no burst of requests
_PROBE_SECONDS = 5.0  # for the answer to a probe: lists of models take less than a second, also at busy servers
_CHECK_INTERVAL = 1.0  # seconds between two checks of a target with waiting requests
_CHECKS = 8  # within the silence after which a target may hang
_NoteChange: TypeAlias = Callable[[str, TargetHealth, HealthState, str], None]
ProbeStatus: TypeAlias = Literal["ok", "reachable", "key refused", "unreachable", "not asked"]


class ProbeResult(Struct, frozen=True):
    """The outcome of a probe. `reachable`: it answered, but not with a list of models."""

    upstream: str
    status: ProbeStatus
    address: str = ""
    ms: int = 0
    models: int | None = None  # in the list
    detail: str = ""

    @property
    def is_usable(self) -> bool:
        return self.status in ("ok", "reachable", "not asked")


async def probe_upstreams(
    upstreams: Mapping[str, ConfiguredUpstream], environment: Mapping[str, str], seconds: float
) -> list[ProbeResult]:
    """Probe all upstreams, each within `seconds`."""
    slots = asyncio.Semaphore(_MAX_PROBES)

    async def probe(upstream: ConfiguredUpstream) -> ProbeResult:
        async with slots:
            return await _probe(upstream, environment, seconds)

    return list(await asyncio.gather(*(probe(upstream) for upstream in upstreams.values())))


async def _probe(upstream: ConfiguredUpstream, environment: Mapping[str, str], seconds: float) -> ProbeResult:
    """Request the list of models of an upstream, and return the outcome. Models in this process are not asked."""
    endpoint = upstream.endpoint("any")  # the list does not depend on a model, but an endpoint has one
    if endpoint.vendor.transport is not None:
        return ProbeResult(upstream.name, "not asked", detail="it runs in this process")
    address, started_at = endpoint.origin, time.perf_counter()
    try:
        async with asyncio.timeout(seconds):
            names = await list_models(endpoint, environment, seconds)
    except TimeoutError:
        return ProbeResult(upstream.name, "unreachable", address, detail=f"no answer within {seconds:g} s")
    except UpstreamError as error:
        kinds: dict[str, ProbeStatus] = {"authentication": "key refused", "overloaded": "unreachable"}
        return ProbeResult(upstream.name, kinds.get(error.fault.kind, "reachable"), address, detail=error.message)
    except ConfigError as error:
        return ProbeResult(upstream.name, "not asked", address, detail=error.message)
    except ToolwireError as error:  # the command that prints the key
        return ProbeResult(upstream.name, "unreachable", address, detail=error.message)
    ms = round((time.perf_counter() - started_at) * 1000)
    return ProbeResult(upstream.name, "ok", address, ms, len(names))


class SilenceWatch:
    """Checks targets while requests wait for their first byte, and sends the probes that are due."""

    def __init__(self, table: HealthTable, note_change: _NoteChange) -> None:
        self._table = table
        self._note_change = note_change
        self._watched: set[str] = set()  # labels with a timer
        self._probes: set[asyncio.Task[None]] = set()

    def start(self, label: str, health: TargetHealth, upstream: ConfiguredUpstream) -> None:
        """Check a target until none of its requests waits."""
        if label not in self._watched:
            self._watched.add(label)
            self._check_later(label, health, upstream)

    def _check_later(self, label: str, health: TargetHealth, upstream: ConfiguredUpstream) -> None:
        delay = min(_CHECK_INTERVAL, upstream.row.first_event / _CHECKS)
        asyncio.get_running_loop().call_later(delay, self._on_timer, label, health, upstream)

    def _on_timer(self, label: str, health: TargetHealth, upstream: ConfiguredUpstream) -> None:
        if health.is_waiting:
            self.check(label, health, upstream)
            self._check_later(label, health, upstream)
        else:
            self._watched.discard(label)

    def check(self, label: str, health: TargetHealth, upstream: ConfiguredUpstream) -> None:
        """Send a probe in a task if it is due, and note a change of the state."""
        before = health.state
        if health.begin_probe(self._table.clock(), upstream.row.first_event):
            if health.state != before:
                self._note_change(label, health, before, "probe")
            task = asyncio.ensure_future(self._probe(label, health, upstream))
            self._probes.add(task)
            task.add_done_callback(self._probes.discard)

    async def _probe(self, label: str, health: TargetHealth, upstream: ConfiguredUpstream) -> None:
        """Send a probe, count its outcome and note it in the target's health.

        If it is not answered, interrupt the waiting requests. A probe that cannot be sent is logged, and counts as answered.
        """
        try:
            is_answered = await upstream.is_answering(min(_PROBE_SECONDS, upstream.row.first_event))
        except Exception:  # noqa: BLE001  # such as a certificate file that is gone: no evidence against the upstream
            _log.exception("cannot probe the upstream %s", upstream.name)
            is_answered = True
        self._table.probes[upstream.name, "answered" if is_answered else "unanswered"] += 1
        before = health.state
        released = health.report_probe(self._table.clock(), is_answered=is_answered)
        if health.state != before:
            self._note_change(label, health, before, "probe answered" if is_answered else "probe not answered")
        for interruption in released:
            cast("Interruption", interruption).interrupt("upstream_idle")
