"""Toolboxes to and from tools of LangChain, for LangGraph's `ToolNode` and agents.

agent = create_agent("openai:gpt-5.6", tools=to_langchain([get_weather, send_mail]))
box = from_langchain(search_tool, effects={"search": "read"})
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from ..run.tools.toolbox import Entry, Source, Toolbox
from .framework_runner import AdapterOptions, FrameworkRunner
from .framework_tools import Effects, collect_entries

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

__all__ = ["from_langchain", "to_langchain"]


def to_langchain(tools: Source, **options: Unpack[AdapterOptions]) -> list[BaseTool]:
    """Return tools of LangChain for `tools`: functions, modules, toolboxes, or a list of them.

    `options` are those of `Runner`. A call that needs approval interrupts the graph; resume it with
    `Command(resume={"decisions": [{"type": "approve"}]})`, as for LangChain's human-in-the-loop middleware. If
    several calls of a `ToolNode` need approval, a decision should also have the `tool_call_id` of the interrupt. Outside
    of a graph the call is not approved. An error is a `ToolMessage` with the status "error". The context of the graph is
    `CallContext.deps`.
    """
    from .langchain_tool import make_tool

    runner = FrameworkRunner(tools, options)
    return [make_tool(runner, entry) for entry in runner.box]


def from_langchain(tools: BaseTool | Sequence[BaseTool], *, effects: Effects | None = None) -> Toolbox:
    """Return a toolbox of tools of LangChain; those of `to_langchain` are their original entries.

    A tool has the effect of `effects`, of its metadata, or `write`. A tool that takes the state or the store of a
    graph raises ConfigError; one that takes a `ToolRuntime` gets the dependencies of the run as its context.
    """
    from .langchain_tool import LangChainTool, tool_entry

    def convert(tool: BaseTool) -> Entry:
        return tool.entry if isinstance(tool, LangChainTool) else tool_entry(tool, effects)

    return collect_entries(tools, effects, convert)
