"""The toolset that runs a toolbox in PydanticAI, and the entries of other toolsets. Importing it imports PydanticAI."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from pydantic_core import SchemaValidator, core_schema

from ..ir.errors import ConfigError
from ..ir.parts import Media, ToolCall, ToolResult
from ..ir.pointer import Object
from ..ir.tools import Tool
from ..net.threads import run_blocking
from ..run.calls.context import ToolError, current_call
from ..run.tools.toolbox import Entry
from ..run.values.results import error_text, result_code
from ..run.values.waiting import waiting_call
from .framework_runner import (
    CallScope,
    Effects,
    FrameworkRunner,
    choose_effect,
    framework_entry,
    framework_imports,
    input_schema,
    media_part,
    open_question,
    result_media,
    result_value,
    text_part,
    tool_metadata,
)

with framework_imports("pydantic-ai-slim"):
    from pydantic_ai import RunContext
    from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
    from pydantic_ai.messages import AudioUrl, BinaryContent, DocumentUrl, ImageUrl, ToolReturn, VideoUrl
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.tools import ToolDefinition
    from pydantic_ai.toolsets import (
        AbstractToolset,
        ApprovalRequiredToolset,
        CombinedToolset,
        PrefixedToolset,
        RenamedToolset,
        ToolsetTool,
        WrapperToolset,
    )
    from pydantic_ai.usage import RunUsage

_ANY_ARGUMENTS = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))
_RETRIED = ("invalid_arguments", "truncated", "unknown_tool")


class ToolboxToolset(AbstractToolset[Any]):
    """A toolset whose calls run in a `FrameworkRunner`. Tools of live sources appear and disappear between steps."""

    def __init__(self, runner: FrameworkRunner, id: str | None = None) -> None:  # noqa: A002
        self.runner = runner
        self._id = id

    @property
    def id(self) -> str | None:
        return self._id

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        tools = self.runner.runner.tools_for_run(_scope(ctx).run_id)
        return {tool.name: self._toolset_tool(tool, ctx.max_retries) for tool in tools}

    def _toolset_tool(self, tool: Tool, max_retries: int) -> ToolsetTool[Any]:
        """Return a tool in Pydantic AI's form.

        Calls with side effects are sequential; arguments are validated by our runtime only.
        """
        entry = self.runner.box.find(tool.name)
        definition = ToolDefinition(
            name=tool.name,
            parameters_json_schema=input_schema(tool),
            description=tool.description,
            strict=tool.strict,
            sequential=tool.effect in ("idempotent", "write"),
            metadata=None if entry is None else tool_metadata(entry),
            return_schema=tool.output_schema,
        )
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=max_retries, args_validator=_ANY_ARGUMENTS)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        call = ToolCall(ctx.tool_call_id or "", name, tool_args)
        result = await self.runner.run(call, _scope(ctx), reply=True if ctx.tool_call_approved else None)
        question = open_question(result)
        if question is not None:
            raise ApprovalRequired(metadata={"reason": question.why, "arguments": question.arguments})
        return _tool_return(result)


def _scope(ctx: RunContext[Any]) -> CallScope:
    conversation = ctx.conversation_id or ctx.run_id or ""
    return CallScope(conversation, conversation, ctx.deps)


def _tool_return(result: ToolResult) -> Any:
    """Return a result as the return value of a tool.

    Raises `CallDeferred` for a waiting call, `ModelRetry` for an error that the model can correct, and `ToolFailed` for
    other errors.
    """
    waiting = waiting_call(result)
    if waiting is not None:
        raise CallDeferred(metadata={"reason": waiting.why, "state": waiting.state})
    if result.is_error:
        raise (ModelRetry if result_code(result) in _RETRIED else ToolFailed)(result.text)
    media = [_media_content(part) for part in result_media(result)]
    if not media:
        return result_value(result)
    return ToolReturn(return_value=result.text, content=media)


def _media_content(media: Media) -> Any:
    if media.data is not None:
        media_type = media.media_type or "application/octet-stream"
        return BinaryContent(data=base64.b64decode(media.data), media_type=media_type)
    urls = {"image": ImageUrl, "audio": AudioUrl, "video": VideoUrl}
    return urls.get(media.kind, DocumentUrl)(url=media.url or "")


def toolset_entries(toolset: AbstractToolset[Any], effects: Effects | None, deps: object, model: Any) -> list[Entry]:
    """Return the entries of a toolset.

    A toolset of `to_pydantic_ai`, also inside a combined toolset, has its own entries. Raises `ConfigError` for another
    value.
    """
    if not isinstance(toolset, AbstractToolset):
        hint = "pass a toolset, or a list of toolsets; FunctionToolset([function]) makes one"
        raise ConfigError(f"{toolset!r} is not a toolset of PydanticAI", hint=hint)
    if isinstance(toolset, ToolboxToolset):
        return list(toolset.runner.box)
    if isinstance(toolset, CombinedToolset):
        return [entry for part in toolset.toolsets for entry in toolset_entries(part, effects, deps, model)]
    calls = _ToolsetCalls(toolset, deps, model or TestModel())
    return [calls.entry(tool, effects) for tool in run_blocking(calls.list_tools()).values()]


class _ToolsetCalls:
    """Calls the tools of a toolset, each in a `RunContext` of its own."""

    def __init__(self, toolset: AbstractToolset[Any], deps: object, model: Any) -> None:
        self._toolset = toolset
        self._deps = deps
        self._model = model

    def _context(self, name: str | None = None, approved: bool = False) -> RunContext[Any]:
        """Return a run context for the current call; `deps` of the call take precedence."""
        call = current_call()
        return RunContext(
            deps=self._deps if call.deps is None else call.deps,
            model=self._model,
            usage=RunUsage(),
            tool_call_id=call.call_id or None,
            tool_name=name,
            run_id=call.run_id or None,
            conversation_id=call.run_id or None,
            tool_call_approved=approved,
        )

    async def list_tools(self) -> dict[str, ToolsetTool[Any]]:
        async with self._toolset:
            tools: dict[str, ToolsetTool[Any]] = await self._toolset.get_tools(self._context())
            return tools

    def entry(self, tool: ToolsetTool[Any], effects: Effects | None) -> Entry:
        """Return a toolset's tool as an entry for a toolbox.

        Its approval rule decides in our runtime, so the framework gets the calls that needed it as approved.
        """
        definition = tool.tool_def
        declared = Tool(
            definition.name,
            definition.description,
            dict(definition.parameters_json_schema),
            definition.return_schema,
            strict=definition.strict,
            effect=choose_effect(definition.name, effects, definition.metadata),
        )
        rule = self._approval_rule(tool)

        async def call(**arguments: Any) -> Any:
            needed = rule if isinstance(rule, bool) else rule(arguments)
            return await self._call(tool, arguments, approved=bool(needed))

        origin = f"pydantic_ai:{self._toolset.id or type(self._toolset).__name__}"
        return framework_entry(declared, call, origin, approve=rule, timeout=definition.timeout)

    def _approval_rule(self, tool: ToolsetTool[Any]) -> bool | Callable[[Object], bool]:
        """Return whether a tool needs approval: a constant, or a function that asks the toolset's own rules."""
        metadata: Any = (tool.tool_def.metadata or {}).get("toolwire") or {}
        if tool.tool_def.kind == "unapproved" or metadata.get("approve"):
            return True
        rules = list(_approval_functions(self._toolset, tool))
        if not rules:
            return False
        return lambda arguments: any(
            is_needed(self._context(definition.name), definition, arguments) for is_needed, definition in rules
        )

    async def _call(self, tool: ToolsetTool[Any], arguments: Object, *, approved: bool) -> Any:
        """Validate the arguments, call the tool and return a plain value.

        Raises `ToolError`, whose text the model receives, for failures that Pydantic AI reports by exceptions.
        """
        name = tool.tool_def.name
        context = self._context(name, approved)
        try:
            values = tool.args_validator.validate_python(arguments, context=context.validation_context)
            async with self._toolset:
                return _plain_value(await self._toolset.call_tool(name, values, context, tool))
        except (ModelRetry, ToolFailed) as error:
            raise ToolError(error.message) from error
        except ValidationError as error:
            raise ToolError(f"The arguments of {name} were not accepted: {error_text(error, name=False)}") from error
        except ApprovalRequired as error:
            raise ToolError(f"{name} requires approval, and nothing was run.") from error
        except CallDeferred as error:
            raise ToolError(f"{name} runs outside of this program, and has no result yet.") from error


def _approval_functions(toolset: AbstractToolset[Any], tool: ToolsetTool[Any]) -> Iterator[tuple[Any, ToolDefinition]]:
    """Yield the approval functions around a tool, from the outside in, each with the definition that it sees.

    A wrapper of another kind may hide one: PydanticAI then refuses the call, and nothing runs.
    """
    definition = tool.tool_def
    while True:
        if isinstance(toolset, CombinedToolset) and hasattr(tool, "source_toolset"):
            source: Any = tool  # the tool of a combined toolset names the toolset that it is from
            toolset, tool = source.source_toolset, source.source_tool
            continue
        if not isinstance(toolset, WrapperToolset):
            return
        if isinstance(toolset, ApprovalRequiredToolset):
            yield toolset.approval_required_func, definition
        definition = replace(definition, name=_inner_name(toolset, definition.name))
        toolset = toolset.wrapped


def _inner_name(toolset: WrapperToolset[Any], name: str) -> str:
    """Return the name that a tool has inside of a wrapper."""
    if isinstance(toolset, PrefixedToolset):
        return name.removeprefix(f"{toolset.prefix}_")
    return toolset.name_map.get(name, name) if isinstance(toolset, RenamedToolset) else name


def _plain_value(value: Any) -> Any:
    """Return PydanticAI's content types as parts of a result, and other values as they are."""
    if isinstance(value, ToolReturn):
        content = [value.content] if isinstance(value.content, str) else list(value.content or ())
        parts = [_plain_value(item) for item in content]
        media = [part for part in parts if isinstance(part, Media)]
        return [text_part(value.return_value), *media] if media else value.return_value
    if isinstance(value, BinaryContent):
        return media_part(value.media_type, data=value.data)
    if isinstance(value, (ImageUrl, AudioUrl, VideoUrl, DocumentUrl)):
        return media_part(value.media_type, url=value.url)
    return value
