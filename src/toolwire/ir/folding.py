"""Convert a stream of events to a response with `fold`, and back with `unfold`.

fold(unfold(response)) == response
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct

from .errors import ProtocolError, TruncatedStream
from .events import (
    CallDelta,
    CallEnd,
    CallStart,
    Event,
    PartStart,
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
from .parts import Extra, Part, Reasoning, Refusal, Text, ToolCall
from .response import Alternative, Response, Usage
from .text import unescape


def fold(events: Iterable[Event]) -> Response:
    """Collect `events` into a response; raise TruncatedStream if they stop before the end."""
    folder = Folder()
    for event in events:
        folder.feed(event)
    return folder.response()


def unfold(response: Response) -> Iterator[Event]:
    """Yield the events of `response`, with one delta for each item."""
    yield ResponseStart(response.id, response.model, response.created)
    key = 0
    for choice, parts in enumerate((response.parts, *[other.parts for other in response.alternatives])):
        for part in parts:
            yield from unfold_part(key, choice, part)
            key += 1
    if response.usage is not None:
        yield UsageUpdate(response.usage)
    end = unfold_end(response)
    yield end if response.fault is None else StreamFault(response.fault, end)


def unfold_end(response: Response) -> ResponseEnd:
    """Return the end of `response`: its stops and its extra."""
    others = response.alternatives
    if not others:
        return ResponseEnd((response.stop,), response.extra)
    stops = (response.stop, *[other.stop for other in others])
    return ResponseEnd(stops, response.extra, tuple([other.extra for other in others]))


def unfold_part(key: int, choice: int, part: Part) -> Iterator[Event]:
    """Yield the events of one part, with its text in one delta."""
    if isinstance(part, Text):
        yield TextStart(key, choice, extra=part.extra, cache=part.cache)
        if part.text:
            yield TextDelta.of(key, part.text)
        yield TextEnd(key, part.artefacts)
    elif isinstance(part, ToolCall):
        yield CallStart(key, part.id, part.name, part.kind, part.namespace, choice, part.extra, part.cache)
        if part.raw or part.arguments is not None:
            yield CallDelta.of(key, part.text)
        yield CallEnd(key, part.arguments, part.raw, part.state, part.artefacts)
    elif isinstance(part, Reasoning):
        yield ReasoningStart(key, choice, part.extra)
        for section, summary_text in enumerate(part.summary):
            yield ReasoningDelta.of(key, summary_text, section)
        if part.text:
            yield ReasoningDelta.of(key, part.text)
        yield ReasoningEnd(key, part.artefacts)
    elif isinstance(part, Refusal):
        yield TextStart(key, choice, refusal=True, extra=part.extra)
        if part.text:
            yield TextDelta.of(key, part.text)
        yield TextEnd(key)
    else:
        yield WholePart(key, part, choice)


def merge_extra(first: Extra, second: Extra) -> Extra:
    """Merge two extras field by field; `second` wins where both have a field."""
    if not first or not second:
        return first or second
    return merge_extras((first, second))


def merge_extras(extras: Iterable[Extra]) -> Extra:
    """Merge extras field by field; the last one that has a field wins."""
    merged: Extra = {}
    for extra in extras:
        for wire, fields in extra.items():
            merged.setdefault(wire, {}).update(fields)
    return merged


class Folder(Struct, eq=False):
    """Fold a response incrementally, one event at a time."""

    _start: ResponseStart = ResponseStart()
    _open: dict[int, tuple[Any, list[Any]]] = {}  # by key: the start event and the deltas
    _order: list[tuple[int, int]] = []  # (choice, key) of each item, in order
    _reserved: set[int] = set()  # parts with a known position that have not arrived yet
    _parts: dict[int, Part] = {}
    _usage: Usage | None = None
    _end: ResponseEnd | None = None
    _fault: StreamFault | None = None

    def feed(self, event: Event) -> None:
        step = _STEPS.get(type(event))
        if step is not None:
            step(self, event)

    def response(self) -> Response:
        """Return the response, with `fault` set if the provider failed; raise TruncatedStream before its end."""
        if self._end is None and self._fault is None:
            raise TruncatedStream("the events stop before the end of the response")
        fault = self._fault
        end = self._end or (ResponseEnd(()) if fault is None else fault.end)
        stops = dict(enumerate(end.stops))
        extras = dict(enumerate(end.choice_extras, 1))
        count = max([choice for choice, _ in self._order] + [len(end.stops) - 1, len(extras), 0])
        return Response(
            id=self._start.id,
            model=self._start.model,
            parts=self.parts(0),
            stop=stops.get(0),
            usage=self._usage,
            created=self._start.created,
            alternatives=tuple(
                [Alternative(self.parts(n), stops.get(n), extras.get(n, {})) for n in range(1, count + 1)]
            ),
            fault=None if fault is None else fault.fault,
            extra=merge_extra(self._start.extra, end.extra),
        )

    def part(self, key: int) -> Part | None:
        """Return the item with this `key`, or None before its end."""
        return self._parts.get(key)

    def parts(self, choice: int) -> tuple[Part, ...]:
        """Return the complete items of a choice, in order."""
        return tuple([self._parts[key] for number, key in self._order if number == choice and key in self._parts])

    def _begin(self, event: ResponseStart) -> None:
        self._start = event

    def _open_item(self, event: TextStart | ReasoningStart | CallStart) -> None:
        """Begin an item. Raise ProtocolError if its key is in use."""
        if event.key in self._open or event.key in self._parts:
            raise ProtocolError(f"item {event.key} started twice")
        self._open[event.key] = (event, [])
        self._order.append((event.choice, event.key))

    def _append_delta(self, event: TextDelta | ReasoningDelta) -> None:
        """Append to an open item. Raise ProtocolError if it is not open."""
        try:
            self._open[event.key][1].append(event)
        except KeyError:
            raise ProtocolError(f"delta for item {event.key}, which is not open") from None

    def _close(self, key: int) -> tuple[Any, list[Any]]:
        """Remove and return an open item. Raise ProtocolError if it is not open."""
        try:
            return self._open.pop(key)
        except KeyError:
            raise ProtocolError(f"end of item {key}, which is not open") from None

    def _end_text(self, event: TextEnd) -> None:
        start, deltas = self._close(event.key)
        text = unescape(b"".join([delta.escaped for delta in deltas]))
        extra = merge_extra(start.extra, event.extra)
        if start.refusal:
            self._parts[event.key] = Refusal(text, extra)
        else:
            self._parts[event.key] = Text(text, start.cache, event.artefacts, extra)

    def _end_reasoning(self, event: ReasoningEnd) -> None:
        """Build the reasoning part; deltas with a `section` belong to the summary, the others to the text."""
        start, deltas = self._close(event.key)
        sections: dict[int | None, list[bytes]] = {}
        for delta in deltas:
            sections.setdefault(delta.section, []).append(delta.escaped)
        text = unescape(b"".join(sections.pop(None, [])))
        summary = tuple(unescape(b"".join(pieces)) for _, pieces in sorted(sections.items(), key=_by_section))
        self._parts[event.key] = Reasoning(text, summary, event.artefacts, merge_extra(start.extra, event.extra))

    def _end_call(self, event: CallEnd) -> None:
        """Build the call from its start and its end, which has the arguments; deltas are not collected."""
        start, _ = self._close(event.key)
        self._parts[event.key] = ToolCall(
            id=start.id,
            name=start.name,
            arguments=event.arguments,
            raw=event.raw,
            state=event.state,
            kind=start.kind,
            namespace=start.namespace,
            cache=start.cache,
            artefacts=event.artefacts,
            extra=merge_extra(start.extra, event.extra),
        )

    def _reserve(self, event: PartStart) -> None:
        self._reserved.add(event.key)
        self._order.append((event.choice, event.key))

    def _add_whole_part(self, event: WholePart) -> None:
        if event.key in self._reserved:
            self._reserved.remove(event.key)
        else:
            self._order.append((event.choice, event.key))
        self._parts[event.key] = event.part

    def _update_usage(self, event: UsageUpdate) -> None:
        self._usage = event.usage

    def _fail(self, event: StreamFault) -> None:
        self._fault = event

    def _finish(self, event: ResponseEnd) -> None:
        if self._open:
            raise ProtocolError(f"the response ended while item {next(iter(self._open))} was open")
        self._end = event


def _by_section(entry: tuple[int | None, list[bytes]]) -> int:
    return entry[0] or 0


_STEPS: dict[type, Callable[[Folder, Any], None]] = {
    ResponseStart: Folder._begin,
    TextStart: Folder._open_item,
    TextDelta: Folder._append_delta,
    TextEnd: Folder._end_text,
    ReasoningStart: Folder._open_item,
    ReasoningDelta: Folder._append_delta,
    ReasoningEnd: Folder._end_reasoning,
    CallStart: Folder._open_item,
    CallEnd: Folder._end_call,
    PartStart: Folder._reserve,
    WholePart: Folder._add_whole_part,
    UsageUpdate: Folder._update_usage,
    StreamFault: Folder._fail,
    ResponseEnd: Folder._finish,
}
