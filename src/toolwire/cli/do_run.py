"""Show a command line with its effect, ask, and run it as a list of arguments."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING

from msgspec.structs import replace

from .do_outcome import DoOutcome, OutcomeKind, shown_vector
from .line_editor import discard_typed_input, edit_line
from .live_approval import has_terminal
from .show import paint

if TYPE_CHECKING:
    from ..retrieve.commands.vector import CommandLine

__all__ = ["confirm", "run_command_line"]

_MAX_OUTPUT = 1_000_000  # bytes of each stream in a JSON document
_COLOURS = {"delete": "red", "read": "green"}
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
    is_unasked = arguments.yes and line.effect.is_read_only
    problem = None if is_unasked else confirm(is_yes=arguments.yes)
    if problem is not None:
        return replace(outcome, kind=problem[0], message=problem[1])
    return _run(outcome, is_unasked=is_unasked, captures=arguments.json)


def confirm(*, is_yes: bool = False) -> tuple[OutcomeKind, str] | None:
    """Ask whether to run the command that was shown; None for yes. Without a terminal, nothing runs."""
    if not has_terminal():
        reason = "--yes applies only to the read-only list" if is_yes else "there is no terminal to confirm on"
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
    if not captures:
        return _finish(outcome, _wait(vector, program, environment, None, None))
    with TemporaryFile() as output, TemporaryFile() as errors:
        code = _wait(vector, program, environment, output, errors)
        return replace(_finish(outcome, code), stdout=_read(output), stderr=_read(errors))


def _wait(
    vector: list[str], program: str, environment: dict[str, str], output: IO[bytes] | None, errors: IO[bytes] | None
) -> int | str:
    """Run the program; return its exit code, or the reason why it could not be started."""
    try:
        process = subprocess.Popen(  # noqa: S603  # a list of arguments, confirmed or read-only
            vector, executable=program, env=environment, shell=False, stdout=output, stderr=errors
        )
    except OSError as error:
        return error.strerror or str(error)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # the program received it, too, and decides
            continue


def _finish(outcome: DoOutcome, code: int | str) -> DoOutcome:
    if isinstance(code, str):
        return replace(outcome, kind="failed", message=f"cannot start {outcome.vector[0]}: {code}")
    if code == 0:
        return replace(outcome, kind="ran", exit_code=0)
    ended = f"exit code {code}" if code > 0 else f"signal {-code}"
    return replace(outcome, kind="failed", exit_code=code, message=f"{outcome.vector[0]} failed: {ended}")


def _read(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read(_MAX_OUTPUT).decode("utf-8", "replace")
