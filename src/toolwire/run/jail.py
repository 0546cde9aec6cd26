"""Keep the paths of a call below a directory.

A relative path names one file below the root and another in the working directory of the tool. Therefore the argument
is rewritten to an absolute path before it is checked, and the tool receives the path that was checked.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from ..ir.errors import ConfigError
from .pending import Pending
from .values import ABSENT, Uncheckable, argument_default, format_value, received, split_argument
from .verdicts import Deny

__all__ = ["Outside", "PathJail"]

_MAX_PATH_LENGTH = 4096  # characters of one path; PATH_MAX of Linux
# Every component of a path may cost a system call, so the total size of the paths of an argument is limited.
_MAX_PATHS = 1000
_MAX_TOTAL_LENGTH = 65536  # characters below the root
_URL = re.compile(r"file:|[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_DRIVE = re.compile(r"[a-z]:", re.IGNORECASE)


class Outside(Exception):
    """A path that is not accepted. The message is appended to "path must stay below /files; "."""


class PathJail:
    """A check on one argument of every tool that has it.

    `rewrite` makes the paths absolute. The check itself accepts only absolute paths below the root, so it is also
    safe without the rewrite.
    """

    def __init__(self, argument: str, root: str) -> None:
        self.argument = argument
        self.root = self._absolute_root(root)

    def rewrite(self, pending: Pending) -> Pending | Deny:
        """Return the call with absolute paths; the same object if they are absolute already."""
        name, *rest = split_argument(self.argument)
        argument_value = pending.arguments[name] if name in pending.arguments else _default(pending, name)
        try:
            self._refuse_many(list(_paths(argument_value, rest)))
            absolute = self._rewrite_value(argument_value, rest)
        except Outside as outside:
            return self._make_denial(outside)
        if absolute is argument_value or absolute == argument_value:
            return pending
        return replace(
            pending,
            arguments={**pending.arguments, name: absolute},
            steps=(*pending.steps, f"{self.argument}: made absolute below {self.root}"),
        )

    def __call__(self, pending: Pending) -> Deny | None:
        """Deny the call unless all paths that the tool will receive are absolute and below the root."""
        try:
            paths = [_path_text(value) for value in received(pending, self.argument)]
            self._refuse_many(paths)
            for path in paths:
                self._check(path)
        except Uncheckable as error:
            return Deny(f"{self.argument} must be a path, or a list of paths; {error}")
        except Outside as outside:
            return self._make_denial(outside)
        return None

    def _absolute_root(self, root: str) -> str:
        if not posixpath.isabs(root):
            hint = "pass an absolute POSIX path, or use toolwire.net.jail.disk_jail for any path of this machine"
            raise ConfigError(f"the root of path_jail must be absolute, got {root!r}", hint=hint)
        return posixpath.normpath(root)

    def _resolve(self, path: str) -> str:
        """Return the absolute path. Raise Outside if it is not below the root."""
        absolute = posixpath.normpath(posixpath.join(self.root, path))
        if absolute != self.root and not absolute.startswith(self.root.rstrip("/") + "/"):
            raise Outside(f"{format_value(path)} does not")
        return absolute

    def _is_absolute(self, path: str) -> bool:
        return posixpath.isabs(path)

    def _is_foreign(self, path: str) -> bool:
        """Return True for drive letters and backslashes, which mean something else on another system."""
        return _DRIVE.match(path) is not None or "\\" in path

    def _refuse_unusual(self, path: str) -> None:
        if len(path) > _MAX_PATH_LENGTH:
            raise Outside(f"a path may have at most {_MAX_PATH_LENGTH} characters, got {len(path)}")
        if "\x00" in path or path.startswith("~") or _URL.match(path) or self._is_foreign(path):
            raise Outside(f"{format_value(path)} is not a plain path")

    def _refuse_many(self, paths: Sequence[str]) -> None:
        if len(paths) > _MAX_PATHS:
            raise Outside(f"{len(paths)} paths are more than {_MAX_PATHS}; pass fewer at a time")
        size = sum(len(path.removeprefix(self.root)) for path in paths)
        if size > _MAX_TOTAL_LENGTH:
            raise Outside(f"{size} characters of paths are more than {_MAX_TOTAL_LENGTH}; pass fewer at a time")

    def _check(self, path: str) -> None:
        self._refuse_unusual(path)
        if not self._is_absolute(path) or ".." in re.split(r"[/\\]", path):
            raise Outside(f"{format_value(path)} is not an absolute path without '..'")
        self._resolve(path)

    def _rewrite_value(self, value: Any, rest: Sequence[str]) -> Any:
        """Make every path in `value` absolute. Leave anything else unchanged; the check refuses it."""
        if isinstance(value, list):
            return [self._rewrite_value(item, rest) for item in value]
        if rest:
            if not isinstance(value, dict) or rest[0] not in value:
                return value
            return {**value, rest[0]: self._rewrite_value(value[rest[0]], rest[1:])}
        if not isinstance(value, str):
            return value
        self._refuse_unusual(value)
        return self._resolve(value)

    def _make_denial(self, outside: Outside) -> Deny:
        return Deny(f"{self.argument} must stay below {self.root}; {outside}")


def _default(pending: Pending, name: str) -> Any:
    """Return the default of an omitted argument as JSON; ABSENT if the schema does not declare it."""
    properties = (pending.tool.tool.input_schema or {}).get("properties")
    if not isinstance(properties, dict) or name not in properties:
        return ABSENT
    default = argument_default(pending, name)
    if isinstance(default, (list, tuple)):
        return [_as_json(item) for item in default]
    return _as_json(default)


def _as_json(value: Any) -> Any:
    return value.__fspath__() if hasattr(value, "__fspath__") else value


def _paths(value: Any, rest: Sequence[str]) -> Iterator[str]:
    """Iterate over the paths of an argument that is still JSON."""
    if isinstance(value, list):
        for item in value:
            yield from _paths(item, rest)
    elif rest:
        if isinstance(value, dict) and rest[0] in value:
            yield from _paths(value[rest[0]], rest[1:])
    elif isinstance(value, str):
        yield value


def _path_text(value: Any) -> str:
    """Return a path, text or a path object, as text."""
    text = _as_json(value)
    if not isinstance(text, str):
        raise Uncheckable(f"got {format_value(value)}")
    return str.__str__(text)  # the plain text, also for an enum that derives from str
