"""Limits per key. The error for an exceeded limit contains the time until there is room again.

A limit holds for any minute (or day), not for calendar ones: time is divided into slices, sixty to a minute or a day,
and the current slice and the sixty before it count. So no client gets twice the limit around the turn of a minute, a
key costs at most sixty-one numbers, and room returns at most one slice (a second; 24 minutes of a day) late.

A request counts once it is admitted; a refused one does not count. The cost of an answer is known only afterwards, so
the requests in flight when a token budget is used up may still exceed it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import ceil
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from ..faults import RateLimited
from .keys import Caller

__all__ = ["SLICES", "InProcessLimiter", "Limit", "Limiter", "limits_of", "rate_limit_error"]

LimitName: TypeAlias = Literal["requests", "tokens", "day"]
SLICES = 60
_LIMIT_LABELS = {"requests": "requests per minute", "tokens": "tokens per minute", "day": "tokens per day"}


class Limiter(Protocol):
    """Counts the requests and tokens of each key."""

    async def admit(self, caller: Caller) -> None:
        """Count a request; RateLimited if there is no room for it."""
        ...

    async def spend(self, caller: Caller, tokens: int) -> None:
        """Count the cost of an answer. It does not raise."""
        ...


class Limit(Struct, frozen=True):
    """At most `maximum` of something in `seconds`."""

    name: LimitName
    maximum: int
    seconds: float

    @property
    def slice(self) -> float:
        return self.seconds / SLICES

    @property
    def counts_requests(self) -> bool:
        return self.name == "requests"


def limits_of(caller: Caller) -> tuple[Limit, ...]:
    """List the limits of a key."""
    row = caller.row
    return _make_limits(row.requests_per_minute, row.tokens_per_minute, row.tokens_per_day)


@lru_cache(1024)
def _make_limits(requests: int | None, tokens: int | None, day: int | None) -> tuple[Limit, ...]:
    """List the configured limits; cached, because this is needed for every request."""
    limits: tuple[tuple[LimitName, int | None, float], ...] = (
        ("requests", requests, 60.0),
        ("tokens", tokens, 60.0),
        ("day", day, 86_400.0),
    )
    return tuple(Limit(name, maximum, seconds) for name, maximum, seconds in limits if maximum is not None)


class InProcessLimiter:
    """Limits of one process. Check and increment share no `await`, so no lock is needed."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._windows: dict[str, dict[str, _Window]] = {}  # by key name and limit name

    async def admit(self, caller: Caller) -> None:
        """Check all limits, then count the request, so that a refused request counts nowhere."""
        now = self._clock()
        entries = self._windows_for(caller, now)
        for limit, window in entries:
            delay = window.wait_seconds(limit.maximum, now)
            if delay > 0:
                raise rate_limit_error(caller, limit, delay)
        for limit, window in entries:
            if limit.counts_requests:
                window.add(1, now)

    async def spend(self, caller: Caller, tokens: int) -> None:
        now = self._clock()
        for limit, window in self._windows_for(caller, now):
            if not limit.counts_requests:
                window.add(tokens, now)

    def __len__(self) -> int:
        return len(self._windows)

    def _windows_for(self, caller: Caller, now: float) -> list[tuple[Limit, _Window]]:
        """Return each limit of a key with its window, and create missing windows."""
        windows = self._windows.get(caller.name)
        if windows is None:
            # keys change with the settings; the windows of removed keys are dropped
            self._windows = {
                name: known_windows
                for name, known_windows in self._windows.items()
                if not _are_expired(known_windows, now)
            }
            windows = self._windows[caller.name] = {}
        entries = []
        for limit in limits_of(caller):
            if limit.name not in windows:
                windows[limit.name] = _Window(limit.slice)
            entries.append((limit, windows[limit.name]))
        return entries


class _Window:
    """Amounts by slice number, the oldest first."""

    __slots__ = ("_amounts", "_slice", "_total")

    def __init__(self, seconds: float) -> None:
        self._slice = seconds
        self._amounts: dict[int, int] = {}
        self._total = 0

    def add(self, amount: int, now: float) -> None:
        slice_number = int(now // self._slice)
        self._amounts[slice_number] = self._amounts.get(slice_number, 0) + amount
        self._total += amount

    def wait_seconds(self, maximum: int, now: float) -> float:
        """Return the seconds until the total is below `maximum`, or 0 if it is."""
        self._drop_expired(now)
        remaining, free_at = self._total, now
        if remaining < maximum:
            return 0.0
        for slice_number, amount in self._amounts.items():
            if remaining < maximum:
                break
            remaining -= amount
            free_at = (slice_number + SLICES + 1) * self._slice
        return free_at - now

    def is_expired(self, now: float) -> bool:
        self._drop_expired(now)
        return not self._amounts

    def _drop_expired(self, now: float) -> None:
        oldest = int(now // self._slice) - SLICES
        while self._amounts and (first := next(iter(self._amounts))) < oldest:
            self._total -= self._amounts.pop(first)


def _are_expired(windows: dict[str, _Window], now: float) -> bool:
    return all(window.is_expired(now) for window in windows.values())


def rate_limit_error(caller: Caller, limit: Limit, delay: float) -> RateLimited:
    """Build the error for an exceeded limit, in whole seconds rounded up: all clients read them, and none is early."""
    message = f"the key {caller.name!r} has used its {limit.maximum} {_LIMIT_LABELS[limit.name]}"
    return RateLimited(message, retry_after=ceil(delay))
