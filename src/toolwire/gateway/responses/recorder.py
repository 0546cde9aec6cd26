"""Record an answer for the store, and give it the ids of the stored response.

The recorded parts are the upstream's, with its artefacts and item ids. The client gets the gateway's ids, which
its next request may refer to.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from ...bridge.conversation.reasoning_envelope import without_envelopes
from ...bridge.conversation.turns import TurnRecorder
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
    WholePart,
)
from ...ir.parts import Artefact, Extra, Opaque, Part, Reasoning, Refusal, Text, ToolCall
from ...ir.pointer import Object
from ...ir.request import Message
from ...ir.response import Response
from ...stream.framing import SSEDecoder
from ...stream.strict import parse_object
from ...wire.openai_responses.item_writer import call_prefix
from ...wire.protocol import StreamEncoder
from .records import WIRE, BoundMessages, ResponseEntry, encode_entry, item_prefix, opaque_with_id

_ITEM = f"{WIRE}/item"  # the scope of a message item's own fields
_FORM = f"{WIRE}~"
_CALL_STATUS = {"complete": "completed", "truncated": "incomplete", "invalid": "completed"}


class ResponseRecorder:
    """The recording of one answer. `make_echo(size)` returns the fields of the response that describe its storage."""

    def __init__(self, digits: str, model: str, max_bytes: int, make_echo: Callable[[int], Object]) -> None:
        self.parts: tuple[Part, ...] | None = None  # set at the end of a complete answer
        self.item_ids: tuple[str, ...] = ()  # for each part, the id of its item
        self.is_stored = False  # the answer is complete, and repeats `store` as true
        self.is_too_large = False  # the answer is complete, and too large to be stored
        self._digits = digits
        self._model = model
        self._max_bytes = max_bytes
        self._make_echo = make_echo
        self._turn = TurnRecorder(max_bytes)
        self._ids: dict[int, str] = {}  # item ids by key, in the order of their start
        self._ended: set[int] = set()  # keys of complete items
        self._delta_bytes = 0

    def feed(self, event: Event) -> Event:
        """Record an event, and return it with the ids of the stored response."""
        kind = type(event)
        if kind is TextDelta or kind is CallDelta or kind is ReasoningDelta:
            self._delta_bytes += len(event.escaped)  # type: ignore[union-attr]
        if self._delta_bytes <= self._max_bytes and kind is not ResponseEnd:
            self._turn.feed(event)
        return self._with_ids(event)

    def rewrite(self, response: Response) -> Response:
        """Record a whole answer, and return it with the ids of the stored response."""
        item_ids: list[str] = []
        message_id = ""  # of the message to which the next text belongs
        for number, part in enumerate(response.parts):
            if not (message_id and _continues_message(part)):
                item_id = f"{item_prefix(part)}_{self._digits}_{number}"
                message_id = item_id if isinstance(part, (Text, Refusal)) else ""
            item_ids.append(message_id or item_id)
        echo = self._finish(response.parts, item_ids)
        parts = tuple(_part_with_id(part, item_id) for part, item_id in zip(response.parts, item_ids, strict=True))
        extra = _with_fields(response.extra, WIRE, echo)
        return replace(response, id=f"resp_{self._digits}", parts=parts, extra=extra)

    def _finish(self, parts: tuple[Part, ...], item_ids: list[str]) -> Object:
        """Keep the parts without envelopes, with their artefacts bound to their model, and the ids of their items.

        Return the fields of the response that describe its storage.
        """
        parts = tuple(map(without_envelopes, parts))
        self.parts = tuple(_bind_to_model(part, self._model) for part in parts)
        self.item_ids = tuple(item_ids)
        answer = BoundMessages(messages=(Message("assistant", parts),))
        return self._echo(len(encode_entry(ResponseEntry("", 0, answer=answer))))

    def _echo(self, size: int) -> Object:
        echo = self._make_echo(size)
        self.is_stored = bool(echo["store"])
        self.is_too_large = not self.is_stored
        return echo

    def _with_ids(self, event: Event) -> Event:
        """Return an event with the ids of the stored response. The end of the response ends the recording."""
        if isinstance(event, ResponseStart):
            extra = _with_fields(event.extra, WIRE, self._make_echo(0))
            return ResponseStart(f"resp_{self._digits}", event.model, event.created, extra)
        if isinstance(event, ResponseEnd):
            return replace(event, extra=_with_fields(event.extra, WIRE, self._end_recording(event)))
        if isinstance(event, StreamFault) or getattr(event, "choice", None):
            return event  # other choices are not part of a Responses answer
        return self._item_event(event)

    def _end_recording(self, end: ResponseEnd) -> Object:
        """Keep the parts of a stream, unless it is too large, and return the fields that describe its storage."""
        if self._delta_bytes > self._max_bytes:
            return self._echo(self._delta_bytes)
        # Items begin in the order of the parts. An item that was announced and never sent is not a part.
        return self._finish(self._turn.parts(end), [self._ids[key] for key in self._ids if key in self._ended])

    def _item_event(self, event: Event) -> Event:
        """Replace the item id of a start, an end or a whole part. A start makes the id; an end marks its item as sent."""
        if isinstance(event, (TextStart, ReasoningStart, CallStart)):
            prefix = "msg" if isinstance(event, TextStart) else "rs"
            if isinstance(event, CallStart):
                prefix = call_prefix(event.kind, event.name)
            scope = _ITEM if isinstance(event, TextStart) else WIRE
            return replace(event, extra=_with_fields(event.extra, scope, {"id": self._new_id(event.key, prefix)}))
        if isinstance(event, (TextEnd, ReasoningEnd, CallEnd)):
            self._ended.add(event.key)
            scope = _ITEM if isinstance(event, TextEnd) else WIRE
            if "id" in event.extra.get(scope, {}) and event.key in self._ids:
                return replace(event, extra=_with_fields(event.extra, scope, {"id": self._ids[event.key]}))
        if isinstance(event, (PartStart, WholePart)):
            if isinstance(event, WholePart):
                self._ended.add(event.key)
            item_id = self._ids.get(event.key) or self._new_id(event.key, item_prefix(event.part))
            return replace(event, part=_part_with_id(event.part, item_id))
        return event

    def _new_id(self, key: int, prefix: str) -> str:
        self._ids[key] = f"{prefix}_{self._digits}_{len(self._ids)}"
        return self._ids[key]


class RecordingEncoder:
    """An encoder of a recorded stream."""

    def __init__(self, encoder: StreamEncoder, recorder: ResponseRecorder) -> None:
        self.losses = encoder.losses
        self._encoder = encoder
        self._recorder = recorder

    def feed(self, event: Event) -> bytes:
        return self._encoder.feed(self._recorder.feed(event))


def final_document(written: bytes) -> Object:
    """Return the response in a complete answer, whole or at the end of a stream. Raise ProtocolError if it has none."""
    if written.startswith(b"{"):
        return parse_object(written)
    for _, payload in SSEDecoder().feed(written):
        event = parse_object(payload)
        if event.get("type") in ("response.completed", "response.incomplete"):
            response: Object = event["response"]
            return response
    raise ProtocolError("the answer has no final response")


def _continues_message(part: Part) -> bool:
    """Check whether a part belongs to the message item before it, as the encoder decides."""
    if isinstance(part, (Text, Refusal)):
        return ":item" not in part.extra.get(_FORM, {})
    return isinstance(part, Opaque) and part.wire == WIRE and part.type.startswith("content/")


def _part_with_id(part: Part, item_id: str) -> Part:
    """Return a part of an answer with the id of its item, and a call with the status that OpenAI gives it."""
    if isinstance(part, (Text, Refusal)):
        return replace(part, extra=_with_fields(part.extra, _ITEM, {"id": item_id}))
    if isinstance(part, ToolCall):
        status = {} if part.kind == "freeform" or WIRE in part.extra else {"status": _CALL_STATUS[part.state]}
        return replace(part, extra=_with_fields(part.extra, WIRE, {"id": item_id, **status}))
    if isinstance(part, Reasoning):
        return replace(part, extra=_with_fields(part.extra, WIRE, {"id": item_id}))
    if isinstance(part, Opaque) and part.wire == WIRE and not part.type.startswith("content/"):
        return opaque_with_id(part, item_id)
    return part


def _with_fields(extra: Extra, scope: str, fields: Object) -> Extra:
    return {**extra, scope: {**extra.get(scope, {}), **fields}}


def _bind_to_model(part: Part, model: str) -> Part:
    if isinstance(part, (Text, ToolCall, Reasoning)) and part.artefacts:
        return replace(part, artefacts=tuple(_with_artefact_model(item, model) for item in part.artefacts))
    return part


def _with_artefact_model(artefact: Artefact, model: str) -> Artefact:
    return artefact if artefact.model else replace(artefact, model=model)
