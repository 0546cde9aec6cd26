"""Time limits with one timer per limit. A timer per call would cost more than most calls do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["DeadlineHandle", "DeadlineQueue", "SharedTimers"]


class DeadlineHandle:
    """A callback that is called at its deadline, unless it is cancelled before."""

    __slots__ = ("_deadlines", "expire")

    def __init__(self, deadlines: DeadlineQueue, expire: Callable[[], object]) -> None:
        self._deadlines = deadlines
        self.expire = expire

    def cancel(self) -> None:
        self._deadlines.remove(self)


class DeadlineQueue:
    """The deadlines of one event loop and one limit: they expire in the order in which they were added."""

    __slots__ = ("_armed", "_pending", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._pending: dict[DeadlineHandle, float] = {}  # deadlines, in the order of their times
        self._armed = False

    def add(self, expire: Callable[[], object], at: float) -> DeadlineHandle:
        """Call `expire` at this time of the loop."""
        handle = DeadlineHandle(self, expire)
        self._pending[handle] = at
        if not self._armed:
            self._arm(at)
        return handle

    def remove(self, handle: DeadlineHandle) -> None:
        self._pending.pop(handle, None)

    def _arm(self, at: float) -> None:
        self._armed = True
        self.loop.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        """Call the expired callbacks, and set the timer for the next deadline.

        They are in order, so the first later one ends the search.
        """
        self._armed = False
        now = self.loop.time()
        for handle, at in list(self._pending.items()):
            if at > now:
                self._arm(at)
                return
            del self._pending[handle]
            handle.expire()


class SharedTimers:
    """A `call_later` for a small set of recurring delays."""

    __slots__ = ("_by_limit",)

    def __init__(self) -> None:
        self._by_limit: dict[float, DeadlineQueue] = {}

    def queue_for(self, limit: float, loop: asyncio.AbstractEventLoop) -> DeadlineQueue:
        queue = self._by_limit.get(limit)
        if queue is None or queue.loop is not loop:
            queue = self._by_limit[limit] = DeadlineQueue(loop)
        return queue

    def call_later(self, seconds: float, expire: Callable[[], object]) -> DeadlineHandle:
        loop = asyncio.get_running_loop()
        return self.queue_for(seconds, loop).add(expire, loop.time() + seconds)
