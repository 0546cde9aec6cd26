"""Toolboxes to and from tools of LlamaIndex.

agent = FunctionAgent(tools=to_llama_index([get_weather, send_mail]), llm=llm)
box = from_llama_index(query_engine_tool, effects={"search": "read"})
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from ..run.tools.toolbox import Entry, Source, Toolbox
from .framework_runner import AdapterOptions, FrameworkRunner
from .framework_tools import Effects, collect_entries

if TYPE_CHECKING:
    from llama_index.core.tools import BaseTool, FunctionTool

__all__ = ["from_llama_index", "to_llama_index"]


def to_llama_index(tools: Source, **options: Unpack[AdapterOptions]) -> list[FunctionTool]:
    """Return tools of LlamaIndex for `tools`: functions, modules, toolboxes, or a list of them.

    `options` are those of `Runner`. A call that needs approval writes an `InputRequiredEvent` with `tool_call_id`,
    `tool`, `arguments` and `reason` to the stream of the workflow; answer it with
    `HumanResponseEvent(response="yes", tool_call_id=…)`. Outside of a workflow it is not approved. An error is a
    `ToolOutput` with `is_error`. The `Context` of the workflow is `CallContext.deps`.
    """
    from .llama_index_tool import LlamaIndexTool

    runner = FrameworkRunner(tools, options)
    return [LlamaIndexTool(runner, entry) for entry in runner.box]


def from_llama_index(tools: BaseTool | Sequence[BaseTool], *, effects: Effects | None = None) -> Toolbox:
    """Return a toolbox of tools of LlamaIndex; those of `to_llama_index` are their original entries.

    LlamaIndex has no metadata for effects: a tool has the effect of `effects`, or `write`. A tool that takes the
    `Context` of a workflow gets the dependencies of the run.
    """
    from .llama_index_tool import LlamaIndexTool, tool_entry

    def convert(tool: BaseTool) -> Entry:
        return tool.entry if isinstance(tool, LlamaIndexTool) else tool_entry(tool, effects)

    return collect_entries(tools, effects, convert)
