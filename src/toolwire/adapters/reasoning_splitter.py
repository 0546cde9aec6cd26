"""Split a turn into its reasoning and the text after it, for servers that read calls with a separate parser."""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.events import CallStart, Event, ReasoningDelta, TextStart
from ..text.engine.format import Format, Parser
from ..text.engine.offered_tools import OfferedTools

__all__ = ["ReasoningSplitter"]


class ReasoningSplitter:
    """Return the reasoning at the start of a turn, and then the text after it, byte for byte.

    The whole turn is parsed, because a call also ends the reasoning. Such a call is passed on at the end of the turn: until
    then the closing tag may follow, and show that the call was a draft. `opened`: the prompt may have opened the reasoning;
    an answer that begins with the opening tag opens it itself.
    """

    def __init__(self, form: Format, *, opened: bool) -> None:
        self._form = form
        self._opened = opened
        self._parser: Parser | None = None
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self.ended = not form.reasoning  # the reasoning: text or a call follows it

    def feed(self, text: str) -> tuple[str, str]:
        """Read more text; return more reasoning, and more text after it."""
        if self.ended:
            return "", text
        self._text.append(text)
        if self._parser is None:
            text = "".join(self._text)
            if self._opened and self._may_begin_with_tag(text):
                return "", ""
            self._parser = self._start(text)
        return self._split(self._parser.feed(text))

    def close(self) -> tuple[str, str]:
        """End the turn."""
        first = "", ""
        if self._parser is None:
            text = "".join(self._text)
            self._parser = self._start(text)
            first = self._split(self._parser.feed(text))
        last = self._split(self._parser.close())
        return first[0] + last[0], first[1] + last[1]

    def _may_begin_with_tag(self, text: str) -> bool:
        """Return whether more text can complete an opening tag at the start."""
        start = text.lstrip()
        return any(opening.startswith(start) and opening != start for opening, _ in self._form.reasoning)

    def _start(self, text: str) -> Parser:
        begins_with_tag = any(opening and text.lstrip().startswith(opening) for opening, _ in self._form.reasoning)
        self._opened = self._opened and not begins_with_tag
        return self._form.parser(reasoning=self._opened)

    def _split(self, events: Iterable[Event]) -> tuple[str, str]:
        if self.ended:
            return "", ""
        more: list[str] = []
        for event in events:
            if isinstance(event, ReasoningDelta):
                more.append(event.text)
            elif isinstance(event, TextStart | CallStart):
                self.ended = True
                break
        self._reasoning += more
        return "".join(more), self._rest() if self.ended else ""

    def _rest(self) -> str:
        """Return the text after the reasoning and its closing tag."""
        text, reasoning = "".join(self._text), "".join(self._reasoning)
        start, closing = self._bounds(text)
        if start is None:
            return text
        end = start + len(reasoning)
        if not text.startswith(reasoning, start):
            end = self._find_end(text, end, closing)
        if text.startswith(closing, end):
            end += len(closing)
        return text[end:]

    def _find_end(self, text: str, at: int, closing: str) -> int:
        """Return the position of the tag that ends reasoning from which the parser removed marks, after `at`."""
        tags = (closing, *self._form.ends_reasoning, *self._form.calls.openers(OfferedTools(())))
        found = [position for tag in tags if (position := text.find(tag, at)) >= 0]
        return min(found, default=at)

    def _bounds(self, text: str) -> tuple[int | None, str]:
        """Return the start of the reasoning in the text and its closing tag; None if the text begins without it."""
        if self._opened:
            return 0, self._form.reasoning[0][1]
        begin = len(text) - len(text.lstrip())
        for opening, closing in self._form.reasoning:
            if opening and text.startswith(opening, begin):
                return begin + len(opening), closing
        return None, ""
