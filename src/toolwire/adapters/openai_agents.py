"""Toolboxes to and from function tools of the OpenAI Agents SDK.

agent = agents.Agent("Clerk", tools=to_openai_agents([get_weather, send_mail]))
box = from_openai_agents(agent.tools, effects={"search": "read"})
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

from ..run.tools.toolbox import Entry, Source, Toolbox
from .framework_runner import AdapterOptions, FrameworkRunner
from .framework_tools import Effects, collect_entries

if TYPE_CHECKING:
    from agents import FunctionTool as AgentsFunctionTool

__all__ = ["from_openai_agents", "to_openai_agents"]


def to_openai_agents(tools: Source, **options: Unpack[AdapterOptions]) -> list[AgentsFunctionTool]:
    """Return function tools for `tools`: functions, modules, toolboxes, or a list of them. `options` are those of `Runner`.

    A call that needs approval interrupts the run (`result.interruptions`); approve it with `state.approve(…)`. An error
    is the output of the call, as text. The context of the run is `CallContext.deps`. A tool with `strict=True` has the
    strict schema of the SDK, every other one exactly its own.
    """
    from .openai_agents_tool import make_tool

    runner = FrameworkRunner(tools, options)
    return [make_tool(runner, entry) for entry in runner.box]


def from_openai_agents(
    tools: AgentsFunctionTool | Sequence[AgentsFunctionTool], *, effects: Effects | None = None
) -> Toolbox:
    """Return a toolbox of function tools; those of `to_openai_agents` are their original entries.

    A tool has the effect of `effects`, of its MCP annotations, or `write`. `needs_approval` becomes `approve`: a
    function of it is called with the arguments and the dependencies of the run. Guardrails of a tool raise
    ConfigError, because only the SDK's own loop runs them.
    """
    from .openai_agents_tool import original_entry, tool_entry

    def convert(tool: Any) -> Entry:
        return original_entry(tool) or tool_entry(tool, effects)

    return collect_entries(tools, effects, convert)
