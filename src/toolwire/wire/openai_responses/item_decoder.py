"""Write the events of a Responses stream's items: their starts, their text, and their ends.

A copy of an item repeats the text of its deltas. Only the missing rest becomes events; the deltas have been sent, so a
copy with another text is reported as a loss.
"""

from __future__ import annotations

from msgspec.structs import replace

from ...ir.errors import ProtocolError
from ...ir.events import (
    CallDelta,
    CallEnd,
    CallStart,
    Event,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    TextDelta,
    TextEnd,
    TextStart,
    WholePart,
)
from ...ir.folding import unfold_part
from ...ir.parts import CallKind, CallState, Extra, Opaque, Part, Reasoning, Refusal, Text, ToolCall
from ...ir.pointer import JSON, Object
from ...ir.text import dumps
from ...stream.strict import parse_arguments
from ..fields import read_optional_string, read_string
from ..streaming.copies import equal_arguments, is_near
from ..streaming.decoder import BaseStreamDecoder
from .content import NAME
from .items import may_be_cut, read_call_id, read_output_item
from .stream_state import STREAMED, GrowingItem, OutputItems, as_copy, differ
from .tool_search import is_client_search


class ResponsesItemDecoder(BaseStreamDecoder):
    """The part of the decoder that knows items, and no event of the stream."""

    def __init__(self) -> None:
        super().__init__()
        self._items = OutputItems()
        self._has_calls = self._refused = False
        self._pending: CallEnd | None = None  # the end of a call that the next event may show to be cut (`may_be_cut`)

    def _open_item(self, index: int | None, raw: Object, events: list[Event]) -> GrowingItem:
        """Register an item and return it; a call with a name or reasoning starts at once, a message with its text."""
        item = GrowingItem(raw)
        item.original = self._items.find_original(raw) if item.group == "call" else None
        self._items.add(item, index)
        if item.group == "call":
            self._has_calls = True
            item.key = self._new_key()
            item.texts[None] = []
            item.is_held = True
            if raw.get("name") and item.original is None:
                self._start_call(item, raw, events)
            self._read_first_arguments(item, raw.get("arguments" if item.kind == "function_call" else "input"), events)
        elif item.kind == "tool_search_call":
            item.is_search = is_client_search(raw)
        elif item.kind == "reasoning":
            item.key = self._new_key()
            events.append(ReasoningStart(item.key, 0, _own_fields(NAME, item.id)))
        return item

    def _start_call(self, item: GrowingItem, raw: Object, events: list[Event]) -> None:
        """Start a call whose name is known, with the arguments that arrived before it."""
        item.is_held = False
        item.name = read_string(raw, "name")
        kind: CallKind = "freeform" if item.kind == "custom_tool_call" else "function"
        namespace = read_optional_string(raw, "namespace")
        call_id = read_call_id(raw) or read_call_id({"call_id": item.call_id, **item.id})
        if not item.call_id:
            self._items.add_call_id(item, raw.get("call_id"))
        events.append(CallStart(item.key, call_id, item.name, kind, namespace, 0, _own_fields(NAME, item.id)))
        if item.texts[None]:
            events.append(CallDelta(item.key, b"".join(item.texts[None])))

    def _read_first_arguments(self, item: GrowingItem, value: JSON, events: list[Event]) -> None:
        """Read the arguments in the start of a call: deltas may repeat complete ones, and `{}` may precede the real ones."""
        text = dumps(value) if value and type(value) is dict else value
        if type(text) is str and item.kind == "function_call" and parse_arguments(text)[1] == "complete":
            item.placeholder = text
        else:
            self._append_arguments(item, text, events)

    def _open_content(self, item: GrowingItem, index: int, refusal: bool, events: list[Event]) -> int:
        """Return the key of a content; emit TextStart if it is new and its item has not ended."""
        key = item.keys.get(index, -1 if item.ended else None)
        if key is None:
            key = item.keys[index] = self._new_key()
            item.texts.setdefault(index, [])
            self._refused = self._refused or refusal
            events.append(TextStart(key, 0, refusal, _own_fields(f"{NAME}/item", item.id)))
        return key

    def _emit_text(self, item: GrowingItem, number: int, text: JSON, events: list[Event]) -> None:
        """Emit more text of the content `number`. Text of an item that has ended and starts again is only compared."""
        if text and type(text) is str:
            if item.ended:
                item.late.append(self._escape(item.key, text))
                return
            key = item.keys[number]
            if escaped := self._escape(key, text):
                item.texts[number].append(escaped)
                events.append(TextDelta(key, escaped))

    def _missing_text(self, item: GrowingItem, number: int | None, full_text: JSON) -> str:
        """Return the rest of `full_text` after the deltas; report a loss if they differ, as they have been sent."""
        if type(full_text) is not str or not full_text:
            return ""
        if not is_near(item.texts.get(number, ()), full_text):
            self._report_difference(item)
            return ""
        so_far = item.joined_text(number)
        if full_text.startswith(so_far):
            self._pending_surrogates.pop(item.keys.get(number or 0, item.key), None)  # its other half is in the rest
            rest = full_text[len(so_far) :]
            if rest and item.ended:
                self.losses.add("/parts", f"text of a {item.kind}", "dropped", "it came after the end of the item")
                return ""
            return rest
        is_equal = item.kind == "function_call" and equal_arguments(full_text, so_far)  # only formatted differently
        if not is_equal and not self._pending_surrogates:
            self._report_difference(item)
        return ""

    def _report_difference(self, item: GrowingItem) -> None:
        detail = "the finished item differs from its deltas, which have been sent"
        self.losses.add("/parts", f"text of a {item.kind}", "rewritten", detail)

    def _append_arguments(self, item: GrowingItem, value: JSON, events: list[Event]) -> None:
        """Append arguments to a call and emit them, unless it is held; text after complete arguments is kept apart."""
        text = dumps(value) if value and type(value) is dict else value
        if text and type(text) is str and None in item.texts:
            if escaped := self._escape(item.key, text):
                if item.is_full(text):
                    item.late.append(escaped)
                    self._items.by_index.pop(item.index, None)  # no fast path
                    return
                item.texts[None].append(escaped)
                if not item.is_held:
                    events.append(CallDelta(item.key, escaped))

    def _emit_reasoning(self, item: GrowingItem, section: int | None, text: str, events: list[Event]) -> None:
        """Emit more text of reasoning: of a section of its summary, of a content, or of its whole text (None).

        The number of a content is negative (`_reasoning_section`). Text after the end of the item is kept in `late`. An
        item of another kind has no reasoning, so its text is ignored.
        """
        if item.kind == "reasoning" and (escaped := self._escape(item.key, text)):
            if item.ended:
                item.late.append(escaped)
                return
            item.texts.setdefault(section, []).append(escaped)
            if section is not None and section < 0:
                # also part of the whole text, which the final item repeats
                section = None
                item.texts.setdefault(None, []).append(escaped)
            events.append(ReasoningDelta(item.key, escaped, section))

    def _close_item(self, item: GrowingItem, raw: Object, events: list[Event], *, is_cut: bool = False) -> None:
        """End an item with its final copy `raw`; a call that no other item follows may still be cut (`may_be_cut`).

        A repetition of another item is dropped and reported. `is_cut`: a limit ended the answer in this item.
        """
        if item.group == "call" and differ(item.call_id, raw.get("call_id")):
            self.losses.add("/parts", "call", "rewritten", "a later event repeats the call under another id", "info")
        if item.ended:
            if raw != item.final:
                self._check_repetition(item, raw)
            return
        item.final = raw
        if item.placeholder and not raw.get("arguments") and raw.get("status") != "incomplete":
            raw = {**raw, "arguments": item.placeholder}
        if item.is_held:
            if item.repeats_original(raw):
                self._drop_repetition(item)
                return
            self._start_call(item, raw, events)
        parts = read_output_item(raw)
        if item.kind == "message":
            self._close_message(item, parts, events)
        elif item.is_search:
            self._close_search(parts[0], events)
        elif item.kind in ("function_call", "custom_tool_call"):
            self._close_call(item, parts[0], events)
            if is_cut:
                self._end_pending(events, is_cut=True)
        elif item.kind == "reasoning":
            self._close_reasoning(item, parts[0], events)
        else:
            key = item.key if item.key >= 0 else self._new_key()
            events.append(WholePart(key, Opaque(NAME, item.kind, raw)))
        self._items.end(item)

    def _drop_repetition(self, item: GrowingItem) -> None:
        self.losses.add("/parts", item.kind, "dropped", "a later event repeats the item", "info")
        self._items.end(item)

    def _check_repetition(self, item: GrowingItem, raw: Object) -> None:
        """Report a copy of an item that has ended if it has other content."""
        copy = as_copy(raw)
        if copy.text and item.group in STREAMED and not self._has_mapped_surrogates and not item.has_content(copy):
            self._report_difference(item)

    def _close_message(self, item: GrowingItem, parts: list[Part], events: list[Event]) -> None:
        """End the contents of a message, and fill in the text that the deltas left out."""
        for number, part in enumerate(parts):
            if not isinstance(part, (Text, Refusal)):
                events.append(WholePart(self._new_key(), part))
                continue
            key = self._open_content(item, number, isinstance(part, Refusal), events)
            self._emit_text(item, number, self._missing_text(item, number, part.text), events)
            if half := self._flush_surrogate(key):
                events.append(TextDelta(key, half))
            events.append(TextEnd(key, (), _strip_form(part.extra)))
        for number, key in item.keys.items():  # contents that the final item does not have
            if number >= len(parts) or not isinstance(parts[number], (Text, Refusal)):
                events.append(TextEnd(key))

    def _close_call(self, item: GrowingItem, call: Part, events: list[Event]) -> None:
        """End a call, and fill in the arguments that the deltas left out; the end of a call that may be cut is held."""
        assert isinstance(call, ToolCall)
        self._append_arguments(item, self._missing_text(item, None, call.raw), events)
        end = self._make_call_end(item, call, events)
        if end.state == "complete" and may_be_cut(call):
            self._end_pending(events)
            self._pending = end
        else:
            events.append(end)

    def _make_call_end(self, item: GrowingItem, call: ToolCall, events: list[Event]) -> CallEnd:
        """Return the end of a call with its text so far, after a comparison of late text; `call` is its copy."""
        if item.late:
            is_confirmed = bool(call.raw) and equal_arguments(call.raw or "", item.text())
            self._read_late(item, events, is_confirmed=is_confirmed)
        raw = item.joined_text(None)
        if item.twin is not None and (not raw.strip("{} \t\r\n") or item.has_content(item.twin.as_copy())):
            self._report_twin()
        arguments, state = call.arguments, call.state  # of a call without text: its status decides
        if raw and item.kind == "function_call":
            arguments, state = parse_arguments(raw)
            if not arguments and call.state == "truncated":
                arguments, state = None, "truncated"
        return CallEnd(item.key, arguments, raw, state, (), _strip_form(call.extra))

    def _end_pending(self, events: list[Event], *, is_cut: bool = False) -> None:
        if self._pending is not None:
            events.append(replace(self._pending, arguments=None, state="truncated") if is_cut else self._pending)
            self._pending = None

    def _read_late(self, item: GrowingItem, events: list[Event], *, is_confirmed: bool) -> None:
        """Compare arguments after the complete ones with them. Unless a copy confirmed the first, others contradict them."""
        if item.late and not item.repeats_late():
            if is_confirmed or item.ended:
                self.losses.add("/parts", f"text of a {item.kind}", "dropped", "it came after the complete item")
            else:
                item.texts[None] += item.late
                events.append(CallDelta(item.key, b"".join(item.late)))
        item.late = []

    def _close_search(self, call: Part, events: list[Event]) -> None:
        """Emit a whole call of a search: its arguments arrive in one piece, and its call id is final only at the end."""
        self._has_calls = self._has_calls or isinstance(call, ToolCall)
        if isinstance(call, ToolCall):
            call = replace(call, extra=_strip_form(call.extra))
        events.extend(unfold_part(self._new_key(), 0, call))

    def _close_reasoning(self, item: GrowingItem, reasoning: Part, events: list[Event]) -> None:
        assert isinstance(reasoning, Reasoning)
        for section, text in enumerate(reasoning.summary):
            self._emit_reasoning(item, section, self._missing_text(item, section, text), events)
        self._emit_reasoning(item, None, self._missing_text(item, None, reasoning.text), events)
        events.append(ReasoningEnd(item.key, reasoning.artefacts, _strip_form(reasoning.extra)))

    def _report_twin(self) -> None:
        detail = "two calls with different ids, and equal or empty arguments, may be one call"
        self.losses.add("/parts", "call", "rewritten", detail)

    def _close_unfinished(self, item: GrowingItem, events: list[Event], *, is_cut: bool, has_calls: bool) -> None:
        """End an item that neither an event nor the final response ended, with the text of its deltas.

        Arguments from the start of a call are a placeholder, and must not look complete, if a limit ended the answer or
        if it has other calls instead. Raise ProtocolError for a call without a name.
        """
        if item.kind == "message":
            events.extend(TextEnd(key) for key in item.keys.values())
        elif item.kind in ("function_call", "custom_tool_call"):
            if item.is_held and item.repeats_original({}):
                self._drop_repetition(item)
                return
            if item.is_held and item.original is not None:
                self._start_call(item, {"name": item.name, "call_id": item.call_id}, events)
            if item.is_held:
                raise ProtocolError("a call has no name", pointer="/item/name", status=502)
            if not item.texts[None]:
                text = item.placeholder.rstrip()
                self._append_arguments(item, text[:-1] if is_cut or has_calls else text, events)
            is_whole = bool(item.texts[None]) and not (is_cut and item.kind == "custom_tool_call")
            state: CallState = "complete" if is_whole else "truncated"
            events.append(self._make_call_end(item, ToolCall("", "", state=state), events))
        elif item.kind == "reasoning":
            events.append(ReasoningEnd(item.key))
        else:
            self.losses.add("/parts", item.kind, "dropped", "the item has no end")
        self._items.end(item)


def _own_fields(scope: str, fields: Object) -> Extra:
    return {scope: fields} if fields else {}


def _strip_form(extra: Extra) -> Extra:
    """Remove form, except the mark of the beginning of an item."""
    kept = {name: fields for name, fields in extra.items() if not name.endswith("~")}
    if ":item" in extra.get(f"{NAME}~", {}):
        kept[f"{NAME}~"] = {":item": True}
    return kept
