"""Function tools of the OpenAI Agents SDK that run in a `FrameworkRunner`, and entries of other ones.

Importing it imports the SDK.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..ir.errors import ConfigError
from ..ir.parts import Media, ToolCall, ToolResult
from ..ir.pointer import Object
from ..ir.text import dumps
from ..ir.tools import Tool
from ..run.calls.context import current_call
from ..run.tools.function_tool import ApprovalRule
from ..run.tools.toolbox import Entry
from ..stream.strict import parse_arguments
from .framework_runner import (
    CallScope,
    Effects,
    FrameworkRunner,
    choose_effect,
    framework_entry,
    framework_imports,
    input_schema,
    media_part,
    result_media,
    text_part,
)

with framework_imports("openai-agents"):
    from agents import FunctionTool as AgentsFunctionTool
    from agents import ToolOutputFileContent, ToolOutputImage, ToolOutputText
    from agents.run_context import _ApprovalRecord
    from agents.tool_context import ToolContext
    from agents.tracing import get_current_trace

_NO_TRACE = "no-op"
_RUN_MARK = "toolwire run "


class AgentsInvocation:
    """Runs the calls of one tool. A copy of the tool keeps it, so a copied tool also has its entry."""

    def __init__(self, runner: FrameworkRunner, entry: Entry) -> None:
        self.runner = runner
        self.entry = entry

    async def __call__(self, context: ToolContext[Any], arguments: str) -> Any:
        call = _make_call(context.tool_call_id, self.entry.name, arguments)
        approved = context.is_tool_approved(context.qualified_tool_name, context.tool_call_id)
        result = await self.runner.run(call, _scope(context), reply=approved is True)
        return _tool_output(result)

    async def needs_approval(self, context: Any, arguments: Object, call_id: str) -> bool:
        """Return True if this call needs approval. One that would be refused needs none: the model reads the reason."""
        call = ToolCall(call_id, self.entry.name, arguments)
        return await self.runner.approval_reason(call, _scope(context)) is not None

    def is_enabled(self, context: Any, agent: Any) -> bool:
        """Return False for a withdrawn tool. The SDK asks before every turn, so the run has an id before its calls."""
        _own_run_id(context)
        return self.entry.withdrawn is None


def make_tool(runner: FrameworkRunner, entry: Entry) -> AgentsFunctionTool:
    """Return an entry as a function tool that runs in `runner`."""
    invocation, tool = AgentsInvocation(runner, entry), entry.tool
    return AgentsFunctionTool(
        name=tool.name,
        description=tool.description or "",
        params_json_schema=input_schema(tool),
        on_invoke_tool=invocation,
        strict_json_schema=tool.strict is True,
        is_enabled=invocation.is_enabled,
        needs_approval=invocation.needs_approval if runner.may_need_approval(entry) else False,
        output_json_schema=tool.output_schema,
    )


def _make_call(call_id: str, name: str, arguments: str) -> ToolCall:
    parsed, state = parse_arguments(arguments or "{}")
    return ToolCall(call_id, name, parsed, arguments, state)


def _scope(context: Any) -> CallScope:
    """Return the scope of a call: the group of the trace, the trace, or the run, and the context of the run.

    Only the run is the scope of call ids: a group may contain several conversations, and a run may have no trace.
    """
    own = _own_run_id(context)
    trace: Any = get_current_trace()
    trace_id = getattr(trace, "trace_id", None)
    run_id = getattr(trace, "group_id", None) or (own if trace_id in (None, _NO_TRACE) else trace_id)
    return CallScope(str(run_id), own, context.context)


def _own_run_id(context: Any) -> str:
    """Return the id of the run, made at the first use; "" if the context cannot keep one.

    The SDK has no id of a run that a `RunState` keeps. The id is therefore the name of an approval record without a
    decision: the SDK saves approvals with the state, and a nested run has its own.
    """
    approvals = getattr(context, "_approvals", None)
    if not isinstance(approvals, dict):
        return ""
    mark = next((key for key in approvals if isinstance(key, str) and key.startswith(_RUN_MARK)), None)
    if mark is None:
        mark = _RUN_MARK + secrets.token_hex(12)
        approvals[mark] = _ApprovalRecord()
    return mark.removeprefix(_RUN_MARK)


def _tool_output(result: ToolResult) -> Any:
    media = result_media(result)
    if not media:
        return result.text
    return [*([ToolOutputText(text=result.text)] if result.text else []), *map(_media_output, media)]


def _media_output(media: Media) -> ToolOutputImage | ToolOutputFileContent:
    url = media.url or f"data:{media.media_type or 'application/octet-stream'};base64,{media.data}"
    if media.kind == "image":
        return ToolOutputImage(image_url=url)
    if media.url is not None:
        return ToolOutputFileContent(file_url=media.url, filename=media.name)
    return ToolOutputFileContent(file_data=url, filename=media.name or "file")


def tool_entry(tool: AgentsFunctionTool, effects: Effects | None) -> Entry:
    """Return the entry of any function tool. Raises `ConfigError` for a hosted tool, and for a tool with guardrails."""
    invocation = getattr(tool, "on_invoke_tool", None)
    if isinstance(invocation, AgentsInvocation):
        return invocation.entry
    if not isinstance(tool, AgentsFunctionTool):
        hint = "leave it out: OpenAI runs it"
        raise ConfigError(f"{getattr(tool, 'name', tool)!r} is not a function tool", hint=hint)
    if tool.tool_input_guardrails or tool.tool_output_guardrails:
        raise ConfigError(
            f"the tool {tool.name} has guardrails, which only the loop of the OpenAI Agents SDK runs",
            hint="remove them, or use a Policy",
        )
    annotations: Any = tool.mcp_annotations
    hints = annotations.model_dump(by_alias=True) if annotations is not None else None
    declared = Tool(
        tool.name,
        tool.description or None,
        dict(tool.params_json_schema),
        tool.output_json_schema,
        strict=tool.strict_json_schema or None,
        effect=choose_effect(tool.name, effects, hints),
    )

    async def call(**arguments: Any) -> Any:
        context = _tool_context(tool, arguments)
        return _plain_value(await tool.on_invoke_tool(context, context.tool_arguments))

    rule = _approval_rule(tool)
    return framework_entry(declared, call, "openai_agents", approve=rule, timeout=tool.timeout_seconds)


def _tool_context(tool: AgentsFunctionTool, arguments: Object) -> ToolContext[Any]:
    call = current_call()
    return ToolContext(
        context=call.deps, tool_name=tool.name, tool_call_id=call.call_id or "call", tool_arguments=dumps(arguments)
    )


def _approval_rule(tool: AgentsFunctionTool) -> ApprovalRule:
    """Return whether a tool needs approval: a constant, or a function of its arguments."""
    needed = tool.needs_approval
    if not callable(needed):
        return bool(needed)

    def is_needed(arguments: Object) -> bool:
        context = _tool_context(tool, arguments)
        decision = needed(context, arguments, context.tool_call_id)
        with ThreadPoolExecutor(1) as thread:  # a gate is not async, and this thread may have an event loop
            return bool(thread.submit(asyncio.run, _await(decision)).result())

    return is_needed


async def _await(decision: Awaitable[bool]) -> bool:
    return await decision


def _plain_value(output: Any) -> Any:
    """Return the SDK's output types as parts of a result, and other values as they are."""
    if isinstance(output, list) and output and all(map(_is_output_type, output)):
        return [_plain_value(item) for item in output]
    if isinstance(output, ToolOutputText):
        return text_part(output.text)
    if isinstance(output, ToolOutputImage) and output.image_url:
        return media_part("image/*", url=output.image_url)
    if isinstance(output, ToolOutputFileContent) and (output.file_url or output.file_data):
        return media_part(None, data=output.file_data, url=output.file_url)
    return output


def _is_output_type(item: object) -> bool:
    return isinstance(item, (ToolOutputText, ToolOutputImage, ToolOutputFileContent))
