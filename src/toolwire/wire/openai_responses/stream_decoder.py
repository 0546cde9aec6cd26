"""Decode Responses streams.

Every value arrives up to four times on this wire: as deltas, in `….done`, in `output_item.done`, and in the final
response. Servers omit one or another. The deltas are used as they arrive; a later copy fills in missing text and is
otherwise only read for data that deltas cannot carry (ids, annotations, encrypted reasoning, which is final only in
`output_item.done`).
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
from ...ir.parts import CallKind, Opaque, Part, Reasoning, Refusal, Text, ToolCall
from ...ir.pointer import JSON, Object
from ...ir.response import Fault
from ...stream.strict import parse_arguments
from ..openai_fault import read_fault
from ..shape import as_object, optional_string, read_unknown, string, timestamp
from ..sse_stream import FAST_STRING, BaseStreamDecoder, is_utf8
from .content import NAME
from .items import read_output_item
from .response import ECHO, read_fault_of, read_stop, read_usage
from .stream_state import GrowingItem, own_fields, read_index, without_form

__all__ = ["ResponsesStreamDecoder"]

_FAST = re.compile(
    rb'\{"type": ?"response\.(?:function_call_arguments|output_text|custom_tool_call_input)\.delta", ?'
    rb'(?:"sequence_number": ?\d+, ?)?"item_id": ?"[^"\\]*", ?"output_index": ?(\d{1,6}), ?'
    rb'(?:"content_index": ?(\d{1,6}), ?)?"delta": ?'
    + FAST_STRING
    + rb'(?:, ?"(?:logprobs": ?\[\]|obfuscation": ?"[^"\\]*+"|sequence_number": ?\d++))*+\}'
).fullmatch
_ENVELOPE = (
    frozenset({"id", "object", "created_at", "model", "output", "status", "incomplete_details", "error", "usage"})
    | ECHO
)


class ResponsesStreamDecoder(BaseStreamDecoder):
    """Decoder of a Responses stream."""

    text_fields = frozenset({"delta", "text", "refusal", "arguments", "input"})

    def __init__(self) -> None:
        super().__init__()
        self._items: dict[int, GrowingItem] = {}
        self._by_id: dict[str, int] = {}  # by item id: the output index
        self._started = False
        self._called = False
        self._refused = False

    def _is_complete(self) -> bool:
        return False  # only a final response ends the stream

    def _frame(self, name: bytes, payload: bytes, events: list[Event]) -> None:
        fast = _FAST(payload)
        if fast is not None and not self._pending_surrogates and self._fast_delta(fast, events):
            return
        if payload.strip() == b"[DONE]":
            return
        event = self._read(payload)
        kind = event.get("type") or name.decode("utf-8", "replace")
        if kind == "error":
            self._fail(read_fault(event.get("error") or event, NAME), events)
            return
        step = _STEPS.get(kind) if type(kind) is str else None
        event["type"] = kind  # some servers send it in the frame only
        if step is None:
            return
        if not self._started and "response" not in event:  # some servers begin with the first item
            self._started = True
            events.append(ResponseStart())
        step(self, event, events)

    def _fast_delta(self, fast: re.Match[bytes], events: list[Event]) -> bool:
        item, fragment = self._items.get(int(fast[1])), fast[3]
        if item is None or item.ended or not is_utf8(fragment):
            return False
        if item.kind == "message":
            number = int(fast[2] or 0)
            key = item.keys.get(number)
            if key is None:
                return False
            if fragment:
                item.said[number].append(fragment)
                events.append(TextDelta(key, fragment))
            return True
        if item.kind != "function_call" and item.kind != "custom_tool_call":
            return False
        if fragment:
            item.said[None].append(fragment)
            events.append(CallDelta(item.key, fragment))
        return True

    def _fail(self, fault: Fault, events: list[Event]) -> None:
        self._over = True
        events.append(StreamFault(fault))

    def _created(self, event: Object, events: list[Event]) -> None:
        if self._started:
            return
        self._started = True
        response = as_object(event.get("response"), "response")
        model = optional_string(response, "model") or ""
        events.append(ResponseStart(optional_string(response, "id") or "", model, timestamp(response, "created_at")))

    def _item_added(self, event: Object, events: list[Event]) -> None:
        raw = as_object(event.get("item"), "item")
        item = self._open(read_index(event, "output_index"), raw, events)
        if item.key < 0 and item.kind != "message":
            item.key = self._new_key()
            events.append(PartStart(item.key, Opaque(NAME, item.kind, raw)))

    def _open(self, index: int, raw: Object, events: list[Event]) -> GrowingItem:
        if index in self._items:
            raise ProtocolError(f"output item {index} starts twice", pointer="/output_index", status=502)
        kind = str(raw.get("type", "message"))
        item = self._items[index] = GrowingItem(kind, raw.get("id"))
        if type(raw.get("id")) is str:
            self._by_id.setdefault(raw["id"], index)
        if kind == "function_call" or kind == "custom_tool_call":
            self._called = True
            item.key = self._new_key()
            item.said[None] = []
            call_kind: CallKind = "freeform" if kind == "custom_tool_call" else "function"
            namespace = optional_string(raw, "namespace")
            call_id, name = string(raw, "call_id"), string(raw, "name")
            events.append(CallStart(item.key, call_id, name, call_kind, namespace, 0, own_fields(NAME, item.id)))
            self._grow_call(item, raw.get("arguments" if call_kind == "function" else "input"), events)
        elif kind == "reasoning":
            item.key = self._new_key()
            events.append(ReasoningStart(item.key, 0, own_fields(NAME, item.id)))
        return item

    def _item_of(self, event: Object, kind: str | None = None, events: list[Event] | None = None) -> GrowingItem:
        """Return the item of an event. Open one of `kind` if the server omitted `output_item.added`."""
        index = read_index(event, "output_index")
        item = self._items.get(index)
        if item is None and kind is not None and events is not None:
            item = self._open(index, {"type": kind, "id": event.get("item_id")}, events)
        if item is None or item.ended:
            raise ProtocolError("the output item is not open", pointer="/output_index", status=502)
        return item

    def _part_added(self, event: Object, events: list[Event]) -> None:
        part = as_object(event.get("part"), "part")
        item = self._item_of(event, "reasoning" if part.get("type") == "reasoning_text" else "message", events)
        if item.kind == "message":
            number = read_index(event, "content_index")
            self._open_content(item, number, part.get("type") == "refusal", events)
            self._emit_text(item, number, part.get("text") or part.get("refusal"), events)

    def _open_content(self, item: GrowingItem, index: int, refusal: bool, events: list[Event]) -> int:
        key = item.keys.get(index)
        if key is None:
            key = item.keys[index] = self._new_key()
            item.said.setdefault(index, [])
            self._refused = self._refused or refusal
            events.append(TextStart(key, 0, refusal, own_fields(f"{NAME}/item", item.id)))
        return key

    def _emit_text(self, item: GrowingItem, number: int, words: JSON, events: list[Event]) -> None:
        """Emit more text of the content `number`."""
        if words and type(words) is str:
            key = item.keys[number]
            if escaped := self._escape(key, words):
                item.said[number].append(escaped)
                events.append(TextDelta(key, escaped))

    def _text_delta(self, event: Object, events: list[Event]) -> None:
        item, number = self._item_of(event, "message", events), read_index(event, "content_index")
        if item.kind == "message":
            self._open_content(item, number, event["type"] == "response.refusal.delta", events)
            self._emit_text(item, number, optional_string(event, "delta"), events)

    def _text_done(self, event: Object, events: list[Event]) -> None:
        """Fill in the text that the deltas left out."""
        item, number = self._item_of(event, "message", events), read_index(event, "content_index")
        if item.kind == "message":
            refusal = event["type"] == "response.refusal.done"
            self._open_content(item, number, refusal, events)
            self._emit_text(
                item, number, self._missing(item, number, event.get("refusal" if refusal else "text")), events
            )

    def _missing(self, item: GrowingItem, number: int | None, whole: JSON) -> str:
        """Return the text of `whole` after the deltas; report a loss if they differ, because they have been sent."""
        if type(whole) is not str or not whole:
            return ""
        so_far = item.text_of(number)
        if whole.startswith(so_far):
            self._pending_surrogates.pop(item.keys.get(number or 0, item.key), None)  # its other half is in the rest
            return whole[len(so_far) :]
        if not self._pending_surrogates:
            detail = "the finished item differs from its deltas, which have been sent"
            self.losses.add("/parts", f"text of a {item.kind}", "rewritten", detail)
        return ""

    def _call_delta(self, event: Object, events: list[Event]) -> None:
        self._grow_call(self._item_of(event), optional_string(event, "delta"), events)

    def _grow_call(self, item: GrowingItem, words: JSON, events: list[Event]) -> None:
        if words and type(words) is str and None in item.said:
            if escaped := self._escape(item.key, words):
                item.said[None].append(escaped)
                events.append(CallDelta(item.key, escaped))

    def _call_done(self, event: Object, events: list[Event]) -> None:
        item = self._item_of(event)
        self._grow_call(item, self._missing(item, None, event.get("arguments") or event.get("input")), events)

    def _reasoning_delta(self, event: Object, events: list[Event]) -> None:
        section = read_index(event, "summary_index") if "summary_index" in event else None
        self._think(self._item_of(event, "reasoning", events), section, optional_string(event, "delta") or "", events)

    def _think(self, item: GrowingItem, section: int | None, words: str, events: list[Event]) -> None:
        if item.kind == "reasoning" and (escaped := self._escape(item.key, words)):
            item.said.setdefault(section, []).append(escaped)
            events.append(ReasoningDelta(item.key, escaped, section))

    def _item_done(self, event: Object, events: list[Event]) -> None:
        raw = as_object(event.get("item"), "item")
        self._close(read_index(event, "output_index"), raw, events)

    def _close(self, index: int, raw: Object, events: list[Event]) -> None:
        item = self._items.get(index) or self._open(index, raw, events)
        if item.ended:
            raise ProtocolError(f"output item {index} ends twice", pointer="/output_index", status=502)
        item.ended = True
        if raw.get("type", "message") != item.kind:
            raise ProtocolError(f"a {item.kind} item ends as {raw.get('type')!r}", pointer="/item/type", status=502)
        parts = read_output_item(raw)
        if item.kind == "message":
            self._close_message(item, parts, events)
        elif item.kind in ("function_call", "custom_tool_call"):
            self._close_call(item, parts[0], events)
        elif item.kind == "reasoning":
            self._close_reasoning(item, parts[0], events)
        else:
            key = item.key if item.key >= 0 else self._new_key()
            events.append(WholePart(key, Opaque(NAME, item.kind, raw)))

    def _close_message(self, item: GrowingItem, parts: list[Part], events: list[Event]) -> None:
        for number, part in enumerate(parts):
            if not isinstance(part, (Text, Refusal)):
                events.append(WholePart(self._new_key(), part))
                continue
            key = self._open_content(item, number, isinstance(part, Refusal), events)
            self._emit_text(item, number, self._missing(item, number, part.text), events)
            if rest := self._flush_surrogate(key):
                events.append(TextDelta(key, rest))
            events.append(TextEnd(key, (), without_form(part.extra)))
        for number, key in item.keys.items():  # contents that the final item does not have
            if number >= len(parts) or not isinstance(parts[number], (Text, Refusal)):
                events.append(TextEnd(key))

    def _close_call(self, item: GrowingItem, call: Part, events: list[Event]) -> None:
        assert isinstance(call, ToolCall)
        self._grow_call(item, self._missing(item, None, call.raw), events)
        raw = item.text_of(None)
        extra = without_form(call.extra)
        if item.kind == "custom_tool_call":
            events.append(CallEnd(item.key, None, raw, "complete", (), extra))
        else:
            # an empty text means no arguments, or a call that was truncated before them: its status decides
            arguments, state = parse_arguments(raw) if raw else (call.arguments, call.state)
            events.append(CallEnd(item.key, arguments, raw, state, (), extra))

    def _close_reasoning(self, item: GrowingItem, reasoning: Part, events: list[Event]) -> None:
        assert isinstance(reasoning, Reasoning)
        for section, words in enumerate(reasoning.summary):
            self._think(item, section, self._missing(item, section, words), events)
        self._think(item, None, self._missing(item, None, reasoning.text), events)
        events.append(ReasoningEnd(item.key, reasoning.artefacts, without_form(reasoning.extra)))

    def _final(self, event: Object, events: list[Event]) -> None:
        self._created(event, events)
        response = as_object(event.get("response"), "response")
        output = response.get("output")
        free = max(self._items, default=-1) + 1
        for number, raw in enumerate(output if type(output) is list else ()):
            index = self._find(number, as_object(raw, "response", "output", number), free)
            item = self._items.get(index)
            if item is None or not item.ended:
                self._close(index, raw, events)
                free = max(free, index + 1)
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
        events.append(ResponseEnd((stop,) if stop else (), read_unknown(response, _ENVELOPE, NAME)))
        self._over = True

    def _find(self, number: int, raw: Object, free: int) -> int:
        """Return the output index of an item of the final response: by its id, by its position, or a new one.

        Positions differ where the final response lacks an item; ids differ from event to event on some servers (GitHub
        Copilot, OpenRouter).
        """
        item_id = raw.get("id")
        if type(item_id) is str and item_id in self._by_id:
            return self._by_id[item_id]
        item = self._items.get(number)
        return number if item is None or item.kind == raw.get("type", "message") else free

    def _finish(self, events: list[Event]) -> None:
        raise AssertionError("a final response has ended the stream")


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
