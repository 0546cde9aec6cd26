"""Limit the calls per second of a tool: a call that is too early waits."""

from __future__ import annotations

import asyncio

__all__ = ["Rates"]


class Rates:
    def __init__(self) -> None:
        self._next: dict[str, float] = {}

    async def take(self, name: str, rate: float) -> None:
        now = asyncio.get_running_loop().time()
        turn = max(self._next.get(name, now), now)
        self._next[name] = turn + 1 / rate
        if turn > now:
            await asyncio.sleep(turn - now)
