"""Let one process at a time change a file. Separate because the order of its system calls is the whole point."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["lock_file"]


@contextmanager
def lock_file(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of a file, which need not exist. If another process has it, call `on_wait` and wait.

    The lock is a file beside it, which is removed at the end. It has no effect without fcntl, as on Windows.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    path = Path(os.path.realpath(path))
    name = path.with_name(f".{path.name}.lock")
    descriptor = -1
    while descriptor < 0:
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait()
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            is_current = os.fstat(descriptor).st_nlink > 0  # 0: its holder removed it before it was locked here
        except BaseException:
            os.close(descriptor)
            raise
        if not is_current:
            os.close(descriptor)
            descriptor = -1
    try:
        yield
    finally:
        with suppress(OSError):
            name.unlink()
        os.close(descriptor)
