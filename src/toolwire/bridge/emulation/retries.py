"""Ask once more, inside of a stream, if no call of an emulated answer can be parsed.

The client has one response: the text of the rejected answer before its first call, then the events of the retry. A
call is held back until it is complete, because emitted events are never retracted. After the first complete call,
nothing is held: a retry would run that call twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from ...ir.events import (
    CallEnd,
    CallStart,
    Event,
    ReasoningEnd,
    ReasoningStart,
    ResponseEnd,
    ResponseStart,
    StreamFault,
    TextDelta,
    TextEnd,
    TextStart,
    UsageUpdate,
)
from ...ir.parts import Text
from ...ir.request import Request
from ...ir.response import Response, Stop, Usage, add_usage
from ...ir.text import unescape
from .answers import AnswerReader
from .requests import Emulation

_KEY_SPACE = 500_000  # keys of the rejected answer; the keys of the retry follow them


class RejectedAnswer(NamedTuple):
    """An answer without a usable call, and its problem. The request to send instead is made later: it may be large."""

    emulation: Emulation
    response: Response
    problem: str

    @property
    def usage(self) -> Usage | None:
        return self.response.usage

    def make_retry(self) -> Emulation:
        """Return the request to the same model, with the problem."""
        return self.emulation.make_retry(self.response, self.problem)

    def make_repair_request(self) -> Request:
        """Return the request to another model, with native tools."""
        return self.emulation.make_repair_request(self.response)


class RejectableAnswer:
    """Reads the events of an emulated answer. If it is rejected, `rejected` is set, and no end is emitted."""

    def __init__(self, emulation: Emulation, reader: AnswerReader) -> None:
        """Create the reader; the answer to a retry is final, so nothing of it is held."""
        self.rejected: RejectedAnswer | None = None
        self._emulation = emulation
        self._reader = reader
        self._text: list[bytes] = []  # of the first choice, escaped
        self._text_keys: set[int] = set()
        self._usage: Usage | None = None
        self._stop: Stop | None = None  # of the model's own answer
        self._held: list[Event] = []
        self._open: dict[int, Event] = {}  # the ends of emitted items that are still open, by key
        self._is_final = not emulation.can_retry

    @property
    def should_stop(self) -> bool:
        return self._reader.should_stop

    def feed(self, event: Event) -> list[Event]:
        """Return the events for `event` that can be emitted now; collect text, usage and stop reason for a retry."""
        if self._is_final:
            return self._reader.feed(event)
        if isinstance(event, TextDelta):
            if event.key in self._text_keys:
                self._text.append(event.escaped)
        elif isinstance(event, TextStart):
            if event.choice == 0 and not event.refusal:
                self._text_keys.add(event.key)
        elif isinstance(event, UsageUpdate):
            self._usage = event.usage
        elif isinstance(event, ResponseEnd) and event.stops:
            self._stop = event.stops[0]
        return self._hold(self._reader.feed(event))

    def close(self) -> list[Event]:
        """End a stream that was aborted because of `should_stop`."""
        return self._reader.close() if self._is_final else self._hold(self._reader.close())

    def _hold(self, events: Iterable[Event]) -> list[Event]:
        """Return the events that can be emitted now.

        From the first call or problem on, events are held until a call is complete, the stream fails or the answer
        ends.
        """
        emitted: list[Event] = []
        for event in events:
            if isinstance(event, ResponseEnd) and not self._is_final:
                return [*emitted, *self._decide(event)]
            if isinstance(event, StreamFault) or (isinstance(event, CallEnd) and event.state == "complete"):
                self._is_final = True
            if not self._is_final and (self._held or isinstance(event, CallStart) or self._reader.has_problem):
                self._held.append(event)
                continue
            emitted += [*self._held, event]
            self._held = []
            self._note_open(event)
        return emitted

    def _decide(self, end: ResponseEnd) -> list[Event]:
        """Accept the answer at its end and return the held events, or set `rejected` and return ends of open items."""
        self._is_final = True
        problem = self._emulation.problem_without_call(self._reader, self._stop)
        if problem is None:
            return [*self._held, end]
        response = Response(parts=(Text(unescape(b"".join(self._text))),), usage=self._usage)
        self.rejected = RejectedAnswer(self._emulation, response, problem)
        closing = {event.key: event for event in self._held if isinstance(event, (TextEnd, ReasoningEnd))}
        events = [closing.get(key, event) for key, event in self._open.items()]
        return events if self._usage is None else [*events, UsageUpdate(self._usage)]

    def _note_open(self, event: Event) -> None:
        if isinstance(event, TextStart):
            self._open[event.key] = TextEnd(event.key)
        elif isinstance(event, ReasoningStart):
            self._open[event.key] = ReasoningEnd(event.key)
        elif isinstance(event, (TextEnd, ReasoningEnd)):
            self._open.pop(event.key, None)


def reject_answer(emulation: Emulation, response: Response) -> RejectedAnswer | None:
    """Reject a whole answer whose calls cannot be parsed, at most once; None if it is accepted."""
    problem = emulation.problem(response) if emulation.can_retry else None
    return None if problem is None else RejectedAnswer(emulation, response, problem)


class AnswerContinuation:
    """Appends the events of a retry to the rejected answer's, as one response with the usage of both.

    `is_started`: events of the rejected answer were sent, so the client gets no second start.
    """

    def __init__(self, usage: Usage | None, *, is_started: bool = True) -> None:
        self.is_started = is_started
        self._spent_usage = usage

    def feed(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yield the events for the client: no second start, keys after the rejected answer's, and the usage of both."""
        for event in events:
            key = getattr(event, "key", None)
            if isinstance(event, UsageUpdate):
                yield UsageUpdate(add_usage(self._spent_usage, event.usage) or event.usage)
            elif not self.is_started:
                yield event
            elif not isinstance(event, ResponseStart):
                yield event if key is None else replace(event, key=key + _KEY_SPACE)
