"""Decode Chat Completions streams.

The wire does not mark the end of an item: a text ends when a call starts, a call when its choice finishes. A call whose
arguments are already complete when the next one starts ends at once, so that the client need not wait for the finish
reason.

Servers disagree about almost everything in a call delta. Here a delta belongs to the call with its `index`, without an
index to the last call; another id or another name is a new call, and so is the same name again when the arguments
before it are complete. Otherwise id and name count once, however often they are repeated.
"""

from __future__ import annotations

import re

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
from ...ir.folding import merge_extra
from ...ir.parts import CallKind, Extra, Part, Reasoning, Refusal, Text, ToolCall
from ...ir.pointer import JSON, Object
from ...ir.response import Stop
from ...ir.text import dumps, unescape
from ...stream.strict import parse_arguments
from ..base_decoder import FAST_STRING, BaseStreamDecoder, is_utf8
from ..fields import read_integer, read_optional_string, read_timestamp, read_unknown, require_object, type_error
from ..openai_fault import read_fault
from .content import NAME, read_answer_part
from .messages import REASONING_FIELDS, read_id, read_signature
from .response import is_truncated, make_stop, read_usage, stop_fault
from .stream_state import GrowingCall, GrowingChoice, OpenText, collect_logprobs, is_new_call

__all__ = ["ChatStreamDecoder"]

_FORM = "openai_chat~"
_CHUNK = frozenset({"id", "object", "created", "model", "choices", "usage", "obfuscation"})
_CHOICE = frozenset({"index", "delta", "finish_reason"})
_TEXT_FIELDS = (*REASONING_FIELDS, "content", "refusal")
_DELTA = frozenset({"role", "tool_calls", "function_call", *_TEXT_FIELDS})
_IN_CONTENT = "thinking"  # reasoning in an array of content, as Mistral sends it
_REASONING = frozenset({*REASONING_FIELDS, _IN_CONTENT})
_CALL = frozenset({"index", "id", "type", "function", "custom", ":call"})
_FUNCTION = frozenset({"name", "arguments", "input"})

# The two deltas that make up almost all of a stream, from "choices" to the end of the chunk.
_FAST_DELTA = (
    rb'"choices": ?\[\{"index": ?(\d{1,4}), ?"delta": ?\{(?:"content": ?'
    + FAST_STRING
    + rb'|"tool_calls": ?\[\{"index": ?(\d{1,6}), ?"function": ?\{"arguments": ?'
    + FAST_STRING
    + rb'\}\}\])\}(?:, ?"logprobs": ?null)?, ?"finish_reason": ?null(?:, ?"logprobs": ?null)?\}\]'
    rb'(?:, ?"usage": ?null)?(?:, ?"obfuscation": ?"[^"\\]*")?\}'
)
_FAST = re.compile(_FAST_DELTA).fullmatch
_FAST_EVENT = re.compile(_FAST_DELTA + rb"\n\n").fullmatch


class ChatStreamDecoder(BaseStreamDecoder):
    """Decoder of a Chat Completions stream."""

    text_fields = frozenset({*_TEXT_FIELDS, "arguments", "input", "text", "thinking"})

    def __init__(self) -> None:
        super().__init__()
        self._choices: dict[int, GrowingChoice] = {}
        self._started = False
        self._envelope = b"\n"  # the bytes before "choices" in the last chunk that was parsed in full
        self._event_start = b"data: \n"  # the same in an event
        self._fields: Object = {}  # unknown fields of the chunks

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that `data` completes. One delta in one read, the usual case, takes a short path."""
        if data.startswith(self._event_start) and self._is_between_events():
            events: list[Event] = []
            fast = _FAST_EVENT(data, len(self._event_start))
            if fast is not None and self._fast_delta(fast, events):
                return events
        return super().feed(data)

    def _frame(self, name: bytes, payload: bytes, events: list[Event]) -> None:
        """Decode one chunk; the fast path needs the first bytes of the last fully parsed chunk (`_envelope`)."""
        if payload.startswith(self._envelope) and not self._pending_surrogates:
            fast = _FAST(payload, len(self._envelope))
            if fast is not None and self._fast_delta(fast, events):
                return
        if payload.strip() == b"[DONE]":
            if self._choices:
                self._finish(events)
                self._over = True
            return
        chunk = self._read_object(payload)
        self._envelope = payload[: max(payload.find(b'"choices"'), 0)] or b"\n"
        self._event_start = b"data: " + (self._envelope if b"\n" not in self._envelope else b"\n")
        self._read_chunk(chunk, events)

    def _fast_delta(self, fast: re.Match[bytes], events: list[Event]) -> bool:
        """Emit a delta that `_FAST` matched; return False if the full parser has to read the chunk."""
        choice = self._choices.get(int(fast[1]))
        if choice is None or choice.stop is not None:
            return False
        content = fast[2]
        if content is not None:
            if choice.open is None or choice.open.field != "content" or not is_utf8(content):
                return False
            if content:
                events.append(TextDelta(choice.open.key, content))
            return True
        call, fragment = choice.by_index.get(int(fast[3])), fast[4]
        if call is None or not call.name or call.ended or not is_utf8(fragment):
            return False
        if fragment:
            call.pieces.append(fragment)
            if choice.last is not call:
                choice.last = call
                choice.grown.append(call)
            events.append(CallDelta(call.key, fragment))
        return True

    def _is_complete(self) -> bool:
        return bool(self._choices) and all(choice.stop is not None for choice in self._choices.values())

    def _finish(self, events: list[Event]) -> None:
        """Emit the end of the answer, or a fault if the first choice ended with an error."""
        choices = [self._choices[index] for index in sorted(self._choices)]
        for choice in choices:
            if choice.stop is None:  # [DONE] also ends the stream of a server without finish reasons
                self._end_items(choice, events)
        stops: tuple[Stop | None, ...] = ()
        if any(choice.stop is not None for choice in choices):
            stops = tuple(choice.stop or Stop("unknown") for choice in choices)
        extra: Extra = {NAME: self._fields} if self._fields else {}
        if choices and (fields := choices[0].message.join()):
            extra[f"{NAME}/message"] = fields
        end = ResponseEnd(stops, extra)
        fault = stop_fault(stops[0]) if stops else None
        events.append(end if fault is None else StreamFault(fault, end))

    def _read_chunk(self, chunk: Object, events: list[Event]) -> None:
        """Emit the events of a chunk that was parsed in full: a fault, the start, the choices, the usage."""
        if chunk.get("error"):
            self._over = True
            events.append(StreamFault(read_fault(chunk["error"], NAME)))
            return
        if chunk.get("object") == "error":  # vLLM's own error, without an envelope
            self._over = True
            events.append(StreamFault(read_fault({k: v for k, v in chunk.items() if k != "object"}, NAME)))
            return
        if not self._started and any(chunk.get(field) for field in ("id", "model", "choices", "usage")):
            self._started = True  # Azure begins with a chunk that has only the results of its filter
            created = read_timestamp(chunk, "created")
            events.append(
                ResponseStart(
                    read_optional_string(chunk, "id") or "", read_optional_string(chunk, "model") or "", created
                )
            )
        if not _CHUNK.issuperset(chunk):
            self._keep_chunk_fields(read_unknown(chunk, _CHUNK, NAME).get(NAME, {}))
        for raw in _read_array(chunk, "choices"):
            self._read_choice(require_object(raw, "choices"), events)
        usage = read_usage(_find_usage(chunk))
        if usage is not None:
            events.append(UsageUpdate(usage))

    def _keep_chunk_fields(self, fields: Object) -> None:
        """Keep fields of the chunk. A later value replaces an earlier one; objects are joined (Groq's `x_groq`)."""
        for key, value in fields.items():
            previous = self._fields.get(key)
            if type(previous) is dict and type(value) is dict:
                previous.update(value)
            else:
                self._fields[key] = dict(value) if type(value) is dict else value

    def _read_choice(self, raw: Object, events: list[Event]) -> None:
        """Emit the delta of a choice; content after its finish reason is dropped and reported."""
        index = read_integer(raw, "index") or 0
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = GrowingChoice(index)
        delta = raw.get("delta")
        delta = {} if delta is None else require_object(delta, "choices", index, "delta")
        if choice.stop is None:
            try:
                self._read_delta(choice, delta, events)
            except ProtocolError as error:
                raise error.within("choices", index, "delta") from None
        elif any(delta.get(field) for field in _DELTA if field != "role"):
            self.losses.add("/parts", "content after the end", "dropped", "it came after the finish reason")
        extra = read_unknown(raw, _CHOICE, f"{NAME}/choice")
        if extra:
            collect_logprobs(choice, extra[f"{NAME}/choice"])
            choice.extra = merge_extra(choice.extra, extra)
        word = "error" if raw.get("error") else raw.get("finish_reason")
        if word is not None and choice.stop is None:
            self._end_choice(choice, str(word), events)

    def _end_choice(self, choice: GrowingChoice, word: str, events: list[Event]) -> None:
        """End the items of a choice and set its stop; placeholder parts represent its refusal and its calls."""
        self._end_items(choice, events, is_cut=is_truncated(word))
        parts: list[Part] = [Refusal("")] if choice.refused else []
        if choice.calls:
            parts.append(_ANY_CALL)
        choice.stop = make_stop(word, tuple(parts), choice.extra)

    def _end_items(self, choice: GrowingChoice, events: list[Event], *, is_cut: bool = False) -> None:
        self._close_text(choice, events)
        for call in choice.calls:
            self._end_call(call, events, is_cut=is_cut and call is choice.calls[-1])

    def _read_delta(self, choice: GrowingChoice, delta: Object, events: list[Event]) -> None:
        """Emit the text, the reasoning and the calls of a delta; unknown fields are collected as fragments."""
        thoughts = next((field for field in REASONING_FIELDS if delta.get(field)), None)
        if thoughts is not None and type(delta[thoughts]) is str:  # some servers put the same text into both fields
            self._emit_text(choice, thoughts, delta[thoughts], events)
        content = delta.get("content")
        if type(content) is list:
            self._read_content(choice, content, events)
        elif text := read_optional_string(delta, "content"):
            self._emit_text(choice, "content", text, events)
        if text := read_optional_string(delta, "refusal"):
            self._emit_text(choice, "refusal", text, events)
        for number, raw in enumerate(_read_array(delta, "tool_calls")):
            try:
                self._read_call(choice, require_object(raw), events)
            except ProtocolError as error:
                raise error.within("tool_calls", number) from None
        if delta.get("function_call"):
            function = require_object(delta["function_call"], "function_call")
            self._read_call(choice, {"index": 0, "function": function, ":call": "function_call"}, events)
        if not _DELTA.issuperset(delta):
            choice.message.add(read_unknown(delta, _DELTA, NAME).get(NAME, {}))

    def _read_content(self, choice: GrowingChoice, content: list[JSON], events: list[Event]) -> None:
        """Read an array of content, as Mistral sends it."""
        for number, raw in enumerate(content):
            try:
                part = read_answer_part(raw)
            except ProtocolError as error:
                raise error.within("content", number) from None
            if isinstance(part, (Text, Reasoning, Refusal)):
                field = {Text: "content", Reasoning: _IN_CONTENT, Refusal: "refusal"}[type(part)]
                opened = self._emit_text(choice, field, part.text, events)
                opened.extra.add(part.extra.get(NAME, {}))
            else:
                self._close_text(choice, events)
                events.append(WholePart(self._new_key(), part, choice.index))

    def _emit_text(self, choice: GrowingChoice, field: str, text: str, events: list[Event]) -> OpenText:
        """Emit text of `field`; it continues the open item of the same field, else it opens another."""
        opened = choice.open
        if opened is None or opened.field != field:
            self._close_text(choice, events)
            opened = choice.open = OpenText(field, self._new_key())
            if field in _REASONING:
                form = {":place": "content"} if field == _IN_CONTENT else {":field": field}
                events.append(ReasoningStart(opened.key, choice.index, {_FORM: form}))
            else:
                choice.refused = choice.refused or field == "refusal"
                events.append(TextStart(opened.key, choice.index, field == "refusal"))
        escaped = self._escape(opened.key, text)
        if escaped:
            kind = ReasoningDelta if field in _REASONING else TextDelta
            events.append(kind(opened.key, escaped))
        return opened

    def _close_text(self, choice: GrowingChoice, events: list[Event]) -> None:
        """End the open text or reasoning, if there is one."""
        opened = choice.open
        if opened is None:
            return
        choice.open = None
        is_reasoning = opened.field in _REASONING
        if rest := self._flush_surrogate(opened.key):
            events.append(ReasoningDelta(opened.key, rest) if is_reasoning else TextDelta(opened.key, rest))
        extra: Extra = {NAME: opened.extra.join()} if opened.extra else {}
        events.append(ReasoningEnd(opened.key, (), extra) if is_reasoning else TextEnd(opened.key, (), extra))

    def _read_call(self, choice: GrowingChoice, raw: Object, events: list[Event]) -> None:
        """Apply a call delta; the call starts when its name is known, and fragments before that are kept."""
        kind: CallKind = "freeform" if raw.get("custom") is not None else "function"
        inner = raw.get("custom" if kind == "freeform" else "function")
        inner = {} if inner is None else require_object(inner, "function")
        call_id, name = read_id(raw), read_optional_string(inner, "name") or ""
        fragment = inner.get("input" if kind == "freeform" else "arguments")
        call = self._find_call(choice, read_integer(raw, "index"), call_id, name, kind, bool(fragment), raw)
        if choice.last is not call:
            choice.last = call
            choice.grown.append(call)
        call.id = call.id or call_id
        self._keep_fields(call, raw, inner)
        if name and not call.name:
            call.name = name
            self._close_text(choice, events)
            self._end_complete_calls(choice, call, events)
            events.append(CallStart(call.key, call.id, name, kind, None, choice.index, call.extra))
            events.extend(CallDelta(call.key, piece) for piece in call.pieces)
        if type(fragment) is dict:  # the whole object at once
            fragment = dumps(fragment)
        if fragment:
            if type(fragment) is not str:
                raise type_error("a string", fragment, "function", "arguments")
            self._append_arguments(call, fragment, events)

    def _keep_fields(self, call: GrowingCall, raw: Object, inner: Object) -> None:
        """Keep the signature of a call, and its unknown fields."""
        if not _CALL.issuperset(raw):
            signature = read_signature(raw)
            call.artefacts = call.artefacts or signature
            call.outer.add(read_unknown(raw, (*_CALL, "extra_content") if signature else _CALL, NAME).get(NAME, {}))
        if not _FUNCTION.issuperset(inner):
            call.inner.add(read_unknown(inner, _FUNCTION, NAME).get(NAME, {}))

    def _append_arguments(self, call: GrowingCall, fragment: str, events: list[Event]) -> None:
        """Append arguments; a call that ended early, because they were complete, accepts only whitespace.

        Events carry the fragment JSON-escaped. A call without a name is not announced yet, so its fragments only wait.
        """
        if call.ended:
            if fragment.strip():
                raise ProtocolError("received more arguments for a call that was already complete", status=502)
            return
        escaped = self._escape(call.key, fragment)
        call.pieces.append(escaped)
        if call.name and escaped:
            events.append(CallDelta(call.key, escaped))

    def _find_call(
        self,
        choice: GrowingChoice,
        index: int | None,
        call_id: str,
        name: str,
        kind: CallKind,
        grows: bool,
        raw: Object,
    ) -> GrowingCall:
        """Return the call of a delta, or a new one, by the rules in the module docstring."""
        call = choice.last if index is None else choice.by_index.get(index)
        if call is not None and not is_new_call(call, call_id, name, grows):
            return call
        extra: Extra = {_FORM: {":call": raw[":call"]}} if ":call" in raw else {}
        call = GrowingCall(self._new_key(), call_id, kind, extra)
        choice.calls.append(call)
        choice.by_index[len(choice.by_index) if index is None else index] = call
        return call

    def _end_complete_calls(self, choice: GrowingChoice, new: GrowingCall, events: list[Event]) -> None:
        """End the calls whose arguments are complete when another one starts."""
        for call in choice.grown:
            if call is not new and not call.ended and call.kind == "function" and call.is_complete():
                self._end_call(call, events)
        choice.grown = [new]

    def _end_call(self, call: GrowingCall, events: list[Event], *, is_cut: bool = False) -> None:
        """End a call; if `is_cut`, a limit ended the answer, so a call without arguments is truncated."""
        if call.ended:
            return
        if not call.name:
            raise ProtocolError("a call has no name", status=502)
        call.ended = True
        if rest := self._flush_surrogate(call.key):
            call.pieces.append(rest)
            events.append(CallDelta(call.key, rest))
        raw = unescape(b"".join(call.pieces))
        extra: Extra = {NAME: call.outer.join()} if call.outer else {}
        if call.inner:
            extra[f"{NAME}/function"] = call.inner.join()
        if call.kind == "freeform":
            events.append(CallEnd(call.key, None, raw, "complete", call.artefacts, extra))
        else:
            arguments, state = (None, "truncated") if is_cut and not raw else parse_arguments(raw)
            events.append(CallEnd(call.key, arguments, raw, state, call.artefacts, extra))


_ANY_CALL = ToolCall("", "")


def _read_array(raw: Object, key: str) -> list[JSON]:
    """Return the list under `key`; an absent list and null are empty."""
    value = raw.get(key)
    if value is None:
        return []
    if type(value) is not list:
        raise type_error("an array", value, key)
    return value


def _find_usage(chunk: Object) -> JSON:
    """Return the usage of a chunk. Groq may send it in `x_groq` and Moonshot in the choice, not at the top level."""
    usage = chunk.get("usage")
    if usage is not None:
        return usage
    match chunk:
        case {"x_groq": {"usage": {**usage}}}:
            return usage
        case {"choices": [{"usage": {**usage}}]}:
            return usage
    return None
