"""Convert the hosted tools of an answer to another wire: runs, sources and citations.

A run is written when its result arrives. Where citations belong to a text, and
the source has them at the end of the answer, the end of the last text is held back until then. All other events pass
unchanged, so that a stream stays a stream:

    source            target: citations of a text               target: citations of the answer
    of a text         converted at the end of the text          collected, and written at the end of the answer
    of the answer     added to the text that is held back       converted at the end of the answer

Positions need the texts of the answer, which are collected only if the request declares a hosted tool (`reads_text`).
Only the first choice is converted: wires with hosted tools have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ...ir.events import (
    CallStart,
    Event,
    PartStart,
    ReasoningStart,
    ResponseEnd,
    TextDelta,
    TextEnd,
    TextStart,
    UsageUpdate,
    WholePart,
)
from ...ir.folding import merge_extra
from ...ir.hosted import Citation, HostedRun
from ...ir.losses import Losses
from ...ir.parts import Extra, Opaque, Text
from ...ir.pointer import join, split
from ...ir.response import Response, Usage
from ...ir.text import unescape
from ...wire.hosted import HostedCodec, count_bytes, count_characters, pointer_label, unknown_pointers
from ..fitting.fields import report_extra

_FIRST_KEY = -1000  # keys of new parts; decoders count from 0 upwards, and refusals from -1 downwards


def has_hosted_content(response: Response, source: HostedCodec) -> bool:
    """Return whether a whole answer has runs or citations of hosted tools of its wire."""
    extras = [response.extra]
    if response.stop is not None:
        extras.append(response.stop.extra)
    for part in response.parts:
        if type(part) is Opaque:
            if part.type in source.parts:
                return True
        elif type(part) is Text:
            extras.append(part.extra)
    for extra in extras:
        if extra:
            for scope, field in source.scopes:
                if field in extra.get(scope, ()):
                    return True
    return False


class _WrittenText:
    """A text of the answer: its extra, its position in the whole text, and its pieces if they are collected."""

    __slots__ = ("extra", "path", "pieces", "start", "text")

    def __init__(self, extra: Extra, path: str, start: int) -> None:
        self.extra = extra
        self.path = path
        self.start = start
        self.pieces: list[bytes] = []
        self.text = ""


class HostedAnswer:
    """The hosted tools of one answer."""

    __slots__ = (
        "_citations", "_held", "_key", "_last", "_length", "_losses", "_open", "_pending", "_runs", "_target", "_texts",
        "_usage", "origins", "reads_text", "salt", "source",
    )  # fmt: skip

    def __init__(self, source: HostedCodec, target: HostedCodec, losses: Losses, *, reads_text: bool) -> None:
        self.reads_text = reads_text
        self.origins: list[int] = []  # for each part of the client's answer, the number of the source's part
        self.salt = ""  # the id of the answer, which makes ids of runs unique
        self.source = source
        self._target = target
        self._losses = losses
        self._pending: dict[str, HostedRun] = {}  # calls without a result, by id
        self._runs: list[HostedRun] = []
        self._citations: list[Citation] = []  # with positions in the whole text, for the end of the answer
        self._open: dict[int, _WrittenText] = {}
        self._last: _WrittenText | None = None
        self._texts: list[str] = []
        self._length = 0
        self._held: TextEnd | None = None
        self._usage: Usage | None = None
        self._key = _FIRST_KEY

    def place(self, path: str, count: int = 1) -> None:
        """Note that the next `count` parts for the client belong to the part at `path`, in the first choice."""
        if path.startswith("/parts/"):
            self.origins += [int(path.rpartition("/")[2])] * count

    def locate(self, path: str) -> str:
        """Return the path in the source's answer of a path in the client's answer."""
        match split(path):
            case ["parts", number, *rest] if int(number) < len(self.origins):
                return join("parts", self.origins[int(number)], *rest)
        return path

    def find(self, path: str) -> str | None:
        """Return the path in the client's answer of a path in the source's answer; None if it has no part there."""
        match split(path):
            case ["parts", number, *rest]:
                origin = int(number)
                return join("parts", self.origins.index(origin), *rest) if origin in self.origins else None
        return path

    # texts

    def start_item(self, event: TextStart | ReasoningStart | CallStart | PartStart, path: str) -> tuple[Event, ...]:
        """Return the start of an item, after a text that was held back. The start of a run has no event."""
        if type(event) is PartStart and type(event.part) is Opaque and event.part.type in self.source.parts:
            return ()
        self.place(path)
        if type(event) is TextStart and not event.choice and not event.refusal:
            self._open[event.key] = _WrittenText(event.extra, path, self._length)
            if event.extra:
                event = replace(event, extra=self._strip(event.extra))
        return (event,) if self._held is None else (*self.release(), event)

    def feed_text(self, events: tuple[Event, ...]) -> tuple[Event, ...]:
        """Return the events of a text, with citations at its end, which may be held back."""
        passed: list[Event] = []
        for event in events:
            if type(event) is TextDelta and self.reads_text and event.key in self._open:
                self._open[event.key].pieces.append(event.escaped)
            elif type(event) is TextEnd:
                end = self._end_text(event)
                passed += [] if end is None else [end]
                continue
            passed.append(event)
        return tuple(passed)

    def _end_text(self, event: TextEnd) -> TextEnd | None:
        """Return the end of a text with its citations; None if it is held back."""
        text = self._open.pop(event.key, None)
        if text is None:
            return event
        text.text = unescape(b"".join(text.pieces))
        extra = merge_extra(text.extra, event.extra)
        text.extra = extra
        if event.extra:
            event = replace(event, extra=self._strip(event.extra))
        text.start = self._length
        self._texts.append(text.text)
        self._length += len(text.text)
        self._last = text
        if self.source.read_text is None:
            self._held = event
            return None
        citations, unread = self.source.read_text(extra)
        self._report_unread(unread, text.path)
        if self.source.counts_bytes and citations:
            citations = _in_characters(citations, text.text)
        return self._with_citations(event, text, citations)

    def _strip(self, extra: Extra) -> Extra:
        """Return fields without citations and metadata of hosted tools."""
        stripped = {
            scope: {name: value for name, value in fields.items() if (scope, name) not in self.source.scopes}
            for scope, fields in extra.items()
        }
        return {scope: fields for scope, fields in stripped.items() if fields}

    def _report_unread(self, pointers: Iterable[str], path: str) -> None:
        for pointer in pointers:
            self._losses.add(path + pointer, pointer_label(pointer), "dropped", "the target has nothing like it")

    def release(self) -> tuple[Event, ...]:
        """Return the end of a text that was held back, because another item follows."""
        held, self._held = self._held, None
        return () if held is None else (held,)

    def _with_citations(self, event: TextEnd, text: _WrittenText, citations: Sequence[Citation]) -> TextEnd:
        """Add citations with positions in a text to its end, or keep them for the end of the answer."""
        if not citations:
            return event
        if self.source.covers_text:
            citations = [replace(citation, start=0, end=len(text.text)) for citation in citations]
        if self._target.read_text is None:
            self._citations += [_shift(citation, text.start) for citation in citations]
            return event
        if self._target.covers_text and any(citation.end - citation.start != len(text.text) for citation in citations):
            detail = "the target's citations belong to a whole text"
            self._losses.add("/parts", "position of a citation", "weakened", detail, "info")
        if self._target.counts_bytes:
            citations = _in_bytes(citations, text.text)
        written = self._target.write_text(citations)
        for wire in written:  # with fields of the target, the source's other fields are not reported later
            report_extra(self._strip(text.extra), text.path, wire, self._losses, scoped=False)
        return replace(event, extra=merge_extra(event.extra, written))

    # runs

    def take_part(self, event: WholePart, path: str, *, is_placed: bool) -> tuple[Event, ...]:
        """Return the events for a part, which may be a run. `is_placed`: its start has been passed on."""
        part = event.part
        run = None
        if type(part) is Opaque and part.type in self.source.parts:
            is_placed = False
            run = self.source.read_run(part)
        if type(part) is not Opaque or run is None:
            self.place(path, 0 if is_placed else 1)
            return (*self.release(), event)
        self._report_unread(unknown_pointers(part.value, self.source.parts[part.type]), path)
        if event.choice:
            self._losses.add(path, f"{run.kind} of the answer", "dropped", "it is not in the first choice", "error")
            return ()
        if run.phase == "call":
            self._losses.add(path, f"call of {run.kind}", "rewritten", "written when its result arrives", "info")
            self._pending[run.id or f"call {len(self._pending)}"] = run
            return self.release()
        events = self._write_run(self._complete(run) if run.phase == "result" else run, event.key, path)
        self.place(path, len(events))
        return (*self.release(), *events)

    def _complete(self, result: HostedRun) -> HostedRun:
        """Return the run of a result with the inputs of its call."""
        call_id = result.id if result.id in self._pending or not self._pending else next(iter(self._pending))
        call = self._pending.pop(call_id, None)
        if call is None:
            return replace(result, phase="whole")
        return replace(result, id=call.id or result.id, inputs=call.inputs, phase="whole")

    def _write_run(self, run: HostedRun, key: int | None, path: str) -> list[Event]:
        """Return the parts of a run; the first one has the key of the source's part."""
        self._runs.append(run)
        target = self._target
        if run.kind not in target.shows:
            self._losses.add(path, f"{run.kind} of the answer", "dropped", "the target's answers have no such part")
            return []
        self._losses.add(path, f"{run.kind} of the answer", "rewritten", "sent as a run of the target's tool", "info")
        run_id = run.id or f"{len(self._runs)}_{self.salt}"
        events: list[Event] = []
        for part in () if target.write_run is None else target.write_run(run, run_id):
            if key is None:
                self._key -= 1
            events.append(WholePart(self._key if key is None else key, part))
            key = None
        return events

    # the end

    def note_usage(self, usage: Usage) -> None:
        self._usage = usage

    def finish(self, end: ResponseEnd) -> list[Event]:
        """Return the last events: the text that was held back, runs, the number of runs, and the end."""
        events: list[Event] = []
        runs: list[HostedRun] = []
        if self.source.read_end is not None:
            runs, (citations, unread) = self.source.read_end(end, "".join(self._texts))
            self._report_unread(unread, "")
            self._place_citations(citations, events)
        events += self.release()
        for call in self._pending.values():
            events += self._write_run(replace(call, error="unavailable", phase="whole"), None, "/parts")
        self._pending.clear()
        known = {run.kind for run in self._runs}
        for run in runs:
            if run.kind not in known:  # else its parts were in the answer
                events += self._write_run(run, None, "/stop")
        last = self.origins[-1] if self.origins else 0
        self.place(f"/parts/{last}", sum(type(event) is WholePart for event in events))
        if self._runs and self._usage is not None:
            counted = self._target.write_usage(self._usage, self._runs)
            for wire in counted.extra.keys() - self._usage.extra.keys():  # as for a text with citations
                report_extra(self._usage.extra, "/usage", wire, self._losses, as_info=True, scoped=False)
            events += [] if counted is self._usage else [UsageUpdate(counted)]
        text = "".join(self._texts)
        stops = tuple([stop and replace(stop, extra=self._strip(stop.extra)) for stop in end.stops[:1]])
        end = replace(end, extra=self._strip(end.extra), stops=(*stops, *end.stops[1:]))
        return [*events, self._target.write_end(end, text, self._runs, self._citations)]

    def _place_citations(self, citations: Sequence[Citation], events: list[Event]) -> None:
        """Add citations with positions in the whole text to the text that is held back.

        Other texts have ended, so their citations have no position.
        """
        held, text = self._held, self._last
        if not citations:
            return
        if self._target.read_text is None:
            self._citations += citations
            return
        if held is None or text is None:
            self._losses.add("/stop", "citations", "dropped", "the text that they belong to has ended", "warning")
            return
        self._held = None
        if self.reads_text:
            citations = [_cut(citation, text) for citation in citations]
        if len(self._texts) > 1 and not all(citation.end for citation in citations):
            detail = "citations of earlier texts are added to the last one"
            self._losses.add("/stop", "position of a citation", "weakened", detail, "info")
        events.append(self._with_citations(held, text, citations))


def _shift(citation: Citation, offset: int) -> Citation:
    return replace(citation, start=citation.start + offset, end=citation.end + offset)


def _in_characters(citations: Sequence[Citation], text: str) -> list[Citation]:
    """Return citations with positions that count characters of the text instead of bytes."""
    data = text.encode("utf-8", "surrogatepass")
    return [
        replace(citation, start=count_characters(data, citation.start), end=count_characters(data, citation.end))
        for citation in citations
    ]


def _in_bytes(citations: Sequence[Citation], text: str) -> list[Citation]:
    """Return citations with positions that count bytes of the text instead of characters."""
    return [
        replace(citation, start=count_bytes(text, citation.start), end=count_bytes(text, citation.end))
        for citation in citations
    ]


def _cut(citation: Citation, text: _WrittenText) -> Citation:
    """Return a citation with its position in the text; without one if it is outside."""
    inside = text.start <= citation.start < citation.end <= text.start + len(text.text)
    return _shift(citation, -text.start) if inside else replace(citation, start=0, end=0)
