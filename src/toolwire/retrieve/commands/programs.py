"""Find the files of programs in the folders of PATH, and in the folders of the system."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from .command import COMMAND_NAME

__all__ = ["SYSTEM_FOLDERS", "find_program", "find_system_program", "program_folders"]

SYSTEM_FOLDERS = ("/usr/bin", "/bin", "/usr/sbin", "/sbin")
"""The folders of programs that run without a question. Folders of a user or of a project may precede them in PATH."""


def find_program(name: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the file of a program. Relative folders of PATH are ignored: the working folder may be hostile."""
    if COMMAND_NAME.fullmatch(name) is None:
        return None
    return shutil.which(name, path=os.pathsep.join(program_folders(environment)))


def find_system_program(name: str) -> str | None:
    """Return the file of a program in a folder of the system, whatever PATH contains."""
    return find_program(name, {"PATH": os.pathsep.join(SYSTEM_FOLDERS)})


def program_folders(environment: Mapping[str, str]) -> list[str]:
    """Return the absolute folders of PATH."""
    return [part for part in environment.get("PATH", os.defpath).split(os.pathsep) if part and Path(part).is_absolute()]
