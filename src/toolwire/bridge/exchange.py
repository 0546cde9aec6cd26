"""Bring an answer back: the names that the request used, ids that are there and unique, freeform calls as freeform.

An Exchange belongs to one request and one target. It works on whole responses and, event by event, on streams; both give
the same.
"""

from __future__ import annotations

from msgspec.structs import replace

from ..ir.events import CallDelta, CallEnd, CallStart, Event
from ..ir.losses import Losses
from ..ir.parts import Part, ToolCall, ToolResult
from ..ir.pointer import join
from ..ir.request import Request
from ..ir.response import Response
from .ids import Ids
from .names import Names
from .unwrap import Unwrapper, unwrap_call

__all__ = ["Exchange", "Restorer", "with_written_arguments"]


def with_written_arguments(call: ToolCall) -> ToolCall:
    """No text at all is how some say "no arguments"; whoever parses it wants to see an empty object."""
    return replace(call, raw=None) if call.raw == "" and call.arguments is not None else call


class Exchange:
    """What to undo in an answer."""

    __slots__ = ("_has_freeform", "_names", "_request")

    def __init__(self, names: Names | None = None, request: Request | None = None, has_freeform: bool = True) -> None:
        self._names = names
        self._request = request
        self._has_freeform = has_freeform

    def restore(self, response: Response, losses: Losses | None = None) -> Response:
        """The answer in the request's own terms."""
        restorer = self.restorer(losses)
        parts = restorer.parts(response.parts)
        alternatives = tuple(replace(other, parts=restorer.parts(other.parts)) for other in response.alternatives)
        if parts == response.parts and alternatives == response.alternatives:
            return response
        return replace(response, parts=parts, alternatives=alternatives)

    def restore_request(self, fitted: Request) -> Request:
        """A fitted request with its names as they were; to see what a target was told."""
        if self._names is None:
            return fitted
        back = self._names.from_wire

        def part_of(part: Part) -> Part:
            if isinstance(part, (ToolCall, ToolResult)) and part.name is not None:
                namespace, name = back(part.name)
                return replace(part, name=name, namespace=part.namespace if namespace is None else namespace)
            return part

        messages = tuple(replace(m, parts=tuple(part_of(part) for part in m.parts)) for m in fitted.messages)
        tools = tuple(
            tool if tool.kind == "builtin" else replace(tool, name=back(tool.name)[1], namespace=back(tool.name)[0])
            for tool in fitted.tools
        )
        choice = fitted.choice
        if choice is not None:
            choice = replace(choice, names=tuple(back(name)[1] for name in choice.names))
        return replace(fitted, messages=messages, tools=tools, choice=choice)

    def restorer(self, losses: Losses | None = None) -> Restorer:
        """The same, for the events of one stream."""
        return Restorer(self._names, self._request, self._has_freeform, Losses() if losses is None else losses)


class Restorer:
    """One answer on its way back."""

    __slots__ = ("_calls", "_ids", "_names", "_one_call", "_unwrapping", "_wrapped", "losses")

    def __init__(self, names: Names | None, request: Request | None, has_freeform: bool, losses: Losses) -> None:
        self.losses = losses
        self._names = names
        self._ids = Ids()
        self._one_call = request is not None and request.parallel is False
        self._calls: dict[int, int] = {}  # how many calls each choice has made
        self._wrapped: frozenset[str] = frozenset()  # freeform tools that went out as functions
        self._unwrapping: dict[int, Unwrapper] = {}
        if request is not None:
            for message in request.messages:
                self._ids.used.update([part.id for part in message.parts if isinstance(part, ToolCall)])
            if not has_freeform and names is not None:
                wrapped = (tool for tool in request.tools if tool.kind == "freeform")
                self._wrapped = frozenset(names.to_wire(tool.namespace, tool.name) for tool in wrapped)

    def parts(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        return tuple([self._restore(part) if isinstance(part, ToolCall) else part for part in parts])

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
            if event.key in self._unwrapping:
                return self._unwrapping.pop(event.key).end(event)
            if event.raw == "" and event.arguments is not None:
                return (replace(event, raw=None),)
        return (event,)

    def _start(self, event: CallStart) -> CallStart:
        self._count(event.choice)
        wrapped = event.name in self._wrapped
        if wrapped:
            self._unwrapping[event.key] = Unwrapper(event.key)
        namespace, name = self._name(event.namespace, event.name)
        call_id = self._ids.assign(event.id, event.name)
        kind = "freeform" if wrapped else event.kind
        if (call_id, name, namespace, kind) == (event.id, event.name, event.namespace, event.kind):
            return event
        return CallStart(event.key, call_id, name, kind, namespace, event.choice, event.extra)

    def _restore(self, call: ToolCall) -> ToolCall:
        self._count(0)
        if call.name in self._wrapped:
            call = unwrap_call(call)
        call = with_written_arguments(call)
        namespace, name = self._name(call.namespace, call.name)
        call_id = self._ids.assign(call.id, call.name)
        if (call_id, name, namespace) == (call.id, call.name, call.namespace):
            return call
        return replace(call, id=call_id, name=name, namespace=namespace)

    def _name(self, namespace: str | None, name: str) -> tuple[str | None, str]:
        if self._names is None:
            return namespace, name
        original = self._names.from_wire(name)
        return (namespace, original[1]) if original[0] is None else original

    def _count(self, choice: int) -> None:
        self._calls[choice] = self._calls.get(choice, 0) + 1
        if self._one_call and self._calls[choice] == 2:
            detail = "the request asked for one call at a time; the target has no switch for it, or did not heed it"
            self.losses.add(join("parts"), "one call at a time", "weakened", detail)
