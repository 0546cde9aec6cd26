"""A lock for the worker processes of one gateway, which write lines to the same standard error.

Separate because only workers need it. A pipe accepts 4,096 bytes at once; longer lines of two processes would be mixed.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from threading import Lock

__all__ = ["LineLock"]


class LineLock:
    """A context manager that excludes other processes with the same file, and other threads of this one."""

    def __init__(self, file: Path) -> None:
        self._descriptor = os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        self._lock = Lock()

    def __enter__(self) -> None:
        self._lock.acquire()
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN)
        self._lock.release()
