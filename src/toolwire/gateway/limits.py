"""How much a key may ask for. Who is over the limit is told when there is room again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .faults import RateLimited
from .keys import Caller

__all__ = ["InProcess", "Limiter", "windows"]


class Limiter(Protocol):
    async def admit(self, caller: Caller) -> None:
        """Counts a request; RateLimited where there is no room for it."""
        ...

    async def spend(self, caller: Caller, tokens: int) -> None:
        """Counts what an answer cost: known only afterwards, so the last one may go over."""
        ...


def windows(caller: Caller) -> list[tuple[str, int, float]]:
    """(what is counted, how much of it, in how many seconds)."""
    row = caller.row
    rows = (
        ("requests", row.requests_per_minute, 60.0),
        ("tokens", row.tokens_per_minute, 60.0),
        ("day", row.tokens_per_day, 86_400.0),
    )
    return [(name, most, seconds) for name, most, seconds in rows if most is not None]


class InProcess:
    """Fixed windows in this process."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._counts: dict[tuple[str, str], tuple[float, int]] = {}  # until when, and how much so far

    async def admit(self, caller: Caller) -> None:
        now = self._clock()
        found = windows(caller)
        for name, most, _ in found:
            until, count = self._counts.get((caller.name, name), (now, 0))
            if until > now and count >= most:
                raise over(caller, name, most, until - now)
        for name, _, seconds in found:
            if name == "requests":
                self._add(caller, name, seconds, 1)

    async def spend(self, caller: Caller, tokens: int) -> None:
        for name, _, seconds in windows(caller):
            if name != "requests":
                self._add(caller, name, seconds, tokens)

    def _add(self, caller: Caller, name: str, seconds: float, amount: int) -> None:
        now = self._clock()
        until, count = self._counts.get((caller.name, name), (now, 0))
        self._counts[caller.name, name] = (until, count + amount) if until > now else (now + seconds, amount)


def over(caller: Caller, name: str, most: int, wait: float) -> RateLimited:
    what = {"requests": "requests a minute", "tokens": "tokens a minute", "day": "tokens a day"}[name]
    return RateLimited(f"the key {caller.name!r} has used its {most} {what}", retry_after=max(wait, 0.001))
