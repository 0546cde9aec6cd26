"""A lock for the worker processes of one gateway, which write lines to the same standard error.

Separate because only workers need it. A pipe accepts 4,096 bytes at once; longer lines of two processes would be mixed.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from threading import Lock, get_ident
from time import monotonic, sleep

__all__ = ["LineLock"]

_MAX_WAIT = 0.5  # seconds; writing a line takes microseconds, unless the reader of a pipe is slow
_PAUSE = 0.0001  # seconds between two tries
_IGNORE = 30.0  # seconds in which lines are written without the lock, so that not every line waits


class LineLock:
    """A context manager that excludes other processes with the same file, and other threads of this one.

    It waits half a second at most: a stopped process, or one that writes to a full pipe, may hold it for any time. Then lines
    may be mixed.
    """

    def __init__(self, file: Path) -> None:
        self._descriptor = os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        self._lock = Lock()
        self._owner: int | None = None  # the thread that holds both locks
        self._ignored_until = 0.0  # the lock was held for too long

    def __enter__(self) -> None:
        if monotonic() < self._ignored_until or not self._lock.acquire(timeout=_MAX_WAIT):
            return
        deadline = monotonic() + _MAX_WAIT
        while True:
            try:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):  # POSIX allows EAGAIN and EACCES
                if monotonic() < deadline:
                    sleep(_PAUSE)
                    continue
                self._ignored_until = monotonic() + _IGNORE
                self._lock.release()
                return
            self._owner = get_ident()
            return

    def __exit__(self, *_: object) -> None:
        if self._owner == get_ident():
            self._owner = None
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)
            self._lock.release()
