"""Print the progress of an agent: text on standard output, calls and results on standard error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..ir.terminal import TextNeutraliser, neutralise_line
from ..ir.text import dumps
from .show import paint

if TYPE_CHECKING:
    from ..ir.parts import ToolResult
    from ..net.answers import Answer

__all__ = ["LivePrinter"]

_MAX_WIDTH = 200  # characters shown of arguments and results


class LivePrinter:
    """Print the events of an agent as they arrive. `approval_hint`: how to approve calls, after one that was refused."""

    def __init__(self, *, silent: bool = False, approval_hint: str = "") -> None:
        self._silent = silent
        self._approval_hint = f" ({approval_hint})" if approval_hint else ""
        self._shown_calls = 0  # calls printed from events, which follow as complete calls
        self._calls: dict[int, str] = {}  # event key → name of the tool
        self._texts: dict[int, TextNeutraliser] = {}

    def show(self, event: Any) -> Answer | None:
        """Print one event; return the Answer if the event is the final one, otherwise None."""
        from ..ir.events import CallEnd, CallStart, TextDelta, TextEnd
        from ..ir.parts import ToolCall, ToolResult
        from ..net.answers import Answer

        if isinstance(event, Answer):
            return event
        if self._silent:
            return None
        if isinstance(event, TextDelta):
            text = self._texts.setdefault(event.key, TextNeutraliser())
            print(text.feed(event.text), end="", flush=True)
        elif isinstance(event, TextEnd):
            print(self._texts.pop(event.key, TextNeutraliser()).close(), flush=True)
        elif isinstance(event, CallStart):
            self._calls[event.key] = event.name
        elif isinstance(event, CallEnd):
            arguments = dumps(event.arguments) if event.arguments is not None else event.raw or ""
            _print_line("→", "blue", self._calls[event.key], arguments)
            self._shown_calls += 1
        elif isinstance(event, ToolCall):
            if self._shown_calls == 0:  # a call of a resumed run, without events
                _print_line("→", "blue", event.name, dumps(event.arguments))
            self._shown_calls = max(0, self._shown_calls - 1)
        elif isinstance(event, ToolResult):
            self._show_result(event)
        return None

    def _show_result(self, result: ToolResult) -> None:
        """Print a result: ✓ or ✗, and … for a call that has not run: one that waits, or of a dry run."""
        from ..run.plan import plan_of
        from ..run.results import result_code
        from ..run.waiting import waiting_call

        self._shown_calls = 0
        colour, sign = ("red", "✗") if result.is_error else ("green", "✓")
        if waiting_call(result) is not None or plan_of(result) is not None:
            colour, sign = "yellow", "…"
        end = self._approval_hint if result_code(result) == "needs_approval" else ""
        _print_line(sign, colour, result.name or "", " ".join(result.text.split()), end)


def _print_line(sign: str, colour: str, tool: str, text: str, end: str = "") -> None:
    line = f"{neutralise_line(tool)} {neutralise_line(text)[:_MAX_WIDTH]}{end}"
    print(f"{paint(sign, colour, sys.stderr)} {line}", file=sys.stderr)
