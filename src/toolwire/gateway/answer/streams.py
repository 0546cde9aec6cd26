"""A stream in transit: the upstream's bytes in, the client's bytes out.

A broken stream ends in an error in the client's own protocol, never in a normal end; `fault` is then set. A stream that
breaks after the end of the answer, where only a token count and the final marker can be missing, is complete: a retry
would be billed, and would run its calls, a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import time
from typing import Protocol

from msgspec.structs import replace

from ...bridge.emulate_retry import AnswerContinuation, RejectedAnswer
from ...bridge.report_answer import AnswerReporter
from ...ir.errors import ToolwireError
from ...ir.events import CallDelta, Event, ResponseEnd, ResponseStart, StreamFault, TextDelta, WholePart
from ...ir.request import Request
from ...ir.response import Fault
from ...net.endpoint_request import EndpointRequest
from ...net.forwarded_stream import ForwardedStream, check_choices_ended, stream_fault
from ...wire.protocol import StreamEncoder, Wire
from .answer_stats import AnswerStats

__all__ = ["PassThroughStream", "Stream", "TranslatedStream"]

_CONTENT_DELTAS = frozenset({TextDelta, CallDelta})  # no step and no loss report needs them


class Stream(Protocol):
    """A stream in transit. Its two implementations are below."""

    @property
    def fault(self) -> Fault | None: ...
    @property
    def ended(self) -> bool:
        """True if the answer is complete."""
        ...

    @property
    def should_stop(self) -> bool:
        """True if further data is irrelevant, so that the upstream can be released."""
        ...

    @property
    def rejected(self) -> RejectedAnswer | None:
        """Set at the end of an answer whose calls cannot be parsed: another request continues the client's stream."""
        ...

    @property
    def content_bytes(self) -> int:
        """The bytes of the answer so far: of texts, arguments and whole parts."""
        ...

    def feed(self, data: bytes) -> bytes:
        """Convert data to whole events, so that other events may be inserted between two results."""
        ...

    def close(self) -> bytes: ...

    def fail(self, fault: Fault) -> bytes:
        """Encode the error event for a fault in transit."""
        ...


class PassThroughStream(ForwardedStream):
    """A stream between equal wires, with statistics."""

    should_stop = False
    rejected: RejectedAnswer | None = None

    def __init__(self, wire: Wire, request: Request | None, stats: AnswerStats, secrets: tuple[str, ...] = ()) -> None:
        super().__init__(wire, request, stats.add_event, secrets)
        self._stats = stats

    @property
    def content_bytes(self) -> int:
        return self._stats.content_bytes + self.part_bytes


class TranslatedStream:
    """One wire in, another out. Every event goes through `steps`, each of which returns zero or more events."""

    def __init__(
        self,
        endpoint_request: EndpointRequest,
        wire: Wire,
        encoder: StreamEncoder,
        stats: AnswerStats,
        steps: Sequence[Callable[[Event], list[Event]]],
        *,
        is_first: bool,
        choices: int = 1,
        continuation: AnswerContinuation | None = None,
    ) -> None:
        """Create the stream.

        `choices` is the number of requested answers, if the upstream has a final marker. `continuation`: this answer
        replaces a rejected one.
        """
        self.fault: Fault | None = None
        self.ended = False
        self._endpoint_request = endpoint_request
        self._answer_stream = endpoint_request.open_stream(continuation)
        self._encoder = encoder
        self._reporter = AnswerReporter(wire.name, endpoint_request.losses)
        self._adds_time = wire.capabilities.timestamps
        self._stats = stats
        self._steps = steps
        self._started = not is_first  # the client has got its ResponseStart
        self._choices = choices
        self._earlier_bytes = stats.content_bytes  # of earlier turns of the same answer
        self._other_bytes = 0  # of whole parts, and of events that the client does not get

    @property
    def content_bytes(self) -> int:
        return self._stats.content_bytes - self._earlier_bytes + self._other_bytes

    @property
    def should_stop(self) -> bool:
        return self._answer_stream.should_stop

    @property
    def rejected(self) -> RejectedAnswer | None:
        return self._answer_stream.rejected

    def feed(self, data: bytes) -> bytes:
        """Convert data to the client's events; a decoding error becomes an error event."""
        if self.fault is not None:
            return b""
        try:
            return self._write(self._answer_stream.feed(data))
        except ToolwireError as error:
            return self.fail(stream_fault(error))

    def close(self) -> bytes:
        """End the stream; one that is truncated, or has too few answers, ends in an error event."""
        if self.fault is not None or self.ended or self.rejected is not None:
            return b""
        try:
            events = list(self._answer_stream.close())
            check_choices_ended(events, self._choices)
            return self._write(events)
        except ToolwireError as error:
            return self.fail(stream_fault(error))

    def _write(self, events: Iterable[Event]) -> bytes:
        """Encode events for the client; an error ends the output with an error event."""
        out: list[bytes] = []
        try:
            self._write_each(events, out)
        except ToolwireError as error:  # keep the output before it
            out.append(self.fail(stream_fault(error)))
        return b"".join(out)

    def _write_each(self, events: Iterable[Event], out: list[bytes]) -> None:
        """Encode events into `out`.

        Content deltas skip the steps if there are none: they are the most frequent events.
        """
        encode, add_event, has_no_steps = self._encoder.feed, self._stats.add_event, not self._steps
        for event in events:
            if has_no_steps and type(event) in _CONTENT_DELTAS:
                out.append(encode(event))
                add_event(event)
                continue
            if isinstance(event, ResponseEnd):
                self.ended = True
            produced_events = self._apply_steps(event)
            if not produced_events:
                self._other_bytes += len(getattr(event, "escaped", b""))
            for produced in produced_events:
                encoded = self._encode_event(produced)
                if isinstance(produced, WholePart) or getattr(produced, "artefacts", None):
                    self._other_bytes += len(encoded)
                out.append(encoded)

    def _apply_steps(self, event: Event) -> list[Event]:
        events = [event]
        for step in self._steps:
            events = [produced for input_event in events for produced in step(input_event)]
        return events

    def _encode_event(self, event: Event) -> bytes:
        """Encode an event, and record its losses and statistics.

        The fault of a stream is sanitised before it is sent.
        """
        if isinstance(event, StreamFault):
            self.fault = fault = self._endpoint_request.sanitise_fault(event.fault)
            return self._encoder.feed(StreamFault(fault, event.end))
        if isinstance(event, ResponseStart):
            self._started = True
            if event.created is None and self._adds_time:
                event = replace(event, created=int(time()))
        self._reporter.report_event(event)
        self._stats.add_event(event)
        return self._encoder.feed(event)

    def fail(self, fault: Fault) -> bytes:
        self.fault = fault
        start = b"" if self._started else self._encoder.feed(ResponseStart())
        return start + self._encoder.feed(StreamFault(fault))
