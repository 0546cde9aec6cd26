r"""Render Markdown on a terminal while it arrives.

    renderer = MarkdownRenderer()
    sys.stdout.write(renderer.feed("# Ti"))     # a start of a line that is not decided yet is held back
    sys.stdout.write(renderer.feed("tle\n"))
    sys.stdout.write(renderer.close())

Headings, bold, italic, code, links, lists, quotations, rules and code blocks are styled; everything else is written as
it is. The input must be neutralised: the output then contains no escape sequence but those of this module. Each styled
span ends with a reset, so that no style remains after an interrupted answer. At most `_MAX_HELD` characters are held
back, so that the cost per character and the memory are bounded.

Separate because it knows nothing of agents: text in, text out.
"""

from __future__ import annotations

import re

__all__ = ["MarkdownRenderer"]

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

    def __init__(self) -> None:
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
        return self._feed_line("", is_end=True) if self._held else ""

    def _feed_line(self, piece: str, *, is_end: bool = False) -> str:
        """Render a piece of one line; a line break or `is_end` ends it."""
        ends = piece.endswith("\n")
        self._held += piece.removesuffix("\n")
        is_complete = ends or is_end
        out = ""
        if self._fence or (self._is_line_start and self._may_be_fence()):
            if not is_complete and len(self._held) < _MAX_HELD:
                return ""  # code is written by the line, because a line may close the block
            out = self._render_code_line()
        else:
            if self._is_line_start:
                if not is_complete and _UNDECIDED.match(self._held) and len(self._held) < _MAX_HELD:
                    return ""
                out = self._start_line(is_complete=is_complete)
            out += self._render_inline(is_complete=is_complete)
        if ends:
            self._is_line_start, self._line_style, self._last = True, "", "\n"
            return out + "\n"
        return out

    def _may_be_fence(self) -> bool:
        return self._held.lstrip(" ").startswith(("```", "~~~"))

    def _render_code_line(self) -> str:
        """Write a line of a code block, or the delimiter that opens or closes the block."""
        line, self._held = self._held, ""
        found = _FENCE.match(line) if self._is_line_start else None
        self._is_line_start = False
        if found is None:
            return _style(line, _CODE) if self._fence else line
        mark = found[1]
        if not self._fence:
            self._fence = mark
        elif mark.startswith(self._fence) and not found[2].strip():
            self._fence = ""
        else:
            return _style(line, _CODE)
        return _style(line, _DIM)

    def _start_line(self, *, is_complete: bool) -> str:
        """Write the mark at the start of a line, and set the style of the line."""
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
        """Write the held text up to a span that is still open."""
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
        """Return the size and the rendering of the span at the start of `rest`; size 0 if it may still be closed."""
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
                return found.end(), _style(found[group], _join_styles(self._line_style, style))
        run = re.match(r"`+|\*+|_+|\[|\\", rest)
        assert run is not None
        if not is_final and (run.end() == len(rest) or not rest[run.end()].isspace()):
            return 0, ""
        return run.end(), self._plain(run[0])

    def _plain(self, text: str) -> str:
        self._last = text[-1]
        return _style(text, self._line_style)


def _join_styles(*styles: str) -> str:
    return ";".join(style for style in styles if style)


def _style(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}{_RESET}" if style and text else text
