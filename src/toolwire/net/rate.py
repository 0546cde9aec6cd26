"""Limit the calls per second of a tool: a call that is too early waits."""

from __future__ import annotations

import asyncio

__all__ = ["Rates"]


class Rates:
    def __init__(self) -> None:
        self._next_start: dict[str, float] = {}

    async def acquire(self, name: str, rate: float) -> None:
        now = asyncio.get_running_loop().time()
        start_at = max(self._next_start.get(name, now), now)
        self._next_start[name] = start_at + 1 / rate
        if start_at > now:
            await asyncio.sleep(start_at - now)
