"""Decode generateContent streams: server-sent events or one long JSON array, with arguments as JSONPath assignments.

Arguments that arrive as JSONPath assignments (Vertex, `streamFunctionCallArguments`).

    {"jsonPath": "$.trip.stops[1].city", "stringValue": "Par", "willContinue": true}

A string continues while `willContinue` is true; numbers, booleans and nulls are complete. Containers are created as
needed.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, NamedTuple

from ...ir.errors import ProtocolError, TruncatedStream
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
from ...ir.parts import Artefact, Extra, Part, Reasoning, Text, ToolCall
from ...ir.pointer import JSON, Object
from ...ir.response import Stop
from ...ir.text import dumps, escape
from ...stream.framing import ArrayDecoder
from ..fields import (
    odd_values,
    read_boolean,
    read_index,
    read_label,
    read_optional_string,
    read_string,
    read_unknown,
    require_object,
    type_error,
)
from ..streaming.decoder import BaseStreamDecoder
from .fault import read_fault
from .field_names import NAME, to_camel_case
from .parts import read_part, read_signature
from .response import CANDIDATE, ENVELOPE_TYPES, NO_REASONS, blocked_stop, read_stop, read_usage, stop_fault

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d{1,6})\]|\['((?:[^'\\]|\\.)*)'\]|\[\"((?:[^\"\\]|\\.)*)\"\]")


class PartialArguments:
    """Accumulator for the `partialArgs` of one call; `value` is the object so far."""

    def __init__(self) -> None:
        self._root: Object = {}
        self._texts: dict[tuple[int, str | int], _StringBuffer] = {}  # by id of the holder, and step

    @property
    def value(self) -> Object:
        """The arguments so far, with all string fragments joined."""
        for text in self._texts.values():
            _set(text.holder, text.step, "".join(text.pieces))
        return self._root

    def feed(self, raw: JSON) -> None:
        """Apply one assignment: create the containers on its path, then set the value or append to the string there.

        Raise ProtocolError if the path or the value is invalid.
        """
        fields = to_camel_case(require_object(raw))
        steps = _parse_path(read_string(fields, "jsonPath"))
        holder: Any = self._root
        for step, next_step in pairwise(steps):
            holder = _enter(holder, step, [] if isinstance(next_step, int) else {})
        last = steps[-1]
        if "stringValue" in fields:
            self._append_text(holder, last, read_string(fields, "stringValue"))
            return
        self._texts.pop((id(holder), last), None)
        if "numberValue" in fields:
            number = fields["numberValue"]
            if type(number) not in (int, float):
                raise type_error("a number", number, "numberValue")
            _set(holder, last, int(number) if isinstance(number, float) and number.is_integer() else number)
        elif "boolValue" in fields:
            _set(holder, last, read_boolean(fields, "boolValue"))
        elif "nullValue" in fields:
            _set(holder, last, None)

    def _append_text(self, holder: Any, step: str | int, fragment: str) -> None:
        """Append a fragment of a string. The fragments are joined only when `value` is read."""
        text = self._texts.get((id(holder), step))
        if text is None:
            _set(holder, step, "")
            text = self._texts[id(holder), step] = _StringBuffer(holder, step, [])
        text.pieces.append(fragment)


class _StringBuffer(NamedTuple):
    """A string that arrives in pieces: `holder[step]` is where it belongs."""

    holder: Any
    step: str | int
    pieces: list[str]


def _parse_path(path: str) -> list[str | int]:
    """Split a JSONPath such as `$.trip.stops[1]` into keys and indexes; raise for any other syntax."""
    steps: list[str | int] = []
    position = 1
    while path[:1] == "$" and position < len(path):
        found = _STEP.match(path, position)
        if found is None:
            break
        name, index, single, double = found.groups()
        steps.append(int(index) if index is not None else name or single or double or "")
        position = found.end()
    if not steps or position < len(path):
        raise ProtocolError(f"unsupported JSONPath for arguments: {path!r}", pointer="/jsonPath", status=502)
    return steps


def _get(holder: Any, step: str | int) -> Any:
    if isinstance(step, int):
        return holder[step] if isinstance(holder, list) and step < len(holder) else None
    return holder.get(step) if isinstance(holder, dict) else None


def _set(holder: Any, step: str | int, value: Any) -> None:
    """Set a value; a list grows as needed. Raise ProtocolError if an index is over 1000 beyond its end, or no index."""
    if isinstance(step, int) and isinstance(holder, list):
        if step > len(holder) + 1000:
            raise ProtocolError(
                f"array index {step} is too far beyond the end of the array", pointer="/jsonPath", status=502
            )
        holder.extend([None] * (step + 1 - len(holder)))
        holder[step] = value
    elif isinstance(step, str) and isinstance(holder, dict):
        holder[step] = value
    else:
        raise ProtocolError("the JSONPath contradicts an earlier one", pointer="/jsonPath", status=502)


def _enter(holder: Any, step: str | int, empty: Any) -> Any:
    inner = _get(holder, step)
    if not isinstance(inner, (dict, list)):
        _set(holder, step, empty)
        inner = empty
    return inner


# Each chunk is a whole response that contains the next parts. A text part continues the previous item if that is of
# the same kind. A function call is complete, or (on Vertex) a series of assignments that are combined first. A
# signature closes the text before it, even if the signature is in an empty part of its own.


_CHUNK = frozenset({"candidates", "usageMetadata", "modelVersion", "responseId", "promptFeedback", "error"})


class _PartialCall:
    """A call that arrives as assignments. Any of them may carry its signature."""

    __slots__ = ("arguments", "artefacts", "key")

    def __init__(self, key: int) -> None:
        self.key = key
        self.arguments = PartialArguments()
        self.artefacts: tuple[Artefact, ...] = ()


class _Candidate:
    """The state of one candidate of the answer."""

    __slots__ = ("end", "extra", "fields", "has_calls", "index", "last", "open", "partial", "stop")

    def __init__(self, index: int) -> None:
        self.index = index
        self.open: tuple[str, int] | None = None  # ("text" | "thought", key)
        self.fields: Object = {}  # unknown fields of the open item
        self.partial: dict[str, _PartialCall] = {}  # incomplete calls, by id
        self.last = ""  # the id of the latest incomplete call
        self.has_calls = False
        self.end: Object = {}  # the last finish reason, and its message
        self.stop: Stop | None = None
        self.extra: Extra = {}


class GeminiStreamDecoder(BaseStreamDecoder):
    """Decoder of streamGenerateContent answers: feed it bytes, get events."""

    text_fields = frozenset({"text"})

    def __init__(self) -> None:
        super().__init__()
        self._array: ArrayDecoder | None = None
        self._started = False
        self._candidates: dict[int, _Candidate] = {}
        self._extra: Extra = {}

    def _feed(self, data: bytes, events: list[Event]) -> None:
        if self._array is None:
            super()._feed(data, events)
            return
        for element in self._array.feed(data):
            self._read_frame(b"", element, events)

    def _detect_framing(self, head: bytes) -> None:
        if head[:1] == b"[":
            self._array = ArrayDecoder()
        super()._detect_framing(head)

    def _read_document(self, document: Object, events: list[Event]) -> None:
        self._read_chunk(document, events)

    def close(self) -> list[Event]:
        """End the stream. Raise TruncatedStream if it stopped in the middle of an element."""
        if self._array is not None and self._array.close() and not self._is_complete():
            raise TruncatedStream("the stream stopped in the middle of an element", hint="retry the request")
        return super().close()

    def _is_complete(self) -> bool:
        return bool(self._candidates) and all(c.end or c.stop is not None for c in self._candidates.values())

    def _finish(self, events: list[Event]) -> None:
        """Close all items and emit the end of the answer, or a fault if the first candidate stopped with an error."""
        candidates = [self._candidates[index] for index in sorted(self._candidates)]
        for candidate in candidates:
            self._close_text(candidate, events)
            self._end_truncated_calls(candidate, list(candidate.partial), events)
            if candidate.end:
                seen: tuple[Part, ...] = (ToolCall("", ""),) if candidate.has_calls else ()  # any call will do
                candidate.stop = read_stop({**candidate.end, "index": candidate.index}, seen, candidate.extra)
        stops = tuple(candidate.stop for candidate in candidates if candidate.stop is not None)
        fault = stop_fault(stops[0])
        if fault is not None:
            events.append(StreamFault(fault, ResponseEnd(stops, self._extra)))
        else:
            events.append(ResponseEnd(stops, self._extra))

    def _frame(self, name: bytes, payload: bytes, events: list[Event]) -> None:
        """Decode one chunk, which is a whole response with the next parts."""
        self._read_chunk(self._read_object(payload), events)

    def _read_chunk(self, raw: Object, events: list[Event]) -> None:
        """Emit the events of a chunk: start, usage, parts of each candidate, and a fault; keep its unknown fields."""
        chunk = to_camel_case(raw)
        if chunk.get("error") and not chunk.get("candidates"):
            self._fail(chunk, events)
            return
        if not self._started:
            self._started = True
            extra = odd_values(chunk, ENVELOPE_TYPES, NAME)
            events.append(
                ResponseStart(read_label(chunk, "responseId"), read_label(chunk, "modelVersion"), None, extra)
            )
        usage = read_usage(chunk.get("usageMetadata"))
        if usage is not None:
            events.append(UsageUpdate(usage))
        self._extra = merge_extra(self._extra, read_unknown(chunk, _CHUNK, NAME))
        feedback = chunk.get("promptFeedback")
        if feedback is not None:
            self._apply_feedback(require_object(feedback, "promptFeedback"))
        candidates = chunk.get("candidates") or []
        for number, candidate in enumerate(candidates if type(candidates) is list else [candidates]):
            self._read_candidate(number, to_camel_case(require_object(candidate, "candidates")), events)
        if chunk.get("error"):
            self._fail(chunk, events)

    def _fail(self, chunk: Object, events: list[Event]) -> None:
        self._over = True
        events.append(StreamFault(read_fault(chunk)))

    def _apply_feedback(self, feedback: Object) -> None:
        self._extra = merge_extra(self._extra, {NAME: {"promptFeedback": feedback}})
        stop = blocked_stop(feedback)
        if stop is not None:
            self._candidates.setdefault(0, _Candidate(0)).stop = stop

    def _read_candidate(self, number: int, fields: Object, events: list[Event]) -> None:
        """Emit the new parts of a candidate, and note its finish reason. Parts may follow it, so it ends nothing.

        Unknown fields are kept for the end. Raise ProtocolError with the position of an invalid part.
        """
        index = read_index(fields, "index")
        if index is None:
            index = number
        candidate = self._candidates.get(index)
        if candidate is None:
            candidate = self._candidates[index] = _Candidate(index)
        content = fields.get("content")
        parts = (
            to_camel_case(require_object(content, "candidates", index, "content")).get("parts")
            if content is not None
            else None
        )
        for position, raw in enumerate(parts if type(parts) is list else [] if parts is None else [parts]):
            try:
                self._read_part(candidate, {"text": raw} if type(raw) is str else require_object(raw), events)
            except ProtocolError as error:
                raise error.within("candidates", index, "content", "parts", position) from None
        self._keep_fields(candidate, read_unknown(fields, CANDIDATE, f"{NAME}/candidate").get(f"{NAME}/candidate", {}))
        if fields.get("finishReason") not in NO_REASONS:
            candidate.end = {"finishReason": fields["finishReason"], "finishMessage": fields.get("finishMessage")}

    def _keep_fields(self, candidate: _Candidate, fields: Object) -> None:
        """Keep fields of a candidate. Later values replace earlier ones; objects are merged (`groundingMetadata`)."""
        if not fields:
            return
        kept = candidate.extra.setdefault(f"{NAME}/candidate", {})
        for key, value in fields.items():
            previous = kept.get(key)
            if type(previous) is dict and type(value) is dict:
                previous.update(value)
            else:
                kept[key] = dict(value) if type(value) is dict else value

    def _read_part(self, candidate: _Candidate, raw: Object, events: list[Event]) -> None:
        """Emit the events of one part; assignments of an incomplete call are collected first."""
        fields = to_camel_case(raw)
        call = fields.get("functionCall")
        if call is not None and _is_partial(candidate, to_camel_case(require_object(call, "functionCall"))):
            self._read_partial(candidate, to_camel_case(call), fields, events)
            return
        part = read_part(raw)
        if isinstance(part, (Text, Reasoning)):
            self._emit_text(candidate, part, events)
            return
        self._close_text(candidate, events)
        if isinstance(part, ToolCall):
            self._emit_call(candidate, part, events)
        else:
            events.append(WholePart(self._new_key(), part, candidate.index))

    def _emit_text(self, candidate: _Candidate, part: Text | Reasoning, events: list[Event]) -> None:
        """Emit a text or thought; it continues the open item of the same kind, else it opens another."""
        kind = "text" if isinstance(part, Text) else "thought"
        fields = part.extra.get(NAME)
        if not part.text and not part.artefacts and not fields:
            return
        if candidate.open is None or candidate.open[0] != kind:
            self._close_text(candidate, events)
            key = self._new_key()
            candidate.open = (kind, key)
            events.append(TextStart(key, candidate.index) if kind == "text" else ReasoningStart(key, candidate.index))
        key = candidate.open[1]
        if fields:
            candidate.fields.update(fields)
        escaped = self._escape(key, part.text)
        if escaped:
            events.append(TextDelta(key, escaped) if kind == "text" else ReasoningDelta(key, escaped))
        if part.artefacts:  # a signature belongs to its own part, so the next text is another part
            self._close_text(candidate, events, part.artefacts)

    def _close_text(self, candidate: _Candidate, events: list[Event], artefacts: tuple[Artefact, ...] = ()) -> None:
        """End the open text or thought, with its signature and its unknown fields."""
        if candidate.open is None:
            return
        kind, key = candidate.open
        extra: Extra = {NAME: candidate.fields} if candidate.fields else {}
        if half := self._flush_surrogate(key):
            events.append(TextDelta(key, half) if kind == "text" else ReasoningDelta(key, half))
        events.append(TextEnd(key, artefacts, extra) if kind == "text" else ReasoningEnd(key, artefacts, extra))
        candidate.open = None
        candidate.fields = {}

    def _emit_call(self, candidate: _Candidate, call: ToolCall, events: list[Event]) -> None:
        """Emit the start, the arguments and the end of a complete call, without the form of its part."""
        candidate.has_calls = True
        key = self._new_key()
        events.append(CallStart(key, call.id, call.name, choice=candidate.index))
        events.append(CallDelta(key, escape(call.text)))
        extra = {name: fields for name, fields in call.extra.items() if not name.endswith("~")}
        events.append(CallEnd(key, call.arguments, call.raw, call.state, call.artefacts, extra))

    def _read_partial(self, candidate: _Candidate, call: Object, fields: Object, events: list[Event]) -> None:
        """Collect assignments of an incomplete call, and emit its start and, when it is complete, its end.

        A part without an id and a name continues the latest call. A new call without an id truncates an older one.
        """
        self._close_text(candidate, events)
        candidate.has_calls = True
        call_id = read_optional_string(call, "id") or ("" if call.get("name") else candidate.last)
        if call_id not in candidate.partial or (call.get("name") and not call.get("id")):
            self._end_truncated_calls(candidate, [""] if "" in candidate.partial else [], events)
            partial = candidate.partial[call_id] = _PartialCall(self._new_key())
            events.append(CallStart(partial.key, call_id, read_string(call, "name"), choice=candidate.index))
        candidate.last = call_id
        partial = candidate.partial[call_id]
        partial.artefacts = partial.artefacts or read_signature(fields)
        pieces: JSON = call.get("partialArgs") or []
        for piece in pieces if type(pieces) is list else [pieces]:
            partial.arguments.feed(piece)
        if not call.get("willContinue"):
            del candidate.partial[call_id]
            value = partial.arguments.value
            events.append(CallDelta(partial.key, escape(dumps(value))))
            events.append(CallEnd(partial.key, value, None, "complete", partial.artefacts))

    def _end_truncated_calls(self, candidate: _Candidate, call_ids: list[str], events: list[Event]) -> None:
        """End calls that are still incomplete as truncated, with the arguments received so far."""
        for call_id in call_ids:
            partial = candidate.partial.pop(call_id)
            raw = dumps(partial.arguments.value)[:-1]
            events.append(CallDelta(partial.key, escape(raw)))
            events.append(CallEnd(partial.key, None, raw, "truncated"))


def _is_partial(candidate: _Candidate, call: Object) -> bool:
    """Return whether this is part of a call. A name with arguments is a whole call, even if others are incomplete."""
    if call.get("partialArgs") or call.get("willContinue"):
        return True
    return (
        bool(candidate.partial)
        and (not call.get("name") or str(call.get("id") or "") in candidate.partial)
        and not call.get("args")
    )
