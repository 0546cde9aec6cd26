"""Show a command or call with its effect, and ask whether to run it. The command is always visible before the question."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Sequence

from ..ir.terminal import reveal_line
from .do_outcome import OutcomeKind
from .line_editor import discard_typed_input, edit_line
from .live_approval import has_terminal
from .show import paint

__all__ = ["confirm", "letter_notes", "show_action"]


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
    try:
        answer = edit_line("Run it? [y/N] ").strip().lower()
    except EOFError:
        answer = ""
    return None if answer in ("y", "yes") else ("declined", "not run")
