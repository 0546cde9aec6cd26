"""Responses requests: the envelope around items and tools.

A single leading system message of plain text is the field `instructions`; every other one is an item.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from ...ir.errors import ProtocolError
from ...ir.losses import Losses
from ...ir.parts import Extra, Opaque, Part, Text, ToolResult
from ...ir.pointer import JSON, Object, join
from ...ir.request import Message, OutputFormat, Params, ReasoningConfig, Request
from ...ir.tools import Tool
from ..codec import ConversationItems, SettingsCodec, WrittenSettings
from ..fields import read_boolean, read_extra, read_optional_string, require_object, write_extra
from ..params import (
    NO_PARAMS,
    keep_own_tier,
    param_table,
    read_json_schema,
    read_params,
    restore_spelling,
    write_params,
)
from ..protocol import Encoded
from .content import NAME
from .item_writer import write_items
from .items import read_items
from .tool_search import read_output_tools
from .tools import read_choice, read_tools, write_choice, write_declared_tools

_FORM = "openai_responses~"  # the key of `extra` for the source's spelling; names with a colon are notes of ours
_TEXT = "openai_responses/text"
_PARAMS = param_table(
    "temperature top_p top_logprobs user metadata store service_tier safety_identifier",
    max_output_tokens="max_tokens",
    prompt_cache_key="cache_key",
)
_KEYS = {row.param: key for key, row in _PARAMS.items()} | {"verbosity": "", "logprobs": ""}
_LOGPROBS = "message.output_text.logprobs"  # the entry of `include` that asks for log probabilities
_STORED_FIELDS = frozenset({"prompt", "previous_response_id", "conversation"})  # fields that make `input` optional
_KNOWN = frozenset(_PARAMS).union(
    "model input instructions tools tool_choice parallel_tool_calls reasoning text stream".split()
)


def decode_request(body: Object) -> Request:
    """Decode a request; raise ProtocolError if it is invalid.

    An absent `store` is recorded as form, because its default differs from other wires. Tools that results of searches
    declare are added as deferred tools.
    """
    settings = _decode_settings(require_object(body), (), ())
    messages = _read_input(body, settings.extra)
    tools, searches = _decode_tools(body), _search_outputs(messages)
    if searches:
        tools = _add_loaded_tools(tools, searches)
        messages = _keep_other_declarations(messages, tools)
    return replace(settings, messages=messages, tools=tools)


def _decode_messages(body: Object) -> tuple[Message, ...] | None:
    """Return the conversation, or None if the rest of the request depends on it."""
    if type(body.get("input")) is not list:
        return None
    messages = _read_input(body, {})
    return None if _search_outputs(messages) else messages


def _decode_tools(body: Object) -> tuple[Tool, ...]:
    return _mark_deferred(read_tools(body))


def _decode_settings(body: Object, messages: tuple[Message, ...], tools: tuple[Tool, ...]) -> Request:
    """Decode all but the conversation and the tools."""
    params: dict[str, Any] = {}
    respelled = read_params(body, _PARAMS, params)
    extra = read_extra(body, _KNOWN, NAME)
    if respelled:
        extra[_FORM] = {**extra.get(_FORM, {}), ":spelled": respelled}
    keep_own_tier(params, extra, NAME)
    if body.get("store") is None:
        extra[_FORM] = {**extra.get(_FORM, {}), ":store": "absent"}
    _read_logprobs(body, params, extra)
    output = _read_text(body.get("text"), params, extra)
    return Request(
        read_optional_string(body, "model") or "",
        messages,
        tools,
        read_choice(body.get("tool_choice")),
        read_boolean(body, "parallel_tool_calls"),
        Params(**params) if params else NO_PARAMS,
        _read_reasoning(body.get("reasoning")),
        output,
        read_boolean(body, "stream"),
        extra,
    )


def _mark_deferred(tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """Record in form `:place` where deferred tools are declared, if the request has a search that loads them."""
    if not any(tool.kind == "search" for tool in tools):
        return tools
    return tuple([_with_place(tool, "tools") if tool.deferred else tool for tool in tools])


def _search_outputs(messages: tuple[Message, ...]) -> list[Opaque | ToolResult]:
    """Return the parts that may declare tools: results of searches."""
    return [
        part
        for message in messages
        for part in message.parts
        if isinstance(part, Opaque) or (isinstance(part, ToolResult) and part.found)
    ]


def _add_loaded_tools(tools: tuple[Tool, ...], searches: list[Opaque | ToolResult]) -> tuple[Tool, ...]:
    """Return the tools of a request and, as deferred tools, the tools that only results of searches declare."""
    names = {(tool.namespace, tool.name) for tool in tools}
    loaded: list[Tool] = []
    for part in searches:
        for tool in read_output_tools(part):
            if (tool.namespace, tool.name) not in names:
                names.add((tool.namespace, tool.name))
                loaded.append(replace(_with_place(tool, "output"), deferred=True))
    return (*tools, *loaded) if loaded else tools


def _keep_other_declarations(messages: tuple[Message, ...], tools: tuple[Tool, ...]) -> tuple[Message, ...]:
    """Mark results of searches that declare a tool differently than the request: only this wire has both declarations."""
    declared = {(tool.namespace, tool.name): _definition(tool) for tool in tools}
    kept: list[Message] = []
    for message in messages:
        parts = tuple([_mark_other_declarations(part, declared) for part in message.parts])
        is_same = all(part is given for part, given in zip(parts, message.parts, strict=True))
        kept.append(message if is_same else replace(message, parts=parts))
    return tuple(kept)


def _mark_other_declarations(part: Part, declared: Mapping[tuple[str | None, str], Tool]) -> Part:
    if not isinstance(part, ToolResult) or not part.found:
        return part
    copies = read_output_tools(part)
    if all(_definition(copy) == declared.get((copy.namespace, copy.name)) for copy in copies):
        return part
    own = {**part.extra.get(NAME, {}), "tools": part.extra[_FORM][":tools"]}
    return replace(part, extra={**part.extra, NAME: own})


def _definition(tool: Tool) -> Tool:
    return replace(tool, deferred=None, extra={})


def _with_place(tool: Tool, place: str) -> Tool:
    return replace(tool, extra={**tool.extra, _FORM: {**tool.extra.get(_FORM, {}), ":place": place}})


def _read_logprobs(body: Object, params: dict[str, Any], extra: Extra) -> None:
    """Read the request for log probabilities, an entry of `include`, into `params`.

    If it is the only entry, `include` is removed from `extra`.
    """
    included = body.get("include")
    if isinstance(included, list) and _LOGPROBS in included:
        params["logprobs"] = True
        if included == [_LOGPROBS]:
            other_fields = {key: value for key, value in extra.pop(NAME).items() if key != "include"}
            if other_fields:
                extra[NAME] = other_fields
    elif "top_logprobs" in params:
        extra[_FORM] = {**extra.get(_FORM, {}), ":logprobs": "absent"}


def _read_input(body: Object, extra: Extra) -> tuple[Message, ...]:
    """Read `instructions` and `input`; a stored prompt or conversation makes `input` optional.

    Its spelling is recorded in `extra`. Raise ProtocolError if it is invalid.
    """
    value = body.get("input")
    if type(value) is str:
        messages: tuple[Message, ...] = (Message("user", (Text(value),)),)
        extra[_FORM] = {**extra.get(_FORM, {}), ":input": "string"}
    elif type(value) is list:
        messages = _mark_leading_system(read_items(body))
    elif value is None and not _STORED_FIELDS.isdisjoint(body):
        messages = ()
        extra[_FORM] = {**extra.get(_FORM, {}), ":input": "absent"}  # or null, which is then in the form
    else:
        raise ProtocolError("expected a string or an array of items", pointer="/input")
    if instructions := read_optional_string(body, "instructions"):
        return (Message("system", (Text(instructions),)), *messages)
    return messages


def _mark_leading_system(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Mark a leading system message that came as an item although it could be `instructions`."""
    if not messages or not _is_instructions(messages[0]):
        return messages
    first = messages[0]
    return (Message("system", first.parts, {_FORM: {":place": "input"}}), *messages[1:])


def _is_instructions(message: Message) -> bool:
    """Return whether a system message is one plain text, which the field `instructions` can hold."""
    if message.role != "system" or message.extra or len(message.parts) != 1:
        return False
    only = message.parts[0]
    return type(only) is Text and only.cache is None and not only.extra


def _read_text(value: JSON, params: dict[str, Any], extra: Extra) -> OutputFormat | None:
    """Read `text`: verbosity into `params`, other fields into `extra`; return the format, or None if there is none."""
    if value is None:
        return None
    verbosity = read_optional_string(require_object(value, "text"), "verbosity")
    if verbosity is not None:
        params["verbosity"] = verbosity
    read_extra(value, ("format", "verbosity"), _TEXT, extra)
    form = value.get("format")
    if form is None:
        return None
    kind = require_object(form, "text", "format").get("type")
    if kind == "json_schema":
        format_extra = read_extra(form, ("type", "schema", "name", "description", "strict"), NAME)
        absent = [f":{key}" for key in ("name", "schema") if not form.get(key)]
        if absent:
            format_extra[_FORM] = {**format_extra.get(_FORM, {}), **dict.fromkeys(absent, "absent")}
        return read_json_schema(form, format_extra)
    if kind == "text" or kind == "json_object":
        return OutputFormat("text" if kind == "text" else "json", extra=read_extra(form, ("type",), NAME))
    return OutputFormat("text", extra={f"{NAME}/format": form})


def _read_reasoning(value: JSON) -> ReasoningConfig | None:
    """Read the reasoning settings; a request for a summary makes reasoning visible. None if there are none."""
    if value is None:
        return None
    effort, summary = (
        read_optional_string(require_object(value, "reasoning"), "effort"),
        read_optional_string(value, "summary"),
    )
    extra = read_extra(value, ("effort", "summary"), NAME)
    if summary is not None and summary != "auto":
        extra.setdefault(NAME, {})["summary"] = summary
    visible = None if summary is None else True
    if effort == "none":
        return ReasoningConfig("off", visible=visible, extra=extra)
    return ReasoningConfig(None if effort is None else "auto", effort, visible=visible, extra=extra)


def encode_request(request: Request, items: ConversationItems | None = None) -> Encoded:
    """Encode a request; without a setting, `store` is false, because only this wire stores by default.

    `items` may have the text of the first messages, and the other fields. Fields that this wire does not have are losses.
    """
    losses = Losses()
    items = items or ConversationItems()
    first, last, _, last_losses = items.settings or _encode_settings(request)
    out: Object = {**first}
    _write_input(request, items, out, losses)
    out.update(last)
    if last_losses:
        losses.extend(last_losses)
    return Encoded(_include_logprobs(write_extra(out, request.extra, NAME), request), losses)


def _encode_settings(request: Request) -> WrittenSettings:
    """Write the fields besides the conversation, and those that `write_extra` adds."""
    losses = Losses()
    out: Object = {}
    tools = write_declared_tools(request.tools, losses)
    if tools:
        out["tools"] = tools
    if request.choice is not None:
        out["tool_choice"] = write_choice(request.choice, request.tools, losses)
    if request.parallel is not None:
        out["parallel_tool_calls"] = request.parallel
    write_params(request.params, _KEYS, out, NAME, losses)
    if request.params.logprobs is False:
        losses.add(join("params", "logprobs"), "logprobs", "dropped", "it is the default on Responses", "info")
    restore_spelling(out, request.extra.get(_FORM, {}))
    if request.params.store is None and ":store" not in request.extra.get(_FORM, {}):
        out["store"] = False  # the default is true on this wire, and only here
    if request.reasoning is not None:
        reasoning = _write_reasoning(request.reasoning, losses)
        if reasoning:
            out["reasoning"] = reasoning
    text: Object = {} if request.output is None else {"format": _write_format(request.output)}
    if request.params.verbosity is not None:
        text["verbosity"] = request.params.verbosity
    if text := write_extra(text, request.extra, _TEXT):
        out["text"] = text
    if request.stream is not None:
        out["stream"] = request.stream
    return WrittenSettings({"model": request.model} if request.model else {}, out, (), tuple(losses))


SETTINGS = SettingsCodec(
    apart=frozenset({"instructions", "input", "tools"}),
    decode_messages=_decode_messages,
    decode_tools=_decode_tools,
    decode_settings=_decode_settings,
    encode_settings=_encode_settings,
)


def _include_logprobs(out: Object, request: Request) -> Object:
    """Add the entry of `include` without which the provider sends no log probabilities."""
    params = request.params
    wanted = params.logprobs or (params.top_logprobs is not None and params.logprobs is None)
    if wanted and ":logprobs" not in request.extra.get(_FORM, {}) and _LOGPROBS not in out.get("include", ()):
        out["include"] = [*out.get("include", ()), _LOGPROBS]
    return out


def _write_input(request: Request, items: ConversationItems, out: Object, losses: Losses) -> None:
    """Write `instructions` and `input` into `out`; a text that was read from a string is written as one again."""
    messages, start = request.messages, 0
    form = request.extra.get(_FORM, {})
    if messages and _is_instructions(messages[0]) and not _is_leading_run(messages):
        first = messages[0].parts[0]
        assert isinstance(first, Text)
        out["instructions"] = first.text
        start = 1
    input_messages = messages[start:]
    if (
        form.get(":input") == "string"
        and len(input_messages) == 1
        and len(input_messages[0].parts) == 1
        and isinstance(input_messages[0].parts[0], Text)
    ):
        out["input"] = input_messages[0].parts[0].text
        return
    tools = {tool.name: tool for tool in reversed(request.tools)}
    for index, message in items.unwritten(messages, losses, start):
        items.written.extend(write_items(message, f"/messages/{index}", losses, tools))
    if items.written or form.get(":input") != "absent":
        out["input"] = items.written


def _is_leading_run(messages: tuple[Message, ...]) -> bool:
    """Return whether the conversation begins with more than one system message: then all of them are items."""
    return len(messages) > 1 and messages[1].role == "system"


def _write_reasoning(reasoning: ReasoningConfig, losses: Losses) -> Object:
    """Return the field `reasoning`; visible reasoning is a summary here, and a token budget is a loss."""
    out: Object = {}
    if reasoning.mode == "off":
        out["effort"] = "none"
    elif reasoning.effort is not None:
        out["effort"] = reasoning.effort
    if reasoning.budget is not None:
        losses.add(
            join("reasoning", "budget"), "thinking budget", "dropped", "Responses has effort levels, not budgets"
        )
    if reasoning.visible:
        out["summary"] = "auto"
    return write_extra(out, reasoning.extra, NAME)


def _write_format(output: OutputFormat) -> Object:
    """Return `text.format`; a schema without a name is called `answer`, unless it was read without one."""
    if f"{NAME}/format" in output.extra:
        return output.extra[f"{NAME}/format"]
    if output.kind != "json_schema":
        return write_extra({"type": "text" if output.kind == "text" else "json_object"}, output.extra, NAME)
    out: Object = {"type": "json_schema", "name": output.name or "answer", "schema": output.schema}
    for key in ("name", "schema"):
        if not getattr(output, key) and f":{key}" in output.extra.get(_FORM, {}):
            del out[key]
    if output.description is not None:
        out["description"] = output.description
    if output.strict is not None:
        out["strict"] = output.strict
    return write_extra(out, output.extra, NAME)
