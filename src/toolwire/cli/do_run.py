"""Decide whether a command line runs: without a question if it only reads under `--yes`, else after confirmation."""

from __future__ import annotations

import argparse
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from .do_outcome import DoOutcome, shown_vector
from .do_process import run_process
from .do_question import confirm, letter_notes, show_action
from .live_approval import has_terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..retrieve.commands.command_tool import CommandLine

__all__ = ["run_command_line"]

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
    """Return the outcome of a command line. It runs if it is read-only under `--yes`, or if a person confirms it."""
    from ..retrieve.commands.command import find_program, find_system_program

    effect = {"kinds": list(line.effect.kinds), "known": line.effect.is_known, "read_only": line.effect.is_read_only}
    outcome = DoOutcome(request, "shown", vector=line.vector, effect=effect, candidates=offered)
    system_program = find_system_program(line.vector[0])
    is_unasked = arguments.yes and system_program is not None and _may_run_unasked(request, line)
    program = system_program if is_unasked else find_program(line.vector[0])
    asks = not (arguments.dry_run or is_unasked) and has_terminal()
    notes = _make_notes(line, None if program == system_program else program)
    colour = next((_COLOURS[kind] for kind in ("delete", "read") if kind in line.effect.kinds), "yellow")
    show_action(shown_vector(line), notes, as_json=arguments.json, asks=asks, colour=colour)
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
    """Return True for a device, pipe or socket: reading one may block, never end, or change its state."""
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
