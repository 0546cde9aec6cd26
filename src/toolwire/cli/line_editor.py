"""Edit a line on the terminal with the standard `readline`: history, completion, bracketed paste.

The standard library is enough: GNU readline and libedit have line editing, history search and completion, and GNU
readline ≥ 8.1 inserts pasted line breaks instead of sending each line. prompt_toolkit would add a dependency and a
second start time for colours while typing. Without `readline`, as on Windows, lines are read without editing.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType

__all__ = [
    "LineHistory",
    "discard_typed_input",
    "edit_line",
    "load_readline",
    "replace_invalid",
    "set_completer",
    "state_folder",
]

_SURROGATES = re.compile("[\ud800-\udfff]")
_MAX_ENTRIES = 1000
_MAX_ENTRY = 10_000  # characters
_MAX_FILE = 2_000_000  # bytes


def load_readline() -> ModuleType | None:
    """Return the readline module, or None if there is none."""
    try:
        import readline
    except ImportError:
        return None
    readline.set_auto_history(False)  # answers to questions are not part of the history
    return readline


def edit_line(prompt: str, text: str = "") -> str:
    """Read a line from the terminal; `text` can be edited. Raises EOFError at the end of the input.

    The prompt goes to standard error if standard output is not a terminal.
    """
    readline = load_readline() if sys.stdout.isatty() else None
    if readline is None:
        print(prompt, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.removesuffix("\n")
    if text:
        readline.set_startup_hook(lambda: readline.insert_text(text))
    try:
        return input(prompt)
    finally:
        readline.set_startup_hook()


def discard_typed_input() -> None:
    """Drop the lines that were typed and not read yet. Standard input must be a terminal."""
    try:
        import termios
    except ImportError:  # Windows
        import msvcrt

        while msvcrt.kbhit():  # type: ignore[attr-defined,unused-ignore]
            msvcrt.getwch()  # type: ignore[attr-defined,unused-ignore]
        return
    termios.tcflush(sys.stdin, termios.TCIFLUSH)


def replace_invalid(text: str) -> str:
    """Replace bytes that were not UTF-8, which Python reads from arguments and standard input as lone surrogates."""
    return _SURROGATES.sub("\ufffd", text)


class LineHistory:
    """The lines typed earlier, in a file that only the user can read. Entries are appended, so sessions can share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._readline = load_readline()

    def load(self) -> None:
        """Load the last entries, and shorten a file that has become too long. An unreadable file is an empty history."""
        if self._readline is None:
            return
        self._readline.set_history_length(_MAX_ENTRIES)
        with suppress(OSError):
            with self._path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _MAX_FILE))
                lines = file.read(_MAX_FILE).decode("utf-8", "replace").split("\n")[:-1]
            for line in lines[-_MAX_ENTRIES:]:
                self._readline.add_history(_decode_entry(line))
            if len(lines) > 2 * _MAX_ENTRIES or size > _MAX_FILE:
                self._shorten(lines[-_MAX_ENTRIES:])

    def add(self, entry: str) -> None:
        """Add an entry, unless it repeats the last one."""
        readline = self._readline
        if readline is None or not entry.strip() or len(entry) > _MAX_ENTRY:
            return
        size = readline.get_current_history_length()
        if size and readline.get_history_item(size) == entry:
            return
        readline.add_history(entry)
        with suppress(OSError):  # a chat works without its history
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            with os.fdopen(os.open(self._path, flags, 0o600), "w", encoding="utf-8") as file:
                if hasattr(os, "fchmod"):
                    os.fchmod(file.fileno(), 0o600)  # the file may be older
                file.write(f"{_encode_entry(entry)}\n")

    def _shorten(self, lines: list[str]) -> None:
        new = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
        new.replace(self._path)


def set_completer(complete: Callable[[str, str], list[str]]) -> None:
    """Complete with Tab. `complete` gets the line up to the cursor and the text after its last space, which its results replace."""
    readline = load_readline()
    if readline is None:
        return
    found: list[str] = []

    def next_match(word: str, number: int) -> str | None:
        if number == 0:
            found[:] = complete(readline.get_line_buffer()[: readline.get_endidx()], word)
        return found[number] if number < len(found) else None

    readline.set_completer(next_match)
    readline.set_completer_delims(" \t\n")
    is_libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")
    if not is_libedit and os.environ.get("TERM") != "dumb":
        readline.parse_and_bind("set enable-bracketed-paste on")


def state_folder() -> Path:
    """Return the folder of toolwire's state, and create it with access for the user only."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "toolwire"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def _encode_entry(entry: str) -> str:
    return entry.encode("utf-8", "replace").decode().replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def _decode_entry(line: str) -> str:
    return line.replace("\\\\", "\0").replace("\\n", "\n").replace("\\r", "\r").replace("\0", "\\")
