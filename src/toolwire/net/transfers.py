"""Transfers: a tool returns an agent, and this agent continues the run.

The note of a result is JSON and cannot contain the agent. The agent is kept here until the run takes it. A run that is
continued from its stored state knows only the name: the agent is found in `Agent(transfers=…)`, and a run is never
continued with the tools of another agent.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from ..ir.errors import ConfigError
from ..ir.parts import ToolCall, ToolResult
from ..run.results import annotate, result_note
from ..run.session import Session

__all__ = ["TransferAgent", "active_agent", "check_transfers", "take_successor", "transfer_result"]

_MAX_AGENTS = 1024  # a cancelled run does not take its agent

_returned_agents: OrderedDict[str, Any] = OrderedDict()


class TransferAgent(Protocol):
    """The parts of an `Agent` by which it is found."""

    name: str

    @property
    def transfers(self) -> Sequence[Any]: ...


AnyAgent = TypeVar("AnyAgent", bound=TransferAgent)


def transfer_result(call: ToolCall, agent: object, name: str) -> ToolResult:
    """Build the result of a call that returned an agent."""
    token = secrets.token_hex(8)
    _returned_agents[token] = agent
    while len(_returned_agents) > _MAX_AGENTS:
        _returned_agents.popitem(last=False)
    result = call.result(f"The conversation was transferred to {name or 'another agent'}.")
    return annotate(result, transfer=token, agent=name)


def take_successor(results: Sequence[ToolResult], *known: AnyAgent) -> AnyAgent | None:
    """Return the first agent that a call of the turn returned, and forget all of them; None if there is none.

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
    """Return the agent with this name among the known agents and their transfers, in any depth."""
    agents: list[AnyAgent] = list(known)
    for agent in agents:  # grows
        agents += [other for other in agent.transfers if all(other is not one for one in agents)]
    found = {id(agent): agent for agent in agents if name and agent.name == name}
    if len(found) == 1:
        return next(iter(found.values()))
    shown = f"the agent {name!r}" if name else "an agent without a name"
    if found:
        raise ConfigError(f"the run was transferred to {shown}; {len(found)} agents have this name", hint="rename one")
    hint = f"continue it with that agent, or pass it to this one: transfers=[{name}]" if name else "name the agent"
    raise ConfigError(f"the run was transferred to {shown}, which this agent does not know", hint=hint)
