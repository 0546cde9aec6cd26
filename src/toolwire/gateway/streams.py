"""A stream in transit: the upstream's bytes in, the client's bytes out.

A broken stream ends in an error in the client's own protocol, never in a normal end; `fault` is then set. A stream that
breaks after the end of the answer, where only a token count and the final marker can be missing, is complete: a retry
would be billed, and would run its calls, a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from ..bridge.report_answer import AnswerReporter
from ..ir.errors import ToolwireError, TruncatedStream
from ..ir.events import CallDelta, Event, ResponseEnd, ResponseStart, StreamFault, TextDelta
from ..ir.request import Request
from ..ir.response import Fault
from ..net.question import EndpointRequest, redact_key
from ..stream.sse import SSEDecoder
from ..stream.strict import parse_object
from ..wire.protocol import StreamEncoder, Wire
from .fronts import INGRESSES, Ingress
from .seen import AnswerStats

__all__ = ["PassThroughStream", "Stream", "TranslatedStream", "expected_choices"]

_CONTENT_DELTAS = frozenset({TextDelta, CallDelta})  # only the encoder needs them


class Stream(Protocol):
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

    def __init__(
        self, wire: Wire, request: Request | None, seen: AnswerStats, front: Ingress, key: str | None = None
    ) -> None:
        """Create the stream. `key` is removed from errors."""
        self.fault: Fault | None = None
        self.ended = False
        self._decoder = wire.stream_decoder()
        self._encoder = wire.stream_encoder(request)
        self._stats = seen
        self._front = front
        self._choices = expected_choices(request, wire)
        self._key = key
        self._held: list[bytes] = []  # the start of an incomplete event
        self._tail = b""  # its last bytes: an end mark may be split
        self._passed = False

    def feed(self, data: bytes) -> bytes:
        if self.fault is not None:
            return b""
        try:
            self._follow(self._decoder.feed(data))
            self._follow(self._decoder.feed(b""))  # raises errors after the last event
        except ToolwireError as error:
            return self.fail(_stream_fault(error))
        return self._without_key(self._whole(data))

    def close(self) -> bytes:
        if self.fault is not None:
            return b""
        held = b"".join(self._held)
        try:
            events = self._decoder.close()
            _check_choices_ended(events, self._choices)
            self._follow(events)
        except ToolwireError as error:
            return self.fail(_stream_fault(error))
        is_late = any(isinstance(event, ResponseEnd) for event in events)
        if not is_late or not self._front.end_marker:
            return self._without_key(held)
        return (held + b"\n\n" if _is_whole_event(held) else b"") + self._front.end_marker

    def _whole(self, data: bytes) -> bytes:
        """Return the data up to the end of the last event; hold back the rest."""
        before = self._tail
        seam = before + data
        cut = max(
            [seam.rfind(end) + len(end) for end in self._front.event_terminators if end in seam], default=0
        ) - len(before)
        if cut <= 0:
            self._held.append(data)
            self._tail = seam[-3:]
            return b""
        out = b"".join([*self._held, data[:cut]])
        self._held = [data[cut:]] if cut < len(data) else []
        self._tail = data[cut:][-3:]
        self._passed = True
        return out

    def _without_key(self, data: bytes) -> bytes:
        return data if self.fault is None or not self._key else data.replace(self._key.encode(), b"[key]")

    def _follow(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, StreamFault):
                self.fault = redact_key(self._key, event.fault)
                continue
            self._stats.add_event(event)
            if isinstance(event, ResponseEnd):
                self.ended = True

    def fail(self, fault: Fault) -> bytes:
        self.fault = fault
        start = self._encoder.feed(ResponseStart())
        return (b"" if self._passed else start) + self._encoder.feed(StreamFault(fault))


class TranslatedStream:
    """One wire in, another out. Every event goes through `steps`, each of which returns zero or more events."""

    def __init__(
        self,
        question: EndpointRequest,
        wire: str,
        encoder: StreamEncoder,
        seen: AnswerStats,
        steps: Sequence[Callable[[Event], list[Event]]],
        *,
        is_first: bool,
        choices: int = 1,
    ) -> None:
        """Create the stream. `choices` is the number of requested answers, if the upstream has a final marker."""
        self.fault: Fault | None = None
        self.ended = False
        self._endpoint_request = question
        self._reading = question.open_stream()
        self._encoder = encoder
        self._reporter = AnswerReporter(wire, question.losses)
        self._stats = seen
        self._steps = steps
        self._started = not is_first
        self._choices = choices

    @property
    def should_stop(self) -> bool:
        return self._reading.should_stop

    def feed(self, data: bytes) -> bytes:
        if self.fault is not None:
            return b""
        try:
            return self._write(self._reading.feed(data))
        except ToolwireError as error:
            return self.fail(_stream_fault(error))

    def close(self) -> bytes:
        if self.fault is not None or self.ended:
            return b""
        try:
            events = list(self._reading.close())
            _check_choices_ended(events, self._choices)
            return self._write(events)
        except ToolwireError as error:
            return self.fail(_stream_fault(error))

    def _write(self, events: Iterable[Event]) -> bytes:
        out: list[bytes] = []
        try:
            self._write_each(events, out)
        except ToolwireError as error:  # keep the output before it
            out.append(self.fail(_stream_fault(error)))
        return b"".join(out)

    def _write_each(self, events: Iterable[Event], out: list[bytes]) -> None:
        encode, plain = self._encoder.feed, not self._steps
        for event in events:
            if plain and type(event) in _CONTENT_DELTAS:
                out.append(encode(event))
                self._stats.content_bytes += len(event.escaped)  # type: ignore[union-attr]
                continue
            if isinstance(event, ResponseEnd):
                self.ended = True
            for made in self._through(event):
                out.append(self._one(made))

    def _through(self, event: Event) -> list[Event]:
        events = [event]
        for step in self._steps:
            events = [made for one in events for made in step(one)]
        return events

    def _one(self, event: Event) -> bytes:
        if isinstance(event, StreamFault):
            self.fault = fault = self._endpoint_request.sanitise_fault(event.fault)
            return self._encoder.feed(StreamFault(fault, event.stop))
        self._reporter.event(event)
        self._stats.add_event(event)
        self._started = self._started or isinstance(event, ResponseStart)
        return self._encoder.feed(event)

    def fail(self, fault: Fault) -> bytes:
        self.fault = fault
        start = b"" if self._started else self._encoder.feed(ResponseStart())
        return start + self._encoder.feed(StreamFault(fault))


def expected_choices(request: Request | None, wire: Wire) -> int:
    """Return the number of answers that must have ended when a stream ends without its final marker.

    It is 1 for wires without such a marker, and for a request that cannot be decoded.
    """
    front = INGRESSES.get(wire.name)
    return request.params.n or 1 if request is not None and front is not None and front.end_marker else 1


def _check_choices_ended(events: Sequence[Event], choices: int) -> None:
    """Refuse a stream with too few answers. Without a final marker, no other check notices one that has not begun."""
    for event in events:
        if isinstance(event, ResponseEnd) and len(event.stops) < choices:
            raise TruncatedStream(
                f"the stream stopped after {len(event.stops)} of {choices} answers", hint="retry the request"
            )


def _is_whole_event(data: bytes) -> bool:
    """Check whether only the trailing blank line is missing."""
    try:
        return bool([parse_object(payload) for _, payload in SSEDecoder().feed(data + b"\n\n")])
    except ToolwireError:
        return False


def _stream_fault(error: ToolwireError) -> Fault:
    code = "stream_truncated" if isinstance(error, TruncatedStream) else "stream_broken"
    return Fault("server", error.message, 502, code, retryable=True)
