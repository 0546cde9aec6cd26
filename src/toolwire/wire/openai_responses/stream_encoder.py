"""Encode Responses streams: the full sequence, because the official client relies on every start and end event.

    created → in_progress → (item added → [content part added →] deltas → done → [part done →] item done)* → completed

Sequence numbers increase by one. Fragments stay escaped throughout: the `done` events are built from them too.
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
from ...ir.parts import CallState, Extra, Opaque, Reasoning, Refusal, Text, ToolCall, part_label
from ...ir.pointer import JSON, Object
from ...ir.request import Request
from ...ir.response import Fault, Stop
from ...ir.text import to_line, unescape
from ...stream.strict import parse_arguments
from ..fields import write_extra
from ..streaming.encoder import BaseStreamEncoder
from .content import NAME, write_reasoning
from .hosted import progress_events
from .item_writer import (
    broken_call,
    call_prefix,
    make_call_item,
    make_message_item,
    report_foreign,
    write_output_part,
)
from .response import ONE_CHOICE, make_envelope, write_status, write_usage


class _WrittenItem:
    """An output item that is being written."""

    __slots__ = ("after", "before", "id", "index", "pieces", "section", "sections", "start", "text")

    def __init__(self, index: int, item_id: str, start: Any) -> None:
        """Create an item; `start` is its start event."""
        self.index = index
        self.id = item_id
        self.start = start
        self.before = b""  # of a delta event: all before its sequence number
        self.after = b""  # … and all between that and the fragment
        self.pieces: list[bytes] = []
        self.section: int | None = None  # of reasoning: the part of the summary that is open
        self.sections: dict[int, list[bytes]] = {}  # fragments of each part of the summary
        self.text = False  # of reasoning: its text has begun

    def template(self, name: str, **fields: Any) -> None:
        """Prepare the bytes around the fragments of a delta event `name`, for `_fragment`."""
        where = to_line({"item_id": self.id, "output_index": self.index, **fields})[1:-1]
        self.before = b'event: %b\ndata: {"type":"%b","sequence_number":' % (name.encode(), name.encode())
        self.after = b',%b,"delta":"' % where


class ResponsesStreamEncoder(BaseStreamEncoder):
    """Encoder of a Responses stream."""

    def __init__(self, request: Request | None = None) -> None:
        """Create the encoder; the response repeats fields of `request`, and may have log probabilities."""
        super().__init__()
        self._request = request
        self._sequence = 0
        self._base: Object = {}  # the response in `response.created`
        self._items: dict[int, _WrittenItem] = {}
        self._ids: set[str] = set()  # item ids in use
        self._output: dict[int, Object] = {}  # finished items, by output index
        self._dropped: set[int] = set()  # keys of items of other choices
        self._typed: dict[int, CallStart] = {}  # open calls of typed tools, by key
        params = None if request is None else request.params
        self._awaits_logprobs = params is not None and bool(params.logprobs or params.top_logprobs)
        self._open_text: TextEnd | None = None  # the end of the first text, while log probabilities may follow

    def _write(self, event: Event) -> bytes:
        """Write an event; text and argument deltas take a fast path, and events of other choices are dropped."""
        kind = type(event)
        if kind is CallDelta or kind is TextDelta:
            item = self._items.get(event.key)  # type: ignore[union-attr]
            if item is not None:
                if item.before:
                    return self._fragment(item, event.escaped)  # type: ignore[union-attr]
                item.pieces.append(event.escaped)  # type: ignore[union-attr]  # a search has no delta events
                return b""
            if event.key in self._typed:  # type: ignore[union-attr]
                return b""  # the end has the arguments
        if getattr(event, "choice", 0):
            self._dropped.add(event.key)  # type: ignore[union-attr]
            self._report_alternatives(ONE_CHOICE)
        if getattr(event, "key", None) in self._dropped:
            return b""
        return super()._write(event)

    def _fragment(self, item: _WrittenItem, escaped: bytes) -> bytes:
        item.pieces.append(escaped)
        sequence = self._sequence
        self._sequence = sequence + 1
        return b"".join((item.before, b"%d" % sequence, item.after, escaped, b'"}\n\n'))

    def _event(self, name: str, **fields: Any) -> bytes:
        out = {"type": name, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return b"event: %b\ndata: %b\n\n" % (name.encode(), to_line(out))

    def _item_position(self, item: _WrittenItem, **fields: Any) -> Object:
        return {"item_id": item.id, "output_index": item.index, **fields}

    def _start(self, event: ResponseStart) -> bytes:
        base = make_envelope(event.id, event.model, event.created, None, self._request)
        self._base = {**base, **event.extra.get(NAME, {})}
        return self._event("response.created", response=self._base) + self._event(
            "response.in_progress", response=self._base
        )

    def _open(self, event: Any, made_up_id: str, scope: str = NAME) -> _WrittenItem:
        """Open an output item; it keeps its own id if no other item has it, else it gets `made_up_id`."""
        given = getattr(event, "extra", {}).get(scope, {}).get("id")
        item_id = given if given and type(given) is str and given not in self._ids else made_up_id
        while item_id in self._ids:  # calls of some models share their call id
            item_id = f"{item_id}_{len(self._items)}"
        self._ids.add(item_id)
        item = self._items[event.key] = _WrittenItem(len(self._items), item_id, event)
        return item

    def _item_added(self, item: _WrittenItem, fields: Object) -> bytes:
        return self._event("response.output_item.added", output_index=item.index, item=fields)

    def _item_done(self, item: _WrittenItem, fields: Object) -> bytes:
        self._output[item.index] = fields
        return self._event("response.output_item.done", output_index=item.index, item=fields)

    # texts and refusals: a message item with one content each

    def _text_start(self, event: TextStart) -> bytes:
        """Open a message item with one content; each text is an item of its own."""
        item = self._open(event, f"msg_{self._base['id']}_{len(self._items)}", f"{NAME}/item")
        name = "response.refusal.delta" if event.refusal else "response.output_text.delta"
        item.template(name, content_index=0, **({} if event.refusal else {"logprobs": []}))
        message = {**make_message_item({}, item.id), "status": "in_progress"}
        part = write_output_part(Refusal("") if event.refusal else Text(""))
        return self._item_added(item, message) + self._event(
            "response.content_part.added", **self._item_position(item, content_index=0, part=part)
        )

    def _text_end(self, event: TextEnd) -> bytes:
        """Write the end of a text, or hold it back: other wires have the log probabilities at the end of the answer."""
        if self._awaits_logprobs and "logprobs" not in event.extra.get(NAME, {}):
            self._awaits_logprobs = False
            self._open_text = event
            return b""
        return self._close_text(event)

    def _close_text(self, event: TextEnd) -> bytes:
        """Write the three end events of a text, each with the whole text; artefacts of other providers are losses."""
        item = self._items[event.key]
        report_foreign(event.artefacts, self.losses, self._part_path(event.key))
        text = unescape(b"".join(item.pieces))
        extra = merge_extra(item.start.extra, event.extra)
        part = write_output_part(Refusal(text, extra) if item.start.refusal else Text(text, extra=extra))
        item_id = self._final_id(item, event.extra.get(f"{NAME}/item"))
        message = {
            **make_message_item({}, item.id),
            **make_message_item(extra, item.id),
            "id": item_id,
            "content": [part],
        }
        if item.start.refusal:
            done = self._event("response.refusal.done", **self._item_position(item, content_index=0, refusal=text))
        else:
            done = self._event(
                "response.output_text.done",
                **self._item_position(item, content_index=0, text=text, logprobs=part.get("logprobs", [])),
            )
        cited = b""
        for index, annotation in enumerate(part.get("annotations") or ()):
            where = self._item_position(item, content_index=0, annotation_index=index, annotation=annotation)
            cited += self._event("response.output_text.annotation.added", **where)
        closing = self._event("response.content_part.done", **self._item_position(item, content_index=0, part=part))
        return cited + done + closing + self._item_done(item, message)

    # calls

    def _call_start(self, event: CallStart) -> bytes:
        """Open a call item with empty arguments. The item of a typed tool is written at the end of the call."""
        if event.kind == "typed":
            self._typed[event.key] = event
            return b""
        item = self._open(event, f"{call_prefix(event.kind, event.name)}_{event.id}")
        if event.kind != "search":
            item.template(f"response.{_CALL_EVENTS[event.kind]}.delta")
        begun = self._write_call(item, "", "complete", event.extra)
        if "status" in begun:
            begun["status"] = "in_progress"
        return self._item_added(item, begun)

    def _final_id(self, item: _WrittenItem, fields: Object | None) -> str:
        """Return the id of a finished item. Some servers send another one there than at its start."""
        given = (fields or {}).get("id")
        if type(given) is not str or given in self._ids:
            return item.id
        self._ids.add(given)
        return given

    def _write_call(self, item: _WrittenItem, raw: str, state: CallState, extra: Extra) -> Object:
        start: CallStart = item.start
        arguments = parse_arguments(raw)[0] if start.kind == "search" else None
        call = ToolCall(start.id, start.name, arguments, raw, state, start.kind, start.namespace)
        written = make_call_item(call, item.id)
        assert written is not None  # only a typed call may have no item
        return {**write_extra(written, extra, NAME), "id": item.id}

    def _call_end(self, event: CallEnd) -> bytes:
        """Write the end events of a call; one without any arguments gets `{}` as its only fragment."""
        report_foreign(event.artefacts, self.losses, self._part_path(event.key))
        if event.key in self._typed:
            return self._typed_call(self._typed.pop(event.key), event)
        item = self._items[event.key]
        if item.start.kind == "search":
            return self._search_end(item, event)
        opening = b""
        if not item.pieces and event.raw is None:
            opening = self._fragment(item, b"{}")
        raw = unescape(b"".join(item.pieces))
        field = "input" if item.start.kind == "freeform" else "arguments"
        done = self._event(
            f"response.{_CALL_EVENTS[item.start.kind]}.done", **self._item_position(item), **{field: raw}
        )
        extra = merge_extra(item.start.extra, event.extra)
        return opening + done + self._item_done(item, self._write_call(item, raw, event.state, extra))

    def _typed_call(self, start: CallStart, end: CallEnd) -> bytes:
        """Write the call of a typed tool: an item whole, because its fields differ from the arguments."""
        extra = merge_extra(start.extra, end.extra)
        call = ToolCall(start.id, start.name, end.arguments, end.raw, end.state, "typed", extra=extra)
        written = make_call_item(call, "")
        if written is None:
            self.losses.add(self._part_path(end.key), "call", "dropped", broken_call(end.state), "error")
            return b""
        item = self._open(start, f"{call_prefix('typed', start.name)}_{start.id}")
        written["id"] = item.id
        return self._item_added(item, {**written, "status": "in_progress"}) + self._item_done(item, written)

    def _search_end(self, item: _WrittenItem, event: CallEnd) -> bytes:
        extra = merge_extra(item.start.extra, event.extra)
        raw = unescape(b"".join(item.pieces))
        return self._item_done(item, self._write_call(item, raw, event.state, extra))

    # reasoning: the parts of a summary, then the text

    def _reasoning_start(self, event: ReasoningStart) -> bytes:
        item = self._open(event, f"rs_{self._base['id']}_{len(self._items)}")
        return self._item_added(item, {"type": "reasoning", "id": item.id, "summary": []})

    def _reasoning_delta(self, event: ReasoningDelta) -> bytes:
        """Write a fragment of a summary section or of the text; only the text is kept in `pieces`."""
        item = self._items[event.key]
        if event.section is None:
            out = self._close_section(item)
            if out or not item.text:  # the last fragments belonged to a section, or there were none
                item.template("response.reasoning_text.delta", content_index=0)
            if not item.text:
                item.text = True
                part = {"type": "reasoning_text", "text": ""}
                out += self._event(
                    "response.content_part.added", **self._item_position(item, content_index=0, part=part)
                )
            return out + self._fragment(item, event.escaped)
        out = b""
        if item.section != event.section:
            out = self._close_section(item) + self._open_section(item, event.section)
        item.sections[event.section].append(event.escaped)
        piece = self._fragment(item, event.escaped)
        item.pieces.pop()
        return out + piece

    def _open_section(self, item: _WrittenItem, section: int) -> bytes:
        """Open a section of the reasoning summary, to which the next deltas belong."""
        item.section = section
        item.sections.setdefault(section, [])
        item.template("response.reasoning_summary_text.delta", summary_index=section)
        part = {"type": "summary_text", "text": ""}
        return self._event(
            "response.reasoning_summary_part.added", **self._item_position(item, summary_index=section, part=part)
        )

    def _close_section(self, item: _WrittenItem) -> bytes:
        """Write the end events of the open summary section, if there is one."""
        if item.section is None:
            return b""
        section, item.section = item.section, None
        text = unescape(b"".join(item.sections[section]))
        where = self._item_position(item, summary_index=section)
        done = self._event("response.reasoning_summary_text.done", **where, text=text)
        part = {"type": "summary_text", "text": text}
        return done + self._event("response.reasoning_summary_part.done", **where, part=part)

    def _reasoning_end(self, event: ReasoningEnd) -> bytes:
        """Write the end events of reasoning; the finished item holds the summary, the text and the artefacts."""
        item = self._items[event.key]
        report_foreign(event.artefacts, self.losses, self._part_path(event.key))
        out = self._close_section(item)
        text = unescape(b"".join(item.pieces))
        if item.text:
            out += self._event("response.reasoning_text.done", **self._item_position(item, content_index=0, text=text))
            part = {"type": "reasoning_text", "text": text}
            out += self._event("response.content_part.done", **self._item_position(item, content_index=0, part=part))
        summary = tuple(unescape(b"".join(pieces)) for _, pieces in sorted(item.sections.items()))
        whole = Reasoning(text, summary, event.artefacts, merge_extra(item.start.extra, event.extra))
        return out + self._item_done(
            item, {**write_reasoning(whole), "id": self._final_id(item, event.extra.get(NAME))}
        )

    def _whole_part(self, event: WholePart) -> bytes:
        """Write an opaque item of this wire, which PartStart may have opened; any other part is a loss."""
        part = event.part
        if not isinstance(part, Opaque) or part.wire != NAME:
            self.losses.add(
                self._part_path(event.key), part_label(part), "dropped", "Responses has no such output item", "error"
            )
            return b""
        item = self._items.get(event.key)
        if item is not None:
            return self._item_done(item, part.value)
        item = self._open(event, f"item_{event.key}")
        return self._item_added(item, part.value) + self._progress(item, part) + self._item_done(item, part.value)

    def _progress(self, item: _WrittenItem, part: Opaque) -> bytes:
        """Write the events by which clients show that a hosted tool runs."""
        place = {"item_id": part.value.get("id"), "output_index": item.index}
        return b"".join([self._event(name, **place) for name in progress_events(part)])

    def _part_start(self, event: PartStart) -> bytes:
        part = event.part
        if not isinstance(part, Opaque) or part.wire != NAME:
            return b""
        return self._item_added(self._open(event, f"item_{event.key}"), part.value)

    def _fail(self, event: StreamFault) -> bytes:
        start = b"" if self._base else self._start(ResponseStart())
        return start + self._close_open_text(None) + self._final_event(None, event.fault, {})

    def _end(self, event: ResponseEnd) -> bytes:
        if len(event.stops) > 1:
            self._report_alternatives(ONE_CHOICE)
        stop = event.stops[0] if event.stops else None
        logprobs = None if stop is None else stop.extra.get(NAME, {}).get("logprobs")
        return self._close_open_text(logprobs) + self._final_event(stop, None, event.extra)

    def _close_open_text(self, logprobs: JSON) -> bytes:
        """End the text that waits for log probabilities. If none waits, the final response has them in its first text."""
        event, self._open_text = self._open_text, None
        if event is None:
            if logprobs:
                self._add_logprobs(logprobs)
            return b""
        own = {**event.extra.get(NAME, {}), "logprobs": logprobs} if logprobs else event.extra.get(NAME, {})
        return self._close_text(TextEnd(event.key, event.artefacts, {**event.extra, NAME: own} if own else event.extra))

    def _add_logprobs(self, logprobs: JSON) -> None:
        parts = (part for item in self._output.values() for part in item.get("content") or ())
        text = next((part for part in parts if part.get("type") == "output_text"), None)
        if text is None:
            self.losses.add("/stop", "logprobs", "dropped", "the answer has no text", "info")
        else:
            text["logprobs"] = logprobs

    def _final_event(self, stop: Stop | None, fault: Fault | None, extra: Extra) -> bytes:
        """Write the final response with all items; its status gives the event its name, if there is such an event."""
        base = {**self._base, "usage": None if self._usage is None else write_usage(self._usage)}
        refused = any(getattr(item.start, "refusal", False) for item in self._items.values())
        status = write_status(stop, fault, self.losses, refused=refused)
        if not status or status["status"] == "in_progress":
            status = {"status": "completed"}
        base.update(status, output=[self._output[index] for index in sorted(self._output)])
        name = base["status"] if base["status"] in _FINAL_STATUSES else "completed"
        return self._event(f"response.{name}", response=write_extra(base, {NAME: extra.get(NAME, {})}, NAME))


_FINAL_STATUSES = frozenset({"completed", "incomplete", "failed"})
_CALL_EVENTS = {"function": "function_call_arguments", "freeform": "custom_tool_call_input"}
