r"""Print the progress of an agent: text on standard output, calls and results on standard error.

Markdown is rendered on a terminal while it arrives.

Render Markdown on a terminal while it arrives.

    renderer = MarkdownRenderer()
    sys.stdout.write(renderer.feed("# Ti"))     # a start of a line that is not decided yet is held back
    sys.stdout.write(renderer.feed("tle\n"))
    sys.stdout.write(renderer.close())

Headings, bold, italic, code, links, lists, quotations, rules and code blocks are styled; everything else is written as
it is. The input must be neutralised: the output then contains only escape sequences of this module. Each styled
span ends with a reset, so that no style remains after an interrupted answer. At most `_MAX_HELD` characters are held
back, so that the cost per character and the memory are bounded.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any, TextIO

from ...ir.events import CallDelta, CallEnd, CallStart, TextDelta, TextEnd
from ...ir.parts import ToolCall, ToolResult
from ...ir.terminal import TextNeutraliser, neutralise_line, reveal_line
from ...ir.text import dumps, shorten
from ..terminal.layout import StreamWrap
from ..terminal.output import paint, terminal_width

if TYPE_CHECKING:
    from ...net.agent.answers import Answer


_MAX_HELD = 400  # characters that wait for a closing delimiter; then they are written as they are
_RESET = "\x1b[0m"
_BOLD, _DIM, _ITALIC, _UNDERLINE, _CODE = "1", "2", "3", "4", "36"
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^`\n]*)$")
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+")
_BULLET = re.compile(r"([ \t]*)[-*+][ \t]+(?=[^ \t])")
_NUMBER = re.compile(r"([ \t]*\d{1,9}[.)])[ \t]+(?=[^ \t])")
_QUOTE = re.compile(r" {0,3}>[ \t]?")
_RULE = re.compile(r" {0,3}(?:(?:\*[ \t]*+){3,}|(?:-[ \t]*+){3,}|(?:_[ \t]*+){3,})$")
_UNDECIDED = re.compile(r"[ \t]*+(?:#{0,6}|\d{0,9}[.)]?|[-*+>]?)[ \t]*+$|[ \t]*+(?:[-*_][ \t]*+)++$| {0,3}[`~]{1,2}$")
_OPENERS = re.compile(r"[`*_\[\\]")
_SPANS = (
    (re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)"), 2, _CODE),
    (re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*"), 1, _BOLD),
    (re.compile(r"\*(?=[^\s*])([^*]+?)(?<=\S)\*(?!\*)"), 1, _ITALIC),
    (re.compile(r"__(?=\S)(.+?)(?<=\S)__(?!\w)"), 1, _BOLD),
    (re.compile(r"_(?=[^\s_])([^_]+?)(?<=\S)_(?!\w)"), 1, _ITALIC),
)
_LINK = re.compile(r"\[([^\]\n]{1,200})\]\(([^)\s]{1,200})\)")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")


class MarkdownRenderer:
    """The state of one text: the current block, and the characters that are held back."""

    def __init__(self, wrap: StreamWrap | None = None) -> None:
        """`wrap`: wraps the lines, except code, whose lines are copied."""
        self._wrap = wrap
        self._held = ""  # of the current line
        self._is_line_start = True
        self._fence = ""  # the delimiter of the open code block
        self._line_style = ""  # of the current line: a heading or a quotation
        self._last = "\n"  # the last source character that was written

    def feed(self, text: str) -> str:
        """Return the rendering of the next piece, as far as it is decided."""
        out: list[str] = []
        for piece in re.findall(r"[^\n]*\n|[^\n]+", text):
            out.append(self._feed_line(piece))
        return "".join(out)

    def close(self) -> str:
        """Return the rest at the end of the text."""
        rest = self._feed_line("", is_end=True) if self._held else ""
        return rest if self._wrap is None else rest + self._wrap.flush()

    def break_line(self) -> str:
        """Return the held text, because something else ends the line."""
        return "" if self._wrap is None else self._wrap.restart()

    def _feed_line(self, piece: str, *, is_end: bool = False) -> str:
        """Render a piece of one line; a line break or `is_end` ends it.

        Text whose style is not decided yet is held, up to `_MAX_HELD` characters.
        """
        ends = piece.endswith("\n")
        self._held += piece.removesuffix("\n")
        is_complete = ends or is_end
        out = ""
        if self._fence or (self._is_line_start and self._held.lstrip(" ").startswith(("```", "~~~"))):
            if not is_complete and len(self._held) < _MAX_HELD:
                return ""  # code is written by the line, because a line may close the block
            out, wrap = self._render_code_line(), None
        else:
            if self._is_line_start:
                if not is_complete and _UNDECIDED.match(self._held) and len(self._held) < _MAX_HELD:
                    return ""
                out = self._start_line(is_complete=is_complete)
            out, wrap = out + self._render_inline(is_complete=is_complete), self._wrap
        if ends:
            self._is_line_start, self._line_style, self._last = True, "", "\n"
            out += "\n"
        return out if wrap is None else wrap.feed(out)

    def _render_code_line(self) -> str:
        """Render the held line of a code block, or the fence that opens or closes the block, and set `_fence`."""
        line, self._held = self._held, ""
        fence = _FENCE.match(line) if self._is_line_start else None
        self._is_line_start = False
        if fence is None:
            return _style(line, _CODE) if self._fence else line
        mark = fence[1]
        if not self._fence:
            self._fence = mark
        elif mark.startswith(self._fence) and not fence[2].strip():
            self._fence = ""
        else:
            return _style(line, _CODE)
        return _style(line, _DIM)

    def _start_line(self, *, is_complete: bool) -> str:
        """Remove the mark at the start of the held line, set the line's style, and return the mark as rendered."""
        self._is_line_start = False
        if is_complete and _RULE.match(self._held):
            self._held = ""
            return _style("─" * 40, _DIM)
        if found := _HEADING.match(self._held):
            self._held = self._held[found.end() :]
            self._line_style = f"{_BOLD};{_UNDERLINE}" if len(found[1]) == 1 else _BOLD
            return ""
        if found := _QUOTE.match(self._held):
            self._held = self._held[found.end() :]
            self._line_style = _DIM
            return _style("│ ", _DIM)
        if found := _BULLET.match(self._held):
            self._held = self._held[found.end() :]
            return f"{found[1]}• "
        if found := _NUMBER.match(self._held):
            self._held = self._held[found.end() :]
            return f"{found[1]} "
        return ""

    def _render_inline(self, *, is_complete: bool) -> str:
        """Render and remove the held text up to a span that is still open; at the end of a line, all of it."""
        out: list[str] = []
        held, at = self._held, 0
        while at < len(held):
            found = _OPENERS.search(held, at)
            if found is None:
                out.append(self._plain(held[at:]))
                at = len(held)
                break
            if found.start() > at:
                out.append(self._plain(held[at : found.start()]))
                at = found.start()
            is_final = is_complete or len(held) - at >= _MAX_HELD
            size, text = self._match_span(held[at : at + _MAX_HELD + 1], is_final=is_final)
            if not size:
                break
            out.append(text)
            at += size
        self._held = held[at:]
        return "".join(out)

    def _match_span(self, rest: str, *, is_final: bool) -> tuple[int, str]:
        """Return the size and the rendering of the span at the start of `rest`; size 0 if it may still be closed.

        A delimiter that closes nothing is text.
        """
        if rest[0] == "_" and self._last.isalnum():  # inside a name: snake_case
            return 1, self._plain("_")
        if found := _ESCAPED.match(rest):
            return 2, self._plain(found[1])
        if found := _LINK.match(rest):
            self._last = ")"
            return found.end(), f"{self._plain(found[1])} {_style(f'({found[2]})', _DIM)}"
        for pattern, group, style in _SPANS:
            found = pattern.match(rest)
            if found and (is_final or found.end() < len(rest)):  # the next character may extend the delimiter
                self._last = rest[found.end() - 1]
                return found.end(), _style(found[group], ";".join(filter(None, (self._line_style, style))))
        run = re.match(r"`+|\*+|_+|\[|\\", rest)
        assert run is not None
        if not is_final and (run.end() == len(rest) or not rest[run.end()].isspace()):
            return 0, ""
        return run.end(), self._plain(run[0])

    def _plain(self, text: str) -> str:
        self._last = text[-1]
        return _style(text, self._line_style)


def _style(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}{_RESET}" if style and text else text


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
        from ...net.agent.answers import Answer

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
        """Print a call as its events arrive, or its result.

        On a terminal, arguments are written piece by piece. Complete calls follow their events: they are printed only
        if no event preceded them.
        """
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
        for printer in self._texts.values():
            self._show_text(printer.break_line())
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
        from ...run.calls.plan import plan_of
        from ...run.values.results import result_code
        from ...run.values.waiting import waiting_call

        self._shown_calls = 0
        colour, sign = ("red", "✗") if result.is_error else ("green", "✓")
        if waiting_call(result) is not None or plan_of(result) is not None:
            colour, sign = "yellow", "…"
        end = self._approval_hint if result_code(result) == "needs_approval" else ""
        self._print_line(sign, colour, result.name or "", " ".join(result.text.split()), end)

    def _print_line(self, sign: str, colour: str, tool: str, text: str, end: str = "") -> None:
        self._start_line()
        text = shorten(neutralise_line(text[: 2 * _MAX_WIDTH]), _MAX_WIDTH)
        line = f"{paint(sign, colour, sys.stderr)} {neutralise_line(tool)} {text}{end}"
        wrap = _wrap_of(sys.stderr)
        print(line if wrap is None else wrap.feed(line) + wrap.flush(), file=sys.stderr)

    def _start_line(self) -> None:
        """Start a line on standard error; on a terminal, the text before it ends its line."""
        self._call_line.interrupt()
        if sys.stderr.isatty() and sys.stdout.isatty():
            self._end_text_line()


class _TextPrinter:
    """One text of the model: neutralised, and rendered on a terminal."""

    def __init__(self, *, markdown: bool) -> None:
        self._neutral = TextNeutraliser()
        self._markdown = MarkdownRenderer(StreamWrap(terminal_width())) if markdown else None

    def feed(self, text: str) -> str:
        safe = self._neutral.feed(text)
        return safe if self._markdown is None else self._markdown.feed(safe)

    def close(self) -> str:
        rest = self._neutral.close()
        return rest if self._markdown is None else self._markdown.feed(rest) + self._markdown.close()

    def break_line(self) -> str:
        return "" if self._markdown is None else self._markdown.break_line()


def _wrap_of(stream: TextIO) -> StreamWrap | None:
    """Return the wrapping of a line about a call, or None if the stream is not a terminal."""
    return StreamWrap(terminal_width(stream), hang=2, splits_words=True) if stream.isatty() else None


class _CallLine:
    """The line of the call whose arguments are being written. One call at a time has it; others get a complete line."""

    def __init__(self) -> None:
        self.key: int | None = None
        self._width = 0
        self._wrap: StreamWrap | None = None

    def open(self, key: int, name: str) -> None:
        self.key, self._width = key, 0
        self._wrap = _wrap_of(sys.stderr)
        self._print(f"{paint('→', 'blue', sys.stderr)} {reveal_line(name)} ")

    def write(self, key: int, text: str) -> None:
        """Write more argument text, up to the maximum width."""
        if key != self.key or self._width >= _MAX_WIDTH:
            return
        shown = neutralise_line(text[:_MAX_WIDTH])[: _MAX_WIDTH - self._width]
        self._width += len(shown)
        self._print(shown + ("…" if self._width >= _MAX_WIDTH else ""))

    def close(self, key: int, end: str) -> bool:
        """End the line if the call has it; return False if it has not."""
        if key != self.key:
            return False
        self.key = None
        self._print(f"{end}\n")
        return True

    def interrupt(self) -> None:
        """End the line because something else is printed; the call gets a complete line at its end."""
        if self.key is not None:
            self.key = None
            self._print("…\n")

    def _print(self, text: str) -> None:
        print(text if self._wrap is None else self._wrap.feed(text), end="", file=sys.stderr, flush=True)
