"""Ollama messages and their content: one text, images beside it, calls and results.

    {"role": "user", "content": "What is this?", "images": ["iVBORw0KGgo…"]}

The server puts the images before the text, and so do we. An image is bare base64; its first bytes identify the type.
Thinking, images, text and calls are separate fields, so their relative order is fixed, and the text is one string.

    {"role": "assistant", "content": "", "thinking": "…",
     "tool_calls": [{"id", "function": {"index", "name", "arguments": {…}}}]}
    {"role": "tool", "content": "22°C", "tool_name": "get_temperature", "tool_call_id": "call_1"}

Each message is one `Message`, in order; a `tool` message is a user message with one ToolResult. Arguments are objects.
Older servers and clients send no ids; results are then matched to calls by name and order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from ...ir.errors import ProtocolError
from ...ir.losses import Losses
from ...ir.parts import (
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
    part_label,
)
from ...ir.pointer import JSON, Object
from ...ir.request import Message, Role
from ...stream.strict import parse_arguments
from ..codec import report_search_call
from ..content import media_placeholder, placeholder_arguments, result_parts
from ..fields import (
    decode_list,
    is_empty,
    odd_values,
    read_extra,
    read_label,
    read_optional_string,
    read_string,
    require_object,
    type_error,
    write_extra,
)

NAME = "ollama"
FORM = "ollama~"  # the key of `extra` for the source's spelling; names with a colon are notes of ours
LocatedPart = tuple[str, Part]
"""A part, and its path for losses."""

_IMAGE_PREFIXES = (("iVBORw0KGgo", "image/png"), ("/9j/", "image/jpeg"), ("R0lGOD", "image/gif"))


def _image_type(data: str) -> str | None:
    if data.startswith("UklGR") and data[12:16] == "RUJQ":  # RIFF, and EBP of WEBP
        return "image/webp"
    return next((name for beginning, name in _IMAGE_PREFIXES if data.startswith(beginning)), None)


def read_content(raw: Object, form: Object) -> list[Part]:
    """Read the images and the text of a message. Spelling that the parts do not preserve goes into `form`."""
    parts: list[Part] = [*decode_list(raw, "images", _read_image)]
    if text_content := read_optional_string(raw, "content"):
        parts.append(Text(text_content))
    elif "content" not in raw:
        form[":content"] = "absent"
    return parts


def _read_image(data: JSON) -> Media:
    if type(data) is not str:
        raise type_error("base64 text", data)
    return Media("image", _image_type(data), data)


def write_content(parts: Sequence[LocatedPart], form: Object, losses: Losses, separator: str) -> Object:
    """Return the fields `content` and `images`. `separator` is put between texts that were separate parts.

    Parts that Ollama lacks are dropped or become text, with losses.
    """
    text_content: list[str] = []
    images: list[str] = []
    for path, part in parts:
        if isinstance(part, Text):
            _report_text(part, path, losses)
            text_content.append(part.text)
        elif isinstance(part, Refusal):
            losses.add(path, "refusal", "rewritten", "Ollama has no refusal field; sent as text", "info")
            text_content.append(part.text)
        elif isinstance(part, Media):
            _write_media(part, path, text_content, images, losses)
        else:
            losses.add(path, part_label(part), "dropped", "Ollama messages have no field for it", "error")
    out: Object = {}
    if text_content or (":content" not in form and "content" not in form):
        out["content"] = separator.join(text_content)
    if images:
        out["images"] = images
    return out


def _report_text(part: Text, path: str, losses: Losses) -> None:
    """Report the losses of a text on this wire: artefacts, the cache mark, or the whole part if it is empty."""
    if part.artefacts:
        losses.add(f"{path}/artefacts", "artefact", "dropped", "Ollama has no field for it")
    if part.cache is not None:
        losses.add(f"{path}/cache", "cache", "dropped", "Ollama has no cache marks", "info")
    if not part.text:
        losses.add(path, "text", "dropped", "it has no text", "info")


def _write_media(part: Media, path: str, text_content: list[str], images: list[str], losses: Losses) -> None:
    """Append an inline image to `images`; for any other media, append a placeholder to `text_content`.

    The name and other fields, for which there is no place, are losses.
    """
    if part.kind != "image" or part.data is None:
        detail = f"Ollama accepts only inline images, not {'a URL' if part.kind == 'image' else part.kind}"
        losses.add(path, part.kind, "dropped", detail, "error")
        text_content.append(media_placeholder(part).text)
        return
    images.append(part.data)
    for concept in ("name", "detail", "cache"):
        if getattr(part, concept) is not None:
            losses.add(f"{path}/{concept}", concept, "dropped", "an Ollama image is only base64 data", "info")
    if part.media_type != _image_type(part.data):
        losses.add(f"{path}/media_type", "media type", "dropped", "an Ollama image is only base64 data", "info")


_FIELD_ORDER: dict[type[Part], int] = {Reasoning: 0, Media: 1, Text: 2, Refusal: 2, ToolCall: 3}


def report_order(parts: Sequence[LocatedPart], losses: Losses) -> None:
    """Report the order of parts and the boundaries of texts, which the fields of a message do not preserve."""
    if len(parts) < 2:
        return
    parts = [(path, part) for path, part in parts if type(part) in _FIELD_ORDER]  # the others are dropped
    ranks = [_FIELD_ORDER[type(part)] for _, part in parts]
    counts = Counter(ranks)
    highest = list(accumulate(ranks, max))
    lowest = list(accumulate(reversed(ranks), min))[::-1]
    for (path, part), rank, before, after in zip(parts, ranks, highest, lowest, strict=True):
        # a part of a later field comes before it, or of an earlier field after it
        if before > rank or after < rank:
            losses.add(path, "order", "moved", "Ollama has a fixed order: thinking, images, text, calls", "info")
        # several pieces of reasoning (0) or of text (2)
        if rank in (0, 2) and counts[rank] > 1:
            losses.add(path, part_label(part), "rewritten", "joined, because a message has one string", "info")


def reasoning_text(part: Reasoning, path: str, losses: Losses) -> str:
    """Return the text of a reasoning part; artefacts, a summary and an empty text are reported as losses."""
    if part.artefacts:
        losses.add(f"{path}/artefacts", "artefact", "dropped", "Ollama has no field for it")
    if part.summary:
        losses.add(f"{path}/summary", "reasoning summary", "rewritten", "Ollama thinking is plain text", "info")
    text = part.joined_text
    if not text:
        losses.add(path, "reasoning", "dropped", "it has no text", "info")
    return text


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
    """Read a message of a request; the role is compared without case, and its spelling is recorded as form.

    Raise ProtocolError for an unknown role.
    """
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
    """Read a call; its index, its type and absent arguments are recorded as form.

    Arguments as text are parsed. Raise ProtocolError if the call is invalid.
    """
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
    """Append a message to `out`; each result in a user message becomes a `tool` message of its own.

    Calls and reasoning outside of assistant messages are losses.
    """
    if message.role == "assistant":
        placed = [(f"{path}/parts/{number}", part) for number, part in enumerate(message.parts)]
        out.append(write_assistant(placed, message.extra, losses, "\n\n"))
        return
    content: list[LocatedPart] = []
    for number, part in enumerate(message.parts):
        where = f"{path}/parts/{number}"
        if isinstance(part, ToolResult):
            out.append(_write_result(part, losses, where))
        elif isinstance(part, (ToolCall, Reasoning)):
            concept = "call" if isinstance(part, ToolCall) else "reasoning"
            losses.add(where, concept, "dropped", "only assistant messages have this part", "error")
        else:
            content.append((where, part))
    if content or not message.parts:
        form = message.extra.get(FORM, {})
        report_order(content, losses)
        role = form.get(":role", "user" if message.role == "user" else "system")
        out.append(write_extra({"role": role, **write_content(content, form, losses, "\n\n")}, message.extra, NAME))


def _write_result(result: ToolResult, losses: Losses, path: str) -> Object:
    """Write a result as a `tool` message; the error flag and a cache mark have no field here and are reported."""
    form = result.extra.get(FORM, {})
    if result.is_error:
        losses.add(f"{path}/is_error", "is_error", "dropped", "Ollama results have no error flag", "error")
    if result.cache is not None:
        losses.add(f"{path}/cache", "cache", "dropped", "Ollama has no cache marks", "info")
    content: Sequence[Text | Media | Opaque] = result_parts(result, path, losses)
    parts: list[LocatedPart] = [(f"{path}/parts/{number}", part) for number, part in enumerate(content)]
    report_order(parts, losses)
    out: Object = {"role": form.get(":role", "tool"), **write_content(parts, form, losses, "\n\n")}
    if result.name is not None:
        out[form.get(":name", "tool_name")] = result.name
    if result.call_id:
        out["tool_call_id"] = result.call_id
    return write_extra(out, result.extra, NAME)


def write_assistant(
    parts: Sequence[LocatedPart], extra: Extra, losses: Losses, separator: str, *, numbered: bool = False
) -> Object:
    """Write an assistant message. `separator` is put between texts, `numbered` adds an index to each call.

    The server numbers calls, too. A result in it, and the order of parts, are losses.
    """
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
    out: Object = {"role": form.get(":role", "assistant"), **write_content(content, form, losses, separator)}
    if reasoning:
        out["thinking"] = "\n\n".join(reasoning)
    if calls:
        out["tool_calls"] = calls
    return write_extra(out, extra, NAME)


def write_call(call: ToolCall, losses: Losses, path: str, number: int | None) -> Object:
    """Write a call; `number` is its index, unless it was read with another one (form `:index`).

    Fields that Ollama lacks, and arguments that are not an object, are losses.
    """
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
    arguments = call.arguments if call.arguments is not None else placeholder_arguments(call, losses, path)
    if arguments or ":arguments" not in form:
        function["arguments"] = arguments
    out: Object = {"id": call.id} if call.id else {}
    if ":type" in form:
        out["type"] = form[":type"]
    out["function"] = write_extra(function, call.extra, _FUNCTION)
    return write_extra(out, call.extra, NAME)
