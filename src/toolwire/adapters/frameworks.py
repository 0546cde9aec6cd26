"""Toolboxes to and from the tools of agent frameworks.

A function imports the module of its framework on the first call, so that none of the frameworks has to be installed.

PydanticAI:

agent = pydantic_ai.Agent("openai:gpt-5.6", toolsets=[to_pydantic_ai([get_weather, send_mail])])
box = from_pydantic_ai(FunctionToolset([roll_die]), effects={"roll_die": "pure"})

LangChain, for LangGraph's `ToolNode` and agents:

agent = create_agent("openai:gpt-5.6", tools=to_langchain([get_weather, send_mail]))
box = from_langchain(search_tool, effects={"search": "read"})

LlamaIndex:

agent = FunctionAgent(tools=to_llama_index([get_weather, send_mail]), llm=llm)
box = from_llama_index(query_engine_tool, effects={"search": "read"})

OpenAI Agents SDK:

agent = agents.Agent("Clerk", tools=to_openai_agents([get_weather, send_mail]))
box = from_openai_agents(agent.tools, effects={"search": "read"})

Google's Agent Development Kit (ADK):

agent = LlmAgent(name="clerk", model="gemini-3-pro", tools=to_google_adk([get_weather, send_mail]))
box = from_google_adk(FunctionTool(search), effects={"search": "read"})
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

from ..run.tools.toolbox import Source, Toolbox
from .framework_runner import AdapterOptions, Effects, FrameworkRunner, collect_entries, require_known_names

if TYPE_CHECKING:
    from agents import FunctionTool as AgentsFunctionTool
    from google.adk.tools.base_tool import BaseTool as GoogleTool
    from langchain_core.tools import BaseTool as LangchainTool
    from llama_index.core.tools import BaseTool as LlamaTool
    from llama_index.core.tools import FunctionTool
    from pydantic_ai.toolsets import AbstractToolset


def to_pydantic_ai(tools: Source, *, id: str | None = None, **options: Unpack[AdapterOptions]) -> AbstractToolset[Any]:  # noqa: A002
    """Return a toolset of `tools`: functions, modules, toolboxes, or a list of them. `options` are passed to `Runner`.

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

    A tool has the effect of `effects`, of its metadata, or `write`. `deps` and `model` belong to the `RunContext` in
    which the tools are listed; a call has the `deps` of its run. A tool that requires approval keeps this. A toolset
    of `to_pydantic_ai` gives its own toolbox back.
    """
    from .pydantic_ai_toolset import ToolboxToolset, toolset_entries

    if isinstance(toolset, ToolboxToolset):
        require_known_names(effects, [entry.name for entry in toolset.runner.box])
        return toolset.runner.toolbox
    toolsets: Any = toolset if isinstance(toolset, (list, tuple)) else (toolset,)
    entries = [entry for toolset in toolsets for entry in toolset_entries(toolset, effects, deps, model)]
    require_known_names(effects, [entry.name for entry in entries])
    return Toolbox(*entries)


def to_langchain(tools: Source, **options: Unpack[AdapterOptions]) -> list[LangchainTool]:
    """Return tools of LangChain for `tools`: functions, modules, toolboxes, or a list of them.

    `options` are passed to `Runner`. A call that needs approval interrupts the graph; resume it with
    `Command(resume={"decisions": [{"type": "approve"}]})`, as for LangChain's human-in-the-loop middleware. If
    several calls of a `ToolNode` need approval, a decision should also have the `tool_call_id` of the interrupt. Outside
    of a graph the call is not approved. An error is a `ToolMessage` with the status "error". The context of the graph is
    `CallContext.deps`.
    """
    from .langchain_tool import make_tool

    runner = FrameworkRunner(tools, options)
    return [make_tool(runner, entry) for entry in runner.box]


def from_langchain(tools: LangchainTool | Sequence[LangchainTool], *, effects: Effects | None = None) -> Toolbox:
    """Return a toolbox of tools of LangChain; tools of `to_langchain` are their original entries.

    A tool has the effect of `effects`, of its metadata, or `write`. A tool that takes the state or the store of a
    graph raises ConfigError; one that takes a `ToolRuntime` gets the dependencies of the run as its context.
    """
    from .langchain_tool import tool_entry

    return collect_entries(tools, effects, tool_entry)


def to_llama_index(tools: Source, **options: Unpack[AdapterOptions]) -> list[FunctionTool]:
    """Return tools of LlamaIndex for `tools`: functions, modules, toolboxes, or a list of them.

    `options` are passed to `Runner`. A call that needs approval writes an `InputRequiredEvent` with `tool_call_id`,
    `tool`, `arguments` and `reason` to the stream of the workflow; answer it with
    `HumanResponseEvent(response="yes", tool_call_id=…)`. Outside of a workflow it is not approved. An error is a
    `ToolOutput` with `is_error`. The `Context` of the workflow is `CallContext.deps`.
    """
    from .llama_index_tool import LlamaIndexTool

    runner = FrameworkRunner(tools, options)
    return [LlamaIndexTool(runner, entry) for entry in runner.box]


def from_llama_index(tools: LlamaTool | Sequence[LlamaTool], *, effects: Effects | None = None) -> Toolbox:
    """Return a toolbox of tools of LlamaIndex; tools of `to_llama_index` are their original entries.

    LlamaIndex has no metadata for effects: a tool has the effect of `effects`, or `write`. A tool that takes the
    `Context` of a workflow gets the dependencies of the run.
    """
    from .llama_index_tool import tool_entry

    return collect_entries(tools, effects, tool_entry)


def to_openai_agents(tools: Source, **options: Unpack[AdapterOptions]) -> list[AgentsFunctionTool]:
    """Return function tools for `tools`: functions, modules, toolboxes, or a list of them. `options` are passed to `Runner`.

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
    """Return a toolbox of function tools; tools of `to_openai_agents` are their original entries.

    A tool has the effect of `effects`, of its MCP annotations, or `write`. `needs_approval` becomes `approve`: a
    function of it is called with the arguments and the dependencies of the run. Guardrails of a tool raise
    ConfigError, because only the SDK's own loop runs them.
    """
    from .openai_agents_tool import tool_entry

    return collect_entries(tools, effects, tool_entry)


def to_google_adk(tools: Source, **options: Unpack[AdapterOptions]) -> list[GoogleTool]:
    """Return tools of ADK for `tools`: functions, modules, toolboxes, or a list of them. `options` are passed to `Runner`.

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
    from .google_adk_tool import tool_entry

    return collect_entries(tools, effects, tool_entry)
