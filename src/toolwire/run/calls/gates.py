"""The gates that a call passes before it is executed. A gate returns the call, or ends it with a result for the model.

    find → refuse_truncated → take_key → lift → repair → validate → refuse_repaired → policy

A gate is a pure function of the `Pending` call. The list of gates is a value: gates can be added and left out. The policy
is always the last gate, so that no other gate changes a call that has been checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from msgspec.structs import replace

from ...ir.errors import ConfigError, SchemaError
from ...ir.parts import ToolCall, ToolResult
from ...ir.pointer import Object
from ...ir.tools import Tool
from ...schema.repair.arguments import repair_arguments
from ...stream.strict import parse_arguments
from ..session.auxiliary import refuse_repaired_call
from ..tools.suggestions import NameIndex, suggest_names
from ..tools.toolbox import Entry, Toolbox
from ..values.keys import KEY_ARGUMENT, store_key
from ..values.results import error_text, refusal
from ..values.waiting import Suspended, suspend_call
from .pending import Ask, Deny, Pending
from .policy import Policy
from .signature import function_signature

Gate: TypeAlias = Callable[[Pending], Pending | ToolResult | Suspended]


def find(pending: Pending) -> Pending | ToolResult:
    """Look up the tool by name; refuse an unknown tool, with similar names, and a withdrawn one."""
    name = pending.call.name
    entry = pending.entry or pending.box.find(name)
    if entry is not None:
        reason = None if entry.options.withdrawn is None else entry.withdrawn
        if reason is not None:
            return refusal(pending.call, "withdrawn", f"The tool {name} is withdrawn and was not run: {reason}")
        return pending if pending.entry is entry else replace(pending, entry=entry)
    suggestion = suggest_names(pending.box.similar_names(name))
    return refusal(pending.call, "unknown_tool", f"There is no tool called {name!r}.{suggestion}")


def refuse_changed(pending: Pending) -> ToolResult:
    """Refuse a call of a tool that has changed since its run offered it."""
    name = pending.call.name
    message = (
        f"The tool {name} was not run: it has changed since it was offered. "
        "The next turn offers its present definition."
    )
    return refusal(pending.call, "withdrawn", message)


def make_unknown_gate(offered: Iterable[str], instruction: str) -> Gate:
    """Return a gate that refuses the call of a tool that does not exist. The result names similar tools that are offered."""

    def refuse_unknown(pending: Pending) -> ToolResult:
        name = pending.call.name
        suggestion = suggest_names(NameIndex(offered).similar(name))
        return refusal(pending.call, "unknown_tool", f"There is no tool called {name!r}.{suggestion} {instruction}")

    return refuse_unknown


def make_unoffered_gate(offered: Iterable[str], instruction: str) -> Gate:
    """Return a gate that refuses the call of a tool that its run does not offer.

    The result names similar tools that are offered, and contains the `instruction` how to get the tool.
    """

    def refuse_unoffered(pending: Pending) -> ToolResult:
        name = pending.call.name
        suggestion = suggest_names(NameIndex(offered).similar(name))
        message = f"The tool {name} was not run: it was not offered in this conversation.{suggestion} {instruction}"
        return refusal(pending.call, "not_offered", message.rstrip())

    return refuse_unoffered


def refuse_truncated(pending: Pending) -> Pending | ToolResult:
    """Refuse a truncated call, however complete it looks, and one that is invalid although its arguments are an object.

    Otherwise the call passes with its own arguments.
    """
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
    return refuse_repaired_call(pending.call, pending.arguments, pending.tool.tool.effect) or pending


def take_key(pending: Pending) -> Pending | ToolResult:
    """Move an idempotency key from the arguments to the call, unless the tool has a parameter of that name.

    A key of the client has precedence. An invalid key is refused.
    """
    given = argument_key(pending.arguments, pending.tool.tool)
    if given is None:
        return pending
    rest = {name: value for name, value in pending.arguments.items() if name != KEY_ARGUMENT}
    try:
        key = store_key(given, pending.tenant)
    except ConfigError as error:
        return refusal(pending.call, "invalid_arguments", str(error))
    call = replace(pending.call, arguments=rest, raw=None)
    return replace(pending, arguments=rest, key=pending.key or key, call=call)


def argument_key(arguments: Object, tool: Tool) -> str | None:
    """Return the idempotency key in the arguments; None if there is none, or the tool has a parameter of that name."""
    given = arguments.get(KEY_ARGUMENT)
    if not isinstance(given, str):
        return None
    properties = (tool.input_schema or {}).get("properties")
    return None if isinstance(properties, dict) and KEY_ARGUMENT in properties else given


def lift(pending: Pending) -> Pending | ToolResult:
    """Convert arguments from the schema that was sent to the provider back to the tool's own schema."""
    lowered = None if pending.lowerings is None else pending.lowerings.get(pending.call.name)
    if lowered is None or pending.call.arguments is None:
        return pending
    lifted = lowered.lift(pending.arguments)
    return replace(pending, arguments=lifted, call=replace(pending.call, arguments=lifted, raw=None))


def repair(pending: Pending) -> Pending | ToolResult:
    """Repair invalid arguments as far as the tool's effect allows, and refuse them with all problems otherwise.

    Valid arguments are remembered, so that they are not validated again.
    """
    call = pending.call
    try:
        parameters = pending.box.parameters[call.name]
    except SchemaError as error:
        return refusal(call, "failed", f"The tool {call.name} has an unusable schema: {error}")
    if call.arguments is not None and parameters.accept(pending.arguments):
        return replace(pending, validated_arguments=pending.arguments)
    level = pending.repair or ("aggressive" if pending.tool.tool.effect in ("pure", "read") else "safe")
    given = call.raw or "" if call.arguments is None else pending.arguments
    repaired = repair_arguments(given, parameters.schema, policy=level, names=(call.name,))
    if repaired.arguments is None:
        problems = [*_undeclared_names(call, parameters.schema), *repaired.problems]
        problem_list = "\n".join(f"- {problem}" for problem in problems)
        message = (
            f"The arguments of {call.name} were not accepted, and nothing was run:\n{problem_list}\nCall it again."
        )
        return refusal(call, "invalid_arguments", message)
    return replace(pending, arguments=repaired.arguments, steps=tuple(map(str, repaired.steps)))


def _undeclared_names(call: ToolCall, schema: Object) -> list[str]:
    """Name the arguments that a schema does not declare: probably misspelt ones, beside a problem such as a missing one.

    It depends on the schema only, so a replay without the function has the same text.
    """
    declared = schema.get("properties")
    if not isinstance(declared, dict) or not declared or "patternProperties" in schema:
        return []
    if isinstance(schema.get("additionalProperties"), dict):
        return []
    unknown = [name for name in call.arguments or {} if name not in declared]
    if not unknown:
        return []
    return [f"{call.name} does not declare {', '.join(unknown)}; it declares {', '.join(declared)}"]


def validate(pending: Pending) -> Pending | ToolResult:
    """Refuse arguments that do not match the tool's own schema, with the unknown names or all problems."""
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


def convert(pending: Pending) -> Pending:
    """Convert the arguments to the types of the function: it receives exactly the values that are checked.

    The function receives its own lists and objects, so it cannot change the call, the history or the next attempt.
    """
    signature = function_signature(pending.tool.function)
    try:
        values = signature.bind_arguments(pending.arguments)
    except Exception as error:  # noqa: BLE001  # user-defined types may raise anything
        return replace(pending, values=None, conversion_error=error_text(error))
    return replace(pending, values=values, conversion_error=None)


def policy(pending: Pending) -> Pending | ToolResult:
    """Rewrite the arguments as the policy requires, convert them, and check the call.

    A denied call ends here. A call that needs approval passes with its `verdict`.
    """
    rules = pending.policy
    rewritten = pending if rules is None else rules.rewrite(pending)
    if isinstance(rewritten, Deny):
        return denied_result(pending, rewritten)
    converted = convert(rewritten)
    verdict = None if rules is None else rules.check(converted)
    if isinstance(verdict, Deny):
        return denied_result(converted, verdict)
    if verdict is None:
        verdict = _tool_verdict(converted)
    return converted if verdict is converted.verdict else replace(converted, verdict=verdict)


# The order matters. A truncated call is refused before a repair could complete it. The key is taken out before the schema,
# which does not know it, refuses it. `lift` restores the tool's own schema, to which repair and validation refer. A call
# by a repairing model is refused only after validation, so that its arguments can be suggested. The policy is last: it
# checks the values that the function receives.
GATES: tuple[Gate, ...] = (
    find,
    refuse_truncated,
    take_key,
    lift,
    repair,
    validate,
    refuse_repaired,
    policy,
)


def build_gates(entry: Entry | None, gates: tuple[Gate, ...], rules: Policy | None) -> tuple[Gate, ...]:
    """Return the gates for the calls of one tool, without gates that cannot apply to it; the policy is the last one.

    A user-defined gate may change anything in a call, so with one of them all gates are kept.
    """
    others = tuple(gate for gate in gates if gate is not policy)
    if entry is None or not all(gate in GATES for gate in others):
        return (*others, policy)
    last = policy if rules is not None or entry.options.approve else convert
    return (*(gate for gate in others if _can_apply(gate, entry)), last)


def _can_apply(gate: Gate, entry: Entry) -> bool:
    """Return False for a gate that passes every call of the tool unchanged, provided that its entry is known."""
    if gate is find:
        return entry.options.withdrawn is not None
    if gate is refuse_repaired:
        return entry.tool.effect in ("idempotent", "write")
    if gate is take_key:
        properties = (entry.tool.input_schema or {}).get("properties")
        return not (isinstance(properties, dict) and KEY_ARGUMENT in properties)
    return gate is not lift  # the calls of a run have no lowered schemas


def fuse_gates(gates: tuple[Gate, ...], entry: Entry, box: Toolbox) -> Callable[[ToolCall], Object | None] | None:
    """Return one function for all gates of a tool: it returns the values of a call that passes them unchanged.

    Most calls do: they are complete, and their arguments are valid scalars that need no conversion. For any other
    call the function returns None, and the gates decide. None instead of a function if the tool has other gates.
    """
    signature = function_signature(entry.function)
    plain_types = signature.plain_types
    if gates not in _FUSIBLE or plain_types is None:
        return None
    try:
        parameters = box.parameters[entry.name]
    except SchemaError:  # every call of the tool reports it
        return None
    is_valid = parameters.accept_scalars
    known = [names for names in (parameters.names, signature.names) if names is not None]
    reserved = frozenset({KEY_ARGUMENT} if take_key in gates else ())
    names = frozenset.intersection(*known) - reserved if known else None

    def take_values(call: ToolCall) -> Object | None:
        arguments = call.arguments
        if arguments is None or call.state != "complete":
            return None
        if not (reserved.isdisjoint(arguments) if names is None else names.issuperset(arguments)):
            return None
        for value in arguments.values():
            if type(value) not in plain_types:
                return None
        return arguments if is_valid(arguments) else None

    return take_values


_FUSIBLE = (
    (refuse_truncated, take_key, repair, validate, convert),
    (refuse_truncated, repair, validate, convert),
)


def pass_gates(pending: Pending, gates: tuple[Gate, ...]) -> Pending | ToolResult:
    """Pass a call through all gates; the first result ends it, and so does a gate that suspends it.

    ConfigError for a gate that returns anything else.
    """
    for gate in gates:
        decision = gate(pending)
        if type(decision) is Pending:
            pending = decision
        elif isinstance(decision, ToolResult):
            return decision
        elif isinstance(decision, Suspended):
            return suspend_call(pending.call, pending.arguments, decision)
        else:
            hint = "return the Pending call, a ToolResult or Suspended"
            raise ConfigError(f"the gate {gate!r} returned {decision!r}", hint=hint)
    return pending


def denied_result(pending: Pending, verdict: Deny) -> ToolResult:
    """Build the result of a call that the policy denies."""
    return refusal(pending.call, "denied", f"Not allowed: {verdict.why}. Nothing was run.")


def _tool_verdict(pending: Pending) -> Ask | None:
    """Return the approval that the tool itself requires for this call."""
    rule = pending.tool.options.approve
    needed = rule(pending.arguments) if callable(rule) else rule
    if not needed:
        return None
    return Ask(needed if isinstance(needed, str) else f"{pending.tool.name} requires approval")
