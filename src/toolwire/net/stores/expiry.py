"""The time by which finished records expire. A clock that jumps must not end their time to live.

The time of the machine can be set: by hand, by a hypervisor, or by a wrong time server. The clock that counts since the
start of the machine cannot. A record expires only if both agree, and is kept from the later of both. So a jump makes
records live longer, and never lets a finished write run again while this process runs. After a restart there is
nothing to compare the time with.
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["ExpiryClock"]


class ExpiryClock:
    """Compares the time of day (`wall`) with `ticks`, which only grows; by default the time since the start."""

    def __init__(self, wall: Callable[[], float], ticks: Callable[[], float] | None = None) -> None:
        self._wall = wall
        self._ticks = ticks or (_since_start if wall is time.time else wall)
        self._offset = self._wall() - self._ticks()

    def now(self) -> float:
        """Return the earlier time: records that expire before it have expired by both clocks."""
        return min(self._wall(), self._ticks() + self._offset)

    def end_of(self, ttl: float) -> float:
        """Return the end of the time to live of a record that is completed now, by the later time."""
        return max(self._wall(), self._ticks() + self._offset) + ttl


def _since_start() -> float:
    """Return the seconds since the machine started, if possible with the time in which it slept."""
    boot_time = getattr(time, "CLOCK_BOOTTIME", None)  # Linux; elsewhere the monotonic clock
    return time.monotonic() if boot_time is None else time.clock_gettime(boot_time)
