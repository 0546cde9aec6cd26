"""Decode Responses streams.

Every value arrives up to four times on this wire: as deltas, in `….done`, in `output_item.done`, and in the final
response. Servers omit one or another. The deltas are used as they arrive; a later copy fills in missing text and is
otherwise only read for data that deltas cannot carry (ids, annotations, encrypted reasoning, which is final only in
`output_item.done`).

An item that no event ended, and that the final response does not repeat, ends with the text of its deltas. An event without
an output index belongs to the item with its id, without both to the last item. A stream without a final response is complete
only if it has the end marker of other wires, `[DONE]`, and all its items have ended.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec.structs import replace

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
from ...ir.folding import unfold_part
from ...ir.parts import CallKind, Opaque, Part, Reasoning, Refusal, Text, ToolCall
from ...ir.pointer import JSON, Object
from ...ir.response import Fault
from ...ir.text import dumps
from ...stream.strict import parse_arguments
from ..base_decoder import FAST_STRING, BaseStreamDecoder, is_utf8
from ..fields import (
    odd_values,
    read_index,
    read_label,
    read_optional_string,
    read_string,
    read_timestamp,
    read_unknown,
    require_object,
)
from ..openai_fault import read_fault
from .content import NAME
from .items import read_call_id, read_output_item
from .response import ECHO, ENVELOPE_TYPES, decode_response, read_response_fault, read_stop, read_usage
from .stream_state import GrowingItem, own_fields, strip_form
from .tool_search import is_client_search

__all__ = ["ResponsesStreamDecoder"]

_FAST = re.compile(
    rb'\{"type": ?"response\.(?:function_call_arguments|output_text|custom_tool_call_input)\.delta", ?'
    rb'(?:"sequence_number": ?\d+, ?)?"item_id": ?"[^"\\]*", ?"output_index": ?(\d{1,6}), ?'
    rb'(?:"content_index": ?(\d{1,6}), ?)?"delta": ?'
    + FAST_STRING
    + rb'(?:, ?"(?:logprobs": ?\[\]|obfuscation": ?"[^"\\]*+"|sequence_number": ?\d++))*+\}'
).fullmatch
_MAX_UNKNOWN = 100
# Events of hosted tools, whose items are whole in `output_item.done`.
_OTHER_ITEMS = (
    "response.code_interpreter",
    "response.mcp",
    "response.image",
    "response.audio",
    "response.reasoning_summary_part",
)
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
        self._has_calls = False
        self._refused = False

    def _read_document(self, document: Object, events: list[Event]) -> None:
        self._add_whole(decode_response(document), events)

    def _is_complete(self) -> bool:
        return self._has_end_marker and bool(self._items) and all(item.ended for item in self._items.values())

    def _frame(self, name: bytes, payload: bytes, events: list[Event]) -> None:
        """Decode one event; plain deltas take a fast path without a JSON parser."""
        fast = _FAST(payload)
        if fast is not None and not self._pending_surrogates and self._fast_delta(fast, events):
            return
        event = self._read_object(payload)
        kind = event.get("type") or name.decode("utf-8", "replace")
        if kind == "error" or (event.get("error") and "type" not in event):
            self._fail(read_fault(event.get("error") or event, NAME), events)
            return
        step = _STEPS.get(kind) if type(kind) is str else None
        event["type"] = kind  # some servers send it in the frame only
        if step is None:
            self._report_unknown(event)
            return
        if not self._started and "response" not in event:  # some servers begin with the first item
            self._started = True
            events.append(ResponseStart())
        step(self, event, events)

    def _fast_delta(self, fast: re.Match[bytes], events: list[Event]) -> bool:
        """Emit a delta that `_FAST` matched; return False if the full parser has to read the event."""
        item, fragment = self._items.get(int(fast[1])), fast[3]
        if item is None or item.ended or not is_utf8(fragment):
            return False
        if item.kind == "message":
            number = int(fast[2] or 0)
            key = item.keys.get(number)
            if key is None:
                return False
            if fragment:
                item.texts[number].append(fragment)
                events.append(TextDelta(key, fragment))
            return True
        if item.kind != "function_call" and item.kind != "custom_tool_call":
            return False
        if fragment:
            item.texts[None].append(fragment)
            events.append(CallDelta(item.key, fragment))
        return True

    def _report_unknown(self, event: Object) -> None:
        """Report an event of an unknown type that has text of its own: it belongs to an item of a kind that we know."""
        kind = str(event["type"])
        if "delta" in event and not kind.startswith(_OTHER_ITEMS) and len(self.losses) < _MAX_UNKNOWN:
            self.losses.add("/parts", f"event {kind}"[:80], "dropped", "unknown type", "info")

    def _fail(self, fault: Fault, events: list[Event]) -> None:
        self._over = True
        events.append(StreamFault(fault))

    def _on_created(self, event: Object, events: list[Event]) -> None:
        """Emit ResponseStart, once; several events carry the response before its first item."""
        if self._started:
            return
        self._started = True
        response = require_object(event.get("response"), "response")
        odd = odd_values(response, ENVELOPE_TYPES, NAME)
        created = read_timestamp(response, "created_at")
        events.append(ResponseStart(read_label(response, "id"), read_label(response, "model"), created, odd))

    def _on_item_added(self, event: Object, events: list[Event]) -> None:
        """Open an item; one of an unknown kind is announced with PartStart and emitted whole at its end."""
        raw = require_object(event.get("item"), "item")
        index = self._item_index(event, raw.get("id"), is_new=True)
        if index in self._items:
            self._reopen(index, raw)
            return
        item = self._open_item(index, raw, events)
        if item.key < 0 and item.kind != "message" and not item.is_search:
            item.key = self._new_key()
            events.append(PartStart(item.key, Opaque(NAME, item.kind, raw)))

    def _item_index(self, event: Object, item_id: JSON, *, is_new: bool = False) -> int:
        """Return the output index of an event: its own, the index of the item with its id, or the last one.

        `is_new`: the event opens an item, if there is none with its id.
        """
        index = read_index(event, "output_index")
        if index is not None:
            return index
        if type(item_id) is str and item_id in self._by_id:
            return self._by_id[item_id]
        return max(self._items, default=-1) + 1 if is_new else max(self._items, default=0)

    def _reopen(self, index: int, raw: Object) -> None:
        """Accept an item that is announced twice; raise if the second one is another item."""
        item = self._items[index]
        if item.ended or item.kind != raw.get("type", "message"):
            raise ProtocolError(f"output item {index} starts twice", pointer="/output_index", status=502)

    def _open_item(self, index: int, raw: Object, events: list[Event]) -> GrowingItem:
        """Open an item; a call or reasoning starts at once, a message with its first content."""
        kind = str(raw.get("type", "message"))
        item = self._items[index] = GrowingItem(kind, raw.get("id"))
        if type(raw.get("id")) is str:
            self._by_id.setdefault(raw["id"], index)
        if kind == "function_call" or kind == "custom_tool_call":
            self._has_calls = True
            item.key = self._new_key()
            item.texts[None] = []
            call_kind: CallKind = "freeform" if kind == "custom_tool_call" else "function"
            namespace = read_optional_string(raw, "namespace")
            call_id, name = read_call_id(raw), read_string(raw, "name")
            events.append(CallStart(item.key, call_id, name, call_kind, namespace, 0, own_fields(NAME, item.id)))
            self._append_arguments(item, raw.get("arguments" if call_kind == "function" else "input"), events)
        elif kind == "tool_search_call":
            item.is_search = is_client_search(raw)
        elif kind == "reasoning":
            item.key = self._new_key()
            events.append(ReasoningStart(item.key, 0, own_fields(NAME, item.id)))
        return item

    def _find_item(self, event: Object, kind: str | None = None, events: list[Event] | None = None) -> GrowingItem:
        """Return the item of an event. Open one of `kind` if the server omitted `output_item.added`."""
        index = self._item_index(event, event.get("item_id"))
        item = self._items.get(index)
        if item is None and kind is not None and events is not None:
            item = self._open_item(index, {"type": kind, "id": event.get("item_id")}, events)
        if item is None or item.ended:
            raise ProtocolError("the output item is not open", pointer="/output_index", status=502)
        return item

    def _on_part_added(self, event: Object, events: list[Event]) -> None:
        """Open a content of a message, with the text that the event may already hold."""
        part = require_object(event.get("part"), "part")
        item = self._find_item(event, "reasoning" if part.get("type") == "reasoning_text" else "message", events)
        if item.kind == "message":
            number = read_index(event, "content_index") or 0
            self._open_content(item, number, part.get("type") == "refusal", events)
            self._emit_text(item, number, part.get("text") or part.get("refusal"), events)

    def _open_content(self, item: GrowingItem, index: int, refusal: bool, events: list[Event]) -> int:
        """Return the key of a content; emit TextStart if it is new."""
        key = item.keys.get(index)
        if key is None:
            key = item.keys[index] = self._new_key()
            item.texts.setdefault(index, [])
            self._refused = self._refused or refusal
            events.append(TextStart(key, 0, refusal, own_fields(f"{NAME}/item", item.id)))
        return key

    def _emit_text(self, item: GrowingItem, number: int, text: JSON, events: list[Event]) -> None:
        """Emit more text of the content `number`."""
        if text and type(text) is str:
            key = item.keys[number]
            if escaped := self._escape(key, text):
                item.texts[number].append(escaped)
                events.append(TextDelta(key, escaped))

    def _text_delta(self, event: Object, events: list[Event]) -> None:
        item, number = self._find_item(event, "message", events), read_index(event, "content_index") or 0
        if item.kind == "message":
            self._open_content(item, number, event["type"] == "response.refusal.delta", events)
            self._emit_text(item, number, read_optional_string(event, "delta"), events)

    def _text_done(self, event: Object, events: list[Event]) -> None:
        """Fill in the text that the deltas left out."""
        item, number = self._find_item(event, "message", events), read_index(event, "content_index") or 0
        if item.kind == "message":
            refusal = event["type"] == "response.refusal.done"
            self._open_content(item, number, refusal, events)
            self._emit_text(
                item, number, self._missing_text(item, number, event.get("refusal" if refusal else "text")), events
            )

    def _missing_text(self, item: GrowingItem, number: int | None, full_text: JSON) -> str:
        """Return the rest of `full_text` after the deltas; report a loss if they differ, as they have been sent."""
        if type(full_text) is not str or not full_text:
            return ""
        so_far = item.joined_text(number)
        if full_text.startswith(so_far):
            self._pending_surrogates.pop(item.keys.get(number or 0, item.key), None)  # its other half is in the rest
            return full_text[len(so_far) :]
        if not self._pending_surrogates:
            detail = "the finished item differs from its deltas, which have been sent"
            self.losses.add("/parts", f"text of a {item.kind}", "rewritten", detail)
        return ""

    def _call_delta(self, event: Object, events: list[Event]) -> None:
        self._append_arguments(self._find_item(event), read_optional_string(event, "delta"), events)

    def _append_arguments(self, item: GrowingItem, value: JSON, events: list[Event]) -> None:
        text = dumps(value) if value and type(value) is dict else value
        if text and type(text) is str and None in item.texts:
            if escaped := self._escape(item.key, text):
                item.texts[None].append(escaped)
                events.append(CallDelta(item.key, escaped))

    def _call_done(self, event: Object, events: list[Event]) -> None:
        item = self._find_item(event)
        value = event.get("arguments") or event.get("input")
        text = dumps(value) if type(value) is dict else value
        self._append_arguments(item, self._missing_text(item, None, text), events)

    def _reasoning_delta(self, event: Object, events: list[Event]) -> None:
        section = read_index(event, "summary_index")
        self._emit_reasoning(
            self._find_item(event, "reasoning", events), section, read_optional_string(event, "delta") or "", events
        )

    def _emit_reasoning(self, item: GrowingItem, section: int | None, text: str, events: list[Event]) -> None:
        if item.kind == "reasoning" and (escaped := self._escape(item.key, text)):
            item.texts.setdefault(section, []).append(escaped)
            events.append(ReasoningDelta(item.key, escaped, section))

    def _item_done(self, event: Object, events: list[Event]) -> None:
        raw = require_object(event.get("item"), "item")
        self._close_item(self._item_index(event, raw.get("id"), is_new=True), raw, events)

    def _close_item(self, index: int, raw: Object, events: list[Event]) -> None:
        """End an item with its final copy `raw`; open it first if the server omitted all earlier events."""
        item = self._items.get(index) or self._open_item(index, raw, events)
        if item.ended:  # repeated
            return
        item.ended = True
        if raw.get("type", "message") != item.kind:
            raise ProtocolError(f"a {item.kind} item ends as {raw.get('type')!r}", pointer="/item/type", status=502)
        parts = read_output_item(raw)
        if item.kind == "message":
            self._close_message(item, parts, events)
        elif item.is_search:
            self._close_search(parts[0], events)
        elif item.kind in ("function_call", "custom_tool_call"):
            self._close_call(item, parts[0], events)
        elif item.kind == "reasoning":
            self._close_reasoning(item, parts[0], events)
        else:
            key = item.key if item.key >= 0 else self._new_key()
            events.append(WholePart(key, Opaque(NAME, item.kind, raw)))

    def _close_message(self, item: GrowingItem, parts: list[Part], events: list[Event]) -> None:
        """End the contents of a message, and fill in the text that the deltas left out."""
        for number, part in enumerate(parts):
            if not isinstance(part, (Text, Refusal)):
                events.append(WholePart(self._new_key(), part))
                continue
            key = self._open_content(item, number, isinstance(part, Refusal), events)
            self._emit_text(item, number, self._missing_text(item, number, part.text), events)
            if rest := self._flush_surrogate(key):
                events.append(TextDelta(key, rest))
            events.append(TextEnd(key, (), strip_form(part.extra)))
        for number, key in item.keys.items():  # contents that the final item does not have
            if number >= len(parts) or not isinstance(parts[number], (Text, Refusal)):
                events.append(TextEnd(key))

    def _close_call(self, item: GrowingItem, call: Part, events: list[Event]) -> None:
        """End a call, and fill in the arguments that the deltas left out."""
        assert isinstance(call, ToolCall)
        self._append_arguments(item, self._missing_text(item, None, call.raw), events)
        raw = item.joined_text(None)
        extra = strip_form(call.extra)
        if item.kind == "custom_tool_call":
            events.append(CallEnd(item.key, None, raw, "complete", (), extra))
        else:
            # an empty text means no arguments, or a call that was truncated before them: its status decides
            arguments, state = parse_arguments(raw) if raw else (call.arguments, call.state)
            events.append(CallEnd(item.key, arguments, raw, state, (), extra))

    def _close_search(self, call: Part, events: list[Event]) -> None:
        """Emit a whole call of a search: its arguments arrive in one piece, and its call id is final only at the end."""
        self._has_calls = self._has_calls or isinstance(call, ToolCall)
        if isinstance(call, ToolCall):
            call = replace(call, extra=strip_form(call.extra))
        events.extend(unfold_part(self._new_key(), 0, call))

    def _close_reasoning(self, item: GrowingItem, reasoning: Part, events: list[Event]) -> None:
        assert isinstance(reasoning, Reasoning)
        for section, text in enumerate(reasoning.summary):
            self._emit_reasoning(item, section, self._missing_text(item, section, text), events)
        self._emit_reasoning(item, None, self._missing_text(item, None, reasoning.text), events)
        events.append(ReasoningEnd(item.key, reasoning.artefacts, strip_form(reasoning.extra)))

    def _on_final(self, event: Object, events: list[Event]) -> None:
        """End the stream with the final response, which fills in the items that no earlier event ended."""
        self._on_created(event, events)
        response = require_object(event.get("response"), "response")
        output = response.get("output")
        free = max(self._items, default=-1) + 1
        for number, raw in enumerate(output if type(output) is list else ()):
            index = self._find_index(number, require_object(raw, "response", "output", number), free)
            item = self._items.get(index)
            if item is None or not item.ended:
                self._close_item(index, raw, events)
                free = max(free, index + 1)
        usage = read_usage(response.get("usage"))
        if usage is not None:
            events.append(UsageUpdate(usage))
        fault = read_response_fault(response)
        if fault is not None:
            self._fail(fault, events)
            return
        for item in self._items.values():
            if not item.ended:
                self._close_unfinished(item, events)
        seen: list[Part] = [Refusal("")] if self._refused else []
        if self._has_calls:
            seen.append(ToolCall("", ""))
        stop = read_stop({"status": event["type"].removeprefix("response."), **response}, tuple(seen))
        events.append(ResponseEnd((stop,) if stop else (), read_unknown(response, _ENVELOPE, NAME)))
        self._over = True

    def _close_unfinished(self, item: GrowingItem, events: list[Event]) -> None:
        """End an item that neither an event nor the final response ended, with the text of its deltas."""
        item.ended = True
        if item.kind == "message":
            events.extend(TextEnd(key) for key in item.keys.values())
        elif item.kind in ("function_call", "custom_tool_call"):
            raw = item.joined_text(None)
            arguments, state = (None, "complete") if item.kind == "custom_tool_call" else parse_arguments(raw)
            if not raw:  # the arguments have not arrived
                arguments, state = None, "truncated"
            events.append(CallEnd(item.key, arguments, raw, state))
        elif item.kind == "reasoning":
            events.append(ReasoningEnd(item.key))
        else:
            self.losses.add("/parts", item.kind, "dropped", "the item has no end")

    def _find_index(self, number: int, raw: Object, free: int) -> int:
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
        """End a stream that has only the end marker of other wires."""
        seen: tuple[Part, ...] = (ToolCall("", ""),) if self._has_calls else ()
        stop = read_stop({"status": "completed"}, seen)
        events.append(ResponseEnd((stop,)))


_STEPS: dict[str, Callable[[ResponsesStreamDecoder, Object, list[Event]], None]] = {
    "response.created": ResponsesStreamDecoder._on_created,
    "response.queued": ResponsesStreamDecoder._on_created,
    "response.in_progress": ResponsesStreamDecoder._on_created,
    "response.output_item.added": ResponsesStreamDecoder._on_item_added,
    "response.content_part.added": ResponsesStreamDecoder._on_part_added,
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
    "response.completed": ResponsesStreamDecoder._on_final,
    "response.incomplete": ResponsesStreamDecoder._on_final,
    "response.failed": ResponsesStreamDecoder._on_final,
}
