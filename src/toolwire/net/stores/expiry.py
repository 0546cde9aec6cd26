"""The time by which finished records expire, and their removal in batches. A clock that jumps must not end their time to live.

The time of the machine can be set: by hand, by a hypervisor, or by a wrong time server. The clock that counts since the
start of the machine cannot. A record expires only if both agree, and is kept from the later of both. So a jump makes
records live longer, and never lets a finished write run again while this process runs. After a restart there is
nothing to compare the time with.
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["BATCH_SECONDS", "ExpiryClock", "sweep_in_batches"]

BATCH_SECONDS = 0.1  # a writer of another process waits for one batch; far below the timeout of every store
_LONG_SECONDS = 1.0  # more than the round trips to a distant server, and also far below the timeouts


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


def sweep_in_batches(remove: Callable[[int], int], limit: int | None, *, max_batch: int) -> int:
    """Remove expired entries until none are left or `limit` are removed, and return their number.

    `remove(size)` removes at most `size` entries in one transaction, and returns how many. The next size follows the
    time that it took, because a run can have a kilobyte or many megabytes. Only a long batch makes it smaller: a
    shorter one may consist of round trips, which take as long for fewer entries.
    """
    swept, size = 0, 1
    while True:
        wanted = size if limit is None else min(size, limit - swept)
        if wanted <= 0:
            return swept
        started = time.monotonic()
        removed = remove(wanted)
        seconds = time.monotonic() - started
        swept += removed
        if removed < wanted:
            return swept
        suitable = int(size * min(2.0, BATCH_SECONDS / max(seconds, 1e-6)))
        size = min(max_batch, max(suitable, 1 if seconds > _LONG_SECONDS else size + 1))


def _since_start() -> float:
    """Return the seconds since the machine started, if possible with the time in which it slept."""
    boot_time = getattr(time, "CLOCK_BOOTTIME", None)  # Linux; elsewhere the monotonic clock
    return time.monotonic() if boot_time is None else time.clock_gettime(boot_time)
