"""Shared base of the stream encoders: the order of events, one step for each kind, and the framing of each wire.

    ResponseStart ──▶ ( Start ▶ Delta* ▶ End | [PartStart ▶] WholePart | UsageUpdate | Ping )* ──▶ ResponseEnd | StreamFault

Several items may be open at once. An event out of this order is rejected before any of its bytes are written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from ...ir.errors import EncodeError
from ...ir.events import (
    CallDelta,
    CallEnd,
    CallStart,
    Event,
    PartStart,
    Ping,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    ResponseEnd,
    ResponseStart,
    StreamFault,
    TextDelta,
    TextEnd,
    TextStart,
    UsageUpdate,
    WholePart,
)
from ...ir.losses import Losses
from ...ir.parts import Artefact, ToolCall
from ...ir.response import Usage
from ...ir.text import unescape
from ...ir.value import Value

_STEPS = {
    ResponseStart: "_start",
    TextStart: "_text_start",
    TextDelta: "_text_delta",
    TextEnd: "_text_end",
    ReasoningStart: "_reasoning_start",
    ReasoningDelta: "_reasoning_delta",
    ReasoningEnd: "_reasoning_end",
    CallStart: "_call_start",
    CallDelta: "_call_delta",
    CallEnd: "_call_end",
    PartStart: "_part_start",
    WholePart: "_whole_part",
    UsageUpdate: "_update_usage",
    Ping: "_ping",
    StreamFault: "_fail",
    ResponseEnd: "_end",
}
_DELTAS = frozenset({TextDelta, ReasoningDelta, CallDelta})
_STARTS = frozenset({TextStart, ReasoningStart, CallStart, PartStart, WholePart})
_ENDS = frozenset({TextEnd, ReasoningEnd, CallEnd})
# The items of a wire with sequential blocks: a part that is announced only is no block yet.
_ITEMS, _CLOSED = _STARTS - {PartStart}, _ENDS | {WholePart}


class BaseStreamEncoder:
    """Encode events as bytes. A subclass defines the methods in `_STEPS` for the events that it writes."""

    handlers: ClassVar[Mapping[type, Callable[[Any, Any], bytes]]] = {}

    def __init_subclass__(cls) -> None:
        cls.handlers = {kind: getattr(cls, name) for kind, name in _STEPS.items() if hasattr(cls, name)}

    def __init__(self) -> None:
        self.losses = Losses()
        self._has_begun = False
        self._over = False
        self._open_keys: set[int] = set()
        self._empty: set[int] = set()  # items without a delta so far
        self._reserved: set[int] = set()  # parts that PartStart announced and that are still to come
        self._positions: dict[int, tuple[int, int]] = {}  # by key: the choice, and the number of the item in it
        self._sizes: dict[int, int] = {}  # by choice: the number of items so far
        self._sections: dict[int, int | None] = {}  # by key: the summary section of the last fragment
        self._usage: Usage | None = None

    def feed(self, event: Event) -> bytes:
        """Return the bytes of an event; raise EncodeError if it is out of order. Deltas take a shorter check."""
        kind = type(event)
        if kind not in _DELTAS:
            self._check_order(kind, event)
        elif event.key not in self._open_keys:  # type: ignore[union-attr]
            raise _order_error(event, "for an item that is not open")
        elif event.escaped:  # type: ignore[union-attr]
            self._empty.discard(event.key)  # type: ignore[union-attr]
        return self._write(event)

    def find_frame(self, key: int) -> tuple[bytes, bytes] | None:
        """Return the bytes before and after each further fragment of an open item, if they are always the same."""
        return None

    def _report_alternatives(self, detail: str) -> None:
        """Report other choices, on a wire that has one."""
        self.losses.add("/alternatives", "alternatives", "dropped", detail, "error")

    def _report_empty(self, event: TextEnd | ReasoningEnd) -> None:
        """Report an item without text, on a wire that has nothing to write for it."""
        if event.key in self._empty:
            kind = "reasoning" if isinstance(event, ReasoningEnd) else "text"
            self.losses.add(self._part_path(event.key), kind, "dropped", "it has no text", "info")

    def _begin_section(self, event: ReasoningDelta, detail: str) -> bytes:
        """Return the blank line before a new section of a summary, on a wire without sections, which is a loss."""
        if event.section is not None:
            path = f"{self._part_path(event.key)}/summary"
            self.losses.add(path, "reasoning summary", "rewritten", detail, "info")
        previous = self._sections.setdefault(event.key, event.section)
        self._sections[event.key] = event.section
        return b"" if previous == event.section else b"\\n\\n"

    def _update_usage(self, event: UsageUpdate) -> bytes:
        self._usage = event.usage
        return b""

    def _ping(self, event: Ping) -> bytes:
        return b": ping\n\n"

    def _write(self, event: Event) -> bytes:
        step = self.handlers.get(type(event))
        return b"" if step is None else step(self, event)

    def _part_path(self, key: int) -> str:
        """Return the path of an item in the answer that the events form."""
        choice, number = self._positions[key]
        return f"/alternatives/{choice - 1}/parts/{number}" if choice else f"/parts/{number}"

    def _check_order(self, kind: type[Event], event: Any) -> None:
        """Raise EncodeError for an event out of order; record the open items and the end of the stream."""
        if self._over:
            raise _order_error(event, "after the end of the stream")
        if kind is ResponseStart:
            if self._has_begun:
                raise _order_error(event, "in the middle of a stream")
            self._has_begun = True
        elif not self._has_begun and kind is not StreamFault and kind is not Ping:
            raise EncodeError("the first event of a stream must be ResponseStart")
        elif kind in _STARTS:
            self._check_item(kind, event)
        elif kind in _ENDS:
            if event.key not in self._open_keys:
                raise _order_error(event, "for an item that is not open")
            self._open_keys.remove(event.key)
        elif kind is ResponseEnd and self._open_keys:
            raise _order_error(event, f"while item {min(self._open_keys)} is open")
        self._over = kind is ResponseEnd or kind is StreamFault

    def _check_item(self, kind: type[Event], event: Any) -> None:
        """Register the start of an item under its key and position; a WholePart may follow its own PartStart.

        Raise EncodeError if its key is in use.
        """
        if kind is WholePart and event.key in self._reserved:
            self._reserved.remove(event.key)
            return
        if event.key in self._positions:
            raise _order_error(event, f"for item {event.key}, which was already started")
        number = self._sizes.get(event.choice, 0)
        self._sizes[event.choice] = number + 1
        self._positions[event.key] = event.choice, number
        if kind is PartStart:
            self._reserved.add(event.key)
        elif kind is not WholePart:
            self._open_keys.add(event.key)
            self._empty.add(event.key)


def _order_error(event: Event, reason: str) -> EncodeError:
    return EncodeError(
        f"{type(event).__name__} {reason}", hint="send events in the order in which a decoder returns them"
    )


class WholeCallEncoder(BaseStreamEncoder):
    """Encoder of a wire whose calls are always complete: each is written whole, after all calls that started before it.

    An incomplete call is left out and reported, because a client would execute it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._starts: dict[int, CallStart] = {}
        self._inputs: dict[int, list[bytes]] = {}  # input of open freeform calls so far
        self._calls: dict[int, bytes | None] = {}  # in start order: an ended call as it is written, or None
        self._broken: dict[int, ToolCall] = {}  # by choice: the first incomplete call, which was left out

    def _call_start(self, event: CallStart) -> bytes:
        self._starts[event.key] = event
        self._calls[event.key] = None
        return b""

    def _call_delta(self, event: CallDelta) -> bytes:
        if self._starts[event.key].kind == "freeform":
            self._inputs.setdefault(event.key, []).append(event.escaped)
        return b""

    def _call_end(self, event: CallEnd) -> bytes:
        """Write a call when all earlier calls have ended, in order, because results may be matched by order.

        Return the bytes of all calls that can be written now; an incomplete call is noted in `_broken`.
        """
        start = self._starts.pop(event.key)
        raw = unescape(b"".join(self._inputs.pop(event.key, []))) if start.kind == "freeform" else event.raw
        call = ToolCall(
            start.id,
            start.name,
            event.arguments,
            raw,
            event.state,
            start.kind,
            start.namespace,
            artefacts=self._own_artefacts(event),
            extra={**start.extra, **event.extra},
        )
        if call.state != "complete":
            self._broken.setdefault(start.choice, call)
        self._calls[event.key] = self._write_call(call, event.key, start.choice)
        out: list[bytes] = []
        while self._calls and (written := next(iter(self._calls.values()))) is not None:
            key = next(iter(self._calls))
            del self._calls[key]
            if written:
                out.append(written)
                self._end_run(self._positions[key][0])
        return b"".join(out)

    def _own_artefacts(self, event: TextEnd | ReasoningEnd | CallEnd) -> tuple[Artefact, ...]:
        return event.artefacts

    def _write_call(self, call: ToolCall, key: int, choice: int) -> bytes:
        """Return the bytes of a call; report an incomplete call, and return none."""
        raise NotImplementedError

    def _end_run(self, choice: int) -> None:
        """Note that a call separates the texts before and after it."""


class SequentialEncoder(BaseStreamEncoder):
    """Encoder of a wire whose blocks are sequential, and which has one choice.

    An item that starts while another is open is queued, with its deltas, until that one is closed.
    """

    one_choice: ClassVar[str]
    """The detail of the loss for other choices."""

    def __init__(self) -> None:
        super().__init__()
        self._open: int | None = None  # the key of the open block
        self._queued_events: dict[int, list[Event]] = {}  # by key: blocks that wait for the open one
        self._dropped: set[int] = set()  # keys of items of other choices
        self._delta_prefix = b""  # a delta event up to its fragment; empty until the block is written
        self._last_key: int | None = None  # the last item of the first choice

    def _dispatch(self, event: Event) -> bytes:
        """Write the event if its block is open or none is; queue it otherwise.

        Items of other choices are dropped and reported.
        """
        key: int | None = getattr(event, "key", None)
        if type(event) in _ITEMS:
            if self._positions[event.key][0]:  # type: ignore[union-attr]
                self._dropped.add(event.key)  # type: ignore[union-attr]
                self._report_alternatives(self.one_choice)
            else:
                self._last_key = key
        if key in self._dropped:
            return b""
        if key is None or key == self._open:
            return self._step(event)
        if self._open is None:
            self._open = key
            return self._step(event)
        self._queued_events.setdefault(key, []).append(event)
        return b""

    def _step(self, event: Event) -> bytes:
        """Write an event of the open block; after its end, write the next queued block."""
        step = self.handlers.get(type(event))
        out = b"" if step is None else step(self, event)
        if type(event) in _CLOSED:
            self._open = None
            self._delta_prefix = b""
            if self._queued_events:
                out += self._write_queued()
        return out

    def _write_queued(self) -> bytes:
        """Open the block that was queued first, and write its events."""
        self._open, events = next(iter(self._queued_events.items()))
        del self._queued_events[self._open]
        return b"".join([self._step(event) for event in events])


# The framing of each wire's streams, as data: for code that forwards events without encoding them again.


class StreamFraming(Value, frozen=True):
    """The media type of a stream, the bytes that end an event, and the marker after the last one."""

    media_type: str = "text/event-stream"
    terminators: tuple[bytes, ...] = (b"\n\n", b"\r\n\r\n", b"\r\r")
    end_marker: bytes = b""  # clients may wait for it


_EVENTS = StreamFraming()
_FRAMINGS = {
    "cohere": StreamFraming(end_marker=b"data: [DONE]\n\n"),
    "openai_chat": StreamFraming(end_marker=b"data: [DONE]\n\n"),
    "ollama": StreamFraming("application/x-ndjson", (b"\n",)),
    "bedrock": StreamFraming("application/vnd.amazon.eventstream", ()),  # binary: an event has its length
}


def framing_of(wire: str) -> StreamFraming:
    """Return the framing of a wire, by its name; server-sent events by default."""
    return _FRAMINGS.get(wire, _EVENTS)
