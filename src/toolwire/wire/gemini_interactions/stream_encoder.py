"""Encode Interactions streams.

    interaction.created → status_update → (step.start → step.delta* → step.stop)* → interaction.completed → [DONE]

Each item is a step of its own. A text or a thought starts with its first fragment, because clients show a step that has
started, or with the next item, because clients order steps by their start. A call whose arguments are incomplete gets no `step.stop`, after which a client would run it.
"""

from __future__ import annotations

from typing import Any

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
    WholePart,
)
from ...ir.folding import merge_extra
from ...ir.parts import Media, Opaque, Reasoning, ToolCall
from ...ir.pointer import Object
from ...ir.request import Request
from ...ir.text import dumps, escape, to_line, unescape
from ..codec import report_incomplete_call, report_search_call, stop_without_call
from ..content import placeholder_arguments
from ..fields import write_extra
from ..streaming.encoder import BaseStreamEncoder
from .content import FORM, LABEL, NAME, has_own_fields, is_content, write_content
from .fault import write_error
from .response import ENVELOPE, ONE_CHOICE, write_status, write_times, write_usage
from .step_writer import own_signature, write_model_step, write_moved_signature
from .steps import STEP

_STARTS = frozenset({TextStart, ReasoningStart, CallStart, PartStart, WholePart})
_DONE = b"event: done\ndata: [DONE]\n\n"
_DELTAS = {"text": (b'{"type":"text","text":"', b'"}'), "call": (b'{"type":"arguments_delta","arguments":"', b'"}')}
_SUMMARY = (b'{"type":"thought_summary","content":{"type":"text","text":"', b'"}}')


class _WrittenStep:
    """A step that is being written."""

    __slots__ = ("after", "before", "index", "pieces", "start")

    def __init__(self, index: int, start: Any, around: tuple[bytes, bytes]) -> None:
        """Create a step; `start` is its start event, and `around` the bytes of a delta around its fragment."""
        self.index = -1 if index < 0 else index
        self.start = start
        self.before = b'event: step.delta\ndata: {"event_type":"step.delta","index":%d,"delta":%b' % (index, around[0])
        self.after = around[1] + b"}\n\n"
        self.pieces: list[bytes] = []  # input of a freeform call


class InteractionsStreamEncoder(BaseStreamEncoder):
    """Encoder of an Interactions stream: feed it events, get bytes."""

    def __init__(self, request: Request | None = None) -> None:
        super().__init__()
        del request  # no field of an answer depends on it
        self._base: Object = {}
        self._count = 0  # of the steps so far
        self._steps: dict[int, _WrittenStep] = {}  # by key: open items
        self._begun: set[int] = set()  # keys of items whose step has started
        self._waiting: dict[int, _WrittenStep] = {}  # by key: texts and thoughts whose step has not started
        self._dropped: set[int] = set()  # keys of items of other choices
        self._broken: ToolCall | None = None  # the first incomplete call

    def _write(self, event: Event) -> bytes:
        """Write an event; items of other choices are dropped."""
        if getattr(event, "choice", 0):
            self._dropped.add(event.key)  # type: ignore[union-attr]
            self._report_alternatives(ONE_CHOICE)
        if getattr(event, "key", None) in self._dropped:
            return b""
        written = super()._write(event)
        if self._waiting and type(event) in _STARTS:
            earlier = [step for key, step in self._waiting.items() if key != event.key]  # type: ignore[union-attr]
            return b"".join([*map(self._begin_item, earlier), written])
        return written

    def _begin_item(self, step: _WrittenStep) -> bytes:
        return self._begin_text(step) if isinstance(step.start, TextStart) else self._begin_thought(step)

    def find_frame(self, key: int) -> tuple[bytes, bytes] | None:
        step = self._steps.get(key)
        if step is None or key not in self._begun or isinstance(step.start, ReasoningStart):
            return None
        return None if getattr(step.start, "kind", "") == "freeform" else (step.before, step.after)

    def _event(self, name: str, **fields: Any) -> bytes:
        return b"event: %b\ndata: %b\n\n" % (name.encode(), to_line({"event_type": name, **fields}))

    def _start(self, event: ResponseStart) -> bytes:
        self._base = {"id": event.id, "status": "in_progress", "object": "interaction", "model": event.model}
        self._base.update(write_times(event.created, {}, self.losses))
        own = event.extra.get(NAME, {})
        created = self._event("interaction.created", interaction={**self._base, **own})
        return created + self._event("interaction.status_update", interaction_id=event.id, status="in_progress")

    def _open(self, event: Any, around: tuple[bytes, bytes]) -> _WrittenStep:
        step = self._steps[event.key] = _WrittenStep(self._count, event, around)
        self._count += 1
        return step

    def _begin(self, step: _WrittenStep, value: Object) -> bytes:
        """Return the start of an item's step, once."""
        key = step.start.key
        if key in self._begun:
            return b""
        self._begun.add(key)
        self._waiting.pop(key, None)
        return self._event("step.start", index=step.index, step=value)

    def _delta(self, step: _WrittenStep, value: Object) -> bytes:
        return self._event("step.delta", index=step.index, delta=value)

    def _stop(self, step: _WrittenStep) -> bytes:
        return self._event("step.stop", index=step.index)

    def _whole_step(self, value: Object, delta: Object | None = None) -> bytes:
        """Return a step whose value is known, or that has one delta."""
        index, self._count = self._count, self._count + 1
        out = self._event("step.start", index=index, step=value)
        if delta is not None:
            out += self._event("step.delta", index=index, delta=delta)
        return out + self._event("step.stop", index=index)

    # texts

    def _text_start(self, event: TextStart) -> bytes:
        if event.refusal:
            path = self._part_path(event.key)
            self.losses.add(path, "refusal", "rewritten", f"{LABEL} has no refusals; sent as text", "info")
        if event.cache is not None:
            path = f"{self._part_path(event.key)}/cache"
            self.losses.add(path, "cache", "dropped", f"{LABEL} has no cache marks", "info")
        self._waiting[event.key] = self._open(event, _DELTAS["text"])
        return b""

    def _begin_text(self, step: _WrittenStep) -> bytes:
        return self._begin(step, write_extra({"type": "model_output"}, step.start.extra, STEP))

    def _text_delta(self, event: TextDelta) -> bytes:
        step = self._steps[event.key]
        return b"".join((self._begin_text(step), step.before, event.escaped, step.after))

    def _text_end(self, event: TextEnd) -> bytes:
        """Write the citations of a text and its end; Google's signature, which it cannot hold, is a thought after it."""
        step = self._steps.pop(event.key)
        extra = merge_extra(step.start.extra, event.extra)
        own = dict(extra.get(NAME, {}))
        annotations = own.pop("annotations", None)
        path = self._part_path(event.key)
        for name in own:
            self.losses.add(f"{path}/{name}", name, "dropped", f"a stream of {LABEL} has no delta for it", "info")
        out = b""
        if annotations:
            delta = {"type": "text_annotation_delta", "annotations": annotations}
            out = self._begin_text(step) + self._delta(step, delta)
        elif event.key in self._empty and has_own_fields(extra):
            out = self._begin_text(step) + self._delta(step, {"type": "text", "text": ""})
        else:
            self._report_empty(event)
        self._waiting.pop(event.key, None)
        if event.key in self._begun:
            out += self._stop(step)
        thought = write_moved_signature(event.artefacts, self.losses, path)
        return out if thought is None else out + self._whole_step(thought)

    # thoughts

    def _reasoning_start(self, event: ReasoningStart) -> bytes:
        self._waiting[event.key] = self._open(event, _SUMMARY)
        return b""

    def _begin_thought(self, step: _WrittenStep) -> bytes:
        return self._begin(step, write_extra({"type": "thought"}, step.start.extra, NAME))

    def _reasoning_delta(self, event: ReasoningDelta) -> bytes:
        """Write a fragment of a summary; a stream does not show its sections, so a blank line begins the next one."""
        step = self._steps[event.key]
        previous = self._sections.setdefault(event.key, event.section)
        self._sections[event.key] = event.section
        path = self._part_path(event.key)
        if event.section is None:
            self.losses.add(f"{path}/text", "reasoning", "rewritten", f"{LABEL} thoughts have only a summary", "info")
        gap = b""
        if previous != event.section:
            gap = b"\\n\\n"
            detail = f"a stream of {LABEL} does not separate the sections"
            self.losses.add(f"{path}/summary", "reasoning summary", "rewritten", detail, "info")
        return b"".join((self._begin_thought(step), step.before, gap, event.escaped, step.after))

    def _reasoning_end(self, event: ReasoningEnd) -> bytes:
        step = self._steps[event.key]
        signature = own_signature(event.artefacts, self.losses, self._part_path(event.key))
        out = b""
        if signature is not None:
            out = self._begin_thought(step) + self._delta(step, {"type": "thought_signature", "signature": signature})
        elif event.key not in self._begun:
            if not has_own_fields(merge_extra(step.start.extra, event.extra)):
                self._report_empty(event)
                del self._steps[event.key], self._waiting[event.key]
                return b""
            out = self._begin_thought(step)
        del self._steps[event.key]
        return out + self._stop(step)

    # calls

    def _call_start(self, event: CallStart) -> bytes:
        """Start a call. Input of a freeform call becomes one argument at its end."""
        step = self._open(event, _DELTAS["call"])
        call: Object = {"type": "function_call", "id": event.id, "name": event.name, "arguments": {}}
        return self._begin(step, write_extra(call, event.extra, NAME))

    def _call_delta(self, event: CallDelta) -> bytes:
        step = self._steps[event.key]
        if step.start.kind == "freeform":
            step.pieces.append(event.escaped)
            return b""
        return b"".join((step.before, event.escaped, step.after))

    def _call_end(self, event: CallEnd) -> bytes:
        """Write the end of a call. An incomplete one stays open, and changes the status of the interaction."""
        step = self._steps.pop(event.key)
        start: CallStart = step.start
        path = self._part_path(event.key)
        signature = own_signature(event.artefacts, self.losses, path)
        raw = unescape(b"".join(step.pieces)) if start.kind == "freeform" else event.raw
        call = ToolCall(start.id, start.name, event.arguments, raw, event.state, start.kind)
        if event.state != "complete":
            if self._broken is None:
                self._broken = call
            report_incomplete_call(call, LABEL, self.losses, path)
            return b""
        report_search_call(start, path, self.losses)
        for concept in ("namespace", "cache"):
            if getattr(start, concept) is not None:
                detail = f"{LABEL} calls have no such field"
                self.losses.add(f"{path}/{concept}", concept, "dropped", detail, "info")
        out = b""
        if event.arguments is None:
            text = escape(dumps(placeholder_arguments(call, self.losses, path)))
            out = b"".join((step.before, text, step.after))
        if signature is not None:
            out += self._delta(step, {"type": "arguments_delta", "arguments": "", "signature": signature})
        return out + self._stop(step)

    # other parts

    def _part_start(self, event: PartStart) -> bytes:
        """Start an opaque step of this wire, whose other fields come later."""
        part = event.part
        if not isinstance(part, Opaque) or part.wire != NAME or is_content(part):
            return b""
        return self._begin(self._open(event, (b"", b"")), part.value)

    def _whole_part(self, event: WholePart) -> bytes:
        """Write media, or a content of this wire, as one delta; an opaque step of this wire whole, or the rest of it."""
        part, path = event.part, self._part_path(event.key)
        begun = self._steps.pop(event.key, None)
        if begun is not None and isinstance(part, Opaque):
            known = begun.start.part.value
            fields = {name: value for name, value in part.value.items() if name not in known or known[name] != value}
            rest = self._delta(begun, {"type": part.value["type"], **fields}) if fields else b""
            return rest + self._stop(begun)
        if isinstance(part, Media) or is_content(part):
            content = write_content(part, self.losses, path)
            step = write_extra({"type": "model_output"}, getattr(part, "extra", {}), STEP)
            return b"" if content is None else self._whole_step(step, content)
        value = write_model_step(part, self.losses, path) if isinstance(part, Opaque | Reasoning | ToolCall) else None
        if value is None and not isinstance(part, Opaque):
            self.losses.add(path, "part", "dropped", f"{LABEL} has no such step", "error")
        return b"" if value is None else self._whole_step(value)

    # the end

    def _fail(self, event: StreamFault) -> bytes:
        return self._event("error", error=write_error(event.fault))

    def _end(self, event: ResponseEnd) -> bytes:
        """Write the interaction with its status and usage; a stream has sent its steps already."""
        if len(event.stops) > 1:
            self._report_alternatives(ONE_CHOICE)
        stop = event.stops[0] if event.stops else None
        if self._broken is not None:
            stop = stop_without_call(self._broken, stop, self.losses)
        form = event.extra.get(FORM, {})
        status = write_status(stop, None, event.extra, self.losses)
        if status["status"] == "in_progress":
            status = {"status": "completed"}
        out = {**self._base, **status}
        if self._usage is not None:
            out["usage"] = write_usage(self._usage, self.losses)
        out.update((name, form[name]) for name in form if name in ENVELOPE)
        out = write_extra(out, {NAME: event.extra.get(NAME, {})}, NAME)
        return self._event("interaction.completed", interaction=out) + _DONE
