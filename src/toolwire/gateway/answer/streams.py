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
from ...ir.errors import ToolwireError, TruncatedStream
from ...ir.events import CallDelta, Event, ResponseEnd, ResponseStart, StreamFault, TextDelta, WholePart
from ...ir.request import Request
from ...ir.response import Fault
from ...net.endpoint_request import EndpointRequest, redact_secrets
from ...stream.sse import SSEDecoder
from ...stream.strict import parse_object
from ...wire.protocol import StreamEncoder, Wire
from ..routes import INGRESSES, Ingress
from .answer_stats import AnswerStats

__all__ = ["PassThroughStream", "Stream", "TranslatedStream", "expected_choices"]

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


class PassThroughStream:
    """A stream between equal wires: events are forwarded unchanged, and observed."""

    should_stop = False
    rejected: RejectedAnswer | None = None

    def __init__(
        self,
        wire: Wire,
        request: Request | None,
        stats: AnswerStats,
        ingress: Ingress,
        secrets: tuple[str, ...] = (),
    ) -> None:
        """Create the stream. `secrets`, such as our key, are removed from errors."""
        self.fault: Fault | None = None
        self.ended = False
        self._decoder = wire.stream_decoder()
        self._encoder = wire.stream_encoder(request)
        self._stats = stats
        self._ingress = ingress
        self._choices = expected_choices(request, wire)
        self._secrets = secrets
        self._pending: list[bytes] = []  # the start of an incomplete event
        self._tail = b""  # its last bytes: an end mark may be split
        self._has_forwarded = False  # a complete event was forwarded
        self._has_new_part = False  # the data that is fed completes a whole part, such as a picture
        self._part_bytes = 0  # of events with whole parts

    @property
    def content_bytes(self) -> int:
        return self._stats.content_bytes + self._part_bytes

    def feed(self, data: bytes) -> bytes:
        """Observe the events in `data`, and forward the bytes of the complete ones.

        If the upstream reports an error, our key is removed from it.
        """
        if self.fault is not None:
            return b""
        try:
            self._observe_events(self._decoder.feed(data))
            self._observe_events(self._decoder.feed(b""))  # raises errors after the last event
        except ToolwireError as error:
            return self.fail(_stream_fault(error))
        output = self._redact(self._complete_events(data))
        if self._has_new_part:
            self._has_new_part = False
            self._part_bytes += len(output)
        return output

    def close(self) -> bytes:
        """Forward the last bytes. If only the end marker is missing, add it, because clients wait for it."""
        if self.fault is not None:
            return b""
        pending = b"".join(self._pending)
        try:
            events = self._decoder.close()
            _check_choices_ended(events, self._choices)
            self._observe_events(events)
        except ToolwireError as error:
            return self.fail(_stream_fault(error))
        is_late = any(isinstance(event, ResponseEnd) for event in events)
        if not is_late or not self._ingress.end_marker:
            return self._redact(pending)
        return (pending + b"\n\n" if _is_complete_event(pending) else b"") + self._ingress.end_marker

    def _complete_events(self, data: bytes) -> bytes:
        """Return the data up to the end of the last event; hold back the rest."""
        previous_tail = self._tail
        joined = previous_tail + data
        cut = max(
            [joined.rfind(end) + len(end) for end in self._ingress.event_terminators if end in joined], default=0
        ) - len(previous_tail)
        if cut <= 0:
            self._pending.append(data)
            self._tail = joined[-3:]
            return b""
        out = b"".join([*self._pending, data[:cut]])
        self._pending = [data[cut:]] if cut < len(data) else []
        self._tail = data[cut:][-3:]
        self._has_forwarded = True
        return out

    def _redact(self, data: bytes) -> bytes:
        if self.fault is not None:
            for secret in self._secrets:
                data = data.replace(secret.encode(), b"[key]")
        return data

    def _observe_events(self, events: Iterable[Event]) -> None:
        """Add events to the statistics; note the fault of a failed stream and the end of a complete one."""
        for event in events:
            if isinstance(event, StreamFault):
                self.fault = redact_secrets(self._secrets, event.fault)
                continue
            self._stats.add_event(event)
            if isinstance(event, ResponseEnd):
                self.ended = True
            elif isinstance(event, WholePart):
                self._has_new_part = True

    def fail(self, fault: Fault) -> bytes:
        self.fault = fault
        start = self._encoder.feed(ResponseStart())
        return (b"" if self._has_forwarded else start) + self._encoder.feed(StreamFault(fault))


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
            return self.fail(_stream_fault(error))

    def close(self) -> bytes:
        """End the stream; one that is truncated, or has too few answers, ends in an error event."""
        if self.fault is not None or self.ended or self.rejected is not None:
            return b""
        try:
            events = list(self._answer_stream.close())
            _check_choices_ended(events, self._choices)
            return self._write(events)
        except ToolwireError as error:
            return self.fail(_stream_fault(error))

    def _write(self, events: Iterable[Event]) -> bytes:
        """Encode events for the client; an error ends the output with an error event."""
        out: list[bytes] = []
        try:
            self._write_each(events, out)
        except ToolwireError as error:  # keep the output before it
            out.append(self.fail(_stream_fault(error)))
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


def expected_choices(request: Request | None, wire: Wire) -> int:
    """Return the number of answers that must have ended when a stream ends without its final marker.

    It is 1 for wires without such a marker, and for a request that cannot be decoded.
    """
    ingress = INGRESSES.get(wire.name)
    return request.params.n or 1 if request is not None and ingress is not None and ingress.end_marker else 1


def _check_choices_ended(events: Sequence[Event], choices: int) -> None:
    """Refuse a stream with too few answers. Without a final marker, no other check notices one that has not begun."""
    for event in events:
        if isinstance(event, ResponseEnd) and len(event.stops) < choices:
            raise TruncatedStream(
                f"the stream stopped after {len(event.stops)} of {choices} answers", hint="retry the request"
            )


def _is_complete_event(data: bytes) -> bool:
    """Check whether only the trailing blank line is missing."""
    try:
        return bool([parse_object(payload) for _, payload in SSEDecoder().feed(data + b"\n\n")])
    except ToolwireError:
        return False


def _stream_fault(error: ToolwireError) -> Fault:
    code = "stream_truncated" if isinstance(error, TruncatedStream) else "stream_broken"
    return Fault("server", error.message, 502, code, retryable=True)
