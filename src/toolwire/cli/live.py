"""Print the progress of an agent: text on standard output, calls and results on standard error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..ir.terminal import TextNeutraliser, neutralise_line
from ..ir.text import dumps
from .show import paint

if TYPE_CHECKING:
    from ..net.answers import Answer

__all__ = ["LivePrinter"]

_MAX_WIDTH = 200  # characters shown of arguments and results


class LivePrinter:
    """Print the events of an agent as they arrive."""

    def __init__(self, *, silent: bool = False) -> None:
        self._silent = silent
        self._calls: dict[int, str] = {}  # event key → name of the tool
        self._texts: dict[int, TextNeutraliser] = {}

    def show(self, event: Any) -> Answer | None:
        """Print one event; return the Answer if the event is the final one, otherwise None."""
        from ..ir.events import CallEnd, CallStart, TextDelta, TextEnd
        from ..ir.parts import ToolResult
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
        elif isinstance(event, ToolResult):
            colour, sign = ("red", "✗") if event.is_error else ("green", "✓")
            _print_line(sign, colour, event.name or "", " ".join(event.text.split()))
        return None


def _print_line(sign: str, colour: str, tool: str, text: str) -> None:
    line = f"{neutralise_line(tool)} {neutralise_line(text)[:_MAX_WIDTH]}"
    print(f"{paint(sign, colour, sys.stderr)} {line}", file=sys.stderr)
