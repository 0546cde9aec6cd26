"""The tool of LangChain that runs in a `FrameworkRunner`, and entries of other tools. Importing it imports LangChain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from secrets import token_hex
from typing import Any, Literal, get_origin, get_type_hints
from weakref import WeakKeyDictionary

from pydantic import BaseModel, PrivateAttr, ValidationError

from ..ir.errors import ConfigError
from ..ir.parts import Media, Text, ToolCall, ToolResult
from ..ir.pointer import Object
from ..ir.tools import Tool
from ..run.calls.context import ToolError, current_call
from ..run.tools.toolbox import Entry
from ..run.values.results import error_text
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
    text_part,
    tool_metadata,
)
from .langchain_approval import ask, find_question, find_question_async

with framework_imports("langchain-core"):
    from langchain_core.messages import ToolMessage
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import BaseTool, InjectedToolArg, InjectedToolCallId, ToolException
    from langchain_core.utils.function_calling import convert_to_openai_tool

_run_ids: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


class LangChainTool(BaseTool):
    """A tool of a toolbox. The arguments pass unchanged: the `Runner` validates them."""

    handle_tool_error: Any = True
    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    _runner: FrameworkRunner = PrivateAttr()
    _entry: Entry = PrivateAttr()

    @property
    def entry(self) -> Entry:
        return self._entry

    @property
    def args(self) -> dict[str, Any]:
        return dict(input_schema(self._entry.tool).get("properties", {}))

    def _to_args_and_kwargs(
        self, tool_input: str | dict[str, Any], tool_call_id: str | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Pass the arguments as one object, so that an argument may have any name."""
        if isinstance(tool_input, str):
            return (ToolCall(tool_call_id or "", self.name, None, tool_input),), {}
        return (ToolCall(tool_call_id or "", self.name, tool_input),), {}

    def _run(self, call: ToolCall, *, config: RunnableConfig) -> tuple[Any, Any]:
        scope = _scope(config)
        result = self._runner.run_sync(call, scope)
        question = open_question(result)
        if question is not None:
            reply = ask(question, find_question(config), config) if call.id else False
            result = self._runner.run_sync(call, scope, reply=reply)
        return _tool_output(result)

    async def _arun(self, call: ToolCall, *, config: RunnableConfig) -> tuple[Any, Any]:
        scope = _scope(config)
        result = await self._runner.run(call, scope)
        question = open_question(result)
        if question is not None:
            find_reply = partial(ask, question, await find_question_async(config), config)
            result = await self._runner.run(call, scope, reply=False, ask=find_reply if call.id else None)
        return _tool_output(result)


def make_tool(runner: FrameworkRunner, entry: Entry) -> LangChainTool:
    """Return an entry as a LangChain tool that runs in `runner`."""
    tool = LangChainTool(
        name=entry.name,
        description=entry.tool.description or "",
        args_schema=input_schema(entry.tool),
        metadata=tool_metadata(entry),
    )
    tool._runner, tool._entry = runner, entry
    return tool


def _scope(config: RunnableConfig | None) -> CallScope:
    """Return the scope of a call: the thread of the graph, or its run, and its context as dependencies.

    A nested graph, such as an agent that is a tool, has a conversation of its own for every time that it runs. Without a
    thread, only the task of the graph repeats a call; outside of a graph, nothing does.
    """
    configurable = (config or {}).get("configurable") or {}
    thread, task = str(configurable.get("thread_id") or ""), str(configurable.get("checkpoint_ns") or "")
    try:
        from langgraph.runtime import get_runtime

        runtime: Any = get_runtime()
    except (ImportError, RuntimeError, KeyError):  # outside of a graph
        runtime = None
    deps = None if runtime is None else runtime.context
    if thread:
        return CallScope(thread, "\x00".join((thread, task.rpartition("|")[0])), deps)
    return CallScope(_own_run_id(runtime), task or token_hex(8), deps)


def _own_run_id(runtime: Any) -> str:
    """Return the id of a run without a thread. Every run has a stream writer of its own, unless it writes no stream."""
    writer = getattr(runtime, "stream_writer", None)
    if "<locals>" in getattr(writer, "__qualname__", ""):
        return _run_ids.setdefault(writer, token_hex(8))
    info = getattr(runtime, "execution_info", None)
    return "" if info is None else str(info.checkpoint_id)


def _tool_output(result: ToolResult) -> tuple[Any, Any]:
    """Return the content and the artifact of a `ToolMessage`; ToolException for an error."""
    if result.is_error:
        raise ToolException(result.text)
    media = [_media_block(part) for part in result_media(result)]
    content = [*([{"type": "text", "text": result.text}] if result.text else []), *media] if media else result.text
    return content, result.structured


def _media_block(media: Media) -> dict[str, Any]:
    source = {"url": media.url} if media.data is None else {"base64": media.data}
    mime_type = {} if media.media_type is None else {"mime_type": media.media_type}
    return {"type": media.kind, **source, **mime_type}


def tool_entry(tool: BaseTool, effects: Effects | None) -> Entry:
    """Return the entry of any tool of LangChain. A tool without async code runs in a thread."""
    if isinstance(tool, LangChainTool):
        return tool.entry
    metadata: Any = tool.metadata or {}
    declared = Tool(
        tool.name,
        tool.description or None,
        _parameters(tool),
        effect=choose_effect(tool.name, effects, metadata),
    )
    runtime_names = tuple(_runtime_names(tool))

    def call(**arguments: Any) -> Any:
        with _tool_errors(tool.name):
            return _result_value(tool.invoke(_tool_call(tool, arguments, runtime_names), _config()))

    async def call_async(**arguments: Any) -> Any:
        with _tool_errors(tool.name):
            return _result_value(await tool.ainvoke(_tool_call(tool, arguments, runtime_names), _config()))

    own: Any = metadata.get("toolwire") or {}
    function = call_async if _is_async(tool) else call
    return framework_entry(declared, function, "langchain", approve=bool(own.get("approve")))


def _parameters(tool: BaseTool) -> Object:
    """Return the schema that LangChain shows to models."""
    if isinstance(tool.args_schema, dict):
        return dict(tool.args_schema)
    schema: Any = tool.tool_call_schema
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        parameters = schema.model_json_schema()
        return {key: value for key, value in parameters.items() if key not in ("title", "description")}
    found: Object = convert_to_openai_tool(tool)["function"]["parameters"]
    return found


def _runtime_names(tool: BaseTool) -> Iterator[str]:
    """Yield the parameters for a `ToolRuntime`.

    Raises `ConfigError` for other injected values, which only a graph has.
    """
    function = getattr(tool, "func", None) or getattr(tool, "coroutine", None) or tool._run
    for name, hint in get_type_hints(function, include_extras=True).items():
        kind = get_origin(hint) or hint
        if getattr(kind, "__name__", "") == "ToolRuntime":
            yield name
            continue
        markers = [marker if isinstance(marker, type) else type(marker) for marker in getattr(hint, "__metadata__", ())]
        injected = [marker for marker in markers if issubclass(marker, InjectedToolArg)]
        if injected and not issubclass(injected[0], InjectedToolCallId):
            raise ConfigError(
                f"the tool {tool.name} takes {name} from a graph ({injected[0].__name__})",
                hint="run it in its graph, or take the value from ToolRuntime.context",
            )


def _tool_call(tool: BaseTool, arguments: Object, runtime_names: tuple[str, ...]) -> dict[str, Any]:
    """Return the current call in LangChain's form, with a `ToolRuntime` for parameters that expect it."""
    call_id = current_call().call_id or "call"
    injected: dict[str, Any] = {}
    if runtime_names:
        from langgraph.prebuilt import ToolRuntime

        runtime = ToolRuntime(
            state={},
            context=current_call().deps,
            config=_config(),
            stream_writer=lambda _: None,
            tool_call_id=call_id,
            store=None,
        )
        injected = dict.fromkeys(runtime_names, runtime)
    return {"type": "tool_call", "id": call_id, "name": tool.name, "args": {**arguments, **injected}}


def _config() -> RunnableConfig:
    run_id = current_call().run_id
    return {"configurable": {"thread_id": run_id}} if run_id else {}


def _is_async(tool: BaseTool) -> bool:
    if hasattr(tool, "coroutine"):
        return tool.coroutine is not None
    return type(tool)._arun is not BaseTool._arun


@contextmanager
def _tool_errors(name: str) -> Iterator[None]:
    """Convert the errors of LangChain to ToolError; other exceptions keep their meaning."""
    try:
        yield
    except ToolException as error:
        raise ToolError(str(error)) from error
    except ValidationError as error:
        raise ToolError(f"The arguments of {name} were not accepted: {error_text(error, name=False)}") from error


def _result_value(message: Any) -> Any:
    """Return the content of a `ToolMessage` as text or parts.

    Raises `ToolError` for an error, and for a value that only a graph understands.
    """
    if not isinstance(message, ToolMessage):
        kind = type(message).__name__
        raise ToolError(f"The tool returned a {kind}, which only its graph understands.")
    content = message.content if isinstance(message.content, list) else [message.content]
    parts = [_content_part(block) for block in content]
    if message.status == "error":
        raise ToolError("".join(part.text for part in parts if isinstance(part, Text)))
    return message.content if isinstance(message.content, str) else parts


def _content_part(block: Any) -> Text | Media:
    """Return a content block as a part: text, media by data or URL, and anything else as JSON text."""
    if not isinstance(block, Mapping):
        return text_part(block)
    if block.get("type") == "text":
        return Text(str(block.get("text", "")))
    mime_type, data = block.get("mime_type"), block.get("base64") or block.get("data")
    if isinstance(data, str):
        return media_part(mime_type or f"{block.get('type')}/*", data=data)
    if isinstance(block.get("url"), str):
        return media_part(mime_type or f"{block.get('type')}/*", url=block["url"])
    return text_part(dict(block))
