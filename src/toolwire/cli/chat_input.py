'''Read the prompts of a chat: one line, or several.

On a terminal, a prompt of several lines is pasted, or written between """ and """, or with a backslash at the end of each
line but the last. Tab completes commands and file names. In a pipe, every line is a prompt.
'''

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from .line_editor import LineHistory, edit_line, replace_invalid, set_completer, state_folder
from .show import paint

__all__ = ["ChatInput", "find_attachments"]

_QUOTES = '"""'
_MAX_PROMPT = 1_000_000  # characters
_MAX_MATCHES = 200
_ATTACHED = re.compile(r'(?:^|(?<=\s))@(?:"([^"\n]+)"|(\S+))')
_MARKERS = re.compile(r"(\x1b\[[\d;]*m)")


class ChatInput:
    """The prompts of a chat. `commands`: the names to complete, such as `/tools`."""

    def __init__(self, commands: Iterable[str]) -> None:
        self.is_terminal = sys.stdin.isatty()
        self._commands = sorted(commands)
        self._history: LineHistory | None = None
        if self.is_terminal:
            with suppress(OSError):  # a home that cannot be written: no history
                self._history = LineHistory(state_folder() / "chat_history")
                self._history.load()
            set_completer(self._complete)

    def read(self) -> str | None:
        """Return the next prompt; None at the end of the input. Raises KeyboardInterrupt for Ctrl-C on a terminal."""
        if not self.is_terminal:
            line = sys.stdin.readline()
            return replace_invalid(line.removesuffix("\n")) if line else None
        try:
            text = self._read_lines()
        except EOFError:
            print(file=sys.stderr)
            return None
        if self._history is not None:
            self._history.add(text)
        return replace_invalid(text)

    def _read_lines(self) -> str:
        line = edit_line(_prompt("> "))
        if line.lstrip().startswith(_QUOTES):
            return self._read_block(line.lstrip().removeprefix(_QUOTES))
        lines = [line]
        while lines[-1].endswith("\\") and sum(map(len, lines)) < _MAX_PROMPT:
            lines[-1] = lines[-1].removesuffix("\\")
            lines.append(edit_line(_prompt(". ")))
        return "\n".join(lines)

    def _read_block(self, first: str) -> str:
        """Read lines up to one that ends with three quotes; the end of the input ends the block, too."""
        lines, size = [], 0
        line = first
        while not line.rstrip().endswith(_QUOTES) and size < _MAX_PROMPT:
            lines.append(line)
            size += len(line)
            try:
                line = edit_line(_prompt(". "))
            except EOFError:
                line = _QUOTES
        lines.append(line.rstrip().removesuffix(_QUOTES))
        return "\n".join(lines).strip("\n")

    def _complete(self, line: str, word: str) -> list[str]:
        """Complete a command at the start of a line, and a file name after `@` or a command."""
        if line.startswith("/") and " " not in line:
            return [f"{name} " for name in self._commands if name.startswith(word)]
        if word.startswith("@"):
            return [f"@{name}" for name in _matching_files(word[1:])]
        return _matching_files(word) if line.startswith("/") else []


def find_attachments(text: str) -> list[Path]:
    """Return the existing files that a prompt names as `@path`, or `@"path with spaces"`.

    Anything else after @ is text: an address, a user name. Text that was pasted may name a file that its author wants to
    read: prompts of several lines attach nothing, and hidden files need /attach.
    """
    if "\n" in text:
        return []
    found: dict[Path, None] = {}
    for quoted, plain in _ATTACHED.findall(text[:_MAX_PROMPT]):
        for name in (quoted,) if quoted else (plain, plain.rstrip(".,;:!?)")):
            path = Path(name).expanduser()
            if name and not _is_hidden(path) and _is_file(path):
                found[path] = None
                break
    return list(found)


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") and part not in (".", "..") for part in path.parts)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, or has a null character
        return False


def _matching_files(start: str) -> list[str]:
    """Return the paths that begin with `start`, in its own form; folders end with a slash."""
    folder, slash, name = start.rpartition("/")
    parent = Path(f"{folder}{slash}" or ".").expanduser()
    try:
        entries = sorted(entry for entry in parent.iterdir() if entry.name.startswith(name))
    except (OSError, RuntimeError):
        return []
    visible = [entry for entry in entries if name or not entry.name.startswith(".")]
    return [f"{folder}{slash}{entry.name}{'/' if entry.is_dir() else ''}" for entry in visible[:_MAX_MATCHES]]


def _prompt(text: str) -> str:
    """Return a bold prompt; readline must not count its escape sequences as columns."""
    return _MARKERS.sub("\x01\\1\x02", paint(text, "bold"))
