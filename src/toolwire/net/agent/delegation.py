"""Delegation between agents: subagents and transfers.

A subagent is a tool of another agent: it answers a prompt, and its answer is the result of the call. A transfer is a tool
result that is an agent; this agent continues the run.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Protocol, TypeVar

from ...ir.errors import ConfigError
from ...ir.parts import ToolCall, ToolResult
from ...ir.tools import Effect
from ...run.calls.claims import RESUMABLE
from ...run.calls.context import CallContext, ToolError, running
from ...run.session.loop import Session
from ...run.tools.function_tool import FunctionTool, OptionValues, tool
from ...run.tools.offer import strongest_effect
from ...run.tools.toolbox import Toolbox
from ...run.values.keys import canonical_json
from ...run.values.results import annotate, refusal, result_note, value_result
from ...run.values.waiting import Suspended
from .answers import Answer

_MARK = "__toolwire_subagent__"
_RESUME = "__toolwire_resume__"


class SubagentRunner(Protocol):
    """The method of an `Agent` that its tool uses."""

    async def __call__(self, prompt: str, context: CallContext[Any], effect: Effect) -> Answer[Any]: ...


class SubagentResumer(Protocol):
    """The method of an `Agent` that continues a run of its tool."""

    async def __call__(self, run_id: str, context: CallContext[Any]) -> Answer[Any]: ...


def subagent_tool(
    run: SubagentRunner,
    resume: SubagentResumer,
    box: Toolbox,
    name: str,
    description: str,
    options: OptionValues,
    *,
    effect: Effect | None = None,
    is_stored: bool = False,
) -> FunctionTool[..., Any]:
    """Return the tool of a subagent. By default it has no timeout, because the budgets limit the run.

    `effect`: by default, the strongest effect of the subagent's own tools: subagents that only read run concurrently.
    `is_stored`: the runs of the subagent are stored, so the calling run can wait for one that waits for approval.

    Raise ConfigError if the name is no identifier, or the effect is pure.
    """
    if not name.isidentifier():
        hint = "pass a name: Agent(…, name=…) or as_tool(name=…)"
        raise ConfigError(f"the tool of a subagent needs a name that is an identifier, got {name!r}", hint=hint)
    if effect == "pure":
        raise ConfigError("a subagent cannot be a pure tool, because it asks a model", hint='use effect="read"')
    strongest = strongest_effect(box)
    declared: Effect = effect or ("read" if strongest == "pure" else strongest)

    async def ask(prompt: str, context: CallContext[Any]) -> Any:
        """Return the subagent's answer, or `Suspended` if it waits and is stored. Raise ToolError if it has no answer."""
        answer = await run(prompt, context, declared)
        if answer.suspended and is_stored:
            if any(entry.options.untrusted for entry in box):
                context.untrusted = True  # of the result that is supplied when the run has been continued
            return Suspended({"run_id": answer.run_id}, answer.pending, f"{name} waits")
        if not answer.finished:
            raise ToolError(f"{name} did not finish: {answer.reason}")
        return answer.output

    setattr(ask, _MARK, True)
    setattr(ask, RESUMABLE, is_stored)
    setattr(ask, _RESUME, resume)
    values: OptionValues = {"timeout": None, "cancellable": True, "retries": 0, **options}
    declare = tool(name=name, description=description, effect=declared, **values)
    return declare(ask)


_MAX_PARENT_ID = 200  # characters of 255 that a store allows; deeper runs have ids of their own


def subagent_run_id(prompt: str, context: CallContext[Any]) -> str:
    """Return the id of the run that a call starts in a subagent: the calling run, a dot, and a hash of the call.

    A process that continues the calling run finds the run of the subagent by it, also if the model has repeated a call
    that was refused: it has another id then, and the same key. Empty if the call belongs to no run.
    """
    parent = "" if context.session is None else context.session.state.run_id
    if not parent or not context.call_id or len(parent) > _MAX_PARENT_ID:
        return ""
    call = context.idempotency_key or context.call_id
    return f"{parent}.{sha256(canonical_json([call, context.tool, prompt])).hexdigest()[:12]}"


def runs_subagent(function: object) -> bool:
    """Return True for the function of a tool that `subagent_tool` made."""
    return getattr(function, _MARK, False) is True


async def continue_subagents(session: Session, box: Toolbox, deps: Any) -> bool:
    """Continue the runs of subagents that this run waits for, and supply the results of runs that ended.

    Return True if the session has changed. Their tokens and cost count in this run, as if they had not waited.
    """
    is_changed = False
    for waiting in session.waiting:
        entry = box.find(waiting.tool)
        resume: SubagentResumer | None = None if entry is None else getattr(entry.function, _RESUME, None)
        run_id = waiting.state.get("run_id") if isinstance(waiting.state, dict) else None
        if waiting.needs != "result" or resume is None or not isinstance(run_id, str):
            continue
        context: CallContext[Any] = CallContext(
            waiting.call_id,
            waiting.tool,
            session.state.run_id,
            deps=deps,
            session=session,
            tainted=session.state.tainted,
        )
        token = running.set(context)
        try:
            answer = await resume(run_id, context)
        finally:
            running.reset(token)
        if answer.suspended:
            is_changed = is_changed or answer.pending != waiting.calls
            session.update_waiting(waiting.call_id, answer.pending)
        else:
            session.supply(waiting.call_id, _answer_result(ToolCall(waiting.call_id, waiting.tool), answer, context))
            is_changed = True
    return is_changed


def _answer_result(call: ToolCall, answer: Answer[Any], context: CallContext[Any]) -> ToolResult:
    """Build the result of a subagent's call that has ended after it waited."""
    if answer.finished:
        result = value_result(call, answer.output)
    else:
        result = refusal(call, "failed", f"{call.name} did not finish: {answer.reason}")
    return annotate(result, untrusted=True) if context.untrusted else result


# Transfers: a tool returns an agent, and this agent continues the run.
#
# The note of a result is JSON and cannot contain the agent. The agent is kept here until the run takes it. A run that
# is continued from its stored state knows only the name: the agent is found in `Agent(transfers=…)`, and a run is
# never continued with the tools of another agent.


_MAX_AGENTS = 1024  # transfers in progress at a time are few; a cancelled run never takes its agent

_returned_agents: OrderedDict[str, Any] = OrderedDict()


class TransferAgent(Protocol):
    """The parts of an `Agent` by which it is found."""

    name: str

    @property
    def transfers(self) -> Sequence[Any]: ...


AnyAgent = TypeVar("AnyAgent", bound=TransferAgent)


def transfer_result(call: ToolCall, agent: object, name: str) -> ToolResult:
    """Return the result of a call that returned an agent, and keep the agent until `take_successor`."""
    token = secrets.token_hex(8)
    _returned_agents[token] = agent
    while len(_returned_agents) > _MAX_AGENTS:
        _returned_agents.popitem(last=False)
    result = call.result(f"The conversation was transferred to {name or 'another agent'}.")
    return annotate(result, transfer=token, agent=name)


def take_successor(results: Sequence[ToolResult], *known: AnyAgent) -> AnyAgent | None:
    """Return the first agent that a call of the turn returned, or None if there is none. Forget all of them.

    The result may be one that another process recorded. The agent is found by its name then, among the known agents and
    their `transfers`. Raises ConfigError if it is not there.
    """
    tokens = [(result_note(result, "transfer"), result_note(result, "agent")) for result in results]
    returned = [(_returned_agents.pop(token, None), name) for token, name in tokens if isinstance(token, str)]
    if not returned:
        return None
    agent, name = returned[0]
    successor: AnyAgent = _find_agent(name or "", *known) if agent is None else agent
    return successor


def active_agent(agent: AnyAgent, session: Session) -> AnyAgent:
    """Return the agent that continues a run: the one to which it was transferred, or `agent`. A run that has ended needs none."""
    name, phase = session.state.agent, session.state.phase
    return agent if name is None or phase in ("done", "gave_up") else _find_agent(name, agent)


def check_transfers(agents: Sequence[TransferAgent]) -> None:
    """Raise ConfigError for agents that cannot be found by their names."""
    names = [agent.name for agent in agents]
    if "" in names or len(set(names)) != len(names):
        shown = ", ".join(map(repr, names))
        raise ConfigError(f"the agents in transfers need different names, got {shown}", hint="pass Agent(…, name=…)")


def _find_agent(name: str, *known: AnyAgent) -> AnyAgent:
    """Return the agent with this name among the known agents and their transfers, in any depth.

    Raise ConfigError if there is none, or if several have the name.
    """
    agents: list[AnyAgent] = list(known)
    for agent in agents:  # the list grows meanwhile
        agents += [other for other in agent.transfers if all(other is not known for known in agents)]
    named = {id(agent): agent for agent in agents if name and agent.name == name}
    if len(named) == 1:
        return next(iter(named.values()))
    shown = f"the agent {name!r}" if name else "an agent without a name"
    if named:
        raise ConfigError(f"the run was transferred to {shown}; {len(named)} agents have this name", hint="rename one")
    hint = f"continue it with that agent, or pass it to this one: transfers=[{name}]" if name else "name the agent"
    raise ConfigError(f"the run was transferred to {shown}, which this agent does not know", hint=hint)
