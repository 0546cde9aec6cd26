"""What was seen of an answer on its way: for accounts, metrics and the log. And for the memory: what a client may not keep."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from ..ir.events import (
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
from ..ir.fold import fold
from ..ir.parts import Artefact, Reasoning, ToolCall, ToolResult
from ..ir.response import Response, Usage

__all__ = ["Kept", "Seen"]


class Kept(Struct, frozen=True):
    """What belongs to a call and is not in it: its signatures, the reasoning before it, and what the gateway itself did in
    the same turn."""

    artefacts: tuple[Artefact, ...] = ()
    reasoning: tuple[Reasoning, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()

    def by(self, model: str) -> Kept:
        """The same, bound to the model that made it."""
        thoughts = tuple(replace(one, artefacts=_by(model, one.artefacts)) for one in self.reasoning)
        return Kept(_by(model, self.artefacts), thoughts, self.calls, self.results)


def _by(model: str, artefacts: tuple[Artefact, ...]) -> tuple[Artefact, ...]:
    return tuple(replace(one, model=one.model or model) for one in artefacts)


class Seen:
    """Fed with the events of an answer, or with the whole of it."""

    __slots__ = ("_calls", "_open", "_thinking", "calls", "kept", "model", "stop", "usage")

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.calls: list[str] = []  # names
        self.kept: dict[str, Kept] = {}  # by call id
        self.stop: str | None = None
        self.model = ""
        self._calls: dict[int, str] = {}
        self._open: dict[int, list[Event]] = {}
        self._thinking: list[Reasoning] = []

    def whole(self, response: Response) -> None:
        self.usage, self.model = response.usage, response.model
        self.stop = None if response.stop is None else response.stop.reason
        for part in response.parts:
            if isinstance(part, Reasoning) and part.artefacts:
                self._thinking.append(part)
            elif isinstance(part, ToolCall):
                self.calls.append(part.name)
                self._keep(part.id, part.artefacts)

    def event(self, event: Event) -> None:
        kind = type(event)
        if kind is TextDelta or kind is CallDelta:
            return
        if kind is ReasoningDelta:
            self._open[event.key].append(event)  # type: ignore[union-attr]
        elif isinstance(event, CallStart):
            self._calls[event.key] = event.id
            self.calls.append(event.name)
        elif isinstance(event, CallEnd):
            self._keep(self._calls[event.key], event.artefacts)
        elif isinstance(event, ReasoningStart):
            self._open[event.key] = [event]
        elif isinstance(event, ReasoningEnd):
            self._thought([*self._open.pop(event.key), event])
        elif isinstance(event, UsageUpdate):
            self.usage = event.usage
        elif isinstance(event, ResponseStart):
            self.model = event.model
        elif isinstance(event, ResponseEnd) and event.stops:
            self.stop = event.stops[0].reason

    def _thought(self, events: list[Event]) -> None:
        end = events[-1]
        if isinstance(end, ReasoningEnd) and end.artefacts:
            parts = fold([ResponseStart(), *events, ResponseEnd(())]).parts
            self._thinking += [part for part in parts if isinstance(part, Reasoning)]

    def _keep(self, call_id: str, artefacts: tuple[Artefact, ...]) -> None:
        if artefacts or self._thinking:
            self.kept[call_id] = Kept(artefacts, tuple(self._thinking))
            self._thinking = []
