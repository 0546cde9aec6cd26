"""Count the turns of an event loop, and the calls of functions in the longest."""

from __future__ import annotations

import asyncio
import sys

MOST_CALLS = 1_000_000
"""Calls of functions in one turn: about three tenths of a second."""


class Turns:
    """Counts the turns of the running event loop, and the calls in the longest one."""

    def __init__(self) -> None:
        self.count = self.longest = self._calls = 0

    async def __aenter__(self) -> Turns:
        self._task = asyncio.ensure_future(self._tick())
        sys.setprofile(self._count_call)
        return self

    async def __aexit__(self, *_: object) -> None:
        sys.setprofile(None)
        self._task.cancel()

    def _count_call(self, frame: object, event: str, argument: object) -> None:
        self._calls += 1

    async def _tick(self) -> None:
        while True:
            self._calls = 0
            await asyncio.sleep(0)
            self.count += 1
            self.longest = max(self.longest, self._calls)
