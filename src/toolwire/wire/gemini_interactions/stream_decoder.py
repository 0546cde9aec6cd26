"""Decode Interactions streams: numbered steps that open, grow and stop.

    interaction.created → (step.start → step.delta* → step.stop)* → interaction.completed           | error
    interaction.status_update, at any time

Several steps may be open at once. A step of a known kind becomes items: each text of a `model_output` is one, and media
are whole parts between the texts. A step of any other kind is one opaque part, with the fields of its deltas.

Arguments of a call arrive as JSON text; `{}` in its start is a placeholder. A call that stops without arguments is held
back until the next step: if the status is `incomplete`, its arguments may not have arrived. Fields that repeat the
request are only in the last event; they are form. So is the time, which an answer has at its start: it is not read there.

Events of the revision before 2026-05-20 have other names and a content in place of a step, and are read the same way.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable

from msgspec.structs import replace

from ...ir.errors import ProtocolError
from ...ir.events import (
    CallDelta,
    CallEnd,
    CallStart,
    Event,
    PartStart,
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
from ...ir.parts import Artefact, Extra, Media, Opaque, Text, ToolCall
from ...ir.pointer import JSON, Object
from ...ir.text import dumps, unescape
from ...stream.strict import parse_arguments
from ..fields import (
    decode_list,
    odd_values,
    read_index,
    read_label,
    read_string,
    read_unknown,
    require_object,
    type_error,
)
from ..streaming.decoder import BaseStreamDecoder, Fragments
from .content import FORM, NAME, PROVIDER, is_content_document, own_fields, read_content
from .fault import read_fault
from .response import (
    ECHO,
    ENVELOPE,
    ENVELOPE_TYPES,
    decode_response,
    ended_early,
    read_created,
    read_response_fault,
    read_stop,
    read_usage,
)
from .steps import STEP, mark_joined, read_model_step

_MAX_UNKNOWN = 100  # losses up to which unknown events are reported: an upstream could send many of them
_STREAMED_MEDIA = ("audio", "video")  # data that arrives in several deltas; images and documents are whole
_THOUGHT = ("type", "signature", "summary")
_CALL = ("type", "id", "name", "arguments", "signature")
_ANNOTATIONS = ("text_annotation_delta", "text_annotation")


class _OpenStep:
    """A step that has started and not stopped."""

    def __init__(self, kind: str, key: int) -> None:
        self.kind = kind
        self.key = key  # of its item; of a `model_output`, of the open text, or -1
        self.count = 0  # items of a `model_output` so far
        self.extra: Extra = {}  # own fields of a `model_output`, until its first item
        self.annotations: list[JSON] = []
        self.media: list[Object] = []  # pieces of streamed media
        self.section = 0  # of a summary
        self.placeholder: JSON = None  # the arguments in the start of a call
        self.pieces: list[bytes] = []  # of the arguments of a call, escaped
        self.artefacts: tuple[Artefact, ...] = ()
        self.fragments = Fragments()  # fields of a step of another kind


class InteractionsStreamDecoder(BaseStreamDecoder):
    """Decoder of Interactions streams: feed it bytes, get events."""

    text_fields = frozenset({"text", "arguments"})

    def __init__(self) -> None:
        super().__init__()
        self._started = False
        self._steps: dict[int, _OpenStep] = {}  # the open steps, by index
        self._next_index = 0  # of a step without an index
        self._has_calls = False
        self._status: Object = {}  # status and token of the latest update
        self._pending: CallEnd | None = None  # the end of a call without arguments

    def _read_document(self, document: Object, events: list[Event]) -> None:
        self._add_whole(decode_response(document), events)

    def _is_complete(self) -> bool:
        return self._has_end_marker and self._started and not self._steps

    def _frame(self, name: bytes, payload: bytes, events: list[Event]) -> None:
        """Decode one event. An event of an unknown type is reported as a loss, unless it has an error."""
        event = self._read_object(payload)
        kind = event.get("event_type", name.decode("utf-8", "replace"))
        step = _STEPS.get(kind) if type(kind) is str else None
        if step is not None:
            if not self._started and step is not InteractionsStreamDecoder._on_created:
                self._on_created({"interaction": event.get("interaction") or {}}, events)
            step(self, event, events)
        elif event.get("error"):
            self._over = True
            events.append(StreamFault(read_fault(event)))
        elif len(self.losses) < _MAX_UNKNOWN:
            self.losses.add("/parts", f"event {kind}"[:80], "dropped", "unknown type", "info")

    def _on_created(self, event: Object, events: list[Event]) -> None:
        """Emit ResponseStart, once."""
        if self._started:
            return
        self._started = True
        interaction = require_object(event.get("interaction"), "interaction")
        odd = odd_values(interaction, ENVELOPE_TYPES, NAME)
        created = read_created(interaction)
        events.append(ResponseStart(read_label(interaction, "id"), read_label(interaction, "model"), created, odd))

    def _on_status(self, event: Object, events: list[Event]) -> None:
        self._status.update((name, event[name]) for name in ("status", "continuation_token") if event.get(name))
        self._update_usage(event.get("usage"), events)

    def _update_usage(self, raw: JSON, events: list[Event]) -> None:
        usage = read_usage(raw)
        if usage is not None:
            events.append(UsageUpdate(usage))

    # steps

    def _on_start(self, event: Object, events: list[Event]) -> None:
        """Open a step; an open one with the same index ends."""
        raw = require_object(event.get("step", event.get("content")), "step")
        index = read_index(event, "index")
        index = self._next_index if index is None else index
        if index in self._steps:
            self._close(index, events)
        self._open(index, raw, events)

    def _open(self, index: int, raw: Object, events: list[Event]) -> _OpenStep:
        self._end_pending(events)
        self._next_index = index + 1
        kind = read_string(raw, "type")
        is_output = kind == "model_output" or is_content_document(raw)
        step = self._steps[index] = _OpenStep(
            "model_output" if is_output else kind, -1 if is_output else self._new_key()
        )
        if is_output:
            step.extra = read_unknown(raw, ("type", "content"), STEP) if kind == "model_output" else {}
            contents = raw.get("content") if kind == "model_output" else [raw] if len(raw) > 1 else []
            for content in contents if type(contents) is list else []:
                self._add_content(step, require_object(content, "step", "content"), events)
        elif kind == "thought":
            events.append(ReasoningStart(step.key, 0, read_unknown(raw, _THOUGHT, NAME)))
            self._read_signature(step, raw.get("signature"))
            summary = raw.get("summary")
            for number, content in enumerate(summary if type(summary) is list else []):
                step.section = number
                self._add_summary(step, content, events)
        elif kind == "function_call":
            self._has_calls = True
            call_id, call_name = read_label(raw, "id"), read_string(raw, "name")
            events.append(CallStart(step.key, call_id, call_name, extra=read_unknown(raw, _CALL, NAME)))
            self._read_signature(step, raw.get("signature"))
            step.placeholder = raw.get("arguments")
        else:
            step.fragments.add(raw)
            events.append(PartStart(step.key, Opaque(NAME, kind, raw)))
        return step

    def _on_delta(self, event: Object, events: list[Event]) -> None:
        """Apply a delta to its step. Text, and thoughts, open one if the server has omitted its start."""
        delta = require_object(event.get("delta"), "delta")
        metadata = event.get("metadata")
        if type(metadata) is dict:
            self._update_usage(metadata.get("total_usage"), events)
        kind = delta.get("type")
        index = read_index(event, "index")
        index = self._next_index - 1 if index is None else index
        step = self._steps.get(index)
        if step is None:
            implied = _IMPLIED.get(kind) if type(kind) is str else None
            if implied is None:
                raise ProtocolError(f"step {event.get('index')} is not open", pointer="/index", status=502)
            step = self._open(index, {"type": implied}, events)
        if step.kind == "model_output":
            self._add_content(step, delta, events)
        elif step.kind == "thought":
            self._add_thought(step, delta, events)
        elif step.kind == "function_call":
            self._add_arguments(step, delta, events)
        else:
            step.fragments.add({name: value for name, value in delta.items() if name != "type"})

    def _add_content(self, step: _OpenStep, content: Object, events: list[Event]) -> None:
        """Add a content, or more of one, to a `model_output`."""
        kind = content.get("type")
        if kind in _ANNOTATIONS:
            annotations = content.get("annotations")
            self._open_text(step, events)
            step.annotations += annotations if type(annotations) is list else [annotations]
        elif kind == "text" or (kind is None and "text" in content):
            self._open_text(step, events)
            text = content.get("text")
            if type(text) is not str:
                raise type_error("a string", text, "delta", "text")
            if escaped := self._escape(step.key, text):
                events.append(TextDelta(step.key, escaped))
            if type(content.get("annotations")) is list:
                step.annotations += content["annotations"]
        elif kind in _STREAMED_MEDIA and (not step.media or step.media[0]["type"] == kind):
            self._end_text(step, events)
            step.media.append(content)
        else:
            self._end_text(step, events)
            self._end_media(step, events)
            self._add_part(step, read_content(content), events)

    def _open_text(self, step: _OpenStep, events: list[Event]) -> None:
        self._end_media(step, events)
        if step.key < 0:
            step.key = self._new_key()
            events.append(TextStart(step.key, extra=self._take_extra(step)))

    def _take_extra(self, step: _OpenStep) -> Extra:
        """Return the extra of the next item: the step's own fields for the first one, a mark for the others."""
        step.count += 1
        return step.extra if step.count == 1 else {FORM: {":joined": True}}

    def _end_text(self, step: _OpenStep, events: list[Event]) -> None:
        if step.key < 0:
            return
        if half := self._flush_surrogate(step.key):
            events.append(TextDelta(step.key, half))
        events.append(TextEnd(step.key, (), {NAME: {"annotations": step.annotations}} if step.annotations else {}))
        step.key, step.annotations = -1, []

    def _end_media(self, step: _OpenStep, events: list[Event]) -> None:
        """Emit streamed media as one part: the fields of its pieces, and their data in one."""
        if not step.media:
            return
        pieces, step.media = step.media, []
        whole = {name: value for piece in pieces for name, value in piece.items() if value is not None}
        data = [piece["data"] for piece in pieces if type(piece.get("data")) is str]
        if len(data) > 1:
            whole["data"] = _join_base64(data)
        self._add_part(step, read_content(whole), events)

    def _add_part(self, step: _OpenStep, part: Text | Media | Opaque, events: list[Event]) -> None:
        if isinstance(part, Media):
            extra = self._take_extra(step)
            part = mark_joined(part) if FORM in extra else replace(part, extra={**own_fields(part.extra), **extra})
        events.append(WholePart(self._new_key(), part))

    def _add_thought(self, step: _OpenStep, delta: Object, events: list[Event]) -> None:
        if delta.get("type") == "thought_summary":
            self._add_summary(step, delta.get("content"), events)
        else:
            self._read_signature(step, delta.get("signature"))

    def _add_summary(self, step: _OpenStep, content: JSON, events: list[Event]) -> None:
        """Add text to the summary of a thought. An image, which no other wire has there, is reported as a loss."""
        text = content.get("text") if type(content) is dict else None
        if type(text) is not str:
            if content is not None and len(self.losses) < _MAX_UNKNOWN:
                self.losses.add("/parts", "image of a thought", "dropped", "reasoning has only text here")
            return
        if escaped := self._escape(step.key, text):
            events.append(ReasoningDelta(step.key, escaped, step.section))

    def _read_signature(self, step: _OpenStep, value: JSON) -> None:
        if value and type(value) is str:
            step.artefacts = (Artefact(PROVIDER, "thought_signature", value),)

    def _add_arguments(self, step: _OpenStep, delta: Object, events: list[Event]) -> None:
        """Add a fragment of a call's arguments. Arguments as an object are whole."""
        self._read_signature(step, delta.get("signature"))
        value = delta.get("arguments")
        text = dumps(value) if value and type(value) is dict else value
        if text and type(text) is str and (escaped := self._escape(step.key, text)):
            step.pieces.append(escaped)
            events.append(CallDelta(step.key, escaped))

    def _on_stop(self, event: Object, events: list[Event]) -> None:
        """Close a step. The usage here is of the interaction so far; a stop without an open step carries nothing else."""
        index = read_index(event, "index")
        index = self._next_index - 1 if index is None else index
        if index in self._steps:
            self._close(index, events)
        self._update_usage(event.get("usage"), events)

    def _close(self, index: int, events: list[Event], *, is_cut: bool = False) -> None:
        """Emit the end of a step. `is_cut`: a limit ended the interaction before the step stopped."""
        step = self._steps.pop(index)
        if step.kind == "model_output":
            self._end_text(step, events)
            self._end_media(step, events)
            if not step.count and step.extra:
                value = {"type": "model_output", **step.extra.get(STEP, {})}
                events.append(WholePart(self._new_key(), Opaque(NAME, "model_output", value)))
        elif step.kind == "thought":
            if half := self._flush_surrogate(step.key):
                events.append(ReasoningDelta(step.key, half, step.section))
            events.append(ReasoningEnd(step.key, step.artefacts))
        elif step.kind == "function_call":
            self._close_call(step, events, is_cut=is_cut)
        else:
            events.append(WholePart(step.key, Opaque(NAME, step.kind, step.fragments.join())))

    def _close_call(self, step: _OpenStep, events: list[Event], *, is_cut: bool) -> None:
        """End a call with the text of its deltas, or else with the arguments of its start."""
        if half := self._flush_surrogate(step.key):
            step.pieces.append(half)
            events.append(CallDelta(step.key, half))
        if not step.pieces and step.placeholder:
            self._add_arguments(step, {"arguments": step.placeholder}, events)
        if not step.pieces:
            self._end_pending(events)
            self._pending = CallEnd(step.key, {}, None, "complete", step.artefacts)
            if is_cut:
                self._end_pending(events, is_cut=True)
            return
        raw = unescape(b"".join(step.pieces))
        arguments, state = parse_arguments(raw)
        events.append(CallEnd(step.key, arguments, None if state == "complete" else raw, state, step.artefacts))

    def _end_pending(self, events: list[Event], *, is_cut: bool = False) -> None:
        if self._pending is not None:
            cut = replace(self._pending, arguments=None, raw="", state="truncated")
            events.append(cut if is_cut else self._pending)
            self._pending = None

    # the end

    def _on_completed(self, event: Object, events: list[Event]) -> None:
        """End the answer. Steps that no event has sent are read from the interaction."""
        interaction = require_object(event.get("interaction"), "interaction")
        if not self.item_count and type(interaction.get("steps")) is list:
            for parts in decode_list(interaction, "steps", read_model_step):
                for part in parts:
                    self._has_calls = self._has_calls or type(part) is ToolCall
                    part = part if isinstance(part, Opaque) else replace(part, extra=own_fields(part.extra))
                    events.extend(unfold_part(self._new_key(), 0, part))
        self._update_usage(interaction.get("usage"), events)
        self._status = {**self._status, **interaction}
        self._finish(events)
        self._over = True

    def _finish(self, events: list[Event]) -> None:
        """End the open steps and the answer; a failed interaction is a fault."""
        stop = read_stop(self._status, has_calls=self._has_calls)
        is_cut = ended_early(stop)
        last = max(self._steps, default=-1)
        for index in sorted(self._steps):
            self._close(index, events, is_cut=is_cut and index == last)
        self._end_pending(events, is_cut=is_cut)
        extra = read_unknown(self._status, ENVELOPE, NAME)
        repeated = {name: self._status[name] for name in ECHO if self._status.get(name) is not None}
        if repeated:
            extra = {**extra, FORM: repeated}
        end = ResponseEnd((stop,) if stop is not None else (), extra)
        fault = read_response_fault(self._status)
        events.append(end if fault is None else StreamFault(fault, end))

    def _on_error(self, event: Object, events: list[Event]) -> None:
        self._over = True
        events.append(StreamFault(read_fault(event)))


def _join_base64(pieces: list[str]) -> str:
    """Join base64 texts into one; the data of pieces that end with padding is encoded again."""
    if not any(piece.endswith("=") or len(piece) % 4 for piece in pieces[:-1]):
        return "".join(pieces)
    try:
        return b64encode(b"".join([b64decode(piece, validate=True) for piece in pieces])).decode()
    except ValueError:
        return "".join(pieces)


_IMPLIED = {
    "text": "model_output",
    "thought_summary": "thought",
    "thought_signature": "thought",
}
_CREATED, _COMPLETED = InteractionsStreamDecoder._on_created, InteractionsStreamDecoder._on_completed
_START, _DELTA, _STOP = (
    InteractionsStreamDecoder._on_start,
    InteractionsStreamDecoder._on_delta,
    InteractionsStreamDecoder._on_stop,
)
_STEPS: dict[str, Callable[[InteractionsStreamDecoder, Object, list[Event]], None]] = {
    "interaction.created": _CREATED,
    "interaction.status_update": InteractionsStreamDecoder._on_status,
    "step.start": _START,
    "step.delta": _DELTA,
    "step.stop": _STOP,
    "interaction.completed": _COMPLETED,
    "error": InteractionsStreamDecoder._on_error,
    # before 2026-05-20
    "interaction.start": _CREATED,
    "content.start": _START,
    "content.delta": _DELTA,
    "content.stop": _STOP,
    "interaction.complete": _COMPLETED,
}
