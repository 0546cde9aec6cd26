"""A command of this machine: its words, options and operands, and the file of its program.

Programs are searched in the folders of PATH, and in the folders of the system.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from typing import Literal, TypeAlias

from ...ir.value import Value

OptionStyle: TypeAlias = Literal["flag", "attached", "separate", "optional"]
"""The form of the value of an option: none, `--name=VALUE`, `-n VALUE`, or `--name[=VALUE]`."""

COMMAND_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_OPTION_NAME = re.compile(r"[-+]{1,2}[A-Za-z0-9@#?][A-Za-z0-9_.+@#?-]{0,99}")
_OPERAND_NAME = re.compile(r"[a-z0-9_]{1,100}")
_NOT_IDENTIFIER = re.compile(r"[^A-Za-z0-9]+")


class CommandOption(Value, frozen=True):
    """An option with all its spellings, such as `-a` and `--all`. `placeholder`: the name of its value."""

    names: tuple[str, ...]
    style: OptionStyle = "flag"
    placeholder: str = ""
    description: str = ""
    choices: tuple[str, ...] = ()
    is_integer: bool = False
    repeats: bool = False

    @property
    def name(self) -> str:
        """The spelling that is passed: the first long one, if there is one."""
        return next((name for name in self.names if name.startswith("--")), self.names[0])


class Operand(Value, frozen=True):
    """A positional argument. `after_dashes`: the synopsis shows `--` before it. `prefix`: as in `+FORMAT`."""

    name: str
    is_required: bool = False
    repeats: bool = False
    after_dashes: bool = False
    prefix: str = ""


class SystemCommand(Value, frozen=True):
    """A command. `words`: the program and its subcommands, such as `docker` and `ps`.

    `is_summary`: the page at `source` has not been read for its options and operands.
    """

    words: tuple[str, ...]
    summary: str = ""
    description: str = ""
    options: tuple[CommandOption, ...] = ()
    operands: tuple[Operand, ...] = ()
    source: str = ""
    is_summary: bool = False

    @property
    def name(self) -> str:
        """The words as the user types them."""
        return " ".join(self.words)

    @property
    def is_valid(self) -> bool:
        """True if words and names consist of plain characters, none of which a shell or a terminal acts on.

        The catalogue drops other commands: names come from manuals and from its cache file, which other programs of the
        user can write.
        """
        names = [name for option in self.options for name in option.names]
        return (
            bool(self.words)
            and all(map(COMMAND_NAME.fullmatch, self.words))
            and all(option.names for option in self.options)
            and all(map(_OPTION_NAME.fullmatch, names))
            and all(_OPERAND_NAME.fullmatch(one.name) and one.prefix in ("", "+") for one in self.operands)
        )

    @property
    def tool_name(self) -> str:
        """The name of its tool, valid for all providers."""
        return _NOT_IDENTIFIER.sub("_", "_".join(self.words))[:64]


def property_name(text: str) -> str:
    """Return the name of a property for an option or operand: `--sort-by` is `sort_by`."""
    return _NOT_IDENTIFIER.sub("_", text.lstrip("-")).strip("_")


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
    return [part for part in environment.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(part)]  # noqa: PTH117  # called for each page; a Path takes ten times as long
