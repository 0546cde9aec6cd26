"""/api/chat requests: the envelope around messages, and tool declarations.

    {"type": "function", "function": {"name", "description", "parameters": {"type": "object", "properties": {…}}}}

There is no tool choice: to forbid calls, a request declares no tools, and a call cannot be forced.
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
from ...ir.tools import Tool
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
from ..params import NO_PARAMS, param_table, read_params, restore_spelling, write_params
from ..protocol import Encoded
from .messages import FORM, NAME, read_message, write_message

_FUNCTION = "ollama/function"
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
    extra = read_extra(function, _INNER, _FUNCTION, read_extra(raw, _OUTER, NAME))
    form: Object = {} if raw.get("type") == "function" else {":type": raw.get("type")}
    if parameters is None:
        form[":parameters"] = "absent"  # or null, which stays in the form of the function
    if form:
        extra[FORM] = {**extra.get(FORM, {}), **form}
    return Tool(name, description, parameters, extra=extra)


_UNWRITABLE = ("output_schema", "strict", "namespace", "deferred", "examples", "grammar", "cache")
_unwritable = attrgetter(*_UNWRITABLE)


def write_tool(tool: Tool, losses: Losses, path: str) -> Object | None:
    """Write a declaration; return None and report the loss for a built-in tool of another provider.

    Fields that Ollama lacks are losses.
    """
    if tool.kind == "builtin":
        return write_builtin(tool, NAME, "Ollama", losses, path)
    if any(_unwritable(tool)):
        report_tool_fields(compress(_UNWRITABLE, _unwritable(tool)), "Ollama", losses, path)
    form = tool.extra.get(FORM, {})
    function: Object = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.input_schema is not None:
        function["parameters"] = tool.input_schema
    elif ":parameters" not in form:
        function["parameters"] = {"type": "object", "properties": {}}  # chat templates of models read it
    kind = form.get(":type", "function")
    out: Object = {} if kind is None else {"type": kind}
    out["function"] = write_extra(function, tool.extra, _FUNCTION)
    return write_extra(out, tool.extra, NAME)


def write_tools(request: Request, losses: Losses) -> list[Object]:
    """Return the declarations of a request: none if the tool choice forbids calls. Any other choice is a loss."""
    if request.parallel is False:
        losses.add(join("parallel"), "one call at a time", "dropped", "Ollama has no setting for parallel calls")
    mode = "auto" if request.choice is None else request.choice.mode
    if mode == "none":
        losses.add(join("choice"), "tool choice none", "rewritten", "no tools are declared", "info")
        for index in range(len(request.tools)):
            losses.add(join("tools", index), "tool", "dropped", "tool choice none forbids calls", "info")
        return []
    if mode != "auto":
        severity: Severity = "warning" if mode == "validated" else "error"
        losses.add(join("choice"), f"tool choice {mode}", "dropped", "Ollama has no tool choice", severity)
    written = [write_tool(tool, losses, f"/tools/{index}") for index, tool in enumerate(request.tools)]
    return [tool for tool in written if tool is not None]


# Sampling parameters are in `options`. A request streams unless it has `"stream": false`, so `stream` is written even
# if other wires leave it out.


_OPTIONS = "ollama/options"
_SAMPLING = param_table(
    "temperature top_p top_k stop seed presence_penalty frequency_penalty", num_predict="max_tokens"
)
_TOP_LEVEL_PARAMS = param_table("logprobs top_logprobs")
_KEYS = {row.param: key for key, row in (_SAMPLING | _TOP_LEVEL_PARAMS).items()}
_KNOWN = frozenset(_TOP_LEVEL_PARAMS) | {"model", "messages", "tools", "stream", "format", "options", "think"}


def decode_request(body: Object) -> Request:
    """Decode a request; raise ProtocolError if it is invalid.

    Without `stream` it is a streaming request, which is the server's default.
    """
    if type(require_object(body).get("messages")) is not list:
        raise ProtocolError("expected an array of messages", pointer="/messages")
    messages = tuple(decode_list(body, "messages", read_message))
    tools = tuple(decode_list(body, "tools", read_tool))
    extra = read_extra(body, _KNOWN, NAME)
    params = _read_params(body, extra)
    stream = read_boolean(body, "stream")
    if "stream" not in body:
        extra[FORM] = {**extra.get(FORM, {}), ":stream": "absent"}
    return Request(
        read_optional_string(body, "model") or "",
        messages,
        tools,
        params=Params(**params) if params else NO_PARAMS,
        reasoning=_read_think(body.get("think")),
        output=_read_format(body.get("format")),
        stream=True if stream is None else stream,
        extra=extra,
    )


def _read_params(body: Object, extra: Extra) -> dict[str, Any]:
    """Return the parameters at the top level and in `options`; other options and spellings go into `extra`.

    A negative token limit is kept only for this wire. Raise ProtocolError if one is invalid.
    """
    params: dict[str, Any] = {}
    spelled = read_params(body, _TOP_LEVEL_PARAMS, params)
    options = body.get("options")
    if options is None:
        _keep_spelling(spelled, extra)
        return params
    known = set(_SAMPLING)
    limit = require_object(options, "options").get("num_predict")
    if type(limit) is int and limit < 0:  # -1 means no limit; a negative limit has no canonical form
        known.remove("num_predict")
        options = {key: value for key, value in options.items() if key != "num_predict"}
    try:
        spelled |= read_params(options, _SAMPLING, params)
    except ProtocolError as error:
        raise error.within("options") from None
    read_extra(body["options"], known, _OPTIONS, extra)
    _keep_spelling(spelled, extra)
    return params


def _keep_spelling(spelled: Object, extra: Extra) -> None:
    if spelled:
        extra[FORM] = {**extra.get(FORM, {}), ":spelled": spelled}


def _read_think(value: JSON) -> ReasoningConfig | None:
    """Read `think`: a boolean, or an effort level. Thinking is always shown if it is enabled.

    Raise ProtocolError for another type.
    """
    if value is None or value == "":
        return None
    if type(value) is bool:
        return ReasoningConfig("auto", visible=True) if value else ReasoningConfig("off")
    if type(value) is str:
        return ReasoningConfig("auto", value, visible=True)
    raise type_error("a boolean or a string", value, "think")


def _read_format(value: JSON) -> OutputFormat | None:
    """Read `format`: the string `json`, or a JSON Schema. Raise ProtocolError for any other value."""
    if value is None or value == "":
        return None
    if value == "json":
        return OutputFormat("json")
    if type(value) is dict:
        return OutputFormat("json_schema", value, strict=True)
    raise type_error('"json" or a JSON Schema', value, "format")


def encode_request(request: Request, items: ConversationItems | None = None) -> Encoded:
    """Encode a request; `stream` is left out only if the request streams and was read without it.

    `items` may have the text of the first messages.
    """
    losses = Losses()
    items = items or ConversationItems()
    out: Object = {"model": request.model} if request.model else {}
    for index, message in items.unwritten(request.messages, losses):
        write_message(message, f"/messages/{index}", items.written, losses)
    out["messages"] = items.written
    if tools := write_tools(request, losses):
        out["tools"] = tools
    if request.reasoning is not None:
        _write_think(request.reasoning, out, losses)
    if request.output is not None:
        _write_format(request.output, out, losses)
    _write_params(request, out, losses)
    form = request.extra.get(FORM, {})
    if not request.stream or not (":stream" in form or form.get("stream", 0) is None):
        out["stream"] = bool(request.stream)
    return Encoded(write_extra(out, request.extra, NAME), losses)


def _write_params(request: Request, out: Object, losses: Losses) -> None:
    """Write the parameters into `options` of `out`, except for the two that belong to the top level.

    Parameters that Ollama lacks are losses.
    """
    options: Object = {}
    write_params(request.params, _KEYS, options, NAME, losses)
    restore_spelling(options, request.extra.get(FORM, {}))
    for key in _TOP_LEVEL_PARAMS:
        if key in options:
            out[key] = options.pop(key)
    if "top_logprobs" in out and "logprobs" not in out:
        out["logprobs"] = True  # the server ignores top_logprobs without it
    if options := write_extra(options, request.extra, _OPTIONS):
        out["options"] = options


def _write_think(reasoning: ReasoningConfig, out: Object, losses: Losses) -> None:
    """Write `think`, and report a token budget or a visibility that it cannot express."""
    if reasoning.budget is not None:
        losses.add(
            join("reasoning", "budget"),
            "thinking budget",
            "dropped",
            "Ollama accepts an effort level, not a token budget",
        )
    if reasoning.mode == "off":
        out["think"] = False
    elif reasoning.effort is not None:
        out["think"] = reasoning.effort
    elif reasoning.mode is not None:
        out["think"] = True
    if reasoning.visible is False and out.get("think"):
        detail = "Ollama shows thinking whenever it is enabled"
        losses.add(join("reasoning", "visible"), "hidden reasoning", "dropped", detail, "info")
    if reasoning.visible and "think" not in out:  # a model without thinking rejects a request that enables it
        detail = "Ollama shows thinking whenever it is enabled"
        losses.add(join("reasoning", "visible"), "visible reasoning", "dropped", detail, "info")


def _write_format(output: OutputFormat, out: Object, losses: Losses) -> None:
    """Write `format`; a schema that is not an object becomes plain JSON mode; name and strictness are losses."""
    if output.kind == "json":
        out["format"] = "json"
    elif output.kind == "json_schema":
        out["format"] = output.schema if type(output.schema) is dict else "json"
        if type(output.schema) is not dict:
            losses.add(
                join("output", "schema"),
                "schema of the answer",
                "weakened",
                "it is not an object; any JSON is accepted",
            )
    for concept in ("name", "description", "strict"):
        if getattr(output, concept) not in (None, True):
            detail = "Ollama output schemas are always enforced and have no name"
            losses.add(join("output", concept), f"{concept} of the answer", "dropped", detail, "info")
