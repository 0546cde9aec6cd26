"""generateContent requests. The model and the choice of streaming are in the URL, not in the body."""

from __future__ import annotations

from typing import Any, Literal

from ...ir.errors import ProtocolError
from ...ir.losses import Losses
from ...ir.parts import Extra, Part
from ...ir.pointer import JSON, Object, join
from ...ir.request import Message, OutputFormat, Params, ReasoningConfig, Request, Role
from ..codec import ConversationItems
from ..fields import decode_list, read_boolean, read_optional_string, require_object
from ..params import NO_PARAMS, as_integer, param_table, read_params, restore_spelling, write_params
from ..protocol import Encoded
from .field_names import NAME, read_fields, write_fields
from .part_writer import write_part
from .parts import read_part
from .schemas import read_schema
from .tools import read_choice, read_tools, write_choice, write_tools

_FORM = "gemini~"  # the key of `extra` for the source's spelling; names with a colon are notes of ours
_GENERATION = "gemini/generationConfig"
_TOOL_CONFIG = "gemini/toolConfig"
_PARAMS = param_table(
    maxOutputTokens="max_tokens",
    temperature="temperature",
    topP="top_p",
    topK="top_k",
    stopSequences="stop",
    seed="seed",
    candidateCount="n",
    presencePenalty="presence_penalty",
    frequencyPenalty="frequency_penalty",
    responseLogprobs="logprobs",
    logprobs="top_logprobs",
)
_KEYS = {row.param: key for key, row in _PARAMS.items()}
_KNOWN = frozenset({"model", "contents", "systemInstruction", "tools", "toolConfig", "generationConfig"})
_CONFIG = frozenset(_PARAMS) | {"responseMimeType", "responseSchema", "responseJsonSchema", "thinkingConfig"}
_THINKING = frozenset({"includeThoughts", "thinkingBudget", "thinkingLevel"})


def decode_request(body: Object) -> Request:
    """Decode a request; raise ProtocolError if it is invalid.

    The model, which clients may repeat in the body, is recorded as form.
    """
    extra: Extra = {}
    fields = read_fields(require_object(body), _KNOWN, NAME, extra, ("contents", "tools"))
    contents = fields.get("contents")
    if type(contents) is not list:
        raise ProtocolError("expected an array of contents", pointer="/contents")
    messages = decode_list(fields, "contents", _read_content)
    if (system := fields.get("systemInstruction")) is not None:
        messages.insert(0, _read_system(system, extra))
    params: dict[str, Any] = {}
    reasoning, output = _read_config(fields.get("generationConfig"), params, extra)
    model = read_optional_string(fields, "model")
    if model is not None:
        extra[_FORM] = {**extra.get(_FORM, {}), "model": model}
    return Request(
        (model or "").removeprefix("models/"),
        tuple(messages),
        read_tools(fields, extra),
        _read_tool_config(fields.get("toolConfig"), extra),
        params=Params(**params) if params else NO_PARAMS,
        reasoning=reasoning,
        output=output,
        extra=extra,
    )


def _read_system(raw: JSON, extra: Extra) -> Message:
    """Read the system instruction; a bare string is accepted and recorded as form.

    Raise ProtocolError if it is invalid.
    """
    if type(raw) is str:  # tolerated: a bare text
        extra[_FORM] = {**extra.get(_FORM, {}), ":system": "string"}
        raw = {"parts": [{"text": raw}]}
    try:
        return _make_message("system", require_object(raw))
    except ProtocolError as error:
        raise error.within("systemInstruction") from None


def _read_content(raw: JSON) -> Message:
    """Read one of the contents; raise ProtocolError for an unknown role.

    A missing role, the old role `function` and `tool` of google-genai's README are user.
    """
    role = require_object(raw).get("role")
    if role == "model":
        return _make_message("assistant", raw)
    if role == "user":
        return _make_message("user", raw)
    if role is None or role in ("", "function", "tool"):  # protobuf does not distinguish "" from an absent role
        return _make_message("user", raw)
    raise ProtocolError(f"unknown role {role!r}", pointer="/role", hint="use user or model")


def _make_message(role: Role, raw: Object) -> Message:
    """Build a message; a role that is not the usual one for `role`, and absent parts, are recorded as form.

    Role and parts alone take a fast path.
    """
    parts = raw.get("parts")
    if parts and type(parts) is list and len(raw) == 2 and role in _ROLES and raw.get("role") == _ROLES[role]:
        return Message(role, tuple(decode_list(raw, "parts", read_part)))
    extra: Extra = {}
    fields = read_fields(raw, ("role", "parts"), NAME, extra, ("parts",))
    read_parts = decode_list(fields, "parts", read_part)
    given_role = raw.get("role")
    form: Object = {}
    if given_role != _ROLES.get(role):
        form = {"role": given_role} if "role" in raw else {":role": "absent"}
    if not parts:
        form[":parts"] = "absent"  # or empty, which stays in the form
    if form:
        extra[_FORM] = {**extra.get(_FORM, {}), **form}
    return Message(role, tuple(read_parts), extra)


_ROLES: dict[Role, str] = {"user": "user", "assistant": "model"}
_SYSTEM = frozenset({"system", "developer"})


def _read_tool_config(raw: JSON, extra: Extra) -> Any:
    if raw is None:
        return None
    fields = read_fields(require_object(raw, "toolConfig"), ("functionCallingConfig",), _TOOL_CONFIG, extra)
    return read_choice(fields.get("functionCallingConfig"))


def _read_config(raw: JSON, params: dict[str, Any], extra: Extra) -> tuple[ReasoningConfig | None, OutputFormat | None]:
    """Read `generationConfig`: parameters into `params`, then return the reasoning settings and the output format.

    Other fields and the spelling of numbers go into `extra`. Raise ProtocolError if it is invalid.
    """
    if raw is None:
        return None, None
    config = read_fields(require_object(raw, "generationConfig"), _CONFIG, _GENERATION, extra, ("stopSequences",))
    try:
        if respelled := read_params(config, _PARAMS, params):
            extra.setdefault(f"{_GENERATION}~", {})[":spelled"] = respelled
        return _read_thinking(config.get("thinkingConfig")), _read_format(config)
    except ProtocolError as error:
        raise error.within("generationConfig") from None


def _read_thinking(raw: JSON) -> ReasoningConfig | None:
    """Read `thinkingConfig`: a budget of 0 turns thinking off, a negative one leaves the amount to the model.

    Unusual levels and negative budgets are kept as form. Return None without a configuration.
    """
    if raw is None:
        return None
    extra: Extra = {}
    fields = read_fields(require_object(raw, "thinkingConfig"), _THINKING, NAME, extra)
    respelled: Object = {}
    level, budget = read_optional_string(fields, "thinkingLevel"), as_integer(fields, "thinkingBudget", respelled)
    if respelled:
        extra.setdefault(_FORM, {})[":spelled"] = respelled
    mode: Literal["off", "auto", "budget"] | None = None
    if budget is not None:
        mode = "off" if budget == 0 else "auto" if budget < 0 else "budget"
        if budget < 0 and (budget != -1 or level is not None):
            extra[_FORM] = {**extra.get(_FORM, {}), "thinkingBudget": budget}
    elif level is not None:
        mode = "auto"
        if level != level.upper() or level.lower() not in _LEVELS:
            extra[_FORM] = {**extra.get(_FORM, {}), ":level": level}
    return ReasoningConfig(
        mode,
        level.lower() if level is not None and level.lower() in _LEVELS else None,
        budget if mode == "budget" else None,
        read_boolean(fields, "includeThoughts"),
        extra,
    )


_LEVELS = ("minimal", "low", "medium", "high")


def _read_format(config: Object) -> OutputFormat | None:
    """Read the output format, or None; `:schema` keeps a schema in `responseSchema`, the OpenAPI subset.

    A media type that no other wire has stays in `extra`.
    """
    kind = read_optional_string(config, "responseMimeType")
    schema, raw = config.get("responseJsonSchema"), config.get("responseSchema")
    field = "responseSchema" if schema is None else "responseJsonSchema"
    if schema is not None or raw is not None:
        if kind not in (None, "application/json"):  # text/x.enum: one bare value of the schema; no other wire has it
            extra = {f"{NAME}/format": {"responseMimeType": kind, field: config[field]}}
            return OutputFormat("text", extra=extra)
        form: Object = {} if kind is not None else {":mime": kind}
        if schema is None:
            original = require_object(raw, "responseSchema")
            form[":schema"], schema = original, read_schema(original)
        elif raw is not None:
            form["responseSchema"] = raw  # the API rejects both
        return OutputFormat("json_schema", schema, strict=True, extra={_FORM: form} if form else {})
    if kind is None:
        return None
    if kind == "application/json":
        return OutputFormat("json")
    return OutputFormat("text", extra={} if kind == "text/plain" else {f"{NAME}/format": {"responseMimeType": kind}})


def encode_request(request: Request, items: ConversationItems | None = None) -> Encoded:
    """Encode a request; the model and the choice of streaming are reported as moved to the URL.

    System messages become one instruction; a later one is reported as moved. `items` may have the text of the first
    messages, whose system messages are all at the start.
    """
    losses = Losses()
    items = items or ConversationItems()
    out: Object = {}
    system: list[Object] = []
    system_extra: Extra = {}
    start = next((n for n, item in enumerate(request.messages) if item.role not in _SYSTEM), len(request.messages))
    for index, message in enumerate(request.messages[:start]):
        system.extend(_write_parts(message.parts, f"/messages/{index}", losses))
        system_extra = message.extra if index == 0 else {}
    for index, message in items.unwritten(request.messages, losses, start):
        parts = _write_parts(message.parts, f"/messages/{index}", losses)
        if message.role in _SYSTEM:
            detail = "Gemini has one system instruction, before the contents"
            losses.add(f"/messages/{index}", "system message", "moved", detail)
            system.extend(parts)
            system_extra = {}
        else:
            items.written.append(_write_content(message, parts))
    out["contents"] = items.written
    if system or (request.messages and request.messages[0].role == "system" and not request.messages[0].parts):
        out["systemInstruction"] = _write_system(system, system_extra, request.extra)
    if tools := write_tools(request.tools, losses, request.extra):
        out["tools"] = tools
    config = write_choice(request, losses)
    tool_config: Object = {} if config is None else {"functionCallingConfig": config}
    if tool_config := write_fields(tool_config, request.extra, _TOOL_CONFIG):
        out["toolConfig"] = tool_config
    if generation := _write_config(request, losses):
        out["generationConfig"] = generation
    if request.model and "model" not in request.extra.get(_FORM, {}):
        losses.add(join("model"), "model", "moved", f"to the URL: /models/{request.model}:generateContent", "info")
    if request.stream:
        losses.add(join("stream"), "stream", "moved", "to the URL: streamGenerateContent?alt=sse", "info")
    return Encoded(write_fields(out, request.extra, NAME), losses)


def _write_system(parts: list[Object], extra: Extra, request_extra: Extra) -> JSON:
    if ":system" in request_extra.get(_FORM, {}) and len(parts) == 1 and parts[0].keys() == {"text"}:
        return parts[0]["text"]
    out: Object = {} if not parts and ":parts" in extra.get(_FORM, {}) else {"parts": parts}
    return write_fields(out, extra, NAME)


def _write_parts(parts: tuple[Part, ...], path: str, losses: Losses) -> list[Object]:
    written = [write_part(part, losses, f"{path}/parts/{number}") for number, part in enumerate(parts)]
    return [part for part in written if part is not None]


def _write_content(message: Message, parts: list[Object]) -> Object:
    """Write a message with its original role and without `parts` if it had none (form)."""
    if not message.extra:
        return {"role": _ROLES[message.role], "parts": parts}
    form = message.extra.get(_FORM, {})
    out: Object = {} if ":role" in form else {"role": form.get("role", _ROLES[message.role])}
    out["parts"] = parts
    if not parts and ":parts" in form:
        del out["parts"]  # absent, or another empty value from the form
    return write_fields(out, message.extra, NAME)


def _write_config(request: Request, losses: Losses) -> Object:
    """Return `generationConfig`: parameters, reasoning settings and output format."""
    out: Object = {}
    write_params(request.params, _KEYS, out, NAME, losses)
    form = request.extra.get(f"{_GENERATION}~", {})
    restore_spelling(out, form)
    if "logprobs" in out and "responseLogprobs" not in out and "responseLogprobs" not in form:
        out["responseLogprobs"] = True  # the API rejects logprobs without it
    if request.reasoning is not None:
        thinking = _write_thinking(request.reasoning)
        if thinking:
            out["thinkingConfig"] = thinking
    if request.output is not None:
        _write_format(request.output, out, losses)
    return write_fields(out, request.extra, _GENERATION)


def _write_thinking(reasoning: ReasoningConfig) -> Object:
    """Return `thinkingConfig`; an unknown level or unusual spelling is written back from the form `:level`.

    A budget of 0 turns thinking off, -1 leaves the amount to the model.
    """
    out: Object = {}
    if reasoning.visible is not None:
        out["includeThoughts"] = reasoning.visible
    if reasoning.mode == "off":
        out["thinkingBudget"] = 0
    elif reasoning.budget is not None:
        out["thinkingBudget"] = reasoning.budget
    form = reasoning.extra.get(_FORM, {})
    if ":level" in form:
        out["thinkingLevel"] = form[":level"]
    elif reasoning.effort is not None:
        out["thinkingLevel"] = reasoning.effort.upper()
    elif reasoning.mode == "auto":
        out["thinkingBudget"] = -1  # the model decides
    restore_spelling(out, form)
    return write_fields(out, reasoning.extra, NAME)


def _write_format(output: OutputFormat, out: Object, losses: Losses) -> None:
    """Write the output format into `out`, the field `generationConfig`; a name and other options are losses.

    A schema that was read from `responseSchema` and has not changed is written back there.
    """
    form = output.extra.get(_FORM, {})
    if f"{NAME}/format" in output.extra:
        out.update(output.extra[f"{NAME}/format"])
    elif output.kind == "json_schema":
        mime = form.get(":mime", "application/json")
        if mime is not None:
            out["responseMimeType"] = mime
        original = form.get(":schema")
        if original is not None and read_schema(original) == output.schema:
            out["responseSchema"] = original
        else:
            out["responseJsonSchema"] = output.schema
            if "responseSchema" in form:
                out["responseSchema"] = form["responseSchema"]
        for concept in ("name", "description", "strict"):
            if getattr(output, concept) not in (None, True):
                detail = "Gemini output formats are always enforced and have no name"
                losses.add(join("output", concept), f"output {concept}", "dropped", detail, "info")
    else:
        out["responseMimeType"] = "application/json" if output.kind == "json" else "text/plain"
