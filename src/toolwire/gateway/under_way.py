"""In-flight requests: all of them, or those that began under the same settings."""

from __future__ import annotations

import asyncio

__all__ = ["UnderWay"]


class UnderWay:
    """A count of in-flight requests. `over` is set while there are none."""

    __slots__ = ("_count", "over")

    def __init__(self) -> None:
        self._count = 0
        self.over = asyncio.Event()
        self.over.set()

    def begin(self) -> None:
        self._count += 1
        self.over.clear()

    def end(self) -> None:
        self._count -= 1
        if not self._count:
            self.over.set()
