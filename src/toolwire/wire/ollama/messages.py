"""Ollama messages.

    {"role": "assistant", "content": "", "thinking": "…",
     "tool_calls": [{"id", "function": {"index", "name", "arguments": {…}}}]}
    {"role": "tool", "content": "22°C", "tool_name": "get_temperature", "tool_call_id": "call_1"}

Each message is one `Message`, in order; a `tool` message is a user message with one ToolResult. Arguments are objects.
Older servers and clients send no ids; results are then matched to calls by name and order.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.errors import ProtocolError
from ...ir.losses import Losses
from ...ir.parts import CallState, Extra, Media, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from ...ir.pointer import JSON, Object
from ...ir.request import Message, Role
from ...stream.strict import parse_arguments
from ..fields import (
    decode_list,
    is_empty,
    odd_values,
    read_extra,
    read_label,
    read_optional_string,
    read_string,
    require_object,
    write_extra,
)
from ..search_codec import report_search_call
from ..structured_results import result_parts
from .content import FORM, NAME, LocatedPart, read_content, reasoning_text, report_order, write_content

__all__ = [
    "THINKING_FORM",
    "read_assistant",
    "read_call",
    "read_message",
    "write_assistant",
    "write_call",
    "write_message",
]

_FUNCTION = "ollama/function"
_PLAIN = frozenset({"role", "content", "images"})
_ASSISTANT = _PLAIN | {"thinking", "tool_calls"}
_RESULT = _PLAIN | {"tool_name", "tool_call_id"}
_CALL = frozenset({"id", "type", "function"})
_INNER = frozenset({"index", "name", "arguments"})
_FUNCTION_TYPES = {"arguments": (dict,)}
_CALL_TYPES = {"id": (str,)}
_ROLES: dict[str, Role] = {"system": "system", "user": "user"}
THINKING_FORM: Extra = {FORM: {":field": "thinking"}}
"""Mark of reasoning that comes from this wire, so that it is sent back with the history."""


def read_message(raw: JSON) -> Message:
    """Read a message of a request; the role is compared without case, and its spelling is recorded as form."""
    word = read_string(require_object(raw), "role")
    role = word.lower()  # the server does the same
    form: Object = {} if role == word else {":role": word}
    if role == "assistant":
        return read_assistant(raw, form)
    if role == "tool":
        return Message("user", (_read_result(raw, form),))
    if role not in _ROLES:
        raise ProtocolError(f"unknown role {word!r}", pointer="/role", hint="use system, user, assistant or tool")
    parts = read_content(raw, form)
    extra = read_extra(raw, _PLAIN, NAME) if len(raw) > 2 or not parts else {}
    return Message(_ROLES[role], tuple(parts), _with_form(extra, form))


def _with_form(extra: Extra, form: Object) -> Extra:
    if form:
        extra[FORM] = {**extra.get(FORM, {}), **form}
    return extra


def read_assistant(raw: Object, form: Object) -> Message:
    """Read an assistant message of a request or a response."""
    spoken = read_content(raw, form)
    text = read_optional_string(raw, "thinking")
    reasoning: list[Part] = [Reasoning(text, extra=THINKING_FORM)] if text else []
    calls = decode_list(raw, "tool_calls", read_call)
    return Message("assistant", (*reasoning, *spoken, *calls), _with_form(read_extra(raw, _ASSISTANT, NAME), form))


def read_call(raw: JSON) -> ToolCall:
    """Read a call; its index, its type and absent arguments are recorded as form."""
    function = require_object(require_object(raw).get("function"), "function")
    value = function.get("arguments")
    arguments: Object | None = {}
    raw_text: str | None = None
    state: CallState = "complete"
    try:
        name = read_string(function, "name")
        if type(value) is str:  # some models write text (openclaw/openclaw#57455)
            arguments, state = parse_arguments(value)
            raw_text = None if state == "complete" else value
        elif not is_empty(value):
            arguments = require_object(value, "arguments")
    except ProtocolError as error:
        raise error.within("function") from None
    form: Object = {":index": function.get("index")}
    if "type" in raw:
        form[":type"] = raw["type"]
    if function.get("arguments") is None:
        form[":arguments"] = "absent"  # or null, which stays in the form of the function
    extra = read_extra(function, _INNER, _FUNCTION, read_extra(raw, _CALL, NAME))
    extra |= odd_values(function, _FUNCTION_TYPES, _FUNCTION) | odd_values(raw, _CALL_TYPES, NAME)
    return ToolCall(read_label(raw, "id"), name, arguments, raw_text, state, extra=_with_form(extra, form))


def _read_result(raw: Object, form: Object) -> ToolResult:
    """Read a `tool` message as a result; older clients send the name of the tool as `name`, not `tool_name`."""
    name = read_optional_string(raw, "tool_name")
    known = _RESULT
    if name is None and type(raw.get("name")) is str:  # older clients, from before `tool_name` existed
        name, known = raw["name"], _RESULT | {"name"}
        form[":name"] = "name"
    parts = [part for part in read_content(raw, form) if isinstance(part, (Text, Media))]
    extra = _with_form(read_extra(raw, known, NAME), form)
    return ToolResult(read_optional_string(raw, "tool_call_id") or "", name, tuple(parts), extra=extra)


def write_message(message: Message, path: str, out: list[Object], losses: Losses) -> None:
    """Append a message to `out`; each result in a user message becomes a `tool` message of its own."""
    if message.role == "assistant":
        placed = [(f"{path}/parts/{number}", part) for number, part in enumerate(message.parts)]
        out.append(write_assistant(placed, message.extra, losses, "\n\n"))
        return
    rest: list[LocatedPart] = []
    for number, part in enumerate(message.parts):
        where = f"{path}/parts/{number}"
        if isinstance(part, ToolResult):
            out.append(_write_result(part, losses, where))
        elif isinstance(part, (ToolCall, Reasoning)):
            what = "call" if isinstance(part, ToolCall) else "reasoning"
            losses.add(where, what, "dropped", "only assistant messages have this part", "error")
        else:
            rest.append((where, part))
    if rest or not message.parts:
        form = message.extra.get(FORM, {})
        report_order(rest, losses)
        role = form.get(":role", "user" if message.role == "user" else "system")
        out.append(write_extra({"role": role, **write_content(rest, form, losses, "\n\n")}, message.extra, NAME))


def _write_result(result: ToolResult, losses: Losses, path: str) -> Object:
    """Write a result as a `tool` message; the error flag has no field here and is reported."""
    form = result.extra.get(FORM, {})
    if result.is_error:
        losses.add(f"{path}/is_error", "is_error", "dropped", "Ollama results have no error flag", "error")
    if result.cache is not None:
        losses.add(f"{path}/cache", "cache", "dropped", "Ollama has no cache marks", "info")
    said: Sequence[Text | Media | Opaque] = result_parts(result, path, losses)
    parts: list[LocatedPart] = [(f"{path}/parts/{number}", part) for number, part in enumerate(said)]
    report_order(parts, losses)
    out: Object = {"role": form.get(":role", "tool"), **write_content(parts, form, losses, "\n\n")}
    if result.name is not None:
        out[form.get(":name", "tool_name")] = result.name
    if result.call_id:
        out["tool_call_id"] = result.call_id
    return write_extra(out, result.extra, NAME)


def write_assistant(
    parts: Sequence[LocatedPart], extra: Extra, losses: Losses, joint: str, *, numbered: bool = False
) -> Object:
    """Write an assistant message. `numbered` adds an index to each call, as the server does."""
    report_order(parts, losses)
    content: list[LocatedPart] = []
    reasoning: list[str] = []
    calls: list[Object] = []
    for where, part in parts:
        if isinstance(part, ToolCall):
            calls.append(write_call(part, losses, where, len(calls) if numbered else None))
        elif isinstance(part, Reasoning):
            if text := reasoning_text(part, where, losses):
                reasoning.append(text)
        elif isinstance(part, ToolResult):
            losses.add(where, "result", "dropped", "assistant messages have no tool results", "error")
        else:
            content.append((where, part))
    form = extra.get(FORM, {})
    out: Object = {"role": form.get(":role", "assistant"), **write_content(content, form, losses, joint)}
    if reasoning:
        out["thinking"] = "\n\n".join(reasoning)
    if calls:
        out["tool_calls"] = calls
    return write_extra(out, extra, NAME)


def write_call(call: ToolCall, losses: Losses, path: str, number: int | None) -> Object:
    """Write a call; `number` is its index, unless it was read with another one (form `:index`)."""
    if call.namespace is not None:
        losses.add(f"{path}/namespace", "namespace", "dropped", "Ollama calls have no namespace")
    report_search_call(call, path, losses)
    if call.artefacts:
        losses.add(f"{path}/artefacts", "artefact", "dropped", "Ollama has no field for it")
    if call.cache is not None:
        losses.add(f"{path}/cache", "cache", "dropped", "Ollama has no cache marks", "info")
    form = call.extra.get(FORM, {})
    index = form.get(":index", number)
    function: Object = {} if index is None else {"index": index}
    function["name"] = call.name
    arguments = call.arguments if call.arguments is not None else _placeholder_arguments(call, losses, path)
    if arguments or ":arguments" not in form:
        function["arguments"] = arguments
    out: Object = {"id": call.id} if call.id else {}
    if ":type" in form:
        out["type"] = form[":type"]
    out["function"] = write_extra(function, call.extra, _FUNCTION)
    return write_extra(out, call.extra, NAME)


def _placeholder_arguments(call: ToolCall, losses: Losses, path: str) -> Object:
    """Return substitute arguments for a call whose arguments are not an object."""
    if call.kind == "freeform":
        losses.add(path, "freeform call", "rewritten", "sent as a call with one argument, `input`", "info")
        return {"input": call.raw or ""}
    detail = "not a JSON object; sent as text under `raw_arguments`"
    losses.add(f"{path}/arguments", "arguments", "rewritten", detail)
    return {"raw_arguments": call.raw or ""}
