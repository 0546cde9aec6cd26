"""Keep the paths of a call below a directory of this machine, symbolic links included."""

from __future__ import annotations

import os
from pathlib import Path

from ..run.jail import Outside, PathJail
from ..run.pending import PolicyCheck
from ..run.values import format_value

__all__ = ["disk_jail"]


def disk_jail(argument: str, root: str) -> PolicyCheck:
    """Keep an argument below `root` like `path_jail`, but follow symbolic links: the tool receives the real path.

    The links are followed when the call is checked, before each attempt to run it. A process that changes directories
    below `root` between the check and the use can still escape: preventing that takes `openat2` or a sandbox around
    the tool.
    """
    return _DiskJail(argument, root)


class _DiskJail(PathJail):
    """A `PathJail` that resolves paths on the disk of this machine."""

    def _absolute_root(self, root: str) -> str:
        return os.path.realpath(root)

    def _resolve(self, path: str) -> str:
        """Return the real path. Raise Outside if it is not below the root."""
        try:
            real = os.path.realpath(Path(self.root, path))
        except ValueError as error:  # characters that are invalid in a file name
            raise Outside(f"{format_value(path)} is not a plain path") from error
        if not _is_below(real, self.root):
            raise Outside(f"{format_value(path)} resolves to a path outside the directory")
        return real

    def _is_absolute(self, path: str) -> bool:
        return Path(path).is_absolute()

    def _is_foreign(self, path: str) -> bool:
        return os.sep == "/" and super()._is_foreign(path)


def _is_below(path: str, root: str) -> bool:
    try:
        return os.path.commonpath((root, path)) == root
    except ValueError:  # another drive
        return False
