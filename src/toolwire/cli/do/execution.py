"""Run a command line of `toolwire do`: decide, ask, run within limits, and print the outcome.

A command that only reads runs without a question under `--yes`. The command is always visible before a question.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import stat
import subprocess
import sys
import threading
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, Self, TypeAlias

from msgspec.structs import replace

from ...ir.terminal import neutralise_text, reveal_line
from ...ir.value import Value
from ...retrieve.commands.command import SYSTEM_FOLDERS, find_program, find_system_program
from ..terminal.input import discard_typed_input, has_terminal, is_confirmed
from ..terminal.output import json_text, paint, print_note

if TYPE_CHECKING:
    from ...retrieve.commands.command_tool import CommandLine


OutcomeKind: TypeAlias = Literal["ran", "failed", "shown", "nothing_fits", "declined", "refused"]


class DoOutcome(Value, frozen=True):
    """The outcome of a request. `vector` is the command line, `call` the call of another source."""

    request: str
    kind: OutcomeKind
    message: str = ""
    vector: tuple[str, ...] = ()
    effect: Any = None
    call: Any = None
    candidates: tuple[str, ...] = ()
    exit_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None

    @property
    def is_success(self) -> bool:
        """True if the command ran without an error, or was shown as asked."""
        return self.kind in ("ran", "shown")


def print_outcome(outcome: DoOutcome, *, as_json: bool) -> int:
    """Print the outcome, as JSON or its message, and return the exit code.

    Without --json, the command printed its own output already.
    """
    if as_json:
        print(json_text(_document(outcome)))
    elif outcome.kind == "nothing_fits":
        print(f"nothing fits: {neutralise_text(outcome.message)}")
    elif outcome.message:
        colour = "dim" if outcome.is_success else "yellow"
        print_note(outcome.message, colour)
    return 0 if outcome.is_success else 1


def _document(outcome: DoOutcome) -> dict[str, Any]:
    """Return an outcome as JSON, without fields that are None or empty."""
    document: dict[str, Any] = {"request": outcome.request, "outcome": outcome.kind}
    if outcome.vector:
        document |= {"vector": list(outcome.vector), "shown": shlex.join(outcome.vector)}
    for name in ("effect", "call", "message", "exit_code", "stdout", "stderr"):
        value = getattr(outcome, name)
        if value not in (None, ""):
            document[name] = value
    return document | {"candidates": list(outcome.candidates)}


# Show a command or call with its effect, and ask whether to run it. The command is always visible before the
# question.


def show_action(text: str, notes: Sequence[str], *, as_json: bool, asks: bool, colour: str = "yellow") -> None:
    """Print a command to standard output and its notes to standard error.

    Before a question, the terminal of the question gets the command, too, if standard output is a JSON document or is
    redirected.
    """
    shown = reveal_line(text)
    if not as_json:
        print(paint(shown, "bold"), flush=True)
    if asks and (as_json or not _shares_terminal()):
        print(paint(shown, "bold", sys.stderr), file=sys.stderr)
    if asks or not as_json:
        for note in notes:
            print(paint(reveal_line(note), colour, sys.stderr), file=sys.stderr, flush=True)


def _shares_terminal() -> bool:
    """Return True if standard output and standard error are the same terminal."""
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        return False
    try:
        return sys.platform == "win32" or os.ttyname(sys.stdout.fileno()) == os.ttyname(sys.stderr.fileno())
    except (OSError, ValueError):
        return False


def letter_notes(text: str) -> list[str]:
    """Return a warning for letters that a terminal shows in another order or that look like ASCII."""
    if text.isascii():
        return []
    is_reordered = any(unicodedata.bidirectional(char) in ("R", "AL", "AN") for char in text)
    is_similar = unicodedata.normalize("NFKC", text) != text
    notes = ["it contains right-to-left letters: a terminal may show it in another order"] if is_reordered else []
    return notes + (["it contains characters that look like others, such as full-width letters"] if is_similar else [])


def confirm(*, is_yes: bool = False) -> tuple[OutcomeKind, str] | None:
    """Ask whether to run the command that was shown; None for yes. Without a terminal, nothing runs."""
    if not has_terminal():
        reason = "--yes does not apply to it" if is_yes else "there is no terminal to confirm on"
        return "refused", f"not run: {reason}"
    discard_typed_input()  # text that was typed before the question is not an answer to it
    return None if is_confirmed("Run it?") else ("declined", "not run")


# Run the argument vector of a confirmed or read-only command, and collect its output within limits.


_MAX_OUTPUT = 1_000_000  # bytes of each stream in a JSON document
_MAX_SECONDS = 60.0  # of a command without a confirmation
_CLOSE_TIMEOUT = 1.0  # seconds to read the rest after the end of the program; see `_Capture.__exit__`
# variables of a command without a confirmation: no pager, no options of programs, no libraries to load
_KEPT = frozenset(
    """HOME USER LOGNAME LANG LANGUAGE TERM TZ COLUMNS LINES NO_COLOR XDG_RUNTIME_DIR DBUS_SESSION_BUS_ADDRESS
    DOCKER_HOST DOCKER_CONTEXT""".split()
)
_QUIET = {"PAGER": "cat", "SYSTEMD_PAGER": "", "SYSTEMD_PAGERSECURE": "1"}


def run_process(outcome: DoOutcome, program: str, *, is_unasked: bool, captures: bool) -> DoOutcome:
    """Run the command of `outcome`, and return the outcome with its exit code and, if captured, its output.

    Without a confirmation (`is_unasked`): no input, a short environment, and a limit of time. A program that cannot
    start, takes too long or prints too much has failed.
    """
    name = outcome.vector[0]
    sys.stdout.flush()
    try:
        process = subprocess.Popen(  # noqa: S603  # a list of arguments, confirmed or read-only
            list(outcome.vector),
            executable=program,
            env=_short_environment() if is_unasked else None,
            shell=False,
            stdin=subprocess.DEVNULL if is_unasked else None,
            stdout=subprocess.PIPE if captures else None,
            stderr=subprocess.PIPE if captures else None,
        )
    except OSError as error:
        return replace(outcome, kind="failed", message=f"cannot start {name}: {error.strerror or error}")
    limit = _MAX_SECONDS if is_unasked else None
    try:
        if not captures:
            return _finish(outcome, _wait(process, limit))
        with _Capture(process) as capture:
            code = _wait(process, limit)
    except subprocess.TimeoutExpired:
        return replace(outcome, kind="failed", message=f"{name} was ended: it ran longer than {_MAX_SECONDS:g} seconds")
    finished = replace(_finish(outcome, code), stdout=capture.texts[0], stderr=capture.texts[1])
    if capture.is_truncated:
        return replace(finished, kind="failed", message=f"{name} was ended: its output exceeds {_MAX_OUTPUT} bytes")
    return finished


def _short_environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith("LC_")}
    return {**kept, **_QUIET, "PATH": os.pathsep.join(SYSTEM_FOLDERS)}


def _wait(process: subprocess.Popen[bytes], limit: float | None) -> int:
    """Return the exit code.

    Raises `TimeoutExpired` after `limit` seconds, with the process killed. The program receives the first Ctrl-C, too,
    and decides; the second Ctrl-C kills it and is raised.
    """
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise
    except KeyboardInterrupt:
        pass
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.kill()
        process.wait()
        raise


class _Capture:
    """The output of a process, up to a limit beyond which the process is ended."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        """Prepare a thread for each output stream of `process`; `texts` is standard output and standard error."""
        self.texts = ["", ""]
        self.is_truncated = False
        self._process = process
        streams = (process.stdout, process.stderr)
        self._threads = [
            threading.Thread(target=self._read, args=(number, stream), daemon=True)
            for number, stream in enumerate(streams)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join(_CLOSE_TIMEOUT)  # a program in the background may keep the pipe open

    def _read(self, number: int, stream: IO[bytes]) -> None:
        """Read a stream to its end into `texts[number]`.

        Above `_MAX_OUTPUT` bytes, kill the process and set `is_truncated`.
        """
        pieces: list[bytes] = []
        size = 0
        with stream:
            while piece := stream.read1(65_536):  # type: ignore[attr-defined]
                pieces.append(piece)
                size += len(piece)
                if size > _MAX_OUTPUT:
                    self.is_truncated = True
                    self._process.kill()
                    break
        self.texts[number] = b"".join(pieces)[:_MAX_OUTPUT].decode("utf-8", "replace")


def _finish(outcome: DoOutcome, code: int) -> DoOutcome:
    if code == 0:
        return replace(outcome, kind="ran", exit_code=0)
    ended = f"exit code {code}" if code > 0 else f"signal {-code}"
    return replace(outcome, kind="failed", exit_code=code, message=f"{outcome.vector[0]} failed: {ended}")


_COLOURS = {"delete": "red", "read": "green"}
_SHELL_SYNTAX = re.compile(r"[;|&`<>\\]|\$[({\w]|[\x00-\x1f\x7f]")  # in a request: no run without a question
_CHANGES = frozenset(
    """delete remove erase wipe destroy kill terminate overwrite replace move rename copy create install
    uninstall upgrade start stop restart reboot shutdown format upload send post push download pack extract compress
    mount unmount writable executable sudo root shell bash sh python execute exec run login host""".split()
)
_EXPANDED = "*?["


def run_command_line(
    request: str, line: CommandLine, offered: tuple[str, ...], arguments: argparse.Namespace
) -> DoOutcome:
    """Show a command line, run it, and return the outcome.

    It runs if it is read-only under `--yes`, or if a person confirms it; with --dry-run never.
    """
    effect = {"kinds": list(line.effect.kinds), "known": line.effect.is_known, "read_only": line.effect.is_read_only}
    outcome = DoOutcome(request, "shown", vector=line.vector, effect=effect, candidates=offered)
    system_program = find_system_program(line.vector[0])
    is_unasked = arguments.yes and system_program is not None and _may_run_unasked(request, line)
    program = system_program if is_unasked else find_program(line.vector[0])
    asks = not (arguments.dry_run or is_unasked) and has_terminal()
    notes = _make_notes(line, None if program == system_program else program)
    colour = next((_COLOURS[kind] for kind in ("delete", "read") if kind in line.effect.kinds), "yellow")
    show_action(shlex.join(line.vector), notes, as_json=arguments.json, asks=asks, colour=colour)
    if arguments.dry_run:
        return outcome
    problem = None if is_unasked else confirm(is_yes=arguments.yes)
    if problem is not None:
        return replace(outcome, kind=problem[0], message=problem[1])
    if program is None:
        return replace(outcome, kind="failed", message=f"{line.vector[0]} was not found in PATH")
    return run_process(outcome, program, is_unasked=is_unasked, captures=arguments.json)


def _may_run_unasked(request: str, line: CommandLine) -> bool:
    return line.effect.is_read_only and not _asks_for_change(request) and not _names_special_file(line.vector[1:])


def _asks_for_change(request: str) -> bool:
    """Return True for shell syntax, and for a request whose words contradict a command that only reads."""
    words = frozenset(re.findall(r"[a-z]+", request.lower()))
    return _SHELL_SYNTAX.search(request) is not None or not _CHANGES.isdisjoint(words)


def _names_special_file(words: Sequence[str]) -> bool:
    """Return whether an argument, or the value after =, is a device, pipe or socket.

    Reading it may block, never end, or change its state.
    """
    for word in words:
        for path in {word, word.partition("=")[2]} - {""}:
            try:
                mode = Path(path).stat().st_mode
            except (OSError, ValueError):
                continue
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                return True
    return False


def _make_notes(line: CommandLine, program: str | None) -> list[str]:
    """Return the effect and warnings. `program`: the file that runs, if it is not in a folder of the system."""
    notes = [f"effect: {line.effect.text}"]
    if program is not None:
        notes.append(f"program: {program}")
    operands = line.vector[len(line.command.words) :]
    if any(char in word for word in operands for char in _EXPANDED) and line.command.words[0] not in ("find", "grep"):
        notes.append("patterns are passed as they are: no shell expands them")
    return notes + letter_notes(" ".join(line.vector))
