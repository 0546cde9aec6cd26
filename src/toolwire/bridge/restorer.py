"""Restore one answer for the client: event by event, or all at once.

Errors here are caused by the model, and must not look like a call that can be run. A truncated call makes the stop
`length`, whatever the provider reports. A call whose arguments are no JSON object is passed on if the client receives
the text and can check it; if the client would receive an object, or plain input, the answer ends in a fault.
"""

from __future__ import annotations

from typing import Protocol

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
from ..ir.parts import CallKind, Part, Refusal, Text, ToolCall
from ..ir.pointer import join
from ..ir.response import Fault, Stop
from ..ir.text import escape
from ..schema.lowering import Lowered
from ..wire.protocol import Capabilities
from .fit_tools import WRAPPED_INPUT
from .ids import IdAllocator
from .lift import ArgumentLifter, lift_call
from .lift_output import OutputLifter
from .unwrap import FreeformUnwrapper, unwrap_call

__all__ = ["RequestChanges", "Restorer"]

_REFUSAL = -1
"""The key of a refusal that is sent as text; decoders count from zero."""


class RequestChanges(Protocol):
    """The changes to a request that an answer depends on; `Exchange` records them."""

    lifts: dict[str, Lowered]
    output: Lowered | None

    @property
    def is_single_call(self) -> bool: ...
    @property
    def call_ids(self) -> list[str]: ...
    @property
    def wrapped(self) -> frozenset[str]: ...
    def restore_fault(self, fault: Fault) -> Fault: ...
    def original_name(self, namespace: str | None, name: str) -> tuple[str | None, str]: ...


class _OpenCall:
    """A call of a stream between its start and its end; `name` is its name on the provider's wire."""

    __slots__ = ("choice", "kind", "name", "unwrapper")

    def __init__(
        self, choice: int, name: str, kind: CallKind, unwrapper: FreeformUnwrapper | ArgumentLifter | None
    ) -> None:
        self.choice = choice
        self.name = name
        self.kind = kind
        self.unwrapper = unwrapper  # converts the arguments back; None if they are passed on unchanged


class Restorer:
    """Turn the provider's events into events for the client. After a `fault` it returns no more events."""

    __slots__ = (
        "_calls",
        "_ids",
        "_lifts",
        "_object_arguments",
        "_output",
        "_texts",
        "_one_call",
        "_open_calls",
        "_original_name",
        "_refusals",
        "_refused",
        "_restore_fault",
        "_truncated_choices",
        "_unwrapping",
        "_wrapped",
        "fault",
        "losses",
    )

    def __init__(self, changes: RequestChanges, losses: Losses, client: Capabilities | None = None) -> None:
        self.losses = losses
        self.fault: Fault | None = None
        self._original_name = changes.original_name
        self._restore_fault = changes.restore_fault
        self._one_call = changes.is_single_call
        self._wrapped = changes.wrapped
        self._lifts = changes.lifts
        self._output = changes.output
        self._texts: dict[int, OutputLifter] = {}
        self._refusals = client is not None and client.refusals  # the client's wire has refusals as text
        self._refused = False  # the provider sent the refusal as text already
        self._object_arguments = client is not None and client.object_arguments
        self._ids = IdAllocator()
        self._ids.used.update(changes.call_ids)
        self._calls: dict[int, int] = {}  # number of calls by choice
        self._open_calls: dict[int, _OpenCall] = {}
        self._unwrapping = False  # some call has an unwrapper: a fast check for deltas
        self._truncated_choices: set[int] = set()  # choices with a truncated call

    def restore_choice(self, choice: int, parts: tuple[Part, ...], stop: Stop | None) -> tuple[tuple[Part, ...], Stop]:
        """Restore a whole choice."""
        restored: list[Part] = []
        for number, part in enumerate(parts):
            kept_part = self._restore_call(part, choice, number) if isinstance(part, ToolCall) else part
            if isinstance(part, Text) and self._output is not None:
                lifter = OutputLifter(0, self._output)
                events = [*lifter.feed(TextDelta.of(0, part.text)), *lifter.end(TextEnd(0))]
                kept_part = replace(part, text="".join([e.text for e in events if isinstance(e, TextDelta)]))
                where = f"/alternatives/{choice - 1}" if choice else ""
                if lifter.problem:
                    self.losses.add(f"{where}/parts/{number}", "answer", "weakened", lifter.problem)
            if kept_part is not None:
                restored.append(kept_part)
        if stop is None:  # an answer that is not finished, or that ends without a reason: every client needs one
            stop = Stop("tool_calls" if any(isinstance(part, ToolCall) for part in restored) else "unknown")
        if (text := self._refusal_text(stop)) and not any(type(p) is Refusal for p in restored):
            self._report_refusal(choice)
            restored.append(Refusal(text))
        return tuple(restored), self._adjust_stop(choice, stop)

    def _refusal_text(self, stop: Stop) -> str | None:
        """Return a refusal's text, if the provider sends it beside the stop reason and the client expects text."""
        return stop.detail if self._refusals and stop.reason == "refusal" else None

    def _report_refusal(self, choice: int) -> None:
        where = join("alternatives", choice - 1, "stop", "detail") if choice else join("stop", "detail")
        self.losses.add(where, "stop detail", "moved", "a refusal is a separate text here", "info")

    def feed(self, event: Event) -> tuple[Event, ...]:
        """Return the client's events for one event of the provider."""
        if self.fault is not None:
            return ()
        if type(event) is CallDelta:
            if self._unwrapping:
                unwrapper = self._open_calls[event.key].unwrapper
                if unwrapper is not None:
                    return unwrapper.feed(event)
            return (event,)
        if isinstance(event, CallStart):
            return (self._start_call(event),)
        if isinstance(event, CallEnd):
            return self._end_call(event)
        if isinstance(event, ResponseStart):
            self._ids.salt = event.id
        elif isinstance(event, ResponseEnd):
            return self._finish(event)
        elif isinstance(event, StreamFault):
            return (replace(event, fault=self._restore_fault(event.fault)),)
        elif isinstance(event, TextStart) and event.refusal:
            self._refused = True
        elif isinstance(event, TextStart) and self._output is not None:
            self._texts[event.key] = OutputLifter(event.key, self._output)
        elif isinstance(event, TextDelta) and event.key in self._texts:
            return self._texts[event.key].feed(event)
        elif isinstance(event, TextEnd) and event.key in self._texts:
            lifter = self._texts.pop(event.key)
            events = lifter.end(event)
            if lifter.problem:
                self.losses.add("/parts", "answer", "weakened", lifter.problem)
            return events
        return (event,)

    def _finish(self, event: ResponseEnd) -> tuple[Event, ...]:
        """Add the text of a refusal, adjust the stop of a truncated call, and supply a missing stop."""
        # some servers end without a reason, but every client needs one
        stops = event.stops or (Stop("tool_calls" if self._calls else "unknown"),)
        refusal_events: tuple[Event, ...] = ()
        if not self._refused and (text := self._refusal_text(stops[0])):
            self._report_refusal(0)
            refusal_events = (TextStart(_REFUSAL, 0, True), TextDelta(_REFUSAL, escape(text)), TextEnd(_REFUSAL))
        if self._truncated_choices or not event.stops:
            event = replace(event, stops=tuple(self._adjust_stop(choice, stop) for choice, stop in enumerate(stops)))
        return (*refusal_events, event)

    def _start_call(self, event: CallStart) -> CallStart:
        """Return the start of a call with the client's name and id; prepare the conversion of its arguments."""
        self._count_call(event.choice)
        wrapped, lowered = event.name in self._wrapped, self._lifts.get(event.name)
        kind: CallKind = "freeform" if wrapped else event.kind
        unwrapper: FreeformUnwrapper | ArgumentLifter | None = FreeformUnwrapper(event.key) if wrapped else None
        if lowered is not None and kind == "function":
            unwrapper = ArgumentLifter(event.key, lowered)
        self._open_calls[event.key] = _OpenCall(event.choice, event.name, kind, unwrapper)
        self._unwrapping = self._unwrapping or unwrapper is not None
        namespace, name = self._original_name(event.namespace, event.name)
        call_id = self._ids.assign(event.id, event.name)
        if (call_id, name, namespace, kind) == (event.id, event.name, event.namespace, event.kind):
            return event
        return CallStart(event.key, call_id, name, kind, namespace, event.choice, event.extra)

    def _end_call(self, event: CallEnd) -> tuple[Event, ...]:
        """End a call. A broken call that the client could not recognise as broken ends the answer in a fault."""
        call = self._open_calls.pop(event.key)
        events: tuple[Event, ...] = (event,)
        end = event
        if call.unwrapper is not None:
            if call.kind == "freeform":
                self._report_other_arguments(event.arguments)
            *_, last = events = call.unwrapper.end(event)
            assert isinstance(last, CallEnd)
            end = last
        if end.state == "truncated":
            self._truncated_choices.add(call.choice)
        elif end.state == "invalid" and self._is_damage_hidden(call.kind, call.choice):
            self.fault = self._malformed_fault(call.name)
            return (StreamFault(self.fault),)
        elif end.raw == "" and end.arguments is not None:
            return (replace(end, raw=None),)
        return events

    def _restore_call(self, call: ToolCall, choice: int, number: int) -> ToolCall | None:
        """Restore a call of a complete answer; return None for a truncated one that would look complete."""
        self._count_call(choice)
        if call.name in self._wrapped:
            self._report_other_arguments(call.arguments)
            call = unwrap_call(call)
        elif call.name in self._lifts:
            call = lift_call(call, self._lifts[call.name])
        if call.state == "truncated":
            self._truncated_choices.add(choice)
            if self._object_arguments:
                detail = "it is truncated, and would look complete"
                self.losses.add(join("parts", number), "call", "dropped", detail, "error")
                return None
        elif call.state == "invalid" and self._is_damage_hidden(call.kind, choice):
            self.fault = self._malformed_fault(call.name)
        call = call.with_explicit_arguments()
        namespace, name = self._original_name(call.namespace, call.name)
        call_id = self._ids.assign(call.id, call.name)
        if (call_id, name, namespace) == (call.id, call.name, call.namespace):
            return call
        return replace(call, id=call_id, name=name, namespace=namespace)

    def _is_damage_hidden(self, kind: CallKind, choice: int) -> bool:
        """Return whether the client cannot detect a broken call of this kind.

        Arguments as objects count in the first choice only: another choice is not worth losing the answer.
        """
        return kind == "freeform" or (self._object_arguments and choice == 0)

    def _malformed_fault(self, name: str) -> Fault:
        message = f"the model called {name} with arguments that are not the requested JSON object"
        return Fault("malformed_call", message, 502, "malformed_function_call", retryable=True)

    def _report_other_arguments(self, arguments: dict[str, object] | None) -> None:
        for name in arguments or ():
            if name != WRAPPED_INPUT:
                detail = f"a freeform call has one argument, `{WRAPPED_INPUT}`"
                self.losses.add(join("parts"), f"argument {name}", "dropped", detail)

    def _adjust_stop(self, choice: int, stop: Stop) -> Stop:
        """Never return "run these calls" if one of them was truncated: some clients would run it without arguments."""
        if choice not in self._truncated_choices or stop.reason not in ("tool_calls", "stop"):
            return stop
        self.losses.add(join("stop"), "stop reason", "rewritten", "a call was truncated; sent as length", "info")
        return Stop("length")

    def _count_call(self, choice: int) -> None:
        self._calls[choice] = self._calls.get(choice, 0) + 1
        if self._one_call and self._calls[choice] == 2:
            detail = "the request asked for one call at a time; the target has no switch for it, or ignored it"
            self.losses.add(join("parts"), "one call at a time", "weakened", detail)
