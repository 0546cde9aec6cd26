"""The outcome of `toolwire do`, printed for a person or as JSON."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..ir.terminal import neutralise_line, neutralise_text
from ..ir.value import Value
from .show import json_text, paint

if TYPE_CHECKING:
    from ..retrieve.commands.command_tool import CommandLine

__all__ = ["DoOutcome", "OutcomeKind", "print_outcome", "shown_vector"]

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


def shown_vector(line: CommandLine) -> str:
    """Return the command as a person would type it, quoted. Invisible characters were refused before."""
    return shlex.join(line.vector)


def print_outcome(outcome: DoOutcome, *, as_json: bool) -> int:
    """Print the outcome and return the exit code. The command printed its own output already, except with JSON."""
    if as_json:
        print(json_text(_document(outcome)))
    elif outcome.kind == "nothing_fits":
        print(f"nothing fits: {neutralise_text(outcome.message)}")
    elif outcome.message:
        colour = "dim" if outcome.is_success else "yellow"
        print(paint(neutralise_line(outcome.message), colour, sys.stderr), file=sys.stderr)
    return 0 if outcome.is_success else 1


def _document(outcome: DoOutcome) -> dict[str, Any]:
    document: dict[str, Any] = {"request": outcome.request, "outcome": outcome.kind}
    if outcome.vector:
        document |= {"vector": list(outcome.vector), "shown": shlex.join(outcome.vector)}
    for name in ("effect", "call", "message", "exit_code", "stdout", "stderr"):
        value = getattr(outcome, name)
        if value not in (None, ""):
            document[name] = value
    return document | {"candidates": list(outcome.candidates)}
