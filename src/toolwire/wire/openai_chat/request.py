"""Chat Completions requests: the envelope around messages and tools."""

from __future__ import annotations

from typing import Any

from ...ir.errors import ProtocolError
from ...ir.losses import Losses
from ...ir.parts import Extra
from ...ir.pointer import JSON, Object, join
from ...ir.request import Message, OutputFormat, Params, ReasoningConfig, Request
from ...ir.tools import Tool, ToolChoice
from ..codec import ConversationItems, SettingsCodec, WrittenSettings
from ..fields import decode_list, read_boolean, read_extra, read_optional_string, require_object, write_extra
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
from .hosted import OPTIONS
from .message_writer import write_message
from .messages import read_message
from .tools import read_choice, read_function, read_legacy_choice, read_tool, write_choice, write_tool

_FORM = "openai_chat~"  # the key of `extra` for the source's spelling; names with a colon are notes of ours
_PARAMS = param_table(
    "max_tokens temperature top_p stop seed n presence_penalty frequency_penalty logprobs top_logprobs user metadata "
    "store service_tier safety_identifier verbosity",
    max_completion_tokens="max_tokens",
    prompt_cache_key="cache_key",
)
_KEYS = {row.param: key for key, row in reversed(_PARAMS.items())}
_UNUSUAL = frozenset(
    "functions tool_choice function_call parallel_tool_calls service_tier response_format reasoning_effort "
    "web_search_options".split()
)
_KNOWN = _UNUSUAL.union(_PARAMS, ("model", "messages", "tools", "stream", "stream_options"))


def decode_request(body: Object) -> Request:
    """Decode a request. Raise ProtocolError if it is invalid."""
    return _decode_settings(body, _decode_messages(body), _decode_tools(body))


def _decode_messages(body: Object) -> tuple[Message, ...]:
    if type(require_object(body).get("messages")) is not list:
        raise ProtocolError("expected an array of messages", pointer="/messages")
    return tuple(decode_list(body, "messages", read_message))


def _decode_tools(body: Object) -> tuple[Tool, ...]:
    return tuple(decode_list(body, "tools", read_tool))


def _decode_settings(body: Object, messages: tuple[Message, ...], tools: tuple[Tool, ...]) -> Request:
    """Decode all but the conversation and the tools; model, messages and tools alone take the fast path."""
    model = read_optional_string(body, "model") or ""
    if len(body) == 3 and tools and model:
        return Request(model, messages, tools, params=NO_PARAMS)
    params: dict[str, Any] = {}
    has_both_limits = body.get("max_completion_tokens") is not None and "max_tokens" in body
    # `max_tokens` is deprecated; if both are given, it is a field that no other wire has
    respelled = read_params(
        {key: value for key, value in body.items() if key != "max_tokens"} if has_both_limits else body, _PARAMS, params
    )
    extra = _read_extra(body, params)
    if respelled:
        extra[_FORM] = {**extra.get(_FORM, {}), ":spelled": respelled}
    if _UNUSUAL.isdisjoint(body):
        parsed = Params(**params) if params else NO_PARAMS
        return Request(model, messages, tools, params=parsed, stream=read_boolean(body, "stream"), extra=extra)
    keep_own_tier(params, extra, NAME)
    effort = read_optional_string(body, "reasoning_effort")
    return Request(
        model,
        messages,
        (*tools, *decode_list(body, "functions", _read_legacy_tool), *_read_search(body, extra)),
        _read_choice(body),
        _read_parallel(body, extra),
        Params(**params) if params else NO_PARAMS,
        None if effort is None else _read_effort(effort),
        _read_format(body.get("response_format")),
        read_boolean(body, "stream"),
        extra,
    )


def _read_legacy_tool(raw: JSON) -> Any:
    return read_function(require_object(raw), {_FORM: {":tool": "function"}})


def _read_search(body: Object, extra: Extra) -> list[Tool]:
    """Read the web search, a field of the request, as a built-in tool; another value than an object is kept."""
    options = body.get(OPTIONS)
    if type(options) is dict:
        extra.get(_FORM, {}).pop(OPTIONS, None)  # an empty object is form otherwise
        return [Tool(OPTIONS, kind="builtin", extra={NAME: {OPTIONS: options}})]
    if OPTIONS in body:
        scope = _FORM if options is None else NAME
        extra[scope] = {**extra.get(scope, {}), OPTIONS: options}
    return []


def _read_parallel(body: Object, extra: Extra) -> bool | None:
    """Read the switch for parallel calls; the deprecated `functions` allow one call at a time, without a switch."""
    value = read_boolean(body, "parallel_tool_calls")
    if value is None and body.get("functions") and not body.get("tools"):
        extra[_FORM] = {**extra.get(_FORM, {}), ":parallel": "implied"}
        return False
    return value


def _read_choice(body: Object) -> ToolChoice | None:
    if (value := body.get("tool_choice")) is not None:
        return read_choice(value)
    if (value := body.get("function_call")) is not None:
        return read_legacy_choice(value)
    return None


def _read_extra(body: Object, params: dict[str, Any]) -> Extra:
    """Return the fields that the canonical request does not have, and how the others were written.

    The request for usage goes into `params`.
    """
    extra = read_extra(body, _KNOWN, NAME)
    has_old_name = "max_tokens" in body
    if has_old_name and body.get("max_completion_tokens") is not None:
        extra.setdefault(NAME, {})["max_tokens"] = body["max_tokens"]
        has_old_name = False
    if (options := body.get("stream_options")) is not None:
        usage = read_boolean(require_object(options, "stream_options"), "include_usage")
        if usage is not None:
            params["include_usage"] = usage
        read_extra(options, ("include_usage",), f"{NAME}/stream_options", extra)
    if has_old_name:
        extra.setdefault(_FORM, {})[":max_tokens"] = True
    return extra


def _read_effort(effort: str) -> ReasoningConfig:
    return ReasoningConfig("off") if effort == "none" else ReasoningConfig("auto", effort)


def _read_format(value: JSON) -> OutputFormat | None:
    """Read `response_format`, or None; a type that no other wire has is kept whole in `extra`."""
    if value is None:
        return None
    kind = require_object(value, "response_format").get("type")
    if kind == "json_schema":
        inner = require_object(value.get("json_schema"), "response_format", "json_schema")
        extra = read_extra(value, ("type", "json_schema"), NAME)
        read_extra(inner, ("schema", "name", "description", "strict"), f"{NAME}/json_schema", extra)
        if not inner.get("name"):  # required by OpenAI, optional elsewhere
            extra[_FORM] = {**extra.get(_FORM, {}), ":name": "absent"}
        return read_json_schema(inner, extra)
    if kind == "json_object" and type(value.get("schema")) is dict:  # json_schema on llama.cpp and others
        extra = read_extra(value, ("type", "schema"), NAME, {_FORM: {":type": "json_object"}})
        return OutputFormat("json_schema", value["schema"], extra=extra)
    if kind == "text" or kind == "json_object":
        return OutputFormat("text" if kind == "text" else "json", extra=read_extra(value, ("type",), NAME))
    return OutputFormat("text", extra={f"{NAME}/response_format": value})


def encode_request(request: Request, items: ConversationItems | None = None) -> Encoded:
    """Encode a request; legacy `functions` are written back as such, and fields that Chat lacks are losses.

    `items` may have the text of the first messages, and the other fields.
    """
    losses = Losses()
    items = items or ConversationItems()
    for index, message in items.unwritten(request.messages, losses):
        write_message(message, f"/messages/{index}", items.written, losses)
    first, last, _, last_losses = items.settings or _encode_settings(request)
    out: Object = {**first, "messages": items.written, **last}
    if last_losses:
        losses.extend(last_losses)
    return Encoded(write_extra(out, request.extra, NAME), losses)


def _encode_settings(request: Request) -> WrittenSettings:
    """Write the fields besides the conversation, and those that `write_extra` adds."""
    losses = Losses()
    out: Object = {}
    for index, tool in enumerate(request.tools):
        written = write_tool(tool, losses, f"/tools/{index}")
        if written is None:
            continue
        if tool.extra and ":tool" in tool.extra.get(_FORM, {}):
            out.setdefault("functions", []).append(written["function"])
        elif tool.extra and OPTIONS in written:
            out.update(written)
        else:
            out.setdefault("tools", []).append(written)
    if request.choice is not None:
        write_choice(request.choice, request.tools, out, losses)
    if request.parallel is not None and not (
        request.parallel is False and ":parallel" in request.extra.get(_FORM, {}) and "functions" in out
    ):
        out["parallel_tool_calls"] = request.parallel
    if request.params is not NO_PARAMS or request.extra:
        _write_params(request, out, losses)
    if request.reasoning is not None:
        _write_effort(request.reasoning, out, losses)
    if request.output is not None:
        out["response_format"] = _write_format(request.output)
    if request.stream is not None:
        out["stream"] = request.stream
    return WrittenSettings({"model": request.model} if request.model else {}, out, (), tuple(losses))


SETTINGS = SettingsCodec(
    apart=frozenset({"messages", "tools"}),
    decode_messages=_decode_messages,
    decode_tools=_decode_tools,
    decode_settings=_decode_settings,
    encode_settings=_encode_settings,
)


def _write_params(request: Request, out: Object, losses: Losses) -> None:
    """Write the parameters and `stream_options`; form `:max_tokens` restores the older name of the token limit.

    Parameters that Chat lacks are losses.
    """
    write_params(request.params, _KEYS, out, NAME, losses)
    form = request.extra.get(_FORM, {})
    if ":max_tokens" in form and "max_completion_tokens" in out:
        out["max_tokens"] = out.pop("max_completion_tokens")
    if "top_logprobs" in out and "logprobs" not in out:
        out["logprobs"] = True  # `top_logprobs` is rejected without it
    restore_spelling(out, form)
    usage = request.params.include_usage
    options: Object = {} if usage is None else {"include_usage": usage}
    if options := write_extra(options, request.extra, f"{NAME}/stream_options"):
        out["stream_options"] = options


def _write_effort(reasoning: ReasoningConfig, out: Object, losses: Losses) -> None:
    """Write `reasoning_effort`; a token budget and visible reasoning are losses.

    DeepSeek, Moonshot and Z.ai turn reasoning off by `thinking: {"type": "disabled"}`, Alibaba by
    `enable_thinking: false`; the effort `none` is refused or ignored there.
    """
    kind = reasoning.extra.get(NAME, {}).get("type")
    if reasoning.mode == "off" and kind == "enable_thinking":
        out["enable_thinking"] = False
    elif reasoning.mode == "off" and kind is not None:
        out["thinking"] = {"type": kind}
    elif reasoning.mode == "off":
        out["reasoning_effort"] = "none"
    elif reasoning.effort is not None:
        out["reasoning_effort"] = reasoning.effort
    if reasoning.budget is not None:
        losses.add(join("reasoning", "budget"), "thinking budget", "dropped", "Chat has effort levels, not budgets")
    if reasoning.visible:
        losses.add(join("reasoning", "visible"), "visible reasoning", "dropped", "Chat does not show reasoning")


def _write_format(output: OutputFormat) -> Object:
    """Return `response_format`; a schema without a name is called `answer`, because OpenAI requires a name."""
    if f"{NAME}/response_format" in output.extra:
        return output.extra[f"{NAME}/response_format"]
    if output.kind != "json_schema":
        return write_extra({"type": "text" if output.kind == "text" else "json_object"}, output.extra, NAME)
    if ":type" in output.extra.get(_FORM, {}):
        return write_extra({"type": "json_object", "schema": output.schema}, output.extra, NAME)
    inner: Object = {} if output.name is None and ":name" in output.extra.get(_FORM, {}) else {"name": output.name}
    if "name" in inner and not output.name:
        inner["name"] = "answer"
    for key, value in (("description", output.description), ("schema", output.schema), ("strict", output.strict)):
        if value is not None:
            inner[key] = value
    out = {"type": "json_schema", "json_schema": write_extra(inner, output.extra, f"{NAME}/json_schema")}
    return write_extra(out, output.extra, NAME)
