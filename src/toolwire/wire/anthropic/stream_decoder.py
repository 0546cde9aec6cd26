"""Decode Messages streams, the one wire whose events name their own type.

Anthropic sends one block after the other. Blocks of servers that imitate the wire may be open at the same time, start or
stop without their event, or all have the same index; `message_stop` may be missing after the stop reason. What Anthropic's
SDK accumulates from such a stream is read, and so is text whose block has not been announced.

A call passes through these states:

    open     from `content_block_start`: its input is emitted, except for a final closing brace, until it is complete
    stopped  from `content_block_stop`: more input is read, because the SDK reads it, until it is complete
    pending  its input is complete and the next block has not started: only the stop reason shows whether it was cut
    ended    `CallEnd` has been emitted

A block that starts again with the same id, and the same index or none, is a repetition in every state (BerriAI/litellm#32479): it makes no
second call. Input after the complete one is only compared with it, at the end of the answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import repeat
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
from ...ir.text import dumps, escape
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
from ..streaming.copies import MAX_OPEN, repeats_arguments
from ..streaming.decoder import FAST_STRING, BaseStreamDecoder, is_utf8, split_run
from .blocks import PROVIDER, read_block
from .fault import read_fault
from .response import ENVELOPE_TYPES, decode_response, is_truncated, read_stop, read_usage
from .stream_state import OpenBlock, is_whole
from .tools import NAME

# A delta that needs no JSON parser. The groups are its head, with the block's index and the delta's type, and its text.
_PLAIN_DELTA = (
    rb'\{"type": ?"content_block_delta", ?"index": ?((?:0|[1-9]\d{0,5}), ?"delta": ?\{"type": ?'
    rb'"(?:input_json_delta", ?"partial_json|text_delta", ?"text|thinking_delta", ?"thinking))": ?'
    + FAST_STRING
    + rb" ?\} ?\}"
)
_EVENT_START = rb"(?:event: ?content_block_delta\n)?data: ?"
_FAST = re.compile(_PLAIN_DELTA).fullmatch
_FAST_EVENT = re.compile(_EVENT_START + _PLAIN_DELTA + rb"\n\n").fullmatch
_FIRST_DELTA = re.compile(_EVENT_START + _PLAIN_DELTA + rb"\n\n").match
_NEXT_DELTA = re.compile(rb'\n\n(?=(?:event: ?content_block_delta\n)?data: ?\{"type": ?"content_block_delta")').search
_MESSAGE = frozenset({"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"})
_MESSAGE_DELTA = frozenset({"type", "delta", "usage"})  # others: context_management, input_transformations
_MAX_UNKNOWN = 100  # losses up to which unknown events are reported: an upstream could send many of them
_SPOKEN = frozenset({"text", "thinking", "redacted_thinking"})
_KNOWN = _SPOKEN | {"tool_use"}
_DELTAS_BY_FIELD = {b"text": TextDelta, b"partial_json": CallDelta, b"thinking": ReasoningDelta}


class MessagesStreamDecoder(BaseStreamDecoder):
    """Decoder of Messages streams: feed it bytes, get events."""

    text_fields = frozenset({"text", "thinking", "partial_json"})

    def __init__(self) -> None:
        super().__init__()
        self._blocks: dict[int, OpenBlock] = {}  # the open blocks, by index; text inside of a call has `~index`
        self._ended: dict[object, OpenBlock] = {}  # ended blocks with an id, by index and id; the latest by index
        self._latest: OpenBlock | None = None  # the block that started or grew last
        self._started: list[int] = []  # indexes of blocks in the order of their starts, for stops without an index
        self._late: dict[OpenBlock, None] = {}  # blocks with input after the complete one
        self._stopped: int | None = None  # the index of a stopped call that the next block ends
        self._heads: dict[bytes, OpenBlock] = {}  # blocks by the first bytes of their deltas, for the fast path
        self._next_index = 0  # of a block without an index
        self._indexes: dict[str, list[int]] = {}  # of the blocks with an id, for repeated starts without an index
        self._id: str | None = None  # of the open message
        self._usage: Object = {}  # the latest value of each count
        self._has_calls = False
        self._stop: Object = {}  # stop reason and other fields of message_delta
        self._extra: Extra = {}
        self._pending: OpenBlock | None = None  # a complete call; later events show whether it was cut

    def _read_document(self, document: Object, events: list[Event]) -> None:
        self._add_whole(decode_response(document), events)

    def _is_complete(self) -> bool:
        """Return whether the stop reason has arrived. The stops of the message and of whole blocks may be missing."""
        return bool(self._stop.get("stop_reason")) and all(map(is_whole, self._blocks.values()))

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
        """Append a delta that needs no JSON parser: emit it, or hold a closing brace of a call's input.

        Return False if its block is not open or of an unknown type, or the text is not UTF-8.
        """
        block, fragment = self._heads.get(fast[1]), fast[2]
        if block is None or block.delta is None:
            block = self._find_fast(fast[1])
        if block is None or block.delta is None or not (fragment.isascii() or is_utf8(fragment)):
            return False
        if not fragment:
            return True
        self._latest = block
        if block.kind == "tool_use":
            if block.held or fragment[-1:] == b"}":
                self._append_input(block, fragment, events)
                return True
            block.pieces.append(fragment)
        events.append(block.delta(block.key, fragment))
        return True

    def _find_fast(self, head: bytes) -> OpenBlock | None:
        """Return the open block of deltas that begin with `head`, or None if they are of another type."""
        index, kind = int(head.partition(b",")[0]), head.rpartition(b'"')[2]
        block = self._blocks.get(index)
        if block is None or block.delta is not _DELTAS_BY_FIELD[kind]:
            return None
        self._heads[head] = block
        return block

    def _append_run(self, data: bytes, first: re.Match[bytes], events: list[Event]) -> int:
        """Append a delta, and the deltas after it that differ only in their text. Return the end of the last one.

        The result is the same as `_append_fast` for each of them.
        """
        if not self._append_fast(first, events):
            super()._feed(first[0], events)
            return first.end()
        texts, end = split_run(data, first, 2)
        block = self._heads[first[1]]
        assert block.delta is not None  # as `_append_fast` has checked
        texts = list(filter(None, texts))
        if block.kind == "tool_use" and texts:
            has_inner_brace = b"}\n" in b"\n".join(texts)  # a text ends in a brace; none contains a line break
            one_by_one = texts if block.held or has_inner_brace else texts[-1:]
            texts = texts[: -len(one_by_one)]
            block.pieces += texts
        else:
            one_by_one = []
        events.extend(map(block.delta, repeat(block.key), texts))
        for fragment in one_by_one:
            self._append_input(block, fragment, events)
        return end

    def _frame(self, name: bytes, payload: bytes, events: list[Event]) -> None:
        """Decode one event; plain text, thinking and argument deltas take a fast path without a JSON parser.

        An event of an unknown type is reported as a loss, unless it has an error.
        """
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
        """Emit ResponseStart, and the parts and counts that the message already contains.

        A second start is ignored, or raises ProtocolError if it belongs to another message.
        """
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
        """Update the usage and emit it. Counts are running totals; an absent count keeps its value."""
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
        """Open a block and emit its start event; if the start is a repetition, only compare it with the first one."""
        fields = require_object(event.get("content_block"), "content_block")
        index, block_id = _read_block_index(event), read_label(fields, "id")
        known_indexes = self._indexes.get(block_id, ())[-MAX_OPEN:] if index is None else (index,)
        for known in reversed(known_indexes) if block_id else ():
            for block in (self._blocks.get(known), self._ended.get((known, block_id))):
                if block is not None and block.is_repeated_in(fields, has_index=index is not None):
                    self._next_index = known + 1  # deltas without an index are about this block
                    self._repeat_block(known, block, fields, events)
                    return
        self._open_block(self._next_index if index is None else index, fields, events)

    def _repeat_block(self, index: int, block: OpenBlock, fields: Object, events: list[Event]) -> None:
        """Compare the repeated start of a block with the first one, and report differences.

        A call without input gets the repeated input. A block that had ended gets its index back, for later deltas.
        """
        if block.is_ended and self._blocks.get(index) is not block:  # another block has the index now
            if index in self._blocks:
                self._close_block(index, events)
            self._blocks[index] = block
            self._started.append(index)
        known, repeated = block.fields.get("input"), fields.get("input")
        if not known and not block.is_ended:
            block.fields = {**block.fields, "input": repeated}
            block.start_input = None
        elif repeated and repeated not in (known, block.arguments):
            self._report("input", "a repeated start of the block has other arguments")
        if {**fields, "input": known} != {**block.fields, "input": known}:
            self._report("content block", "a repeated start of the block has other fields")

    def _open_block(self, index: int, fields: Object, events: list[Event]) -> OpenBlock:
        """Open a block, emit its start and return it.

        It ends a block with the same index and a stopped or pending call, and starts the message if no event has.
        """
        if self._id is None:
            self._id = ""
            events.append(ResponseStart())
        if index in self._blocks:
            self._close_block(index, events)
        if self._stopped in self._blocks:
            self._close_block(self._stopped, events, is_final=False)
        self._stopped = None
        self._end_pending(events)
        # a negative index is text inside of a call (see `_blocks`)
        if index >= 0:
            self._next_index = index + 1
            self._indexes.setdefault(read_label(fields, "id"), []).append(index)
            self._started.append(index)
        kind = read_string(fields, "type")
        block = self._blocks[index] = self._latest = OpenBlock(self._new_key(), kind, fields)
        if kind == "text":
            events.append(TextStart(block.key, extra=read_unknown(fields, ("type", "text"), NAME)))
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
        """Apply a delta to its block; citations and the fields of unknown block types are collected for its end.

        A delta without a type is recognised by its field; an unknown one is reported as a loss.
        """
        delta = require_object(event.get("delta"), "delta")
        kind = delta.get("type") or next((word for word, field in _TEXT_OF.items() if field in delta), None)
        block = self._find_block(event, kind, events)
        if kind == "signature_delta" and block.kind in ("thinking", "redacted_thinking"):
            self._set_signature(block, "signature", read_optional_string(delta, "signature"))
        elif kind == "citations_delta" and block.kind == "text":
            block.citations.append(delta.get("citation"))
        elif type(kind) is str and kind in _TEXT_OF and (block.kind in _KNOWN or kind == "input_json_delta"):
            self._append_text(block, read_optional_string(delta, _TEXT_OF[kind]), events)
        elif block.kind in _KNOWN:
            self._report_unknown("delta", kind)
        else:
            block.extra_fragments.add({key: value for key, value in delta.items() if key != "type"})

    def _append_text(self, block: OpenBlock, text: str | None, events: list[Event]) -> None:
        """Emit a text fragment. Fragments of calls and of unknown blocks are also kept, to be parsed at the end."""
        if text:
            self._append_escaped(block, self._escape(block.key, text), events)

    def _append_escaped(self, block: OpenBlock, escaped: bytes, events: list[Event]) -> None:
        """Emit an escaped fragment, or keep it if its block is a call or of an unknown type."""
        if block.kind == "tool_use" or block.is_ended:
            self._append_input(block, escaped, events)
            return
        self._latest = block
        if block.delta is None:
            block.pieces.append(escaped)
        elif escaped:
            events.append(block.delta(block.key, escaped))

    def _append_input(self, block: OpenBlock, escaped: bytes, events: list[Event]) -> None:
        """Emit a fragment of a call's input without a final closing brace, which may have to stay away.

        The last call of an answer that a limit or a refusal ended is truncated (see `response._as_truncated`), and must not look
        complete. Whether it is the last one becomes known after its end. Input after the complete one is only compared.
        """
        may_repeat = block.delta is None or (block.held and (escaped[:1] not in b",]" or block.late))
        if may_repeat and block.is_full():
            block.late.append(escaped)
            self._late[block] = None
            return
        self._latest = block
        emitted, block.held, block.state = block.held + escaped, b"", None
        if escaped[-1:] == b"}":
            emitted, block.held = emitted[:-1], b"}"
            block.pieces += (escaped[:-1], b"}")
        else:
            block.pieces.append(escaped)
        if emitted:
            events.append(CallDelta(block.key, emitted))

    def _set_signature(self, block: OpenBlock, kind: str, data: str | None) -> None:
        if data:
            block.artefacts = (Artefact(PROVIDER, kind, data),)

    def _block_stop(self, event: Object, events: list[Event]) -> None:
        """Close a block; a call later if it is the latest block or incomplete, as the SDK reads input after its stop.

        A stop without an open block is ignored: it carries nothing.
        """
        index = _read_block_index(event)
        if index is None:
            while self._started and ((block := self._blocks.get(self._started[-1])) is None or block.is_stopped):
                self._started.pop()
            index = self._started[-1] if self._started else -1
        block = self._blocks.get(index)
        if block is None:
            return
        block.is_stopped = True
        if block.kind == "tool_use":
            block.delta = None  # no fast path: the input may be complete
        if block.kind == "tool_use" and block.key == self._next_key - 1:
            self._stopped = index
        else:
            self._close_block(index, events, is_final=False)

    def _close_block(self, index: int, events: list[Event], *, is_final: bool = True, is_cut: bool = False) -> None:
        """Emit the end event of a block; a block of an unknown type is emitted as one Opaque part.

        Unless it `is_final`, an incomplete call stays open for the rest of its input. `is_cut`: a limit or a refusal
        ended the answer in this call.
        """
        block = self._blocks[index]
        if not is_final and block.kind == "tool_use" and block.pieces and not block.is_full():
            return
        del self._blocks[index]
        if block.is_ended:
            return
        if half := self._flush_surrogate(block.key):
            self._append_escaped(block, half, events)
        block.delta = None
        if block.fields.get("id"):
            self._ended[index] = self._ended[index, read_label(block.fields, "id")] = block
        if block.kind == "text":
            events.append(TextEnd(block.key, (), {NAME: {"citations": [*block.citations]}} if block.citations else {}))
        elif block.kind == "tool_use":
            self._end_call(block, events, is_cut=is_cut)
        elif block.kind == "thinking" or block.kind == "redacted_thinking":
            events.append(ReasoningEnd(block.key, block.artefacts))
        else:
            value = {**block.fields, **block.extra_fragments.join()}
            if block.pieces:
                block.parse_input()
                value["input"] = block.arguments or {}
            events.append(WholePart(block.key, Opaque(NAME, block.kind, value)))
        block.is_ended = True

    def _end_call(self, block: OpenBlock, events: list[Event], *, is_cut: bool) -> None:
        """End a call; a complete one that grew last stays pending until later events show whether it was cut.

        Different arguments in its start and its deltas are reported.
        """
        complete_input = block.fields.get("input")
        if complete_input and not block.pieces:  # arguments in content_block_start
            text = complete_input if type(complete_input) is str else dumps(complete_input)
            self._append_input(block, escape(text), events)
        state = block.parse_input()
        if complete_input and type(complete_input) is dict and complete_input != block.arguments:
            self._report("input", "the deltas of the call have other arguments")
        if state == "complete":
            if block is self._latest and not is_cut:
                self._end_pending(events)
                self._pending = block
            else:
                self._end_complete_call(block, events, is_cut=is_cut)
            return
        if block.held:
            events.append(CallDelta(block.key, block.held))
        events.append(CallEnd(block.key, None, block.raw_input, state))

    def _end_pending(self, events: list[Event], *, is_cut: bool = False) -> None:
        if self._pending is not None:
            self._end_complete_call(self._pending, events, is_cut=is_cut)
            self._pending = None

    def _end_complete_call(self, block: OpenBlock, events: list[Event], *, is_cut: bool) -> None:
        """End a call with complete input: truncated if `is_cut`, else with its closing brace."""
        if is_cut:
            if block.held:
                block.pieces.pop()
            events.append(CallEnd(block.key, None, block.raw_input, "truncated"))
            return
        if block.held:
            events.append(CallDelta(block.key, block.held))
        events.append(CallEnd(block.key, block.arguments or {}))

    def _find_cut(self) -> OpenBlock | None:
        """Return the call that a limit or a refusal cut, although its input looks complete.

        It is the block that grew last, unless this one was stopped while a call stayed open.
        """
        latest = self._latest
        open_calls = [block for block in self._blocks.values() if block.kind == "tool_use" and not block.is_stopped]
        if latest is not None and latest.is_stopped and open_calls:
            # An incomplete call is truncated in any case, and only one was being written.
            has_incomplete = any(block.parse_input() != "complete" for block in open_calls)
            return None if has_incomplete else max(open_calls, key=lambda block: block.key)
        return latest

    def _find_block(self, event: Object, kind: JSON, events: list[Event]) -> OpenBlock:
        """Return the block of a delta. Text and thinking open one if the server has omitted its start.

        Gateways send thinking into a text block (BerriAI/litellm#31495); then it is not part of the text. Raise
        ProtocolError for any other delta without a block.
        """
        index = _read_block_index(event)
        if index is None:
            index = self._next_index - 1 if self._next_index - 1 in self._blocks else self._next_index
        block = self._blocks.get(index)
        if kind == "text_delta" or kind == "thinking_delta":
            part = kind.removesuffix("_delta")
            if block is not None and block.kind == "tool_use" and not block.is_stopped:
                index = ~index  # text inside of a call (see `_blocks`)
                block = self._blocks.get(index)
            if block is None or block.is_stopped or (block.kind != part and block.kind in _KNOWN):
                return self._open_block(index, {"type": part}, events)
            return block
        if kind == "input_json_delta" and (block is None or block.kind in _SPOKEN):
            block = self._ended.get(index)
            if block is not None and not block.pieces:
                block = None  # it has been emitted without input
        if block is None:
            raise ProtocolError(f"content block {event.get('index')} is not open", pointer="/index", status=502)
        return block

    def _report_unknown(self, concept: str, kind: JSON) -> None:
        """Report an event or a delta of an unknown type; the number of losses is limited, as the server makes the names."""
        if len(self.losses) < _MAX_UNKNOWN:
            self.losses.add("/parts", f"{concept} {kind}"[:80], "dropped", "unknown type", "info")

    def _report(self, concept: str, detail: str) -> None:
        self.losses.add("/parts", concept, "dropped", detail)

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
        """Close all blocks and emit the end of the answer; only the stop reason shows whether a call was truncated.

        Input after the complete input of a call is reported if it differs; raise ProtocolError if the call had none.
        """
        stop = read_stop(self._stop, has_calls=self._has_calls)
        cut = self._find_cut() if stop is not None and is_truncated(stop) else None
        for index in sorted(self._blocks):
            self._close_block(index, events, is_cut=self._blocks[index] is cut)
        self._end_pending(events, is_cut=cut is not None and self._pending is cut)
        for block in self._late:
            if not repeats_arguments(block.late, block.arguments):
                if block.kind == "tool_use" and not block.pieces:
                    raise ProtocolError("a call that ended without input gets input", pointer="/index", status=502)
                self._report("input", "it came after the complete input of the call")
        for name, fields in read_unknown(self._stop, ("stop_reason", "stop_sequence", "stop_details"), NAME).items():
            self._extra = {**self._extra, name: {**self._extra.get(name, {}), **fields}}
        events.append(ResponseEnd((stop,) if stop is not None else (), self._extra))

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
    "ping": lambda _decoder, _event, events: events.append(Ping()),
    "error": MessagesStreamDecoder._error,
}


def _read_block_index(event: Object) -> int | None:
    index = read_index(event, "index")
    if index is not None and index < 0:
        raise ProtocolError("expected a non-negative block index", pointer="/index", status=502)
    return index
