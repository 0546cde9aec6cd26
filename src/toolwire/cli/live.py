"""What an agent does, while it does it: words on standard output, calls and results on standard error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..ir.text import dumps, printable
from .show import paint

if TYPE_CHECKING:
    from ..net.agent import Answer

__all__ = ["Live"]


class Live:
    def __init__(self, *, silent: bool = False) -> None:
        self._silent = silent
        self._calls: dict[int, str] = {}

    def show(self, event: Any) -> Answer | None:
        from ..ir.events import CallEnd, CallStart, TextDelta, TextEnd
        from ..ir.parts import ToolResult
        from ..net.agent import Answer

        if isinstance(event, Answer):
            return event
        if self._silent:
            return None
        if isinstance(event, TextDelta):
            print(printable(event.text), end="", flush=True)
        elif isinstance(event, TextEnd):
            print(flush=True)
        elif isinstance(event, CallStart):
            self._calls[event.key] = event.name
        elif isinstance(event, CallEnd):
            given = printable(dumps(event.arguments) if event.arguments is not None else event.raw or "")
            print(f"{paint('→', 'blue', sys.stderr)} {self._calls[event.key]} {given[:200]}", file=sys.stderr)
        elif isinstance(event, ToolResult):
            colour, sign = ("red", "✗") if event.is_error else ("green", "✓")
            words = printable(" ".join(event.text.split()))
            print(f"{paint(sign, colour, sys.stderr)} {event.name} {words[:200]}", file=sys.stderr)
        return None
