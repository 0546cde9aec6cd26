"""The tool of Google's ADK that runs in a `FrameworkRunner`, and entries of other tools. Importing it imports ADK."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

from ..ir.errors import ConfigError
from ..ir.parts import Media, ToolCall, ToolResult
from ..ir.pointer import Object
from ..ir.tools import Tool
from ..run.calls.context import ToolError, current_call
from ..run.calls.steps import ApprovalReply, Denied
from ..run.tools.function_tool import ApprovalRule
from ..run.tools.toolbox import Entry
from ..wire.gemini.schemas import read_schema
from .framework_runner import (
    CallScope,
    Effects,
    FrameworkRunner,
    choose_effect,
    framework_entry,
    framework_imports,
    input_schema,
    open_question,
    result_media,
    result_value,
    tool_metadata,
)

with framework_imports("google-adk"):
    from google.adk.agents.invocation_context import InvocationContext
    from google.adk.agents.run_config import RunConfig
    from google.adk.sessions import InMemorySessionService, Session
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.function_tool import FunctionTool
    from google.adk.tools.tool_confirmation import ToolConfirmation
    from google.adk.tools.tool_context import ToolContext
    from google.genai import types


class AdkTool(BaseTool):
    """A tool of a toolbox, declared with its JSON Schema."""

    def __init__(self, runner: FrameworkRunner, entry: Entry) -> None:
        super().__init__(
            name=entry.name, description=entry.tool.description or "", custom_metadata=tool_metadata(entry)
        )
        self.runner = runner
        self.entry = entry

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema=input_schema(self.entry.tool),
            response_json_schema=self.entry.tool.output_schema,
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Run the call, or request ADK's confirmation and return that nothing was run.

        A call without an id cannot be confirmed and is denied.
        """
        call = ToolCall(tool_context.function_call_id or "", self.name, args)
        session = _session_id(tool_context)
        scope = CallScope(session, session, tool_context)
        result = await self.runner.run(call, scope, reply=_confirmation_reply(tool_context))
        question = open_question(result)
        if question is None:
            return _response(result)
        if not tool_context.function_call_id:  # a confirmation cannot be requested
            return _response(await self.runner.run(call, scope, reply=False))
        tool_context.request_confirmation(
            hint=f"Approve the call of {question.tool}? {question.why}", payload={"arguments": question.arguments}
        )
        tool_context.actions.skip_summarization = True
        return {"error": f"This call needs approval: {question.why}. Nothing was run."}


def _session_id(context: ToolContext) -> str:
    """Return the id of a session. Only the app and the user make it unique."""
    session = context.session
    return "/".join(quote(part, safe="") for part in (session.app_name, session.user_id, session.id))


def _confirmation_reply(context: ToolContext) -> ApprovalReply | None:
    """Return the user's decision, with the reason of a denial, or None if ADK has not asked yet."""
    confirmation = context.tool_confirmation
    if confirmation is None:
        return None
    if confirmation.confirmed:
        return True
    payload = confirmation.payload
    reason = payload.get("reason") if isinstance(payload, dict) else payload
    return Denied(reason if isinstance(reason, str) else "")


def _response(result: ToolResult) -> Object:
    """Return the response of a function call, which is an object; media are inline data of it."""
    if result.is_error:
        return {"error": result.text}
    value = result_value(result)
    response: Object = value if isinstance(value, dict) else {"result": value}
    media = result_media(result)
    return {**response, "media": [_media_object(part) for part in media]} if media else response


def _media_object(media: Media) -> Object:
    fields = {"mime_type": media.media_type, "data": media.data, "url": media.url}
    return {name: value for name, value in fields.items() if value is not None}


def tool_entry(tool: Any, effects: Effects | None) -> Entry:
    """Return the entry of any tool of ADK, or of a function.

    Raises `ConfigError` for another value, and for a tool that the model's provider runs.
    """
    if isinstance(tool, AdkTool):
        return tool.entry
    if not isinstance(tool, BaseTool):
        if not callable(tool):
            raise ConfigError(f"{tool!r} is not a tool of ADK", hint="pass a BaseTool, or a function")
        tool = FunctionTool(tool)
    declaration = tool._get_declaration()
    if declaration is None:
        raise ConfigError(f"the tool {tool.name} has no declaration", hint="leave it out: Gemini runs it")
    raw_tool: Any = getattr(tool, "raw_mcp_tool", None)
    annotations: Any = getattr(raw_tool, "annotations", None)
    hints = None if annotations is None else annotations.model_dump(by_alias=True)
    declared = Tool(
        tool.name,
        tool.description or None,
        _schema(declaration.parameters_json_schema, declaration.parameters) or {"type": "object", "properties": {}},
        _schema(declaration.response_json_schema, declaration.response),
        effect=choose_effect(tool.name, effects, tool.custom_metadata, hints),
    )

    async def call(**arguments: Any) -> Any:
        return await _call_tool(tool, arguments)

    own: Any = (tool.custom_metadata or {}).get("toolwire") or {}
    return framework_entry(declared, call, "google_adk", approve=_approval_rule(tool) or bool(own.get("approve")))


def _schema(json_schema: Any, schema: types.Schema | None) -> Object | None:
    """Return a JSON Schema: as declared, or from Gemini's dialect."""
    if isinstance(json_schema, dict):
        return json_schema
    return None if schema is None else read_schema(schema.model_dump(exclude_none=True, mode="json", by_alias=True))


def _approval_rule(tool: BaseTool) -> ApprovalRule:
    """Return whether a tool needs confirmation: a constant, or a function of its arguments."""
    if isinstance(tool, FunctionTool) and isinstance(tool._require_confirmation, bool):
        return tool._require_confirmation
    if type(tool).check_require_confirmation is BaseTool.check_require_confirmation:
        return False

    def is_needed(arguments: Object) -> bool:
        work = tool.check_require_confirmation(arguments, _tool_context())
        with ThreadPoolExecutor(1) as thread:  # a gate is not async, and this thread may have an event loop
            return bool(thread.submit(asyncio.run, work).result())

    return is_needed


async def _call_tool(tool: BaseTool, arguments: Object) -> Any:
    """Call a tool of ADK. The call has been approved if it has to be, so it is confirmed.

    Raise ToolError with the error that it reports.
    """
    response = await tool.run_async(args=arguments, tool_context=_tool_context(ToolConfirmation(confirmed=True)))
    if isinstance(response, dict) and response.keys() == {"error"}:
        raise ToolError(str(response["error"]))
    if isinstance(response, dict) and response.keys() == {"result"}:
        return response["result"]
    return response


def _tool_context(confirmation: ToolConfirmation | None = None) -> ToolContext:
    """Return ADK's context of the run, else a context with an empty session and the run's `deps` in its state."""
    call = current_call()
    if isinstance(call.deps, ToolContext):
        return call.deps
    session = Session(id=call.run_id or "toolwire", app_name="toolwire", user_id="toolwire")
    if call.deps is not None:
        session.state["temp:deps"] = call.deps
    invocation = InvocationContext(
        session_service=InMemorySessionService(),
        invocation_id=call.call_id or "call",
        session=session,
        run_config=RunConfig(),
    )
    return ToolContext(invocation, function_call_id=call.call_id or "call", tool_confirmation=confirmation)
