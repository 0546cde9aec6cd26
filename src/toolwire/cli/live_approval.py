"""Ask a person on the terminal whether a call may run: yes, no, edited, or always for this tool."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..ir.terminal import neutralise_line, reveal_line
from ..ir.text import dumps
from .line_editor import discard_typed_input, edit_line
from .show import paint

if TYPE_CHECKING:
    from ..run.calls.steps import ApprovalReply, Approve
    from ..run.tools.toolbox import Toolbox

__all__ = ["ApprovalPrompt", "has_terminal"]

_MAX_SHOWN = 2000  # characters of the arguments
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
        """Return the decision about a call. The end of the input denies it."""
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
        """Ask once; return None if the question has to be asked again."""
        from ..run.calls.steps import Denied

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
            _write(f"{reveal_line(dumps(step.arguments))}\n")
            return None
        return Denied(f"{choice} {rest}".strip() if choice not in ("n", "no", "") else rest)

    def _definition(self, step: Approve) -> tuple[str, ...]:
        """Identify the tool by its name, effect, definition and origin."""
        from ..run.values.keys import definition_hash

        box = self._find_box()
        entry = None if box is None else box.find(step.tool)
        known = () if entry is None else (definition_hash(entry.tool), entry.origin_id)
        return (step.tool, step.effect, *known)


def _describe(step: Approve) -> None:
    """Print the tool, its effect, the reason and the arguments; invisible characters are shown."""
    title = f"{reveal_line(step.tool)} ({step.effect}) needs approval: {reveal_line(step.why)}"
    shown = reveal_line(dumps(step.arguments))
    if len(shown) > _MAX_SHOWN:
        shown = f"{shown[:_MAX_SHOWN]}… ({len(shown) - _MAX_SHOWN:,} more characters: [s]how)"
    _write(f"{paint(title, 'yellow', sys.stderr)}\n  {shown}\n")


def _edit(step: Approve) -> ApprovalReply | None:
    """Let the person change the arguments; return None if they are not a JSON object."""
    from ..ir.errors import ProtocolError
    from ..run.calls.steps import Approved
    from ..stream.strict import parse_object

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
