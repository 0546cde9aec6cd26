"""Repair broken arguments of calls in an answer, using the schemas of their tools.

    mended = repair_calls(response, request.tools)
    mended.response                        # the answer; repaired calls are complete
    mended.repairs                         # for each call: the repair steps, or the remaining problems

Every repair is reported. Truncated arguments are never repaired, whatever the policy. For a stream, feed the events to
a `CallRepairer`; it holds a call back until it is complete, because events that have been sent cannot be retracted.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ..ir.events import ArgumentEnd, CallDelta, CallEnd, CallStart, Event
from ..ir.folding import fold, unfold
from ..ir.pointer import JSON, Object
from ..ir.response import Response
from ..ir.text import dumps
from ..ir.tools import Tool
from ..ir.value import Value
from ..schema.repair import RepairPolicy, RepairStep, repair_arguments
from ..schema.validate import Problem

__all__ = ["CallRepair", "CallRepairer", "RepairedResponse", "policy_for", "repair_calls"]

_ANY_OBJECT: Object = {"type": "object"}


class CallRepair(Value, frozen=True):
    """The repair of one call: the steps taken, or the remaining problems."""

    call_id: str
    name: str
    steps: tuple[RepairStep, ...] = ()
    problems: tuple[Problem, ...] = ()


class RepairedResponse(Value, frozen=True):
    """A response after the repair, and one entry for each call that was changed or could not be repaired."""

    response: Response
    repairs: tuple[CallRepair, ...] = ()


def policy_for(tool: Tool | None) -> RepairPolicy:
    """Return how much may be guessed: nothing for a tool that has side effects."""
    return "aggressive" if tool is not None and tool.effect in ("pure", "read") else "safe"


def repair_calls(response: Response, tools: Iterable[Tool], *, policy: RepairPolicy | None = None) -> RepairedResponse:
    """Repair the calls of `response`; by default as far as each tool's effect allows."""
    if response.stop is None and response.fault is None:
        return RepairedResponse(response)
    repairer = CallRepairer(tools, policy=policy)
    events = [produced for event in unfold(response) for produced in repairer.feed(event)]
    return RepairedResponse(replace(fold(events), created=response.created), tuple(repairer.repairs))


class CallRepairer:
    """Like `repair_calls`, for the events of a stream."""

    def __init__(self, tools: Iterable[Tool], *, policy: RepairPolicy | None = None) -> None:
        self.repairs: list[CallRepair] = []
        self._tools = {tool.name: tool for tool in tools}
        self._policy = policy
        self._open_calls: dict[int, tuple[CallStart, list[Event]]] = {}

    def feed(self, event: Event) -> list[Event]:
        """Return the events for `event`. The deltas of a call wait for its end, because a repair replaces them."""
        if isinstance(event, CallStart) and event.kind == "function":
            self._open_calls[event.key] = (event, [])
            return [event]
        open_call = self._open_calls.get(event.key) if isinstance(event, (CallDelta, ArgumentEnd, CallEnd)) else None
        if open_call is None:
            return [event]
        start, buffered = open_call
        if not isinstance(event, CallEnd):
            buffered.append(event)
            return []
        del self._open_calls[event.key]
        repaired = self._repair_call(start, event)
        return [*buffered, event] if repaired is None else repaired

    def _repair_call(self, start: CallStart, end: CallEnd) -> list[Event] | None:
        """Return the events of the repaired call, or None if it is unchanged."""
        if end.state == "truncated":
            return None
        tool = self._tools.get(start.name)
        raw_arguments: JSON = end.raw if end.arguments is None else end.arguments
        schema = _ANY_OBJECT if tool is None or tool.input_schema is None else tool.input_schema
        found = repair_arguments(raw_arguments or "", schema, policy=self._policy or policy_for(tool))
        if not found.steps and found.arguments is not None:
            return None
        self.repairs.append(CallRepair(start.id, start.name, found.steps, found.problems))
        if found.arguments is None:
            return None
        whole = replace(end, arguments=found.arguments, raw=None, state="complete")
        return [CallDelta.of(end.key, dumps(found.arguments)), whole]
