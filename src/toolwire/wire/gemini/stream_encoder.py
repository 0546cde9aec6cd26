"""Encode generateContent streams: each chunk is a small response, and function calls are complete.

The official client reads lines and parses any line without `data: ` as the start of an error, so a keep-alive is an
empty line here, not a comment.
"""

from __future__ import annotations

from typing import Any

from ...ir.events import (
    CallEnd,
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
    WholePart,
)
from ...ir.folding import merge_extra
from ...ir.parts import Artefact, Extra, Reasoning, Text, ToolCall
from ...ir.pointer import Object
from ...ir.request import Request
from ...ir.text import to_line
from ..codec import report_incomplete_call, stop_without_call
from ..streaming.encoder import WholeCallEncoder
from .fault import write_fault
from .field_names import NAME, write_fields
from .part_writer import report_foreign, write_part
from .parts import PROVIDER
from .response import malformed_detail, write_stop, write_usage


class GeminiStreamEncoder(WholeCallEncoder):
    """Encoder of streamGenerateContent answers (alt=sse): feed it events, get bytes."""

    def __init__(self, request: Request | None = None) -> None:
        super().__init__()
        self._tail = b""  # modelVersion and responseId, the same in every chunk
        self._open: dict[int, Any] = {}  # the start event of each open item
        self._last: dict[int, tuple[type[Event], int]] = {}  # by choice: kind and key of the last fragment

    def _start(self, event: ResponseStart) -> bytes:
        """Keep the model and the id, which every chunk repeats (`_tail`); nothing is written yet. A time is a loss."""
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

    def _text_start(self, event: TextStart | ReasoningStart) -> bytes:
        """Register an item; nothing is written before its first fragment."""
        self._open[event.key] = event
        if isinstance(event, TextStart) and event.refusal:
            self.losses.add(
                self._part_path(event.key), "refusal", "rewritten", "Gemini has no refusal part; sent as text", "info"
            )
        return b""

    _reasoning_start = _text_start

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
        gap = self._begin_section(event, "Gemini thoughts are plain text")
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

    def _write_call(self, call: ToolCall, key: int, choice: int) -> bytes:
        if call.state != "complete":
            report_incomplete_call(call, "Gemini", self.losses, self._part_path(key))
            return b""
        return self._chunk(choice, to_line(write_part(call, self.losses, self._part_path(key))))

    def _end_run(self, choice: int) -> None:
        self._last.pop(choice, None)

    def _whole_part(self, event: WholePart) -> bytes:
        part = write_part(event.part, self.losses, self._part_path(event.key))
        if part is None:
            return b""
        self._last.pop(event.choice, None)
        return self._chunk(event.choice, to_line(part))

    def _ping(self, event: Ping) -> bytes:
        return b"\n"

    def _fail(self, event: StreamFault) -> bytes:
        return b"data: " + to_line(write_fault(event.fault)) + b"\n\n"

    def _end(self, event: ResponseEnd) -> bytes:
        """Write the last chunk: finish reasons, usage, and the fields of the answer that only this wire has.

        A choice with an incomplete call, which was left out, gets another finish reason.
        """
        candidates = []
        for index, stop in enumerate(event.stops):
            path = f"/alternatives/{index - 1}" if index else ""
            if index in self._broken:
                stop = stop_without_call(call := self._broken[index], stop, self.losses, malformed_detail(call))
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
