"""The view *Streams*: a recorded stream, chunk by chunk, with its events, calls so far, and the bytes of each target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from ...bridge.comparison.streams import find_boundaries
from ...bridge.translation.detection import detect
from ...bridge.translation.documents import StreamTranslation, translate_stream
from ...ir.errors import ConfigError, ToolwireError, TruncatedStream
from ...ir.events import CallDelta, CallEnd, CallStart, Event, ReasoningDelta, ResponseEnd, StreamFault, TextDelta
from ...ir.losses import Loss
from ...ir.pointer import JSON
from ...stream.strict import as_bytes
from ...wire import get, names
from ...wire.protocol import StreamDecoder
from .messages import (
    At,
    CallProgress,
    EventView,
    LossPlace,
    StreamAnswer,
    StreamEnd,
    StreamRequest,
    StreamStep,
    StreamTarget,
)

MAX_STEPS = 2_000
"""Steps of an answer: each repeats the bytes of every target, and a person steps through far fewer."""
_MAX_ARGUMENTS = 4_000  # characters of the arguments so far, which every step repeats
_REST = 64 * 1024  # bytes that are fed at once after the last step: each call costs as much as several hundred bytes


class _ArrivingCall:
    """A call whose arguments arrive."""

    def __init__(self, key: int, name: str) -> None:
        self.key = key
        self.name = name
        self.state = "open"
        self._pieces: list[str] = []
        self._size = 0

    def add(self, text: str) -> None:
        if self._size < _MAX_ARGUMENTS:
            self._pieces = ["".join(self._pieces) + text]
            self._size = len(self._pieces[0])

    def progress(self) -> CallProgress:
        text = "".join(self._pieces)
        shown = text if len(text) <= _MAX_ARGUMENTS else f"{text[:_MAX_ARGUMENTS]}…"
        return msgspec.convert(
            {"key": self.key, "name": self.name, "arguments": shown, "state": self.state}, CallProgress
        )


class _SteppedStream:
    """The state of a stream while its chunks are fed."""

    def __init__(self, decoder: StreamDecoder, targets: Sequence[str], source: str) -> None:
        self._decoder = decoder
        self._translations: dict[str, StreamTranslation] = {
            name: translate_stream(source=source, target=name) for name in targets
        }
        self._calls: dict[int, _ArrivingCall] = {}
        self.error: ToolwireError | None = None
        self.has_ended = False

    def feed(self, data: bytes, start: int) -> StreamStep:
        """Decode a chunk, and return its step. After an error, chunks have no events."""
        events: list[Event] = []
        if self.error is None:
            try:
                events = self._decoder.feed(data)
            except ToolwireError as error:
                self.error = error
        outputs = {name: _as_text(translation.feed(data)) for name, translation in self._translations.items()}
        return self._step((start, start + len(data)), _as_text(data), events, outputs)

    def close(self, size: int) -> StreamStep:
        """End the stream; an open call is truncated."""
        events: list[Event] = []
        if self.error is None:
            try:
                events = self._decoder.close()
            except ToolwireError as error:
                self.error = error
        outputs = {name: _as_text(translation.close()) for name, translation in self._translations.items()}
        step = self._step((size, size), "", events, outputs)
        for call in self._calls.values():
            if call.state == "open":
                call.state = "truncated"
                step.calls.append(call.progress())
        return step

    def targets(self) -> dict[str, StreamTarget]:
        return {
            name: StreamTarget(
                [_unplaced(loss) for loss in translation.losses],
                None if translation.error is None else str(translation.error),
            )
            for name, translation in self._translations.items()
        }

    def open_calls(self) -> list[str]:
        return [f"call {call.name}" for call in self._calls.values() if call.state == "truncated"]

    def _step(self, at: At, text: str, events: list[Event], outputs: dict[str, str]) -> StreamStep:
        changed: dict[int, _ArrivingCall] = {}
        for event in events:
            call = self._read_event(event)
            if call is not None:
                changed[call.key] = call
        return StreamStep(
            at,
            text,
            [_encode_event(event) for event in events],
            [call.progress() for call in changed.values()],
            outputs,
        )

    def _read_event(self, event: Event) -> _ArrivingCall | None:
        """Apply an event to the state, and return the call that it changes."""
        if isinstance(event, CallStart):
            call = self._calls[event.key] = _ArrivingCall(event.key, event.name)
            return call
        if isinstance(event, CallDelta) and (found := self._calls.get(event.key)):
            found.add(_delta_text(event))
            return found
        if isinstance(event, CallEnd) and (found := self._calls.get(event.key)):
            found.state = event.state
            return found
        self.has_ended = self.has_ended or isinstance(event, (ResponseEnd, StreamFault))
        return None


def stream_view(request: StreamRequest) -> StreamAnswer:
    """Step through a stream; raise `ToolwireError` if it is none."""
    whole = as_bytes(request.input)
    source = request.source
    if source is None:
        detected = detect(whole)
        if detected.kind != "stream":
            raise ConfigError(
                f"the input is a {detected.kind} of {detected.wire}, not a stream",
                hint="paste server-sent events, NDJSON, or Gemini's array of chunks",
            )
        source = detected.wire
    wire = get(source)
    data = whole if request.end is None else whole[: _check_offset("end", request.end)]
    boundaries = find_boundaries(data)
    targets = _target_names(request.targets, source)
    recording = _SteppedStream(wire.stream_decoder(), targets, source)
    steps: list[StreamStep] = []
    left_out = 0
    failed: At | None = None
    failed_step: int | None = None
    for start, end in _chunks(request, len(data), boundaries):
        step = recording.feed(data[start:end], start)
        if len(steps) < MAX_STEPS:
            steps.append(step)
        else:
            left_out += end - start
        if recording.error is not None and failed is None:
            failed, failed_step = (start, end), len(steps) - 1
    steps.append(recording.close(len(data)))
    end_state = _end_of(recording, data, boundaries, failed, failed_step, len(steps) - 1, wire.stream_decoder())
    if len(boundaries) > MAX_STEPS:  # the last range is the rest
        boundaries[MAX_STEPS - 1 :] = [(boundaries[MAX_STEPS - 1][0], len(data))]
    return StreamAnswer(source, len(data), boundaries, steps, end_state, recording.targets(), left_out)


def _end_of(
    recording: _SteppedStream,
    data: bytes,
    boundaries: Sequence[At],
    failed: At | None,
    failed_step: int | None,
    last_step: int,
    decoder: StreamDecoder,
) -> StreamEnd:
    """Describe how the stream ended. An invalid event begins at the boundary before the error."""
    error = recording.error
    if error is None:
        return StreamEnd("complete", None, None, None, [])
    if isinstance(error, TruncatedStream):
        return StreamEnd("truncated", str(error), len(data), last_step, recording.open_calls())
    start = len(data) if failed is None else failed[0]
    for begin, end in boundaries:
        try:
            decoder.feed(data[begin:end])
        except ToolwireError:
            start = begin
            break
    step = last_step if failed_step is None else failed_step
    return StreamEnd("invalid", str(error), start, step, recording.open_calls())


def _chunks(request: StreamRequest, size: int, boundaries: Sequence[At]) -> Iterator[At]:
    """Return the byte ranges of the chunks; after the last step that is shown, larger ones."""
    last = 0
    for chunk in islice(_wanted_chunks(request, size, boundaries), MAX_STEPS):
        yield chunk
        last = chunk[1]
    yield from _every(_REST, last, size)


def _wanted_chunks(request: StreamRequest, size: int, boundaries: Sequence[At]) -> Iterator[At]:
    if request.cuts is not None and request.every is not None:
        raise ConfigError("cuts and every exclude each other", hint="give offsets, or the size of a chunk")
    if request.every is not None:
        if request.every < 1:
            raise ConfigError(f"every must be positive, got {request.every}", hint="give a number of bytes")
        return _every(request.every, 0, size)
    if request.cuts is not None:
        cuts = sorted({cut for cut in request.cuts if 0 < _check_offset("cuts", cut) < size})
        return zip((0, *cuts), (*cuts, size), strict=True)
    return iter(boundaries)


def _every(step: int, start: int, size: int) -> Iterator[At]:
    return ((begin, min(begin + step, size)) for begin in range(start, size, step))


def _check_offset(name: str, value: int) -> int:
    if value < 0:
        raise ConfigError(f"{name} must not be negative, got {value}", hint="give an offset in bytes")
    return value


def _target_names(targets: Sequence[str], source: str) -> list[str]:
    found: dict[str, None] = {}
    for target in targets:
        if target == "wires":
            found |= dict.fromkeys(name for name in names() if name != source.partition("@")[0])
        else:
            get(target)
            found[target] = None
    return list(found)


def _encode_event(event: Event) -> EventView:
    if isinstance(event, (TextDelta, ReasoningDelta, CallDelta)):
        value: JSON = {"key": event.key, "text": _delta_text(event)}
    else:
        value = msgspec.to_builtins(event)
    return EventView(type(event).__name__, value)


def _delta_text(event: TextDelta | ReasoningDelta | CallDelta) -> str:
    try:
        return event.text
    except ToolwireError:  # a lone surrogate
        return event.escaped.decode("utf-8", "replace")


def _as_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _unplaced(loss: Loss) -> LossPlace:
    return LossPlace(loss.path, loss.target, loss.concept, loss.action, loss.severity, loss.detail)
