"""Chat Completions streams, read.

The wire has no ends: a text ends when a call starts, a call when its choice finishes. A call whose arguments are already
whole when the next one starts ends right there, so that nobody waits for the finish.

Servers disagree about almost everything in a call delta. Here a delta belongs to the call with its `index`, without an
index to the call that was last; another id or another name is a new call, and so is the same name again when the
arguments before it are whole. Otherwise id and name count once, however often they are repeated.
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
)
from ...ir.fold import merge_extra
from ...ir.parts import Artefact, CallKind, Extra, Part, Refusal, ToolCall
from ...ir.pointer import JSON, Object
from ...ir.response import Stop
from ...ir.text import dumps, unescape
from ...stream.scanner import Scanner
from ...stream.strict import parse_arguments
from ..openai_fault import read_fault
from ..shape import integer, obj, optional_string, unknown, wrong
from ..sse_stream import STRING, SSEStreamDecoder, is_utf8
from .content import NAME
from .messages import REASONING_FIELDS, read_id, read_signature
from .response import fault_of, is_cut, read_usage, stop_of

__all__ = ["ChatStreamDecoder"]

_FORM = "openai_chat~"
_CHUNK = frozenset({"id", "object", "created", "model", "choices", "usage", "obfuscation"})
_CHOICE = frozenset({"index", "delta", "finish_reason"})
_WORDS = (*REASONING_FIELDS, "content", "refusal")
_DELTA = frozenset({"role", "tool_calls", "function_call", *_WORDS})

# The two deltas that make up almost all of a stream, whatever stands before "choices".
_FAST = re.compile(
    rb'"choices": ?\[\{"index": ?(\d{1,4}), ?"delta": ?\{(?:"content": ?'
    + STRING
    + rb'|"tool_calls": ?\[\{"index": ?(\d{1,6}), ?"function": ?\{"arguments": ?'
    + STRING
    + rb'\}\}\])\}(?:, ?"logprobs": ?null)?, ?"finish_reason": ?null(?:, ?"logprobs": ?null)?\}\]'
    rb'(?:, ?"usage": ?null)?(?:, ?"obfuscation": ?"[^"\\]*")?\}'
).fullmatch


class _Call:
    """A call that is still growing."""

    __slots__ = ("artefacts", "ended", "extra", "id", "key", "kind", "name", "pieces", "scanned", "scanner")

    def __init__(self, key: int, call_id: str, kind: CallKind, extra: Extra) -> None:
        self.key = key
        self.id = call_id
        self.kind: CallKind = kind
        self.name = ""  # not started while it has no name
        self.pieces: list[bytes] = []
        self.artefacts: tuple[Artefact, ...] = ()
        self.extra = extra
        self.ended = False
        self.scanner: Scanner | None = None  # for servers that do not say where a call ends
        self.scanned = 0  # how many pieces it has read

    def is_whole(self) -> bool:
        """Whether the arguments so far are a whole object. Each piece is looked at once, however often one asks."""
        if not self.pieces:
            return False
        if self.scanner is None:
            self.scanner = Scanner()
        news, self.scanned = self.pieces[self.scanned :], len(self.pieces)
        if news:
            self.scanner.feed(unescape(b"".join(news)))
        return self.scanner.complete


class _Choice:
    __slots__ = (
        "by_index",
        "calls",
        "extra",
        "grown",
        "index",
        "last",
        "logprobs",
        "message",
        "open",
        "refused",
        "stop",
    )

    def __init__(self, index: int) -> None:
        self.index = index
        self.open: tuple[str, int] | None = None  # (the field that is being spoken, the item's key)
        self.calls: list[_Call] = []
        self.by_index: dict[int, _Call] = {}
        self.last: _Call | None = None
        self.grown: list[_Call] = []  # calls that have changed since a call last began
        self.logprobs: dict[str, list[JSON]] = {}
        self.refused = False
        self.stop: Stop | None = None
        self.extra: Extra = {}
        self.message: Extra = {}


class ChatStreamDecoder(SSEStreamDecoder):
    """Feed it the bytes of a Chat Completions stream."""

    spoken = frozenset({*_WORDS, "arguments", "input"})

    def __init__(self) -> None:
        super().__init__()
        self._choices: dict[int, _Choice] = {}
        self._started = False
        self._envelope = b"\n"  # what stood before "choices" in the last chunk that was read in full
        self._extra: Extra = {}

    def _frame(self, name: bytes, payload: bytes, events: list[Event]) -> None:
        if payload.startswith(self._envelope) and not self._halves:
            fast = _FAST(payload, len(self._envelope))
            if fast is not None and self._fast_delta(fast, events):
                return
        if payload.strip() == b"[DONE]":
            if self._whole():
                self._finish(events)
                self._over = True
            return
        chunk = self._read(payload)
        self._envelope = payload[: max(payload.find(b'"choices"'), 0)] or b"\n"
        self._read_chunk(chunk, events)

    def _fast_delta(self, fast: re.Match[bytes], events: list[Event]) -> bool:
        choice = self._choices.get(int(fast[1]))
        if choice is None or choice.stop is not None:
            return False
        content = fast[2]
        if content is not None:
            if choice.open is None or choice.open[0] != "content" or not is_utf8(content):
                return False
            if content:
                events.append(TextDelta(choice.open[1], content))
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

    def _whole(self) -> bool:
        return bool(self._choices) and all(choice.stop is not None for choice in self._choices.values())

    def _finish(self, events: list[Event]) -> None:
        choices = [self._choices[index] for index in sorted(self._choices)]
        stops = tuple(choice.stop for choice in choices if choice.stop is not None)
        if (fault := fault_of(stops[0])) is not None:
            events.append(StreamFault(fault, stops[0]))
        else:
            events.append(ResponseEnd(stops, merge_extra(self._extra, choices[0].message)))

    def _read_chunk(self, chunk: Object, events: list[Event]) -> None:
        if chunk.get("error"):
            self._over = True
            events.append(StreamFault(read_fault(chunk["error"], NAME)))
            return
        if chunk.get("object") == "error":  # vLLM's own, without an envelope
            self._over = True
            events.append(StreamFault(read_fault({k: v for k, v in chunk.items() if k != "object"}, NAME)))
            return
        if not self._started and any(chunk.get(field) for field in ("id", "model", "choices", "usage")):
            self._started = True  # Azure begins with a chunk that has only the filter's results
            created = integer(chunk, "created")
            events.append(
                ResponseStart(optional_string(chunk, "id") or "", optional_string(chunk, "model") or "", created)
            )
        self._extra = merge_extra(self._extra, unknown(chunk, _CHUNK, NAME))
        for raw in _array(chunk, "choices"):
            self._read_choice(obj(raw, "choices"), events)
        usage = read_usage(chunk.get("usage"))
        if usage is not None:
            events.append(UsageUpdate(usage))

    def _read_choice(self, raw: Object, events: list[Event]) -> None:
        index = integer(raw, "index") or 0
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _Choice(index)
        delta = raw.get("delta")
        delta = {} if delta is None else obj(delta, "choices", index, "delta")
        if choice.stop is None:
            try:
                self._read_delta(choice, delta, events)
            except ProtocolError as error:
                raise error.within("choices", index, "delta") from None
        elif any(delta.get(field) for field in _DELTA if field != "role"):
            self.losses.add("/parts", "content after the end", "dropped", "it came after the finish reason")
        extra = unknown(raw, _CHOICE, f"{NAME}/choice")
        if extra:
            _take_logprobs(choice, extra[f"{NAME}/choice"])
            choice.extra = merge_extra(choice.extra, extra)
        word = "error" if raw.get("error") else raw.get("finish_reason")
        if word is not None and choice.stop is None:
            self._end_choice(choice, str(word), events)

    def _end_choice(self, choice: _Choice, word: str, events: list[Event]) -> None:
        self._hush(choice, events)
        for call in choice.calls:
            self._end_call(call, events, is_cut=is_cut(word) and call is choice.calls[-1])
        parts: list[Part] = [Refusal("")] if choice.refused else []
        if choice.calls:
            parts.append(_ANY_CALL)
        choice.stop = stop_of(word, tuple(parts), choice.extra)

    def _read_delta(self, choice: _Choice, delta: Object, events: list[Event]) -> None:
        thoughts = next((field for field in REASONING_FIELDS if delta.get(field)), None)
        for field in _WORDS:
            if words := optional_string(delta, field):
                if field == thoughts or field not in REASONING_FIELDS:  # some servers say the same thing in both
                    self._say(choice, field, words, events)
        for number, raw in enumerate(_array(delta, "tool_calls")):
            try:
                self._read_call(choice, obj(raw), events)
            except ProtocolError as error:
                raise error.within("tool_calls", number) from None
        if delta.get("function_call"):
            function = obj(delta["function_call"], "function_call")
            self._read_call(choice, {"index": 0, "function": function, ":call": "function_call"}, events)
        if not _DELTA.issuperset(delta):
            choice.message = merge_extra(choice.message, unknown(delta, _DELTA, f"{NAME}/message"))

    def _say(self, choice: _Choice, field: str, words: str, events: list[Event]) -> None:
        if choice.open is None or choice.open[0] != field:
            self._hush(choice, events)
            choice.open = (field, self._new_key())
            if field in REASONING_FIELDS:
                events.append(ReasoningStart(choice.open[1], choice.index, {_FORM: {":field": field}}))
            else:
                choice.refused = choice.refused or field == "refusal"
                events.append(TextStart(choice.open[1], choice.index, field == "refusal"))
        key = choice.open[1]
        escaped = self._escape(key, words)
        if escaped:
            events.append(ReasoningDelta(key, escaped) if field in REASONING_FIELDS else TextDelta(key, escaped))

    def _hush(self, choice: _Choice, events: list[Event]) -> None:
        if choice.open is not None:
            field, key = choice.open
            if rest := self._rest(key):
                events.append(ReasoningDelta(key, rest) if field in REASONING_FIELDS else TextDelta(key, rest))
            events.append(ReasoningEnd(key) if field in REASONING_FIELDS else TextEnd(key))
            choice.open = None

    def _read_call(self, choice: _Choice, raw: Object, events: list[Event]) -> None:
        kind: CallKind = "freeform" if "custom" in raw else "function"
        inner = raw.get("custom" if kind == "freeform" else "function")
        inner = {} if inner is None else obj(inner, "function")
        call_id, name = read_id(raw), optional_string(inner, "name") or ""
        fragment = inner.get("input" if kind == "freeform" else "arguments")
        call = self._call_of(choice, integer(raw, "index"), call_id, name, kind, bool(fragment), raw)
        if choice.last is not call:
            choice.last = call
            choice.grown.append(call)
        call.id = call.id or call_id
        call.artefacts = call.artefacts or read_signature(raw)
        if name and not call.name:
            call.name = name
            self._hush(choice, events)
            self._end_whole_calls(choice, call, events)
            events.append(CallStart(call.key, call.id, name, kind, None, choice.index, call.extra))
            events.extend(CallDelta(call.key, piece) for piece in call.pieces)
        if type(fragment) is dict:  # the whole object at once
            fragment = dumps(fragment)
        if fragment:
            if type(fragment) is not str:
                raise wrong("a string", fragment, "function", "arguments")
            self._grow(call, fragment, events)

    def _grow(self, call: _Call, fragment: str, events: list[Event]) -> None:
        if call.ended:
            if fragment.strip():
                raise ProtocolError("more arguments for a call that was already whole", status=502)
            return
        escaped = self._escape(call.key, fragment)
        call.pieces.append(escaped)
        if call.name and escaped:
            events.append(CallDelta(call.key, escaped))

    def _call_of(
        self,
        choice: _Choice,
        index: int | None,
        call_id: str,
        name: str,
        kind: CallKind,
        grows: bool,
        raw: Object,
    ) -> _Call:
        call = choice.last if index is None else choice.by_index.get(index)
        if call is not None and not _is_another(call, call_id, name, grows):
            return call
        extra: Extra = {_FORM: {":call": raw[":call"]}} if ":call" in raw else {}
        call = _Call(self._new_key(), call_id, kind, extra)
        choice.calls.append(call)
        choice.by_index[len(choice.by_index) if index is None else index] = call
        return call

    def _end_whole_calls(self, choice: _Choice, new: _Call, events: list[Event]) -> None:
        """A call whose arguments are whole when another one starts is over."""
        for call in choice.grown:
            if call is not new and not call.ended and call.kind == "function" and call.is_whole():
                self._end_call(call, events)
        choice.grown = [new]

    def _end_call(self, call: _Call, events: list[Event], *, is_cut: bool = False) -> None:
        if call.ended:
            return
        if not call.name:
            raise ProtocolError("a call without a name", status=502)
        call.ended = True
        if rest := self._rest(call.key):
            call.pieces.append(rest)
            events.append(CallDelta(call.key, rest))
        raw = unescape(b"".join(call.pieces))
        if call.kind == "freeform":
            events.append(CallEnd(call.key, None, raw, "complete", call.artefacts))
        else:
            arguments, state = (None, "truncated") if is_cut and not raw else parse_arguments(raw)
            events.append(CallEnd(call.key, arguments, raw, state, call.artefacts))


_ANY_CALL = ToolCall("", "")


def _is_another(call: _Call, call_id: str, name: str, grows: bool) -> bool:
    """Whether a delta with this id and name is the start of another call. `grows`: it brings arguments."""
    if call_id and call.id:
        return call_id != call.id
    if name and call.name:
        return name != call.name or (grows and (call.ended or call.is_whole()))
    return False


def _array(raw: Object, key: str) -> list[JSON]:
    value = raw.get(key)
    if value is None:
        return []
    if type(value) is not list:
        raise wrong("an array", value, key)
    return value


def _take_logprobs(choice: _Choice, fields: Object) -> None:
    """Log probabilities come token by token; everything else about a choice is said once."""
    new = fields.get("logprobs")
    if type(new) is not dict:
        return
    for key, value in new.items():
        if type(value) is list:
            choice.logprobs.setdefault(key, []).extend(value)
    fields["logprobs"] = {**new, **choice.logprobs}
