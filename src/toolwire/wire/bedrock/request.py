"""Converse requests. The model and the choice of streaming are in the path, not in the body.

`system` holds the leading system message; later ones are in `messages`. Settings that only some models have are in
`additionalModelRequestFields`: Claude's `thinking` and `top_k` are read from there, and written for Claude only, because other
models reject unknown fields.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from ...ir.errors import ProtocolError
from ...ir.losses import Losses, Severity
from ...ir.parts import Extra
from ...ir.pointer import JSON, Object, join
from ...ir.request import Message, OutputFormat, Params, ReasoningConfig, Request
from ...ir.text import dumps
from ...ir.tools import Tool, ToolChoice
from ...stream.strict import parse
from ..codec import ConversationItems
from ..fields import decode_list, is_empty, read_extra, read_optional_string, require_object, type_error, write_extra
from ..params import NO_PARAMS, param_table, read_params, restore_spelling, write_params
from ..protocol import Encoded
from .blocks import read_answer_block, read_block, read_blocks, write_blocks
from .documents import count_leading_system
from .media import NAME
from .tools import read_choice, read_tools, write_tool_config

_FORM = "bedrock~"  # the key of `extra` for the source's spelling; names with a colon are notes of ours
_INFERENCE, _TOOLS, _MODEL_FIELDS = (
    f"{NAME}/{name}" for name in ("inferenceConfig", "toolConfig", "additionalModelRequestFields")
)
_OUTPUT, _TEXT, _SCHEMA = f"{NAME}/outputConfig", f"{NAME}/outputConfig/textFormat", f"{NAME}/jsonSchema"
_THINKING = f"{_MODEL_FIELDS}/thinking"
_PARAMS = param_table(maxTokens="max_tokens", temperature="temperature", topP="top_p", stopSequences="stop")
_KEYS = {row.param: key for key, row in _PARAMS.items()} | {"top_k": "", "service_tier": "", "metadata": ""}
_KNOWN = frozenset(
    "modelId messages system inferenceConfig toolConfig additionalModelRequestFields outputConfig serviceTier "
    "requestMetadata".split()
)
_CONTENT = frozenset({"content", ":content"})  # form of a message without blocks
_TIERS = frozenset({"priority", "default", "flex"})  # `reserved` is Bedrock's own
# RequestMetadata in botocore 1.44.5
_METADATA_KEY = re.compile(r"[a-zA-Z0-9\s:_@$#=/+,.-]{1,256}").fullmatch
_METADATA_VALUE = re.compile(r"[a-zA-Z0-9\s:_@$#=/+,.-]{0,256}").fullmatch
_MAX_METADATA = 16  # RequestMetadata in botocore 1.44.5
_MODES: dict[str, Literal["off", "auto", "budget"]] = {"disabled": "off", "adaptive": "auto", "enabled": "budget"}
_TYPES = {mode: kind for kind, mode in _MODES.items()}


def decode_request(body: Object) -> Request:
    """Decode a request; raise ProtocolError if it is invalid.

    `modelId`, which boto3's callers write beside the body, is accepted and recorded as form.
    """
    messages = _read_messages(body)
    params: dict[str, Any] = {}
    extra = read_extra(body, _KNOWN, NAME)
    _read_inference(body.get("inferenceConfig"), params, extra)
    _read_bookkeeping(body, params, extra)
    reasoning = _read_model_fields(body.get("additionalModelRequestFields"), params, extra)
    effort, output = _read_output(body.get("outputConfig"), extra)
    if effort is not None:
        reasoning = ReasoningConfig(effort=effort) if reasoning is None else _with_effort(reasoning, effort)
    tools, choice = _read_tool_config(body.get("toolConfig"), extra)
    model = read_optional_string(body, "modelId")
    if model is not None:
        extra[_FORM] = {**extra.get(_FORM, {}), "modelId": model}
    return Request(
        model or "",
        messages,
        tools,
        choice,
        params=Params(**params) if params else NO_PARAMS,
        reasoning=reasoning,
        output=output,
        extra=extra,
    )


def _with_effort(reasoning: ReasoningConfig, effort: str) -> ReasoningConfig:
    return ReasoningConfig(reasoning.mode, effort, reasoning.budget, reasoning.visible, reasoning.extra)


def _read_messages(body: Object) -> tuple[Message, ...]:
    """Read `system` and `messages` as one list; form `:place` marks leading system messages from `messages`."""
    if type(require_object(body).get("messages")) is not list:
        raise ProtocolError("expected an array of messages", pointer="/messages")
    messages = decode_list(body, "messages", _read_message)
    for index, message in enumerate(messages):
        if message.role != "system":
            break
        form = {**message.extra.get(_FORM, {}), ":place": "messages"}
        messages[index] = Message("system", message.parts, {**message.extra, _FORM: form})
    if body.get("system"):
        messages.insert(0, Message("system", read_blocks(body, "system", read_block)))
    return tuple(messages)


def _read_message(raw: JSON) -> Message:
    role = require_object(raw).get("role")
    if role not in ("user", "assistant", "system"):
        raise ProtocolError(f"unknown role {role!r}", pointer="/role", hint="use user, assistant or system")
    parts = read_blocks(raw, "content", read_answer_block if role == "assistant" else read_block)
    extra = read_extra(raw, ("role", "content"), NAME)
    if not parts and "content" not in raw:
        extra[_FORM] = {**extra.get(_FORM, {}), ":content": "absent"}
    return Message(role, parts, extra)


def _read_inference(raw: JSON, params: dict[str, Any], extra: Extra) -> None:
    if is_empty(raw):
        return
    config = require_object(raw, "inferenceConfig")
    try:
        respelled = read_params(config, _PARAMS, params)
    except ProtocolError as error:
        raise error.within("inferenceConfig") from None
    read_extra(config, _PARAMS, _INFERENCE, extra)
    if params.get("stop") == ():
        del params["stop"]
    if respelled:
        extra[f"{_INFERENCE}~"] = {**extra.get(f"{_INFERENCE}~", {}), ":spelled": respelled}


def _read_bookkeeping(body: Object, params: dict[str, Any], extra: Extra) -> None:
    """Read the service tier and the metadata; values that no other wire has stay fields of this one."""
    tier: JSON = body.get("serviceTier")
    name = tier["type"] if type(tier) is dict and tier.keys() == {"type"} else None
    if type(name) is str and name in _TIERS:
        params["service_tier"] = name
    elif not is_empty(tier):
        extra.setdefault(NAME, {})["serviceTier"] = tier
    metadata: JSON = body.get("requestMetadata")
    if type(metadata) is dict and metadata and all(map(_is_text, metadata.values())):
        params["metadata"] = metadata
    elif not is_empty(metadata):
        extra.setdefault(NAME, {})["requestMetadata"] = metadata


def _is_text(value: JSON) -> bool:
    return type(value) is str


def _read_model_fields(raw: JSON, params: dict[str, Any], extra: Extra) -> ReasoningConfig | None:
    """Read `additionalModelRequestFields`; fields that only one model has, and unusual values, stay as they are."""
    if is_empty(raw):
        return None
    if type(raw) is not dict:  # any JSON value is allowed
        extra.setdefault(NAME, {})["additionalModelRequestFields"] = raw
        return None
    known: set[str] = set()
    top_k, thinking = raw.get("top_k"), raw.get("thinking")
    if type(top_k) in (int, float):
        params["top_k"] = top_k
        known.add("top_k")
    reasoning = _read_thinking(thinking) if type(thinking) is dict else None
    if reasoning is not None:
        known.add("thinking")
    read_extra(raw, known, _MODEL_FIELDS, extra)
    return reasoning


def _read_thinking(raw: Object) -> ReasoningConfig | None:
    """Read Claude's `thinking`; None for a form that is not known."""
    kind, budget = raw.get("type"), raw.get("budget_tokens")
    mode = _MODES.get(kind) if type(kind) is str else None
    if mode is None or (mode == "budget") != (type(budget) is int) or not {"type", "budget_tokens"}.issuperset(raw):
        return None
    return ReasoningConfig(mode, budget=budget)


def _read_output(raw: JSON, extra: Extra) -> tuple[str | None, OutputFormat | None]:
    """Read `outputConfig`: the effort, and the format of the answer, whose schema is a JSON text."""
    if is_empty(raw):
        return None, None
    config = require_object(raw, "outputConfig")
    try:
        effort = read_optional_string(config, "effort") or None
        output = _read_format(config.get("textFormat"))
    except ProtocolError as error:
        raise error.within("outputConfig") from None
    read_extra(config, ("effort", "textFormat"), _OUTPUT, extra)
    return effort, output


def _read_format(raw: JSON) -> OutputFormat | None:
    if is_empty(raw):
        return None
    fields = require_object(raw, "textFormat")
    structure: JSON = fields.get("structure")
    schema = structure.get("jsonSchema") if type(structure) is dict and len(structure) == 1 else None
    if fields.get("type") != "json_schema" or type(schema) is not dict:
        return OutputFormat("text", extra={f"{NAME}/format": fields})
    pointer = ("textFormat", "structure", "jsonSchema")
    text = schema.get("schema")
    if type(text) is not str:
        raise type_error("a JSON Schema as text", text, *pointer, "schema")
    try:
        value = parse(text)
    except ProtocolError as error:
        raise ProtocolError(f"the schema is not JSON: {error.message}", pointer=join(*pointer, "schema")) from None
    extra: Extra = {} if dumps(value) == text else {_FORM: {":schema": text}}
    read_extra(schema, ("schema", "name", "description"), _SCHEMA, extra)
    read_extra(fields, ("type", "structure"), _TEXT, extra)
    try:
        name, description = read_optional_string(schema, "name"), read_optional_string(schema, "description")
    except ProtocolError as error:
        raise error.within(*pointer) from None
    return OutputFormat("json_schema", value, name or None, description or None, strict=True, extra=extra)


def _read_tool_config(raw: JSON, extra: Extra) -> tuple[tuple[Tool, ...], ToolChoice | None]:
    if is_empty(raw):
        return (), None
    config = require_object(raw, "toolConfig")
    try:
        tools, choice = read_tools(config), read_choice(config.get("toolChoice"))
    except ProtocolError as error:
        raise error.within("toolConfig") from None
    read_extra(config, ("tools", "toolChoice"), _TOOLS, extra)
    return tools, choice


def encode_request(request: Request, items: ConversationItems | None = None) -> Encoded:
    """Encode a request; the model and the choice of streaming are reported as moved to the path.

    `items` may have the text of the first messages.
    """
    losses = Losses()
    items = items or ConversationItems()
    out: Object = {}
    start = count_leading_system(request)
    if system := _write_system(request.messages[:start], losses):
        out["system"] = system
    for index, message in items.unwritten(request.messages, losses, start):
        items.written.append(_write_message(message, losses, f"/messages/{index}"))
    out["messages"] = items.written
    inference: Object = {}
    write_params(request.params, _KEYS, inference, NAME, losses)
    restore_spelling(inference, request.extra.get(f"{_INFERENCE}~", {}))
    _add_fields(out, "inferenceConfig", inference, request.extra, _INFERENCE)
    _add_fields(out, "toolConfig", write_tool_config(request, losses), request.extra, _TOOLS)
    _add_fields(out, "additionalModelRequestFields", _write_model_fields(request, losses), request.extra, _MODEL_FIELDS)
    _add_fields(out, "outputConfig", _write_output(request, losses), request.extra, _OUTPUT)
    _write_bookkeeping(request.params, out, losses)
    if request.parallel is False:
        losses.add(join("parallel"), "one call at a time", "dropped", "Converse has no setting for parallel calls")
    if request.model and "modelId" not in request.extra.get(_FORM, {}):
        losses.add(join("model"), "model", "moved", f"to the path: /model/{request.model}/converse", "info")
    if request.stream:
        losses.add(join("stream"), "stream", "moved", "to the path: converse-stream", "info")
    return Encoded(write_extra(out, request.extra, NAME), losses)


def _add_fields(out: Object, name: str, fields: Object, extra: Extra, scope: str) -> None:
    """Add an object with the fields that only this wire has, unless it is empty."""
    if fields := write_extra(fields, extra, scope):
        out[name] = fields


def _write_system(messages: tuple[Message, ...], losses: Losses) -> list[Object]:
    return [
        block
        for index, message in enumerate(messages)
        for block in write_blocks(message.parts, losses, f"/messages/{index}")
    ]


def _write_message(message: Message, losses: Losses, path: str) -> Object:
    """Write a message; the developer role, which Converse does not have, becomes `system`."""
    out: Object = {"role": "system" if message.role == "developer" else message.role}
    out["content"] = write_blocks(message.parts, losses, path)
    if not out["content"] and not _CONTENT.isdisjoint(message.extra.get(_FORM, {})):
        del out["content"]
    return write_extra(out, message.extra, NAME)


# Claude under its own name, or an inference profile, whose ARN does not name the model.
_TAKES_CLAUDE_FIELDS = re.compile(r"claude|:application-inference-profile/", re.IGNORECASE).search


def _write_model_fields(request: Request, losses: Losses) -> Object:
    """Return Claude's fields. For another model they are losses, because it would refuse the request."""
    out: Object = {}
    reasoning, top_k = request.reasoning, request.params.top_k
    is_claude = not request.model or _TAKES_CLAUDE_FIELDS(request.model) is not None
    detail = "on Bedrock only Claude has this setting"
    if top_k is not None and is_claude:
        out["top_k"] = top_k
    elif top_k is not None:
        losses.add(join("params", "top_k"), "top_k", "dropped", detail)
    if reasoning is None:
        return out
    if reasoning.mode is not None and is_claude:
        out["thinking"] = {"type": _TYPES[reasoning.mode]}
        if reasoning.mode == "budget" and reasoning.budget is not None:
            out["thinking"]["budget_tokens"] = reasoning.budget
        out["thinking"] = write_extra(out["thinking"], reasoning.extra, NAME)
    elif reasoning.mode is not None:
        severity: Severity = "info" if reasoning.mode == "auto" else "warning"  # the model's default
        for name in ("mode", "budget") if reasoning.mode == "budget" else ("mode",):
            losses.add(join("reasoning", name), f"reasoning {name}", "dropped", detail, severity)
    if reasoning.visible is not None:
        losses.add(join("reasoning", "visible"), "visible reasoning", "dropped", "Converse has no such switch", "info")
    return out


def _write_output(request: Request, losses: Losses) -> Object:
    """Return `outputConfig`; JSON mode without a schema is a loss."""
    out: Object = {}
    output = request.output
    if output is not None and f"{NAME}/format" in output.extra:
        out["textFormat"] = output.extra[f"{NAME}/format"]
    elif output is not None and output.kind == "json_schema":
        out["textFormat"] = _write_schema(output, losses)
    elif output is not None and output.kind == "json":
        losses.add(join("output"), "output format json", "dropped", "Converse has no JSON mode without a schema")
    if request.reasoning is not None and request.reasoning.effort is not None:
        out["effort"] = request.reasoning.effort
    return out


def _write_schema(output: OutputFormat, losses: Losses) -> Object:
    text = output.extra.get(_FORM, {}).get(":schema")
    if text is None or dumps(parse(text)) != dumps(output.schema):
        text = dumps(output.schema)
    schema: Object = {"schema": text}
    if output.name is not None:
        schema["name"] = output.name
    if output.description is not None:
        schema["description"] = output.description
    if output.strict is False:
        losses.add(join("output", "strict"), "output strict", "dropped", "Converse always enforces the schema", "info")
    structure = {"jsonSchema": write_extra(schema, output.extra, _SCHEMA)}
    return write_extra({"type": "json_schema", "structure": structure}, output.extra, _TEXT)


def _write_bookkeeping(params: Params, out: Object, losses: Losses) -> None:
    """Write the service tier and the metadata; values that Bedrock rejects are losses."""
    if params.service_tier in _TIERS:
        out["serviceTier"] = {"type": params.service_tier}
    elif params.service_tier is not None:
        detail = f"Bedrock has no tier {params.service_tier!r}"
        losses.add(join("params", "service_tier"), "service_tier", "dropped", detail, "info")
    if not params.metadata:
        return
    kept = {name: value for name, value in params.metadata.items() if _is_metadata(name, value)}
    kept = dict(list(kept.items())[:_MAX_METADATA])
    if len(kept) < len(params.metadata):
        detail = f"Bedrock accepts {_MAX_METADATA} short texts of letters, digits and common punctuation"
        losses.add(join("params", "metadata"), "metadata", "weakened" if kept else "dropped", detail, "info")
    if kept:
        out["requestMetadata"] = kept


def _is_metadata(name: str, value: JSON) -> bool:
    return _METADATA_KEY(name) is not None and type(value) is str and _METADATA_VALUE(value) is not None
