"""Encode /api/chat streams: one line for each text fragment, for each complete call, and for the end."""

from __future__ import annotations

from ...ir.events import (
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
    WholePart,
)
from ...ir.parts import Part, Reasoning, Refusal, Text, ToolCall
from ...ir.pointer import Object
from ...ir.request import Request
from ...ir.text import to_line
from ..codec import report_incomplete_call, stop_without_call
from ..fields import write_extra
from ..streaming.encoder import WholeCallEncoder
from .fault import write_fault
from .messages import FORM, NAME, LocatedPart, report_order, write_call, write_content
from .response import (
    MESSAGE,
    ONE_CHOICE,
    write_created,
    write_stop,
    write_usage,
)


class OllamaStreamEncoder(WholeCallEncoder):
    """Encoder of /api/chat streams: feed it events, get bytes."""

    def __init__(self, request: Request | None = None) -> None:
        super().__init__()
        self._head: Object = {}  # model and created_at, the same in every line
        self._line = b""  # a line up to the content of the message
        self._has_calls = 0  # number of calls written so far, the index of the next one
        self._parts: dict[int, LocatedPart] = {}  # by key: the items that reach the client
        self._thinking_key: int | None = None  # the reasoning written last

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
        gap = self._begin_section(event, "Ollama thinking is plain text")
        if self._thinking_key not in (None, event.key):
            gap = b"\\n\\n"
        self._thinking_key = event.key
        return self._message_line(b"", b',"thinking":"%b%b"' % (gap, event.escaped))

    def _text_end(self, event: TextEnd | ReasoningEnd) -> bytes:
        if event.artefacts:
            path = self._part_path(event.key)
            self.losses.add(f"{path}/artefacts", "artefact", "dropped", "Ollama has no field for it")
        self._report_empty(event)
        return b""

    _reasoning_end = _text_end

    def _call_start(self, event: CallStart) -> bytes:
        self._add_part(event.key, ToolCall("", ""))
        return super()._call_start(event)

    def _write_call(self, call: ToolCall, key: int, choice: int) -> bytes:
        if call.state != "complete":
            report_incomplete_call(call, "Ollama", self.losses, self._part_path(key))
            del self._parts[key]
            return b""
        written = to_line(write_call(call, self.losses, self._part_path(key), self._has_calls))
        self._has_calls += 1
        return self._message_line(b"", b',"tool_calls":[%b]' % written)

    def _whole_part(self, event: WholePart) -> bytes:
        self._add_part(event.key, event.part)
        fields = write_content([(self._part_path(event.key), event.part)], {}, self.losses, "")
        if not fields.get("content") and "images" not in fields:
            return b""
        return to_line({**self._head, "message": {"role": "assistant", **fields}, "done": False}) + b"\n"

    def _ping(self, event: Ping) -> bytes:
        return self._message_line(b"") if self._line else b""  # clients parse every line, so no line may be blank

    def _fail(self, event: StreamFault) -> bytes:
        return to_line(write_fault(event.fault)) + b"\n"

    def _end(self, event: ResponseEnd) -> bytes:
        """Write the last line: the stop reason, the counts, and the fields that only this wire has.

        Other choices and a changed order of parts are losses.
        """
        report_order(list(self._parts.values()), self.losses)
        if len(event.stops) > 1:
            self._report_alternatives(ONE_CHOICE)
        stop = event.stops[0] if event.stops else None
        if self._broken:
            stop = stop_without_call(self._broken[0], stop, self.losses)
        message = write_extra({"role": "assistant", "content": ""}, event.extra, MESSAGE)
        out: Object = {**self._head, "message": message}
        if stop is not None:
            out.update(write_stop(stop, self.losses))
        out["done"] = True
        if self._usage is not None:
            out.update(write_usage(self._usage, self.losses))
        return to_line(write_extra(out, {NAME: event.extra.get(NAME, {})}, NAME)) + b"\n"
