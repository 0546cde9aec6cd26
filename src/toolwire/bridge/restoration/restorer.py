"""Restore one answer for the client: event by event, or whole, in the same steps.

Each call takes these steps at its end:

1. Empty text and `null` become the empty object: models write both for no arguments.
2. With `repair`, text that is not JSON is repaired in the model's terms: against the schema that was sent.
3. The arguments are lifted to the original schema, or unwrapped to freeform input.
4. With `repair`, values are repaired in the client's terms: against the original schema.
5. The result is checked. Errors here are caused by the model, and must not look like a call that can be run:
   - A truncated call makes the stop `length`, unless the provider reports a limit, a filter or a refusal. It is the
     last item of its answer: JSON that ends early anywhere else is malformed.
   - Malformed arguments are passed on if the client receives them as text and can check them. If the client would
     receive an object, or plain input, the answer ends in a fault.

The order follows from the two schemas. Only the schema that was sent describes the text that the model wrote, so broken
text is repaired before lifting (2, 3). Only the original schema describes the tool, so values are repaired after it (4).
The check is last, because a repair may have made a broken call valid.

A stream and a whole answer share these steps: `restore` feeds the start and the end of each call to the same methods.
The start of a call is sent before its end is known. So its name and id are restored at the start, and arguments are
passed on as they arrive only if no later step can change them; `_converting` has the calls for which that is not so.
After a fault nothing more is returned: the client has seen the end of the answer.

An answer without content and without a stop reason is a fault of the provider, not an answer. The text of a structured
output is lifted to the schema of the client (output.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, Protocol

from msgspec.structs import replace

from ...ir.events import (
    CallDelta,
    CallEnd,
    CallStart,
    Event,
    PartStart,
    ReasoningDelta,
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
from ...ir.folding import fold, unfold, unfold_end
from ...ir.losses import Losses
from ...ir.parts import CallKind, Opaque, Part, Refusal, Text, ToolCall
from ...ir.pointer import Object, join
from ...ir.response import Fault, Response, Stop
from ...ir.text import dumps, escape
from ...ir.tools import Tool
from ...schema.lowering.lowered import Lowered
from ...wire.protocol import Capabilities
from ...wire.typed_tools import FitArguments
from ..conversation.names import IdAllocator
from ..fitting.freeform import WRAPPED_INPUT
from ..fitting.hosted_tools import hosted_codec
from ..fitting.tool_search import HostedSearchConverter
from .arguments import ArgumentLifter, FreeformUnwrapper, HeldArguments, NullGuard, argument_events
from .hosted_answers import HostedAnswer, has_hosted_content
from .output import AnswerLifter
from .repair import CallRepairer


class RequestChanges(Protocol):
    """The changes to a request that an answer depends on; `Exchange` records them."""

    lifts: dict[str, Lowered]
    output: Lowered | None

    @property
    def typed(self) -> dict[str, FitArguments]: ...
    @property
    def is_single_call(self) -> bool: ...
    @property
    def source(self) -> str: ...
    @property
    def has_hosted(self) -> bool: ...
    @property
    def call_ids(self) -> list[str]: ...
    @property
    def wrapped(self) -> frozenset[str]: ...
    def restore_fault(self, fault: Fault) -> Fault: ...
    def original_name(self, namespace: str | None, name: str) -> tuple[str | None, str]: ...
    def original_search(self) -> Tool | None: ...
    def find_tool(self, name: str) -> Tool | None: ...


class _Converter(Protocol):
    """Convert the arguments of one call: each delta, then the end."""

    def feed(self, event: CallDelta) -> tuple[Event, ...]: ...
    def end(self, event: CallEnd) -> tuple[Event, ...]: ...


class _OpenCall:
    """A call between its start and its end; `start` is the start that the client gets."""

    __slots__ = ("converter", "name", "path", "start")

    def __init__(self, start: CallStart, name: str, path: str, converter: _Converter | None) -> None:
        self.start = start
        self.name = name  # on the provider's wire
        self.path = path
        self.converter = converter  # converts the arguments; None if they are passed on unchanged


class Restorer:
    """Turn the provider's events into events for the client. After a `fault` it returns no more events."""

    __slots__ = (
        "_announced",
        "_answer",
        "_calls",
        "_converting",
        "_hosted",
        "_ids",
        "_last_key",
        "_lifts",
        "_object_arguments",
        "_one_call",
        "_open_calls",
        "_original_name",
        "_passes_text",
        "_refusals",
        "_refused",
        "_repairer",
        "_restore_fault",
        "_search",
        "_sizes",
        "_truncated",
        "_typed",
        "_wrapped",
        "fault",
        "hosted",
        "losses",
    )

    def __init__(
        self,
        changes: RequestChanges,
        losses: Losses,
        client: Capabilities | None = None,
        repairer: CallRepairer | None = None,
    ) -> None:
        """Create the restorer of one answer; `client` has the capabilities of the client's wire, if it is known."""
        self.losses = losses
        self.fault: Fault | None = None
        self._original_name = changes.original_name
        self._restore_fault = changes.restore_fault
        self._one_call = changes.is_single_call
        self._wrapped = changes.wrapped
        self._typed = changes.typed
        self._search = changes.original_search()
        search_wire = "" if client is None else client.search_wire
        self._hosted = HostedSearchConverter(search_wire, changes.find_tool, is_output=True)
        self.hosted = _make_hosted(changes, client, losses)
        self._lifts = changes.lifts
        self._answer = None if changes.output is None else AnswerLifter(changes.output, losses)
        self._passes_text = self._answer is None and not (self.hosted is not None and self.hosted.reads_text)
        self._repairer = repairer
        self._refusals = client is not None and client.refusals  # the client's wire has refusals as text
        self._refused: set[int] = set()  # choices whose refusal the provider sent as text already
        self._object_arguments = client is not None and client.object_arguments
        self._ids = IdAllocator()
        self._ids.used.update(changes.call_ids)
        self._sizes: dict[int, int] = {}  # number of items by choice
        self._last_key: dict[int, int] = {}  # the last item by choice
        self._announced: dict[int, str] = {}  # paths of the parts that PartStart announced
        self._calls: dict[int, int] = {}  # number of calls by choice
        self._open_calls: dict[int, _OpenCall] = {}
        self._converting: dict[int, _Converter] = {}  # calls whose deltas change
        self._truncated: dict[int, tuple[int, str]] = {}  # by choice: key and name of the first truncated call

    def restore(self, response: Response) -> Response:
        """Return the client's answer for a whole answer: the same steps as for its events, without the events.

        restorer.restore(response) == fold(restorer.feed(event) for each event of unfold(response))
        """
        if self.hosted is not None:
            if has_hosted_content(response, self.hosted.source):
                return self._restore_hosted(response)
            self.hosted = None
        self._ids.salt = response.id
        choices: list[list[Part]] = []
        for choice, parts in enumerate((response.parts, *[other.parts for other in response.alternatives])):
            choices.append(self._restore_parts(choice, parts))
            if self.fault is not None:
                return replace(response, parts=tuple(choices[0]), stop=None, alternatives=(), fault=self.fault)
        return self._restore_end(response, choices)

    def _restore_hosted(self, response: Response) -> Response:
        """Restore a whole answer with hosted tools by its events: a run may become another number of parts."""
        return fold(event for whole in unfold(response) for event in self.feed(whole))

    def _restore_parts(self, choice: int, parts: tuple[Part, ...]) -> list[Part]:
        """Restore the parts of a choice, up to a call that ends the answer in a fault.

        A part of a provider's search that the client's wire cannot show is left out, and refusals are noted.
        """
        restored: list[Part] = []
        for number, part in enumerate(parts):
            key = choice << 32 | number  # unique in the answer, like the keys of a stream
            if type(part) is ToolCall:
                call = self._restore_call(key, choice, part)
                if call is None:
                    break
                restored.append(call)
                continue
            path = self._add_item(key, choice)
            if type(part) is Opaque:
                converted = self._hosted.convert(part, path, self.losses)
                restored += [] if converted is None else [converted]
                continue
            if type(part) is Refusal:
                self._refused.add(choice)
            elif type(part) is Text and self._answer is not None:
                part = replace(part, text=self._answer.lift(part.text, path))
            restored.append(part)
        return restored

    def _restore_call(self, key: int, choice: int, call: ToolCall) -> ToolCall | None:
        """Restore a whole call; return None if it ends the answer in a fault."""
        start = CallStart(key, call.id, call.name, call.kind, call.namespace, choice)
        client_start: CallStart = self._start_call(start)[-1]  # type: ignore[assignment]
        *_, end = self._end_call(CallEnd(key, call.arguments, call.raw, call.state))
        if type(end) is not CallEnd:
            return None
        if client_start is not start:
            call = replace(
                call,
                id=client_start.id,
                name=client_start.name,
                kind=client_start.kind,
                namespace=client_start.namespace,
            )
        if (end.arguments, end.raw, end.state) == (call.arguments, call.raw, call.state):
            return call
        return replace(call, arguments=end.arguments, raw=end.raw, state=end.state)

    def _restore_end(self, response: Response, choices: list[list[Part]]) -> Response:
        """Build the client's answer from the restored parts, with the stops or the fault of its end.

        The text of a refusal is appended to its choice.
        """
        if response.fault is not None:
            alternatives = [
                replace(other, parts=tuple(parts))
                for other, parts in zip(response.alternatives, choices[1:], strict=True)
            ]
            fault = self._restore_fault(response.fault)
            return replace(response, parts=tuple(choices[0]), alternatives=tuple(alternatives), fault=fault)
        *refusals, end = self._finish(unfold_end(response))
        if not isinstance(end, ResponseEnd):
            return replace(response, parts=tuple(choices[0]), stop=None, alternatives=(), fault=self.fault)
        for event in refusals:
            if isinstance(event, TextStart):
                choices[event.choice].append(Refusal(end.stops[event.choice].detail or ""))  # type: ignore[union-attr]
        alternatives = [
            replace(other, parts=tuple(parts), stop=stop)
            for other, parts, stop in zip(response.alternatives, choices[1:], end.stops[1:], strict=True)
        ]
        return replace(response, parts=tuple(choices[0]), stop=end.stops[0], alternatives=tuple(alternatives))

    def feed(self, event: Event) -> tuple[Event, ...]:
        """Return the client's events for one event of the provider."""
        if self.fault is not None:
            return ()
        kind = type(event)
        if kind is TextDelta:
            return (event,) if self._passes_text else self._feed_text(event)  # type: ignore[arg-type]
        if kind is CallDelta:
            return self._feed_delta(event) if self._converting else (event,)  # type: ignore[arg-type]
        step = _STEPS.get(kind)
        return (event,) if step is None else step(self, event)

    def feed_all(self, events: Iterable[Event]) -> list[Event]:
        """Return the client's events for several events of the provider. Runs of unchanged deltas cost no step each."""
        restored: list[Event] = []
        for kind, group in groupby(events, type):
            run = iter(group)
            if kind is CallDelta and self._converting:
                for event in run:
                    restored += self.feed(event)
                    if not self._converting:
                        break  # a guard of `null` is done after the first deltas
            if self._passes_unchanged(kind):
                restored += run
            else:
                for event in run:
                    restored += self.feed(event)
        return restored

    def _passes_unchanged(self, kind: type[Event]) -> bool:
        """Return whether all deltas of this kind pass unchanged, until an event of another kind."""
        if self.fault is not None:
            return False
        if kind is CallDelta:
            return not self._converting
        return kind is ReasoningDelta or (kind is TextDelta and self._passes_text)

    def _feed_delta(self, event: CallDelta) -> tuple[Event, ...]:
        converter = self._converting.get(event.key)
        if converter is None:
            return (event,)
        events = converter.feed(event)
        if type(converter) is NullGuard and converter.is_open:
            del self._converting[event.key]
        return events

    def _start_response(self, event: ResponseStart) -> tuple[Event, ...]:
        self._ids.salt = event.id
        if self.hosted is not None:
            self.hosted.salt = event.id
        return (event,)

    def _start_item(self, event: TextStart | ReasoningStart | PartStart) -> tuple[Event, ...]:
        """Register an item of the answer, and begin to lift its text if the answer has a schema."""
        path = self._add_item(event.key, event.choice)
        if type(event) is PartStart:
            self._announced[event.key] = path
        elif type(event) is TextStart:
            if event.refusal:
                self._refused.add(event.choice)
            elif self._answer is not None:
                self._answer.start(event.key, path)
        return (event,) if self.hosted is None else self.hosted.start_item(event, path)

    def _feed_text(self, event: TextDelta) -> tuple[Event, ...]:
        """Lift the text of a structured answer, and collect the text that citations refer to."""
        events: tuple[Event, ...] = (event,) if self._answer is None else self._answer.feed(event)
        return events if self.hosted is None else self.hosted.feed_text(events)

    def _end_text(self, event: TextEnd) -> tuple[Event, ...]:
        events: tuple[Event, ...] = (event,) if self._answer is None else self._answer.end(event)
        return events if self.hosted is None else self.hosted.feed_text(events)

    def _take_part(self, event: WholePart) -> tuple[Event, ...]:
        announced = self._announced.get(event.key)
        path = announced or self._add_item(event.key, event.choice)
        part: Part | None = event.part
        if type(part) is Opaque:
            part = self._hosted.convert(part, path, self.losses)
            if part is None:
                return ()
            if part is not event.part:
                event = WholePart(event.key, part, event.choice)
        return (event,) if self.hosted is None else self.hosted.take_part(event, path, is_placed=announced is not None)

    def _note_usage(self, event: UsageUpdate) -> tuple[Event, ...]:
        if self.hosted is not None:
            self.hosted.note_usage(event.usage)
        return (event,)

    def _add_item(self, key: int, choice: int) -> str:
        """Register an item, and return its path in the answer."""
        number = self._sizes.get(choice, 0)
        self._sizes[choice] = number + 1
        self._last_key[choice] = key
        return f"{_choice_path(choice)}/parts/{number}"

    def _start_call(self, event: CallStart) -> tuple[Event, ...]:
        """Return the start of a call with the client's name and id; register it and the conversion of its arguments."""
        path = self._add_item(event.key, event.choice)
        self._count_call(event.choice, path)
        kind: CallKind = "freeform" if event.name in self._wrapped else event.kind
        namespace, name = self._original_name(event.namespace, event.name)
        if event.name in self._typed and event.kind == "function":
            kind = "typed"
        if self._search is not None and (event.kind == "search" or name == self._search.name):
            namespace, name = self._search.namespace, self._search.name
            kind = "search" if self._search.kind == "search" else "function"
        call_id = self._ids.assign(event.id, event.name)
        start = event
        if (call_id, name, namespace, kind) != (event.id, event.name, event.namespace, event.kind):
            start = replace(event, id=call_id, name=name, namespace=namespace, kind=kind)
        converter = self._make_converter(event)
        if converter is not None:
            self._converting[event.key] = converter
        self._open_calls[event.key] = _OpenCall(start, event.name, path, converter)
        return (start,) if self.hosted is None else self.hosted.start_item(start, path)

    def _make_converter(self, event: CallStart) -> _Converter | None:
        """Return the converter for the arguments of a call, or None if they pass unchanged."""
        if event.name in self._wrapped:
            return FreeformUnwrapper(event.key)
        if event.kind == "freeform":
            return None
        lowered = self._lifts.get(event.name)
        lifter = None if lowered is None else ArgumentLifter(event.key, lowered)
        if self._repairer is not None or event.name in self._typed:
            return HeldArguments(lifter)
        return lifter or NullGuard()

    def _end_call(self, event: CallEnd) -> tuple[Event, ...]:
        """End a call: repair and convert its arguments, and return its last events.

        A broken call that the client could not recognise as broken ends the answer in a fault.
        """
        call = self._open_calls.pop(event.key)
        self._converting.pop(event.key, None)
        end = self._repair_text(self._fill_arguments(event, call), call)
        if call.start.kind == "freeform":
            self._report_other_arguments(end.arguments, call.path)
        events: tuple[Event, ...] = (end,) if call.converter is None else call.converter.end(end)
        events = self._repair_values(events, call)
        end = events[-1]  # type: ignore[assignment]
        if call.start.kind == "typed":
            end = self._fit_typed(end, call)
            events = argument_events(end)
        if end.state == "truncated":
            self._truncated.setdefault(call.start.choice, (event.key, call.name))
        elif end.state == "invalid" and self._is_damage_hidden(call.start):
            return self._fail(_malformed_call(call.name))
        elif end.raw == "" and end.arguments is not None:
            return (replace(end, raw=None),)  # "" for no arguments: the client gets the empty object
        return events

    def _fill_arguments(self, end: CallEnd, call: _OpenCall) -> CallEnd:
        """Replace `null` by the empty object."""
        if end.arguments != {} or (end.raw or "").strip() != "null":
            return end
        detail = "the model wrote null for no arguments; sent as an empty object"
        self.losses.add(f"{call.path}/arguments", "arguments", "rewritten", detail, "info")
        return replace(end, arguments={}, raw=None, state="complete")

    def _repair_text(self, end: CallEnd, call: _OpenCall) -> CallEnd:
        """Repair text that is not JSON, in the model's terms; calls that are sent as they are wait for the values."""
        if self._repairer is None or end.state != "invalid":
            return end
        schema = _WRAPPED if call.name in self._wrapped else None
        if call.name in self._lifts:
            schema = self._lifts[call.name].schema
        return end if schema is None else self._repairer.repair_text(call.start, end, schema, call.name)

    def _repair_values(self, events: tuple[Event, ...], call: _OpenCall) -> tuple[Event, ...]:
        """Repair the arguments in the client's terms."""
        if self._repairer is None or call.start.kind == "freeform":
            return events
        repaired = self._repairer.repair_call(call.start, events[-1], call.name)  # type: ignore[arg-type]
        return events if repaired is None else argument_events(repaired)

    def _fit_typed(self, end: CallEnd, call: _OpenCall) -> CallEnd:
        """Return the arguments as the client's item holds them; the call is `invalid` if no item can hold them."""
        if end.state != "complete" or end.arguments is None:
            return end
        fitted = self._typed[call.name](end.arguments)
        if fitted is None:
            return replace(end, arguments=None, raw=dumps(end.arguments), state="invalid")
        has_same_form = not fitted.keys().isdisjoint(end.arguments)
        for name, value in end.arguments.items() if has_same_form else ():
            if name not in fitted and value not in (None, "", [], {}):
                detail = "the item of the call has no such field, or it has another type"
                self.losses.add(f"{call.path}/arguments{join(name)}", f"argument {name}", "dropped", detail)
        return replace(end, arguments=fitted, raw=None)

    def _is_damage_hidden(self, start: CallStart) -> bool:
        """Return whether the client cannot detect that this call is broken.

        Arguments as objects count in the first choice only: another choice is not worth losing the answer.
        """
        return start.kind in ("freeform", "typed") or (self._object_arguments and start.choice == 0)

    def _fail(self, fault: Fault) -> tuple[Event, ...]:
        self.fault = fault
        return (StreamFault(fault),)

    def _finish(self, event: ResponseEnd) -> tuple[Event, ...]:
        """Supply missing stops, add the text of a refusal, and adjust the stop of a truncated call.

        An empty answer without a stop becomes a fault, and so does a truncated call that is not the last item, if the
        client receives arguments as objects.
        """
        if not self._sizes.get(0) and (not event.stops or event.stops[0] is None):
            return self._fail(_EMPTY_ANSWER)
        if self._object_arguments and 0 in self._truncated and self._truncated[0][0] != self._last_key[0]:
            return self._fail(_malformed_call(self._truncated[0][1]))
        stops = [self._complete_stop(choice, stop) for choice, stop in enumerate(event.stops)]
        for choice in range(len(stops), max(self._sizes, default=0) + 1):
            stops.append(self._complete_stop(choice, None))
        events: list[Event] = []
        for choice, stop in enumerate(stops):
            events += self._refusal_events(choice, stop)
            stops[choice] = self._adjust_stop(choice, stop)
        if tuple(stops) != event.stops:
            event = replace(event, stops=tuple(stops))
        return (*events, event) if self.hosted is None else (*events, *self.hosted.finish(event))

    def _complete_stop(self, choice: int, stop: Stop | None) -> Stop:
        """Return a stop for an answer without one: some servers end without a reason, but every client needs one."""
        return Stop("tool_calls" if choice in self._calls else "unknown") if stop is None else stop

    def _refusal_events(self, choice: int, stop: Stop) -> tuple[Event, ...]:
        """Return a refusal as text, if the provider sends it beside the stop reason and the client expects text."""
        if not self._refusals or stop.reason != "refusal" or not stop.detail or choice in self._refused:
            return ()
        where = f"{_choice_path(choice)}/stop/detail"
        self.losses.add(where, "stop detail", "moved", "a refusal is a separate text here", "info")
        key = -1 - choice  # decoders count from zero
        return TextStart(key, choice, True), TextDelta(key, escape(stop.detail)), TextEnd(key)

    def _fault(self, event: StreamFault) -> tuple[Event, ...]:
        withheld = () if self._answer is None else self._answer.flush()
        return (*withheld, *self.release(), replace(event, fault=self._restore_fault(event.fault)))

    def release(self) -> tuple[Event, ...]:
        """Return the end of a text that was held back for citations, because the answer ends here without its end."""
        return () if self.hosted is None else self.hosted.release()

    def _report_other_arguments(self, arguments: Object | None, path: str) -> None:
        for name in arguments or ():
            if name != WRAPPED_INPUT:
                detail = f"a freeform call has one argument, `{WRAPPED_INPUT}`"
                self.losses.add(path + join("arguments", name), f"argument {name}", "dropped", detail)

    def _adjust_stop(self, choice: int, stop: Stop) -> Stop:
        """Return a stop that marks a truncated call: after any other stop, some clients would run it."""
        if choice not in self._truncated or stop.reason in _TRUNCATING_STOPS:
            return stop
        where = f"{_choice_path(choice)}/stop"
        self.losses.add(where, "stop reason", "rewritten", "a call was truncated; sent as length", "info")
        return Stop("length")

    def _count_call(self, choice: int, path: str) -> None:
        self._calls[choice] = self._calls.get(choice, 0) + 1
        if self._one_call and self._calls[choice] == 2:
            detail = "the request asked for one call at a time; the target has no switch for it, or ignored it"
            self.losses.add(path, "one call at a time", "weakened", detail)


def _make_hosted(changes: RequestChanges, client: Capabilities | None, losses: Losses) -> HostedAnswer | None:
    """Return the converter of hosted tools, or None if source and client are the same, or one of them has none.

    Without a hosted tool in the request, an answer may still have citations, as answers of Perplexity do.
    """
    if client is None or not client.hosted_wire or changes.source in ("", client.hosted_wire):
        return None
    source, target = hosted_codec(changes.source), hosted_codec(client.hosted_wire)
    if source is None or target is None:
        return None
    return HostedAnswer(source, target, losses, reads_text=changes.has_hosted)


_TRUNCATING_STOPS = frozenset({"length", "context_window", "content_filter", "refusal"})
_EMPTY_ANSWER = Fault("server", "the answer has neither content nor a stop reason", 502, "empty_answer", retryable=True)


def _malformed_call(name: str) -> Fault:
    message = f"the model called {name} with arguments that are not the requested JSON object"
    return Fault("malformed_call", message, 502, "malformed_function_call", retryable=True)


def _choice_path(choice: int) -> str:
    return f"/alternatives/{choice - 1}" if choice else ""


_WRAPPED: Object = {"type": "object", "properties": {WRAPPED_INPUT: {"type": "string"}}, "required": [WRAPPED_INPUT]}
_STEPS: dict[type, Callable[[Restorer, Any], tuple[Event, ...]]] = {
    ResponseStart: Restorer._start_response,
    TextStart: Restorer._start_item,
    TextEnd: Restorer._end_text,
    ReasoningStart: Restorer._start_item,
    PartStart: Restorer._start_item,
    WholePart: Restorer._take_part,
    UsageUpdate: Restorer._note_usage,
    CallStart: Restorer._start_call,
    CallEnd: Restorer._end_call,
    StreamFault: Restorer._fault,
    ResponseEnd: Restorer._finish,
}
