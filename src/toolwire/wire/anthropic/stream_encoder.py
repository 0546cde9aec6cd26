"""Encode Messages streams.

Blocks are sequential on this wire: an item that starts while another is open is buffered, with its deltas, until that
one is closed. Indexes are dense, and a call's arguments are one sequence of fragments. The message starts only with the
first content, so that the usage known by then goes into `message_start`.
"""

from __future__ import annotations

from ...ir.events import (
    CallDelta,
    CallEnd,
    CallStart,
    Event,
    PartStart,
    Ping,
    ReasoningDelta,
    ReasoningEnd,
    ResponseEnd,
    ResponseStart,
    StreamFault,
    TextDelta,
    TextEnd,
    TextStart,
    UsageUpdate,
    WholePart,
)
from ...ir.parts import ToolCall
from ...ir.pointer import Object
from ...ir.request import Request
from ...ir.response import Usage
from ...ir.text import dumps, escape, to_line, unescape
from ..codec import report_search_call
from ..fields import write_extra
from ..streaming.encoder import SequentialEncoder
from .blocks import PROVIDER
from .fault import write_fault
from .response import (
    ONE_CHOICE,
    report_last_call,
    report_left_out,
    report_truncated,
    write_answer_block,
    write_stop,
    write_usage,
)
from .tools import NAME
from .typed_tools import write_member

_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":"'


class MessagesStreamEncoder(SequentialEncoder):
    """Encoder of Messages streams: feed it events, get bytes."""

    one_choice = ONE_CHOICE

    def __init__(self, request: Request | None = None) -> None:
        """Create the encoder; no field of an answer depends on `request`."""
        super().__init__()
        self._start = ResponseStart()
        self._started = False
        self._index = 0
        self._freeform: list[bytes] = []  # input of the open freeform call so far
        self._last_call: CallEnd | None = None
        self._member: CallStart | None = None  # an open call of a toolset

    def feed(self, event: Event) -> bytes:
        """Return the bytes of an event. A delta of the open block that is not its first takes a short path."""
        if type(event) is CallDelta or type(event) is TextDelta:
            key = event.key
            if key == self._open and self._delta_prefix and key in self._open_keys and key not in self._empty:
                return self._delta_prefix + event.escaped + b'"}}\n\n'
        return super().feed(event)

    def _write(self, event: Event) -> bytes:
        """Write an event; the start of the answer and its usage are kept until the message starts."""
        kind = type(event)
        if kind is UsageUpdate or kind is ResponseStart:
            return self._prepare(event)
        if kind is PartStart:  # a block is written when it is complete
            return b""
        if kind is Ping:  # allowed before message_start
            return _event("ping", {})
        if isinstance(event, StreamFault):  # an error needs no open message, and one may have been forwarded already
            return self._fail(event)
        return self._begin() + self._dispatch(event)

    def _prepare(self, event: Event) -> bytes:
        """Keep the start or the usage for `message_start` or `message_delta`; neither event writes bytes."""
        if isinstance(event, ResponseStart):
            self._start = event
            if event.created is not None:
                self.losses.add("/created", "created", "dropped", "Anthropic answers have no timestamp", "info")
        elif isinstance(event, UsageUpdate):
            self._update_usage(event)
        return b""

    def _begin(self) -> bytes:
        """Write `message_start` before the first content, once."""
        if self._started:
            return b""
        self._started = True
        message: Object = {
            "id": self._start.id,
            "type": "message",
            "role": "assistant",
            "model": self._start.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": write_usage(self._usage or Usage()),
        }
        return _event("message_start", {"message": write_extra(message, self._start.extra, NAME)})

    def _open_block(self, block: Object, delta: bytes, field: bytes) -> bytes:
        self._delta_prefix = _DELTA % (self._index, delta, field)
        return _event("content_block_start", {"index": self._index, "content_block": block})

    def _close_block(self) -> bytes:
        self._index += 1
        return _event("content_block_stop", {"index": self._index - 1})

    def _fragment(self, escaped: bytes) -> bytes:
        return b"".join((self._delta_prefix, escaped, b'"}}\n\n'))

    def _text_start(self, event: TextStart) -> bytes:
        """Open a text block; a refusal is sent as text, which is a loss."""
        if event.refusal:
            self.losses.add(
                self._part_path(event.key),
                "refusal",
                "rewritten",
                "Anthropic has no refusal block; sent as text",
                "info",
            )
        block = write_extra({"type": "text", "text": ""}, event.extra, NAME)
        return self._open_block(block, b"text_delta", b"text")

    def _text_delta(self, event: TextDelta) -> bytes:
        return self._fragment(event.escaped)

    def _text_end(self, event: TextEnd) -> bytes:
        """Write the citations of a text, which this wire sends as deltas, and close the block."""
        self._report_foreign(event)
        out = b""
        for citation in event.extra.get(NAME, {}).get("citations", ()):
            delta = {"type": "citations_delta", "citation": citation}
            out += _event("content_block_delta", {"index": self._index, "delta": delta})
        return out + self._close_block()

    def _open_thinking(self) -> bytes:
        block = {"type": "thinking", "thinking": "", "signature": ""}
        return self._open_block(block, b"thinking_delta", b"thinking")

    def _reasoning_delta(self, event: ReasoningDelta) -> bytes:
        """Write a thinking fragment; the first one opens the block, a new summary section adds a blank line."""
        gap = self._begin_section(event, "Anthropic thinking is plain text")
        opening = b"" if self._delta_prefix else self._open_thinking()
        return opening + self._fragment(gap + event.escaped)

    def _reasoning_end(self, event: ReasoningEnd) -> bytes:
        """Close the reasoning with its signature. Redacted data has its own block.

        Reasoning without text and signature has no block; it and artefacts of other providers are reported.
        """
        self._report_foreign(event)
        own_artefacts = {artefact.kind: artefact.data for artefact in event.artefacts if artefact.provider == PROVIDER}
        if "redacted" in own_artefacts:
            block = {"type": "redacted_thinking", "data": own_artefacts["redacted"]}
            return self._open_block(block, b"", b"") + self._close_block()
        if not self._delta_prefix:
            if "signature" not in own_artefacts:
                self._report_empty(event)
                return b""
            return self._open_thinking() + self._signature_delta(own_artefacts["signature"]) + self._close_block()
        signature = self._signature_delta(own_artefacts["signature"]) if "signature" in own_artefacts else b""
        return signature + self._close_block()

    def _signature_delta(self, signature: str) -> bytes:
        delta = {"type": "signature_delta", "signature": signature}
        return _event("content_block_delta", {"index": self._index, "delta": delta})

    def _call_start(self, event: CallStart) -> bytes:
        """Open a `tool_use` block; a namespace and the kind of a freeform call or a search are losses.

        An empty `_delta_prefix` makes `_call_delta` collect the text of a freeform call.
        """
        self._freeform = []
        if event.kind == "typed":
            self._member = event
            return b""
        if event.namespace is not None:
            self.losses.add(
                f"{self._part_path(event.key)}/namespace", "namespace", "dropped", "Anthropic calls have no namespace"
            )
        report_search_call(event, self._part_path(event.key), self.losses)
        block = {"type": "tool_use", "id": event.id, "name": event.name, "input": {}}
        out = self._open_block(write_extra(block, event.extra, NAME), b"input_json_delta", b"partial_json")
        if event.kind == "freeform":
            self.losses.add(
                self._part_path(event.key),
                "freeform call",
                "rewritten",
                "sent as a call with one argument, `input`",
                "info",
            )
            self._delta_prefix = b""
        return out

    def _call_delta(self, event: CallDelta) -> bytes:
        if self._delta_prefix:
            return self._fragment(event.escaped)
        self._freeform.append(event.escaped)
        return b""

    def _call_end(self, event: CallEnd) -> bytes:
        """Close a call; a freeform input is written here, because it has to be wrapped as a JSON object.

        Truncated arguments and artefacts of other providers are reported.
        """
        self._report_foreign(event)
        self._last_call = event
        if self._member is not None:
            return self._member_call(self._member, event)
        out = b""
        if event.state == "truncated" and self._delta_prefix:
            report_truncated(event.raw or "", self.losses, self._part_path(event.key))
        # a freeform call (see `_call_start`)
        if not self._delta_prefix:
            text = dumps({"input": unescape(b"".join(self._freeform))})
            if event.state == "truncated":
                text = text[:-1]  # as text of an object, it must not look complete
            out = _DELTA % (self._index, b"input_json_delta", b"partial_json") + escape(text) + b'"}}\n\n'
        return out + self._close_block()

    def _member_call(self, start: CallStart, end: CallEnd) -> bytes:
        """Write a call of a toolset, whose block has the name of an argument."""
        self._member = None
        if end.state != "complete":
            report_left_out(self.losses, self._part_path(end.key))
            return b""
        block = write_member(ToolCall(start.id, start.name, end.arguments))
        opening = self._open_block({**block, "input": {}}, b"input_json_delta", b"partial_json")
        return opening + self._fragment(escape(dumps(block["input"]))) + self._close_block()

    def _whole_part(self, event: WholePart) -> bytes:
        block = write_answer_block(event.part, self.losses, self._part_path(event.key))
        return b"" if block is None else self._open_block(block, b"", b"") + self._close_block()

    def _report_foreign(self, event: TextEnd | ReasoningEnd | CallEnd) -> None:
        if any(artefact.provider != PROVIDER for artefact in event.artefacts):
            self.losses.add(
                f"{self._part_path(event.key)}/artefacts", "artefact", "dropped", "it belongs to another provider"
            )

    def _fail(self, event: StreamFault) -> bytes:
        return b"event: error\ndata: " + to_line(write_fault(event.fault)) + b"\n\n"

    def _end(self, event: ResponseEnd) -> bytes:
        """Write `message_delta` with stop reason and usage, then `message_stop`; `container` is in the delta."""
        if len(event.stops) > 1:
            self._report_alternatives(ONE_CHOICE)
        stop = event.stops[0] if event.stops else None
        if (call := self._last_call) is not None and call.key == self._last_key:
            report_last_call(call.state, stop, self.losses, self._part_path(call.key))
        delta = write_stop(stop, self.losses)
        own_fields = dict(event.extra.get(NAME, {}))  # fields of the answer that only this wire has
        if "container" in own_fields:
            delta["container"] = own_fields.pop("container")
        usage = write_usage(self._usage or Usage(), self.losses)
        return _event("message_delta", {"delta": delta, "usage": usage, **own_fields}) + _event("message_stop", {})


def _event(name: str, fields: Object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), to_line({"type": name, **fields}))
