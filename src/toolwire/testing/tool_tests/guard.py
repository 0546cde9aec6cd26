"""An audit hook for the process that runs tools: record and deny writes, connections, processes and native libraries.

Functions of the standard library without an audit event get an event here.
"""

# ruff: noqa: PTH109, PTH115, PTH118, PTH119, PTH120  # os.path, because the hook runs for every event

from __future__ import annotations

import functools
import importlib
import os
import signal
import socket
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

from .settings import AuditEvent, AuditKind

# Resolve the paths of audit events: relative to a folder descriptor, through symbolic links, or given by a
# descriptor.


_MAX_PATH = 1024  # MAXPATHLEN of macOS, the size of the buffer of F_GETPATH (fcntl(2))


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


# Raise audit events for functions of the standard library that have none, so that the hook sees their calls.
#
# `os.open` has an event without the folder descriptor: a path relative to one is made absolute.


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
    """Raise an event for every connected database, because Python's own event comes before the connection can be used."""
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


# The hook protects against mistakes of a tool, not against malice: code in the same process can evade it, and native
# code raises no audit events. Landlock (landlock.py) is the protection of files; the hook names the operations.


_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_DEVICES = frozenset({"/dev/null", "/dev/zero", "/dev/full", "/dev/stdout", "/dev/stderr", "/dev/tty"})
_MAX_EVENTS = 50  # of a call; each kind is reported once
_MAX_TARGET = 300  # characters of a path or command in a message


class _ChangedPath(NamedTuple):
    """The position of a changed path in the arguments of an event, and the position of its folder descriptor."""

    position: int
    folder: int | None = None
    follow: bool = False


_PATH_EVENTS: dict[str, tuple[_ChangedPath, ...]] = {
    "os.remove": (_ChangedPath(0, 1),),
    "os.rmdir": (_ChangedPath(0, 1),),
    "os.mkdir": (_ChangedPath(0, 2),),
    "os.mkfifo": (_ChangedPath(0, 1),),
    "os.rename": (_ChangedPath(0, 2), _ChangedPath(1, 3)),
    "os.link": (_ChangedPath(0, 2, follow=True), _ChangedPath(1, 3)),
    "os.symlink": (_ChangedPath(1, 2),),
    "os.chmod": (_ChangedPath(0, 2, follow=True),),
    "os.chown": (_ChangedPath(0, 3, follow=True),),
    "os.utime": (_ChangedPath(0, 3, follow=True),),
    "os.truncate": (_ChangedPath(0, follow=True),),
    "os.setxattr": (_ChangedPath(0, follow=True),),
    "os.removexattr": (_ChangedPath(0, follow=True),),
    "shutil.rmtree": (_ChangedPath(0, 1),),
    "shm_open": (_ChangedPath(0),),
    "shm_unlink": (_ChangedPath(0),),
}
"""Events that change a file."""
_PROCESS_EVENTS = frozenset(
    "subprocess.Popen os.system os.exec os.fork os.forkpty os.posix_spawn os.spawn pty.spawn webbrowser.open"
    " multiprocessing.spawn".split()
)
_SIGNAL_EVENTS = {"os.kill": "process", "os.killpg": "process group", "signal.pthread_kill": "thread"}
_LISTING_EVENTS = frozenset({"os.listdir", "os.scandir"})
_NATIVE_FUNCTIONS = frozenset(
    "system popen fork vfork execve execv execvp posix_spawn posix_spawnp kill killpg syscall unlink rename rmdir".split()
)
"""Functions of the C library that change files or processes."""
_DENIAL = "Permission denied"  # the text of the C library for an operation that the kernel denies
_RUST_DENIAL = f"{_DENIAL} (os error 13)"


class DeniedOperation(PermissionError):
    """An operation that tools under test must not perform."""


class AuditGuard:
    """The state of the hook. `phase` is "off" while our own code starts, then "import", then "call".

    Writes below `folders` are allowed during the import, and during calls if `allow_writes`; otherwise only below `temp`.
    `outside` is the folder of the canary: opening a file there is recorded as an escape. `denials` counts the denied
    operations.
    """

    def __init__(
        self, folders: Sequence[str], temp: str, outside: str, *, allow_writes: bool, allow_hosts: Iterable[str]
    ) -> None:
        """Prepare a handler per audit event.

        During calls, only `temp` may be written unless `allow_writes`; `outside` must never be touched.
        """
        self.phase: Literal["off", "import", "call"] = "off"
        self.denials = 0
        self._outside = outside
        self._folders = tuple(folders)
        self._folders_of_calls = self._folders if allow_writes else (temp,)
        self._thread = threading.local()
        self._addresses = _resolve_hosts(allow_hosts)
        self._events: list[AuditEvent] = []
        self._handlers: dict[str, Callable[[tuple[Any, ...]], None]] = {
            "open": self._on_open,
            **{f"socket.{name}": self._on_address for name in ("connect", "bind", "sendto", "sendmsg")},
            **{f"socket.{name}": self._on_lookup for name in ("getaddrinfo", "gethostbyname", "gethostbyaddr")},
            "socket.getnameinfo": lambda arguments: self._on_lookup(arguments[0]),
            "ctypes.dlopen": self._on_library,
            "ctypes.dlsym": self._on_native_function,
            "sqlite3.connect": self._on_database,
            "sqlite3.connected": self._on_connected_database,
            **{name: self._on_change(paths) for name, paths in _PATH_EVENTS.items()},
            **{name: self._on_signal(kind) for name, kind in _SIGNAL_EVENTS.items()},
            **{name: self._on_process(name) for name in _PROCESS_EVENTS},
            **dict.fromkeys(_LISTING_EVENTS, self._on_listing),
        }

    def install(self) -> None:
        add_audit_events()
        sys.addaudithook(self._hook)

    def take_events(self) -> tuple[AuditEvent, ...]:
        """Return the recorded events since the last call of this method, without duplicates."""
        events, self._events = self._events, []
        return tuple(dict.fromkeys(events))

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.phase != "off" and event in self._handlers:
            self._handlers[event](arguments)

    def _record(self, kind: AuditKind, target: str) -> None:
        if len(self._events) < _MAX_EVENTS:
            self._events.append(AuditEvent(kind, target[:_MAX_TARGET]))

    def _deny(self, kind: AuditKind, target: str) -> None:
        """Record and count an operation, and raise DeniedOperation."""
        self.denials += 1
        self._record(kind, target)
        text = target if kind == "process" else f"{kind} {target}"
        raise DeniedOperation(f"toolwire test denies this operation: {text[:_MAX_TARGET]}")

    def note_error(self, error: BaseException) -> None:
        """Record and count an operation of native code that the kernel or a database has denied, by its exception."""
        text = str(error)
        if isinstance(error, sqlite3.OperationalError) and "readonly database" in text:
            self.denials += 1
            self._record("write", "a database")
            return
        is_connection = "connect" in text.lower()
        # an OSError names a path, which may contain "connect"
        if _RUST_DENIAL in text or (_DENIAL in text and is_connection and not isinstance(error, OSError)):
            self.denials += 1
            self._record("network" if is_connection else "write", f"something in native code: {text}")

    # files

    def _on_open(self, arguments: tuple[Any, ...]) -> None:
        """Record an access outside, and deny writing outside the permitted folders."""
        path, mode, flags = (*arguments, None, None, None)[:3]
        if isinstance(path, int):
            return
        writes = (isinstance(mode, str) and not set(mode).isdisjoint("wax+")) or (
            isinstance(flags, int) and bool(flags & _WRITE_FLAGS)
        )
        full = _full_path(path)
        if self._is_outside(full):
            self._record("escape", full)
        if writes and full not in _DEVICES:
            self._check_write(path, None, follow=True)

    def _on_change(self, paths: tuple[_ChangedPath, ...]) -> Callable[[tuple[Any, ...]], None]:
        def handle(arguments: tuple[Any, ...]) -> None:
            for changed in paths:
                folder = None if changed.folder is None else (*arguments, *[None] * 4)[changed.folder]
                self._check_write(arguments[changed.position], folder, follow=changed.follow)

        return handle

    def _on_database(self, arguments: tuple[Any, ...]) -> None:
        """Deny a new database; one that exists may be read (`_on_connected_database`)."""
        self._thread.reads_only = False
        try:
            path = database_path(arguments[0])
        except TypeError:
            return  # not a path; connecting fails
        if path is None or self._forbidden_path(path, None, follow=True) is None:
            return
        if not os.path.exists(path):  # noqa: PTH110
            self._deny("write", _full_path(path))
        self._thread.reads_only = True

    def _on_connected_database(self, arguments: tuple[Any, ...]) -> None:
        if getattr(self._thread, "reads_only", False):
            self._thread.reads_only = False
            sqlite3.Connection.execute(arguments[0], "PRAGMA query_only = 1")

    def _on_listing(self, arguments: tuple[Any, ...]) -> None:
        path = arguments[0] if arguments else None
        if isinstance(path, (str, bytes, os.PathLike)) and self._is_outside(_full_path(path)):
            self._record("escape", _full_path(path))

    def _is_outside(self, full: str) -> bool:
        """Return True for the folder of the canary, also through symbolic links and `..` of missing folders."""
        paths = (os.path.normpath(full), os.path.realpath(full))
        return self.phase == "call" and any(is_below(path, self._outside) for path in paths)

    def _check_write(self, path: Any, folder: object, *, follow: bool) -> None:
        forbidden = self._forbidden_path(path, folder, follow=follow)
        if forbidden is not None:
            self._deny("write", forbidden)

    def _forbidden_path(self, path: Any, folder: object, *, follow: bool) -> str | None:
        """Return the resolved path if it must not be written, else None."""
        try:
            resolved = resolve_path(path, folder, follow=follow)
        except OSError:
            return f"{_as_text(path)} in a folder that cannot be resolved"
        except (TypeError, ValueError):
            return None  # not a path; the operation itself fails
        if not os.path.isabs(resolved) or resolved.startswith("/memfd:") or resolved in _DEVICES:  # noqa: PTH117
            return None  # a pipe, a socket or a device
        allowed = self._folders_of_calls if self.phase == "call" else self._folders
        return None if any(is_below(resolved, folder) for folder in allowed) else resolved

    # network, processes, libraries

    def _on_address(self, arguments: tuple[Any, ...]) -> None:
        address = arguments[1] if len(arguments) > 1 else None
        host = address[0] if isinstance(address, tuple) and address else address
        if not isinstance(host, str) or host not in self._addresses:
            port = f":{address[1]}" if isinstance(address, tuple) and len(address) > 1 else ""
            self._deny("network", f"{_as_text(host)}{port}")

    def _on_lookup(self, arguments: tuple[Any, ...]) -> None:
        host = _as_text(arguments[0]) if arguments else ""
        if host not in self._addresses:
            self._deny("network", host)

    def _on_process(self, event: str) -> Callable[[tuple[Any, ...]], None]:
        def handle(arguments: tuple[Any, ...]) -> None:
            command = next((given for given in arguments[:2] if given), "")
            text = " ".join(map(_as_text, command)) if isinstance(command, (list, tuple)) else _as_text(command)
            self._deny("process", f"starts a process: {text or event}")

        return handle

    def _on_signal(self, kind: str) -> Callable[[tuple[Any, ...]], None]:
        def handle(arguments: tuple[Any, ...]) -> None:
            target, number = arguments[:2]
            if number:  # 0 only asks whether the process exists
                self._deny("process", f"sends signal {int(number)} to {kind} {target}")

        return handle

    def _on_library(self, arguments: tuple[Any, ...]) -> None:
        """Deny a library that a call loads; modules that a call imports may load theirs."""
        name = arguments[0] if arguments else None
        if self.phase == "call" and not _is_importing():
            self._deny("process", f"loads a native library: {'the C library' if name is None else _as_text(name)}")

    def _on_native_function(self, arguments: tuple[Any, ...]) -> None:
        name = _as_text(arguments[1]) if len(arguments) > 1 else ""
        if name in _NATIVE_FUNCTIONS and self.phase == "call" and not _is_importing():
            self._deny("process", f"calls a native function: {name}")


def _full_path(path: Any) -> str:
    """Return an absolute path with its `..`, or "" for an object that is not a path."""
    try:
        return os.path.join(os.getcwd(), os.fsdecode(path))
    except (TypeError, ValueError, OSError):
        return ""


def _as_text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _is_importing() -> bool:
    """Return True if an import statement is being executed in this thread."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == "importlib._bootstrap":
            return True
        frame = frame.f_back
    return False


def _resolve_hosts(hosts: Iterable[str]) -> Mapping[str, None]:
    """Return the names and addresses of the allowed hosts. They are resolved before any tool runs."""
    found: dict[str, None] = {}
    for host in hosts:
        found[host] = None
        with suppress(OSError):  # a name that cannot be resolved now; a connection by name is still allowed
            found |= {str(address[0]): None for *_, address in socket.getaddrinfo(host, None)}
    return found
