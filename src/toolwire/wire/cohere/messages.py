"""Cohere messages: text, plans, calls and results.

    {"role": "assistant", "content": [{"type": "thinking", …}, {"type": "text", …}], "citations": […],
     "tool_plan": "I will look it up.",
     "tool_calls": [{"id", "type": "function", "function": {"name", "arguments": "{…}"}}]}
    {"role": "tool", "tool_call_id": "…", "content": "22°C"}

`tool_plan` is the text before calls. It is read as a text with a form of its own (`:place`), so that it is written back
into its field and is ordinary text on other wires. In a history of another wire, the text of a message with calls becomes
the plan: the chat templates of Cohere's models show `tool_plan` and not `content` in such a message
(CohereLabs/c4ai-command-r7b-12-2024, chat_template.json). Content, plan and calls are separate fields, so their relative
order is fixed. Each message is one `Message`; a `tool` message is a user message with one ToolResult.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.errors import ProtocolError
from ...ir.losses import Losses
from ...ir.parts import CallState, Extra, Media, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from ...ir.pointer import JSON, Object
from ...ir.request import Message, Role
from ...ir.text import dumps
from ...stream.strict import parse_arguments
from ..codec import report_search_call
from ..content import placeholder_arguments, result_parts
from ..fields import (
    decode_list,
    odd_values,
    read_extra,
    read_label,
    read_optional_string,
    read_string,
    require_object,
    type_error,
    write_extra,
)
from .content import (
    FORM,
    NAME,
    is_plain_text,
    read_content,
    read_part,
    read_result_part,
    read_spoken_part,
    report_text,
    with_form,
    write_content,
    write_parts,
)

FUNCTION = "cohere/function"
PLAN: Extra = {FORM: {":place": "tool_plan"}}
"""The extra of a text that is a plan."""
_PLAIN = frozenset({"role", "content"})
_ASSISTANT = _PLAIN | {"tool_plan", "tool_calls"}
_RESULT = _PLAIN | {"tool_call_id"}
CALL = frozenset({"id", "type", "function"})
CALL_FUNCTION = frozenset({"name", "arguments"})
_CALL_TYPES = {"id": (str,)}
_ROLES: dict[str, Role] = {"system": "system", "user": "user"}


def read_message(raw: JSON) -> Message:
    """Read a message of a request; raise ProtocolError if it is invalid or has an unknown role."""
    role = read_string(require_object(raw), "role")
    form: Object = {}
    if role == "assistant":
        return read_assistant(raw)
    if role == "tool":
        return Message("user", (_read_result(raw, form),))
    if role not in _ROLES:
        raise ProtocolError(f"unknown role {role!r}", pointer="/role", hint="use system, user, assistant or tool")
    parts = read_content(raw, form, read_part)
    extra = read_extra(raw, _PLAIN, NAME) if len(raw) > 2 or not parts else {}
    return Message(_ROLES[role], tuple(parts), with_form(extra, form))


def read_assistant(raw: Object) -> Message:
    """Read an assistant message of a request or a response."""
    form: Object = {}
    content = read_content(raw, form, read_spoken_part)
    form.pop(":content", None)
    if content:
        form[":content"] = "string" if type(raw["content"]) is str else "list"
    plan = read_optional_string(raw, "tool_plan")
    plans = [Text(plan, extra=PLAN)] if plan else []
    calls = decode_list(raw, "tool_calls", read_call)
    extra = read_extra(raw, _ASSISTANT, NAME)
    return Message("assistant", (*content, *plans, *calls), with_form(extra, form))


def read_call(raw: JSON) -> ToolCall:
    """Read a call; absent fields, and arguments that are no text, are recorded as form.

    Raise ProtocolError if the call is invalid.
    """
    function = require_object(require_object(raw).get("function"), "function")
    try:
        name = read_string(function, "name")
        arguments, text, state = _read_arguments(function)
    except ProtocolError as error:
        raise error.within("function") from None
    form: Object = {}
    if raw.get("type") != "function":
        form[":type"] = raw.get("type")
    if "id" not in raw:
        form[":id"] = "absent"
    if type(function.get("arguments")) is not str:
        form[":arguments"] = "object" if function.get("arguments") else "absent"
    extra = read_extra(function, CALL_FUNCTION, FUNCTION, read_extra(raw, CALL, NAME))
    extra |= odd_values(raw, _CALL_TYPES, NAME)
    return ToolCall(read_label(raw, "id"), name, arguments, text, state, extra=with_form(extra, form))


def _read_arguments(function: Object) -> tuple[Object | None, str | None, CallState]:
    """Return (arguments, original text, state); an object in place of the text is accepted.

    Raise ProtocolError for any other value.
    """
    value = function.get("arguments")
    if type(value) is str:
        arguments, state = parse_arguments(value)
        return arguments, value, state
    if value is None:
        return {}, "", "complete"
    if type(value) is dict:
        return value, None, "complete"
    raise type_error("a string", value, "arguments")


def _read_result(raw: Object, form: Object) -> ToolResult:
    call_id = read_optional_string(raw, "tool_call_id")
    if call_id is None:
        form[":id"] = "absent"
    parts = [part for part in read_content(raw, form, read_result_part) if not isinstance(part, (Reasoning, Refusal))]
    extra = with_form(read_extra(raw, _RESULT, NAME), form)
    return ToolResult(call_id or "", None, tuple(parts), extra=extra)  # type: ignore[arg-type]


def write_message(message: Message, path: str, out: list[JSON], losses: Losses) -> None:
    """Append a message to `out`; each result in a user message becomes a `tool` message of its own.

    Calls and reasoning outside of assistant messages are losses. An assistant message of which nothing can be
    written is left out.
    """
    if message.role == "assistant":
        located = [(f"{path}/parts/{number}", part) for number, part in enumerate(message.parts)]
        written = write_assistant(located, message.extra, losses, is_answer=False)
        if len(written) > 1 or not message.parts:
            out.append(written)
        return
    content: list[tuple[str, Part]] = []
    for number, part in enumerate(message.parts):
        where = f"{path}/parts/{number}"
        if isinstance(part, ToolResult):
            out.append(_write_result(part, where, losses))
        elif isinstance(part, (ToolCall, Reasoning)):
            concept = "call" if isinstance(part, ToolCall) else "reasoning"
            losses.add(where, concept, "dropped", "only assistant messages have this part", "error")
        else:
            content.append((where, part))
    if content or not message.parts:
        form = message.extra.get(FORM, {})
        role = "user" if message.role == "user" else "system"
        out.append(write_extra({"role": role, **write_content(content, form, losses)}, message.extra, NAME))


def _write_result(result: ToolResult, path: str, losses: Losses) -> Object:
    """Write a result as a `tool` message; the error flag and a cache mark have no field here and are reported."""
    form = result.extra.get(FORM, {})
    if result.is_error:
        losses.add(f"{path}/is_error", "is_error", "dropped", "Cohere results have no error flag", "error")
    if result.cache is not None:
        losses.add(f"{path}/cache", "cache", "dropped", "Cohere has no cache marks", "info")
    parts = result_parts(result, path, losses)
    located: list[tuple[str, Part]] = [(f"{path}/parts/{number}", part) for number, part in enumerate(parts)]
    out: Object = {"role": "tool"}
    if result.call_id or ":id" not in form:
        out["tool_call_id"] = result.call_id
    out.update(write_content(located, form, losses, is_result=True))
    return write_extra(out, result.extra, NAME)


def write_assistant(parts: Sequence[tuple[str, Part]], extra: Extra, losses: Losses, *, is_answer: bool) -> Object:
    """Write an assistant message; a result in it, and a changed order of its parts, are losses.

    The content of an answer is always a list. Text before calls is the plan, except in answers, where a stream cannot
    know whether a call follows, and in messages that had it in their content.
    """
    form = extra.get(FORM, {})
    has_calls = any(isinstance(part, ToolCall) for _, part in parts)
    plans_text = has_calls and not is_answer and ":content" not in form
    content: list[tuple[str, Part]] = []
    plans: list[tuple[str, Part]] = []
    calls: list[Object] = []
    for path, part in parts:
        if isinstance(part, ToolCall):
            calls.append(write_call(part, path, losses))
        elif isinstance(part, ToolResult):
            losses.add(path, "result", "dropped", "assistant messages have no tool results", "error")
        elif isinstance(part, Media):
            losses.add(path, part.kind, "dropped", "Cohere answers have no element for it", "error")
        else:
            is_plan = is_in_plan(part) or (plans_text and isinstance(part, (Text, Refusal)))
            if calls or (plans and not is_plan):
                detail = "Cohere has a fixed order: content, plan, calls"
                losses.add(path, "order of text and calls", "moved", detail, "info" if is_answer else "warning")
            (plans if is_plan else content).append((path, part))
    out: Object = {"role": "assistant"}
    if content:
        out.update(_write_spoken(content, form, losses, is_answer=is_answer))
    if plan := _write_plan(plans, losses):
        out["tool_plan"] = plan
    if calls:
        out["tool_calls"] = calls
    return write_extra(out, extra, NAME)


def is_in_plan(part: Part) -> bool:
    """Return whether a part was read from `tool_plan`."""
    return isinstance(part, Text) and ":place" in part.extra.get(FORM, {})


def _write_spoken(parts: Sequence[tuple[str, Part]], form: Object, losses: Losses, *, is_answer: bool) -> Object:
    """Return the field `content` of an assistant message, or no field if nothing of it can be written."""
    written = write_parts(parts, losses)
    kind = form.get(":content", "list" if is_answer else "string")
    if len(written) == 1 and kind == "string" and is_plain_text(written[0]):
        return {"content": written[0]["text"]}
    return {"content": written} if written else {}


def _write_plan(plans: Sequence[tuple[str, Part]], losses: Losses) -> str:
    """Join texts to a plan, which is one string; several of them, and empty ones, are losses."""
    texts: list[str] = []
    for path, part in plans:
        assert isinstance(part, (Text, Refusal))
        report_text(part, path, losses)
        if not part.text:
            losses.add(path, "text", "dropped", "it has no text", "info")
        elif len(plans) > 1:
            losses.add(path, "text", "rewritten", "joined, because a plan is one string", "info")
        texts += [part.text] if part.text else []
    return "\n\n".join(texts)


def write_call(call: ToolCall, path: str, losses: Losses) -> Object:
    """Write a call; fields that Cohere lacks are losses."""
    report_call(call, path, losses)
    form = call.extra.get(FORM, {})
    function: Object = {"name": call.name}
    if call.kind == "freeform":
        function["arguments"] = dumps(placeholder_arguments(call, losses, path))
    elif form.get(":arguments") == "object" and call.raw is None:
        function["arguments"] = call.arguments or {}
    elif form.get(":arguments") != "absent" or call.arguments:
        function["arguments"] = call.text
    out: Object = {} if not call.id and ":id" in form else {"id": call.id}
    kind = form.get(":type", "function")
    if kind is not None:
        out["type"] = kind
    out["function"] = write_extra(function, call.extra, FUNCTION)
    return write_extra(out, call.extra, NAME)


def report_call(call: ToolCall, path: str, losses: Losses) -> None:
    """Report the fields of a call that Cohere's calls do not have."""
    if call.namespace is not None:
        losses.add(f"{path}/namespace", "namespace", "dropped", "Cohere calls have no namespace")
    report_search_call(call, path, losses)
    if call.artefacts:
        losses.add(f"{path}/artefacts", "artefact", "dropped", "Cohere has no field for it")
    if call.cache is not None:
        losses.add(f"{path}/cache", "cache", "dropped", "Cohere has no cache marks", "info")
