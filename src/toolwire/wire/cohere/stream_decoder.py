"""Decode /v2/chat streams, whose events name their own type.

    message-start
    content-start{index} content-delta* content-end{index}          text or thinking
    tool-plan-delta*                                                one text, without a start and an end
    tool-call-start{index} tool-call-delta* tool-call-end{index}    a call
    citation-start{index} citation-end{index}                       complete citations, at any time
    message-end

Content, plans and calls may be open at the same time. An element ends with its own event, with the next start at its index,
or with the message. A plan ends with the next start. A call without arguments stays open until a later event shows whether
a limit cut it. `tool_calls` and `citations` are single objects here; lists of them are read, too. `message-end` ends the
answer: `[DONE]` and anything else after it is not read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.errors import ProtocolError
from ...ir.events import (
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
from ...ir.folding import merge_extra, unfold_part
from ...ir.parts import Extra, Opaque, Part, ToolCall
from ...ir.pointer import JSON, Object
from ...ir.response import Stop
from ...ir.text import dumps, unescape
from ...stream.strict import parse_arguments
from ..fields import odd_values, read_extra, read_index, read_label, read_string, read_unknown, require_object
from ..streaming.decoder import BaseStreamDecoder, Fragments, join_mapped_surrogates
from .content import NAME, thinking_extra
from .fault import find_error, read_fault, stop_fault
from .messages import CALL, CALL_FUNCTION, FUNCTION, PLAN, read_assistant
from .response import ENVELOPE_TYPES, MESSAGE, decode_response, is_truncated, read_stop, read_usage

_START = frozenset({"id", "type", "delta"})
_MESSAGE = frozenset({"role", "content", "tool_plan", "tool_calls", "citations"})
_END = frozenset({"finish_reason", "usage", "error", "message"})
_ANY_CALL: tuple[Part, ...] = (ToolCall("", ""),)
_MAX_UNKNOWN = 100  # losses up to which unknown events are reported: an upstream could send many of them


class _OpenElement:
    """An open element of the content: text, thinking, or another kind with its fields so far."""

    __slots__ = ("fields", "key", "kind")

    def __init__(self, kind: str, key: int) -> None:
        self.kind = kind
        self.key = key
        self.fields = Fragments()


class CohereStreamDecoder(BaseStreamDecoder):
    """Decoder of /v2/chat streams: feed it bytes, get events."""

    text_fields = frozenset({"text", "thinking", "tool_plan", "arguments"})

    def __init__(self) -> None:
        super().__init__()
        self._id: str | None = None  # of the open message
        self._blocks: dict[int, _OpenElement] = {}  # open elements of the content, by index
        self._plan: int | None = None  # the key of the open plan
        self._calls: dict[int, tuple[int, list[bytes]]] = {}  # open calls by index: key, and arguments so far
        self._empty_calls: list[int] = []  # indices of calls that ended without arguments
        self._has_calls = False
        self._extra: Extra = {}
        self._citations: list[JSON] = []
        self._logprobs: list[JSON] = []

    def _read_document(self, document: Object, events: list[Event]) -> None:
        self._add_whole(decode_response(document), events)

    def _is_complete(self) -> bool:
        return self._over

    def _frame(self, name: bytes, payload: bytes, events: list[Event]) -> None:
        """Decode one event; an event of an unknown type is a loss, unless it is an error."""
        event = self._read_object(payload)
        kind = event.get("type", name.decode("utf-8", "replace"))
        step = _STEPS.get(kind) if type(kind) is str else None
        if step is not None:
            step(self, event, events)
        elif (error := find_error(event)) is not None:
            self._over = True
            events.append(StreamFault(read_fault(error, 502)))
        elif len(self.losses) < _MAX_UNKNOWN:
            detail = f"the event {kind!r:.100} is not known"
            self.losses.add("", "event", "dropped", detail, "info")

    def _message_start(self, event: Object, events: list[Event]) -> None:
        """Emit ResponseStart, and the parts that the message already contains.

        A second start is ignored, or raises ProtocolError if it belongs to another message.
        """
        message_id = read_label(event, "id")
        if self._id is not None:
            if self._id and message_id not in ("", self._id):
                raise ProtocolError(
                    f"message {message_id!r:.100} starts while message {self._id!r:.100} is open",
                    pointer="/id",
                    hint="retry the request: the upstream sent two answers as one",
                    status=502,
                )
            return
        message = _message_of(event)
        self._id = message_id
        extra = read_unknown(event, _START, NAME) | odd_values(event, {"id": (str,)}, NAME)
        self._extra = read_unknown(message, _MESSAGE, MESSAGE)
        self._add_citations(message)
        events.append(ResponseStart(message_id, extra=extra))
        for part in read_assistant(message).parts:
            self._has_calls = self._has_calls or isinstance(part, ToolCall)
            events.extend(unfold_part(self._new_key(), 0, part))

    def _begin_message(self, events: list[Event]) -> None:
        """Start the message of a server that sends no `message-start`."""
        if self._id is None:
            self._id = ""
            events.append(ResponseStart())

    def _content_start(self, event: Object, events: list[Event]) -> None:
        """Open an element. It ends the element that had its index, and the plan."""
        content = _object_of(_message_of(event), "content")
        index = read_index(event, "index")
        if index is None:
            index = max(self._blocks, default=-1) + 1
        self._close_block(index, events)
        self._open_block(index, content, events)
        self._append_content(self._blocks[index], content, events)

    def _open_block(self, index: int, content: Object, events: list[Event]) -> None:
        """Open an element of the kind that its `type` or its fields name."""
        self._begin_message(events)
        self._close_plan(events)
        kind = content.get("type") or ("thinking" if "thinking" in content else "text")
        block = self._blocks[index] = _OpenElement(str(kind), self._new_key())
        if kind == "thinking":
            events.append(ReasoningStart(block.key, extra=thinking_extra(_without_text(content, "thinking"))))
        elif kind == "text":
            extra = read_extra(_without_text(content, "text"), ("type",), NAME)
            events.append(TextStart(block.key, extra=extra))
        else:
            events.append(PartStart(block.key, Opaque(NAME, block.kind, {"type": block.kind})))

    def _content_delta(self, event: Object, events: list[Event]) -> None:
        """Append to an element; text without a start opens one. A delta of log probabilities alone opens none."""
        content = _object_of(_message_of(event), "content")
        if logprobs := event.get("logprobs"):
            self._add_logprobs(logprobs)
        index = read_index(event, "index")
        if index is None:
            index = max(self._blocks, default=0)
        block = self._blocks.get(index)
        if block is None:
            if not any(content.get(field) for field in ("text", "thinking")):
                return
            self._open_block(index, {key: "" for key in content if key in ("text", "thinking")}, events)
            block = self._blocks[index]
        self._append_content(block, content, events)

    def _append_content(self, block: _OpenElement, content: Object, events: list[Event]) -> None:
        if block.kind not in ("text", "thinking"):
            block.fields.add(content)
            return
        for field in ("text", "thinking"):
            text = content.get(field)
            if text is None or text == "":
                continue
            if field != block.kind or type(text) is not str:
                raise ProtocolError(
                    f"expected {block.kind} in this element", pointer=f"/delta/message/content/{field}", status=502
                )
            if escaped := self._escape(block.key, text):
                events.append(TextDelta(block.key, escaped) if field == "text" else ReasoningDelta(block.key, escaped))

    def _add_logprobs(self, logprobs: JSON) -> None:
        for item in logprobs if type(logprobs) is list else [logprobs]:
            if type(item) is dict and type(item.get("text")) is str:
                item = {**item, "text": join_mapped_surrogates(item["text"])}
            self._logprobs.append(item)

    def _content_end(self, event: Object, events: list[Event]) -> None:
        index = read_index(event, "index")
        self._close_block(max(self._blocks, default=0) if index is None else index, events)

    def _close_block(self, index: int, events: list[Event]) -> None:
        """End the element at an index, if one is open."""
        block = self._blocks.pop(index, None)
        if block is None:
            return
        rest = self._flush_surrogate(block.key)
        if block.kind == "text":
            events += [TextDelta(block.key, rest)] if rest else []
            events.append(TextEnd(block.key))
        elif block.kind == "thinking":
            events += [ReasoningDelta(block.key, rest)] if rest else []
            events.append(ReasoningEnd(block.key))
        else:
            events.append(WholePart(block.key, Opaque(NAME, block.kind, {"type": block.kind, **block.fields.join()})))

    def _plan_delta(self, event: Object, events: list[Event]) -> None:
        """Append to the plan; its first text opens it."""
        text = _message_of(event).get("tool_plan")
        if text is None or text == "":
            return
        if type(text) is not str:
            raise ProtocolError("expected a string", pointer="/delta/message/tool_plan", status=502)
        if self._plan is None:
            self._begin_message(events)
            self._plan = self._new_key()
            events.append(TextStart(self._plan, extra=PLAN))
        if escaped := self._escape(self._plan, text):
            events.append(TextDelta(self._plan, escaped))

    def _close_plan(self, events: list[Event]) -> None:
        if self._plan is None:
            return
        if rest := self._flush_surrogate(self._plan):
            events.append(TextDelta(self._plan, rest))
        events.append(TextEnd(self._plan))
        self._plan = None

    def _call_start(self, event: Object, events: list[Event]) -> None:
        """Open the calls of an event. A call ends the plan, the call that had its index, and calls without arguments."""
        self._begin_message(events)
        self._close_plan(events)
        self._close_empty_calls(events)
        index = read_index(event, "index")
        for number, raw in enumerate(_list_of(_message_of(event), "tool_calls"), 0 if index is None else index):
            position = number if index is not None else max(self._calls, default=-1) + 1
            self._close_call(position, events)
            self._open_call(position, raw, events)

    def _open_call(self, index: int, raw: JSON, events: list[Event]) -> None:
        function = require_object(require_object(raw).get("function"), "function")
        try:
            name = read_string(function, "name")
        except ProtocolError as error:
            error.status = 502
            raise error.within("delta", "message", "tool_calls", "function") from None
        self._has_calls = True
        key = self._new_key()
        self._calls[index] = key, []
        extra = read_unknown(raw, CALL, NAME) | read_unknown(function, CALL_FUNCTION, FUNCTION)
        events.append(CallStart(key, read_label(raw, "id"), name, extra=extra | odd_values(raw, {"id": (str,)}, NAME)))
        self._append_arguments(index, function.get("arguments"), events)

    def _call_delta(self, event: Object, events: list[Event]) -> None:
        """Append arguments; without an index they belong to the last call. Raise ProtocolError if no call is open."""
        index = read_index(event, "index")
        for number, raw in enumerate(_list_of(_message_of(event), "tool_calls"), 0 if index is None else index):
            position = number if index is not None else max(self._calls, default=0)
            if position not in self._calls:
                raise ProtocolError(f"no call is open at index {position}", pointer="/index", status=502)
            function = require_object(raw).get("function")
            if type(function) is dict:
                self._append_arguments(position, function.get("arguments"), events)

    def _append_arguments(self, index: int, fragment: JSON, events: list[Event]) -> None:
        if type(fragment) is dict:  # the whole object at once
            fragment = dumps(fragment)
        if fragment is None or fragment == "":
            return
        if type(fragment) is not str:
            raise ProtocolError("expected a string", pointer="/delta/message/tool_calls/function/arguments", status=502)
        key, pieces = self._calls[index]
        if escaped := self._escape(key, fragment):
            pieces.append(escaped)
            events.append(CallDelta(key, escaped))

    def _call_end(self, event: Object, events: list[Event]) -> None:
        """End a call, or note that it ended without arguments."""
        index = read_index(event, "index")
        position = max(self._calls, default=0) if index is None else index
        if position in self._calls and not self._calls[position][1]:
            self._empty_calls.append(position)
        else:
            self._close_call(position, events)

    def _close_empty_calls(self, events: list[Event]) -> None:
        for index in self._empty_calls:
            self._close_call(index, events)
        self._empty_calls.clear()

    def _close_call(self, index: int, events: list[Event], stop: Stop | None = None) -> None:
        """End the call at an index, if one is open. One without arguments is truncated if a limit ended the answer."""
        call = self._calls.pop(index, None)
        if call is None:
            return
        key, pieces = call
        if rest := self._flush_surrogate(key):
            pieces.append(rest)
            events.append(CallDelta(key, rest))
        text = unescape(b"".join(pieces))
        if not text and is_truncated(stop):
            events.append(CallEnd(key, None, text, "truncated"))
            return
        arguments, state = parse_arguments(text)
        events.append(CallEnd(key, arguments, text, state))

    def _citation_start(self, event: Object, events: list[Event]) -> None:
        self._begin_message(events)
        self._add_citations(_message_of(event))

    def _add_citations(self, message: Object) -> None:
        citations = message.get("citations")
        self._citations += citations if type(citations) is list else [citations] if citations else []

    def _citation_end(self, event: Object, events: list[Event]) -> None:
        """Do nothing: a citation is complete when it starts."""

    def _message_end(self, event: Object, events: list[Event]) -> None:
        """End all items and the answer, with the finish reason, the usage, and a fault if the model failed."""
        self._begin_message(events)
        delta = _object_of(event, "delta")
        stop = read_stop(delta, _ANY_CALL if self._has_calls else ())
        for index in [*self._blocks]:
            self._close_block(index, events)
        self._close_plan(events)
        *earlier, last = [*self._calls] or [-1]
        for index in earlier:
            self._close_call(index, events)
        self._close_call(last, events, stop)
        if (usage := read_usage(delta.get("usage"))) is not None:
            events.append(UsageUpdate(usage))
        end = ResponseEnd((stop,), self._end_extra(event, delta))
        fault = stop_fault(stop, delta.get("finish_reason"), delta.get("error"))
        self._over = True
        events.append(end if fault is None else StreamFault(fault, end))

    def _end_extra(self, event: Object, delta: Object) -> Extra:
        """Return the fields of the answer that only this wire has."""
        known = {key: value for key, value in delta.items() if key != "id"}
        extra = merge_extra(self._extra, read_unknown(event, _START, NAME))
        extra = merge_extra(
            extra, read_unknown(known, _END, NAME) | odd_values({"id": "", **known}, ENVELOPE_TYPES, NAME)
        )
        message = delta.get("message")
        if type(message) is dict:
            extra = merge_extra(extra, read_unknown(message, frozenset(), MESSAGE))
        if self._citations:
            extra = merge_extra(extra, {MESSAGE: {"citations": self._citations}})
        if self._logprobs:
            extra = merge_extra(extra, {NAME: {"logprobs": self._logprobs}})
        return extra


def _object_of(raw: Object, key: str) -> Object:
    """Return the object under `key`; empty if it is absent or null. Raise ProtocolError for another type."""
    value = raw.get(key)
    return {} if value is None else require_object(value, key)


def _message_of(event: Object) -> Object:
    return _object_of(_object_of(event, "delta"), "message")


def _list_of(message: Object, key: str) -> list[JSON]:
    """Return a list, or a single object as a list."""
    value = message.get(key)
    return value if type(value) is list else [] if value is None else [value]


def _without_text(content: Object, field: str) -> Object:
    return {key: value for key, value in content.items() if key != field}


_STEPS: dict[str, Callable[[CohereStreamDecoder, Any, list[Event]], None]] = {
    "message-start": CohereStreamDecoder._message_start,
    "content-start": CohereStreamDecoder._content_start,
    "content-delta": CohereStreamDecoder._content_delta,
    "content-end": CohereStreamDecoder._content_end,
    "tool-plan-delta": CohereStreamDecoder._plan_delta,
    "tool-call-start": CohereStreamDecoder._call_start,
    "tool-call-delta": CohereStreamDecoder._call_delta,
    "tool-call-end": CohereStreamDecoder._call_end,
    "citation-start": CohereStreamDecoder._citation_start,
    "citation-end": CohereStreamDecoder._citation_end,
    "message-end": CohereStreamDecoder._message_end,
}
