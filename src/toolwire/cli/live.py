"""Print the progress of an agent: text on standard output, calls and results on standard error."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from ..ir.terminal import TextNeutraliser, neutralise_line, reveal_line
from ..ir.text import dumps
from .live_markdown import MarkdownRenderer
from .show import paint

if TYPE_CHECKING:
    from ..ir.events import CallEnd
    from ..ir.parts import ToolResult
    from ..net.agent.answers import Answer

__all__ = ["LivePrinter", "renders_markdown"]

_MAX_WIDTH = 200  # characters shown of arguments and results


def renders_markdown() -> bool:
    """Return True if standard output is a terminal that shows styles, and NO_COLOR is not set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class LivePrinter:
    """Print the events of an agent as they arrive.

    On a terminal, Markdown is rendered and the arguments of a call are shown while the model writes them; in a pipe the
    text is unchanged and a call is one line. `shows_text`: False if the text of the model is not for standard output,
    `shows_calls`: False if calls and results are not printed.
    `approval_hint`: how to approve calls, after one that was refused.
    """

    def __init__(
        self, *, shows_text: bool = True, shows_calls: bool = True, markdown: bool = True, approval_hint: str = ""
    ) -> None:
        self._shows_text = shows_text
        self._shows_calls = shows_calls
        self._markdown = markdown and renders_markdown()
        self._approval_hint = f" ({approval_hint})" if approval_hint else ""
        self._shown_calls = 0  # calls printed from events, which follow as complete calls
        self._calls: dict[int, str] = {}  # event key → name of the tool
        self._texts: dict[int, _TextPrinter] = {}
        self._streams_calls = sys.stderr.isatty()
        self._call_line = _CallLine()
        self._is_mid_line = False  # the text on standard output does not end with a line break

    def show(self, event: Any) -> Answer | None:
        """Print one event; return the Answer if the event is the final one, otherwise None."""
        from ..ir.events import TextDelta, TextEnd
        from ..net.agent.answers import Answer

        if isinstance(event, Answer):
            return event
        if isinstance(event, TextDelta):
            self._show_text(self._text_printer(event.key).feed(event.text))
        elif isinstance(event, TextEnd):
            self._show_text(self._text_printer(event.key).close())
            self._texts.pop(event.key, None)
            self._end_text_line()
        elif self._shows_calls:
            self._show_call_event(event)
        return None

    def _show_call_event(self, event: Any) -> None:
        from ..ir.events import CallDelta, CallEnd, CallStart
        from ..ir.parts import ToolCall, ToolResult

        if isinstance(event, CallStart):
            self._calls[event.key] = event.name
            if self._streams_calls and self._call_line.key is None:
                self._start_line()
                self._call_line.open(event.key, event.name)
        elif isinstance(event, CallDelta):
            self._call_line.write(event.key, event.text)
        elif isinstance(event, CallEnd):
            self._show_call(event)
        elif isinstance(event, ToolCall):
            if self._shown_calls == 0:  # a call of a resumed run, without events
                self._print_line("→", "blue", event.name, dumps(event.arguments))
            self._shown_calls = max(0, self._shown_calls - 1)
        elif isinstance(event, ToolResult):
            self._show_result(event)

    def close(self) -> None:
        """End a line that an interrupted answer has left open."""
        self._start_line()
        self._end_text_line()

    def _text_printer(self, key: int) -> _TextPrinter:
        return self._texts.setdefault(key, _TextPrinter(markdown=self._markdown))

    def _show_text(self, text: str) -> None:
        if self._shows_text and text:
            self._call_line.interrupt()
            print(text, end="", flush=True)
            self._is_mid_line = not text.endswith("\n")

    def _end_text_line(self) -> None:
        if self._is_mid_line:
            print(flush=True)
            self._is_mid_line = False

    def _show_call(self, event: CallEnd) -> None:
        self._shown_calls += 1
        state = "" if event.state == "complete" else f" ({event.state})"
        if self._call_line.close(event.key, state):
            return
        arguments = dumps(event.arguments) if event.arguments is not None else event.raw or ""
        self._print_line("→", "blue", self._calls[event.key], arguments, state)

    def _show_result(self, result: ToolResult) -> None:
        """Print a result: ✓ or ✗, and … for a call that has not run: one that waits, or of a dry run."""
        from ..run.calls.plan import plan_of
        from ..run.values.results import result_code
        from ..run.values.waiting import waiting_call

        self._shown_calls = 0
        colour, sign = ("red", "✗") if result.is_error else ("green", "✓")
        if waiting_call(result) is not None or plan_of(result) is not None:
            colour, sign = "yellow", "…"
        end = self._approval_hint if result_code(result) == "needs_approval" else ""
        self._print_line(sign, colour, result.name or "", " ".join(result.text.split()), end)

    def _print_line(self, sign: str, colour: str, tool: str, text: str, end: str = "") -> None:
        self._start_line()
        print(f"{paint(sign, colour, sys.stderr)} {neutralise_line(tool)} {_shorten(text)}{end}", file=sys.stderr)

    def _start_line(self) -> None:
        """Start a line on standard error; on a terminal, the text before it ends its line."""
        self._call_line.interrupt()
        if sys.stderr.isatty() and sys.stdout.isatty():
            self._end_text_line()


class _TextPrinter:
    """One text of the model: neutralised, and rendered on a terminal."""

    def __init__(self, *, markdown: bool) -> None:
        self._neutral = TextNeutraliser()
        self._markdown = MarkdownRenderer() if markdown else None

    def feed(self, text: str) -> str:
        safe = self._neutral.feed(text)
        return safe if self._markdown is None else self._markdown.feed(safe)

    def close(self) -> str:
        rest = self._neutral.close()
        return rest if self._markdown is None else self._markdown.feed(rest) + self._markdown.close()


class _CallLine:
    """The line of the call whose arguments are being written. One call at a time has it; others get a complete line."""

    def __init__(self) -> None:
        self.key: int | None = None
        self._width = 0

    def open(self, key: int, name: str) -> None:
        self.key, self._width = key, 0
        print(f"{paint('→', 'blue', sys.stderr)} {reveal_line(name)} ", end="", file=sys.stderr, flush=True)

    def write(self, key: int, text: str) -> None:
        """Write more argument text, up to the maximum width."""
        if key != self.key or self._width >= _MAX_WIDTH:
            return
        shown = neutralise_line(text[:_MAX_WIDTH])[: _MAX_WIDTH - self._width]
        self._width += len(shown)
        print(shown + ("…" if self._width >= _MAX_WIDTH else ""), end="", file=sys.stderr, flush=True)

    def close(self, key: int, end: str) -> bool:
        """End the line if the call has it; return False if it has not."""
        if key != self.key:
            return False
        self.key = None
        print(end, file=sys.stderr, flush=True)
        return True

    def interrupt(self) -> None:
        """End the line because something else is printed; the call gets a complete line at its end."""
        if self.key is not None:
            self.key = None
            print("…", file=sys.stderr, flush=True)


def _shorten(text: str) -> str:
    line = neutralise_line(text[: 2 * _MAX_WIDTH])
    return line if len(line) <= _MAX_WIDTH else f"{line[:_MAX_WIDTH]}…"
