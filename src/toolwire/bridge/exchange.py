"""Bring an answer back: the names that the request used, ids that are there and unique, freeform calls as freeform.

An Exchange belongs to one request and one target. It works on whole responses and, event by event, on streams; both give
the same.
"""

from __future__ import annotations

from msgspec.structs import replace

from ..ir.events import CallDelta, CallEnd, CallStart, Event, ResponseEnd
from ..ir.losses import Losses
from ..ir.parts import Part, ToolCall
from ..ir.pointer import join
from ..ir.request import Request
from ..ir.response import Response, Stop
from .ids import Ids
from .names import Names
from .unwrap import Unwrapper, unwrap_call

__all__ = ["Exchange", "Restorer", "with_written_arguments"]


def with_written_arguments(call: ToolCall) -> ToolCall:
    """No text at all is how some say "no arguments"; whoever parses it wants to see an empty object."""
    return replace(call, raw=None) if call.raw == "" and call.arguments is not None else call


class Exchange:
    """What to undo in an answer; an empty one only sees to it that every call has an id."""

    __slots__ = ("_has_freeform", "_names", "_request")

    def __init__(self, names: Names | None = None, request: Request | None = None, has_freeform: bool = True) -> None:
        self._names = names
        self._request = request
        self._has_freeform = has_freeform

    @property
    def one_call(self) -> bool:
        """Whether the request asked for one call at a time."""
        return self._request is not None and self._request.parallel is False

    @property
    def call_ids(self) -> list[str]:
        """The ids that the conversation has used."""
        messages = () if self._request is None else self._request.messages
        return [part.id for message in messages for part in message.parts if isinstance(part, ToolCall)]

    @property
    def wrapped(self) -> frozenset[str]:
        """Freeform tools that went out as functions, by the names they had there."""
        if self._request is None or self._names is None or self._has_freeform:
            return frozenset()
        to_wire = self._names.to_wire
        return frozenset(to_wire(tool.namespace, tool.name) for tool in self._request.tools if tool.kind == "freeform")

    def restore(self, response: Response, losses: Losses | None = None) -> Response:
        """The answer in the request's own terms."""
        restorer = self.restorer(losses)
        parts, stop = restorer.answer(0, response.parts, response.stop)
        alternatives = []
        for choice, other in enumerate(response.alternatives, 1):
            other_parts, other_stop = restorer.answer(choice, other.parts, other.stop)
            alternatives.append(replace(other, parts=other_parts, stop=other_stop))
        return replace(response, parts=parts, stop=stop, alternatives=tuple(alternatives))

    def original_name(self, namespace: str | None, name: str) -> tuple[str | None, str]:
        """(namespace, name) of a tool as the request has it, from what the target was told."""
        return (namespace, name) if self._names is None else self._names.from_wire(namespace, name)

    def restorer(self, losses: Losses | None = None) -> Restorer:
        """The same, for the events of one stream."""
        return Restorer(self, Losses() if losses is None else losses)


class Restorer:
    """One answer on its way back."""

    __slots__ = (
        "_calls",
        "_choices",
        "_cut_short",
        "_ids",
        "_one_call",
        "_original_name",
        "_unwrapping",
        "_wrapped",
        "losses",
    )

    def __init__(self, exchange: Exchange, losses: Losses) -> None:
        self.losses = losses
        self._original_name = exchange.original_name
        self._one_call = exchange.one_call
        self._wrapped = exchange.wrapped
        self._ids = Ids()
        self._ids.used.update(exchange.call_ids)
        self._calls: dict[int, int] = {}  # how many calls each choice has made
        self._unwrapping: dict[int, Unwrapper] = {}
        self._choices: dict[int, int] = {}  # of each call that is not in the first choice
        self._cut_short: set[int] = set()  # choices with a call that was

    def answer(self, choice: int, parts: tuple[Part, ...], stop: Stop | None) -> tuple[tuple[Part, ...], Stop | None]:
        """What a whole choice becomes."""
        restored = tuple([self._restore(part, choice) if isinstance(part, ToolCall) else part for part in parts])
        return restored, None if stop is None else self._stop(choice, stop)

    def feed(self, event: Event) -> tuple[Event, ...]:
        kind = type(event)
        if kind is CallDelta:
            if self._unwrapping:
                unwrapper = self._unwrapping.get(event.key)  # type: ignore[union-attr]
                if unwrapper is not None:
                    return unwrapper.feed(event)  # type: ignore[arg-type]
            return (event,)
        if isinstance(event, CallStart):
            return (self._start(event),)
        if isinstance(event, CallEnd):
            return self._end(event)
        if isinstance(event, ResponseEnd) and self._cut_short:
            stops = tuple(self._stop(choice, stop) for choice, stop in enumerate(event.stops))
            return (replace(event, stops=stops),)
        return (event,)

    def _end(self, event: CallEnd) -> tuple[Event, ...]:
        if event.state == "truncated":
            self._cut_short.add(self._choices.get(event.key, 0))
        if event.key in self._unwrapping:
            return self._unwrapping.pop(event.key).end(event)
        if event.raw == "" and event.arguments is not None:
            return (replace(event, raw=None),)
        return (event,)

    def _stop(self, choice: int, stop: Stop) -> Stop:
        """Not "run these calls" where one of them was cut short: some clients would read it as a call without arguments."""
        if choice not in self._cut_short or stop.reason not in ("tool_calls", "stop"):
            return stop
        self.losses.add(join("stop"), "stop reason", "rewritten", "a call was cut short: length", "info")
        return Stop("length")

    def _start(self, event: CallStart) -> CallStart:
        self._count(event.choice)
        if event.choice:
            self._choices[event.key] = event.choice
        wrapped = event.name in self._wrapped
        if wrapped:
            self._unwrapping[event.key] = Unwrapper(event.key)
        namespace, name = self._original_name(event.namespace, event.name)
        call_id = self._ids.assign(event.id, event.name)
        kind = "freeform" if wrapped else event.kind
        if (call_id, name, namespace, kind) == (event.id, event.name, event.namespace, event.kind):
            return event
        return CallStart(event.key, call_id, name, kind, namespace, event.choice, event.extra)

    def _restore(self, call: ToolCall, choice: int) -> ToolCall:
        self._count(choice)
        if call.state == "truncated":
            self._cut_short.add(choice)
        if call.name in self._wrapped:
            call = unwrap_call(call)
        call = with_written_arguments(call)
        namespace, name = self._original_name(call.namespace, call.name)
        call_id = self._ids.assign(call.id, call.name)
        if (call_id, name, namespace) == (call.id, call.name, call.namespace):
            return call
        return replace(call, id=call_id, name=name, namespace=namespace)

    def _count(self, choice: int) -> None:
        self._calls[choice] = self._calls.get(choice, 0) + 1
        if self._one_call and self._calls[choice] == 2:
            detail = "the request asked for one call at a time; the target has no switch for it, or did not heed it"
            self.losses.add(join("parts"), "one call at a time", "weakened", detail)
