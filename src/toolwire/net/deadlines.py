"""Limits of time: one timer for all that have the same one. A timer each would cost more than most calls do."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from typing import Protocol

__all__ = ["Deadlines"]


class _Expiring(Protocol):
    def expire(self) -> None: ...


class Deadlines:
    """For one event loop and one limit: what was added first is due first."""

    __slots__ = ("_armed", "_due", "loop")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.loop = loop
        self._due: dict[_Expiring, float] = {}
        self._armed = False

    def add(self, work: _Expiring, at: float) -> None:
        """`work` is told to expire at this time of the loop, unless it is discarded before."""
        self._due[work] = at
        if not self._armed:
            self._arm(at)

    def discard(self, work: _Expiring) -> None:
        self._due.pop(work, None)

    def _arm(self, at: float) -> None:
        self._armed = True
        self.loop.call_at(at, self._look)

    def _look(self) -> None:
        self._armed = False
        now = self.loop.time()
        for work, at in list(self._due.items()):
            if at > now:
                self._arm(at)
                return
            del self._due[work]
            work.expire()
