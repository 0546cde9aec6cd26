"""Interactions requests: the envelope around steps and tools.

`input` is a string, one content, a list of contents or a list of steps. A request continues a stored interaction with
`previous_interaction_id`, and an interrupted one with `continuation_token`; then it may have no input.
"""

from __future__ import annotations

from typing import Any, Literal

from ...ir.errors import ProtocolError
from ...ir.losses import Losses
from ...ir.parts import Extra, Media, Opaque, Text
from ...ir.pointer import JSON, Object, join
from ...ir.request import Message, OutputFormat, Params, ReasoningConfig, Request
from ..codec import ConversationItems
from ..fields import decode_list, read_boolean, read_extra, read_optional_string, require_object, write_extra
from ..params import NO_PARAMS, param_table, read_params, restore_spelling, write_params
from ..protocol import Encoded
from .content import FORM, LABEL, NAME, is_content_document, read_content, write_content
from .step_writer import write_messages_steps
from .steps import read_steps
from .tools import read_choice, read_tool, write_choice, write_tool

_GENERATION = "gemini_interactions/generation_config"
_FORMAT = "gemini_interactions/format"
_TOP = param_table("store")
_PARAMS = param_table("temperature top_p seed", max_output_tokens="max_tokens", stop_sequences="stop")
_KEYS = {row.param: key for key, row in _PARAMS.items()} | {"store": "", "service_tier": ""}
_KNOWN = frozenset(
    "model input system_instruction tools generation_config response_format response_mime_type service_tier store "
    "stream".split()
)
_CONFIG = frozenset(_PARAMS) | {"thinking_level", "thinking_summaries", "tool_choice"}
_CONTINUED = frozenset({"previous_interaction_id", "continuation_token"})  # fields that make `input` optional
LEVELS = ("minimal", "low", "medium", "high", "xhigh")
_TEXT_FORMAT = frozenset({"type", "mime_type", "schema"})
_OTHER_FORMATS = frozenset({"audio", "image", "video"})
_JSON = "application/json"
_SYSTEM = frozenset({"system", "developer"})
_TIERS = {"standard": "default", "flex": "flex", "priority": "priority"}
"""Tiers with an equal on OpenAI's wires. Google's `deferred` has none, and neither has OpenAI's `auto`."""
_OWN_TIERS = {name: own for own, name in _TIERS.items()}


def decode_request(body: Object) -> Request:
    """Decode a request; raise ProtocolError if it is invalid.

    An absent `store` is recorded as form: the default is true here, unlike on most wires.
    """
    extra = read_extra(require_object(body), _KNOWN, NAME)
    params: dict[str, Any] = {}
    read_params(body, _TOP, params)
    if body.get("store") is None:
        extra[FORM] = {**extra.get(FORM, {}), ":store": "absent"}
    _read_tier(body, params, extra)
    config = body.get("generation_config")
    config = {} if config is None else require_object(config, "generation_config")
    choice, reasoning = _read_config(config, params, extra)
    messages = _read_input(body, extra)
    if system := read_optional_string(body, "system_instruction"):
        messages = (Message("system", (Text(system),)), *messages)
    return Request(
        read_optional_string(body, "model") or "",
        messages,
        tuple(decode_list(body, "tools", read_tool)),
        choice,
        params=Params(**params) if params else NO_PARAMS,
        reasoning=reasoning,
        output=_read_output(body),
        stream=read_boolean(body, "stream"),
        extra=extra,
    )


def _read_tier(body: Object, params: dict[str, Any], extra: Extra) -> None:
    tier = read_optional_string(body, "service_tier")
    if tier in _TIERS:
        params["service_tier"] = _TIERS[tier]
    elif tier:
        extra.setdefault(NAME, {})["service_tier"] = tier


def _read_config(config: Object, params: dict[str, Any], extra: Extra) -> tuple[Any, ReasoningConfig | None]:
    """Read `generation_config`: parameters into `params`; return the tool choice and the reasoning settings."""
    read_extra(config, _CONFIG, _GENERATION, extra)
    try:
        if respelled := read_params(config, _PARAMS, params):
            extra[f"{_GENERATION}~"] = {**extra.get(f"{_GENERATION}~", {}), ":spelled": respelled}
        reasoning = _read_thinking(config)
        try:
            return read_choice(config.get("tool_choice")), reasoning
        except ProtocolError as error:
            raise error.within("tool_choice") from None
    except ProtocolError as error:
        raise error.within("generation_config") from None


def _read_thinking(config: Object) -> ReasoningConfig | None:
    """Read the level of thinking and the request for summaries; an unknown level is kept as form."""
    level, summaries = (read_optional_string(config, name) for name in ("thinking_level", "thinking_summaries"))
    if not level and not summaries:
        return None
    form: Object = {}
    if summaries not in (None, "", "auto", "none"):
        form[":summaries"] = summaries
    if level and level not in LEVELS:
        form[":level"] = level
    mode: Literal["auto"] | None = "auto" if level else None
    visible = None if not summaries else summaries != "none"
    effort = level if level in LEVELS else None
    return ReasoningConfig(mode, effort, None, visible, {FORM: form} if form else {})


def _read_input(body: Object, extra: Extra) -> tuple[Message, ...]:
    """Read `input`, and record in `extra` whether it was a string or a single content.

    Raise ProtocolError if it is invalid, or absent from a request that continues nothing.
    """
    value = body.get("input")
    form: str | None = None
    messages: tuple[Message, ...] = ()
    if type(value) is str and value:
        form, messages = "string", (Message("user", (Text(value),)),)
    elif type(value) is list:
        messages = read_steps(body, "input")
    elif type(value) is dict and value:
        try:
            messages = _read_single(value)
        except ProtocolError as error:
            raise error.within("input") from None
        form = "single"
    elif not value and not _CONTINUED.isdisjoint(body):
        form = "absent"  # or empty, which is then in the form
    else:
        raise ProtocolError("expected a string, a content, or an array of contents or steps", pointer="/input")
    if form is not None:
        extra[FORM] = {**extra.get(FORM, {}), ":input": form}
    return messages


def _read_single(value: Object) -> tuple[Message, ...]:
    if is_content_document(value):
        return (Message("user", (read_content(value),)),)
    return read_steps({"input": [value]}, "input")  # a step alone; the API documents only contents


def _read_output(body: Object) -> OutputFormat | None:
    """Read the form of the answer: the text format of `response_format`, or the deprecated `response_mime_type`.

    Formats of audio, images and videos, and further entries of a list, stay in `extra`. A schema may also be bare.
    """
    mime, value = read_optional_string(body, "response_mime_type"), body.get("response_format")
    form: Object = {":mime": mime} if mime else {}
    if not value:
        if mime is None:
            return None
        if mime == _JSON:
            return OutputFormat("json", extra={FORM: {**form, ":format": "absent"}})
        return OutputFormat("text", extra={_FORMAT: {"response_mime_type": mime}})
    entries = value if type(value) is list else [value]
    number = next((index for index, entry in enumerate(entries) if _is_text_format(entry)), None)
    if number is None:
        return OutputFormat("text", extra={FORM: form, _FORMAT: {"response_format": value}})
    entry = entries[number]
    if type(value) is list:
        form[":index"] = number
    others = [*entries[:number], *entries[number + 1 :]]
    own: Extra = {_FORMAT: {"others": others}} if others else {}
    if entry.get("type") != "text":  # a schema without a format around it
        return OutputFormat("json_schema", entry, strict=True, extra={**own, FORM: {**form, ":format": "bare"}})
    read_extra(entry, _TEXT_FORMAT, NAME, own)
    return _read_text_format(entry, form, own)


def _is_text_format(entry: JSON) -> bool:
    """Return whether an entry describes the text of the answer: a text format, or a bare schema."""
    kind = entry.get("type") if type(entry) is dict else None
    return type(entry) is dict and not (type(kind) is str and kind in _OTHER_FORMATS)


def _read_text_format(entry: Object, form: Object, extra: Extra) -> OutputFormat:
    mime, schema = read_optional_string(entry, "mime_type"), entry.get("schema")
    if mime is None:
        form[":mime_type"] = "absent"
    if form:
        extra[FORM] = {**extra.get(FORM, {}), **form}
    if schema is not None and mime in (None, _JSON):
        return OutputFormat("json_schema", schema, strict=True, extra=extra)
    if schema is not None or mime not in (None, _JSON, "text/plain"):
        own: Object = {name: entry[name] for name in ("mime_type", "schema") if name in entry}
        return OutputFormat("text", extra={**extra, NAME: {**extra.get(NAME, {}), **own}})
    return OutputFormat("json" if mime == _JSON else "text", extra=extra)


def encode_request(request: Request, items: ConversationItems | None = None) -> Encoded:
    """Encode a request; without a setting, `store` is false, because the API stores by default.

    System messages become one instruction; a later one is reported as moved. `items` may have the text of the first
    messages, whose system messages are all at the start.
    """
    losses = Losses()
    items = items or ConversationItems()
    out: Object = {"model": request.model} if request.model else {}
    system = _write_input(request, items, out, losses)
    if system:
        out["system_instruction"] = "\n\n".join(system)
    tools = [write_tool(tool, losses, f"/tools/{index}") for index, tool in enumerate(request.tools)]
    if written := [tool for tool in tools if tool is not None]:
        out["tools"] = written
    if generation := _write_config(request, losses):
        out["generation_config"] = generation
    if request.output is not None:
        _write_output(request.output, out, losses)
    _write_tier(request, out, losses)
    if request.params.store is not None:
        out["store"] = request.params.store
    elif ":store" not in request.extra.get(FORM, {}):
        out["store"] = False
    if request.stream is not None:
        out["stream"] = request.stream
    return Encoded(write_extra(out, request.extra, NAME), losses)


def _write_input(request: Request, items: ConversationItems, out: Object, losses: Losses) -> list[str]:
    """Write `input` into `out`, and return the texts of the system instruction."""
    messages = request.messages
    start = next((n for n, item in enumerate(messages) if item.role not in _SYSTEM), len(messages))
    system: list[str] = []
    for index, message in enumerate(messages[:start]):
        system += _read_system_texts(message, f"/messages/{index}", losses)
    if len(system) > 1:
        detail = f"{LABEL} has one system instruction; the texts are joined by a blank line"
        for index in range(start):
            losses.add(f"/messages/{index}", "system message", "rewritten", detail, "info")
    form = request.extra.get(FORM, {}).get(":input")
    if form in ("string", "single") and len(messages) == start + 1 and len(messages[start].parts) == 1:
        single = _write_single(messages[start], form, losses, f"/messages/{start}")
        if single is not None:
            out["input"] = single
            return system
    for index, message in items.unwritten(messages, losses, start):
        if message.role in _SYSTEM:
            detail = f"{LABEL} has one system instruction, before the input"
            losses.add(f"/messages/{index}", "system message", "moved", detail)
            system += _read_system_texts(message, f"/messages/{index}", losses)
        else:
            items.written.extend(write_messages_steps(message, f"/messages/{index}", losses))
    if items.written or form != "absent":
        out["input"] = items.written
    return system


def _write_single(message: Message, form: str, losses: Losses, path: str) -> JSON:
    """Return the input as a string or as one content, as it was read; None if it has another form now."""
    only = message.parts[0]
    if form == "string":
        return only.text if isinstance(only, Text) else None
    if message.role == "user" and not message.extra and isinstance(only, Text | Media | Opaque):
        return write_content(only, losses, f"{path}/parts/0")
    steps = [*write_messages_steps(message, path, losses)]
    return steps[0] if len(steps) == 1 else None


def _read_system_texts(message: Message, path: str, losses: Losses) -> list[str]:
    """Return the texts of a system message; its other parts, and fields of a text, are losses."""
    texts: list[str] = []
    for number, part in enumerate(message.parts):
        where = f"{path}/parts/{number}"
        if not isinstance(part, Text):
            losses.add(where, "part of a system message", "dropped", "the system instruction is a text", "error")
            continue
        if part.cache is not None:
            losses.add(f"{where}/cache", "cache", "dropped", f"{LABEL} has no cache marks", "info")
        if part.text:
            texts.append(part.text)
    return texts


def _write_config(request: Request, losses: Losses) -> Object:
    """Return `generation_config`: parameters, thinking and the tool choice."""
    out: Object = {}
    write_params(request.params, _KEYS, out, NAME, losses)
    restore_spelling(out, request.extra.get(f"{_GENERATION}~", {}))
    if request.reasoning is not None:
        _write_thinking(request.reasoning, out, losses)
    choice = write_choice(request, losses)
    if choice is not None:
        out["tool_choice"] = choice
    return write_extra(out, request.extra, _GENERATION)


def _write_thinking(reasoning: ReasoningConfig, out: Object, losses: Losses) -> None:
    """Write the thinking level and the request for summaries. There are no budgets, and thinking has no off switch."""
    form = reasoning.extra.get(FORM, {})
    if reasoning.mode == "off":
        losses.add(join("reasoning", "mode"), "thinking off", "dropped", f"{LABEL} cannot turn thinking off")
    elif reasoning.effort is not None or ":level" in form:
        out["thinking_level"] = form.get(":level", reasoning.effort)
    if reasoning.budget is not None:
        detail = f"{LABEL} has thinking levels, not budgets"
        losses.add(join("reasoning", "budget"), "thinking budget", "dropped", detail)
    if reasoning.visible is not None:
        summaries = "auto" if reasoning.visible else "none"
        out["thinking_summaries"] = form.get(":summaries", summaries)


def _write_tier(request: Request, out: Object, losses: Losses) -> None:
    tier = request.params.service_tier
    if tier in _OWN_TIERS:
        out["service_tier"] = _OWN_TIERS[tier]
    elif tier is not None:
        losses.add(join("params", "service_tier"), "service_tier", "dropped", f"{LABEL} has no tier {tier!r}", "info")


def _write_output(output: OutputFormat, out: Object, losses: Losses) -> None:
    """Write the form of the answer into `out`, as it was read; a name and other options are losses."""
    form, own = output.extra.get(FORM, {}), output.extra.get(_FORMAT, {})
    if ":mime" in form:
        out["response_mime_type"] = form[":mime"]
    for name in ("response_format", "response_mime_type"):
        if name in own:
            out[name] = own[name]
            return
    if output.kind == "json_schema":
        for concept in ("name", "description", "strict"):
            if getattr(output, concept) not in (None, True):
                detail = f"{LABEL} output formats are always enforced and have no name"
                losses.add(join("output", concept), f"output {concept}", "dropped", detail, "info")
    spelling = form.get(":format")
    if spelling == "absent" and output.kind == "json":
        return
    entry: JSON = output.schema if spelling == "bare" else _write_text_format(output, form)
    if ":index" in form:
        entries = [*own.get("others", ())]
        entries.insert(form[":index"], entry)
        entry = entries
    out["response_format"] = entry


def _write_text_format(output: OutputFormat, form: Object) -> Object:
    entry: Object = {"type": "text", "mime_type": "text/plain" if output.kind == "text" else _JSON}
    if ":mime_type" in form:
        del entry["mime_type"]
    if output.kind == "json_schema":
        entry["schema"] = output.schema
    return write_extra(entry, output.extra, NAME)
