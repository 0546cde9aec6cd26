"""Replace a file as a whole. Separate because this is the only code that must survive a kill at every instruction.

The new content is written under a temporary name in the same folder, flushed to the disk, and renamed. A reader opens
the old or the new file; a process that has the old one open keeps it. A temporary file that a killed process left is
removed by the next writer; a lock distinguishes a file in use from an abandoned one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

__all__ = ["replace_file"]

_ATTEMPTS = 100


@contextmanager
def replace_file(path: Path) -> Iterator[BinaryIO]:
    """Return a file to write the new content to. On success, it replaces the file at `path`."""
    path = Path(os.path.realpath(path))  # a link stays a link
    _remove_abandoned(path)
    file = _create_temporary(path)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            with suppress(OSError):  # another owner's file, or none
                os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
            os.replace(file.name, path)  # noqa: PTH105 - `file.name` is a string
    except BaseException:
        with suppress(OSError):
            os.unlink(file.name)  # noqa: PTH108 - as above
        raise
    _sync_folder(path.parent)


def _create_temporary(path: Path) -> BinaryIO:
    for _ in range(_ATTEMPTS):
        name = path.with_name(f".{path.name}.{token_hex(6)}.new")
        with suppress(FileExistsError):
            file = name.open("x+b")
            if _lock(file) is not False and os.fstat(file.fileno()).st_nlink:  # 0: removed as abandoned before the lock
                return file
            file.close()
    raise OSError(f"cannot create a temporary file beside {path}")


def _remove_abandoned(path: Path) -> None:
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{12}}\.new")
    with suppress(OSError):
        for name in os.listdir(path.parent):  # noqa: PTH208 - names are enough
            if pattern.fullmatch(name):
                with suppress(OSError), (path.parent / name).open("rb") as file:
                    if _lock(file):
                        (path.parent / name).unlink()


def _lock(file: BinaryIO) -> bool | None:
    """Lock an open file without waiting; the lock ends with the process. Return None where locks are not supported."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _sync_folder(folder: Path) -> None:
    """Write the new name to the disk."""
    with suppress(OSError):  # not supported by every system
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
