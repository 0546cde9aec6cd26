"""The statistics of one answer, which also keep the turn that the client may not return in full."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from operator import attrgetter
from typing import Any

from msgspec import Struct

from ...bridge.conversation.turns import StoredTurn, TurnRecorder
from ...ir.events import (
    CallDelta,
    CallEnd,
    CallStart,
    Event,
    PartStart,
    ReasoningDelta,
    ResponseEnd,
    ResponseStart,
    TextDelta,
    UsageUpdate,
    WholePart,
)
from ...ir.parts import ToolCall
from ...ir.response import Response, Usage
from ...wire.documents import AnswerSummary
from ..request.body import BYTES_PER_TOKEN, RequestSize, estimate_tokens, is_plausible

_get_item = attrgetter("__class__", "key", "section")
_get_escaped = attrgetter("escaped")


class AnswerStats(Struct, eq=False):
    """Statistics of an answer, fed with its events or with the whole answer.

    A stream may append its content deltas to `new_deltas` instead of calling `add_event` for each: they are the most
    frequent events, and are counted together.
    """

    usage: Usage | None = None
    calls: list[str] = []  # names
    turn: StoredTurn | None = None  # the whole turn, once it is complete
    stop: str | None = None
    id: str = ""
    model: str = ""
    abandoned: bool = False  # by the client, while the upstream was working
    ended_calls: int = 0
    new_deltas: list[Event] = []  # content deltas that are not counted yet
    has_part: bool = False  # a part without deltas has begun, such as a picture or a search of the provider
    _content_bytes: int = 0
    _open_call_bytes: int = 0
    _open_calls: dict[int, int] = {}  # the same, by key
    _recorder: TurnRecorder | None = None  # of a stream
    _plausible_usage: Usage | None = None  # the last one that was checked successfully

    @property
    def content_bytes(self) -> int:
        """The bytes of text and arguments."""
        if self.new_deltas:
            self._count_deltas()
        return self._content_bytes

    @property
    def has_content(self) -> bool:
        """True if the model has produced something: start events and empty deltas are no content."""
        return bool(self.content_bytes or self.calls or self.has_part)

    @property
    def open_call_bytes(self) -> int:
        """The bytes of arguments of calls that have not ended."""
        if self.new_deltas:
            self._count_deltas()
        return self._open_call_bytes

    def add_response(self, response: Response) -> None:
        """Add a whole answer. Its size only matters for an estimate, so it is measured only if no usage is reported."""
        parts, stop = response.parts, response.stop
        self.usage, self.id, self.model = response.usage, response.id, response.model
        self.stop = None if stop is None else stop.reason
        if self.reported_usage() is None:
            self._content_bytes = sum(len(getattr(part, "text", "")) for part in parts)
        self.calls += [part.name for part in parts if isinstance(part, ToolCall)]
        self.turn = StoredTurn(parts)

    def add_summary(self, summary: AnswerSummary) -> None:
        """Add a whole answer of which only a summary was read."""
        self.usage, self.id, self.model, self.stop = summary.usage, summary.id, summary.model, summary.stop
        self.calls += summary.calls

    def add_event(self, event: Event) -> None:
        """Add an event of a stream. Content deltas are counted later, together."""
        if isinstance(event, (TextDelta, ReasoningDelta, CallDelta)):
            self.new_deltas.append(event)
            return
        if self.new_deltas:
            self._count_deltas()
        add = _STEPS.get(type(event), AnswerStats._record)
        add(self, event)

    def _count_deltas(self) -> None:
        """Count and clear the new deltas, in runs of an item. A stream that is read event by event has one at a time."""
        deltas = self.new_deltas
        if len(deltas) == 1:
            self._count_content(*_get_item(deltas[0]), _get_escaped(deltas[0]))
        else:
            for item, run in groupby(deltas, _get_item):
                self._count_content(*item, b"".join(map(_get_escaped, run)))
        deltas.clear()

    def _count_content(self, kind: type, key: int, section: int | None, content: bytes) -> None:
        """Count content of an item, as arguments of an open call or, for text and reasoning, in the recorded turn."""
        size = len(content)
        self._content_bytes += size
        if kind is CallDelta:
            self._open_call_bytes += size
            self._open_calls[key] = self._open_calls.get(key, 0) + size
        else:
            self._open_recorder().add_content(key, section, content)

    def _start_response(self, event: ResponseStart) -> None:
        self.id, self.model = event.id, event.model

    def _update_usage(self, event: UsageUpdate) -> None:
        self.usage = event.usage

    def _start_call(self, event: CallStart) -> None:
        self.calls.append(event.name)
        self._record(event)

    def _end_call(self, event: CallEnd) -> None:
        self.ended_calls += 1
        self._open_call_bytes -= self._open_calls.pop(event.key, 0)
        self._record(event)

    def _start_part(self, event: PartStart | WholePart) -> None:
        self.has_part = True
        self._record(event)

    def _end_response(self, event: ResponseEnd) -> None:
        if event.stops and event.stops[0] is not None:
            self.stop = event.stops[0].reason
        self.turn = StoredTurn(self._open_recorder().parts(event))

    def _record(self, event: Event) -> None:
        self._open_recorder().feed(event)

    def _open_recorder(self) -> TurnRecorder:
        if self._recorder is None:
            self._recorder = TurnRecorder()
        return self._recorder

    def reported_usage(self) -> Usage | None:
        """Return the usage that the upstream reports, or None if it is missing, zero, negative or far too large."""
        usage = self.usage
        if usage is None or usage is self._plausible_usage:
            return usage
        if not is_plausible(usage):
            return None
        self._plausible_usage = usage
        return usage

    def estimate(self, request: bytes | RequestSize) -> Usage | None:
        """Estimate the usage from the sizes. Return None without any content, unless the client left before it."""
        if not self.content_bytes and not self.abandoned:
            return None
        tokens = estimate_tokens(request) if isinstance(request, bytes) else request.tokens
        return Usage(tokens, -(-self.content_bytes // BYTES_PER_TOKEN))


_STEPS: dict[type, Callable[[AnswerStats, Any], None]] = {
    ResponseStart: AnswerStats._start_response,
    UsageUpdate: AnswerStats._update_usage,
    CallStart: AnswerStats._start_call,
    CallEnd: AnswerStats._end_call,
    PartStart: AnswerStats._start_part,
    WholePart: AnswerStats._start_part,
    ResponseEnd: AnswerStats._end_response,
}
