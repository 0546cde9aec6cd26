"""Decode Chat Completions streams.

The wire does not mark the end of an item: a text ends when a call starts, a call when the stream ends. A call whose
arguments are already complete when the next one starts ends at once.

A finish reason does not end the answer. Servers send an empty one with every chunk (sgl-project/sglang#3912,
ollama/ollama#4357), or a real one before the last text or call (songquanpeng/one-api#1408, BerriAI/litellm#2195). So all
chunks are read until `[DONE]` or the end of the stream, and the last reason that is not empty counts. A stream without
`[DONE]` is complete if every choice has a reason.

Servers disagree about almost everything in a call delta. Here a delta belongs to the call with its `index`, without an
index to the call with its id, without both to the last call. `is_new_call` decides by id, name and arguments whether the
delta starts another call. Otherwise an id counts once, however often it is repeated, and a name may come in pieces, as
OpenAI's SDK concatenates them; a name that is repeated in full counts once. So a call is announced with its first
arguments, when its name is complete.

A choice may have a `message` in place of the delta, which holds the answer so far: MiniMax ends its streams with one, and
servers that cannot stream send only one. Text and arguments that earlier chunks contained are not repeated; arguments and
calls that they lack are added.
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
from ...ir.text import unescape
from ...stream.strict import parse_arguments
from ..fields import (
    odd_values,
    read_index,
    read_label,
    read_optional_string,
    read_stop_reason,
    read_timestamp,
    read_unknown,
    require_object,
)
from ..openai_fault import find_error, read_error_text, read_fault
from ..streaming.copies import Copy, match_copies
from ..streaming.decoder import FAST_STRING, BaseStreamDecoder, Fragments, is_utf8
from .content import NAME, read_number_as_text, read_parts
from .messages import (
    DETAILS,
    REASONING_FIELDS,
    find_reasoning,
    read_array,
    read_call_id,
    read_function,
    report_other_reasoning,
)
from .response import (
    ENVELOPE_TYPES,
    STOP_REASONS,
    find_usage,
    is_truncated,
    keep_chunk_fields,
    make_stop,
    read_reason,
    read_usage,
    stop_fault,
)
from .stream_state import (
    FORM,
    PART_FIELDS,
    REASONING,
    THOUGHTS,
    GrowingCall,
    GrowingChoice,
    OpenText,
    as_copy,
    call_form,
    collect_logprobs,
    is_new_call,
)

_CHUNK = frozenset({"id", "object", "created", "model", "choices", "usage", "obfuscation"})
_CHOICE = frozenset({"index", "delta", "message", "text", "finish_reason"})
_TEXT_FIELDS = (*REASONING_FIELDS, "content", "refusal")
_DELTA = frozenset({"role", "tool_calls", "function_call", *_TEXT_FIELDS})
_ANSWER = ("tool_calls", "function_call", DETAILS, *_TEXT_FIELDS)
_WRITTEN_FIELDS = {DETAILS: "reasoning"}  # its text is in this field on OpenRouter

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
        self._has_usage = False
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
        if name == b"error":
            self._fail(read_error_text(payload), events)
            return
        chunk = self._read_object(payload)
        self._envelope = payload[: max(payload.find(b'"choices"'), 0)] or b"\n"
        self._event_start = b"data: " + (self._envelope if b"\n" not in self._envelope else b"\n")
        self._read_chunk(chunk, events)

    def _fast_delta(self, fast: re.Match[bytes], events: list[Event]) -> bool:
        """Emit a delta that `_FAST` matched; return False if the full parser has to read the chunk."""
        choice = self._choices.get(int(fast[1]))
        if choice is None:
            return False
        content = fast[2]
        if content is not None:
            opened = choice.open
            if opened is None or opened.field != "content" or not is_utf8(content):
                return False
            if content:
                opened.remember(content)
                events.append(TextDelta(opened.key, content))
            return True
        call, fragment = choice.by_index.get(int(fast[3])), fast[4]
        if call is None or call.ended or not is_utf8(fragment):
            return False
        return not fragment or self._fast_arguments(choice, call, fragment, events)

    def _fast_arguments(self, choice: GrowingChoice, call: GrowingCall, fragment: bytes, events: list[Event]) -> bool:
        """Append arguments; return False for an object after others, and for a first `{}`, which may be no arguments."""
        if fragment[:1] == b"{" and (call.pieces or fragment == b"{}"):
            return False
        if not call.has_started and (call.pieces or not call.name):
            return False
        call.pieces.append(fragment)
        choice.continue_call(call)
        if call.has_started:
            events.append(CallDelta(call.key, fragment))
        else:
            self._start_calls(choice, call, events)
        return True

    def _read_end_marker(self, events: list[Event]) -> None:
        if self._choices:
            self._has_end_marker = True
            self._finish(events)
            self._over = True

    def _read_document(self, document: Object, events: list[Event]) -> None:
        """Read a whole answer, whose choices have messages."""
        self._read_chunk(document, events)
        if not self._over:
            self._read_end_marker(events)

    def _is_complete(self) -> bool:
        return bool(self._choices) and all(choice.reason for choice in self._choices.values())

    def _finish(self, events: list[Event]) -> None:
        """Emit the end of the answer, or a fault if the first choice ended with an error."""
        choices = [self._choices[index] for index in sorted(self._choices)]
        ends = [self._end_choice(choice, events) for choice in choices]
        stops: tuple[Stop | None, ...] = ()
        if any(ends):  # [DONE] also ends the stream of a server without finish reasons
            stops = tuple(end or Stop("unknown") for end in ends)
        extra: Extra = {NAME: self._fields} if self._fields else {}
        if choices and (fields := choices[0].message.join()):
            extra[f"{NAME}/message"] = fields
        end = ResponseEnd(stops, extra)
        fault = stop_fault(stops[0]) if stops else None
        events.append(end if fault is None else StreamFault(fault, end))

    def _read_chunk(self, chunk: Object, events: list[Event]) -> None:
        """Emit the events of a chunk that was parsed in full: a fault, the start, the choices, the usage."""
        error = find_error(chunk)
        if error is not None:
            self._fail(error, events)
            return
        if not self._started and any(chunk.get(field) for field in ("id", "model", "choices", "usage")):
            self._started = True  # Azure begins with a chunk that has only the results of its filter
            extra = odd_values(chunk, ENVELOPE_TYPES, NAME)
            created = read_timestamp(chunk, "created")
            events.append(ResponseStart(read_label(chunk, "id"), read_label(chunk, "model"), created, extra))
        if not _CHUNK.issuperset(chunk):
            keep_chunk_fields(self._fields, read_unknown(chunk, _CHUNK, NAME).get(NAME, {}))
        for number, raw in enumerate(read_array(chunk, "choices")):
            self._read_choice(number, require_object(raw, "choices"), events)
        usage = read_usage(find_usage(chunk))
        if usage is not None and (usage.input or usage.output or not self._has_usage):
            self._has_usage = bool(usage.input or usage.output)  # a later 0 and 0 does not replace real counts
            events.append(UsageUpdate(usage))

    def _fail(self, error: JSON, events: list[Event]) -> None:
        self._over = True
        events.append(StreamFault(read_fault(error, NAME)))

    def _read_choice(self, number: int, raw: Object, events: list[Event]) -> None:
        """Emit the delta of a choice, and note its finish reason and fields; without an index it has its position."""
        index = read_index(raw, "index")
        if index is None:
            index = number
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = GrowingChoice(index)
        reason = read_reason("error" if raw.get("error") else raw.get("finish_reason"))
        try:
            self._read_content_of(choice, raw, events)
        except ProtocolError as error:
            raise error.within("choices", number) from None
        extra = read_unknown(raw, _CHOICE, f"{NAME}/choice")
        if extra:
            collect_logprobs(choice, extra[f"{NAME}/choice"])
            choice.extra = merge_extra(choice.extra, extra)
        if not reason and not choice.reason:
            choice.begins_open = True
            return
        delta = raw.get("delta") or {}
        has_call = bool(delta.get("tool_calls") or delta.get("function_call"))
        if reason or has_call:
            is_early = bool(choice.reason) or read_stop_reason(reason, STOP_REASONS) != "tool_calls"
            choice.reason = reason or choice.reason
            choice.ends_with_call = has_call
            choice.has_early_reason = has_call and is_early

    def _read_content_of(self, choice: GrowingChoice, raw: Object, events: list[Event]) -> None:
        """Read the delta of a choice, the `text` of a completion chunk, or the `message` of a whole answer."""
        delta, message = raw.get("delta"), raw.get("message")
        if delta:
            try:
                fields = require_object(delta)
                self._read_delta(choice, fields, events)
                choice.has_deltas = choice.has_deltas or any(map(fields.get, _ANSWER))
            except ProtocolError as error:
                raise error.within("delta") from None
        elif type(raw.get("text")) is str:
            self.is_unreadable = True
            self._read_delta(choice, {"content": raw["text"]}, events)
        if message:
            try:
                self._read_message(choice, require_object(message), events)
            except ProtocolError as error:
                raise error.within("message") from None

    def _end_choice(self, choice: GrowingChoice, events: list[Event]) -> Stop | None:
        """End the items of a choice. Return its stop, which depends on whether it has a refusal and calls."""
        self._close_text(choice, events)
        last = choice.calls[-1] if choice.calls else None
        # A stream without [DONE] may be cut after an early reason, before the arguments of the call beside or after it;
        # a server that sends a reason with every chunk began with one (BerriAI/litellm#2195).
        is_cut = (
            choice.ends_with_call and not self._has_end_marker and (choice.has_early_reason or not choice.begins_open)
        )
        is_cut = is_cut or is_truncated(choice.reason)
        if last is not None and choice.has_early_reason and not self._has_end_marker and last.has_placeholder(0):
            last.restart()
        if last is not None:
            self._start_calls(choice, last, events, is_end=True)
        for call in choice.calls:
            self._end_call(call, events, is_cut=is_cut and call is last)
        if not choice.reason:
            return None
        parts: list[Part] = [Refusal("")] if choice.refused else []
        if choice.calls:
            parts.append(_ANY_CALL)
        return make_stop(choice.reason, tuple(parts), choice.extra)

    def _read_delta(
        self, choice: GrowingChoice, delta: Object, events: list[Event], parts: list[Part] | None = None
    ) -> None:
        """Emit the text, the reasoning and the calls of a delta; unknown fields are collected as fragments."""
        if type(delta.get(DETAILS)) is list:
            choice.details.add({DETAILS: delta[DETAILS]})
        thoughts = find_reasoning(delta)
        if thoughts is not None and (thoughts[0] != DETAILS or choice.texts.keys().isdisjoint(REASONING_FIELDS)):
            self._emit_text(choice, *thoughts, events)
            report_other_reasoning(delta, *thoughts, self.losses)
        content = delta.get("content")
        if type(content) is list or type(content) is dict:
            self._emit_parts(choice, read_parts(content) if parts is None else parts, events)
        elif content or content == 0:
            whole = content if type(content) is str else read_number_as_text(content, self.losses)
            self._emit_text(choice, "content", whole, events)
        if text := read_optional_string(delta, "refusal"):
            self._emit_text(choice, "refusal", text, events)
        if calls := read_array(delta, "tool_calls"):
            self._read_calls(choice, calls, events)
        if delta.get("function_call"):
            function = require_object(delta["function_call"], "function_call")
            self._read_call(choice, {"index": 0, "function": function, ":call": "function_call"}, events)
        if not _DELTA.issuperset(delta):
            choice.message.add(read_unknown(delta, _DELTA, NAME).get(NAME, {}))

    def _read_calls(self, choice: GrowingChoice, calls: list[JSON], events: list[Event]) -> None:
        """Read an array of call deltas; in an array of several, the position replaces a missing index and id."""
        row: list[GrowingCall] = []
        calls = [raw for raw in calls if raw is not None]
        for number, raw in enumerate(calls):
            try:
                entry = require_object(raw)
                if len(calls) > 1 and not read_call_id(entry):
                    choice.continue_row(number, entry, row)
                self._read_call(choice, entry, events)
            except ProtocolError as error:
                raise error.within("tool_calls", number) from None
            if choice.last is not None:
                row.append(choice.last)
        if len(calls) > 1:
            choice.row = row

    def _read_message(self, choice: GrowingChoice, message: Object, events: list[Event]) -> None:
        """Read a message as the delta between it and the chunks before it; add calls that they lack."""
        self.is_unreadable = self.is_unreadable or not choice.has_deltas
        delta, parts = choice.unseen_content(message, self.losses)
        calls = [require_object(raw, "tool_calls") for raw in read_array(message, "tool_calls") if raw is not None]
        if message.get("function_call"):
            function = require_object(message["function_call"], "function_call")
            calls.append({"function": function, ":call": "function_call"})
        is_repetition = bool(choice.calls)
        if is_repetition:
            delta = {key: value for key, value in delta.items() if key not in ("tool_calls", "function_call")}
        self._read_delta(choice, delta, events, parts)
        if is_repetition and calls:
            self._complete_calls(choice, calls, events)
        elif calls:
            choice.shown = choice.calls.copy()

    def _complete_calls(self, choice: GrowingChoice, calls: list[Object], events: list[Event]) -> None:
        """Add the arguments and the calls of a message that the chunks before it lack.

        Without deltas, a call that no earlier message has may be a fragment of a call.
        """
        copies = [as_copy(raw) for raw in calls]
        known, items = choice.recent_calls(copies)
        numbers = match_copies(items, copies, by_position=choice.has_deltas)
        is_cumulative = choice.has_deltas or any(number is not None for number in numbers)
        shown: list[GrowingCall] = []
        for raw, copy, number in zip(calls, copies, numbers, strict=True):
            call = choice.by_id.get(copy.ids[0]) if number is None else known[number]
            if call is None and not is_cumulative:
                self._read_call(choice, raw, events)
                call = choice.last
            else:
                call = self._complete_call(choice, call, copy, raw, events)
            if call is not None:
                shown.append(call)
        choice.shown = shown

    def _complete_call(
        self, choice: GrowingChoice, call: GrowingCall | None, copy: Copy, raw: Object, events: list[Event]
    ) -> GrowingCall:
        """Add the arguments of a message's call that `call` lacks, or report other ones; None starts a new call."""
        kind, inner, _ = read_function(raw)
        is_known = call is not None
        if call is None:
            call = self._add_call(choice, -1 - len(choice.calls), copy.ids[0], kind, call_form(raw))
            choice.continue_call(call)
            call.keep_fields(raw, inner)
        missing = call.missing_arguments(copy)
        if missing is None and not choice.has_deltas and not call.ended and not call.is_complete():
            missing = copy.text  # a fragment
        if missing is None:
            detail = "a message has other arguments than the chunks before it, which have been sent"
            self.losses.add("/parts", "calls", "dropped", detail)
            return call
        if is_known and call.id and copy.ids[0] not in ("", call.id):
            detail = "a message repeats a call under another id, which counts once"
            self.losses.add("/parts", "calls", "dropped", detail)
        elif is_known:
            self.losses.add("/parts", "calls", "rewritten", "a message repeats the calls of earlier chunks", "info")
            choice.set_id(call, copy.ids[0])
        call.add_name(copy.name)
        if missing:
            self._append_arguments(choice, call, missing, events)
        return call

    def _emit_parts(self, choice: GrowingChoice, parts: list[Part], events: list[Event]) -> None:
        """Emit the parts of an array of content, as Mistral sends it."""
        for part in parts:
            if isinstance(part, (Text, Reasoning, Refusal)):
                opened = self._emit_text(choice, PART_FIELDS[type(part)], part.text, events)
                opened.extra.add(part.extra.get(NAME, {}))
            else:
                self._close_text(choice, events)
                events.append(WholePart(self._new_key(), part, choice.index))

    def _emit_text(self, choice: GrowingChoice, field: str, text: str, events: list[Event]) -> OpenText:
        """Emit text of `field`; it continues the open item of the same field, else it opens another."""
        opened = choice.open
        if opened is None or opened.field != field:
            self._close_text(choice, events)
            opened = choice.open = OpenText(field, self._new_key(), choice.text_of(field))
            if field in REASONING:
                form = {":place": "content"} if field == THOUGHTS else {":field": _WRITTEN_FIELDS.get(field, field)}
                events.append(ReasoningStart(opened.key, choice.index, {FORM: form}))
            else:
                choice.refused = choice.refused or field == "refusal"
                events.append(TextStart(opened.key, choice.index, refusal=field == "refusal"))
        escaped = self._escape(opened.key, text)
        if escaped:
            opened.remember(escaped)
            kind = ReasoningDelta if field in REASONING else TextDelta
            events.append(kind(opened.key, escaped))
        return opened

    def _close_text(self, choice: GrowingChoice, events: list[Event]) -> None:
        """End the open text or reasoning, if there is one."""
        opened = choice.open
        if opened is None:
            return
        choice.open = None
        is_reasoning = opened.field in REASONING
        if half := self._flush_surrogate(opened.key):
            events.append(ReasoningDelta(opened.key, half) if is_reasoning else TextDelta(opened.key, half))
        extra: Extra = {NAME: opened.extra.join()} if opened.extra else {}
        if opened.field in REASONING_FIELDS and choice.details:
            extra[FORM] = {":details": choice.details.join()[DETAILS]}
            choice.details = Fragments()
        events.append(ReasoningEnd(opened.key, (), extra) if is_reasoning else TextEnd(opened.key, (), extra))

    def _read_call(self, choice: GrowingChoice, raw: Object, events: list[Event]) -> None:
        """Apply a call delta; the call starts with its first arguments, when its name is complete."""
        kind, inner, fragment = read_function(raw)
        call_id, name = read_call_id(raw), read_optional_string(inner, "name") or ""
        call = self._find_call(choice, call_id, name, kind, fragment, raw)
        choice.continue_call(call)
        choice.set_id(call, call_id)
        call.keep_fields(raw, inner)
        if call.may_be_other(name):
            detail = f"{name!r} is read as the rest of {call.name!r}, but may be another call"
            self.losses.add("/parts", "call", "rewritten", detail)
        call.add_name(name)
        if fragment:
            self._append_arguments(choice, call, fragment, events)

    def _start_calls(
        self, choice: GrowingChoice, last: GrowingCall, events: list[Event], *, is_end: bool = False
    ) -> None:
        """Start the calls up to `last`, in their order.

        A call without a name so far holds up the calls after it. So does a part of a repetition, unless the choice ends.
        """
        choice.ready = max(choice.ready, last.position + 1)
        while choice.starting < choice.ready and (call := choice.calls[choice.starting]).may_start(is_end=is_end):
            self._start_call(choice, call, events)
            choice.starting += 1

    def _start_call(self, choice: GrowingChoice, call: GrowingCall, events: list[Event]) -> None:
        """Emit the start and the arguments so far of a call, unless it repeats another call, which is reported."""
        if call.original is not None and call.original.name == call.name:
            call.ended = call.original.has_arguments(call.read_arguments())
            detail = "later chunks repeat a call" if call.ended else "two objects of arguments are two calls"
            self.losses.add("/parts", "call", "rewritten", detail, "info")
            if call.ended:
                return
        call.has_started = True
        self._close_text(choice, events)
        self._end_complete_calls(choice, call, events)
        events.append(CallStart(call.key, call.id, call.name, call.kind, None, choice.index, call.extra))
        events.extend(CallDelta(call.key, piece) for piece in call.pieces if piece)

    def _append_arguments(self, choice: GrowingChoice, call: GrowingCall, fragment: str, events: list[Event]) -> None:
        """Append arguments. Events carry the fragment JSON-escaped.

        A call without a name is not announced yet, so its fragments only wait. So does a first `{}`, and a call that may
        repeat another one. ProtocolError for arguments after the complete ones.
        """
        if fragment[:1] == "{" and call.is_complete():
            other = self._read_second_object(choice, call, fragment)
            if other is None:
                return
            call = other
        if call.ended:
            if fragment.strip():
                raise ProtocolError("received more arguments for a call that was already complete", status=502)
            return
        escaped = self._escape(call.key, fragment)
        is_placeholder = escaped == b"{}" and not call.pieces
        call.pieces.append(escaped)
        if call.has_started:
            if escaped:
                events.append(CallDelta(call.key, escaped))
        elif call.name and not is_placeholder and (call.original is None or call.is_complete()):
            self._start_calls(choice, call, events)

    def _read_second_object(self, choice: GrowingChoice, call: GrowingCall, fragment: str) -> GrowingCall | None:
        """Return the call of an object after complete arguments; None if the object repeats them.

        Some servers send all arguments again at the end of a call (mudler/cogito#66), `{}` before the arguments
        (ogx-ai/ogx#5462), or the arguments of several calls of a tool as one (open-webui/open-webui#22235).
        """
        if call.has_placeholder(0) and fragment == "{}":
            detail = "two empty objects of arguments are read as one call, but may be two"
            self.losses.add("/parts", "arguments", "rewritten", detail)
            return None
        if call.has_arguments(fragment):
            self.losses.add("/parts", "arguments", "rewritten", "a later chunk repeats all arguments", "info")
            return None
        if call.has_placeholder(0):
            self.losses.add("/parts", "arguments", "rewritten", "the arguments follow an empty object", "info")
            call.restart()
            return call
        following = self._add_call(choice, call.index, "", call.kind, call.extra)
        following.name, following.original = call.name, call
        choice.continue_call(following)
        return following

    def _find_call(
        self, choice: GrowingChoice, call_id: str, name: str, kind: CallKind, fragment: str, raw: Object
    ) -> GrowingCall:
        """Return the call of a delta, or a new one, by the rules in the module docstring."""
        index = read_index(raw, "index")
        call = choice.by_id.get(call_id) or choice.last if index is None else choice.by_index.get(index)
        if call is not None and not is_new_call(call, index, call_id, name, fragment):
            return call
        new_index = len(choice.by_index) if index is None else index
        earlier = choice.by_id.get(call_id or call.id) if call is not None else None
        new = self._add_call(choice, new_index, call_id, kind, call_form(raw))
        if earlier is not None and earlier.name.startswith(name):
            new.original = earlier
        return new

    def _add_call(self, choice: GrowingChoice, index: int, call_id: str, kind: CallKind, extra: Extra) -> GrowingCall:
        if call_id in choice.by_id:
            self.losses.add("/parts", "call", "rewritten", "several calls have the same id", "info")
        return choice.add_call(GrowingCall(self._new_key(), len(choice.calls), index, call_id, kind, extra))

    def _end_complete_calls(self, choice: GrowingChoice, new: GrowingCall, events: list[Event]) -> None:
        """End the calls whose arguments are complete when another one starts."""
        for call in choice.grown:
            if call is not new and call.has_started and not call.ended and call.is_complete():
                self._end_call(call, events)
        choice.grown = [new]

    def _end_call(self, call: GrowingCall, events: list[Event], *, is_cut: bool = False) -> None:
        """End a call; if `is_cut`, a freeform or empty one is truncated. ProtocolError for a call without a name."""
        if call.ended:
            return
        if not call.name:
            raise ProtocolError("a call has no name", status=502)
        call.ended = True
        if half := self._flush_surrogate(call.key):
            call.pieces.append(half)
            events.append(CallDelta(call.key, half))
        raw = unescape(b"".join(call.pieces))
        extra: Extra = {NAME: call.outer.join()} if call.outer else {}
        if call.inner:
            extra[f"{NAME}/function"] = call.inner.join()
        if call.kind == "freeform":
            events.append(CallEnd(call.key, None, raw, "truncated" if is_cut else "complete", call.artefacts, extra))
        else:
            arguments, state = (None, "truncated") if is_cut and not raw else parse_arguments(raw)
            events.append(CallEnd(call.key, arguments, raw, state, call.artefacts, extra))


_ANY_CALL = ToolCall("", "")
