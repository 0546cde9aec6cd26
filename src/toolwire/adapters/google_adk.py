"""Toolboxes to and from tools of Google's Agent Development Kit (ADK).

agent = LlmAgent(name="clerk", model="gemini-3-pro", tools=to_google_adk([get_weather, send_mail]))
box = from_google_adk(FunctionTool(search), effects={"search": "read"})
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

from ..run.tools.toolbox import Entry, Source, Toolbox
from .framework_runner import AdapterOptions, FrameworkRunner
from .framework_tools import Effects, collect_entries

if TYPE_CHECKING:
    from google.adk.tools.base_tool import BaseTool

__all__ = ["from_google_adk", "to_google_adk"]


def to_google_adk(tools: Source, **options: Unpack[AdapterOptions]) -> list[BaseTool]:
    """Return tools of ADK for `tools`: functions, modules, toolboxes, or a list of them. `options` are those of `Runner`.

    A call that needs approval requests a confirmation (`adk_request_confirmation`). A result is an object: that of the
    tool, `{"result": …}` or `{"error": …}`. The `ToolContext` is `CallContext.deps`.
    """
    from .google_adk_tool import AdkTool

    runner = FrameworkRunner(tools, options)
    return [AdkTool(runner, entry) for entry in runner.box]


def from_google_adk(tools: Any | Sequence[Any], *, effects: Effects | None = None) -> Toolbox:
    """Return a toolbox of tools of ADK or plain functions; tools of `to_google_adk` are their original entries.

    A tool has the effect of `effects`, of its metadata or MCP annotations, or `write`. `require_confirmation` becomes
    `approve`. If the dependencies of the run are a `ToolContext`, the tool gets it; else one with an empty session,
    whose state has the dependencies under `temp:deps`.
    """
    from .google_adk_tool import AdkTool, tool_entry

    def convert(tool: Any) -> Entry:
        return tool.entry if isinstance(tool, AdkTool) else tool_entry(tool, effects)

    return collect_entries(tools, effects, convert)
