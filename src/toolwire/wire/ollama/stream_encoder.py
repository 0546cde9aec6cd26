"""Encode /api/chat streams: one line for each text fragment, for each complete call, and for the end."""

from __future__ import annotations

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
from ...ir.parts import Part, Reasoning, Refusal, Text, ToolCall
from ...ir.pointer import Object
from ...ir.request import Request
from ...ir.response import Usage
from ...ir.text import to_line, unescape
from ..fields import write_extra
from ..streaming.encoder import BaseStreamEncoder
from .fault import write_fault
from .messages import FORM, NAME, LocatedPart, report_order, write_call, write_content
from .response import (
    MESSAGE,
    ONE_CHOICE,
    report_incomplete_call,
    stop_without_call,
    write_created,
    write_stop,
    write_usage,
)


class OllamaStreamEncoder(BaseStreamEncoder):
    """Encoder of /api/chat streams: feed it events, get bytes."""

    def __init__(self, request: Request | None = None) -> None:
        super().__init__()
        self._head: Object = {}  # model and created_at, the same in every line
        self._line = b""  # a line up to the content of the message
        self._starts: dict[int, CallStart] = {}
        self._inputs: dict[int, list[bytes]] = {}  # input of open freeform calls so far
        self._calls: dict[int, bytes | None] = {}  # in start order: the line of an ended call, or None
        self._has_calls = 0  # number of calls written so far, the index of the next one
        self._parts: dict[int, LocatedPart] = {}  # by key: the items that reach the client
        self._thinking_key: int | None = None  # the reasoning written last
        self._sections: dict[int, int | None] = {}  # by key: the summary section of the last fragment
        self._broken: ToolCall | None = None  # the first incomplete call, which was left out
        self._usage: Usage | None = None

    def _write(self, event: Event) -> bytes:
        """Write an event of the first choice; an answer on this wire has no other."""
        key = getattr(event, "key", None)
        if key is not None and self._positions[key][0]:
            self._report_alternatives(ONE_CHOICE)
            return b""
        return super()._write(event)

    def _start(self, event: ResponseStart) -> bytes:
        """Keep the model and the time, which every line repeats; nothing is written yet."""
        if event.id:
            self.losses.add("/id", "id", "dropped", "Ollama answers have no id", "info")
        created = write_created(event.created, event.extra.get(FORM, {}), self.losses)
        self._head = {"model": event.model, **created}
        self._line = to_line(self._head)[:-1] + b',"message":{"role":"assistant","content":"'
        return b""

    def _message_line(self, content: bytes, extra_fields: bytes = b"") -> bytes:
        return b'%b%b"%b},"done":false}\n' % (self._line, content, extra_fields)

    def _text_start(self, event: TextStart) -> bytes:
        if event.refusal:
            self.losses.add(
                self._part_path(event.key), "refusal", "rewritten", "Ollama has no refusal field; sent as text", "info"
            )
        return self._add_part(event.key, Refusal("") if event.refusal else Text(""))

    def _reasoning_start(self, event: ReasoningStart) -> bytes:
        if FORM in event.extra:  # thinking of this wire continues without a gap
            self._thinking_key = event.key
        return self._add_part(event.key, Reasoning())

    def _add_part(self, key: int, part: Part) -> bytes:
        self._parts[key] = self._part_path(key), part
        return b""

    def _text_delta(self, event: TextDelta) -> bytes:
        return self._message_line(event.escaped)

    def _reasoning_delta(self, event: ReasoningDelta) -> bytes:
        """Write a thinking fragment; other reasoning and a new section of a summary begin after a blank line."""
        if event.section is not None:
            detail = "Ollama thinking is plain text"
            self.losses.add(f"{self._part_path(event.key)}/summary", "reasoning summary", "rewritten", detail, "info")
        previous_section = self._sections.setdefault(event.key, event.section)
        self._sections[event.key] = event.section
        is_continued = previous_section == event.section and self._thinking_key in (None, event.key)
        gap = b"" if is_continued else b"\\n\\n"
        self._thinking_key = event.key
        return self._message_line(b"", b',"thinking":"%b%b"' % (gap, event.escaped))

    def _text_end(self, event: TextEnd | ReasoningEnd) -> bytes:
        if event.artefacts:
            path = self._part_path(event.key)
            self.losses.add(f"{path}/artefacts", "artefact", "dropped", "Ollama has no field for it")
        self._report_empty(event)
        return b""

    def _call_start(self, event: CallStart) -> bytes:
        self._starts[event.key] = event
        self._calls[event.key] = None
        self._add_part(event.key, ToolCall("", ""))
        return b""

    def _call_delta(self, event: CallDelta) -> bytes:
        if self._starts[event.key].kind == "freeform":
            self._inputs.setdefault(event.key, []).append(event.escaped)
        return b""

    def _call_end(self, event: CallEnd) -> bytes:
        """Write a call when all earlier calls have ended; an incomplete one is left out and reported."""
        start = self._starts.pop(event.key)
        raw = event.raw
        if start.kind == "freeform":
            raw = unescape(b"".join(self._inputs.pop(event.key, [])))
        call = ToolCall(
            start.id,
            start.name,
            event.arguments,
            raw,
            event.state,
            start.kind,
            start.namespace,
            artefacts=event.artefacts,
            extra={**start.extra, **event.extra},
        )
        path = self._part_path(event.key)
        if call.state != "complete":
            report_incomplete_call(call, self.losses, path)
            self._broken = self._broken or call
            self._calls[event.key] = b""
            del self._parts[event.key]
        else:
            written = to_line(write_call(call, self.losses, path, self._has_calls))
            self._has_calls += 1
            self._calls[event.key] = self._message_line(b"", b',"tool_calls":[%b]' % written)
        return self._write_ended_calls()

    def _write_ended_calls(self) -> bytes:
        """Return the ended calls before the first open one, in order, because results may be matched by order."""
        out = b""
        while self._calls and (written := next(iter(self._calls.values()))) is not None:
            out += written
            del self._calls[next(iter(self._calls))]
        return out

    def _whole_part(self, event: WholePart) -> bytes:
        self._add_part(event.key, event.part)
        fields = write_content([(self._part_path(event.key), event.part)], {}, self.losses, "")
        if not fields.get("content") and "images" not in fields:
            return b""
        return to_line({**self._head, "message": {"role": "assistant", **fields}, "done": False}) + b"\n"

    def _update_usage(self, event: UsageUpdate) -> bytes:
        self._usage = event.usage
        return b""

    def _ping(self, event: Ping) -> bytes:
        return self._message_line(b"") if self._line else b""  # clients parse every line, so no line may be blank

    def _fail(self, event: StreamFault) -> bytes:
        return to_line(write_fault(event.fault)) + b"\n"

    def _end(self, event: ResponseEnd) -> bytes:
        """Write the last line: the stop reason, the counts, and the fields that only this wire has."""
        report_order(list(self._parts.values()), self.losses)
        if len(event.stops) > 1:
            self._report_alternatives(ONE_CHOICE)
        stop = event.stops[0] if event.stops else None
        if self._broken is not None:
            stop = stop_without_call(self._broken, stop, self.losses)
        message = write_extra({"role": "assistant", "content": ""}, event.extra, MESSAGE)
        out: Object = {**self._head, "message": message}
        if stop is not None:
            out.update(write_stop(stop, self.losses))
        out["done"] = True
        if self._usage is not None:
            out.update(write_usage(self._usage, self.losses))
        return to_line(write_extra(out, {NAME: event.extra.get(NAME, {})}, NAME)) + b"\n"


OllamaStreamEncoder.handlers = {
    ResponseStart: OllamaStreamEncoder._start,
    TextStart: OllamaStreamEncoder._text_start,
    TextDelta: OllamaStreamEncoder._text_delta,
    TextEnd: OllamaStreamEncoder._text_end,
    ReasoningStart: OllamaStreamEncoder._reasoning_start,
    ReasoningDelta: OllamaStreamEncoder._reasoning_delta,
    ReasoningEnd: OllamaStreamEncoder._text_end,
    CallStart: OllamaStreamEncoder._call_start,
    CallDelta: OllamaStreamEncoder._call_delta,
    CallEnd: OllamaStreamEncoder._call_end,
    WholePart: OllamaStreamEncoder._whole_part,
    UsageUpdate: OllamaStreamEncoder._update_usage,
    Ping: OllamaStreamEncoder._ping,
    StreamFault: OllamaStreamEncoder._fail,
    ResponseEnd: OllamaStreamEncoder._end,
}
