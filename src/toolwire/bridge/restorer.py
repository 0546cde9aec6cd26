"""Restore one answer for the client: event by event, or all at once.

Errors here are caused by the model, and must not look like a call that can be run. A truncated call makes the stop
`length`, whatever the provider reports. A call whose arguments are no JSON object is passed on if the client receives
the text and can check it; if the client would receive an object, or plain input, the answer ends in a fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..ir.events import (
    CallDelta,
    CallEnd,
    CallStart,
    Event,
    ResponseEnd,
    ResponseStart,
    StreamFault,
    TextDelta,
    TextEnd,
    TextStart,
)
from ..ir.losses import Losses
from ..ir.parts import CallKind, Part, Refusal, ToolCall
from ..ir.pointer import join
from ..ir.response import Fault, Stop
from ..ir.text import escape
from ..wire.protocol import Capabilities
from .fit_tools import WRAPPED_INPUT
from .ids import IdAllocator
from .lift import ArgumentLifter, lift_call
from .unwrap import FreeformUnwrapper, unwrap_call

if TYPE_CHECKING:
    from .exchange import Exchange

__all__ = ["Restorer"]


_REFUSAL = -1
"""The key of a refusal that is sent as text; decoders count from zero."""


class _OpenCall:
    __slots__ = ("choice", "kind", "name", "unwrapper")

    def __init__(
        self, choice: int, name: str, kind: CallKind, unwrapper: FreeformUnwrapper | ArgumentLifter | None
    ) -> None:
        self.choice = choice
        self.name = name
        self.kind = kind
        self.unwrapper = unwrapper


class Restorer:
    """Turn the provider's events into events for the client. After a `fault` it returns no more events."""

    __slots__ = (
        "_calls",
        "_cut_short",
        "_ids",
        "_lifts",
        "_object_arguments",
        "_one_call",
        "_open",
        "_original_name",
        "_refusals",
        "_refused",
        "_restore_fault",
        "_unwrapping",
        "_wrapped",
        "fault",
        "losses",
    )

    def __init__(self, exchange: Exchange, losses: Losses, client: Capabilities | None = None) -> None:
        self.losses = losses
        self.fault: Fault | None = None
        self._original_name = exchange.original_name
        self._restore_fault = exchange.restore_fault
        self._one_call = exchange.one_call
        self._wrapped = exchange.wrapped
        self._lifts = exchange.lifts
        self._refusals = client is not None and client.refusals
        self._refused = False
        self._object_arguments = client is not None and client.object_arguments
        self._ids = IdAllocator()
        self._ids.used.update(exchange.call_ids)
        self._calls: dict[int, int] = {}  # number of calls by choice
        self._open: dict[int, _OpenCall] = {}
        self._unwrapping = False
        self._cut_short: set[int] = set()  # choices with a truncated call

    def answer(self, choice: int, parts: tuple[Part, ...], stop: Stop | None) -> tuple[tuple[Part, ...], Stop]:
        """Restore a whole choice."""
        restored: list[Part] = []
        for number, part in enumerate(parts):
            kept = self._restore(part, choice, number) if isinstance(part, ToolCall) else part
            if kept is not None:
                restored.append(kept)
        if stop is None:  # an answer that is not finished, or that ends without a reason: every client needs one
            stop = Stop("tool_calls" if any(isinstance(part, ToolCall) for part in restored) else "unknown")
        if (words := self._refusal_in(stop)) and not any(type(p) is Refusal for p in restored):
            self._report_refusal(choice)
            restored.append(Refusal(words))
        return tuple(restored), self._stop(choice, stop)

    def _refusal_in(self, stop: Stop) -> str | None:
        """Return a refusal's text, if the provider sends it beside the stop reason and the client expects text."""
        return stop.detail if self._refusals and stop.reason == "refusal" else None

    def _report_refusal(self, choice: int) -> None:
        where = join("alternatives", choice - 1, "stop", "detail") if choice else join("stop", "detail")
        self.losses.add(where, "stop detail", "moved", "a refusal is a separate text here", "info")

    def feed(self, event: Event) -> tuple[Event, ...]:
        if self.fault is not None:
            return ()
        if type(event) is CallDelta:
            if self._unwrapping:
                unwrapper = self._open[event.key].unwrapper
                if unwrapper is not None:
                    return unwrapper.feed(event)
            return (event,)
        if isinstance(event, CallStart):
            return (self._start(event),)
        if isinstance(event, CallEnd):
            return self._end(event)
        if isinstance(event, ResponseStart):
            self._ids.salt = event.id
        elif isinstance(event, ResponseEnd):
            return self._finish(event)
        elif isinstance(event, StreamFault):
            return (replace(event, fault=self._restore_fault(event.fault)),)
        elif isinstance(event, TextStart) and event.refusal:
            self._refused = True
        return (event,)

    def _finish(self, event: ResponseEnd) -> tuple[Event, ...]:
        # some servers end without a reason, but every client needs one
        stops = event.stops or (Stop("tool_calls" if self._calls else "unknown"),)
        said: tuple[Event, ...] = ()
        if not self._refused and (words := self._refusal_in(stops[0])):
            self._report_refusal(0)
            said = (TextStart(_REFUSAL, 0, True), TextDelta(_REFUSAL, escape(words)), TextEnd(_REFUSAL))
        if self._cut_short or not event.stops:
            event = replace(event, stops=tuple(self._stop(choice, stop) for choice, stop in enumerate(stops)))
        return (*said, event)

    def _start(self, event: CallStart) -> CallStart:
        self._count(event.choice)
        wrapped, lowered = event.name in self._wrapped, self._lifts.get(event.name)
        kind: CallKind = "freeform" if wrapped else event.kind
        unwrapper: FreeformUnwrapper | ArgumentLifter | None = FreeformUnwrapper(event.key) if wrapped else None
        if lowered is not None and kind == "function":
            unwrapper = ArgumentLifter(event.key, lowered)
        self._open[event.key] = _OpenCall(event.choice, event.name, kind, unwrapper)
        self._unwrapping = self._unwrapping or unwrapper is not None
        namespace, name = self._original_name(event.namespace, event.name)
        call_id = self._ids.assign(event.id, event.name)
        if (call_id, name, namespace, kind) == (event.id, event.name, event.namespace, event.kind):
            return event
        return CallStart(event.key, call_id, name, kind, namespace, event.choice, event.extra)

    def _end(self, event: CallEnd) -> tuple[Event, ...]:
        call = self._open.pop(event.key)
        events: tuple[Event, ...] = (event,)
        end = event
        if call.unwrapper is not None:
            if call.kind == "freeform":
                self._report_other_arguments(event.arguments)
            *_, last = events = call.unwrapper.end(event)
            assert isinstance(last, CallEnd)
            end = last
        if end.state == "truncated":
            self._cut_short.add(call.choice)
        elif end.state == "invalid" and self._looks_sound(call.kind, call.choice):
            self.fault = self._malformed(call.name)
            return (StreamFault(self.fault),)
        elif end.raw == "" and end.arguments is not None:
            return (replace(end, raw=None),)
        return events

    def _restore(self, call: ToolCall, choice: int, number: int) -> ToolCall | None:
        self._count(choice)
        if call.name in self._wrapped:
            self._report_other_arguments(call.arguments)
            call = unwrap_call(call)
        elif call.name in self._lifts:
            call = lift_call(call, self._lifts[call.name])
        if call.state == "truncated":
            self._cut_short.add(choice)
            if self._object_arguments:
                detail = "it is truncated, and would look complete"
                self.losses.add(join("parts", number), "call", "dropped", detail, "error")
                return None
        elif call.state == "invalid" and self._looks_sound(call.kind, choice):
            self.fault = self._malformed(call.name)
        call = call.with_explicit_arguments()
        namespace, name = self._original_name(call.namespace, call.name)
        call_id = self._ids.assign(call.id, call.name)
        if (call_id, name, namespace) == (call.id, call.name, call.namespace):
            return call
        return replace(call, id=call_id, name=name, namespace=namespace)

    def _looks_sound(self, kind: CallKind, choice: int) -> bool:
        """Return whether the client cannot detect a broken call of this kind.

        Arguments as objects count in the first choice only: another choice is not worth losing the answer.
        """
        return kind == "freeform" or (self._object_arguments and choice == 0)

    def _malformed(self, name: str) -> Fault:
        message = f"the model called {name} with arguments that are not the requested JSON object"
        return Fault("malformed_call", message, 502, "malformed_function_call", retryable=True)

    def _report_other_arguments(self, arguments: dict[str, object] | None) -> None:
        for name in arguments or ():
            if name != WRAPPED_INPUT:
                detail = f"a freeform call has one argument, `{WRAPPED_INPUT}`"
                self.losses.add(join("parts"), f"argument {name}", "dropped", detail)

    def _stop(self, choice: int, stop: Stop) -> Stop:
        """Never return "run these calls" if one of them was truncated: some clients would run it without arguments."""
        if choice not in self._cut_short or stop.reason not in ("tool_calls", "stop"):
            return stop
        self.losses.add(join("stop"), "stop reason", "rewritten", "a call was truncated; sent as length", "info")
        return Stop("length")

    def _count(self, choice: int) -> None:
        self._calls[choice] = self._calls.get(choice, 0) + 1
        if self._one_call and self._calls[choice] == 2:
            detail = "the request asked for one call at a time; the target has no switch for it, or ignored it"
            self.losses.add(join("parts"), "one call at a time", "weakened", detail)
