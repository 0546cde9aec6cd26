"""Settings of the interpreter and of the allocator for a process that only serves a gateway.

Separate because these settings affect the whole process, not only the server.
"""

from __future__ import annotations

import ctypes
import gc
import sys

__all__ = ["apply_process_settings"]

_SWITCH_INTERVAL = 0.001  # seconds; how long a worker thread may delay the event loop, instead of 5 ms
# A full collection stops all threads while it visits every object, so it waits for two million new objects.
_GC_THRESHOLDS = (2_000, 10, 100)
# The allocator keeps freed blocks below this size for reuse. Its default grows with the largest block that was freed, up
# to 32 MB, and then the bodies of past requests stay in the memory of the process.
_MMAP_THRESHOLD = 256 * 1024
_TRIM_THRESHOLD = 4 * 1024 * 1024  # free memory at the end of the heap that is kept
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)


def apply_process_settings() -> None:
    """Keep worker threads from delaying the event loop, and return the memory of large bodies to the system."""
    sys.setswitchinterval(_SWITCH_INTERVAL)
    gc.set_threshold(*_GC_THRESHOLDS)
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return
    mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD)
    mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD)
