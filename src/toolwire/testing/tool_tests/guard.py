"""An audit hook for the process that runs tools: record and deny writes, connections, processes and native libraries.

The hook protects against mistakes of a tool, not against malice: code in the same process can evade it, and native code
raises no audit events.
"""

# The hook runs for every event, so it uses os.path, which is faster than pathlib.
# ruff: noqa: PTH109, PTH118, PTH119, PTH120
from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from types import FrameType
from typing import Any, Literal

from .settings import AuditEvent

__all__ = ["AuditGuard", "DeniedOperation"]

_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_DEVICES = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})
_MAX_EVENTS = 50
_PATH_EVENTS: dict[str, tuple[int, ...]] = {
    "os.remove": (0,),
    "os.rename": (0, 1),
    "os.mkdir": (0,),
    "os.rmdir": (0,),
    "os.chmod": (0,),
    "os.chown": (0,),
    "os.link": (1,),
    "os.symlink": (1,),
    "os.truncate": (0,),
    "os.utime": (0,),
    "os.setxattr": (0,),
    "os.removexattr": (0,),
}
"""Events that change a file, with the positions of the changed paths."""
_PROCESS_EVENTS = frozenset(
    "subprocess.Popen os.system os.exec os.fork os.forkpty os.posix_spawn os.spawn pty.spawn webbrowser.open".split()
)
_LISTING_EVENTS = frozenset({"os.listdir", "os.scandir"})


class DeniedOperation(PermissionError):
    """An operation that tools under test must not perform."""


class AuditGuard:
    """The state of the hook. `phase` is "off" while our own code starts, then "import", then "call".

    Writes below `root` are allowed during the import, and during calls if `allow_writes`. `outside` is the folder of
    the canary: opening a file there is recorded as an escape.
    """

    def __init__(self, root: str, outside: str, *, allow_writes: bool, allow_hosts: Iterable[str]) -> None:
        self.phase: Literal["off", "import", "call"] = "off"
        self._root, self._outside = root, outside
        self._allow_writes = allow_writes
        self._addresses = _resolve_hosts(allow_hosts)
        self._events: list[AuditEvent] = []
        self._handlers: dict[str, Callable[[tuple[Any, ...]], None]] = {
            "open": self._on_open,
            "socket.connect": self._on_address,
            "socket.bind": self._on_address,
            "socket.sendto": self._on_address,
            "socket.sendmsg": self._on_address,
            "socket.getaddrinfo": self._on_lookup,
            "socket.gethostbyname": self._on_lookup,
            "socket.gethostbyaddr": self._on_lookup,
            "ctypes.dlopen": self._on_library,
            **{name: self._on_change(positions) for name, positions in _PATH_EVENTS.items()},
            **{name: self._on_process(name) for name in _PROCESS_EVENTS},
            **dict.fromkeys(_LISTING_EVENTS, self._on_listing),
        }

    def install(self) -> None:
        sys.addaudithook(self._hook)

    def take_events(self) -> tuple[AuditEvent, ...]:
        """Return the recorded events since the last call of this method, without duplicates."""
        events, self._events = self._events, []
        return tuple(dict.fromkeys(events))

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.phase != "off" and event in self._handlers:
            self._handlers[event](arguments)

    def _record(self, kind: Literal["write", "network", "process", "escape"], target: str) -> None:
        if len(self._events) < _MAX_EVENTS:
            self._events.append(AuditEvent(kind, target[:300]))

    def _deny(self, kind: Literal["write", "network", "process", "escape"], target: str) -> None:
        self._record(kind, target)
        raise DeniedOperation(f"toolwire test denies this operation: {kind} {target[:300]}")

    # files

    def _on_open(self, arguments: tuple[Any, ...]) -> None:
        path, mode, flags = (*arguments, None, None, None)[:3]
        if isinstance(path, int):
            return
        writes = (isinstance(mode, str) and not set(mode).isdisjoint("wax+")) or (
            isinstance(flags, int) and bool(flags & _WRITE_FLAGS)
        )
        full = _full_path(path)
        if self._is_outside(full):
            self._record("escape", full)
        if writes:
            self._check_write(full)

    def _on_change(self, positions: tuple[int, ...]) -> Callable[[tuple[Any, ...]], None]:
        def handle(arguments: tuple[Any, ...]) -> None:
            for position in positions:
                if position < len(arguments) and not isinstance(arguments[position], int):
                    self._check_write(_full_path(arguments[position]))

        return handle

    def _on_listing(self, arguments: tuple[Any, ...]) -> None:
        path = arguments[0] if arguments else None
        if isinstance(path, (str, bytes, os.PathLike)) and self._is_outside(_full_path(path)):
            self._record("escape", _full_path(path))

    def _is_outside(self, full: str) -> bool:
        """Return True for the folder of the canary, also through symbolic links and `..` of missing folders."""
        return self.phase == "call" and any(
            one == self._outside or one.startswith(self._outside + os.sep)
            for one in (os.path.normpath(full), os.path.realpath(full))
        )

    def _check_write(self, full: str) -> None:
        if full in _DEVICES:
            return
        resolved = os.path.join(os.path.realpath(os.path.dirname(full)), os.path.basename(full))
        is_inside = resolved.startswith(self._root + os.sep) and not self._is_outside(full)
        if not is_inside or (self.phase == "call" and not self._allow_writes):
            self._deny("write", full)

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
            command = next((one for one in arguments[:2] if one), "")
            text = " ".join(map(_as_text, command)) if isinstance(command, (list, tuple)) else _as_text(command)
            self._deny("process", f"{event} {text}".strip())

        return handle

    def _on_library(self, arguments: tuple[Any, ...]) -> None:
        """Deny a library that a call loads; modules that a call imports may load theirs."""
        name = arguments[0] if arguments else None
        if name is not None and self.phase == "call" and not _is_importing():
            self._deny("process", f"ctypes {_as_text(name)}")


def _full_path(path: Any) -> str:
    """Return an absolute path with its `..`, or "" for an object that is not a path."""
    try:
        return os.path.join(os.getcwd(), os.fsdecode(path))
    except (TypeError, ValueError, OSError):
        return ""


def _as_text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else str(value)


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
        try:
            for *_, address in socket.getaddrinfo(host, None):
                found[str(address[0])] = None
        except OSError:
            continue  # a name that cannot be resolved now; a connection by name is still allowed
    return found
