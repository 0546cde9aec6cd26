"""Raise audit events for functions of the standard library that have none, so that the hook sees their calls.

`os.open` has an event without the folder descriptor: a path relative to one is made absolute.
"""

# ruff: noqa: PTH118
from __future__ import annotations

import functools
import importlib
import os
import signal
import sqlite3
import sqlite3.dbapi2
import sys
from collections.abc import Callable
from typing import Any

from .guard_paths import descriptor_path

__all__ = ["add_audit_events"]


def add_audit_events() -> None:
    """Replace the functions in this process. Must be called before the tools are imported."""
    opened = functools.wraps(os.open)(_open_absolute(os.open))
    os.supports_dir_fd.add(opened)
    for module, name in (("os", "open"), ("posix", "open")):
        setattr(importlib.import_module(module), name, opened)
    for name in ("mkfifo", "mknod"):
        made = _audited(getattr(os, name), lambda path, *_, dir_fd=None, **__: ("os.mkfifo", path, dir_fd))
        os.supports_dir_fd.add(made)
        setattr(os, name, made)
    _audit_databases()
    _replace("_posixsubprocess", "fork_exec", lambda command, *_: ("multiprocessing.spawn", command))
    _replace("_posixshmem", "shm_open", lambda path, *_, **__: ("shm_open", f"/dev/shm{path}"))  # noqa: S108
    _replace("_posixshmem", "shm_unlink", lambda path, *_, **__: ("shm_unlink", f"/dev/shm{path}"))  # noqa: S108
    if hasattr(signal, "pidfd_send_signal"):
        _replace("signal", "pidfd_send_signal", lambda process, number, *_, **__: ("os.kill", process, number))


def _audit_databases() -> None:
    """Raise an event for every connected database: that of Python comes before the connection can be used."""
    connect = sqlite3.connect

    @functools.wraps(connect)
    def connected(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        sys.audit("sqlite3.connected", connection)
        return connection

    for module in (sqlite3, sqlite3.dbapi2):
        module.connect = connected  # type: ignore[attr-defined]


def _replace(module: str, name: str, describe: Callable[..., tuple[Any, ...]]) -> None:
    """Replace a function of a module that this platform may lack."""
    try:
        found = importlib.import_module(module)
    except ImportError:
        return
    setattr(found, name, _audited(getattr(found, name), describe))


def _audited(function: Callable[..., Any], describe: Callable[..., tuple[Any, ...]]) -> Callable[..., Any]:
    """Return the function with an event before every call. `describe` returns the event from the arguments."""

    @functools.wraps(function)
    def audited(*arguments: Any, **options: Any) -> Any:
        sys.audit(*describe(*arguments, **options))
        return function(*arguments, **options)

    return audited


def _open_absolute(function: Callable[..., int]) -> Callable[..., int]:
    def opened(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if dir_fd is None:
            return function(path, flags, mode)
        return function(os.path.join(descriptor_path(dir_fd), os.fsdecode(path)), flags, mode)

    return opened
