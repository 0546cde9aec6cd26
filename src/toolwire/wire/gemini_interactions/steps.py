"""Steps: the ordered list in which an interaction holds a conversation.

    {"type": "user_input", "content"}        {"type": "model_output", "content"}     {"type": "thought", "signature", "summary"}
    {"type": "function_call", "id", "name", "arguments"}    {"type": "function_result", "call_id", "result", "is_error"?, "name"?}
    {"type": "google_search_call", "id", "arguments"}       {"type": "google_search_result", "call_id", "result"}      …

Consecutive output of the model is one assistant `Message`. A `model_output` step becomes one part for each of its
contents; parts after the first are marked (form `:joined`), and the first one holds the step's own fields under
`gemini_interactions/step`. A result is a message of its own. Every other step is an opaque part of the model's output,
also of a kind that is newer than this package.

The signature of a thought belongs to the steps after it. In google-genai 3.3.0 calls have no field for a signature, but
the API sends one, which is usually empty (recorded by vercel/ai, packages/google/src/interactions/__fixtures__).
"""

from __future__ import annotations

from ...ir.parts import Artefact, CallState, Extra, Media, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from ...ir.pointer import JSON, Object
from ...ir.request import Message
from ...stream.strict import parse_arguments
from ..fields import (
    decode_list,
    is_empty,
    odd_values,
    read_boolean,
    read_extra,
    read_label,
    read_optional_string,
    read_string,
    remember_form,
    require_object,
    type_error,
)
from .content import FORM, NAME, PROVIDER, is_content, is_content_document, read_content, read_plain_texts

STEP = "gemini_interactions/step"
_CONTENTS = frozenset({"type", "content"})
_THOUGHT = frozenset({"type", "signature", "summary"})
_CALL = frozenset({"type", "id", "name", "arguments", "signature"})
_CALL_TYPES = {"id": (str,), "arguments": (dict,)}
_RESULT = frozenset({"type", "call_id", "name", "result", "is_error"})


def read_steps(raw: Object, key: str) -> tuple[Message, ...]:
    """Read the messages of a list of steps or contents; adjacent steps of the model become one message."""
    messages: list[Message] = []
    model_parts: list[Part] = []
    contents: list[Part] = []  # of a message without a step around them

    def close() -> None:
        if model_parts:
            messages.append(Message("assistant", tuple(model_parts)))
            model_parts.clear()
        if contents:
            messages.append(Message("user", tuple(contents), {FORM: {":step": "absent"}}))
            contents.clear()

    for item in decode_list(raw, key, _read_item):
        is_model = isinstance(item, list)
        if not is_model or contents:
            if not (contents and isinstance(item, Text | Media)):
                close()
        if isinstance(item, list):
            model_parts.extend(item)
        elif isinstance(item, Message):
            messages.append(item)
        else:
            contents.append(item)
    close()
    return tuple(messages)


def _read_item(raw: JSON) -> Message | list[Part] | Text | Media | Opaque:
    """Read a step, or a content outside a step."""
    if is_content_document(raw):
        return read_content(raw)
    return read_step(raw)


def read_step(raw: JSON) -> Message | list[Part]:
    """Read a message from outside the model, or parts of the model's output. Raise ProtocolError if it is invalid."""
    kind = read_string(require_object(raw), "type")
    if kind == "user_input":
        return _read_user_input(raw)
    if kind == "function_result":
        return Message("user", (_read_result(raw),))
    return read_model_step(raw)


def read_output(raw: Object) -> tuple[Part, ...]:
    """Read the parts of an answer's steps. Steps that are not the model's own output stay opaque."""
    return tuple([part for parts in decode_list(raw, "steps", read_model_step) for part in parts])


def read_model_step(raw: JSON) -> list[Part]:
    """Read a step of an answer; a step of another kind than output, thought and call is opaque."""
    kind = read_string(require_object(raw), "type")
    if kind == "model_output":
        return _read_model_output(raw)
    if kind == "thought":
        return [read_thought(raw)]
    if kind == "function_call":
        return [read_call(raw)]
    return [Opaque(NAME, kind, raw)]


def _read_user_input(raw: Object) -> Message:
    """Read a message of the user. Its content may be a string, and may have results (vercel/ai writes them there)."""
    content = raw.get("content")
    extra = read_extra(raw, _CONTENTS, NAME) if len(raw) > 2 or not content else {}
    if type(content) is str and content:
        return Message("user", (Text(content),), {**extra, FORM: {**extra.get(FORM, {}), ":content": "string"}})
    if type(content) is dict and content:
        raw = {**raw, "content": [content]}
        extra[FORM] = {**extra.get(FORM, {}), ":content": "single"}
    parts = [] if is_empty(content) else decode_list(raw, "content", _read_input_content)
    if not parts and "content" not in raw:
        extra[FORM] = {**extra.get(FORM, {}), ":content": "absent"}
    return Message("user", tuple(parts), extra)


def _read_input_content(raw: JSON) -> Part:
    if type(raw) is dict and raw.get("type") == "function_result":
        result = _read_result(raw)
        form = {**result.extra.get(FORM, {}), ":place": "content"}
        return ToolResult(
            result.call_id,
            result.name,
            result.parts,
            result.structured,
            result.is_error,
            extra={**result.extra, FORM: form},
        )
    return read_content(raw)


def _read_model_output(raw: Object) -> list[Part]:
    """Read the contents of the model's output; a step without contents, or with only unknown ones, stays opaque."""
    content = raw.get("content")
    if type(content) is not list or not content:
        return [Opaque(NAME, "model_output", raw)]
    parts: list[Part] = decode_list(raw, "content", read_content)
    first = parts[0]
    if not isinstance(first, Text | Media):
        return [Opaque(NAME, "model_output", raw)]
    if len(raw) > 2:
        parts[0] = _with_extra(first, read_extra(raw, _CONTENTS, STEP, dict(first.extra)))
    for number, part in enumerate(parts[1:], 1):
        if isinstance(part, Text | Media):
            parts[number] = mark_joined(part)
    return parts


def mark_joined(part: Text | Media) -> Text | Media:
    """Mark a part that is in the same step as the part before it."""
    return _with_extra(part, {**part.extra, FORM: {**part.extra.get(FORM, {}), ":joined": True}})


def _with_extra(part: Text | Media, extra: Extra) -> Text | Media:
    if isinstance(part, Text):
        return Text(part.text, part.cache, part.artefacts, extra)
    return Media(
        part.kind,
        part.media_type,
        part.data,
        part.url,
        part.file_id,
        part.name,
        part.detail,
        part.cache,
        part.owner,
        extra,
    )


def is_joined(part: Part) -> bool:
    """Return whether a part was in the same step as the part before it."""
    return is_content(part) or (isinstance(part, Text | Media) and ":joined" in part.extra.get(FORM, {}))


def is_bare(part: Part) -> bool:
    """Return whether a part was read as a content without a step around it."""
    return isinstance(part, Text | Media) and ":step" in part.extra.get(FORM, {})


def read_thought(raw: Object) -> Reasoning | Opaque:
    """Read a thought; one whose summary has images or annotations, which no other wire has, stays opaque."""
    summary = read_plain_texts(raw.get("summary"))
    if summary is None:
        return Opaque(NAME, "thought", raw)
    extra = read_extra(raw, _THOUGHT, NAME)
    if len(raw) == 1:
        extra[FORM] = {":empty": True}  # else an empty thought is left out
    return Reasoning("", summary, read_signature(raw), extra)


def read_signature(raw: Object) -> tuple[Artefact, ...]:
    signature = read_optional_string(raw, "signature")
    return (Artefact(PROVIDER, "thought_signature", signature),) if signature else ()


def read_call(raw: Object) -> ToolCall:
    """Read a call; arguments as text, of servers that copy OpenAI's, are parsed. Raise ProtocolError if invalid."""
    value = raw.get("arguments")
    arguments: Object | None = {}
    raw_text: str | None = None
    state: CallState = "complete"
    if type(value) is str:
        arguments, state = parse_arguments(value)
        raw_text = None if state == "complete" else value
    elif not is_empty(value):
        arguments = require_object(value, "arguments")
    extra = read_extra(raw, _CALL, NAME)
    if form := remember_form(raw, ("id", "arguments"), {**extra.get(FORM, {})}):
        extra[FORM] = form
    extra |= odd_values(raw, _CALL_TYPES, NAME)
    call_id, name = read_label(raw, "id"), read_string(raw, "name")
    return ToolCall(call_id, name, arguments, raw_text, state, artefacts=read_signature(raw), extra=extra)


def _read_result(raw: Object) -> ToolResult:
    """Read the result of a call: a text, a list of contents, or any other JSON value."""
    value, call_id, name = raw.get("result"), read_optional_string(raw, "call_id"), read_optional_string(raw, "name")
    extra = read_extra(raw, _RESULT, NAME)
    form = remember_form(raw, ("call_id", "result"), {**extra.get(FORM, {})})
    parts: tuple[Text | Media | Opaque, ...] = ()
    structured: JSON = None
    if type(value) is str:
        parts = (Text(value),) if value else ()
    elif type(value) is list and value and all(_is_content(entry) for entry in value):
        parts = tuple(decode_list(raw, "result", read_content))
        if len(parts) == 1 and type(parts[0]) is Text:
            form[":result"] = "list"
    elif type(value) is dict or not is_empty(value):
        structured = value
        if type(value) is not dict:
            form[":result"] = "value"
    if form:
        extra[FORM] = form
    is_error = read_boolean(raw, "is_error") or False
    return ToolResult(call_id or "", name, parts, structured, is_error, extra=extra)


def _is_content(value: JSON) -> bool:
    return type(value) is dict and type(value.get("type")) is str


def require_steps(body: Object) -> None:
    """Raise ProtocolError if the steps of an answer are no list."""
    if type(body.get("steps")) is not list:
        raise type_error("an array of steps", body.get("steps"), "steps")
