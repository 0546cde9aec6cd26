"""Decode Messages streams, the one wire whose events name their own type.

Anthropic sends one block after the other. Blocks of servers that imitate the wire may be open at the same time, start or
stop without their event, or all have the same index; `message_stop` may be missing after the stop reason. What Anthropic's
SDK accumulates from such a stream is read, and so is text whose block has not been announced.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import repeat
from operator import itemgetter
from typing import Any

from ...ir.errors import ProtocolError
from ...ir.events import (
    CallDelta,
    CallEnd,
    CallStart,
    Event,
    Ping,
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
from ...ir.parts import Artefact, Extra, Opaque, ToolCall
from ...ir.pointer import JSON, Object
from ...ir.text import dumps, unescape
from ...stream.strict import parse_arguments
from ..base_decoder import FAST_LINES, FAST_STRING, BaseStreamDecoder, is_utf8
from ..fields import (
    decode_list,
    is_empty,
    odd_values,
    read_index,
    read_label,
    read_optional_string,
    read_string,
    read_unknown,
    require_object,
)
from ..fragments import Fragments
from .blocks import NAME, PROVIDER, read_block
from .fault import read_fault
from .response import ENVELOPE_TYPES, decode_response, is_truncated, read_stop, read_usage

__all__ = ["MessagesStreamDecoder"]


# A delta that needs no JSON parser. The groups are the index of its block and its text.
_PLAIN_DELTA = (
    rb'\{"type": ?"content_block_delta", ?"index": ?(0|[1-9]\d{0,5}), ?"delta": ?\{"type": ?'
    rb'"(?:input_json_delta", ?"partial_json|text_delta", ?"text|thinking_delta", ?"thinking)": ?'
    + FAST_STRING
    + rb" ?\} ?\}"
)
_EVENT_START = rb"(?:event: ?content_block_delta\n)?data: ?"
_FAST = re.compile(_PLAIN_DELTA).fullmatch
_FAST_EVENT = re.compile(_EVENT_START + _PLAIN_DELTA + rb"\n\n").fullmatch
_FIRST_DELTA = re.compile(_EVENT_START + _PLAIN_DELTA + rb"\n\n").match
_PLAIN_TEXTS = re.compile(FAST_LINES).match
_MARK = 16  # bytes before the text of a delta, by which a run is split
_WINDOW = 8 * 1024  # bytes that are split to find a run, which may end after the first of them
_NEXT_DELTA = re.compile(rb'\n\n(?=(?:event: ?content_block_delta\n)?data: ?\{"type": ?"content_block_delta")').search
_MESSAGE = frozenset({"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"})
_MESSAGE_DELTA = frozenset({"type", "delta", "usage"})  # others: context_management, input_transformations
_MAX_UNKNOWN = 100  # losses up to which unknown events are reported: an upstream could send many of them
_KNOWN = frozenset({"text", "tool_use", "thinking", "redacted_thinking"})


class _OpenBlock:
    """A content block that is not closed yet."""

    __slots__ = ("artefacts", "delta", "extra_fragments", "fields", "held", "is_stopped", "key", "kind", "pieces")

    def __init__(self, key: int, kind: str, fields: Object) -> None:
        self.key = key
        self.kind = kind
        self.fields = fields
        self.delta: Callable[[int, bytes], Event] | None = _DELTAS.get(kind)
        self.pieces: list[bytes] = []  # escaped input of a call or an unknown block, parsed at its end
        self.held = b""  # a closing brace at the end of a call's input so far
        self.is_stopped = False  # a call; it is closed later, since more of its input may follow
        self.artefacts: tuple[Artefact, ...] = ()
        self.extra_fragments = Fragments()  # fields from deltas of an unknown type


_DELTAS: dict[str, Callable[[int, bytes], Event]] = {
    "text": TextDelta,
    "tool_use": CallDelta,
    "thinking": ReasoningDelta,
}


class MessagesStreamDecoder(BaseStreamDecoder):
    """Decoder of Messages streams: feed it bytes, get events."""

    text_fields = frozenset({"text", "thinking", "partial_json"})

    def __init__(self) -> None:
        super().__init__()
        self._blocks: dict[int, _OpenBlock] = {}  # the open blocks, by index
        self._next_index = 0  # of a block without an index
        self._id: str | None = None  # of the open message
        self._usage: Object = {}  # the latest value of each count
        self._has_calls = False
        self._stop: Object = {}  # stop reason and other fields of message_delta
        self._extra: Extra = {}
        # a complete call and its arguments; later events show whether it was truncated
        self._last_call: tuple[_OpenBlock, Object] | None = None

    def _read_document(self, document: Object, events: list[Event]) -> None:
        self._add_whole(decode_response(document), events)

    def _is_complete(self) -> bool:
        """Return whether the stop reason has arrived. The stops of the message and of whole blocks may be missing."""
        return bool(self._stop.get("stop_reason")) and all(map(_is_whole, self._blocks.values()))

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that `data` completes. One delta in one read takes a short path."""
        fast = _FAST_EVENT(data)
        if fast is not None and self._is_between_events():
            events: list[Event] = []
            if self._append_fast(fast, events):
                return events
        return super().feed(data)

    def _feed(self, data: bytes, events: list[Event]) -> None:
        """Decode frames. Plain deltas of one block that follow each other are read at once."""
        start = 0
        while start < len(data):
            first = _FIRST_DELTA(data, start) if self._is_between_events() else None
            if first is not None:
                start = self._append_run(data, first, events)
                continue
            following = _NEXT_DELTA(data, start)
            end = len(data) if following is None else following.end()
            super()._feed(data[start:end], events)
            start = end

    def _append_fast(self, fast: re.Match[bytes], events: list[Event]) -> bool:
        """Append a delta that needs no JSON parser; return False if its block is not open or not a known one."""
        block, fragment = self._blocks.get(int(fast[1])), fast[2]
        if block is None or block.delta is None or not (fragment.isascii() or is_utf8(fragment)):
            return False
        if not fragment:
            return True
        if block.kind == "tool_use":
            if block.held or fragment[-1:] == b"}":
                self._append_input(block, fragment, events)
                return True
            block.pieces.append(fragment)
        events.append(block.delta(block.key, fragment))
        return True

    def _append_run(self, data: bytes, first: re.Match[bytes], events: list[Event]) -> int:
        """Append a delta, and those after it that differ only in their text. Return the end of the last one.

        The events are those of `_append_fast` for each of them.
        """
        if not self._append_fast(first, events):
            super()._feed(first[0], events)
            return first.end()
        texts, end = _split_run(data, first)
        block = self._blocks[int(first[1])]
        assert block.delta is not None  # as `_append_fast` has checked
        texts = list(filter(None, texts))
        if block.kind == "tool_use" and texts:
            has_inner_brace = b"}\n" in b"\n".join(texts)  # no text contains a line break
            last = texts if block.held or has_inner_brace else texts[-1:]
            texts = texts[: -len(last)]
            block.pieces += texts
        else:
            last = []
        events.extend(map(block.delta, repeat(block.key), texts))
        for fragment in last:
            self._append_input(block, fragment, events)
        return end

    def _frame(self, name: bytes, payload: bytes, events: list[Event]) -> None:
        """Decode one event; plain text, thinking and argument deltas take a fast path without a JSON parser."""
        fast = _FAST(payload)
        if fast is not None and not self._pending_surrogates and self._append_fast(fast, events):
            return
        event = self._read_object(payload)
        kind = event.get("type", name.decode("utf-8", "replace"))
        step = _STEPS.get(kind) if type(kind) is str else None
        if step is not None:
            step(self, event, events)
        elif event.get("error"):
            self._error(event, events)
        else:
            self._report_unknown("event", kind)

    def _message_start(self, event: Object, events: list[Event]) -> None:
        """Emit ResponseStart, and the parts and counts that the message already contains."""
        message = require_object(event.get("message"), "message")
        message_id = read_label(message, "id")
        if self._id is not None:
            self._restart(message_id)
            return
        self._id = message_id
        self._extra = read_unknown(message, _MESSAGE, NAME)
        odd = odd_values(message, ENVELOPE_TYPES, NAME)
        events.append(ResponseStart(message_id, read_label(message, "model"), None, odd))
        for part in decode_list(message, "content", read_block):  # e.g. calls that a program made in an earlier answer
            self._has_calls = self._has_calls or isinstance(part, ToolCall)
            events.extend(unfold_part(self._new_key(), 0, part))
        self._update_usage(message.get("usage"), events)

    def _restart(self, message_id: str) -> None:
        """Accept a repeated `message_start`, and raise for the start of another message.

        Some gateways send the event twice (BerriAI/litellm#32479). A gateway that lost its upstream and retried sent a
        second message after the first half of another (vercel/ai#18331); that first half belongs to no answer.
        """
        if message_id != self._id:
            raise ProtocolError(
                f"message {message_id!r} starts while message {self._id!r} is open",
                pointer="/message/id",
                hint="retry the request: the upstream sent two answers as one",
                status=502,
            )

    def _update_usage(self, usage: Any, events: list[Event]) -> None:
        """Update the usage. Counts are running totals; an absent count keeps its value."""
        if usage is None:
            return
        if type(usage) is not dict:
            self.losses.add("/usage", "usage", "dropped", "it is not an object", "info")
            return
        self._usage.update((key, value) for key, value in usage.items() if value is not None)
        total = read_usage(self._usage)
        if total is not None:
            events.append(UsageUpdate(total))

    def _block_start(self, event: Object, events: list[Event]) -> None:
        """Open a block and emit its start event, with the text or signature that `content_block_start` may hold.

        The start of a call that is open is a repetition, as with `message_start`.
        """
        fields = require_object(event.get("content_block"), "content_block")
        index = read_index(event, "index")
        block = None if index is None else self._blocks.get(index)
        if block is not None and not block.is_stopped and fields.get("id") and fields == block.fields:
            return
        self._open_block(self._next_index if index is None else index, fields, events)

    def _open_block(self, index: int, fields: Object, events: list[Event]) -> _OpenBlock:
        """Open a block. It ends a block with the same index, and starts the message if no event has."""
        if index < 0:
            raise ProtocolError("expected a non-negative block index", pointer="/index", status=502)
        if self._id is None:
            self._id = ""
            events.append(ResponseStart())
        for other in [number for number, block in self._blocks.items() if number == index or block.is_stopped]:
            self._close_block(other, events)
        self._end_last_call(events)
        self._next_index = index + 1
        kind = read_string(fields, "type")
        block = self._blocks[index] = _OpenBlock(self._new_key(), kind, fields)
        if kind == "text":
            events.append(TextStart(block.key, 0, False, read_unknown(fields, ("type", "text"), NAME)))
            self._append_text(block, read_optional_string(fields, "text"), events)
        elif kind == "tool_use":
            self._has_calls = True
            extra = read_unknown(fields, ("type", "id", "name", "input"), NAME)
            events.append(CallStart(block.key, read_label(fields, "id"), read_string(fields, "name"), extra=extra))
        elif kind == "thinking" or kind == "redacted_thinking":
            events.append(
                ReasoningStart(block.key, 0, read_unknown(fields, ("type", "thinking", "signature", "data"), NAME))
            )
            self._append_text(block, read_optional_string(fields, "thinking"), events)
            self._set_signature(block, "signature", read_optional_string(fields, "signature"))
            self._set_signature(block, "redacted", read_optional_string(fields, "data"))
        return block

    def _block_delta(self, event: Object, events: list[Event]) -> None:
        """Apply a delta to its block; citations and the fields of unknown block types are collected for its end."""
        delta = require_object(event.get("delta"), "delta")
        kind = delta.get("type") or next((word for word, field in _TEXT_OF.items() if field in delta), None)
        block = self._find_block(event, kind, events)
        if kind == "signature_delta":
            self._set_signature(block, "signature", read_optional_string(delta, "signature"))
        elif kind == "citations_delta":
            block.fields = {
                **block.fields,
                "citations": [*(block.fields.get("citations") or ()), delta.get("citation")],
            }
        elif type(kind) is str and kind in _TEXT_OF and (block.kind in _KNOWN or kind == "input_json_delta"):
            self._append_text(block, read_optional_string(delta, _TEXT_OF[kind]), events)
        elif block.kind in _KNOWN:
            self._report_unknown("delta", kind)
        else:
            block.extra_fragments.add({key: value for key, value in delta.items() if key != "type"})

    def _append_text(self, block: _OpenBlock, text: str | None, events: list[Event]) -> None:
        """Emit a text fragment. Fragments of calls and of unknown blocks are also kept, to be parsed at the end."""
        if not text:
            return
        escaped = self._escape(block.key, text)
        if block.kind == "tool_use":
            self._append_input(block, escaped, events)
        elif block.delta is None:
            block.pieces.append(escaped)
        elif escaped:
            events.append(block.delta(block.key, escaped))

    def _append_input(self, block: _OpenBlock, escaped: bytes, events: list[Event]) -> None:
        """Emit a fragment of a call's input without a final closing brace, which may have to stay away.

        The last call of an answer that a limit or a refusal ended is truncated (see `response._as_truncated`), and must not look
        complete. Whether it is the last one becomes known after its end.
        """
        if block.held:
            escaped, block.held = block.held + escaped, b""
        if escaped[-1:] == b"}":
            escaped, block.held = escaped[:-1], b"}"
        if escaped:
            block.pieces.append(escaped)
            events.append(CallDelta(block.key, escaped))

    def _set_signature(self, block: _OpenBlock, kind: str, data: str | None) -> None:
        if data:
            block.artefacts = (Artefact(PROVIDER, kind, data),)

    def _block_stop(self, event: Object, events: list[Event]) -> None:
        """Close a block; the latest call only at the next block or the end, as the SDK reads input after its stop.

        A stop without an open block is ignored: it carries nothing.
        """
        index = read_index(event, "index")
        if index is None:
            index = max(self._blocks, default=-1)
        block = self._blocks.get(index)
        if block is None:
            return
        if block.kind == "tool_use" and block.key == self._next_key - 1:
            block.is_stopped, block.delta = True, None  # no fast path: a delta of another kind opens a block
        else:
            self._close_block(index, events)

    def _close_block(self, index: int, events: list[Event]) -> None:
        """Emit the end event of a block; a block of an unknown type is emitted as one Opaque part."""
        block = self._blocks.pop(index)
        if rest := self._flush_surrogate(block.key):
            self._append_rest(block, rest, events)
        if block.kind == "text":
            citations = block.fields.get("citations")
            events.append(TextEnd(block.key, (), {NAME: {"citations": citations}} if citations else {}))
        elif block.kind == "tool_use":
            self._end_call(block, events)
        elif block.kind == "thinking" or block.kind == "redacted_thinking":
            events.append(ReasoningEnd(block.key, block.artefacts))
        else:
            value = {**block.fields, **block.extra_fragments.join()}
            if block.pieces:
                value["input"] = parse_arguments(unescape(b"".join(block.pieces)))[0] or {}
            events.append(WholePart(block.key, Opaque(NAME, block.kind, value)))

    def _append_rest(self, block: _OpenBlock, rest: bytes, events: list[Event]) -> None:
        if block.kind == "tool_use":
            self._append_input(block, rest, events)
        elif block.delta is None:
            block.pieces.append(rest)
        else:
            events.append(block.delta(block.key, rest))

    def _end_call(self, block: _OpenBlock, events: list[Event]) -> None:
        """End a call; a complete one stays pending until later events show whether it was truncated."""
        complete_input = block.fields.get("input")
        if complete_input and not block.pieces and not block.held:  # arguments in content_block_start
            text = complete_input if type(complete_input) is str else dumps(complete_input)
            self._append_text(block, text, events)
        raw = unescape(b"".join([*block.pieces, block.held]))
        arguments, state = parse_arguments(raw)
        if complete_input and type(complete_input) is dict and complete_input != arguments:
            self.losses.add("/parts", "input", "dropped", "the deltas of the call have other arguments")
        is_last = block.key == self._next_key - 1
        if state == "complete" and is_last:
            self._last_call = block, arguments or {}
            return
        self._release_held(block, events)
        if state == "complete":
            events.append(CallEnd(block.key, arguments))
            return
        events.append(CallEnd(block.key, None, raw, state))

    def _release_held(self, block: _OpenBlock, events: list[Event]) -> None:
        if block.held:
            events.append(CallDelta(block.key, block.held))

    def _end_last_call(self, events: list[Event], *, is_cut: bool = False) -> None:
        """End the pending call: truncated if `is_cut`, else with its closing brace."""
        if self._last_call is None:
            return
        block, arguments = self._last_call
        self._last_call = None
        if is_cut:
            events.append(CallEnd(block.key, None, unescape(b"".join(block.pieces)), "truncated"))
            return
        self._release_held(block, events)
        events.append(CallEnd(block.key, arguments))

    def _find_block(self, event: Object, kind: JSON, events: list[Event]) -> _OpenBlock:
        """Return the block of a delta. Text and thinking open one if the server has omitted its start."""
        index = read_index(event, "index")
        if index is None:
            index = self._next_index - 1 if self._next_index - 1 in self._blocks else self._next_index
        block = self._blocks.get(index)
        if block is not None and not (block.is_stopped and kind in ("text_delta", "thinking_delta")):
            return block
        if kind not in ("text_delta", "thinking_delta"):
            raise ProtocolError(f"content block {event.get('index')} is not open", pointer="/index", status=502)
        return self._open_block(index, {"type": kind.removesuffix("_delta")}, events)

    def _report_unknown(self, concept: str, kind: JSON) -> None:
        """Report an event or a delta of an unknown type; the number of losses is limited, as the server makes the names."""
        if len(self.losses) < _MAX_UNKNOWN:
            self.losses.add("/parts", f"{concept} {kind}"[:80], "dropped", "unknown type", "info")

    def _message_delta(self, event: Object, events: list[Event]) -> None:
        delta = event.get("delta")
        fields = {} if is_empty(delta) else require_object(delta, "delta")
        self._stop.update((key, value) for key, value in fields.items() if not is_empty(value) or key not in self._stop)
        self._stop.update((key, value) for key, value in event.items() if key not in _MESSAGE_DELTA)
        self._update_usage(event.get("usage"), events)

    def _message_stop(self, event: Object, events: list[Event]) -> None:
        if self._id is None:
            raise ProtocolError("the message ends before it has begun", status=502)
        self._finish(events)
        self._over = True

    def _finish(self, events: list[Event]) -> None:
        """Emit the end of the answer; only the stop reason shows whether a pending call was truncated."""
        for index in sorted(self._blocks):
            self._close_block(index, events)
        stop = read_stop(self._stop, self._has_calls)
        self._end_last_call(events, is_cut=stop is not None and is_truncated(stop))
        for name, fields in read_unknown(self._stop, ("stop_reason", "stop_sequence", "stop_details"), NAME).items():
            self._extra = {**self._extra, name: {**self._extra.get(name, {}), **fields}}
        events.append(ResponseEnd((stop,) if stop is not None else (), self._extra))

    def _ping(self, event: Object, events: list[Event]) -> None:
        events.append(Ping())

    def _error(self, event: Object, events: list[Event]) -> None:
        self._over = True
        events.append(StreamFault(read_fault(event)))


_TEXT_OF = {"text_delta": "text", "input_json_delta": "partial_json", "thinking_delta": "thinking"}
_STEPS: dict[str, Callable[[MessagesStreamDecoder, Object, list[Event]], None]] = {
    "message_start": MessagesStreamDecoder._message_start,
    "content_block_start": MessagesStreamDecoder._block_start,
    "content_block_delta": MessagesStreamDecoder._block_delta,
    "content_block_stop": MessagesStreamDecoder._block_stop,
    "message_delta": MessagesStreamDecoder._message_delta,
    "message_stop": MessagesStreamDecoder._message_stop,
    "ping": MessagesStreamDecoder._ping,
    "error": MessagesStreamDecoder._error,
}


def _is_whole(block: _OpenBlock) -> bool:
    """Return whether nothing shows that the block has been cut."""
    if block.is_stopped or not (block.pieces or block.kind == "tool_use"):
        return True
    return parse_arguments(unescape(b"".join([*block.pieces, block.held])))[1] == "complete"


def _split_run(data: bytes, first: re.Match[bytes]) -> tuple[list[bytes], int]:
    """Return the plain texts of the deltas after `first` that have the same bytes around them, and the end of the last.

    Splitting is many times faster than matching each delta. Joining the texts again proves the result.
    """
    start = first.end()
    before, after = data[first.start() : first.start(2)], data[first.end(2) : start]
    if not data.startswith(before, start):
        return [], start
    mark = before[-_MARK:]  # a search for all of it takes longer
    *pieces, rest = data[start + len(before) : start + _WINDOW].split(mark)
    overlap = len(after) + len(before) - len(mark)  # the bytes between a text and the next mark
    lines = b"\n".join([*map(itemgetter(slice(None, -overlap)), pieces), rest])
    plain = _PLAIN_TEXTS(lines)
    assert plain is not None  # it matches also nothing
    texts = plain[0].split(b"\n")
    if not lines.startswith(after, plain.end()):
        texts.pop()  # it is not plain, or not complete
    run = before + (after + before).join(texts) + after
    if texts and data.startswith(run, start) and is_utf8(run):
        return texts, start + len(run)
    return [], start
