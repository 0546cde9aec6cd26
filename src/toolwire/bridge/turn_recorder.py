"""Collect the turn of a streamed answer, in memory proportional to its text."""

from __future__ import annotations

from ..ir.events import (
    CallEnd,
    CallStart,
    Event,
    PartStart,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    ResponseEnd,
    TextDelta,
    TextEnd,
    TextStart,
    WholePart,
)
from ..ir.folding import Folder
from ..ir.parts import Part
from .turns import MAX_TURN_BYTES

__all__ = ["TurnRecorder"]

_DELTAS = (TextDelta, ReasoningDelta)
_WHOLE_ITEMS = (CallStart, PartStart, WholePart)


class TurnRecorder:
    """Fold the events of one answer. Nothing is kept of one with more text and arguments than `max_bytes`."""

    __slots__ = ("_buffers", "_folder", "_max_bytes", "_size", "is_full")

    def __init__(self, max_bytes: int = MAX_TURN_BYTES) -> None:
        self._max_bytes = max_bytes
        self.is_full = False
        self._folder = Folder()
        self._buffers: dict[int, dict[int | None, bytearray]] = {}  # by key and section: one buffer for all deltas
        self._size = 0

    def feed(self, event: Event) -> None:
        """Add an event; deltas of calls are ignored, because the end of a call has its arguments."""
        if isinstance(event, _DELTAS):
            self.add_content(event.key, event.section, event.escaped)
        elif self.is_full:
            return
        elif isinstance(event, CallEnd):
            self._add_size(len(event.raw or ""))
            if not self.is_full:
                self._folder.feed(event)
        elif isinstance(event, _WHOLE_ITEMS):
            self._folder.feed(event)
        elif isinstance(event, (TextStart, ReasoningStart)):
            self._buffers[event.key] = {}
            self._folder.feed(event)
        elif isinstance(event, (TextEnd, ReasoningEnd)):
            self._flush(event)
            self._folder.feed(event)

    def add_content(self, key: int, section: int | None, escaped: bytes) -> None:
        """Add the content of one or more deltas of a text, or of a section of reasoning."""
        sections = self._buffers.get(key)
        if sections is None:
            return
        buffer = sections.get(section)
        if buffer is None:
            buffer = sections[section] = bytearray()
        buffer += escaped
        self._add_size(len(escaped))

    def parts(self, end: ResponseEnd) -> tuple[Part, ...]:
        """Return the parts of the first choice; nothing if the answer was too long."""
        if self.is_full:
            return ()
        self._folder.feed(end)
        return self._folder.parts(0)

    def _add_size(self, size: int) -> None:
        self._size += size
        if self._size > self._max_bytes:
            self.is_full = True
            self._buffers.clear()
            self._folder = Folder()

    def _flush(self, end: TextEnd | ReasoningEnd) -> None:
        for section, buffer in self._buffers.pop(end.key, {}).items():
            if isinstance(end, TextEnd):
                self._folder.feed(TextDelta(end.key, bytes(buffer)))
            else:
                self._folder.feed(ReasoningDelta(end.key, bytes(buffer), section))
