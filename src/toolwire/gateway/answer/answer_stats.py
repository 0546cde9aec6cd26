"""Statistics of an answer for accounts, metrics and the log; and the data of its calls that a client may drop."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256

import msgspec
from msgspec import Struct
from msgspec.structs import replace

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
    TextDelta,
    UsageUpdate,
)
from ...ir.folding import fold
from ...ir.parts import Artefact, Reasoning, ToolCall, ToolResult
from ...ir.pointer import JSON, Object
from ...ir.response import Response, Usage

__all__ = ["AnswerStats", "Continuation", "call_fingerprint"]

_BYTES_PER_TOKEN = 4
_ENTRY_OVERHEAD = 500  # bytes of overhead besides the text
# base64, as a whole string or after the comma of a data URL: anchored at its start, so that nothing is scanned twice
_MEDIA = re.compile(rb"""[",][A-Za-z0-9+/_-]{2048,}""")
_TOKENS_PER_MEDIA = 1000  # the approximate cost of a picture of any size
_MAX_TOKENS = 10**9  # of one answer; more is an error, which must not be charged to any account


class Continuation(Struct, frozen=True):
    """Data that belongs to a call but is not part of it.

    It has the call's signatures, the reasoning before it, and the gateway's own calls and results in the same turn.
    `origin` is the server that made it. `call` is a fingerprint: some servers number their calls from zero in every
    answer, so an id alone does not identify a call.
    """

    artefacts: tuple[Artefact, ...] = ()  # signatures of the call
    reasoning: tuple[Reasoning, ...] = ()  # signed reasoning before the call
    calls: tuple[ToolCall, ...] = ()  # the gateway's own calls in the same turn
    results: tuple[ToolResult, ...] = ()  # of these calls
    call: bytes = b""
    origin: str = ""

    @property
    def size(self) -> int:
        """The approximate size in bytes."""
        thoughts = sum(
            len(item.text) + sum(map(len, item.summary)) + _artefacts_size(item.artefacts) for item in self.reasoning
        )
        call_bytes = sum(len(item.text) for item in self.calls) + sum(len(item.text) for item in self.results)
        return _ENTRY_OVERHEAD + _artefacts_size(self.artefacts) + thoughts + call_bytes

    def bind(self, model: str, origin: str) -> Continuation:
        """Bind the data to the model and the server that made it."""
        return replace(
            self,
            artefacts=_with_model(model, self.artefacts),
            reasoning=tuple(replace(item, artefacts=_with_model(model, item.artefacts)) for item in self.reasoning),
            calls=tuple(replace(item, artefacts=_with_model(model, item.artefacts)) for item in self.calls),
            origin=origin,
        )

    def to_portable(self) -> Continuation:
        """Remove the data that only its own server may receive."""
        return replace(
            self, artefacts=(), reasoning=(), calls=tuple(replace(item, artefacts=()) for item in self.calls)
        )


def call_fingerprint(name: str, arguments: Object | None, raw: str | None) -> bytes:
    """Hash a call, independent of a client's spelling of its arguments.

    >>> call_fingerprint("f", {"a": 1, "b": [2.0]}, None) == call_fingerprint("f", {"b": [2], "a": 1.0}, None)
    True
    """
    content: JSON = raw if arguments is None else _normalise_numbers(arguments)
    return sha256(msgspec.json.encode((name, content), order="sorted")).digest()


def _normalise_numbers(value: JSON) -> JSON:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value  # JavaScript has no 1.0
    if isinstance(value, dict):
        return {name: _normalise_numbers(item) for name, item in value.items()}
    return [_normalise_numbers(item) for item in value] if isinstance(value, list) else value


def _estimate_tokens(request_body: bytes) -> int:
    media = [len(found.group()) for found in _MEDIA.finditer(request_body)]
    return -(-(len(request_body) - sum(media)) // _BYTES_PER_TOKEN) + len(media) * _TOKENS_PER_MEDIA


def _artefacts_size(artefacts: tuple[Artefact, ...]) -> int:
    return sum(len(item.data) for item in artefacts)


def _with_model(model: str, artefacts: tuple[Artefact, ...]) -> tuple[Artefact, ...]:
    return tuple(replace(item, model=item.model or model) for item in artefacts)


class AnswerStats:
    """Statistics of an answer, fed with its events or with the whole answer."""

    __slots__ = (
        "_calls",
        "_open_reasoning",
        "_reasoning_parts",
        "abandoned",
        "calls",
        "content_bytes",
        "continuations",
        "id",
        "model",
        "stop",
        "usage",
    )

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.calls: list[str] = []  # names
        self.continuations: dict[str, Continuation] = {}  # by call id
        self.stop: str | None = None
        self.id = ""
        self.model = ""
        self.content_bytes = 0  # bytes of text and arguments
        self.abandoned = False  # by the client, while the upstream was working
        self._calls: dict[int, CallStart] = {}  # by key
        self._open_reasoning: dict[int, list[Event]] = {}  # events of unfinished reasoning, by key
        self._reasoning_parts: list[Reasoning] = []  # signed reasoning that waits for the next call

    def add_response(self, response: Response) -> None:
        """Add a whole answer. Its size only matters for an estimate, so it is measured only if no usage is reported."""
        self.usage, self.id, self.model = response.usage, response.id, response.model
        self.stop = None if response.stop is None else response.stop.reason
        if self.reported_usage() is None:
            self.content_bytes = sum(len(getattr(part, "text", "")) for part in response.parts)
        for part in response.parts:
            if isinstance(part, Reasoning) and part.artefacts:
                self._reasoning_parts.append(part)
            elif isinstance(part, ToolCall):
                self.calls.append(part.name)
                self._add_continuation(part.id, part.name, part)

    def add_event(self, event: Event) -> None:
        """Add an event of a stream. Content deltas are the most frequent events, so they are checked first."""
        kind = type(event)
        if kind is TextDelta or kind is CallDelta:
            self.content_bytes += len(event.escaped)  # type: ignore[union-attr]
            return
        if kind is ReasoningDelta:
            self._open_reasoning[event.key].append(event)  # type: ignore[union-attr]
            self.content_bytes += len(event.escaped)  # type: ignore[union-attr]
        elif isinstance(event, CallStart):
            self._calls[event.key] = event
            self.calls.append(event.name)
        elif isinstance(event, CallEnd):
            start = self._calls[event.key]
            self._add_continuation(start.id, start.name, event)
        elif isinstance(event, ReasoningStart):
            self._open_reasoning[event.key] = [event]
        elif isinstance(event, ReasoningEnd):
            self._add_reasoning([*self._open_reasoning.pop(event.key), event])
        elif isinstance(event, UsageUpdate):
            self.usage = event.usage
        elif isinstance(event, ResponseStart):
            self.id, self.model = event.id, event.model
        elif isinstance(event, ResponseEnd) and event.stops and event.stops[0] is not None:
            self.stop = event.stops[0].reason

    def reported_usage(self) -> Usage | None:
        """Return the usage that the upstream reports, if it is plausible."""
        usage = self.usage
        if usage is None or not usage.total:
            return None
        counts = (usage.input, usage.output, usage.cached, usage.reasoning)
        return usage if all(0 <= (count or 0) <= _MAX_TOKENS for count in counts) else None

    def estimate(self, request_body: bytes) -> Usage | None:
        """Estimate the usage if the upstream reports none: from the request and the answer. None without an answer."""
        if not self.content_bytes and not self.abandoned:
            return None
        return Usage(_estimate_tokens(request_body), -(-self.content_bytes // _BYTES_PER_TOKEN))

    def add_gateway_calls(self, gateway_calls: Mapping[str, Continuation]) -> None:
        """Add the gateway's own calls and results."""
        for call_id, added in gateway_calls.items():
            stored = self.continuations.get(call_id, added)
            self.continuations[call_id] = replace(stored, calls=added.calls, results=added.results)

    def _add_reasoning(self, events: list[Event]) -> None:
        end = events[-1]
        if isinstance(end, ReasoningEnd) and end.artefacts:
            parts = fold([ResponseStart(), *events, ResponseEnd(())]).parts
            self._reasoning_parts += [part for part in parts if isinstance(part, Reasoning)]

    def _add_continuation(self, call_id: str, name: str, call: ToolCall | CallEnd) -> None:
        """Store the signatures of a call and the signed reasoning before it, which then belongs to this call only."""
        if call.artefacts or self._reasoning_parts:
            fingerprint = call_fingerprint(name, call.arguments, call.raw)
            stored = self.continuations.get(call_id, Continuation())
            thoughts = tuple(self._reasoning_parts)
            self.continuations[call_id] = replace(
                stored, artefacts=call.artefacts, reasoning=thoughts, call=fingerprint
            )
            self._reasoning_parts = []
