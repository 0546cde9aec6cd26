"""Show a command line with its effect, ask, and run it as a list of arguments."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import threading
from typing import IO, TYPE_CHECKING

from msgspec.structs import replace

from .do_outcome import DoOutcome, OutcomeKind, shown_vector
from .line_editor import discard_typed_input, edit_line
from .live_approval import has_terminal
from .show import paint

if TYPE_CHECKING:
    from typing import Self

    from ..retrieve.commands.vector import CommandLine

__all__ = ["confirm", "run_command_line"]

_MAX_OUTPUT = 1_000_000  # bytes of each stream in a JSON document
_CLOSE_TIMEOUT = 1.0  # seconds
_COLOURS = {"delete": "red", "read": "green"}
_SHELL_SYNTAX = re.compile(r"[;|&`<>\\]|\$[({\w]|[\x00-\x1f\x7f]")  # in a request: no run without a question
_CHANGES = frozenset(
    """delete remove erase wipe destroy kill terminate overwrite replace move rename copy create install
    uninstall upgrade start stop restart reboot shutdown format upload send post push download pack extract compress
    mount unmount writable executable sudo root shell bash sh python execute exec run login host""".split()
)
_EXPANDED = "*?["
# A read-only command without a confirmation starts no pager and no program that a repository configures.
_QUIET = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "SYSTEMD_PAGER": "",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_CONFIG_COUNT": "3",
    "GIT_CONFIG_KEY_0": "core.fsmonitor",
    "GIT_CONFIG_VALUE_0": "false",
    "GIT_CONFIG_KEY_1": "log.showSignature",
    "GIT_CONFIG_VALUE_1": "false",
    "GIT_CONFIG_KEY_2": "core.pager",
    "GIT_CONFIG_VALUE_2": "cat",
}


def run_command_line(
    request: str, line: CommandLine, offered: tuple[str, ...], arguments: argparse.Namespace
) -> DoOutcome:
    """Return the outcome of a command line. It runs if it is read-only under `--yes`, or if a person confirms it."""
    effect = {"kinds": list(line.effect.kinds), "known": line.effect.is_known, "read_only": line.effect.is_read_only}
    outcome = DoOutcome(request, "shown", vector=line.vector, effect=effect, candidates=offered)
    if not arguments.json:
        _show(line)
    if arguments.dry_run:
        return outcome
    is_unasked = arguments.yes and line.effect.is_read_only and not _asks_for_change(request)
    problem = None if is_unasked else confirm(is_yes=arguments.yes)
    if problem is not None:
        return replace(outcome, kind=problem[0], message=problem[1])
    return _run(outcome, is_unasked=is_unasked, captures=arguments.json)


def _asks_for_change(request: str) -> bool:
    """Return True for shell syntax, and for a request whose words contradict a command that only reads."""
    words = frozenset(re.findall(r"[a-z]+", request.lower()))
    return _SHELL_SYNTAX.search(request) is not None or not _CHANGES.isdisjoint(words)


def confirm(*, is_yes: bool = False) -> tuple[OutcomeKind, str] | None:
    """Ask whether to run the command that was shown; None for yes. Without a terminal, nothing runs."""
    if not has_terminal():
        reason = "--yes does not apply to it" if is_yes else "there is no terminal to confirm on"
        return "refused", f"not run: {reason}"
    discard_typed_input()  # text that was typed before the question is not an answer to it
    try:
        answer = edit_line("Run it? [y/N] ").strip().lower()
    except EOFError:
        answer = ""
    return None if answer in ("y", "yes") else ("declined", "not run")


def _show(line: CommandLine) -> None:
    """Print the command to standard output, and its effect to standard error."""
    print(paint(shown_vector(line), "bold"), flush=True)
    colour = next((_COLOURS[kind] for kind in ("delete", "read") if kind in line.effect.kinds), "yellow")
    notes = [f"effect: {line.effect.text}"]
    operands = line.vector[len(line.command.words) :]
    if any(char in word for word in operands for char in _EXPANDED) and line.command.words[0] not in ("find", "grep"):
        notes.append("patterns are passed as they are: no shell expands them")
    for note in notes:
        print(paint(note, colour, sys.stderr), file=sys.stderr)


def _run(outcome: DoOutcome, *, is_unasked: bool, captures: bool) -> DoOutcome:
    from ..retrieve.commands.catalogue import find_program

    vector = list(outcome.vector)
    program = find_program(vector[0])
    if program is None:
        return replace(outcome, kind="failed", message=f"{vector[0]} was not found in PATH")
    environment = {**os.environ, **_QUIET} if is_unasked else dict(os.environ)
    sys.stdout.flush()
    try:
        process = subprocess.Popen(  # noqa: S603  # a list of arguments, confirmed or read-only
            vector,
            executable=program,
            env=environment,
            shell=False,
            stdout=subprocess.PIPE if captures else None,
            stderr=subprocess.PIPE if captures else None,
        )
    except OSError as error:
        return replace(outcome, kind="failed", message=f"cannot start {vector[0]}: {error.strerror or error}")
    if not captures:
        return _finish(outcome, _wait(process))
    with _Capture(process) as capture:
        code = _wait(process)
    finished = replace(_finish(outcome, code), stdout=capture.texts[0], stderr=capture.texts[1])
    if capture.is_truncated:
        return replace(
            finished, kind="failed", message=f"{vector[0]} was ended: its output exceeds {_MAX_OUTPUT} bytes"
        )
    return finished


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Return the exit code. The program receives the first Ctrl-C, too, and decides; the second one ends it."""
    try:
        return process.wait()
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
