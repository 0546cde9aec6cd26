"""Restrict this process and everything that it starts with Landlock (Linux 5.13 and later, no privileges needed).

Writes are possible below the given folders only, reads stay free. The kernel applies the restriction, so that native code
and child processes are covered, too. It cannot be removed again. Landlock does not cover changes of metadata (chmod, chown,
times), UDP, and sockets that have a path.

`python landlock.py FOLDER… -- COMMAND` executes a command with the restriction of files only. The file
imports nothing of the package, because that command has an environment of its own.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # system calls (landlock(7)), the same on all architectures
_VERSION_FLAG = 1  # LANDLOCK_CREATE_RULESET_VERSION
_PATH_BENEATH = 1  # LANDLOCK_RULE_PATH_BENEATH
_NO_NEW_PRIVILEGES = 38  # PR_SET_NO_NEW_PRIVS (prctl(2))

# Access rights of files (linux/landlock.h) that change something. Version 1 has writing (bit 1), removing (4 and 5) and
# making files of each kind (6 to 12).
_WRITE_FILE, _REMOVE_FILE, _MAKE_REG = 1 << 1, 1 << 5, 1 << 8
_FIRST_VERSION = _WRITE_FILE | sum(1 << bit for bit in range(4, 13))
_REFER, _TRUNCATE = 1 << 13, 1 << 14  # versions 2 and 3
_BIND_TCP, _CONNECT_TCP = 1 << 0, 1 << 1  # version 4
_SCOPE_ABSTRACT_SOCKET, _SCOPE_SIGNAL = 1 << 0, 1 << 1  # version 6

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty")
_SEMAPHORES = "/dev/shm"  # noqa: S108  # locks of multiprocessing and thread pools are files there


def landlock_version() -> int:
    """Return the version of the Landlock interface of this system; 0 if there is none."""
    if sys.platform != "linux":
        return 0
    try:
        return max(0, _system_call(_CREATE_RULESET, None, 0, _VERSION_FLAG))
    except OSError:
        return 0


def restrict_process(writable: Sequence[str], *, allow_network: bool) -> None:
    """Restrict this thread and all threads and processes that it starts.

    Signals to other processes are denied, and TCP connections unless `allow_network`, where the kernel supports it
    (versions 6 and 4). Raise OSError if the restriction cannot be applied.
    """
    version = landlock_version()
    if not version:
        raise OSError("this system has no Landlock")
    rights = _FIRST_VERSION | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    network = _BIND_TCP | _CONNECT_TCP if version >= 4 and not allow_network else 0
    scopes = _SCOPE_SIGNAL | (0 if allow_network else _SCOPE_ABSTRACT_SOCKET) if version >= 6 else 0
    attributes = struct.pack("=QQQ", rights, network, scopes)  # struct landlock_ruleset_attr
    ruleset = _system_call(_CREATE_RULESET, attributes, len(attributes), 0)
    try:
        for folder in writable:
            _allow(ruleset, folder, rights)
        for device in _DEVICES:
            _allow(ruleset, device, rights & (_WRITE_FILE | _TRUNCATE))
        _allow(ruleset, _SEMAPHORES, rights & (_WRITE_FILE | _TRUNCATE | _MAKE_REG | _REMOVE_FILE))
        _no_new_privileges()
        _system_call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    """Add a rule for a folder to a Landlock ruleset; a path that does not exist is skipped."""
    if not Path(path).exists():
        return
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC) if sys.platform == "linux" else -1
    try:
        rule = struct.pack("=Qi", rights, descriptor)  # struct landlock_path_beneath_attr
        _system_call(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(descriptor)


def _no_new_privileges() -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_NO_NEW_PRIVILEGES, ctypes.c_ulong(1), *[ctypes.c_ulong(0)] * 3):
        raise OSError(ctypes.get_errno(), "prctl")


def _system_call(number: int, *arguments: bytes | int | None) -> int:
    """Make a system call that the C library has no function for. Raises `OSError` if it fails."""
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    words = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    result = int(library.syscall(ctypes.c_long(number), *words))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"Landlock: {os.strerror(code)}")
    return result


def _execute(arguments: list[str]) -> None:
    position = arguments.index("--")
    restrict_process(arguments[:position], allow_network=True)
    command = arguments[position + 1 :]
    try:
        os.execvp(command[0], command)  # noqa: S606  # the command that the user gave
    except OSError as error:
        sys.exit(f"cannot start {command[0]}: {error.strerror}")


if __name__ == "__main__":
    _execute(sys.argv[1:])
