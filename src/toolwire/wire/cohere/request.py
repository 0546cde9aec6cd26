"""/v2/chat requests: the envelope around messages, and tool declarations.

    {"type": "function", "function": {"name", "description", "parameters": {"type": "object", "properties": {…}}}}

`strict_tools` is a field of the request, for all of its tools. Each tool then needs a required parameter
(docs.cohere.com/v2/docs/parameter-types-in-tool-use). A tool choice is REQUIRED or NONE; it cannot name a tool.
`documents`, `citation_options`, `safety_mode` and `priority` exist only on this wire.
"""

from __future__ import annotations

from itertools import compress
from operator import attrgetter
from typing import Any

from ...ir.errors import ProtocolError
from ...ir.losses import Losses, Severity
from ...ir.parts import Extra
from ...ir.pointer import JSON, Object, join
from ...ir.request import OutputFormat, Params, ReasoningConfig, Request
from ...ir.tools import ChoiceMode, Tool, ToolChoice
from ..codec import ConversationItems
from ..fields import (
    decode_list,
    read_boolean,
    read_extra,
    read_optional_string,
    read_string,
    report_tool_fields,
    require_object,
    type_error,
    write_builtin,
    write_extra,
)
from ..params import NO_PARAMS, as_integer, param_table, read_params, restore_spelling, write_params
from ..protocol import Encoded
from .content import FORM, NAME, with_form
from .messages import FUNCTION, read_message, write_message

_OUTER = frozenset({"type", "function"})
_INNER = frozenset({"name", "description", "parameters"})


def read_tool(raw: JSON) -> Tool:
    """Read a declaration; without `function`, it is a built-in tool and stays as it is.

    Absent parameters and another type are kept as form. Raise ProtocolError if it is invalid.
    """
    if "function" not in require_object(raw):
        return Tool(read_string(raw, "type"), kind="builtin", extra={NAME: raw})
    function = require_object(raw["function"], "function")
    parameters = function.get("parameters")
    if parameters is not None and type(parameters) is not dict:
        raise type_error("a JSON Schema object", parameters, "function", "parameters")
    try:
        name, description = read_string(function, "name"), read_optional_string(function, "description")
    except ProtocolError as error:
        raise error.within("function") from None
    form: Object = {} if raw.get("type") == "function" else {":type": raw.get("type")}
    if parameters is None:
        form[":parameters"] = "absent"  # or null, which stays in the form of the function
    extra = read_extra(function, _INNER, FUNCTION, read_extra(raw, _OUTER, NAME))
    return Tool(name, description, parameters, extra=with_form(extra, form))


_UNWRITABLE = ("output_schema", "namespace", "deferred", "examples", "grammar", "cache")
_unwritable = attrgetter(*_UNWRITABLE)


def write_tool(tool: Tool, losses: Losses, path: str) -> Object | None:
    """Write a declaration; return None and report the loss for a built-in tool of another provider.

    Fields that Cohere lacks are losses; `strict` belongs to the request.
    """
    if tool.kind == "builtin":
        return write_builtin(tool, NAME, "Cohere", losses, path)
    if any(_unwritable(tool)):
        report_tool_fields(compress(_UNWRITABLE, _unwritable(tool)), "Cohere", losses, path)
    form = tool.extra.get(FORM, {})
    function: Object = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.input_schema is not None:
        function["parameters"] = tool.input_schema
    elif ":parameters" not in form:
        function["parameters"] = {"type": "object", "properties": {}}  # required
    kind = form.get(":type", "function")
    out: Object = {} if kind is None else {"type": kind}
    out["function"] = write_extra(function, tool.extra, FUNCTION)
    return write_extra(out, tool.extra, NAME)


_SAMPLING = param_table(
    "temperature max_tokens seed frequency_penalty presence_penalty logprobs",
    p="top_p",
    k="top_k",
    stop_sequences="stop",
)
_KEYS = {row.param: key for key, row in _SAMPLING.items()}
_KNOWN = frozenset(_SAMPLING) | {
    "model", "messages", "tools", "tool_choice", "strict_tools", "stream", "response_format", "thinking"
}  # fmt: skip
_CHOICES: dict[str, ChoiceMode] = {"REQUIRED": "required", "NONE": "none"}
_MODES = {mode: word for word, mode in _CHOICES.items()}


def decode_request(body: Object) -> Request:
    """Decode a request; raise ProtocolError if it is invalid."""
    if type(require_object(body).get("messages")) is not list:
        raise ProtocolError("expected an array of messages", pointer="/messages")
    messages = tuple(decode_list(body, "messages", read_message))
    extra = read_extra(body, _KNOWN, NAME)
    params: dict[str, Any] = {}
    if spelled := read_params(body, _SAMPLING, params):
        with_form(extra, {":spelled": spelled})
    tools = _read_strict(body, tuple(decode_list(body, "tools", read_tool)), extra)
    return Request(
        read_optional_string(body, "model") or "",
        messages,
        tools,
        _read_choice(body.get("tool_choice")),
        params=Params(**params) if params else NO_PARAMS,
        reasoning=_read_thinking(body.get("thinking"), extra),
        output=_read_format(body.get("response_format")),
        stream=read_boolean(body, "stream"),
        extra=extra,
    )


def _read_strict(body: Object, tools: tuple[Tool, ...], extra: Extra) -> tuple[Tool, ...]:
    """Return the tools with the strictness of the request, which without functions is kept as a field of this wire."""
    strict = read_boolean(body, "strict_tools")
    if strict is None:
        return tools
    if not any(tool.kind == "function" for tool in tools):
        extra.setdefault(NAME, {})["strict_tools"] = strict
        return tools
    with_form(extra, {":strict_tools": strict})
    return tuple([_with_strict(tool, strict) if tool.kind == "function" else tool for tool in tools])


def _with_strict(tool: Tool, strict: bool) -> Tool:
    return Tool(tool.name, tool.description, tool.input_schema, strict=strict, extra=tool.extra)


def _read_choice(value: JSON) -> ToolChoice | None:
    """Read `tool_choice`; any case is accepted. Raise ProtocolError for another value."""
    if value is None:
        return None
    mode = _CHOICES.get(value.upper()) if type(value) is str else None
    if mode is None:
        raise ProtocolError(f'expected "REQUIRED" or "NONE", got {value!r:.100}', pointer="/tool_choice")
    return ToolChoice(mode, extra={} if value in _CHOICES else {FORM: {":choice": value}})


def _read_thinking(value: JSON, extra: Extra) -> ReasoningConfig | None:
    """Read `thinking`, which is always shown if it is enabled; a type that no other wire has is kept in `extra`.

    Raise ProtocolError if it is no object, or if its budget is no integer.
    """
    if value is None:
        return None
    kind = require_object(value, "thinking").get("type")
    if kind != "enabled" and kind != "disabled":
        extra.setdefault(NAME, {})["thinking"] = value
        return None
    spelled: Object = {}
    try:
        budget = as_integer(value, "token_budget", spelled)
    except ProtocolError as error:
        raise error.within("thinking") from None
    own = read_extra(value, ("type", "token_budget"), NAME)
    own = with_form(own, {":spelled": spelled} if spelled else {})
    if kind == "disabled":
        return ReasoningConfig("off", budget=budget, extra=own)
    return ReasoningConfig("auto" if budget is None else "budget", budget=budget, visible=True, extra=own)


def _read_format(value: JSON) -> OutputFormat | None:
    """Read `response_format`, or None; a type that no other wire has is kept whole in `extra`."""
    if value is None:
        return None
    kind = require_object(value, "response_format").get("type")
    key = "schema" if "schema" in value and "json_schema" not in value else "json_schema"  # the older name
    if kind == "json_object" and type(value.get(key)) is dict:
        own = with_form(read_extra(value, ("type", key), NAME), {":schema": key} if key == "schema" else {})
        return OutputFormat("json_schema", value[key], strict=True, extra=own)
    if kind == "text" or kind == "json_object":
        return OutputFormat("text" if kind == "text" else "json", extra=read_extra(value, ("type",), NAME))
    return OutputFormat("text", extra={f"{NAME}/response_format": value})


def encode_request(request: Request, items: ConversationItems | None = None) -> Encoded:
    """Encode a request; `items` may have the text of the first messages."""
    losses = Losses()
    items = items or ConversationItems()
    out: Object = {"model": request.model} if request.model else {}
    for index, message in items.unwritten(request.messages, losses):
        write_message(message, f"/messages/{index}", items.written, losses)
    out["messages"] = items.written
    written = [write_tool(tool, losses, f"/tools/{index}") for index, tool in enumerate(request.tools)]
    if tools := [tool for tool in written if tool is not None]:
        out["tools"] = tools
        _write_strict(request, out, losses)
    _write_choice(request, out, losses)
    write_params(request.params, _KEYS, out, NAME, losses)
    restore_spelling(out, request.extra.get(FORM, {}))
    if request.reasoning is not None:
        _write_thinking(request.reasoning, out, losses)
    if request.output is not None:
        out["response_format"] = _write_format(request.output, losses)
    if request.stream is not None:
        out["stream"] = request.stream
    return Encoded(write_extra(out, request.extra, NAME), losses)


def _write_strict(request: Request, out: Object, losses: Losses) -> None:
    """Write `strict_tools` if all functions agree, and if all have a required parameter when they are strict.

    Otherwise the strictness of single tools is a loss.
    """
    functions = [(index, tool) for index, tool in enumerate(request.tools) if tool.kind != "builtin"]
    wanted = {tool.strict for _, tool in functions}
    is_own = ":strict_tools" in request.extra.get(FORM, {})
    if len(wanted) == 1 and None not in wanted and (is_own or wanted == {False} or _may_be_strict(request.tools)):
        out["strict_tools"] = functions[0][1].strict
        return
    for index, tool in functions:
        if tool.strict:
            detail = "Cohere's tools are all strict or none, and strict ones need a required parameter"
            losses.add(join("tools", index, "strict"), "strict", "dropped", detail)


def _may_be_strict(tools: tuple[Tool, ...]) -> bool:
    return all((tool.input_schema or {}).get("required") for tool in tools if tool.kind != "builtin")


def _write_choice(request: Request, out: Object, losses: Losses) -> None:
    """Write `tool_choice`; auto is its absence, and a choice that names tools is a loss."""
    if request.parallel is False:
        losses.add(join("parallel"), "one call at a time", "dropped", "Cohere has no setting for parallel calls")
    choice = request.choice
    if choice is None or choice.mode == "auto":
        return
    mode: str = choice.mode
    if mode not in _MODES:
        mode = "required" if choice.forces_call else "auto"
        severity: Severity = "warning" if choice.mode == "validated" else "error"
        detail = f"Cohere's tool choice cannot name tools; sent as {mode}"
        losses.add(join("choice"), f"tool choice {choice.mode}", "weakened", detail, severity)
    if mode in _MODES:
        out["tool_choice"] = choice.extra.get(FORM, {}).get(":choice", _MODES[mode])


def _write_thinking(reasoning: ReasoningConfig, out: Object, losses: Losses) -> None:
    """Write `thinking`, and report an effort or a visibility that it cannot express."""
    if reasoning.effort is not None:
        detail = "Cohere accepts a token budget, not an effort level"
        losses.add(join("reasoning", "effort"), "effort", "dropped", detail)
    is_on = reasoning.mode in ("auto", "budget") or (reasoning.mode is None and reasoning.budget is not None)
    if reasoning.visible is not None and reasoning.visible is not is_on:
        concept = "visible reasoning" if reasoning.visible else "hidden reasoning"
        detail = "Cohere shows thinking whenever it is enabled"
        losses.add(join("reasoning", "visible"), concept, "dropped", detail, "info")
    if not is_on and reasoning.mode != "off":
        return
    thinking: Object = {"type": "enabled" if is_on else "disabled"}
    if reasoning.budget is not None:
        thinking["token_budget"] = reasoning.budget
    restore_spelling(thinking, reasoning.extra.get(FORM, {}))
    out["thinking"] = write_extra(thinking, reasoning.extra, NAME)


def _write_format(output: OutputFormat, losses: Losses) -> Object:
    """Return `response_format`; a schema that is not an object becomes plain JSON mode; name and strictness are losses."""
    if own := output.extra.get(f"{NAME}/response_format"):
        return own
    out: Object = {"type": "text" if output.kind == "text" else "json_object"}
    if output.kind == "json_schema":
        if type(output.schema) is dict:
            out[output.extra.get(FORM, {}).get(":schema", "json_schema")] = output.schema
        else:
            detail = "it is not an object; any JSON object is accepted"
            losses.add(join("output", "schema"), "schema of the answer", "weakened", detail)
        for concept in ("name", "description", "strict"):
            if getattr(output, concept) not in (None, True):
                detail = "Cohere output schemas are always enforced and have no name"
                losses.add(join("output", concept), f"{concept} of the answer", "dropped", detail, "info")
    return write_extra(out, output.extra, NAME)
