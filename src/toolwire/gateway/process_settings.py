"""Settings of the interpreter and of the allocator for a process that only serves a gateway.

Separate because these settings affect the whole process, not only the server.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
from collections.abc import Callable

__all__ = ["MemoryTrimmer", "apply_process_settings"]

_SWITCH_INTERVAL = 0.001  # seconds; how long a worker thread may delay the event loop, instead of 5 ms
# A full collection stops all threads while it visits every object, so it waits for two million new objects.
_GC_THRESHOLDS = (2_000, 10, 100)
# The allocator keeps freed blocks below this size for reuse. Its default grows with the largest block that was freed, up
# to 32 MB, and then the bodies of past requests stay in the memory of the process.
_MMAP_THRESHOLD = 256 * 1024
_TRIM_THRESHOLD = 4 * 1024 * 1024  # free memory at the end of the heap that is kept
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_SAMPLE_INTERVAL = 1.0  # seconds
_MIN_PEAK = 16  # requests in flight; fewer do not fragment much memory
_PEAK_SHARE = 4  # a peak is over when a quarter of its requests, or less, are in flight
_CALM_SAMPLES = 3  # in a row, so that most of the memory of a peak is free
_MIN_PAUSE = 10  # samples between two trims; one of 800 MB takes 0.1 seconds, during which allocations may wait


class MemoryTrimmer:
    """Returns free memory to the system after a peak of requests in flight.

    glibc itself returns only the end of a heap. After an overload with bodies of 40 kB, blocks that are still in use kept
    700 MB of free memory in the process.
    """

    def __init__(self, in_flight: Callable[[], int], trim: Callable[[], object]) -> None:
        self._in_flight = in_flight
        self._trim = trim
        self._peak = 0
        self._calm = 0  # samples in a row
        self._pause = 0  # samples until the next trim

    def start(self) -> None:
        """Take a sample every second in the running event loop, and trim in a thread."""
        loop = asyncio.get_running_loop()
        if self.sample():
            loop.run_in_executor(None, self._trim)
        loop.call_later(_SAMPLE_INTERVAL, self.start)

    def sample(self) -> bool:
        """Return whether a peak is over, and memory is to be trimmed."""
        count = self._in_flight()
        self._peak = max(self._peak, count)
        self._pause -= 1
        is_calm = self._peak >= _MIN_PEAK and count <= self._peak // _PEAK_SHARE
        self._calm = self._calm + 1 if is_calm else 0
        if self._calm < _CALM_SAMPLES or self._pause > 0:
            return False
        self._peak, self._calm, self._pause = count, 0, _MIN_PAUSE
        return True


def apply_process_settings(in_flight: Callable[[], int]) -> None:
    """Keep worker threads from delaying the event loop, and return free memory to the system.

    `in_flight` returns the number of requests in flight.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL)
    gc.set_threshold(*_GC_THRESHOLDS)
    try:
        library = ctypes.CDLL(None)
        mallopt, malloc_trim = library.mallopt, library.malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library
        return
    mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD)
    mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD)
    MemoryTrimmer(in_flight, lambda: malloc_trim(0)).start()
