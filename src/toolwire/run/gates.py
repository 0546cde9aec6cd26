"""The gates that a call passes before it is executed. A gate returns the call, or ends it with a result for the model.

    find → whole → take_key → lift → mend → validate → refuse_repaired → policy

A gate is a pure function of the `Pending` call. The list of gates is a value: gates can be added and left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from msgspec.structs import replace

from ..ir.errors import ConfigError, SchemaError
from ..ir.parts import ToolCall, ToolResult
from ..ir.pointer import Object
from ..ir.value import Value
from ..schema.lowering import Lowered
from ..schema.repair import RepairPolicy, repair_arguments
from ..stream.strict import parse_arguments
from .keys import KEY_ARGUMENT, store_key
from .repaired_calls import refuse_repaired_call
from .results import refusal
from .toolbox import Entry, Toolbox

__all__ = ["GATES", "Gate", "Pending", "find", "lift", "mend", "refuse_repaired", "take_key", "validate", "whole"]


class Pending(Value, frozen=True, gc=False):
    """A call on its way through the gates. `gc=False` is safe: nothing that it holds refers back to it."""

    call: ToolCall
    box: Toolbox
    entry: Entry | None = None
    arguments: Object = {}
    key: str | None = None
    caller: str = ""
    tenant: str = ""
    tainted: bool = False
    repair: RepairPolicy | None = None
    steps: tuple[str, ...] = ()
    validated_arguments: Object | None = None  # the arguments object that has been validated
    lowerings: Mapping[str, Lowered] | None = None
    values: Object | None = None  # `arguments` converted to the types of the function, which is called with them
    conversion_error: str | None = None  # the reason why they cannot be converted; the function is not called then
    original_arguments: Object | None = None  # `arguments` before a policy rewrote them

    @property
    def tool(self) -> Entry:
        assert self.entry is not None, "the first gate sets the entry"
        return self.entry

    @property
    def identity(self) -> Object:
        """The arguments as the model gave them. They identify the call, so that a repeated call has the same key."""
        return self.arguments if self.original_arguments is None else self.original_arguments


Gate: TypeAlias = Callable[[Pending], Pending | ToolResult]


def find(pending: Pending) -> Pending | ToolResult:
    """Look up the tool by name; only tools of the toolbox can be called."""
    name = pending.call.name
    entry = pending.entry or pending.box.find(name)
    if entry is not None:
        reason = None if entry.options.withdrawn is None else entry.withdrawn
        if reason is not None:
            return refusal(pending.call, "withdrawn", f"The tool {name} is withdrawn and was not run: {reason}")
        return pending if pending.entry is entry else replace(pending, entry=entry)
    close_names = pending.box.similar_names(name)
    suggestion = f" Did you mean {' or '.join(close_names)}?" if close_names else ""
    return refusal(pending.call, "unknown_tool", f"There is no tool called {name!r}.{suggestion}")


def whole(pending: Pending) -> Pending | ToolResult:
    """Refuse a truncated call, however complete it looks, and one that is invalid although its arguments are an object."""
    call = pending.call
    if call.state == "truncated":
        message = "The call was truncated and was not run. Make it again with shorter arguments."
        return refusal(call, "truncated", message)
    if call.state == "invalid" and call.raw and parse_arguments(call.raw)[1] == "complete":
        message = "The call was malformed and was not run. Make it again."
        return refusal(call, "invalid_arguments", message)
    if call.arguments is None or call.arguments is pending.arguments:
        return pending
    return replace(pending, arguments=call.arguments)


def refuse_repaired(pending: Pending) -> Pending | ToolResult:
    """Refuse a call with effects whose arguments come from a repairing model. They are valid, as a suggestion."""
    return refuse_repaired_call(pending.call, pending.tool.tool.effect) or pending


def take_key(pending: Pending) -> Pending | ToolResult:
    """Take an idempotency key out of the arguments, unless the tool has a parameter of that name."""
    if KEY_ARGUMENT not in pending.arguments:
        return pending
    given = pending.arguments[KEY_ARGUMENT]
    properties = (pending.tool.tool.input_schema or {}).get("properties")
    if not isinstance(given, str) or (isinstance(properties, dict) and KEY_ARGUMENT in properties):
        return pending
    rest = {name: value for name, value in pending.arguments.items() if name != KEY_ARGUMENT}
    try:
        key = store_key(given, pending.tenant)
    except ConfigError as error:
        return refusal(pending.call, "invalid_arguments", str(error))
    call = replace(pending.call, arguments=rest, raw=None)
    return replace(pending, arguments=rest, key=pending.key or key, call=call)


def lift(pending: Pending) -> Pending | ToolResult:
    """Convert arguments from the schema that was sent to the provider back to the tool's own schema."""
    lowered = None if pending.lowerings is None else pending.lowerings.get(pending.call.name)
    if lowered is None or pending.call.arguments is None:
        return pending
    lifted = lowered.lift(pending.arguments)
    return replace(pending, arguments=lifted, call=replace(pending.call, arguments=lifted, raw=None))


def mend(pending: Pending) -> Pending | ToolResult:
    """Repair invalid arguments as far as the tool's effect allows."""
    call = pending.call
    try:
        parameters = pending.box.parameters[call.name]
    except SchemaError as error:
        return refusal(call, "failed", f"The tool {call.name} has an unusable schema: {error}")
    if call.arguments is not None and parameters.accept(pending.arguments):
        return replace(pending, validated_arguments=pending.arguments)
    policy = pending.repair or ("aggressive" if pending.tool.tool.effect in ("pure", "read") else "safe")
    given = call.raw or "" if call.arguments is None else pending.arguments
    found = repair_arguments(given, parameters.schema, policy=policy, names=(call.name,))
    if found.arguments is None:
        problem_list = "\n".join(f"- {problem}" for problem in found.problems)
        message = (
            f"The arguments of {call.name} were not accepted, and nothing was run:\n{problem_list}\nCall it again."
        )
        return refusal(call, "invalid_arguments", message)
    return replace(pending, arguments=found.arguments, steps=tuple(map(str, found.steps)))


def validate(pending: Pending) -> Pending | ToolResult:
    """Validate the final arguments against the tool's own schema."""
    if pending.validated_arguments is pending.arguments:
        return pending
    parameters = pending.box.parameters[pending.call.name]
    if parameters.accept(pending.arguments):
        return pending
    unknown = parameters.unknown_names(pending.arguments)
    if unknown:
        known = ", ".join(parameters.schema.get("properties", {})) or "none"
        message = f"{pending.call.name} has no parameter {', '.join(unknown)}; it has {known}. Nothing was run. Call it again."
        return refusal(pending.call, "invalid_arguments", message)
    problem_list = "\n".join(f"- {problem}" for problem in parameters.problems(pending.arguments))
    return refusal(pending.call, "invalid_arguments", f"Nothing was run:\n{problem_list}\nCall it again.")


GATES: tuple[Gate, ...] = (find, whole, take_key, lift, mend, validate, refuse_repaired)


def pass_gates(pending: Pending, gates: tuple[Gate, ...]) -> Pending | ToolResult:
    """Pass a call through all gates; the first result ends it."""
    for gate in gates:
        found = gate(pending)
        if isinstance(found, Pending):
            pending = found
        elif isinstance(found, ToolResult):
            return found
        else:
            raise ConfigError(f"the gate {gate!r} returned {found!r}", hint="return the Pending call or a ToolResult")
    return pending
