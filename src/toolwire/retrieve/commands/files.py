"""Read and write files of folders that are not trusted: only regular files up to a size are read.

A cache is trusted only if its folder and file belong to this user and no other user can write them.
"""

from __future__ import annotations

import os
import secrets
import stat
import sys
import zlib
from contextlib import suppress
from pathlib import Path

MAX_FILE = 1_000_000  # the longest pages, such as bash(1), have less than half of it; also stops decompression bombs
"""Bytes of a page, also after decompression."""

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


def read_page(path: Path) -> bytes:
    """Read a regular file, decompressed if it is gzip. Raise ValueError for one beyond MAX_FILE or for a device."""
    data = read_regular(path, MAX_FILE)
    if path.suffix == ".gz":
        data = zlib.decompressobj(wbits=31).decompress(data, MAX_FILE + 1)  # the first member
        if len(data) > MAX_FILE:
            raise ValueError(f"{path} is larger than {MAX_FILE} bytes")
    return data


def read_regular(path: Path, limit: int, *, is_private: bool = False) -> bytes:
    """Return the content of a file, which is checked after it is opened: a path can change in between.

    Raises `ValueError` for a special or large file, and `PermissionError` if `is_private` and others can write it.
    """
    descriptor = os.open(path, _FLAGS | (_NO_LINK if is_private else 0))
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            raise ValueError(f"{path} is not a regular file of at most {limit} bytes")
        if is_private and not _is_private(status):
            raise PermissionError(f"{path} belongs to another user, or others can write it")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"{path} is larger than {limit} bytes")
    return data


def _is_private(status: os.stat_result) -> bool:
    if sys.platform == "win32":
        return True
    is_own = status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return is_own and (stat.S_ISDIR(status.st_mode) or status.st_nlink == 1)


def is_private_file(path: Path) -> bool:
    """Return True for a regular file of this user that no other user can write."""
    status = path.lstat()
    return stat.S_ISREG(status.st_mode) and _is_private(status)


def open_private_folder(folder: Path) -> bool:
    """Create a folder that only this user can use, or restrict its mode.

    Returns False if it is a link, belongs to another user or cannot be created.
    """
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode):
            return False
        if sys.platform == "win32":
            return True
        if status.st_uid != os.geteuid():
            return False
        if stat.S_IMODE(status.st_mode) != 0o700:
            folder.chmod(0o700)
        return True
    return False


def read_private(path: Path, limit: int) -> bytes:
    """Read a file of a private folder. Raise OSError or ValueError for a foreign, shared, linked or large file."""
    if not open_private_folder(path.parent):
        raise PermissionError(f"{path.parent} is not a private folder")
    return read_regular(path, limit, is_private=True)


def write_private(path: Path, data: bytes) -> None:
    """Replace a file of a private folder in one step.

    Errors are ignored: without the cache, the next start only takes longer.
    """
    if not open_private_folder(path.parent):
        return
    new = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    with suppress(OSError):
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK | getattr(os, "O_BINARY", 0), 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        new.replace(path)
