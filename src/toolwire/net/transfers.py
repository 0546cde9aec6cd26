"""Transfers: a tool returns an agent, and this agent continues the run.

The note of a result is JSON and cannot contain the agent. The agent is kept here until the run takes it.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from ..ir.parts import ToolCall, ToolResult
from ..run.results import NOTES_KEY, annotate

__all__ = ["take_successor", "transfer_result"]

_MAX_AGENTS = 1024  # a cancelled run does not take its agent

_returned_agents: OrderedDict[str, Any] = OrderedDict()


def transfer_result(call: ToolCall, agent: object, name: str) -> ToolResult:
    """Build the result of a call that returned an agent."""
    token = secrets.token_hex(8)
    _returned_agents[token] = agent
    while len(_returned_agents) > _MAX_AGENTS:
        _returned_agents.popitem(last=False)
    result = call.result(f"The conversation was transferred to {name or 'another agent'}.")
    return annotate(result, transfer=token)


def take_successor(results: Sequence[ToolResult]) -> Any:
    """Return the first agent that a call of the turn returned, and forget all of them; None if there is none."""
    notes = [result.extra.get(NOTES_KEY, {}).get("transfer") for result in results]
    agents = [_returned_agents.pop(token, None) for token in notes if isinstance(token, str)]
    return next((agent for agent in agents if agent is not None), None)
