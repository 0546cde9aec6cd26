"""Repair broken arguments of calls in an answer, using the schemas of their tools.

    repairer = CallRepairer(request.tools)
    answer = exchange.restore(response, repairer=repairer)       # repaired calls are complete
    repairer.repairs                       # for each call: the repair steps, or the remaining problems

Every repair is reported. Truncated arguments are never repaired, whatever the policy. The `Restorer` determines the
order of repairing and lifting. In a stream it holds a call back until it is complete, because events that have been
sent cannot be retracted.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ...ir.errors import SchemaError
from ...ir.events import CallEnd, CallStart
from ...ir.pointer import JSON, Object
from ...ir.tools import Tool
from ...ir.value import Value
from ...schema.repair.arguments import Repair, RepairPolicy, repair_arguments
from ...schema.repair.coercion import RepairStep
from ...schema.validation.validator import Problem
from ...stream.strict import parse_arguments

_ANY_OBJECT: Object = {"type": "object"}


def _has_arguments(raw: str | None) -> bool:
    """Return True if the text is a JSON object: the call is invalid for another reason, which a repair would hide."""
    return bool(raw) and parse_arguments(raw or "")[1] == "complete"


class CallRepair(Value, frozen=True):
    """The repair of one call: the steps taken, or the remaining problems."""

    call_id: str
    name: str
    steps: tuple[RepairStep, ...] = ()
    problems: tuple[Problem, ...] = ()


def policy_for(tool: Tool | None) -> RepairPolicy:
    """Return how much may be guessed: nothing for a tool that has side effects."""
    return "aggressive" if tool is not None and tool.effect in ("pure", "read") else "safe"


class CallRepairer:
    """Repair the calls of one answer, and keep one entry for each call that was changed or could not be repaired."""

    def __init__(self, tools: Iterable[Tool], *, policy: RepairPolicy | None = None) -> None:
        self.repairs: list[CallRepair] = []
        self._tools = {tool.name: tool for tool in tools}
        self._policy = policy
        self._steps: dict[int, tuple[RepairStep, ...]] = {}  # by key: the repair of a call's text

    def repair_text(self, start: CallStart, end: CallEnd, schema: JSON, wire_name: str = "") -> CallEnd:
        """Repair text that is not a JSON object, against the schema that was sent; return `end` if that is impossible.

        A failure is added to `repairs`. The steps of a success are kept for `repair_call`, which follows, except for a
        freeform call. `wire_name`: the name by which the model knows the tool, if it is not the name in `start`.
        """
        if _has_arguments(end.raw):
            return end
        repair = self._repair(start, end.raw or "", schema, wire_name)
        if repair.arguments is None:
            self.repairs.append(CallRepair(start.id, start.name, repair.steps, repair.problems))
            return end
        self._steps[end.key] = repair.steps
        if start.kind == "freeform":
            self.repairs.append(CallRepair(start.id, start.name, repair.steps))
        return replace(end, arguments=repair.arguments, raw=None, state="complete")

    def repair_call(self, start: CallStart, end: CallEnd, wire_name: str = "") -> CallEnd | None:
        """Repair the arguments against the schema of the tool; return None if they are unchanged.

        The steps of both repairs, or the remaining problems, are added to `repairs`. A truncated call is not repaired.
        """
        if end.state == "truncated" or (
            end.state == "invalid" and (self._has_failed(start) or _has_arguments(end.raw))
        ):
            return None
        tool = self._tools.get(start.name)
        given: JSON = end.raw if end.arguments is None else end.arguments
        schema = _ANY_OBJECT if tool is None or tool.input_schema is None else tool.input_schema
        repair = self._repair(start, given or "", schema, wire_name)
        steps = self._steps.pop(end.key, ()) + repair.steps
        if steps or repair.arguments is None:
            self.repairs.append(CallRepair(start.id, start.name, steps, repair.problems))
        if not repair.steps or repair.arguments is None:
            return None
        return replace(end, arguments=repair.arguments, raw=None, state="complete")

    def _has_failed(self, start: CallStart) -> bool:
        """Return whether the text of this call, the latest one, could not be repaired."""
        return bool(self.repairs) and self.repairs[-1].call_id == start.id and bool(self.repairs[-1].problems)

    def _repair(self, start: CallStart, given: JSON, schema: JSON, wire_name: str) -> Repair:
        """Repair arguments. If the schema is not a JSON Schema, only the text is repaired: the answer is paid for."""
        policy = self._policy or policy_for(self._tools.get(start.name))
        names = (start.name, wire_name or start.name)
        try:
            return repair_arguments(given, schema, policy=policy, names=names)
        except SchemaError:
            return repair_arguments(given, _ANY_OBJECT, policy=policy, names=names)
