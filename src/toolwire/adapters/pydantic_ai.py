"""Toolboxes to and from toolsets of PydanticAI.

agent = pydantic_ai.Agent("openai:gpt-5.6", toolsets=[to_pydantic_ai([get_weather, send_mail])])
box = from_pydantic_ai(FunctionToolset([roll_die]), effects={"roll_die": "pure"})
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

from ..run.tools.toolbox import Source, Toolbox
from .framework_runner import AdapterOptions, FrameworkRunner
from .framework_tools import Effects, require_known_names

if TYPE_CHECKING:
    from pydantic_ai.toolsets import AbstractToolset

__all__ = ["from_pydantic_ai", "to_pydantic_ai"]


def to_pydantic_ai(tools: Source, *, id: str | None = None, **options: Unpack[AdapterOptions]) -> AbstractToolset[Any]:  # noqa: A002
    """Return a toolset of `tools`: functions, modules, toolboxes, or a list of them. `options` are those of `Runner`.

    A call that needs approval raises `ApprovalRequired`: the run ends with `DeferredToolRequests`, or asks its handler.
    Invalid arguments raise `ModelRetry`, other errors `ToolFailed`. `RunContext.deps` is `CallContext.deps`. `id`: the
    id of the toolset, for durable execution.
    """
    from .pydantic_ai_toolset import ToolboxToolset

    return ToolboxToolset(FrameworkRunner(tools, options, keeps_outputs=True), id)


def from_pydantic_ai(
    toolset: AbstractToolset[Any] | Sequence[AbstractToolset[Any]],
    *,
    effects: Effects | None = None,
    deps: object = None,
    model: Any = None,
) -> Toolbox:
    """Return a toolbox of the tools that a toolset has now, or a list of toolsets.

    A tool has the effect of `effects`, of its metadata, or `write`. `deps` and `model` are those of the `RunContext` in
    which the tools are listed; a call has the `deps` of its run. A tool that requires approval keeps this. A toolset
    of `to_pydantic_ai` gives its own toolbox back.
    """
    from .pydantic_ai_toolset import ToolboxToolset, toolset_entries

    if isinstance(toolset, ToolboxToolset):
        require_known_names(effects, [entry.name for entry in toolset.runner.box])
        return toolset.runner.toolbox
    toolsets: Any = toolset if isinstance(toolset, (list, tuple)) else (toolset,)
    entries = [entry for one in toolsets for entry in toolset_entries(one, effects, deps, model)]
    require_known_names(effects, [entry.name for entry in entries])
    return Toolbox(*entries)
