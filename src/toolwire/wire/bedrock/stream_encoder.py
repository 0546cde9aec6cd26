"""Encode ConverseStream answers as messages of a binary event stream.

Texts and reasoning have no start event; a call has one. The usage is in `metadata`, which comes after `messageStop`. Blocks are
sequential, because clients build a call from the last start.
"""

from __future__ import annotations

from collections.abc import Sequence

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
from ...ir.folding import merge_extra
from ...ir.parts import Artefact, Extra, Media, Opaque
from ...ir.pointer import JSON, Object
from ...ir.request import Request
from ...ir.response import Stop, Usage
from ...ir.text import dumps, escape, to_line, unescape
from ...stream.event_stream import encode_event, encode_exception
from ..codec import report_search_call
from ..fields import write_extra
from ..streaming.encoder import SequentialEncoder
from .blocks import CITATIONS
from .fault import error_type_of, write_fault
from .media import NAME, PROVIDER
from .response import (
    FORM,
    ONE_CHOICE,
    report_envelope,
    report_last_call,
    report_truncated,
    write_answer_block,
    write_stop,
    write_usage,
)

_IN_STOP = ("additionalModelResponseFields",)  # fields of an answer that are in `messageStop`; others are in `metadata`


class ConverseStreamEncoder(SequentialEncoder):
    """Encoder of ConverseStream answers: feed it events, get bytes."""

    one_choice = ONE_CHOICE

    def __init__(self, request: Request | None = None) -> None:
        """Create the encoder; no field of an answer depends on `request`."""
        super().__init__()
        self._extra: Extra = {}  # of the answer
        self._started = False
        self._index = 0
        self._call: CallStart | None = None  # the open call
        self._item_extra: Extra = {}  # of the open text or reasoning
        self._freeform: list[bytes] = []  # input of the open freeform call so far
        self._last_call: CallEnd | None = None

    def _write(self, event: Event) -> bytes:
        """Write an event. The start of the answer is written before its first content."""
        if isinstance(event, ResponseStart):
            self._extra = event.extra
            report_envelope(event.id, event.model, event.created, self.losses)
            return b""
        if isinstance(event, UsageUpdate):
            return self._update_usage(event)
        if isinstance(event, (PartStart, Ping)):  # no event of this wire is empty; SDKs have no keep-alive
            return b""
        if isinstance(event, StreamFault) and event.fault.kind != "malformed_call":
            kind = error_type_of(event.fault)
            return encode_exception(kind[:1].lower() + kind[1:], to_line(write_fault(event.fault)))
        opening = b""
        if not self._started:
            self._started = True
            opening = encode_event("messageStart", b'{"role":"assistant"}')
        if isinstance(event, StreamFault):  # a stop reason on this wire
            stops = event.end.stops or (Stop("malformed_call"),)
            return opening + self._end(ResponseEnd(stops, event.end.extra))
        return opening + self._dispatch(event)

    def _delta(self, delta: bytes) -> bytes:
        return encode_event("contentBlockDelta", b'{"contentBlockIndex":%d,"delta":%b}' % (self._index, delta))

    def _block_start(self, start: Object) -> bytes:
        return encode_event("contentBlockStart", to_line({"start": start, "contentBlockIndex": self._index}))

    def _close_block(self) -> bytes:
        self._index += 1
        return encode_event("contentBlockStop", b'{"contentBlockIndex":%d}' % (self._index - 1))

    def _text_start(self, event: TextStart) -> bytes:
        self._item_extra = event.extra
        if event.refusal:
            detail = "Converse has no refusal block; sent as text"
            self.losses.add(self._part_path(event.key), "refusal", "rewritten", detail, "info")
        return b""

    def _reasoning_start(self, event: ReasoningStart) -> bytes:
        self._item_extra = event.extra
        return b""

    def _text_delta(self, event: TextDelta) -> bytes:
        self._delta_prefix = b"text"
        return self._delta(b'{"text":"%b"}' % event.escaped)

    def _text_end(self, event: TextEnd) -> bytes:
        """Write the citations of a text as deltas, and close the block. A text without either is an empty delta."""
        foreign = self._report_foreign(event.key, event.artefacts)
        extra = merge_extra(self._item_extra, event.extra)
        out = b"".join([self._delta(to_line({"citation": citation})) for citation in _citations(extra)])
        if not out and not self._delta_prefix:
            if foreign:  # left out of documents, too
                self._report_empty(event)
                return b""
            out = self._delta(b'{"text":""}')
        return out + self._close_block()

    def _reasoning_delta(self, event: ReasoningDelta) -> bytes:
        gap = self._begin_section(event, "reasoning on Converse is plain text")
        self._delta_prefix = b"reasoning"
        return self._delta(b'{"reasoningContent":{"text":"%b%b"}}' % (gap, event.escaped))

    def _reasoning_end(self, event: ReasoningEnd) -> bytes:
        """Write the artefacts of reasoning as deltas, and close the block. Reasoning without either is left out."""
        self._report_foreign(event.key, event.artefacts)
        out = b""
        for artefact in event.artefacts:
            if artefact.provider == PROVIDER:
                field = "redactedContent" if artefact.kind == "redacted" else "signature"
                out += self._delta(to_line({"reasoningContent": {field: artefact.data}}))
        if not out and not self._delta_prefix:
            self._report_empty(event)
            return b""
        return out + self._close_block()

    def _call_start(self, event: CallStart) -> bytes:
        """Open a call; a namespace and the kind of a freeform call or a search are losses."""
        self._call, self._freeform = event, []
        path = self._part_path(event.key)
        if event.namespace is not None:
            self.losses.add(f"{path}/namespace", "namespace", "dropped", "calls on Converse have no namespace")
        report_search_call(event, path, self.losses)
        if event.kind == "freeform":
            detail = "sent as a call with one argument, `input`"
            self.losses.add(path, "freeform call", "rewritten", detail, "info")
        fields = write_extra({"toolUseId": event.id, "name": event.name}, event.extra, f"{NAME}/toolUse")
        return self._block_start(write_extra({"toolUse": fields}, event.extra, NAME))

    def _call_delta(self, event: CallDelta) -> bytes:
        assert self._call is not None
        if self._call.kind == "freeform":
            self._freeform.append(event.escaped)
            return b""
        return self._delta(b'{"toolUse":{"input":"%b"}}' % event.escaped)

    def _call_end(self, event: CallEnd) -> bytes:
        """Close a call; a freeform input is written here, because it has to be wrapped as a JSON object."""
        assert self._call is not None
        self._report_foreign(event.key, event.artefacts)
        self._last_call = event
        out = b""
        if self._call.kind == "freeform":
            text = dumps({"input": unescape(b"".join(self._freeform))})
            text = text[:-1] if event.state == "truncated" else text  # it must not look complete
            out = self._delta(b'{"toolUse":{"input":"%b"}}' % escape(text))
        elif event.state == "truncated":
            report_truncated(event.raw or "", self.losses, self._part_path(event.key))
        return out + self._close_block()

    def _whole_part(self, event: WholePart) -> bytes:
        """Write media, or a block of this wire; one that streams have no form for is left out, with a loss."""
        path, part = self._part_path(event.key), event.part
        block = write_answer_block(part, self.losses, path)
        if block is None:
            return b""
        if isinstance(part, Media) and "text" in block:  # in place of media without a format of this wire
            return self._delta(to_line(block)) + self._close_block()
        if isinstance(part, Media) and "image" in block:
            image: Object = block["image"]
            start = {name: value for name, value in image.items() if name not in ("source", "error")}
            delta = {name: value for name, value in image.items() if name in ("source", "error")}
            return self._pieces({"image": start}, [{"image": delta}])
        if isinstance(part, Opaque) and part.type == "toolResult":
            result: Object = block["toolResult"]
            start = {name: value for name, value in result.items() if name != "content"}
            return self._pieces({"toolResult": start}, [{"toolResult": result.get("content", [])}])
        if isinstance(part, Opaque) and part.type == "toolUse":
            call: Object = block["toolUse"]
            start = {name: value for name, value in call.items() if name != "input"}
            return self._pieces({"toolUse": start}, [{"toolUse": {"input": dumps(call.get("input") or {})}}])
        return self._pieces(block, [])

    def _pieces(self, start: Object, deltas: Sequence[JSON]) -> bytes:
        written = b"".join([self._delta(to_line(delta)) for delta in deltas])
        return self._block_start(start) + written + self._close_block()

    def _report_foreign(self, key: int, artefacts: tuple[Artefact, ...]) -> bool:
        """Report artefacts of other providers; return whether there are any."""
        has_foreign = any(artefact.provider != PROVIDER for artefact in artefacts)
        if has_foreign:
            path = f"{self._part_path(key)}/artefacts"
            self.losses.add(path, "artefact", "dropped", "it belongs to another provider")
        return has_foreign

    def _end(self, event: ResponseEnd) -> bytes:
        """Write `messageStop` with the stop reason, then `metadata` with the usage, which an answer must have."""
        if len(event.stops) > 1:
            self._report_alternatives(ONE_CHOICE)
        stop = event.stops[0] if event.stops else None
        if (call := self._last_call) is not None and call.key == self._last_key:
            report_last_call(call.state, stop, self.losses, self._part_path(call.key))
        extra = merge_extra(self._extra, event.extra)
        fields = dict(extra.get(NAME, {}))
        last = write_stop(stop, self.losses) | {name: fields.pop(name) for name in _IN_STOP if name in fields}
        stop_event = encode_event("messageStop", to_line(last))
        if self._usage is not None or ":usage" not in extra.get(FORM, {}):
            fields = {"usage": write_usage(self._usage or Usage(), self.losses), **fields}
        return stop_event + encode_event("metadata", to_line(fields)) if fields else stop_event


def _citations(extra: Extra) -> list[JSON]:
    citations: JSON = extra.get(CITATIONS, {}).get("citations")
    return citations if type(citations) is list else []
