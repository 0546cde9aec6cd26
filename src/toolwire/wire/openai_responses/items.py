"""Items: the ordered list in which Responses holds a conversation.

Consecutive output of the model is one assistant `Message`; a message item in it becomes one part for each of its
contents, the first of them marked as the beginning of an item (form `:item`), with the item's own fields under
`openai_responses/item`. Every other item is a message of its own. A call has two ids here: `call_id` is the canonical
one, the item's `id` stays in `extra`.
"""

from __future__ import annotations

from msgspec.structs import replace

from ...ir.errors import ProtocolError
from ...ir.parts import CallKind, CallState, Extra, Media, Opaque, Part, Refusal, Text, ToolCall, ToolResult
from ...ir.pointer import JSON, Object
from ...ir.request import Message
from ...ir.text import dumps
from ...stream.strict import parse_arguments
from ..fields import (
    decode_list,
    odd_values,
    read_extra,
    read_label,
    read_optional_string,
    read_string,
    require_object,
    type_error,
)
from .content import NAME, read_content, read_part, read_reasoning, read_summary
from .tool_search import is_client_search, read_search_call, read_search_output

_FORM = "openai_responses~"  # the key of `extra` for the source's spelling; names with a colon are notes of ours
_ITEM = "openai_responses/item"

_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})
_MESSAGE = frozenset({"type", "role", "content"})
_CALL = frozenset({"type", "call_id", "name", "arguments", "namespace"})
_CALLS = ("function_call", "custom_tool_call")
_CALL_TYPES = {"arguments": (str,)}
_CUSTOM = frozenset({"type", "call_id", "name", "input", "namespace"})
_RESULT = frozenset({"type", "call_id", "output", "name", "namespace"})


def read_items(raw: Object) -> tuple[Message, ...]:
    """Read the messages under `input`; adjacent parts of the model become one message."""
    messages: list[Message] = []
    model_parts: list[Part] = []
    for item in decode_list(raw, "input", read_item):
        if isinstance(item, Message):
            if model_parts:
                messages.append(Message("assistant", tuple(model_parts)))
                model_parts = []
            messages.append(item)
        else:
            model_parts.extend(item)
    if model_parts:
        messages.append(Message("assistant", tuple(model_parts)))
    return tuple(messages)


def read_output(raw: Object) -> tuple[Part, ...]:
    """Read the parts under `output`; an item that is not the model's own output stays opaque."""
    return tuple([part for parts in decode_list(raw, "output", read_output_item) for part in parts])


def read_output_item(raw: JSON) -> list[Part]:
    """Read one item of an answer. An item that is not the model's own (the output of a hosted tool) stays opaque.

    A call without `call_id` gets its item id as the id. Raise ProtocolError if the item is invalid.
    """
    if type(raw) is dict and raw.get("type") in _CALLS and type(raw.get("call_id")) is not str:
        raw = {**raw, "call_id": read_call_id(raw)}
    item = read_item(raw)
    if not isinstance(item, list):
        return [Opaque(NAME, raw.get("type") or ("message" if "role" in raw else "item_reference"), raw)]
    first = item[0] if item else None
    if isinstance(first, ToolCall) and NAME not in first.extra:
        # Without an id and a status, only this note shows that the call is from this wire: `make_call_item` then
        # writes it as it was, and adds neither.
        return [replace(first, extra={**first.extra, _FORM: {**first.extra.get(_FORM, {}), ":item": "call"}})]
    return item


def read_item(raw: JSON) -> Message | list[Part]:
    """Read a message from outside the model, or parts of the model's output; an unknown type is Opaque.

    Raise ProtocolError if the item is invalid.
    """
    kind = require_object(raw).get("type")
    if kind is None:  # optional for messages and for references to stored items
        kind = "message" if "role" in raw else "item_reference" if "id" in raw else None
    if type(kind) is not str:
        raise type_error("a string", kind, "type")
    if kind == "function_call":
        return [_read_call(raw)]
    if kind == "function_call_output":
        return Message("user", (_read_result(raw, "function"),))
    if kind == "message":
        return _read_message(raw)
    if kind == "reasoning":
        return [read_reasoning(raw)]
    if kind == "custom_tool_call":
        return [_read_custom_call(raw)]
    if kind == "custom_tool_call_output":
        return Message("user", (_read_result(raw, "freeform"),))
    if kind == "tool_search_call" or kind == "tool_search_output":
        return _read_search_item(raw, kind)
    if kind == "compaction" and (summary := read_summary(raw)) is not None:
        return Message("user", (summary,))
    opaque = Opaque(NAME, kind, raw)
    # these come from the client; any other item is the model's output
    if kind.endswith(("_output", "_response")) or kind in ("additional_tools", "item_reference"):
        return Message("user", (opaque,))
    return [opaque]


def is_own_message(raw: JSON) -> bool:
    """Return whether a valid item is a message from outside the model: the user's own, or the output of a call."""
    kind = raw.get("type")
    if kind == "message" or (kind is None and "role" in raw):
        return bool(raw.get("role") != "assistant")
    return kind in _OUTPUTS


def _read_search_item(raw: Object, kind: str) -> Message | list[Part]:
    """Read an item of a tool search; the items of a search that the provider ran are parts of its answer."""
    if kind == "tool_search_call":
        return [read_search_call(raw) or Opaque(NAME, kind, raw)]
    result = read_search_output(raw)
    if result is not None:
        return Message("user", (result,))
    opaque = Opaque(NAME, kind, raw)
    return Message("user", (opaque,)) if is_client_search(raw) else [opaque]


def _read_message(raw: Object) -> Message | list[Part]:
    """Read a message item: parts if it is the model's own, else a message. Raise ProtocolError for an unknown role."""
    role = raw.get("role")
    if role == "assistant":
        return _read_assistant_message(raw)
    content = raw.get("content")
    if len(raw) == 2 and content and type(content) is str and (role == "user" or role == "developer"):
        return Message(role, (Text(content),))
    if role not in ("user", "system", "developer"):
        hint = "use user, assistant, system or developer"
        raise ProtocolError(f"unknown role {role!r}", pointer="/role", hint=hint)
    form: Object = {"type": raw["type"]} if "type" in raw else {}
    parts = read_content(raw, "content", form)
    extra = read_extra(raw, _MESSAGE, NAME) if len(raw) > 2 or not parts else {}
    if form:
        extra[_FORM] = {**extra.get(_FORM, {}), **form}
    return Message(role, tuple(parts), extra)


def _read_assistant_message(raw: Object) -> list[Part]:
    """Read the model's message as parts; the first one holds the fields of the item (see the module docstring).

    A message without content, or whose first content is no text, stays Opaque.
    """
    content = raw.get("content")
    if not content:
        return [Opaque(NAME, "message", raw)]
    form: Object = {":item": True}
    item: Extra = {f"{_ITEM}~": {"type": raw["type"]}} if "type" in raw else {}
    if type(content) is str:
        form[":content"] = "string"
        parts: list[Part] = [Text(content)]
    else:
        parts = decode_list(raw, "content", read_part)
    first = parts[0]
    read_extra(raw, _MESSAGE, _ITEM, item)
    extra = {**getattr(first, "extra", {}), **item}
    extra[_FORM] = {**extra.get(_FORM, {}), **form}
    if isinstance(first, Text):
        parts[0] = Text(first.text, first.cache, first.artefacts, extra)
    elif isinstance(first, Refusal):
        parts[0] = Refusal(first.text, extra)
    else:
        return [Opaque(NAME, "message", raw)]
    return parts


def _read_call(raw: Object) -> ToolCall:
    """Read a function call; an incomplete one without arguments, or with the placeholder `{}`, was truncated before them.

    Raise ProtocolError for arguments that are no text.
    """
    text, odd = raw.get("arguments"), odd_values(raw, _CALL_TYPES, NAME)
    if text is None or type(text) is dict:  # servers that keep the object
        text = dumps(text or {})
    if type(text) is not str:
        raise type_error("a string", text, "arguments")
    arguments, state = parse_arguments(text)
    if not odd and len(raw) == 6 and type(raw.get("id")) is str and raw.get("status") == "completed":
        call_id, name = raw.get("call_id"), raw.get("name")
        if type(call_id) is str and type(name) is str:
            return ToolCall(
                call_id, name, arguments, text, state, extra={NAME: {"id": raw["id"], "status": "completed"}}
            )
    if raw.get("status") == "incomplete" and state == "complete" and not arguments:
        arguments, text, state = None, "", "truncated"
    namespace = read_optional_string(raw, "namespace")
    extra = (read_extra(raw, _CALL, NAME) if len(raw) > 4 else {}) | odd
    call_id, name = read_string(raw, "call_id"), read_string(raw, "name")
    return ToolCall(call_id, name, arguments, text, state, "function", namespace, extra=extra)


def _read_custom_call(raw: Object) -> ToolCall:
    """Read a freeform call. Only its status shows that its input is truncated."""
    state: CallState = "truncated" if raw.get("status") == "incomplete" else "complete"
    call_id, name, text = (read_string(raw, field) for field in ("call_id", "name", "input"))
    namespace, extra = read_optional_string(raw, "namespace"), read_extra(raw, _CUSTOM, NAME)
    return ToolCall(call_id, name, None, text, state, "freeform", namespace, extra=extra)


def may_be_cut(call: ToolCall) -> bool:
    """Return whether a last call may be truncated by a limit, although it looks complete.

    Nothing in freeform input shows its end, and `{}` may stand for arguments that have not arrived.
    """
    if call.state != "complete" or call.extra.get(NAME, {}).get("status") == "completed":
        return False
    return call.kind == "freeform" or (call.kind == "function" and not call.arguments)


def read_call_id(raw: Object) -> str:
    """Return the id of a call; its item id if the server sends only that."""
    return read_label(raw, "call_id") or read_label(raw, "id")


def _read_result(raw: Object, kind: CallKind) -> ToolResult:
    """Read the output of a call; `kind` is the kind of that call, and a refusal in the output stays Opaque."""
    output, call_id = raw.get("output"), raw.get("call_id")
    if len(raw) == 3 and output and type(output) is str and type(call_id) is str:
        return ToolResult(call_id, None, (Text(output),), kind=kind)
    form: Object = {}
    parts = read_content(raw, "output", form)
    content = tuple(part if isinstance(part, (Text, Media, Opaque)) else _as_opaque(part) for part in parts)
    extra = read_extra(raw, _RESULT, NAME) if len(raw) > 3 or not parts or not call_id else {}
    name = read_optional_string(raw, "name")
    if name is not None:
        form[":name"] = True
    if raw.get("namespace") is not None:
        form[":namespace"] = True
    if not call_id:
        form[":call_id"] = "absent"  # or null, which is then in the form
    if form:
        extra[_FORM] = {**extra.get(_FORM, {}), **form}
    namespace = read_optional_string(raw, "namespace")
    call_id = read_optional_string(raw, "call_id") or ""
    return ToolResult(call_id, name, content, kind=kind, namespace=namespace, extra=extra)


def _as_opaque(part: Part) -> Opaque:
    assert isinstance(part, Refusal)
    return Opaque(NAME, "refusal", {"type": "refusal", "refusal": part.text})
