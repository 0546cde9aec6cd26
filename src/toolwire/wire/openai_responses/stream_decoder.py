"""Responses streams, read.

Every fact comes up to four times on this wire: as deltas, in `….done`, in `output_item.done`, and in the final response. Servers
leave out one or another. The deltas are taken as they come; a later copy fills in what is missing and is otherwise only
looked at for what deltas cannot carry (ids, annotations, encrypted reasoning, which is final only in `output_item.done`).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ...ir.errors import ProtocolError
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
    UsageUpdate,
    WholePart,
)
from ...ir.parts import CallKind, Extra, Opaque, Part, Reasoning, Refusal, Text, ToolCall
from ...ir.pointer import JSON, Object
from ...ir.response import Fault
from ...ir.text import escape, unescape
from ...stream.strict import parse_arguments
from ..openai_fault import read_fault
from ..shape import integer, obj, optional_string, string, unknown
from ..sse_stream import STRING, SSEStreamDecoder, is_utf8
from .content import NAME
from .items import read_item
from .response import ECHO, read_fault_of, read_stop, read_usage

__all__ = ["ResponsesStreamDecoder"]

_FAST = re.compile(
    rb'\{"type": ?"response\.(?:function_call_arguments|output_text|custom_tool_call_input)\.delta", ?'
    rb'(?:"sequence_number": ?\d+, ?)?"item_id": ?"[^"\\]*", ?"output_index": ?(\d{1,6}), ?'
    rb'(?:"content_index": ?(\d{1,6}), ?)?"delta": ?'
    + STRING
    + rb'(?:, ?"(?:logprobs": ?\[\]|obfuscation": ?"[^"\\]*+"|sequence_number": ?\d++))*+\}'
).fullmatch
_ENVELOPE = (
    frozenset({"id", "object", "created_at", "model", "output", "status", "incomplete_details", "error", "usage"})
    | ECHO
)


class _Item:
    """An output item that is still growing. A message has a key for each of its contents, others have one."""

    __slots__ = ("ended", "id", "key", "keys", "kind", "pieces", "sections", "text")

    def __init__(self, kind: str, item_id: JSON) -> None:
        self.kind = kind
        self.id: Object = {"id": item_id} if item_id else {}
        self.key = -1
        self.keys: dict[int, int] = {}
        self.pieces: list[bytes] = []
        self.sections: set[int] = set()
        self.text = False
        self.ended = False


class ResponsesStreamDecoder(SSEStreamDecoder):
    """Feed it the bytes of a Responses stream."""

    spoken = frozenset({"delta", "text", "refusal", "arguments", "input"})

    def __init__(self) -> None:
        super().__init__()
        self._items: dict[int, _Item] = {}
        self._started = False
        self._called = False
        self._refused = False

    def _whole(self) -> bool:
        return False  # only a final response ends it

    def _frame(self, name: bytes, payload: bytes, events: list[Event]) -> None:
        fast = _FAST(payload)
        if fast is not None and not self._halves and self._fast_delta(fast, events):
            return
        if payload.strip() == b"[DONE]":
            return
        event = self._read(payload)
        kind = event.get("type") or name.decode("utf-8", "replace")
        if kind == "error":
            self._fail(read_fault(event.get("error") or event, NAME), events)
            return
        step = _STEPS.get(kind) if type(kind) is str else None
        event["type"] = kind  # some servers say it in the frame only
        if step is not None:
            step(self, event, events)

    def _fast_delta(self, fast: re.Match[bytes], events: list[Event]) -> bool:
        item, fragment = self._items.get(int(fast[1])), fast[3]
        if item is None or item.ended or not is_utf8(fragment):
            return False
        if item.kind == "message":
            key = item.keys.get(int(fast[2] or 0))
            if key is None:
                return False
            if fragment:
                events.append(TextDelta(key, fragment))
            return True
        if item.kind != "function_call" and item.kind != "custom_tool_call":
            return False
        if fragment:
            item.pieces.append(fragment)
            events.append(CallDelta(item.key, fragment))
        return True

    def _fail(self, fault: Fault, events: list[Event]) -> None:
        self._over = True
        events.append(StreamFault(fault))

    def _created(self, event: Object, events: list[Event]) -> None:
        if self._started:
            return
        self._started = True
        response = obj(event.get("response"), "response")
        model = optional_string(response, "model") or ""
        events.append(ResponseStart(optional_string(response, "id") or "", model, integer(response, "created_at")))

    def _item_added(self, event: Object, events: list[Event]) -> None:
        raw = obj(event.get("item"), "item")
        self._open(_index(event, "output_index"), raw, events)

    def _open(self, index: int, raw: Object, events: list[Event]) -> _Item:
        if index in self._items:
            raise ProtocolError(f"output item {index} starts twice", pointer="/output_index", status=502)
        kind = str(raw.get("type", "message"))
        item = self._items[index] = _Item(kind, raw.get("id"))
        if kind == "function_call" or kind == "custom_tool_call":
            self._called = True
            item.key = self._new_key()
            call_kind: CallKind = "freeform" if kind == "custom_tool_call" else "function"
            namespace = optional_string(raw, "namespace")
            call_id, name = string(raw, "call_id"), string(raw, "name")
            events.append(CallStart(item.key, call_id, name, call_kind, namespace, 0, _own(NAME, item.id)))
            self._grow_call(item, raw.get("arguments" if call_kind == "function" else "input"), events)
        elif kind == "reasoning":
            item.key = self._new_key()
            events.append(ReasoningStart(item.key, 0, _own(NAME, item.id)))
        return item

    def _item_of(self, event: Object) -> _Item:
        item = self._items.get(_index(event, "output_index"))
        if item is None or item.ended:
            raise ProtocolError("the output item is not open", pointer="/output_index", status=502)
        return item

    def _part_added(self, event: Object, events: list[Event]) -> None:
        item = self._item_of(event)
        part = obj(event.get("part"), "part")
        if item.kind == "message":
            key = self._open_content(item, _index(event, "content_index"), part.get("type") == "refusal", events)
            self._say(key, part.get("text") or part.get("refusal"), events)

    def _open_content(self, item: _Item, index: int, refusal: bool, events: list[Event]) -> int:
        key = item.keys.get(index)
        if key is None:
            key = item.keys[index] = self._new_key()
            self._refused = self._refused or refusal
            events.append(TextStart(key, 0, refusal, _own(f"{NAME}/item", item.id)))
        return key

    def _say(self, key: int, words: JSON, events: list[Event]) -> None:
        if words and type(words) is str:
            escaped = self._escape(key, words)
            if escaped:
                events.append(TextDelta(key, escaped))

    def _text_delta(self, event: Object, events: list[Event]) -> None:
        refusal = event["type"] == "response.refusal.delta"
        key = self._open_content(self._item_of(event), _index(event, "content_index"), refusal, events)
        self._say(key, optional_string(event, "delta"), events)

    def _text_done(self, event: Object, events: list[Event]) -> None:
        """Fills in a text that had no deltas."""
        item, index = self._item_of(event), _index(event, "content_index")
        if index not in item.keys:
            refusal = event["type"] == "response.refusal.done"
            key = self._open_content(item, index, refusal, events)
            self._say(key, event.get("refusal" if refusal else "text"), events)

    def _call_delta(self, event: Object, events: list[Event]) -> None:
        self._grow_call(self._item_of(event), optional_string(event, "delta"), events)

    def _grow_call(self, item: _Item, words: JSON, events: list[Event]) -> None:
        if words and type(words) is str:
            escaped = self._escape(item.key, words)
            item.pieces.append(escaped)
            if escaped:
                events.append(CallDelta(item.key, escaped))

    def _call_done(self, event: Object, events: list[Event]) -> None:
        item = self._item_of(event)
        self._complete_call(item, event.get("arguments") or event.get("input"), events)

    def _complete_call(self, item: _Item, whole: JSON, events: list[Event]) -> str:
        """Fills in what the deltas left out; where the two disagree, the deltas have been told already."""
        so_far = unescape(b"".join(item.pieces))
        if type(whole) is str and len(whole) > len(so_far) and whole.startswith(so_far):
            self._grow_call(item, whole[len(so_far) :], events)
            return whole
        return so_far

    def _reasoning_delta(self, event: Object, events: list[Event]) -> None:
        item = self._item_of(event)
        section = None
        if "summary_index" in event:
            section = _index(event, "summary_index")
            item.sections.add(section)
        else:
            item.text = True
        escaped = self._escape(item.key, optional_string(event, "delta") or "")
        if escaped:
            events.append(ReasoningDelta(item.key, escaped, section))

    def _item_done(self, event: Object, events: list[Event]) -> None:
        raw = obj(event.get("item"), "item")
        self._close(_index(event, "output_index"), raw, events)

    def _close(self, index: int, raw: Object, events: list[Event]) -> None:
        item = self._items.get(index) or self._open(index, raw, events)
        if item.ended:
            raise ProtocolError(f"output item {index} ends twice", pointer="/output_index", status=502)
        item.ended = True
        if raw.get("type", "message") != item.kind:
            raise ProtocolError(f"a {item.kind} item ends as {raw.get('type')!r}", pointer="/item/type", status=502)
        read = read_item(raw)
        parts = list(read) if isinstance(read, list) else list(read.parts)
        if item.kind == "message":
            self._close_message(item, parts, events)
        elif item.kind in ("function_call", "custom_tool_call"):
            self._close_call(item, parts[0], events)
        elif item.kind == "reasoning":
            self._close_reasoning(item, parts[0], events)
        else:
            events.append(WholePart(self._new_key(), Opaque(NAME, item.kind, raw)))

    def _close_message(self, item: _Item, parts: list[Part], events: list[Event]) -> None:
        for number, part in enumerate(parts):
            if not isinstance(part, (Text, Refusal)):
                events.append(WholePart(self._new_key(), part))
                continue
            key = item.keys.pop(number, None)
            if key is None:
                key = self._open_content(item, number, isinstance(part, Refusal), events)
                item.keys.pop(number)
                self._say(key, part.text, events)
            if rest := self._rest(key):
                events.append(TextDelta(key, rest))
            events.append(TextEnd(key, (), _meaning(part.extra)))
        for key in item.keys.values():  # contents that the final item does not mention
            events.append(TextEnd(key))

    def _close_call(self, item: _Item, call: Part, events: list[Event]) -> None:
        assert isinstance(call, ToolCall)
        raw = self._complete_call(item, call.raw, events)
        extra = _meaning(call.extra)
        if item.kind == "custom_tool_call":
            events.append(CallEnd(item.key, None, raw, "complete", (), extra))
        else:
            # nothing at all may be no arguments, or a call that was cut off before them: its status tells
            arguments, state = parse_arguments(raw) if raw else (call.arguments, call.state)
            events.append(CallEnd(item.key, arguments, raw, state, (), extra))

    def _close_reasoning(self, item: _Item, reasoning: Part, events: list[Event]) -> None:
        assert isinstance(reasoning, Reasoning)
        for section, words in enumerate(reasoning.summary):
            if section not in item.sections and words:
                events.append(ReasoningDelta(item.key, escape(words), section))
        if reasoning.text and not item.text:
            events.append(ReasoningDelta(item.key, escape(reasoning.text)))
        events.append(ReasoningEnd(item.key, reasoning.artefacts, _meaning(reasoning.extra)))

    def _final(self, event: Object, events: list[Event]) -> None:
        self._created(event, events)
        response = obj(event.get("response"), "response")
        output = response.get("output")
        for index, raw in enumerate(output if type(output) is list else ()):
            item = self._items.get(index)
            if item is None or not item.ended:
                self._close(index, obj(raw, "response", "output", index), events)
        usage = read_usage(response.get("usage"))
        if usage is not None:
            events.append(UsageUpdate(usage))
        fault = read_fault_of(response)
        if fault is not None:
            self._fail(fault, events)
            return
        unfinished = [index for index, item in self._items.items() if not item.ended]
        if unfinished:
            raise ProtocolError(f"the response ends while output item {unfinished[0]} is open", status=502)
        seen: list[Part] = [Refusal("")] if self._refused else []
        if self._called:
            seen.append(ToolCall("", ""))
        stop = read_stop({"status": event["type"].removeprefix("response."), **response}, tuple(seen))
        events.append(ResponseEnd((stop,) if stop else (), unknown(response, _ENVELOPE, NAME)))
        self._over = True

    def _finish(self, events: list[Event]) -> None:
        raise AssertionError("a final response has ended the stream")


def _own(scope: str, fields: Object) -> Extra:
    return {scope: fields} if fields else {}


def _meaning(extra: Extra) -> Extra:
    """Without form, but for the mark where an item begins."""
    kept = {name: fields for name, fields in extra.items() if not name.endswith("~")}
    if ":item" in extra.get(f"{NAME}~", {}):
        kept[f"{NAME}~"] = {":item": True}
    return kept


def _index(event: Object, field: str) -> int:
    index = event.get(field, 0)
    if type(index) is not int or index < 0:
        raise ProtocolError("expected an index", pointer=f"/{field}", status=502)
    return index


_STEPS: dict[str, Callable[[ResponsesStreamDecoder, Object, list[Event]], None]] = {
    "response.created": ResponsesStreamDecoder._created,
    "response.queued": ResponsesStreamDecoder._created,
    "response.in_progress": ResponsesStreamDecoder._created,
    "response.output_item.added": ResponsesStreamDecoder._item_added,
    "response.content_part.added": ResponsesStreamDecoder._part_added,
    "response.output_text.delta": ResponsesStreamDecoder._text_delta,
    "response.output_text.done": ResponsesStreamDecoder._text_done,
    "response.refusal.delta": ResponsesStreamDecoder._text_delta,
    "response.refusal.done": ResponsesStreamDecoder._text_done,
    "response.reasoning_summary_text.delta": ResponsesStreamDecoder._reasoning_delta,
    "response.reasoning_text.delta": ResponsesStreamDecoder._reasoning_delta,
    "response.function_call_arguments.delta": ResponsesStreamDecoder._call_delta,
    "response.function_call_arguments.done": ResponsesStreamDecoder._call_done,
    "response.custom_tool_call_input.delta": ResponsesStreamDecoder._call_delta,
    "response.custom_tool_call_input.done": ResponsesStreamDecoder._call_done,
    "response.output_item.done": ResponsesStreamDecoder._item_done,
    "response.completed": ResponsesStreamDecoder._final,
    "response.incomplete": ResponsesStreamDecoder._final,
    "response.failed": ResponsesStreamDecoder._final,
}
