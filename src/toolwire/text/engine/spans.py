"""Record where the calls and the reasoning of a turn are in its text.

Positions come from the reader, which counts the characters of the whole text, so they do not depend on the chunking.
Styles mark the notation of each call: `begin_call`, then `mark_name`, `begin_arguments` and `end_arguments` in any order.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from ...ir.value import Value
from .reader import Reader

SpanKind: TypeAlias = Literal["call", "name", "arguments", "reasoning"]


class Span(Value, frozen=True):
    """A region of the parsed text: `text[span.start : span.end]`. `part` is the number of its part in `Parsed.parts`.

    `call` is a call with its markup; markup around several calls belongs to the first and to the last of them. `name` is
    the name without quotes. `arguments` is the JSON value, or everything from the first to the last argument. `reasoning`
    is the text between the markers.
    """

    kind: SpanKind
    start: int
    end: int
    part: int


class SpanMarks:
    """The marks of a turn whose spans are not recorded."""

    __slots__ = ()

    def open_call(self, start: int) -> None:
        """Note the start of markup that may open calls."""

    def begin_call(self, length: int = 0) -> None:
        """Note that the notation of a call begins `length` characters before this position."""

    def extend_call(self) -> None:
        """Note that the markup of the last call extends to this position."""

    def close_calls(self) -> None:
        """Note that the markup which was opened ends here. Text that was emitted after the last call is excluded."""

    def mark_name(self, start: int, end: int) -> None:
        """Note the position of the name."""

    def mark_word(self, word: str, after: str = "") -> None:
        """Note the name in a `word` that was just read, with the text `after` it."""

    def begin_arguments(self, length: int = 0) -> None:
        """Note that an argument, or all of them, begin `length` characters before this position."""

    def end_arguments(self, length: int = 0) -> None:
        """Note that the arguments so far end `length` characters before this position."""


NO_SPANS = SpanMarks()


class _CallRegion:
    """The positions of one call; `part` is -1 until the call starts."""

    __slots__ = ("arguments_end", "arguments_start", "end", "name", "part", "start")

    def __init__(self, start: int) -> None:
        self.part = -1
        self.start = start
        self.end = start
        self.name: tuple[int, int] | None = None
        self.arguments_start = -1
        self.arguments_end = -1  # -1 while an argument is being read

    def spans(self) -> list[Span]:
        found = [Span("call", self.start, self.end, self.part)]
        if self.name is not None:
            found.append(Span("name", *self.name, self.part))
        if 0 <= self.arguments_start < self.arguments_end:
            found.append(Span("arguments", self.arguments_start, self.arguments_end, self.part))
        return found


class _ReasoningRegion:
    """The positions of one part of reasoning."""

    __slots__ = ("end", "part", "start")

    def __init__(self, part: int, start: int, end: int) -> None:
        self.part = part
        self.start = start
        self.end = end


class SpanRecorder(SpanMarks):
    """Record the spans of a turn."""

    __slots__ = ("_call", "_calls", "_reader", "_reasoning", "_text")

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._call = _CallRegion(0)
        self._calls: list[_CallRegion] = []
        self._reasoning: list[_ReasoningRegion] = []
        self._text = 0  # length of the text since the last call

    def spans(self) -> tuple[Span, ...]:
        """Return the spans so far, in the order of the text; a call comes before its name and its arguments."""
        found = [span for call in self._calls for span in call.spans()]
        found += [Span("reasoning", region.start, region.end, region.part) for region in self._reasoning]
        return tuple(sorted(found, key=lambda span: (span.start, -span.end)))

    def checkpoint(self) -> tuple[int, int]:
        return len(self._calls), len(self._reasoning)

    def drop(self, checkpoint: tuple[int, int]) -> None:
        """Drop the spans after a checkpoint."""
        calls, reasoning = checkpoint
        del self._calls[calls:]
        del self._reasoning[reasoning:]

    def open_call(self, start: int) -> None:
        self._call = _CallRegion(start)

    def begin_call(self, length: int = 0) -> None:
        if self._call.part >= 0:  # the markup that was opened belongs to the first call after it
            self._call = _CallRegion(self._reader.position - length)

    def start_call(self, part: int) -> None:
        """Note that the parser recognised the call, as part number `part`."""
        if self._call.part >= 0:
            self._call = _CallRegion(self._call.end)
        self._call.part = part
        self._calls.append(self._call)
        self._text = 0

    def end_call(self, position: int) -> None:
        """End the call at `position`, and the arguments if they are not complete."""
        call = self._call
        call.end = position
        if call.arguments_end < 0:
            call.arguments_end = position
        self._text = 0

    def extend_call(self) -> None:
        if self._call.part >= 0:
            self._call.end = self._reader.position

    def close_calls(self) -> None:
        self._call.end = max(self._call.end, self._reader.position - self._text)

    def mark_name(self, start: int, end: int) -> None:
        self._call.name = (start, end)

    def mark_word(self, word: str, after: str = "") -> None:
        end = self._reader.position - len(after) - (len(word) - len(word.rstrip(" \t\r\n`")))
        self._call.name = (end - len(word.strip(" \t\r\n`")), end)

    def begin_arguments(self, length: int = 0) -> None:
        if self._call.arguments_start < 0:
            self._call.arguments_start = self._reader.position - length
        self._call.arguments_end = -1

    def end_arguments(self, length: int = 0) -> None:
        self._call.arguments_end = self._reader.position - length

    def add_text(self, length: int) -> None:
        self._text += length

    def add_reasoning(self, part: int, length: int) -> None:
        """Note that the last `length` characters are reasoning, in part number `part`."""
        end = self._reader.position
        last = self._reasoning[-1] if self._reasoning else None
        if last is None or last.part != part:
            self._reasoning.append(_ReasoningRegion(part, end - length, end))
        else:
            last.start = min(last.start, end - length)
            last.end = end
