"""Collect the turn of a streamed answer, in memory proportional to its text."""

from __future__ import annotations

from ..ir.events import (
    CallDelta,
    CallEnd,
    Event,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    ResponseEnd,
    TextDelta,
    TextEnd,
    TextStart,
)
from ..ir.folding import Folder
from ..ir.parts import Part
from .turns import MAX_TURN_BYTES

__all__ = ["TurnRecorder"]


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
        kind = type(event)
        if kind is TextDelta or kind is ReasoningDelta:
            self._append(event)  # type: ignore[arg-type]
        elif kind is not CallDelta and not self.is_full:
            if isinstance(event, (TextStart, ReasoningStart)):
                self._buffers[event.key] = {}
            elif isinstance(event, (TextEnd, ReasoningEnd)):
                self._flush(event)
            elif isinstance(event, CallEnd):
                self._add_size(len(event.raw or ""))
            if not self.is_full:
                self._folder.feed(event)

    def parts(self, end: ResponseEnd) -> tuple[Part, ...]:
        """Return the parts of the first choice; nothing if the answer was too long."""
        if self.is_full:
            return ()
        self._folder.feed(end)
        return self._folder.response().parts

    def _append(self, event: TextDelta | ReasoningDelta) -> None:
        sections = self._buffers.get(event.key)
        if sections is None:
            return
        section = event.section if isinstance(event, ReasoningDelta) else None
        buffer = sections.get(section)
        if buffer is None:
            buffer = sections[section] = bytearray()
        buffer += event.escaped
        self._add_size(len(event.escaped))

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
