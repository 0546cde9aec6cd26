"""Decode /api/chat streams: one JSON object per line, the last with `"done": true`.

Each line is an answer that contains the next text, thinking or calls. Calls are complete. Text continues the previous
item if that is of the same kind. An error replaces a line and ends the stream. All lines are read, also after `done`.
"""

from __future__ import annotations

from collections.abc import Iterable

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
from ...ir.parts import Extra, Part, Reasoning, Text, ToolCall
from ...ir.pointer import JSON, Object
from ...ir.text import escape
from ...stream.framing import NDJSONDecoder
from ..fields import read_label, read_unknown, require_object, wrap_object
from ..streaming.decoder import BaseStreamDecoder
from .fault import read_fault
from .messages import FORM, NAME, THINKING_FORM, read_assistant
from .response import KNOWN, MESSAGE, is_done, odd_envelope, read_created, read_stop, read_usage

_MESSAGE = frozenset({"role", "content", "thinking", "images", "tool_calls"})
_ANY_CALL: tuple[Part, ...] = (ToolCall("", ""),)


class OllamaStreamDecoder(BaseStreamDecoder):
    """Decoder of /api/chat streams: feed it bytes, get events."""

    text_fields = frozenset({"content", "thinking"})

    def __init__(self) -> None:
        super().__init__()
        self._lines = NDJSONDecoder()
        self._started = False
        self._has_calls = False
        self._end: Object = {}  # the fields of the last line that ended the answer
        self._open: tuple[type[Part], int] | None = None  # kind and key of the open item
        self._logprobs: list[JSON] = []
        self._extra: Extra = {}

    def _detect_framing(self, head: bytes) -> None:
        """Every line is a document here."""

    def _frames(self, data: bytes) -> Iterable[tuple[bytes, bytes]]:
        return ((b"", line) for line in self._lines.feed(data))

    def _last_frames(self) -> Iterable[tuple[bytes, bytes]]:
        return ((b"", line) for line in self._lines.close())

    def _is_complete(self) -> bool:
        return bool(self._end)

    def _finish(self, events: list[Event]) -> None:
        self._close_text(events)
        stop = read_stop(self._end, _ANY_CALL if self._has_calls else ())
        events.append(ResponseEnd((stop,), self._extra))

    def _frame(self, name: bytes, payload: bytes, events: list[Event]) -> None:
        """Decode one line: the next parts, the counts and, in the last line, the stop reason."""
        self._read_line(self._read_object(payload), events)

    def _read_line(self, line: Object, events: list[Event]) -> None:
        """Emit the events of a line: the start, its parts, the counts, or a fault; note the stop reason.

        An error after the end of the answer is a loss.
        """
        if line.get("error"):
            if self._end:  # the answer is complete
                self.losses.add("", "error", "dropped", "it came after the end of the answer", "info")
                return
            self._over = True
            events.append(StreamFault(read_fault({key: line[key] for key in line if key not in KNOWN})))
            return
        if not self._started:
            self._started = True
            created, form = read_created(line)
            extra: Extra = {FORM: form} if form else {}
            events.append(ResponseStart("", read_label(line, "model"), created, extra | odd_envelope(line)))
        message = line.get("message")
        if message is not None:
            self._read_message(require_object(message, "message"), events)
        self._keep_extra(read_unknown(line, KNOWN, NAME))
        usage = read_usage(line)
        if usage is not None:
            events.append(UsageUpdate(usage))
        if is_done(line) or (line.get("done") is None and line.get("done_reason")):
            reason = line.get("done_reason") or self._end.get("done_reason")
            self._end = {"done": True, "done_reason": reason}

    def _keep_extra(self, extra: Extra) -> None:
        """Merge fields into the extra. Log probabilities arrive per token; other fields arrive once or are repeated."""
        new = extra.get(NAME, {}).get("logprobs")
        if type(new) is list:
            self._logprobs += new
            extra[NAME]["logprobs"] = self._logprobs
        self._extra = merge_extra(self._extra, extra)

    def _read_message(self, raw: Object, events: list[Event]) -> None:
        """Emit the parts of a line; its unknown fields are kept for the end of the answer.

        Raise ProtocolError if one is invalid.
        """
        try:
            parts = read_assistant(wrap_object(raw, "tool_calls"), {}).parts
        except ProtocolError as error:
            raise error.within("message") from None
        for part in parts:
            if isinstance(part, (Text, Reasoning)):
                self._emit_text(part, events)
                continue
            self._close_text(events)
            if isinstance(part, ToolCall):
                self._emit_call(part, events)
            else:
                events.append(WholePart(self._new_key(), part))
        self._keep_extra(read_unknown(raw, _MESSAGE, MESSAGE))

    def _emit_text(self, part: Text | Reasoning, events: list[Event]) -> None:
        """Emit text or thinking; it continues the open item of the same kind, else it opens another."""
        if self._open is None or self._open[0] is not type(part):
            self._close_text(events)
            key = self._new_key()
            self._open = (type(part), key)
            events.append(TextStart(key) if isinstance(part, Text) else ReasoningStart(key, extra=THINKING_FORM))
        key = self._open[1]
        if escaped := self._escape(key, part.text):
            events.append(TextDelta(key, escaped) if isinstance(part, Text) else ReasoningDelta(key, escaped))

    def _close_text(self, events: list[Event]) -> None:
        """End the open text or thinking, if there is one."""
        if self._open is None:
            return
        kind, key = self._open
        self._open = None
        if rest := self._flush_surrogate(key):
            events.append(TextDelta(key, rest) if kind is Text else ReasoningDelta(key, rest))
        events.append(TextEnd(key) if kind is Text else ReasoningEnd(key))

    def _emit_call(self, call: ToolCall, events: list[Event]) -> None:
        self._has_calls = True
        key = self._new_key()
        events.append(CallStart(key, call.id, call.name, extra=call.extra))
        events.append(CallDelta(key, escape(call.text)))
        events.append(CallEnd(key, call.arguments, call.raw, call.state))
