"""Input from a person on the terminal: edited lines, and the decision whether a call may run.

Lines are edited with the standard `readline`: history, completion, bracketed paste.
A call is approved, refused, edited, or approved for all later calls of its tool.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

from ...ir.errors import ProtocolError
from ...ir.terminal import neutralise_line, reveal_line
from ...ir.text import dumps
from .output import paint, paragraph, table, text_lines

if TYPE_CHECKING:
    from ...run.calls.steps import ApprovalReply, Approve
    from ...run.tools.toolbox import Toolbox


# Edit a line on the terminal with the standard `readline`: history, completion, bracketed paste.
#
# The standard library is enough: GNU readline and libedit have line editing, history search and completion, and GNU
# readline ≥ 8.1 inserts pasted line breaks instead of sending each line. prompt_toolkit would add a dependency and a
# second start time for colours while typing. Without `readline`, as on Windows, lines are read without editing.


_SURROGATES = re.compile("[\ud800-\udfff]")
_MAX_ENTRIES = 1000  # lines of history; loaded at each start, so that the file must stay small
_MAX_ENTRY = 10_000  # characters; a pasted file is not worth keeping in the history
_MAX_FILE = 2_000_000  # bytes that are read at the start; more than 1,000 usual entries take


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


def is_confirmed(question: str) -> bool:
    """Ask a question that only "y" and "yes" confirm."""
    try:
        return edit_line(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def read_key() -> str:
    """Read a key from the terminal without showing it; empty at the end of the input. Ctrl-C raises KeyboardInterrupt."""
    if os.name == "nt":
        import msvcrt

        key = msvcrt.getwch()  # type: ignore[attr-defined,unused-ignore]
        if key == "\x03":
            raise KeyboardInterrupt from None
        return str(key)
    with HiddenTyping(by_key=True):
        return os.read(sys.stdin.fileno(), 1).decode("ascii", "replace")


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


class HiddenTyping:
    """Do not echo keys inside the block, so that typed text stays out of an answer. The next prompt reads it.

    With `by_key`, a key can be read before Enter. The terminal is restored at the end of the block, while the process is
    stopped by Ctrl-Z, and before a signal ends it. Nothing happens without a terminal, in the background, and on Windows.
    """

    def __init__(self, *, by_key: bool = False) -> None:
        self._by_key = by_key
        self._before: list[Any] | None = None  # the attributes of the terminal
        self._handled: list[int] = []

    def __enter__(self) -> Self:
        self._before = _own_terminal()
        try:
            if self._before is not None and threading.current_thread() is threading.main_thread():
                numbers = (signal.SIGTSTP, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
                self._handled = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
                for number in self._handled:
                    signal.signal(number, self._restore_first)
            self._hide()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._set(self._before)
        finally:
            self._set(self._before)  # again, if a second Ctrl-C interrupted it
            for number in self._handled:
                signal.signal(number, signal.SIG_DFL)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Echo keys inside this block, for a question."""
        self._set(self._before)
        try:
            yield
        finally:
            self._hide()

    def _restore_first(self, number: int, _: object) -> None:
        """Restore the terminal, and let the signal have its usual effect. After a stop, set the terminal as it was.

        A question may have changed it, too: `readline` does while a line is edited.
        """
        current = _own_terminal()
        self._set(self._before)
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
        signal.signal(number, self._restore_first)
        self._set(current)

    def _hide(self) -> None:
        if self._before is None:
            return
        import termios

        attributes = [*self._before[:6], list(self._before[6])]
        attributes[3] &= ~termios.ECHO
        if self._by_key:
            attributes[3] &= ~termios.ICANON
            attributes[6][termios.VMIN], attributes[6][termios.VTIME] = 1, 0
        self._set(attributes)

    def _set(self, attributes: list[Any] | None) -> None:
        """Set the attributes at once: waiting until all output is shown could be interrupted, or stop for ever."""
        if attributes is None or _own_terminal() is None:  # continued in the background, by `bg`
            return
        import termios

        with suppress(termios.error, ValueError):  # the terminal is gone, or standard input is closed
            termios.tcsetattr(sys.stdin, termios.TCSANOW, attributes)


def _own_terminal() -> list[Any] | None:
    """Return the attributes of the terminal of standard input, or None if there is none that this process may change."""
    if os.name == "nt":
        return None
    import termios

    try:
        if not sys.stdin.isatty():
            return None
        with suppress(OSError):  # not the controlling terminal, which has no foreground process
            if os.tcgetpgrp(sys.stdin.fileno()) != os.getpgrp():
                return None  # in the background, where a change would stop the process
        return termios.tcgetattr(sys.stdin)
    except (termios.error, ValueError):  # gone, or closed
        return None


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
        """Add an entry to the history and its file, unless it is empty, too long, or repeats the last entry.

        Only the user can read the file; a file that cannot be written is ignored.
        """
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
    """Complete with Tab by `complete`, and switch on bracketed paste.

    `complete` gets the line up to the cursor and the text after its last space, which its results replace. Nothing
    happens without readline.
    """
    readline = load_readline()
    if readline is None:
        return
    matches: list[str] = []

    def next_match(word: str, number: int) -> str | None:
        if number == 0:
            matches[:] = complete(readline.get_line_buffer()[: readline.get_endidx()], word)
        return matches[number] if number < len(matches) else None

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


_MAX_SHOWN = 2000  # characters of the arguments, so that the question stays on the screen
_CHOICES = "[y]es, [n]o, [e]dit, [a]lways for this tool"


def has_terminal() -> bool:
    """Return True if a person can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


class ApprovalPrompt:
    """The questions of one session. Without a terminal, every call is denied.

    "Always" holds for the definition of the tool that the person saw: a tool that is defined differently later, for
    example by its MCP server, needs approval again. `find_box` returns the toolbox, once there is one. `on_question`
    is called before each question.
    """

    def __init__(
        self,
        find_box: Callable[[], Toolbox | None] = lambda: None,
        on_question: Callable[[Approve], object] | None = None,
    ) -> None:
        self._find_box = find_box
        self._on_question = on_question
        self._always: set[tuple[str, ...]] = set()

    def ask(self, step: Approve) -> ApprovalReply:
        """Return the decision about a call: the person's answer, or approval if "always" was answered before.

        The call is denied without a terminal and at the end of the input.
        """
        if self._on_question is not None:
            self._on_question(step)
        if not has_terminal():
            return False
        definition = self._definition(step)
        if definition in self._always:
            _write(paint(f"approved: always for {reveal_line(step.tool)}\n", "dim", sys.stderr))
            return True
        _describe(step)
        while True:
            reply = self._decide(step, definition)
            if reply is not None:
                return reply

    def _decide(self, step: Approve, definition: tuple[str, ...]) -> ApprovalReply | None:
        """Ask once, and return the decision, or None if the question has to be asked again.

        "always" is remembered for this definition of the tool; any other text is the reason of a denial.
        """
        from ...run.calls.steps import Denied

        discard_typed_input()  # text that was typed before the question is not an answer to it
        choice, _, rest = _read_line(f"Run it? {_CHOICES}: ").strip().partition(" ")
        choice = choice.lower()
        if choice in ("y", "yes"):
            return True
        if choice in ("a", "always"):
            self._always.add(definition)
            return True
        if choice in ("e", "edit"):
            return _edit(step)
        if choice in ("s", "show"):
            _write("\n".join([*text_lines(reveal_line(dumps(step.arguments)), stream=sys.stderr), ""]))
            return None
        return Denied(f"{choice} {rest}".strip() if choice not in ("n", "no", "") else rest)

    def _definition(self, step: Approve) -> tuple[str, ...]:
        """Identify the tool by its name, effect, definition and origin."""
        from ...run.values.keys import definition_hash

        box = self._find_box()
        entry = None if box is None else box.find(step.tool)
        known = () if entry is None else (definition_hash(entry.tool), entry.origin_id)
        return (step.tool, step.effect, *known)


def _describe(step: Approve) -> None:
    """Print the tool, its effect, the reason and the arguments, one per line; invisible characters are shown."""
    usual = f"{step.tool} is a {step.effect} tool"
    reason = f"it is a {step.effect} tool" if step.why == usual else f"{step.why} ({step.effect} tool)"
    lines = paragraph(f"{reveal_line(step.tool)} needs approval: {reveal_line(reason)}", stream=sys.stderr)
    lines = [paint(line, "yellow", sys.stderr) for line in lines]
    size = len(reveal_line(dumps(step.arguments)))
    if size <= _MAX_SHOWN:
        rows = [(reveal_line(name), reveal_line(dumps(value))) for name, value in step.arguments.items()]
        lines += table(rows, indent="  ", stream=sys.stderr) if rows else ["  no arguments"]
    else:
        shown = reveal_line(dumps(step.arguments))[:_MAX_SHOWN]
        lines += text_lines(f"  {shown}… ({size - _MAX_SHOWN:,} more characters: [s]how)", stream=sys.stderr)
    _write("\n".join([*lines, ""]))


def _edit(step: Approve) -> ApprovalReply | None:
    """Let the person change the arguments, and return an approval with them.

    Returns None, with a message, if they are empty or not a JSON object.
    """
    from ...run.calls.steps import Approved
    from ...stream.strict import parse_object

    text = _read_line("arguments: ", _editable(step.arguments)).strip()
    if not text:
        return None
    try:
        return Approved(parse_object(text.encode("utf-8", "surrogatepass")))
    except ProtocolError as error:
        _write(f"not a JSON object: {neutralise_line(str(error))}\n")
        return None


def _editable(arguments: Any) -> str:
    """Format arguments for editing: invisible characters are JSON escapes, so that editing does not change them."""
    text = json.dumps(arguments, ensure_ascii=False)
    return "".join(char if reveal_line(char) == char else json.dumps(char)[1:-1] for char in text)


def _read_line(prompt: str, text: str = "") -> str:
    """Read a line with `text` to edit; empty at the end of the input. Prompts never go to a piped standard output."""
    try:
        return edit_line(prompt, text)
    except EOFError:
        _write("\n")
        return ""


def _write(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)
