"""Decode ConverseStream answers: messages of a binary event stream, each with one JSON document.

    messageStart ▶ ( [contentBlockStart] ▶ contentBlockDelta* ▶ contentBlockStop )* ▶ messageStop ▶ metadata

Only calls, results and images have a start; a text or reasoning begins with its first delta. Every event may have a field `p`
of random length, which hides the length of the text. Events of servers that imitate the wire may come in another order, so
nothing depends on `messageStart`, on stops of blocks, or on the position of `metadata`.

A call is complete if its input is, unless a limit ended the answer in it: only the stop reason shows that. So the end of the
last call is not emitted before the next block or the stop reason, and neither is a closing brace at the end of its input.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable

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
from ...ir.parts import Artefact, Extra
from ...ir.pointer import JSON, Object
from ...ir.response import Stop
from ...ir.text import dumps, to_line, unescape
from ...stream.event_stream import EventMessage, EventStreamDecoder
from ...stream.strict import parse_arguments
from ..fields import (
    is_empty,
    read_index,
    read_label,
    read_optional_string,
    read_string,
    read_unknown,
    require_object,
)
from ..streaming.decoder import BaseStreamDecoder, Fragments
from .blocks import CITATIONS, read_answer_block
from .fault import read_fault
from .media import NAME, PROVIDER
from .response import FORM, decode_response, is_cut, read_stop, read_usage, stop_fault

_EXCEPTION = b"exception:"  # before the type of an exception, in the name of its frame
_PADDING = "p"
_MAX_UNKNOWN = 100  # losses up to which unknown events are reported: an upstream could send many of them
_SPOKEN = {"text": TextDelta, "reasoning": ReasoningDelta}


class _StreamedBlock:
    """A block that is not closed yet."""

    def __init__(self, index: int, key: int, kind: str, fields: Object) -> None:
        """Create a block with the key of its events and the `fields` of its start."""
        self.index = index
        self.key = key
        self.kind = kind
        self.fields = fields
        self.pieces: list[bytes] = []  # escaped input of a call
        self.held = b""  # a closing brace at the end of the input so far, which is not emitted yet
        self.artefacts: dict[str, list[str]] = {}  # pieces, by kind
        self.citations: list[JSON] = []
        self.contents: list[JSON] = []  # of a result
        self.fragments = Fragments()  # of an image, and of a block of an unknown kind


class ConverseStreamDecoder(BaseStreamDecoder):
    """Decoder of ConverseStream answers: feed it bytes, get events."""

    text_fields = frozenset({"text", "input"})

    def __init__(self) -> None:
        super().__init__()
        self._messages = EventStreamDecoder()
        self._has_begun = False
        self._blocks: dict[int, _StreamedBlock] = {}
        self._last_call: _StreamedBlock | None = None  # stopped, and no block has started after it
        self._index = -1  # of the last block
        self._has_calls = False
        self._stop: Stop | None = None
        self._has_stop = False
        self._has_usage = False
        self._extra: Extra = {}

    def _frames(self, data: bytes) -> Iterable[tuple[bytes, bytes]]:
        return map(_read_message, self._messages.feed(data))

    def _last_frames(self) -> Iterable[tuple[bytes, bytes]]:
        """End the input. After the stop reason, only counts are missing from a stream that was cut."""
        try:
            self._messages.close()
        except TruncatedStream:
            if not self._has_stop:
                raise
        return ()

    def _read_document(self, document: Object, events: list[Event]) -> None:
        self._add_whole(decode_response(document), events)

    def _is_complete(self) -> bool:
        return self._has_stop

    def _frame(self, name: bytes, payload: bytes, events: list[Event]) -> None:
        """Decode one event. One of an unknown type is reported as a loss."""
        event = self._read_object(payload)
        if name.startswith(_EXCEPTION):
            self._over = True
            error_type = name.removeprefix(_EXCEPTION).decode("utf-8", "replace")
            events.append(StreamFault(read_fault(event, error_type=error_type)))
            return
        step = _STEPS.get(name)
        if step is None:
            self._report_unknown("event", name.decode("utf-8", "replace"))
            return
        if not self._has_begun:
            self._has_begun = True
            events.append(ResponseStart())
        step(self, event, events)

    def _message_start(self, event: Object, _: list[Event]) -> None:
        self._keep(event, ("role", _PADDING))

    def _keep(self, event: Object, known: tuple[str, ...]) -> None:
        self._extra = merge_extra(self._extra, read_unknown(event, known, NAME))

    def _block_start(self, event: Object, events: list[Event]) -> None:
        """Open a block. A start that repeats the open call is ignored; another one ends the block of its index."""
        start = require_object(event.get("start"), "start")
        index = self._read_index(event, self._index + 1)
        kind, value = next(((kind, value) for kind, value in start.items() if value is not None), ("text", {}))
        fields = value if type(value) is dict else {}
        block = self._blocks.get(index)
        if kind == "toolUse" and block is not None and block.fields and block.fields == fields:
            return
        if kind == "toolUse" and not fields.get("type"):
            self._open_call(index, fields, start, events)
        elif kind in ("text", "reasoningContent"):
            self._open_block(index, _KINDS[kind][0], {}, events)
        else:
            self._open_block(index, kind if kind in _DELTAS else "", start, events)

    def _open_call(self, index: int, fields: Object, start: Object, events: list[Event]) -> None:
        block = self._open_block(index, "call", fields, events)
        self._has_calls = True
        extra = read_unknown(fields, ("toolUseId", "name", "input", "type"), f"{NAME}/toolUse")
        extra |= read_unknown(start, ("toolUse",), NAME)
        events.append(CallStart(block.key, read_label(fields, "toolUseId"), read_string(fields, "name"), extra=extra))
        whole: JSON = fields.get("input")
        if not is_empty(whole):  # a server without deltas
            self._append_input(block, whole if type(whole) is str else dumps(whole), events)

    def _open_block(self, index: int, kind: str, fields: Object, events: list[Event]) -> _StreamedBlock:
        """Open a block; it ends the open block of its index, and the last call. Return it."""
        if index in self._blocks:
            self._close_block(self._blocks.pop(index), events)
        self._end_last_call(events)
        block = self._blocks[index] = _StreamedBlock(index, self._new_key(), kind, fields)
        self._index = index
        if kind == "text":
            events.append(TextStart(block.key))
        elif kind == "reasoning":
            events.append(ReasoningStart(block.key))
        return block

    def _read_index(self, event: Object, default: int) -> int:
        index = read_index(event, "contentBlockIndex")
        if index is not None and index < 0:
            raise ProtocolError("expected a non-negative block index", pointer="/contentBlockIndex", status=502)
        return default if index is None else index

    def _block_delta(self, event: Object, events: list[Event]) -> None:
        """Apply a delta to its block. Text and reasoning open a block if another kind, or none, is open there."""
        delta = require_object(event.get("delta"), "delta")
        index = self._read_index(event, max(self._index, 0))
        for kind, value in delta.items():
            step = _DELTAS.get(kind)
            block = self._blocks.get(index)
            if value is None:
                continue
            if step is None and block is not None and block.kind in _KNOWN:
                self._report_unknown("delta", kind)
                continue
            if step is None:
                (block or self._open_block(index, "", {}, events)).fragments.add({kind: value})
                continue
            kinds = _KINDS.get(kind, (kind,))
            if block is None or block.kind not in kinds:
                if kind == "toolUse":
                    raise ProtocolError(f"no call is open at {index}", pointer="/contentBlockIndex", status=502)
                block = self._open_block(index, kinds[0], {}, events)
            step(self, block, value, events)

    def _text(self, block: _StreamedBlock, value: JSON, events: list[Event]) -> None:
        escaped = self._escape(block.key, value) if type(value) is str else b""
        if escaped:
            events.append(_SPOKEN[block.kind](block.key, escaped))

    def _reasoning(self, block: _StreamedBlock, value: JSON, events: list[Event]) -> None:
        fields = require_object(value, "delta", "reasoningContent")
        self._text(block, fields.get("text"), events)
        for field, kind in (("signature", "signature"), ("redactedContent", "redacted")):
            if data := read_optional_string(fields, field):
                block.artefacts.setdefault(kind, []).append(data)

    def _citation(self, block: _StreamedBlock, value: JSON, _: list[Event]) -> None:
        block.citations.append(value)

    def _tool_use(self, block: _StreamedBlock, value: JSON, events: list[Event]) -> None:
        fragment: JSON = value if type(value) is str else require_object(value, "delta", "toolUse").get("input")
        text = fragment if type(fragment) is str else "" if is_empty(fragment) else dumps(fragment)
        if block.kind == "call":
            self._append_input(block, text, events)
        else:
            block.pieces.append(self._escape(block.key, text))

    def _append_input(self, block: _StreamedBlock, text: str, events: list[Event]) -> None:
        """Append to the input of a call; a closing brace at its end is held."""
        escaped = self._escape(block.key, text)
        if not escaped:
            return
        block.pieces.append(escaped)
        escaped, block.held = block.held + escaped, b""
        if escaped.endswith(b"}"):
            escaped, block.held = escaped[:-1], b"}"
        if escaped:
            events.append(CallDelta(block.key, escaped))

    def _tool_result(self, block: _StreamedBlock, value: JSON, events: list[Event]) -> None:
        """Collect the content of a result. Adjacent texts are one text."""
        del events
        for piece in value if type(value) is list else [value]:
            last = block.contents[-1] if block.contents else None
            if type(piece) is dict and type(last) is dict and piece.keys() == last.keys() == {"text"}:
                block.contents[-1] = {"text": f"{last['text']}{piece['text']}"}
            else:
                block.contents.append(piece)

    def _image(self, block: _StreamedBlock, value: JSON, events: list[Event]) -> None:
        """Collect an image, whose bytes may come in several pieces of base64."""
        del events
        fields = require_object(value, "delta", "image")
        source = fields.get("source")
        if type(source) is dict and type(source.get("bytes")) is str:
            block.artefacts.setdefault("bytes", []).append(source["bytes"])
            fields = {name: inner for name, inner in fields.items() if name != "source"}
        block.fragments.add(fields)

    def _block_stop(self, event: Object, events: list[Event]) -> None:
        """Close a block; the last call is closed later. A stop without an open block is ignored."""
        block = self._blocks.pop(self._read_index(event, self._index), None)
        if block is not None:
            self._stop_block(block, events)

    def _stop_block(self, block: _StreamedBlock, events: list[Event]) -> None:
        if block.kind == "call" and block.key == self._next_key - 1:
            self._last_call = block
        else:
            self._close_block(block, events)

    def _end_last_call(self, events: list[Event], *, cut: bool = False) -> None:
        if self._last_call is not None:
            block, self._last_call = self._last_call, None
            self._close_block(block, events, cut=cut)

    def _close_block(self, block: _StreamedBlock, events: list[Event], *, cut: bool = False) -> None:
        """Emit the end of a block. `cut`: a limit or a filter ended the answer in this call."""
        if half := self._flush_surrogate(block.key):
            block.pieces.append(half)  # of a call
            events += [_SPOKEN[block.kind](block.key, half)] if block.kind in _SPOKEN else []
        if block.kind == "call":
            self._end_call(block, events, cut=cut)
        elif block.kind == "text":
            extra: Extra = {CITATIONS: {"citations": block.citations}} if block.citations else {}
            events.append(TextEnd(block.key, (), extra))
        elif block.kind == "reasoning":
            events.append(ReasoningEnd(block.key, _artefacts(block)))
        else:
            events.append(WholePart(block.key, read_answer_block(_whole_block(block))))

    def _end_call(self, block: _StreamedBlock, events: list[Event], *, cut: bool) -> None:
        raw = unescape(b"".join(block.pieces))
        arguments, state = parse_arguments(raw)
        if cut and state == "complete":
            arguments, state = None, "truncated"
            raw = raw.rstrip()[:-1] if block.held else raw
        elif block.held:
            events.append(CallDelta(block.key, block.held))
        is_whole = state == "complete"
        events.append(CallEnd(block.key, arguments or {}) if is_whole else CallEnd(block.key, None, raw, state))

    def _message_stop(self, event: Object, events: list[Event]) -> None:
        """Close all blocks. The stop reason shows whether the last call was cut."""
        self._stop = read_stop(event, has_calls=self._has_calls)
        self._has_stop = True
        self._keep(event, ("stopReason", _PADDING))
        cut = self._stop is not None and is_cut(self._stop)
        for index in sorted(self._blocks):
            self._stop_block(self._blocks.pop(index), events)
        self._end_last_call(events, cut=cut)

    def _metadata(self, event: Object, events: list[Event]) -> None:
        """Emit the usage. After the stop reason, the answer is complete."""
        if (usage := read_usage(event.get("usage"))) is not None:
            self._has_usage = True
            events.append(UsageUpdate(usage))
        self._keep(event, ("usage", _PADDING))
        if self._has_stop:
            self._finish(events)
            self._over = True

    def _finish(self, events: list[Event]) -> None:
        absent: Extra = {} if self._has_usage else {FORM: {":usage": "absent"}}
        end = ResponseEnd(() if self._stop is None else (self._stop,), merge_extra(self._extra, absent))
        fault = stop_fault(self._stop)
        events.append(end if fault is None else StreamFault(fault, end))

    def _report_unknown(self, concept: str, kind: str) -> None:
        """Report an event or a delta of an unknown type; the number of losses is limited, as the server makes the names."""
        if len(self.losses) < _MAX_UNKNOWN:
            self.losses.add("/parts", f"{concept} {kind}"[:80], "dropped", "unknown type", "info")


def _read_message(message: EventMessage) -> tuple[bytes, bytes]:
    """Return the name and the document of a message; an error has its text in a header."""
    kind = message.text(":message-type")
    if kind == "error":
        body = to_line({"message": message.text(":error-message")})
        return _EXCEPTION + message.text(":error-code").encode(), body
    if kind == "exception":
        return _EXCEPTION + message.text(":exception-type").encode(), message.payload or b"{}"
    return message.text(":event-type").encode(), message.payload or b"{}"


def _artefacts(block: _StreamedBlock) -> tuple[Artefact, ...]:
    joins = {"signature": "".join, "redacted": _join_base64}
    return tuple([Artefact(PROVIDER, kind, joins[kind](pieces)) for kind, pieces in block.artefacts.items()])


def _join_base64(pieces: list[str]) -> str:
    """Return the base64 of the bytes of several pieces; text that is no base64 is joined as it is."""
    if len(pieces) == 1:
        return pieces[0]
    try:
        return b64encode(b"".join([b64decode(piece, validate=True) for piece in pieces])).decode()
    except (binascii.Error, ValueError):
        return "".join(pieces)


def _whole_block(block: _StreamedBlock) -> Object:
    """Return the block of a whole answer for a result, an image, a call that the provider runs, or an unknown kind."""
    start = block.fields.get(block.kind)
    fields = start if type(start) is dict else {}
    if block.kind == "toolResult":
        return {"toolResult": {**fields, "content": block.contents}}
    if block.kind == "toolUse":
        arguments = parse_arguments(unescape(b"".join(block.pieces)))[0]
        return {"toolUse": {**fields, "input": arguments or fields.get("input") or {}}}
    if block.kind == "image":
        source = {"bytes": _join_base64(block.artefacts["bytes"])} if "bytes" in block.artefacts else {}
        return {"image": {**fields, **({"source": source} if source else {}), **block.fragments.join()}}
    block.fragments.add(block.fields)
    return block.fragments.join()


_DeltaStep = Callable[[ConverseStreamDecoder, _StreamedBlock, JSON, list[Event]], None]
# the kinds of blocks that a delta belongs to; the first one is opened
_KINDS = {"text": ("text",), "citation": ("text",), "reasoningContent": ("reasoning",), "toolUse": ("call", "toolUse")}
_KNOWN = frozenset({"text", "reasoning", "call", "toolUse", "toolResult", "image"})
_DELTAS: dict[str, _DeltaStep] = {
    "text": ConverseStreamDecoder._text,
    "reasoningContent": ConverseStreamDecoder._reasoning,
    "citation": ConverseStreamDecoder._citation,
    "toolUse": ConverseStreamDecoder._tool_use,
    "toolResult": ConverseStreamDecoder._tool_result,
    "image": ConverseStreamDecoder._image,
}
_STEPS: dict[bytes, Callable[[ConverseStreamDecoder, Object, list[Event]], None]] = {
    b"messageStart": ConverseStreamDecoder._message_start,
    b"contentBlockStart": ConverseStreamDecoder._block_start,
    b"contentBlockDelta": ConverseStreamDecoder._block_delta,
    b"contentBlockStop": ConverseStreamDecoder._block_stop,
    b"messageStop": ConverseStreamDecoder._message_stop,
    b"metadata": ConverseStreamDecoder._metadata,
}
