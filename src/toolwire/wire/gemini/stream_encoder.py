"""Encode generateContent streams: each chunk is a small response, and function calls are complete.

The official client reads lines and parses any line without `data: ` as the start of an error, so a keep-alive is an
empty line here, not a comment.
"""

from __future__ import annotations

from typing import Any

from ...ir.events import (
    CallDelta,
    CallEnd,
    CallStart,
    Event,
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
from ...ir.folding import merge_extra
from ...ir.parts import Artefact, Extra, Reasoning, Text, ToolCall
from ...ir.pointer import Object
from ...ir.request import Request
from ...ir.response import Usage
from ...ir.text import to_line, unescape
from ..streaming.encoder import BaseStreamEncoder
from .fault import write_fault
from .field_names import NAME, write_fields
from .part_writer import report_foreign, write_part
from .parts import PROVIDER
from .response import report_incomplete_call, stop_without_call, write_stop, write_usage


class GeminiStreamEncoder(BaseStreamEncoder):
    """Encoder of streamGenerateContent answers (alt=sse): feed it events, get bytes."""

    def __init__(self, request: Request | None = None) -> None:
        super().__init__()
        self._tail = b""  # modelVersion and responseId, the same in every chunk
        self._open: dict[int, Any] = {}  # the start event of each open item
        self._calls: dict[int, bytes | None] = {}  # in start order: the chunk of an ended call, or None
        self._last: dict[int, tuple[type[Event], int]] = {}  # by choice: kind and key of the last fragment
        self._sections: dict[int, int | None] = {}  # by key: the summary section of the last fragment
        self._freeform: dict[int, list[bytes]] = {}  # input of open freeform calls so far
        self._broken: dict[int, ToolCall] = {}  # by choice: an incomplete call that was left out
        self._usage: Usage | None = None

    def _start(self, event: ResponseStart) -> bytes:
        """Keep the model and the id, which every chunk repeats (`_tail`); nothing is written yet."""
        fields: Object = {}
        if event.created is not None:
            self.losses.add(
                "/created", "created", "dropped", "toolwire writes no timestamp into Gemini answers", "info"
            )
        if event.model:
            fields["modelVersion"] = event.model
        if event.id:
            fields["responseId"] = event.id
        self._tail = b"," + to_line(fields)[1:-1] if fields else b""
        return b""

    def _chunk(self, choice: int, part: bytes) -> bytes:
        head = b'data: {"candidates":[{"content":{"role":"model","parts":['
        return b'%b%b]},"index":%d}]%b}\n\n' % (head, part, choice, self._tail)

    def _begin(self, event: TextStart | ReasoningStart | CallStart) -> bytes:
        """Register an item; nothing is written before its first fragment or, for a call, before its end."""
        self._open[event.key] = event
        if isinstance(event, CallStart):
            self._calls[event.key] = None
        if isinstance(event, TextStart) and event.refusal:
            self.losses.add(
                self._part_path(event.key), "refusal", "rewritten", "Gemini has no refusal part; sent as text", "info"
            )
        return b""

    def _text_delta(self, event: TextDelta) -> bytes:
        choice = self._report_joined(event)
        return self._chunk(choice, b'{"text":"%b"}' % event.escaped)

    def _report_joined(self, event: TextDelta | ReasoningDelta) -> int:
        """Report items that are joined because no part separates them. Return the choice of the item."""
        choice: int = self._open[event.key].choice
        last, self._last[choice] = self._last.get(choice), (type(event), event.key)
        if last is not None and last[0] is type(event) and last[1] != event.key:
            kind = "text" if isinstance(event, TextDelta) else "reasoning"
            for key in (last[1], event.key):
                self.losses.add(
                    self._part_path(key), kind, "rewritten", "joined, because no part separates them", "info"
                )
        return choice

    def _reasoning_delta(self, event: ReasoningDelta) -> bytes:
        """Write a thought fragment; a new section of a summary begins after a blank line."""
        if event.section is not None:
            self.losses.add(
                f"{self._part_path(event.key)}/summary",
                "reasoning summary",
                "rewritten",
                "Gemini thoughts are plain text",
                "info",
            )
        previous_section = self._sections.setdefault(event.key, event.section)
        self._sections[event.key] = event.section
        gap = b"" if previous_section == event.section else b"\\n\\n"
        choice = self._report_joined(event)
        return self._chunk(choice, b'{"text":"%b%b","thought":true}' % (gap, event.escaped))

    def _text_end(self, event: TextEnd) -> bytes:
        start = self._open.pop(event.key)
        return self._write_signature(
            event, start, Text("", None, self._own_artefacts(event), _own_fields(start, event))
        )

    def _reasoning_end(self, event: ReasoningEnd) -> bytes:
        start = self._open.pop(event.key)
        return self._write_signature(
            event, start, Reasoning("", (), self._own_artefacts(event), _own_fields(start, event))
        )

    def _write_signature(
        self, event: TextEnd | ReasoningEnd, start: TextStart | ReasoningStart, part: Text | Reasoning
    ) -> bytes:
        """Write a signature, and fields of this wire only, after the text in an empty part."""
        if not part.artefacts and not part.extra:
            self._report_empty(event)
            return b""
        if part.artefacts:
            self._last.pop(start.choice, None)
        return self._chunk(start.choice, to_line(write_part(part, self.losses, self._part_path(start.key))))

    def _own_artefacts(self, event: TextEnd | ReasoningEnd | CallEnd) -> tuple[Artefact, ...]:
        report_foreign(event.artefacts, self.losses, self._part_path(event.key))
        return tuple(artefact for artefact in event.artefacts if artefact.provider == PROVIDER)

    def _call_delta(self, event: CallDelta) -> bytes:
        start = self._open[event.key]
        if start.kind == "freeform":
            self._freeform.setdefault(event.key, []).append(event.escaped)
        return b""

    def _call_end(self, event: CallEnd) -> bytes:
        """Write a call when all earlier calls have ended; an incomplete one is left out and reported."""
        start: CallStart = self._open.pop(event.key)
        raw = event.raw
        if start.kind == "freeform":
            raw = unescape(b"".join(self._freeform.pop(event.key, [])))
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
        path = self._part_path(event.key)
        if call.state != "complete":
            report_incomplete_call(call, self.losses, path)
            self._broken.setdefault(start.choice, call)
            self._calls[event.key] = b""
        else:
            self._calls[event.key] = self._chunk(start.choice, to_line(write_part(call, self.losses, path)))
        return self._write_ended_calls()

    def _write_ended_calls(self) -> bytes:
        """Return the ended calls before the first open one, in order, because results may be matched by order."""
        out = b""
        while self._calls and (written := next(iter(self._calls.values()))) is not None:
            out += written
            key = next(iter(self._calls))
            del self._calls[key]
            if written:
                self._last.pop(self._positions[key][0], None)
        return out

    def _whole_part(self, event: WholePart) -> bytes:
        part = write_part(event.part, self.losses, self._part_path(event.key))
        if part is None:
            return b""
        self._last.pop(event.choice, None)
        return self._chunk(event.choice, to_line(part))

    def _update_usage(self, event: UsageUpdate) -> bytes:
        self._usage = event.usage
        return b""

    def _ping(self, event: Ping) -> bytes:
        return b"\n"

    def _fail(self, event: StreamFault) -> bytes:
        return b"data: " + to_line(write_fault(event.fault)) + b"\n\n"

    def _end(self, event: ResponseEnd) -> bytes:
        """Write the last chunk: finish reasons, usage, and the fields of the answer that only this wire has."""
        candidates = []
        for index, stop in enumerate(event.stops):
            path = f"/alternatives/{index - 1}" if index else ""
            if index in self._broken:
                stop = stop_without_call(self._broken[index], stop, self.losses)
            candidate = {**write_stop(stop, self.losses, path), "index": index}
            candidates.append(candidate if stop is None else write_fields(candidate, stop.extra, f"{NAME}/candidate"))
        fields: Object = {"candidates": candidates}
        if self._usage is not None:
            fields["usageMetadata"] = write_usage(self._usage, self.losses)
        fields = write_fields(fields, {NAME: event.extra.get(NAME, {})}, NAME)
        return b"data: %b%b}\n\n" % (to_line(fields)[:-1], self._tail)


def _own_fields(start: TextStart | ReasoningStart, end: TextEnd | ReasoningEnd) -> Extra:
    fields = merge_extra(start.extra, end.extra).get(NAME)
    return {NAME: fields} if fields else {}


GeminiStreamEncoder.handlers = {
    ResponseStart: GeminiStreamEncoder._start,
    TextStart: GeminiStreamEncoder._begin,
    TextDelta: GeminiStreamEncoder._text_delta,
    TextEnd: GeminiStreamEncoder._text_end,
    ReasoningStart: GeminiStreamEncoder._begin,
    ReasoningDelta: GeminiStreamEncoder._reasoning_delta,
    ReasoningEnd: GeminiStreamEncoder._reasoning_end,
    CallStart: GeminiStreamEncoder._begin,
    CallDelta: GeminiStreamEncoder._call_delta,
    CallEnd: GeminiStreamEncoder._call_end,
    WholePart: GeminiStreamEncoder._whole_part,
    UsageUpdate: GeminiStreamEncoder._update_usage,
    Ping: GeminiStreamEncoder._ping,
    StreamFault: GeminiStreamEncoder._fail,
    ResponseEnd: GeminiStreamEncoder._end,
}
