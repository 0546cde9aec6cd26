"""Decode Chat messages.

One message is one `Message`, in order. A `tool` message is a user message with one ToolResult, because a result comes
from outside the model. The deprecated `function_call` and role `function` are read as a call and a result without an
id, and written back in their original form.
"""

from __future__ import annotations

from msgspec.structs import replace

from ...ir.errors import ProtocolError
from ...ir.losses import Losses
from ...ir.parts import (
    Artefact,
    CallKind,
    CallState,
    Extra,
    Media,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from ...ir.pointer import JSON, Object
from ...ir.request import Message
from ...ir.text import dumps
from ...stream.strict import parse_arguments
from ..fields import decode_list, read_extra, read_label, read_optional_string, read_string, require_object, type_error
from .content import MARKED, NAME, read_answer_part, read_content, take_cache_control

_FORM = "openai_chat~"  # the key of `extra` for the source's spelling; names with a colon are notes of ours
_PLAIN = frozenset({"role", "content"})
_RESULT = frozenset({"role", "tool_call_id", "content", "name"})
NO_ID = "null"
"""The string that Mistral's servers send as the id of a call without one."""
_CALL = frozenset({"index", "id", "type", "function", "custom"})
_CALL_TYPES = [dict, dict, str, str, str]
_NO_IDS = ("", NO_ID)
_FUNCTION = frozenset({"name", "arguments"})
_CUSTOM = frozenset({"name", "input"})
REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
"""Fields for reasoning: DeepSeek, OpenRouter and Ollama, GitHub Copilot, and gateways in front of Anthropic."""
DETAILS = "reasoning_details"
"""OpenRouter's list of the same reasoning in pieces, with signatures. It is a field of the message, and also kept with the
reasoning (form `:details`): without it, the provider cannot continue a tool turn (openrouter.ai/docs, reasoning tokens)."""


def read_message(raw: JSON) -> Message:
    """Read a message of a request; a text or a result with exactly the usual fields takes the fast path.

    Raise ProtocolError if it is invalid.
    """
    if type(raw) is not dict:
        raise type_error("an object", raw)
    try:
        role, content = raw["role"], raw["content"]
    except KeyError:
        return _read_any_message(raw)
    if type(content) is str and content:
        if role == "tool":
            if len(raw) == 3 and type(call_id := raw.get("tool_call_id")) is str:
                return Message("user", (ToolResult(call_id, None, (Text(content),)),))
        elif len(raw) == 2 and role in ("user", "system", "developer"):
            return Message(role, (Text(content),))
    return read_assistant(raw) if role == "assistant" else _read_any_message(raw)


def _read_any_message(raw: Object) -> Message:
    """Read a message with any fields; a `tool` or legacy `function` message becomes a user message with one result.

    Raise ProtocolError for an unknown role.
    """
    role = raw.get("role")
    if role == "assistant":
        return read_assistant(raw)
    if role == "tool":
        call_id = read_optional_string(raw, "tool_call_id")  # may be absent on Mistral
        return Message("user", (_read_result(raw, call_id or "", {} if call_id else {":id": "absent"}),))
    if role == "function":
        return Message("user", (_read_result(raw, "", {":result": "function"}),))
    if role not in ("user", "system", "developer"):
        raise ProtocolError(
            f"unknown role {role!r}", pointer="/role", hint="use system, developer, user, assistant or tool"
        )
    form: Object = _missing_content_form(raw)
    parts = read_content(raw, form)
    extra = read_extra(raw, _PLAIN, NAME) if len(raw) > 2 or not parts else {}
    _mark_last_part(parts, extra)
    return Message(role, tuple(parts), _with_form(extra, form))


def _mark_last_part(parts: list[Part], extra: Extra) -> None:
    """Move the cache mark of a message to its last text or medium: the prompt up to there is cached."""
    last = parts[-1] if parts else None
    if extra and isinstance(last, (Text, Media)) and last.cache is None:
        cache = take_cache_control(extra)
        if cache is not None:
            form = {**last.extra.get(_FORM, {}), **MARKED}
            parts[-1] = replace(last, cache=cache, extra={**last.extra, _FORM: form})


def _missing_content_form(raw: Object) -> Object:
    """Return the form of a message without content: null, or no such field."""
    if raw.get("content") is not None:
        return {}
    return {":content": "null" if "content" in raw else "absent"}


def _with_form(extra: Extra, form: Object) -> Extra:
    if form:
        extra[_FORM] = {**extra.get(_FORM, {}), **form}
    return extra


def _read_result(raw: Object, call_id: str, form: Object) -> ToolResult:
    """Read a result; `form` records how it was written, and a refusal in its content stays Opaque."""
    form |= _missing_content_form(raw)
    parts = read_content(raw, form)
    extra = read_extra(raw, _RESULT, NAME) if len(raw) > 3 or not parts or not call_id else {}
    name = read_optional_string(raw, "name")
    if name is not None:
        form[":name"] = True
    cache = take_cache_control(extra)
    result_parts = tuple(map(_to_result_part, parts))
    return ToolResult(call_id, name, result_parts, cache=cache, extra=_with_form(extra, form))


def _to_result_part(part: Part) -> Text | Media | Opaque:
    if isinstance(part, (Text, Media, Opaque)):
        return part
    assert isinstance(part, Refusal)
    return Opaque(NAME, "refusal", {"type": "refusal", "refusal": part.text})


def read_assistant(raw: Object) -> Message:
    """Read an assistant message, of a request or of a response."""
    if len(raw) == 3 and "content" in raw and raw.get("tool_calls"):
        content = raw["content"]
        if content is None or (type(content) is str and content):
            calls = decode_list(raw, "tool_calls", read_call)
            return Message("assistant", (*calls,) if content is None else (Text(content), *calls))
    return _read_any_assistant(raw)


def _read_any_assistant(raw: Object) -> Message:
    """Read an assistant message with any fields; each kind of part has its own field.

    The same reasoning in a second field is kept as form. Raise ProtocolError if a part is invalid.
    """
    form: Object = {}
    parts: list[Part] = []
    known = {"role", "content"}  # fields that the parts hold
    for field in REASONING_FIELDS:
        thoughts = raw.get(field)
        if not thoughts or type(thoughts) is not str:
            continue
        if parts and thoughts == getattr(parts[0], "text", None):  # servers repeat the text for clients of both fields
            form[field] = thoughts
            known.add(field)
        elif not parts:
            details = {":details": raw[DETAILS]} if type(raw.get(DETAILS)) is list and raw[DETAILS] else {}
            parts.append(Reasoning(thoughts, extra={_FORM: {":field": field, **details}}))
            known.add(field)
    if "content" in raw:
        parts += read_content(raw, form, read_answer_part)
    else:
        form[":content"] = "absent"
    if refusal := read_optional_string(raw, "refusal"):
        parts.append(Refusal(refusal))
        known.add("refusal")
    if raw.get("tool_calls"):
        parts += decode_list(raw, "tool_calls", read_call)
        known.add("tool_calls")
    elif raw.get("function_call"):
        parts.append(_read_function_call(require_object(raw["function_call"], "function_call")))
        known.add("function_call")
    if parts and not form and known.issuperset(raw):
        return Message("assistant", tuple(parts))
    extra = read_extra(raw, known, NAME)
    if raw.get("content", 0) is None:
        _drop_null_content(extra)
    _mark_last_part(parts, extra)
    return Message("assistant", tuple(parts), _with_form(extra, form))


def _drop_null_content(extra: Extra) -> None:
    """Remove null content from the form: an assistant message without text is written with null anyway."""
    del extra[_FORM]["content"]
    if not extra[_FORM]:
        del extra[_FORM]


def find_reasoning(raw: Object) -> tuple[str, str] | None:
    """Return the field with the reasoning of an answer, and its text; some servers put the same text into two fields.

    The text may be in an object or in a list. OpenRouter's details count only if there is no other field.
    """
    for field in (*REASONING_FIELDS, DETAILS):
        if (value := raw.get(field)) and (text := _reasoning_text(value)):
            return field, text
    return None


def _reasoning_text(value: JSON) -> str:
    if type(value) is str:
        return value
    if type(value) is list:
        return "".join(map(_reasoning_text, value))
    if type(value) is dict:
        return next((text for key in ("text", "content", "summary") if type(text := value.get(key)) is str), "")
    return ""


def read_id(raw: Object) -> str:
    raw_value = read_optional_string(raw, "id")
    return "" if raw_value is None or raw_value == NO_ID else raw_value


def read_call(raw: JSON) -> ToolCall:
    """Read a call; a function call with exactly the usual fields takes the fast path."""
    try:
        call_id, kind, function = raw["id"], raw["type"], raw["function"]
        name, text = function["name"], function["arguments"]
    except (KeyError, TypeError):
        return _read_any_call(raw)
    if [*map(type, (raw, function, call_id, name, text))] != _CALL_TYPES or kind != "function":
        return _read_any_call(raw)
    if len(raw) != 3 or len(function) != 2 or call_id in _NO_IDS:
        return _read_any_call(raw)
    arguments, state = parse_arguments(text)
    return ToolCall(call_id, name, arguments, text, state)


def function_of(raw: Object) -> Object:
    """Return the function of a call; some servers put its name and arguments into the call itself."""
    function = raw.get("function")
    if not function and "name" in raw:
        return raw
    return {} if not function else require_object(function, "function")


def _read_any_call(raw: JSON) -> ToolCall:
    """Read a call with any fields; a missing type, id or arguments string is recorded as form.

    Raise ProtocolError if it is invalid or of an unknown type.
    """
    kind = require_object(raw).get("type", "custom" if raw.get("custom") is not None else "function")
    call_id = read_id(raw)
    if kind == "custom":
        return _read_custom_call(raw, call_id)
    function = function_of(raw)
    if kind not in ("function", None) and not function:
        raise ProtocolError(f"unknown call type {kind!r}", pointer="/type", hint='use "function" or "custom"')
    try:
        name = read_string(function, "name")
        arguments, text, state = read_arguments(function)
    except ProtocolError as error:
        raise error.within("function") from None
    artefacts = read_signature(raw)
    extra = read_extra(raw, (*_CALL, "extra_content") if artefacts else _CALL, NAME)
    extra = read_extra(function, _FUNCTION, f"{NAME}/function", extra)
    form: Object = {":type": "absent"} if raw.get("type") is None else {}
    if "index" in raw:
        form[":index"] = raw["index"]
    if kind not in ("function", None):  # Moonshot's "builtin_function"
        extra.setdefault(NAME, {})["type"] = kind
    if raw.get("id") == NO_ID:
        form["id"] = NO_ID
    elif not call_id:
        form[":id"] = "absent"
    if type(function.get("arguments")) is not str:
        form[":arguments"] = "object" if function.get("arguments") else "absent"
    return ToolCall(call_id, name, arguments, text, state, artefacts=artefacts, extra=_with_form(extra, form))


def _read_custom_call(raw: Object, call_id: str) -> ToolCall:
    """Read a call of a freeform tool, whose input is plain text; raise ProtocolError if it is invalid."""
    custom = require_object(raw.get("custom"), "custom")
    extra = read_extra(custom, _CUSTOM, f"{NAME}/function", read_extra(raw, _CALL, NAME))
    form: Object = {":type": "absent"} if raw.get("type") is None else {}
    if "index" in raw:
        form[":index"] = raw["index"]
    extra = _with_form(extra, form if call_id else {**form, ":id": "absent"})
    try:
        return ToolCall(
            call_id, read_string(custom, "name"), raw=read_string(custom, "input"), kind="freeform", extra=extra
        )
    except ProtocolError as error:
        raise error.within("custom") from None


def read_arguments(function: Object) -> tuple[Object | None, str | None, CallState]:
    """Return (arguments, original text, state); an object in place of the text is accepted.

    Raise ProtocolError for any other value.
    """
    value = function.get("arguments")
    if type(value) is str:
        arguments, state = parse_arguments(value)
        return arguments, value, state
    if value is None or value == []:  # PHP writes {} as []
        return {}, "", "complete"
    if type(value) is dict:  # Mistral and some open servers send the object itself
        return value, None, "complete"
    raise type_error("a string", value, "arguments")


def read_signature(raw: Object) -> tuple[Artefact, ...]:
    """Read the signature of Gemini's Chat-compatible endpoint: `extra_content.google.thought_signature`."""
    match raw.get("extra_content"):
        case {"google": {"thought_signature": str(data), **others}, **more} if not others and not more:
            return (Artefact("google", "thought_signature", data),)
    return ()


def _read_function_call(raw: Object) -> ToolCall:
    """Read the legacy field `function_call`, which has no id; form `:call` restores it, `:arguments` its arguments.

    Raise ProtocolError if it is invalid.
    """
    try:
        arguments, text, state = read_arguments(raw)
        name = read_string(raw, "name")
    except ProtocolError as error:
        raise error.within("function_call") from None
    form: Object = {":call": "function_call"}
    if type(raw.get("arguments")) is not str:
        form[":arguments"] = "object" if raw.get("arguments") else "absent"
    extra = read_extra(raw, _FUNCTION, f"{NAME}/function", {_FORM: form})
    return ToolCall("", name, arguments, text, state, extra=extra)


def report_other_reasoning(delta: Object, field: str, text: str, losses: Losses) -> None:
    """Report reasoning in other fields than `field`, unless it is the same: servers write it for clients of both."""
    for other in REASONING_FIELDS:
        if delta.get(other) and delta[other] != text and other != field:
            losses.add("/parts", "reasoning", "dropped", f"{field} is read, and {other} differs from it")


def read_call_id(raw: Object) -> str:
    call_id = read_label(raw, "id")
    return "" if call_id == NO_ID else call_id


def read_function(raw: Object) -> tuple[CallKind, Object, str]:
    """Return the kind of a call, its function or custom tool, and the arguments as text.

    Raise ProtocolError if the arguments are neither text nor an object.
    """
    kind: CallKind = "freeform" if raw.get("custom") is not None else "function"
    inner = require_object(raw.get("custom"), "custom") if kind == "freeform" else function_of(raw)
    fragment = inner.get("input" if kind == "freeform" else "arguments")
    if type(fragment) is dict or type(fragment) is list:  # the whole object at once; PHP writes {} as []
        fragment = dumps(fragment) if fragment else "{}"
    elif fragment is not None and type(fragment) is not str:
        raise type_error("a string", fragment, "function", "arguments")
    return kind, inner, fragment or ""


def read_array(raw: Object, key: str) -> list[JSON]:
    """Return the list under `key`; an absent list and empty values are empty, an object is the only element."""
    value = raw.get(key)
    if not value:
        return []
    if type(value) is not list:
        return [require_object(value, key)]
    return value
