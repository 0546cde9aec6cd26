"""Statistics of an answer for accounts, metrics and the log; and the turn that the client may not return in full."""

from __future__ import annotations

import re

from ...bridge.turn_recorder import TurnRecorder
from ...bridge.turns import StoredTurn
from ...ir.events import (
    CallDelta,
    CallEnd,
    CallStart,
    Event,
    ReasoningDelta,
    ResponseEnd,
    ResponseStart,
    TextDelta,
    UsageUpdate,
)
from ...ir.parts import ToolCall
from ...ir.response import Response, Usage

__all__ = ["AnswerStats"]

_BYTES_PER_TOKEN = 4
# base64, as a whole string or after the comma of a data URL: anchored at its start, so that nothing is scanned twice
_MEDIA = re.compile(rb"""[",][A-Za-z0-9+/_-]{2048,}""")
_TOKENS_PER_MEDIA = 1000  # the approximate cost of a picture of any size
_MAX_TOKENS = 10**9  # of one answer; more is an error, which must not be charged to any account


def _estimate_tokens(request_body: bytes) -> int:
    media = [len(found.group()) for found in _MEDIA.finditer(request_body)]
    return -(-(len(request_body) - sum(media)) // _BYTES_PER_TOKEN) + len(media) * _TOKENS_PER_MEDIA


class AnswerStats:
    """Statistics of an answer, fed with its events or with the whole answer."""

    __slots__ = (
        "_open_calls",
        "_recorder",
        "abandoned",
        "calls",
        "content_bytes",
        "ended_calls",
        "id",
        "model",
        "open_call_bytes",
        "stop",
        "turn",
        "usage",
    )

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.calls: list[str] = []  # names
        self.turn: StoredTurn | None = None  # the whole turn, once it is complete
        self.stop: str | None = None
        self.id = ""
        self.model = ""
        self.content_bytes = 0  # bytes of text and arguments
        self.abandoned = False  # by the client, while the upstream was working
        self.ended_calls = 0
        self.open_call_bytes = 0  # bytes of arguments of calls that have not ended
        self._open_calls: dict[int, int] = {}  # the same, by key
        self._recorder = TurnRecorder()

    def add_response(self, response: Response) -> None:
        """Add a whole answer. Its size only matters for an estimate, so it is measured only if no usage is reported."""
        self.usage, self.id, self.model = response.usage, response.id, response.model
        self.stop = None if response.stop is None else response.stop.reason
        if self.reported_usage() is None:
            self.content_bytes = sum(len(getattr(part, "text", "")) for part in response.parts)
        self.calls += [part.name for part in response.parts if isinstance(part, ToolCall)]
        self.turn = StoredTurn(response.parts)

    def add_event(self, event: Event) -> None:
        """Add an event of a stream. Content deltas are the most frequent events, so they are checked first."""
        kind = type(event)
        if kind is CallDelta:
            self._add_arguments(event)  # type: ignore[arg-type]
            return
        if kind is TextDelta or kind is ReasoningDelta:
            self.content_bytes += len(event.escaped)  # type: ignore[union-attr]
        elif isinstance(event, CallStart):
            self.calls.append(event.name)
        elif isinstance(event, CallEnd):
            self.ended_calls += 1
            self.open_call_bytes -= self._open_calls.pop(event.key, 0)
        elif isinstance(event, UsageUpdate):
            self.usage = event.usage
        elif isinstance(event, ResponseStart):
            self.id, self.model = event.id, event.model
        elif isinstance(event, ResponseEnd):
            if event.stops and event.stops[0] is not None:
                self.stop = event.stops[0].reason
            self.turn = StoredTurn(self._recorder.parts(event))
            return
        self._recorder.feed(event)

    def _add_arguments(self, delta: CallDelta) -> None:
        size = len(delta.escaped)
        self.content_bytes += size
        self.open_call_bytes += size
        self._open_calls[delta.key] = self._open_calls.get(delta.key, 0) + size

    def reported_usage(self) -> Usage | None:
        """Return the usage that the upstream reports, if it is plausible."""
        usage = self.usage
        if usage is None or not usage.total:
            return None
        counts = (usage.input, usage.output, usage.cached, usage.reasoning)
        return usage if all(0 <= (count or 0) <= _MAX_TOKENS for count in counts) else None

    def estimate(self, request_body: bytes) -> Usage | None:
        """Estimate the usage if the upstream reports none: from the request and the answer. None without an answer."""
        if not self.content_bytes and not self.abandoned:
            return None
        return Usage(_estimate_tokens(request_body), -(-self.content_bytes // _BYTES_PER_TOKEN))
