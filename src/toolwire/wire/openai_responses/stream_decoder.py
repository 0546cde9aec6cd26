"""Decode Responses streams.

Every value arrives up to four times on this wire: as deltas, in `….done`, in `output_item.done`, and in the final
response. Servers omit one or another. The deltas are used as they arrive; a later copy fills in missing text and is
otherwise only read for data that deltas cannot carry (ids, annotations, encrypted reasoning, which is final only in
`output_item.done`).

An item that no event ended, and that the final response does not repeat, ends with the text of its deltas. `OutputItems`
finds the item of an event. A call starts when its name is known. A stream without a final response is complete
only if it has the end marker of other wires, `[DONE]`, and all its items have ended.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ...ir.errors import ProtocolError
from ...ir.events import Event, PartStart, ResponseEnd, ResponseStart, StreamFault, UsageUpdate
from ...ir.losses import Severity
from ...ir.parts import Opaque, Part, Refusal, ToolCall
from ...ir.pointer import JSON, Object
from ...ir.response import Fault
from ...ir.text import dumps
from ..fields import (
    odd_values,
    read_index,
    read_label,
    read_optional_string,
    read_timestamp,
    read_unknown,
    require_object,
)
from ..openai_fault import read_fault
from ..streaming.decoder import FAST_STRING
from .content import NAME
from .item_decoder import ResponsesItemDecoder
from .response import (
    ENVELOPE,
    ENVELOPE_TYPES,
    decode_response,
    read_output_text,
    read_response_fault,
    read_stop,
    read_usage,
)
from .stream_state import CALLS, GrowingItem, as_copy, has_other_content, read_id

_FAST_DELTA = re.compile(
    rb'\{"type": ?"response\.(?:function_call_arguments|output_text|custom_tool_call_input)\.delta", ?'
    rb'(?:"sequence_number": ?\d+, ?)?"item_id": ?"([^"\\]*)", ?"output_index": ?(\d{1,6}), ?'
    rb'(?:"content_index": ?(\d{1,6}), ?)?"delta": ?'
    + FAST_STRING
    + rb'(?:, ?"(?:logprobs": ?\[\]|obfuscation": ?"[^"\\]*+"|sequence_number": ?\d++))*+\}'
).fullmatch


_MAX_UNKNOWN = 100  # losses up to which unknown events are reported: an upstream could send many of them
# Events of hosted tools, whose items are whole in `output_item.done`.
_OTHER_ITEMS = tuple(f"response.{kind}" for kind in "code_interpreter mcp image audio reasoning_summary_part".split())


class ResponsesStreamDecoder(ResponsesItemDecoder):
    """Decoder of a Responses stream."""

    text_fields = frozenset({"delta", "text", "refusal", "arguments", "input"})

    def __init__(self) -> None:
        super().__init__()
        self._started = False
        # A call without content, and a copy with other ids and its index: its end, unless a later event has its own ids.
        self._guess: tuple[GrowingItem, Object, int | None] | None = None
        self._guess_copy = as_copy({})  # for comparisons, which parse it once
        self._is_guess_last = False  # no event came after that copy

    def _read_document(self, document: Object, events: list[Event]) -> None:
        self._add_whole(decode_response(document), events)

    def _is_complete(self) -> bool:
        items, guessed = self._items.all, self._guess and self._guess[0]
        return self._has_end_marker and bool(items) and all(item.ended or item is guessed for item in items)

    def _frame(self, name: bytes, payload: bytes, events: list[Event]) -> None:
        """Decode one event; plain deltas take a fast path without a JSON parser.

        An error ends the stream in a fault; an event of an unknown type may be reported.
        """
        fast = _FAST_DELTA(payload)
        is_held = self._pending_surrogates or self._pending is not None or self._guess is not None
        if fast is not None and not is_held and self._items.append_fast(fast, events):
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
        if step is not ResponsesStreamDecoder._on_final:
            self._end_pending(events)
            self._is_guess_last = False
        step(self, event, events)

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
        index = read_index(event, "output_index")
        if self._guess is not None and raw.get("type") in CALLS and not self._guess[0].shares_id(raw):
            self._end_guess(events)
        item = self._items.find_announced(raw, index)
        if item is not None:
            if item.ended:
                item.is_again = True
                self.losses.add("/parts", item.kind, "dropped", "a later event repeats the item", "info")
                return
            if item.is_announced:
                self._items.add_ids(item, raw)
            else:
                item.is_announced = True
                self._items.add_item_id(item, raw)
            if item.is_held and item.original is None and read_label(raw, "name"):
                self._start_call(item, raw, events)
            return
        item = self._open_item(index, raw, events)
        if item.key < 0 and item.kind != "message" and not item.is_search:
            item.key = self._new_key()
            events.append(PartStart(item.key, Opaque(NAME, item.kind, raw)))

    def _find_item(self, event: Object, kind: str, events: list[Event], *, is_copy: bool = False) -> GrowingItem:
        """Return the item of an event. Open one of `kind` if the server omitted `output_item.added`.

        `is_copy`: the event repeats text, and may come after the end of its item. Raise ProtocolError for more text
        after it.
        """
        index, item_id = read_index(event, "output_index"), read_id({"id": event.get("item_id")})
        raw: Object = {"type": kind, "id": item_id}
        item = self._items.find(GrowingItem(raw).group, index, item_id)
        if item is not None and item.group == "call" and item.kind != kind and item.has_other_id(raw):
            item = None
        if self._guess is not None and item is self._guess[0]:
            is_other = not item.has_other_id(raw)
            if is_copy:
                is_other = item.shares_item_id(raw) and has_other_content({**event, "type": kind}, self._guess_copy)
            self._end_guess(events, is_other=is_other)
        if item is not None and item.ended and not is_copy and not item.is_again:
            if not item.has_other_id(raw):
                raise ProtocolError("the output item is not open", pointer="/output_index", status=502)
            item = None
        if item is None:
            item = self._open_item(index, raw, events)
            item.is_announced = False
        return item

    def _on_part_added(self, event: Object, events: list[Event]) -> None:
        """Open a content of a message, with the text that the event may already hold."""
        part = require_object(event.get("part"), "part")
        item = self._find_item(event, "reasoning" if part.get("type") == "reasoning_text" else "message", events)
        if item.kind == "message":
            number = read_index(event, "content_index") or 0
            self._open_content(item, number, part.get("type") == "refusal", events)
            self._emit_text(item, number, part.get("text") or part.get("refusal"), events)

    def _part_done(self, event: Object, events: list[Event]) -> None:
        """Fill in the text of a content that the deltas left out."""
        part = require_object(event.get("part"), "part")
        kind = part.get("type")
        if kind == "reasoning_text" or kind == "summary_text":
            self._reasoning_done({**event, "text": part.get("text")}, events)
        elif kind == "output_text" or kind == "refusal":
            self._fill_text(event, part.get("text") or part.get("refusal"), kind == "refusal", events)

    def _text_delta(self, event: Object, events: list[Event]) -> None:
        item, number = self._find_item(event, "message", events), read_index(event, "content_index") or 0
        if item.kind == "message":
            self._open_content(item, number, event["type"] == "response.refusal.delta", events)
            self._emit_text(item, number, _read_delta(event), events)

    def _text_done(self, event: Object, events: list[Event]) -> None:
        """Fill in the text that the deltas left out."""
        self._fill_text(event, event.get("refusal") or event.get("text"), "refusal" in event["type"], events)

    def _fill_text(self, event: Object, text: JSON, refusal: bool, events: list[Event]) -> None:
        item = self._find_item(event, "message", events, is_copy=True)
        number = read_index(event, "content_index") or 0
        if item.kind == "message":
            self._open_content(item, number, refusal, events)
            self._emit_text(item, number, self._missing_text(item, number, text), events)

    def _call_delta(self, event: Object, events: list[Event]) -> None:
        item = self._find_item(event, _call_kind(event), events)
        delta = event.get("delta")
        self._append_arguments(item, delta if type(delta) is dict else read_optional_string(event, "delta"), events)

    def _call_done(self, event: Object, events: list[Event]) -> None:
        item = self._find_item(event, _call_kind(event), events, is_copy=True)
        value = event.get("arguments") or event.get("input")
        text = dumps(value) if type(value) is dict else value
        if item.group == "call":
            self._append_arguments(item, self._missing_text(item, None, text), events)

    def _reasoning_delta(self, event: Object, events: list[Event]) -> None:
        item = self._find_item(event, "reasoning", events)
        self._emit_reasoning(item, _reasoning_section(event), _read_delta(event) or "", events)

    def _reasoning_done(self, event: Object, events: list[Event]) -> None:
        """Fill in the text that the deltas left out."""
        item, section = self._find_item(event, "reasoning", events, is_copy=True), _reasoning_section(event)
        if item.kind == "reasoning":
            self._emit_reasoning(item, section, self._missing_text(item, section, event.get("text")), events)

    def _item_done(self, event: Object, events: list[Event]) -> None:
        """End the item that the event repeats, or open and end a new one.

        If neither ids nor content show which call it ends, the call is held as a guess until a later event decides.
        """
        raw = require_object(event.get("item"), "item")
        index = read_index(event, "output_index")
        item = self._items.find_ended(raw, index)
        if self._guess is not None and item is not None and (item is self._guess[0] or item.is_guess(raw)):
            item = self._decide_guess(item, raw, index, events)
        if item is not None and item.is_guess(raw):
            self._guess, self._guess_copy = (item, raw, index), as_copy(raw)
            self._is_guess_last = True
            self._items.by_index.pop(item.index, None)  # no fast path
            return
        if item is not None and item.ended:
            severity: Severity = "warning" if item.has_other_id(raw) else "info"
            self.losses.add("/parts", item.kind, "dropped", "a later event repeats the item", severity)
        if item is not None:
            self._items.add_ids(item, raw)
        self._close_item(item or self._open_item(index, raw, events), raw, events)

    def _decide_guess(
        self, item: GrowingItem, raw: Object, index: int | None, events: list[Event]
    ) -> GrowingItem | None:
        """Return the item that `raw` ends, or None for a third call.

        If `raw` has the ids of the held call or of its copy, that call ends first.
        """
        assert self._guess is not None
        held, copy = self._guess[0], self._guess_copy
        has_own_id = item is held and item.shares_id(raw)
        if item is held and not has_own_id and as_copy(raw).ids != copy.ids:
            if not has_other_content(raw, copy):
                self._report_twin()
            return None  # a third call
        self._end_guess(events, is_other=has_own_id and has_other_content(raw, copy))
        return self._items.find_ended(raw, index)

    def _end_guess(self, events: list[Event], *, is_other: bool = False) -> None:
        """End the call with the copy that has other ids, or start another call with it if it `is_other`."""
        if self._guess is not None:
            (item, raw, index), self._guess = self._guess, None
            if is_other:
                item.twin = item = self._open_item(index, raw, events)
            self._items.add_ids(item, raw)
            self._close_item(item, raw, events)

    def _on_final(self, event: Object, events: list[Event]) -> None:
        """End the stream with the final response, which fills in the items that no earlier event ended.

        Emit the usage, then a fault or the end of the answer.
        """
        self._on_created(event, events)
        response = require_object(event.get("response"), "response")
        response = response if self._items.all else read_output_text(response)
        output = response.get("output")
        output = output if type(output) is list else []
        items = [require_object(raw, "response", "output", number) for number, raw in enumerate(output)]
        status = event["type"].removeprefix("response.").replace("done", "completed")
        is_cut = "incomplete" in (status, response.get("status"))
        self._end_pending(events, is_cut=is_cut)
        self._end_guess(events, is_other=self._guess is not None and self._guess[0].is_beside(self._guess[1], items))
        self._end_pending(events, is_cut=is_cut and self._is_guess_last)
        has_calls = any(raw.get("type") in ("function_call", "custom_tool_call") for raw in items)
        matches = self._items.match_output(items)
        self._report_twins(items, matches)
        for raw, item in zip(items, matches, strict=True):
            is_last = raw is items[-1]
            self._close_item(item or self._open_item(None, raw, events), raw, events, is_cut=is_cut and is_last)
            self._end_pending(events)
        if (usage := read_usage(response.get("usage"))) is not None:
            events.append(UsageUpdate(usage))
        if (fault := read_response_fault(response)) is not None:
            self._fail(fault, events)
            return
        for item in self._items.all:
            if item.ended:
                self._read_late(item, events, is_confirmed=True)
            else:
                self._close_unfinished(item, events, is_cut=is_cut, has_calls=has_calls)
        seen: tuple[Part, ...] = (*[Refusal("")] * self._refused, *[ToolCall("", "")] * self._has_calls)
        stop = read_stop({"status": status, **response}, seen)
        events.append(ResponseEnd((stop,) if stop else (), read_unknown(response, ENVELOPE, NAME)))
        self._over = True

    def _report_twins(self, output: list[Object], matches: list[GrowingItem | None]) -> None:
        """Report two calls that may be one: at the same output index, or if only the final response completes one of them."""
        calls = [item for item in self._items.all if item.group == "call"]
        if len({item.index for item in calls}) < len(calls):
            known = [(item.index, item.as_copy().call) for item in calls]
            if len(set(known)) < len(known):
                self._report_twin()
        empty = [raw for raw, item in zip(output, matches, strict=True) if item and item.awaits_arguments]
        if empty:
            matched = set(matches)
            others = [item.as_copy() for item in calls if item.ended and item not in matched]
            known_calls, known_names = {copy.call for copy in others}, {(copy.kind, copy.name) for copy in others}
            for copy in map(as_copy, empty):
                if copy.call in known_calls or (not copy.text and (copy.kind, copy.name) in known_names):
                    self._report_twin()

    def _finish(self, events: list[Event]) -> None:
        """End a stream that has only the end marker of other wires."""
        self._end_guess(events)
        self._end_pending(events)
        for item in self._items.all:
            self._read_late(item, events, is_confirmed=True)
        stop = read_stop({"status": "completed"}, (ToolCall("", ""),) if self._has_calls else ())
        events.append(ResponseEnd((stop,)))


_STEPS: dict[str, Callable[[ResponsesStreamDecoder, Object, list[Event]], None]] = {
    f"response.{name}": step
    for names, step in (
        ("created queued in_progress", ResponsesStreamDecoder._on_created),
        ("output_item.added", ResponsesStreamDecoder._on_item_added),
        ("content_part.added", ResponsesStreamDecoder._on_part_added),
        ("output_text.delta refusal.delta", ResponsesStreamDecoder._text_delta),
        ("output_text.done refusal.done", ResponsesStreamDecoder._text_done),
        ("content_part.done reasoning_summary_part.done", ResponsesStreamDecoder._part_done),
        ("reasoning_summary_text.delta reasoning_text.delta", ResponsesStreamDecoder._reasoning_delta),
        ("reasoning_summary_text.done reasoning_text.done", ResponsesStreamDecoder._reasoning_done),
        ("function_call_arguments.delta custom_tool_call_input.delta", ResponsesStreamDecoder._call_delta),
        ("function_call_arguments.done custom_tool_call_input.done", ResponsesStreamDecoder._call_done),
        ("output_item.done", ResponsesStreamDecoder._item_done),
        ("completed incomplete failed done", ResponsesStreamDecoder._on_final),  # done: can1357/oh-my-pi#4692
    )
    for name in names.split()
}


def _call_kind(event: Object) -> str:
    return "custom_tool_call" if event["type"].startswith("response.custom") else "function_call"


def _read_delta(event: Object) -> str | None:
    """Return the text of a delta; Langflow sends an object with it (langflow-ai/openrag#1924)."""
    match event.get("delta"):
        case {"content": str(text)} | {"text": str(text)}:
            return text
    return read_optional_string(event, "delta")


def _reasoning_section(event: Object) -> int:
    """Return the section of a summary, or the complement of the index of a content."""
    if event["type"].startswith("response.reasoning_summary"):
        return read_index(event, "summary_index") or 0
    return ~(read_index(event, "content_index") or 0)
