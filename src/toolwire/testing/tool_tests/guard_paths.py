"""Resolve the paths of audit events: relative to a folder descriptor, through symbolic links, or given by a descriptor.

Separate because the hook and the functions with added events share it. It runs for every event, so it uses os.path,
which is faster than pathlib.
"""

# ruff: noqa: PTH109, PTH115, PTH118, PTH119, PTH120
from __future__ import annotations

import os
import sys
from typing import Any
from urllib.parse import unquote, urlsplit

__all__ = ["database_path", "descriptor_path", "is_below", "resolve_path"]

_MAX_PATH = 1024


def descriptor_path(descriptor: int) -> str:
    """Return the path of an open file; a text that is no absolute path for a pipe or a socket."""
    if sys.platform == "darwin":
        import fcntl

        return os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(_MAX_PATH)).rstrip(b"\x00"))
    return os.readlink(f"/proc/self/fd/{descriptor}")


def resolve_path(path: Any, folder: object = None, *, follow: bool = True) -> str:
    """Return the absolute path without symbolic links. Raise OSError if it cannot be resolved.

    `folder`: the descriptor of the folder of a relative path; -1 or None for the working folder. Without `follow` the last
    part is kept, because removing or renaming a link does not change its target.
    """
    if isinstance(path, int):
        return descriptor_path(path)
    base = descriptor_path(folder) if isinstance(folder, int) and folder >= 0 else os.getcwd()
    full = os.path.join(base, os.fsdecode(path))
    name = os.path.basename(full)
    if follow or name in ("", ".", ".."):
        return os.path.realpath(full)
    return os.path.join(os.path.realpath(os.path.dirname(full)), name)


def is_below(path: str, folder: str) -> bool:
    """Return True for a folder and everything in it."""
    return path == folder or path.startswith(folder + os.sep)


def database_path(database: Any) -> str | None:
    """Return the file that `sqlite3.connect` may create or write; None for a database in memory or opened read-only."""
    text = os.fsdecode(database)
    if text in ("", ":memory:"):
        return None
    if not text.startswith("file:"):
        return text
    parts = urlsplit(text)
    options = parts.query.split("&")
    is_read_only = any(option in ("mode=ro", "mode=memory", "immutable=1") for option in options)
    path = unquote(parts.path)
    return None if is_read_only or path in ("", ":memory:") else path
