"""Messages requests, for two versions of the API.

`system` holds the leading system message; later system messages are in `messages`. Version 2026-10-21 rejects sampling
parameters, citations in user messages and documents in assistant messages, so these are losses there.
"""

from __future__ import annotations

import re
from itertools import chain
from operator import methodcaller
from typing import Any, Literal

from msgspec.structs import replace

from ...ir.errors import ProtocolError
from ...ir.losses import Losses
from ...ir.parts import Extra, Text
from ...ir.pointer import JSON, Object, join
from ...ir.request import Message, OutputFormat, Params, ReasoningConfig, Request, Role
from ...ir.tools import Tool
from ..codec import ConversationItems, WrittenSettings
from ..fields import (
    decode_list,
    read_boolean,
    read_extra,
    read_optional_string,
    read_string,
    require_object,
    type_error,
    write_extra,
)
from ..params import NO_PARAMS, as_integer, param_table, read_params, restore_spelling, write_params
from ..protocol import Encoded
from .blocks import read_blocks, write_blocks, write_plain_block
from .documents import count_leading_system
from .tools import NAME, decode_tools, read_choice, write_choice, write_tool

_VERSION_2023 = "2023-06-01"
DEFAULT_MAX_TOKENS = 8192  # the maximum of Claude 3.5; a larger value would be refused by it
_FORM = "anthropic~"  # the key of `extra` for the source's spelling; names with a colon are notes of ours
_SCOPES = frozenset({NAME, _FORM, f"{NAME}/metadata", f"{NAME}/output_config"})  # of the `extra` of a request
_MESSAGE_SCOPES = frozenset({NAME, _FORM, f"{NAME}?"})
_PARAMS = param_table("max_tokens temperature top_p top_k", stop_sequences="stop")
_KEYS_2023 = {row.param: key for key, row in _PARAMS.items()} | {"user": ""}
_KEYS_2026 = {"max_tokens": "max_tokens", "stop": "stop_sequences", "user": ""}
_REMOVED_IN_2026 = dict.fromkeys(
    _KEYS_2023.keys() - _KEYS_2026.keys(),
    f"API version 2026-10-21 has no such parameter; use the target {NAME}@2023-06-01 to keep it",
)
_KNOWN = frozenset(_PARAMS).union(
    "model messages system tools tool_choice stream metadata thinking output_config".split()
)


def decode_request(body: Object) -> Request:
    """Decode a request of either API version; raise ProtocolError if it is invalid.

    A missing model is accepted, because some clouds put it in the path.
    """
    return decode_settings(body, decode_messages(body), decode_tools(body))


def decode_settings(body: Object, messages: tuple[Message, ...], tools: tuple[Tool, ...]) -> Request:
    """Decode all but the conversation and the tools."""
    params: dict[str, Any] = {}
    respelled = read_params(body, _PARAMS, params)
    extra = read_extra(body, _KNOWN, NAME)
    if respelled:
        extra[_FORM] = {**extra.get(_FORM, {}), ":spelled": respelled}
    _read_user(body, params, extra)
    choice, parallel = read_choice(body.get("tool_choice"))
    has_thinking = "thinking" in body or "output_config" in body
    reasoning, output = _read_thinking(body, extra) if has_thinking else (None, None)
    return Request(
        read_optional_string(body, "model") or "",
        messages,
        tools,
        choice,
        parallel,
        Params(**params) if params else NO_PARAMS,
        reasoning,
        output,
        read_boolean(body, "stream"),
        extra,
    )


def decode_messages(body: Object) -> tuple[Message, ...]:
    """Read `system` and `messages` as one list; form `:place` marks leading system messages from `messages`."""
    if type(require_object(body).get("messages")) is not list:
        raise ProtocolError("expected an array of messages", pointer="/messages")
    system = body.get("system")
    first = (_make_message("system", {"content": system}, "system"),) if system else ()
    messages = decode_list(body, "messages", _read_message)
    for index, message in enumerate(messages):
        if message.role != "system":
            break
        # a leading system message that is not in the field `system`
        form = {**message.extra.get(_FORM, {}), ":place": "messages"}
        messages[index] = Message("system", message.parts, {**message.extra, _FORM: form})
    return (*first, *messages)


def _read_message(raw: JSON) -> Message:
    """Read a message; a role and a text alone take the fast path. Raise ProtocolError for an unknown role."""
    if type(raw) is not dict:
        raise type_error("an object", raw)
    role, content = raw.get("role"), raw.get("content")
    if role not in ("user", "assistant", "system"):
        raise ProtocolError(f"unknown role {role!r}", pointer="/role", hint="use user, assistant or system")
    if type(content) is str and content and len(raw) == 2:
        return Message(role, (Text(content),))
    return _make_message(role, raw)


def _make_message(role: Role, raw: Object, field: str = "content") -> Message:
    """Build a message from the `content` of `raw`.

    ProtocolError, with `field` as the place of the content, if it is invalid.
    """
    form: Object = {}
    try:
        parts = read_blocks(raw, form)
    except ProtocolError as error:
        error.pointer = error.pointer.replace("/content", f"/{field}", 1)
        raise
    extra = read_extra(raw, ("role", "content"), NAME) if len(raw) > 2 or not parts else {}
    if form:
        extra[_FORM] = {**extra.get(_FORM, {}), **form}
    return Message(role, tuple(parts), extra)


# Claude Code's `user_id` names the device, account and session: a JSON document since 2.1.78, before that a text
# (ding113/claude-code-hub#939, coder/aibridge#241).
_is_claude_code_id = re.compile(
    r"\s*\{.*|user_[0-9a-z]+_account_[0-9a-z-]*_session_[0-9a-z-]+", re.IGNORECASE | re.DOTALL
).fullmatch


def _read_user(body: Object, params: dict[str, Any], extra: Extra) -> None:
    """Read `metadata`: `user_id` is the parameter `user`, and the other fields go into `extra`.

    Claude Code's `user_id` is for Anthropic alone, so it is not `user`.
    """
    if not (metadata := body.get("metadata")):
        return
    user = read_optional_string(require_object(metadata, "metadata"), "user_id")
    is_id = user is not None and _is_claude_code_id(user) is None
    if is_id:
        params["user"] = user
    read_extra(metadata, ("user_id",) if is_id or not user else (), f"{NAME}/metadata", extra)


def _read_thinking(body: Object, extra: Extra) -> tuple[ReasoningConfig | None, OutputFormat | None]:
    """Read `thinking` and `output_config`, which together hold the reasoning settings and the output format.

    Other fields of `output_config` go into `extra`, other fields of `thinking` into the result.
    """
    thinking, config = body.get("thinking") or {}, body.get("output_config") or {}
    require_object(thinking, "thinking")
    effort = read_optional_string(require_object(config, "output_config"), "effort")
    read_extra(config, ("effort", "format"), f"{NAME}/output_config", extra)
    output = (
        None
        if config.get("format") is None
        else _read_format(require_object(config["format"], "output_config", "format"))
    )
    if not thinking:
        return (None if effort is None else ReasoningConfig(effort=effort)), output
    mode = _MODES.get(read_string(thinking, "type"), "auto")
    shown = read_optional_string(thinking, "display")
    respelled: Object = {}
    budget = as_integer(thinking, "budget_tokens", respelled) if mode == "budget" else None
    known = {"type"} | ({"budget_tokens"} if mode == "budget" else set()) | ({"display"} if shown in _SHOWN else set())
    thinking_extra = read_extra(thinking, known, NAME)
    if respelled:
        thinking_extra[_FORM] = {**thinking_extra.get(_FORM, {}), ":spelled": respelled}
    if thinking["type"] not in _MODES:
        thinking_extra[NAME] = {**thinking_extra.get(NAME, {}), "type": thinking["type"]}
    visible = _SHOWN.get(shown)
    return ReasoningConfig(mode, effort, budget, visible, thinking_extra), output


_MODES: dict[str, Literal["off", "auto", "budget"]] = {"disabled": "off", "adaptive": "auto", "enabled": "budget"}
_SHOWN: dict[str | None, bool] = {"summarized": True, "omitted": False}
_TYPES = {mode: kind for kind, mode in _MODES.items()}


def _read_format(raw: Object) -> OutputFormat:
    if raw.get("type") == "json_schema":
        extra = read_extra(raw, ("type", "schema"), NAME)
        return OutputFormat("json_schema", raw.get("schema"), strict=True, extra=extra)
    return OutputFormat("text", extra={f"{NAME}/format": raw})


def encode_request(request: Request, version: str, items: ConversationItems | None = None) -> Encoded:
    """Encode a request for one API version; values that this version rejects are losses.

    `items` may have the text of the first messages, and the other fields.
    """
    items = items or ConversationItems()
    first, last, first_losses, last_losses = items.settings or encode_settings(request, version)
    losses = Losses(first_losses)
    out: Object = {**first}
    start = count_leading_system(request)
    if start and (system := _write_system(request.messages[:start], losses)) is not None:
        out["system"] = system
    for index, message in items.unwritten(request.messages, losses, start):
        written = write_plain_message(message)
        if written is not None:
            if items.text_blocks and message.role == "user" and type(written["content"]) is str:
                written["content"] = [{"type": "text", "text": written["content"]}]
        else:
            path = f"/messages/{index}"
            written = _write_message(message, path, losses)
            if version != _VERSION_2023:
                written = _drop_refused(written, path, losses)
        items.written.append(written)
    out["messages"] = items.written
    out.update(last)
    if last_losses:
        losses.extend(last_losses)
    return Encoded(out if _SCOPES.isdisjoint(request.extra) else write_extra(out, request.extra, NAME), losses)


def encode_settings(request: Request, version: str) -> WrittenSettings:
    """Write the fields besides the conversation, and those that `write_extra` adds, for one API version."""
    params, first_losses = request.params, Losses()
    first: Object = {"model": request.model} if request.model else {}
    if params.max_tokens is None:
        _write_default_limit(request.reasoning, first, first_losses)
    losses = Losses()
    out: Object = {}
    if request.tools:
        _write_tools(request.tools, out, losses)
    if (choice := write_choice(request, losses)) is not None:
        out["tool_choice"] = choice
    keys = _KEYS_2023 if version == _VERSION_2023 else _KEYS_2026
    write_params(params, keys, out, NAME, losses, _REMOVED_IN_2026)
    has_own_fields = not _SCOPES.isdisjoint(request.extra)
    if has_own_fields or params.user is not None:
        _write_metadata(request, out)
    if has_own_fields or request.reasoning is not None or request.output is not None:
        _write_thinking(request, out, losses)
    if request.stream is not None:
        out["stream"] = request.stream
    return WrittenSettings(first, out, tuple(first_losses), tuple(losses))


def _write_default_limit(reasoning: ReasoningConfig | None, out: Object, losses: Losses) -> None:
    budget = 0 if reasoning is None else reasoning.budget or 0
    out["max_tokens"] = DEFAULT_MAX_TOKENS + max(budget, 0)
    detail = f"Anthropic requires it and the request has none; set to {out['max_tokens']}"
    losses.add("/params/max_tokens", "max_tokens", "rewritten", detail, "info")


def _write_tools(tools: tuple[Tool, ...], out: Object, losses: Losses) -> None:
    written = [write_tool(tool, losses, f"/tools/{index}") for index, tool in enumerate(tools)]
    if None in written:
        written = [tool for tool in written if tool is not None]
    if written:
        out["tools"] = written


def _write_metadata(request: Request, out: Object) -> None:
    """Write `metadata`, and the parameters that were written in another JSON type in that type."""
    restore_spelling(out, request.extra.get(_FORM, {}))
    metadata: Object = {} if request.params.user is None else {"user_id": request.params.user}
    if metadata := write_extra(metadata, request.extra, f"{NAME}/metadata"):
        out["metadata"] = metadata


def _write_system(messages: tuple[Message, ...], losses: Losses) -> JSON:
    """Return the field `system`."""
    if len(messages) == 1:
        return write_blocks(messages[0].parts, messages[0].extra.get(_FORM, {}), losses, "/messages/0")
    blocks: list[Object] = []
    for index, message in enumerate(messages):
        written = write_blocks(message.parts, {":content": "list"}, losses, f"/messages/{index}")
        blocks.extend(written or [])
    return blocks or None


def write_plain_message(message: Message) -> Object | None:
    """Write a message like `_write_message` if it has only plain blocks, which every version accepts without a loss.

    Return None for any other message.
    """
    role, parts = message.role, message.parts
    if not parts or role == "developer" or not _MESSAGE_SCOPES.isdisjoint(message.extra):
        return None
    blocks = list(map(write_plain_block, parts))
    if None in blocks:
        return None
    if len(blocks) == 1 and type(parts[0]) is Text:
        return {"role": role, "content": parts[0].text}
    return {"role": role, "content": blocks}


def _write_message(message: Message, path: str, losses: Losses) -> Object:
    """Write a message; the developer role, which Anthropic does not have, becomes `system`."""
    role = "system" if message.role == "developer" else message.role
    form = message.extra.get(_FORM, {})
    content = write_blocks(message.parts, form, losses, path)
    out: Object = {"role": role, "content": [] if content is None else content}
    if content is None and form.get(":content") in ("null", "absent"):
        del out["content"]  # `write_extra` restores a null from the form
    return write_extra(out, message.extra, NAME)


def _drop_refused(message: Object, path: str, losses: Losses) -> Object:
    """Remove the content that version 2026-10-21 rejects with status 400, with losses; return the message."""
    blocks = message.get("content")
    if type(blocks) is not list:
        return message
    if message["role"] == "assistant":
        if "document" in map(_block_type, blocks):
            message["content"] = _drop_documents(blocks, path, losses)
    elif "citations" in chain.from_iterable(blocks):
        _drop_citations(blocks, path, losses)
    return message


_block_type = methodcaller("get", "type")


def _drop_documents(blocks: list[Object], path: str, losses: Losses) -> list[Object]:
    """Return the blocks without documents, each with a loss."""
    kept: list[Object] = []
    for number, block in enumerate(blocks):
        if block.get("type") == "document":
            detail = "API version 2026-10-21 rejects documents in assistant messages"
            losses.add(f"{path}/parts/{number}", "document", "dropped", detail, "error")
        else:
            kept.append(block)
    return kept


def _drop_citations(blocks: list[Object], path: str, losses: Losses) -> None:
    for number, block in enumerate(blocks):
        if block.get("type") == "text" and block.get("citations"):
            blocks[number] = {key: value for key, value in block.items() if key != "citations"}
            detail = "API version 2026-10-21 rejects citations in user messages"
            losses.add(f"{path}/parts/{number}/citations", "citations", "dropped", detail)


def _write_thinking(request: Request, out: Object, losses: Losses) -> None:
    """Write `thinking` and `output_config` into `out`.

    Visible reasoning without a mode needs adaptive thinking, which is set with a loss.
    """
    config: Object = {}
    reasoning, output = request.reasoning, request.output
    if reasoning is not None:
        if reasoning.mode is None and reasoning.visible:
            reasoning = replace(reasoning, mode="auto")
            losses.add(
                join("reasoning", "visible"),
                "visible reasoning",
                "rewritten",
                "visible reasoning requires thinking; set to adaptive",
                "info",
            )
        if reasoning.mode is not None:
            out["thinking"] = _make_thinking(reasoning)
        if reasoning.effort is not None:
            config["effort"] = reasoning.effort
    if output is not None:
        _write_format(output, config, losses)
    if config := write_extra(config, request.extra, f"{NAME}/output_config"):
        out["output_config"] = config


def _make_thinking(reasoning: ReasoningConfig) -> Object:
    """Return the field `thinking`; a budget is written only in budget mode, `display` only if thinking is on."""
    assert reasoning.mode is not None
    thinking: Object = {"type": _TYPES[reasoning.mode]}
    if reasoning.budget is not None and reasoning.mode == "budget":
        thinking["budget_tokens"] = reasoning.budget
    if reasoning.visible is not None and reasoning.mode != "off":
        thinking["display"] = "summarized" if reasoning.visible else "omitted"
    restore_spelling(thinking, reasoning.extra.get(_FORM, {}))
    return write_extra(thinking, reasoning.extra, NAME)


def _write_format(output: OutputFormat, config: Object, losses: Losses) -> None:
    """Write the output format into `config`, the field `output_config`; JSON mode without a schema is a loss."""
    if f"{NAME}/format" in output.extra:
        config["format"] = output.extra[f"{NAME}/format"]
    elif output.kind == "json_schema":
        config["format"] = write_extra({"type": "json_schema", "schema": output.schema}, output.extra, NAME)
        for concept in ("name", "description", "strict"):
            if getattr(output, concept) not in (None, True):
                detail = "Anthropic output formats are always enforced and have no name"
                losses.add(join("output", concept), f"output {concept}", "dropped", detail, "info")
    elif output.kind == "json":
        detail = "Anthropic has no JSON mode without a schema"
        losses.add(join("output"), "output format json", "dropped", detail)
