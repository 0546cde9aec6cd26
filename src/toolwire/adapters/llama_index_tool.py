"""The tool of LlamaIndex that runs in a `FrameworkRunner`, and entries of other tools. Importing it imports LlamaIndex."""

from __future__ import annotations

import inspect
import secrets
from typing import Any

from pydantic import BaseModel, ConfigDict

from ..ir.errors import ConfigError
from ..ir.parts import Media, ToolCall, ToolResult
from ..ir.pointer import Object
from ..ir.tools import Tool
from ..run.calls.context import ToolError, current_call
from ..run.calls.steps import ApprovalReply, Denied
from ..run.tools.toolbox import Entry
from ..run.values.waiting import WaitingCall
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
)

with framework_imports("llama-index-core"):
    from llama_index.core.base.llms.types import AudioBlock, DocumentBlock, ImageBlock, TextBlock, VideoBlock
    from llama_index.core.tools import BaseTool, FunctionTool, ToolMetadata, ToolOutput
    from llama_index.core.tools.types import AsyncBaseTool
    from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent

_CONTEXT = "toolwire workflow context"  # the parameter for the context; no parameter of a function has such a name
_RUN_ID = "toolwire_run_id"
_APPROVED = frozenset({"yes", "y", "approve", "approved", "true"})


class _SchemaMetadata(ToolMetadata):
    """Metadata with the whole schema: LlamaIndex drops keywords such as `additionalProperties`."""

    def get_parameters_dict(self) -> dict[str, Any]:
        schema: dict[str, Any] = self.fn_schema.model_json_schema() if self.fn_schema is not None else {}
        return schema


def _schema_model(tool: Tool) -> type[BaseModel]:
    """Return a model class that only carries the schema."""
    schema = input_schema(tool)

    class Parameters(BaseModel):
        model_config = ConfigDict(extra="allow")

        @classmethod
        def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
            return dict(schema)

    return Parameters


class LlamaIndexTool(FunctionTool):
    """A tool of a toolbox. It takes the context of the workflow, if one calls it."""

    def __init__(self, runner: FrameworkRunner, entry: Entry) -> None:
        metadata = _SchemaMetadata(
            description=entry.tool.description or "", name=entry.name, fn_schema=_schema_model(entry.tool)
        )
        super().__init__(fn=self.call, async_fn=self.acall, metadata=metadata)
        self.requires_context, self.ctx_param_name = True, _CONTEXT
        self.runner = runner
        self.entry = entry

    def __call__(self, /, *args: Any, **kwargs: Any) -> ToolOutput:
        return self.call(*args, **kwargs)

    def call(self, /, *args: Any, **kwargs: Any) -> ToolOutput:
        context, call = kwargs.pop(_CONTEXT, None), self._make_call(args, kwargs)
        scope = CallScope(key_scope=secrets.token_hex(8), deps=context)  # without a workflow, there is no run
        result = self.runner.run_sync(call, scope)
        if open_question(result) is not None:
            result = self.runner.run_sync(call, scope, reply=False)
        return _tool_output(result, call)

    async def acall(self, /, *args: Any, **kwargs: Any) -> ToolOutput:
        """Run the call.

        If it needs approval, ask through the workflow's context and run it with the answer; without a context or an id
        it is denied.
        """
        context, call = kwargs.pop(_CONTEXT, None), self._make_call(args, kwargs)
        scope = await _scope(context)
        result = await self.runner.run(call, scope)
        question = open_question(result)
        if question is not None:
            # The workflow repeats the step when the answer arrives; without an id, the call would not be recognised then.
            reply = await _ask(context, question) if context is not None and call.id else False
            result = await self.runner.run(call, scope, reply=reply)
        return _tool_output(result, call)

    def _make_call(self, args: tuple[Any, ...], arguments: Object) -> ToolCall:
        if args:
            raise ConfigError(f"{self.entry.name} takes named arguments, got {args!r}", hint="pass them by name")
        return ToolCall(_workflow_call_id(self.entry.name), self.entry.name, arguments)


def _workflow_call_id(name: str) -> str:
    """Return the id of the tool call that the current step of a workflow handles; "" outside of such a step."""
    try:
        from workflows.runtime.types.results import StepWorkerStateContextVar

        event = StepWorkerStateContextVar.get().event
    except (ImportError, LookupError):
        return ""
    is_own = getattr(event, "tool_name", None) == name
    return str(getattr(event, "tool_id", "")) if is_own else ""


async def _scope(context: Context | None) -> CallScope:
    """Return the scope of a call. Its id is part of the state of the workflow, so a restored workflow has it, too."""
    if context is None:
        return CallScope(key_scope=secrets.token_hex(8))
    async with context.store.edit_state() as state:
        run_id = state.get(_RUN_ID, None)
        if run_id is None:
            run_id = state[_RUN_ID] = secrets.token_hex(8)
    return CallScope(run_id, run_id, context)


async def _ask(context: Context, question: WaitingCall) -> ApprovalReply:
    """Ask for approval with an event, and return the answer; any text but an approval is the reason of a denial.

    Only an answer with the id of this call is accepted.
    """
    answer = await context.wait_for_event(
        HumanResponseEvent,
        waiter_id=f"toolwire approval {question.call_id}",
        waiter_event=InputRequiredEvent(
            prefix=f"Approve the call of {question.tool}? {question.why}",
            tool_call_id=question.call_id,
            tool=question.tool,
            arguments=question.arguments,
            reason=question.why,
        ),
        requirements={"tool_call_id": question.call_id},
    )
    response = answer.get("response", "")
    is_approved = response is True or str(response).strip().lower() in _APPROVED
    return True if is_approved else Denied("" if response in (False, None) else str(response))


def _tool_output(result: ToolResult, call: ToolCall) -> ToolOutput:
    """Return a result in LlamaIndex's form: text and media blocks, the value, the error flag."""
    blocks = [TextBlock(text=result.text), *map(_media_block, result_media(result))]
    return ToolOutput(
        tool_name=call.name,
        blocks=blocks,
        raw_input={"kwargs": call.arguments or {}},
        raw_output=result_value(result),
        is_error=result.is_error,
    )


def _media_block(media: Media) -> Any:
    """Return media as the block of its kind; a document if it has no other."""
    data = None if media.data is None else media.data.encode()
    if media.kind == "image":
        return ImageBlock(image=data, url=media.url, image_mimetype=media.media_type)
    if media.kind == "audio":
        return AudioBlock(audio=data, url=media.url)
    if media.kind == "video":
        return VideoBlock(video=data, url=media.url, video_mimetype=media.media_type)
    return DocumentBlock(data=data, url=media.url, document_mimetype=media.media_type, title=media.name)


def tool_entry(tool: BaseTool, effects: Effects | None) -> Entry:
    """Return the entry of any tool of LlamaIndex. A tool without async code runs in a thread."""
    if isinstance(tool, LlamaIndexTool):
        return tool.entry
    name = tool.metadata.get_name()
    declared = Tool(
        name,
        tool.metadata.description or None,
        tool.metadata.get_parameters_dict(),
        effect=choose_effect(name, effects),
    )
    context_name = getattr(tool, "ctx_param_name", None)

    def prepare(arguments: Object) -> Object:
        return arguments if context_name is None else {**arguments, context_name: current_call().deps}

    def call(**arguments: Any) -> Any:
        return _result_value(tool(**prepare(arguments)))

    async def call_async(**arguments: Any) -> Any:
        assert isinstance(tool, AsyncBaseTool)
        return _result_value(await tool.acall(**prepare(arguments)))

    return framework_entry(declared, call_async if _is_async(tool) else call, "llama_index")


def _is_async(tool: BaseTool) -> bool:
    if isinstance(tool, FunctionTool):
        return inspect.iscoroutinefunction(tool.real_fn)
    return isinstance(tool, AsyncBaseTool)


def _result_value(output: ToolOutput) -> Any:
    """Return an output as parts if it has media, as a value if its text is only the value's, else as text.

    Raises `ToolError` for an error.
    """
    if output.is_error:
        raise ToolError(output.content) from output.exception
    media = [part for part in map(_block_part, output.blocks) if part is not None]
    if media:
        return [*([text_part(output.content)] if output.content else []), *media]
    raw = output.raw_output
    is_json = isinstance(raw, (dict, list, int, float)) and output.content == str(raw)
    return raw if is_json else output.content


def _block_part(block: Any) -> Media | None:
    """Return a block with data or a URL as media, or None for another block."""
    sources = {"image": "image/*", "audio": "audio/*", "video": "video/*", "data": None}
    for name, media_type in sources.items():
        data = getattr(block, name, None)
        if data is not None:
            known = getattr(block, f"{'document' if name == 'data' else name}_mimetype", None)
            return media_part(known or media_type, data=data.decode() if isinstance(data, bytes) else data)
    url = getattr(block, "url", None)
    kind = getattr(block, "block_type", "")
    return None if url is None else media_part(f"{kind}/*" if kind != "document" else None, url=str(url))
