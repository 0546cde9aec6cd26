"""A lock for the worker processes of one gateway, which write lines to the same standard error.

Separate because only workers need it. A pipe accepts 4,096 bytes at once; longer lines of two processes would be mixed.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from threading import Lock
from time import monotonic, sleep

__all__ = ["LineLock"]

_MAX_HELD = 0.5  # seconds; writing a line takes microseconds, and a process waits 50 ms in a second for a slow reader
_PAUSE = 0.0001  # seconds between two tries
_IGNORE = 30.0  # seconds in which lines are written without the lock, so that few lines are lost


class LineLock:
    """A lock that excludes other processes with the same file, and other threads of this one.

    A stopped process may hold it for any time. Half a second after the first failure it is ignored: then lines of
    different processes may be mixed.
    """

    def __init__(self, file: Path) -> None:
        self._descriptor = os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        self._lock = Lock()
        self._held_since: float | None = None  # by another process, at every attempt
        self._ignored_until = 0.0

    def acquire(self, *, timeout: float) -> bool:
        """Return whether the lock was acquired within `timeout` seconds."""
        deadline = monotonic() + timeout
        if not self._lock.acquire(timeout=timeout):
            return False
        while (now := monotonic()) >= self._ignored_until:
            try:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):  # POSIX allows EAGAIN and EACCES
                self._held_since = self._held_since or now
                if now < deadline:
                    sleep(_PAUSE)
                elif now - self._held_since > _MAX_HELD:
                    self._ignored_until = now + _IGNORE
                else:
                    self._lock.release()
                    return False
            else:
                self._held_since = None
                break
        return True

    def release(self) -> None:
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN)  # without effect if it was ignored
        self._lock.release()
