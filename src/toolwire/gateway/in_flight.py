"""In-flight requests: all of them, or those that began under the same settings."""

from __future__ import annotations

import asyncio

__all__ = ["InFlight"]


class InFlight:
    """A count of in-flight requests. `idle` is set while there are none."""

    __slots__ = ("_count", "idle")

    def __init__(self) -> None:
        self._count = 0
        self.idle = asyncio.Event()
        self.idle.set()

    def begin(self) -> None:
        self._count += 1
        self.idle.clear()

    def end(self) -> None:
        self._count -= 1
        if not self._count:
            self.idle.set()
