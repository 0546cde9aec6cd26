"""Convert the events of an answer for a client on another wire: restore them, and report their losses.

A whole answer has the same result and the same losses as the stream of its events.
"""

from __future__ import annotations

from ..ir.events import CallDelta, Event, ReasoningDelta, TextDelta
from ..ir.losses import Losses
from ..ir.response import Fault, Response
from ..wire.protocol import Wire
from .exchange import Exchange
from .report_answer import AnswerReporter

__all__ = ["DELTAS", "AnswerConverter", "convert_response"]

DELTAS = frozenset({TextDelta, ReasoningDelta, CallDelta})


class AnswerConverter:
    """Convert the events of one answer for a client of `writer`. After a fault it returns no more events."""

    __slots__ = ("_reporter", "_restorer", "has_started", "restore_delta")

    def __init__(self, exchange: Exchange, writer: Wire, losses: Losses) -> None:
        self._restorer = exchange.make_restorer(losses, writer.capabilities)
        self._reporter = AnswerReporter(writer.name, losses)
        self.restore_delta = self._restorer.feed
        """Like `feed`, for deltas only, which have no losses."""
        self.has_started = False

    @property
    def fault(self) -> Fault | None:
        """The fault of an answer that must not reach the client, because one of its calls is malformed."""
        return self._restorer.fault

    def feed(self, event: Event) -> tuple[Event, ...]:
        """Return the client's events for one event of the provider."""
        if type(event) in DELTAS:
            return self.restore_delta(event)
        if self.fault is not None:
            return ()
        self.has_started = True
        events = self._restorer.feed(self._reporter.report_event(event))
        if self._restorer.fault is not None:
            self._reporter.report_fault()
        return events


def convert_response(response: Response, exchange: Exchange, writer: Wire, losses: Losses) -> Response:
    """Convert a whole answer."""
    reporter = AnswerReporter(writer.name, losses)
    converted = exchange.restore(reporter.report_response(response), losses, writer.capabilities)
    if converted.fault is not None:
        reporter.report_fault()
    return converted
