"""Encode /v2/chat streams.

Content elements and calls are numbered from 0, each in their own order. Citations, log probabilities and fields that only
this wire has are known at the end of the answer, so they are written before `message-end`, or in it.
"""

from __future__ import annotations

from ...ir.events import (
    CallDelta,
    CallEnd,
    CallStart,
    Event,
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
from ...ir.parts import Extra, Opaque, Text, ToolCall, part_label
from ...ir.pointer import Object
from ...ir.request import Request
from ...ir.response import Fault
from ...ir.text import dumps, escape, to_line, unescape
from ..fields import write_extra
from ..streaming.encoder import BaseStreamEncoder
from .content import FORM, NAME
from .fault import TIMEOUT, write_fault
from .messages import FUNCTION, is_in_plan, report_call
from .response import MESSAGE, ONE_CHOICE, report_envelope, write_stop, write_usage

_CONTENT = b'event: content-delta\ndata: {"type":"content-delta","index":%d,"delta":{"message":{"content":{"%b":"'
_PLAN = b'event: tool-plan-delta\ndata: {"type":"tool-plan-delta","delta":{"message":{"tool_plan":"', b'"}}}\n\n'
_CALL = (
    b'event: tool-call-delta\ndata: {"type":"tool-call-delta","index":%d,"delta":{"message":{"tool_calls":{"function":'
    b'{"arguments":"'
)
_CONTENT_TAIL, _CALL_TAIL = b'"}}}}\n\n', b'"}}}}}\n\n'


class CohereStreamEncoder(BaseStreamEncoder):
    """Encoder of /v2/chat streams: feed it events, get bytes."""

    def __init__(self, request: Request | None = None) -> None:
        """Create the encoder; no field of an answer depends on `request`."""
        super().__init__()
        self._around: dict[int, tuple[bytes, bytes]] = {}  # by key: the bytes before and after a fragment
        self._indices: dict[int, int] = {}  # of open elements and calls, by key
        self._content_count = 0
        self._call_count = 0
        self._freeform: dict[int, list[bytes]] = {}  # input of open freeform calls so far
        self._starts: dict[int, CallStart] = {}  # of open calls

    def feed(self, event: Event) -> bytes:
        """Return the bytes of an event. A delta of a text or a call that has begun takes a short path."""
        if (type(event) is CallDelta or type(event) is TextDelta) and event.key not in self._empty:
            around = self._around.get(event.key)
            if around is not None:
                return around[0] + event.escaped + around[1]
        return super().feed(event)

    def find_frame(self, key: int) -> tuple[bytes, bytes] | None:
        """Return the bytes around a fragment of a text or a call that has begun."""
        return None if key in self._empty else self._around.get(key)

    def _write(self, event: Event) -> bytes:
        """Write an event of the first choice; an answer on this wire has no other."""
        key = getattr(event, "key", None)
        if key is not None and self._positions[key][0]:
            self._report_alternatives(ONE_CHOICE)
            return b""
        return super()._write(event)

    def _start(self, event: ResponseStart) -> bytes:
        report_envelope(event.model, event.created, self.losses)
        message = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
        fields: Object = {"id": event.id, "type": "message-start", "delta": {"message": message}}
        return _event("message-start", write_extra(fields, event.extra, NAME))

    def _text_start(self, event: TextStart) -> bytes:
        path = self._part_path(event.key)
        if event.refusal:
            self.losses.add(path, "refusal", "rewritten", "Cohere has no refusals; sent as text", "info")
        self._report_order(path)
        if is_in_plan(Text("", extra=event.extra)):
            self._around[event.key] = _PLAN
            return b""
        return self._open_element(event.key, write_extra({"type": "text", "text": ""}, event.extra, NAME), b"text")

    def _reasoning_start(self, event: ReasoningStart) -> bytes:
        """Open an element for thinking; reasoning of another wire may have no text, and is opened by its first fragment."""
        self._report_order(self._part_path(event.key))
        if FORM not in event.extra:
            return b""
        return self._open_thinking(event.key, event.extra)

    def _open_thinking(self, key: int, extra: Extra) -> bytes:
        return self._open_element(key, write_extra({"type": "thinking", "thinking": ""}, extra, NAME), b"thinking")

    def _report_order(self, path: str) -> None:
        if self._call_count:
            detail = "Cohere has a fixed order: content, plan, calls"
            self.losses.add(path, "order of text and calls", "moved", detail, "info")

    def _open_element(self, key: int, content: Object, field: bytes) -> bytes:
        """Write the start of a content element, and prepare the bytes around its fragments."""
        index = self._indices[key] = self._content_count
        self._content_count += 1
        self._around[key] = _CONTENT % (index, field), _CONTENT_TAIL
        return _event("content-start", {"type": "content-start", "index": index, "delta": _delta(content=content)})

    def _text_delta(self, event: TextDelta) -> bytes:
        before, after = self._around[event.key]
        return before + event.escaped + after

    def _reasoning_delta(self, event: ReasoningDelta) -> bytes:
        gap = self._begin_section(event, "Cohere thinking is plain text")
        opening = b"" if event.key in self._around else self._open_thinking(event.key, {})
        before, after = self._around[event.key]
        return opening + before + gap + event.escaped + after

    def _text_end(self, event: TextEnd | ReasoningEnd) -> bytes:
        self._around.pop(event.key, None)
        if event.artefacts:
            path = self._part_path(event.key)
            self.losses.add(f"{path}/artefacts", "artefact", "dropped", "Cohere has no field for it")
        index = self._indices.pop(event.key, None)
        if index is None:  # a plan has no end, and reasoning without text no element
            self._report_empty(event)
            return b""
        return _event("content-end", {"type": "content-end", "index": index})

    _reasoning_end = _text_end

    def _call_start(self, event: CallStart) -> bytes:
        """Write the start of a call; the input of a freeform call is kept until its end, to be wrapped as JSON."""
        call = ToolCall(event.id, event.name, kind=event.kind, namespace=event.namespace, cache=event.cache)
        report_call(call, self._part_path(event.key), self.losses)
        index = self._indices[event.key] = self._call_count
        self._call_count += 1
        self._starts[event.key] = event
        self._around[event.key] = _CALL % index, _CALL_TAIL
        if event.kind == "freeform":
            self._freeform[event.key] = []
            self._around.pop(event.key)
            detail = "sent as a call with one argument, `input`"
            self.losses.add(self._part_path(event.key), "freeform call", "rewritten", detail, "info")
        function = write_extra({"name": event.name, "arguments": ""}, event.extra, FUNCTION)
        call_fields = write_extra({"id": event.id, "type": "function", "function": function}, event.extra, NAME)
        fields = {"type": "tool-call-start", "index": index, "delta": _delta(tool_calls=call_fields)}
        return _event("tool-call-start", fields)

    def _call_delta(self, event: CallDelta) -> bytes:
        if event.key in self._freeform:
            self._freeform[event.key].append(event.escaped)
            return b""
        before, after = self._around[event.key]
        return before + event.escaped + after

    def _call_end(self, event: CallEnd) -> bytes:
        """Write arguments that had no delta, and the end of the call."""
        if event.artefacts:
            path = self._part_path(event.key)
            self.losses.add(f"{path}/artefacts", "artefact", "dropped", "Cohere has no field for it")
        index = self._indices.pop(event.key)
        self._around.pop(event.key, None)
        del self._starts[event.key]
        text = ""
        if event.key in self._freeform:
            text = dumps({"input": unescape(b"".join(self._freeform.pop(event.key)))})
            if event.state == "truncated":
                text = text[:-1]  # as text of an object, it must not look complete
        elif event.key in self._empty and event.raw is None and event.state == "complete":
            text = dumps(event.arguments or {})
        out = (_CALL % index) + escape(text) + _CALL_TAIL if text else b""
        return out + _event("tool-call-end", {"type": "tool-call-end", "index": index})

    def _whole_part(self, event: WholePart) -> bytes:
        """Write an element of this wire; any other whole part has no place in an answer and is reported."""
        part = event.part
        if not isinstance(part, Opaque) or part.wire != NAME:
            detail = "Cohere answers have no element for it"
            self.losses.add(self._part_path(event.key), part_label(part), "dropped", detail, "error")
            return b""
        index = self._content_count
        opening = self._open_element(event.key, part.value, b"")
        del self._around[event.key], self._indices[event.key]
        return opening + _event("content-end", {"type": "content-end", "index": index})

    def _fail(self, event: StreamFault) -> bytes:
        """Write an error in `message-end`, or alone if it has fields of this wire. The message may not have begun."""
        if NAME in event.fault.extra:
            return _event("error", write_fault(event.fault))
        delta: Object = {"error": event.fault.message, "finish_reason": _fault_reason(event.fault)}
        fields: Object = {"type": "message-end", "delta": delta}
        return _event("message-end", fields)

    def _end(self, event: ResponseEnd) -> bytes:
        """Write citations and log probabilities, `message-end` with the fields that only this wire has, and `[DONE]`."""
        if len(event.stops) > 1:
            self._report_alternatives(ONE_CHOICE)
        stop = event.stops[0] if event.stops else None
        own, message = dict(event.extra.get(NAME, {})), dict(event.extra.get(MESSAGE, {}))
        out = [self._write_logprobs(own), self._write_citations(message)]
        delta: Object = {} if stop is None else {"finish_reason": write_stop(stop, self.losses)}
        if self._usage is not None:
            delta["usage"] = write_usage(self._usage, self.losses)
        delta.update(own)
        if message:
            delta["message"] = message
        delta.update(event.extra.get(f"{NAME}?", {}))
        out.append(_event("message-end", {"type": "message-end", "delta": delta}))
        return b"".join([*out, b"data: [DONE]\n\n"])

    def _write_logprobs(self, own: Object) -> bytes:
        """Write log probabilities, which the last element of the content has in deltas without text."""
        items = own.get("logprobs")
        if type(items) is not list:
            return b""
        del own["logprobs"]
        index = max(self._content_count - 1, 0)
        fields: Object = {"type": "content-delta", "index": index, "delta": _delta(content={"text": ""})}
        return b"".join([_event("content-delta", {**fields, "logprobs": item}) for item in items])

    def _write_citations(self, message: Object) -> bytes:
        citations = message.get("citations")
        if type(citations) is not list:
            return b""
        del message["citations"]
        out: list[bytes] = []
        for index, citation in enumerate(citations):
            fields = {"type": "citation-start", "index": index, "delta": _delta(citations=citation)}
            out += [
                _event("citation-start", fields),
                _event("citation-end", {"type": "citation-end", "index": index}),
            ]
        return b"".join(out)


def _fault_reason(fault: Fault) -> str:
    return TIMEOUT if fault.kind == "timeout" else "ERROR"


def _delta(**message: object) -> Object:
    return {"message": message}


def _event(name: str, fields: Object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), to_line(fields))
