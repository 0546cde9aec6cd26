"""Encode Chat messages: the messages of a request, and the message of an answer.

The message of an answer has one field for each kind of part: reasoning, content, refusal, calls. It keeps neither their
order nor the boundaries between parts of one kind. The content is a string, or an array if the answer came as one
(Mistral).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from operator import attrgetter

from ...ir.losses import Losses
from ...ir.parts import Extra, Opaque, Part, Reasoning, Refusal, Text, ToolCall, ToolResult, part_label
from ...ir.pointer import JSON, Object
from ...ir.request import Message
from ...ir.text import dumps
from ..codec import report_search_call
from ..content import result_parts
from ..fields import write_extra
from .content import NAME, is_in_content, write_content, write_part
from .messages import DETAILS

_FORM = "openai_chat~"  # the key of `extra` for the source's spelling; names with a colon are notes of ours
_SCOPES = frozenset({NAME, _FORM, f"{NAME}?"})  # of the `extra` of a message
SECOND_FUNCTION_CALL = "the request declares `functions`, whose answers have one call; declare `tools` instead"
_RANKS: dict[type[Part], int] = {Reasoning: 0, Text: 1, Refusal: 2, ToolCall: 3}


# Nearly all messages have only plain parts, which are written without a loss. One look-up finds all fields that such parts
# do not have.
_text_options = attrgetter("cache", "artefacts", "extra")
_call_options = attrgetter("kind", "namespace", "artefacts", "extra")
_result_options = attrgetter("is_error", "structured", "found", "extra")


def _write_plain_call(part: Part) -> Object | None:
    """Write a call with only the usual fields, or return None."""
    if type(part) is not ToolCall or _call_options(part) != ("function", None, (), {}):
        return None
    text = part.raw
    if text is None:
        text = dumps(part.arguments or {})
    return {"id": part.id, "type": "function", "function": {"name": part.name, "arguments": text}}


def _write_plain_result(result: ToolResult) -> Object | None:
    """Write a result of one plain text, or return None."""
    if len(result.parts) != 1 or _result_options(result) != (False, None, (), {}):
        return None
    only = result.parts[0]
    if type(only) is not Text or only.extra or only.cache is not None:
        return None
    return {"role": "tool", "tool_call_id": result.call_id, "content": only.text}


def _write_plain_answer(parts: tuple[Part, ...]) -> tuple[str | None, list[Object]] | None:
    """Write plain calls after at most one plain text: return the text and the calls, or None for any other parts."""
    text = None
    if parts and type(parts[0]) is Text:
        first, parts = parts[0], parts[1:]
        if not first.text or _text_options(first) != (None, (), {}):
            return None
        text = first.text
    calls = [*map(_write_plain_call, parts)]
    return None if None in calls or not (calls or text) else (text, calls)  # type: ignore[return-value]


def _write_plain_message(message: Message) -> list[Object] | None:
    """Write a user or system message of plain results and at most one plain text, or return None."""
    written: list[Object] = []
    content: Object | None = None
    for part in message.parts:
        if type(part) is ToolResult:
            result = _write_plain_result(part)
            if result is None:
                return None
            written.append(result)
        elif type(part) is Text and content is None and not part.extra and part.cache is None:
            content = {"role": message.role, "content": part.text}
        else:
            return None
    if content is not None:
        written.append(content)
    return written or None


def write_message(message: Message, path: str, out: list[Object], losses: Losses) -> None:
    """Append a message to `out`; each result in a user message becomes a `tool` message of its own.

    Calls and reasoning outside of assistant messages are losses. An assistant message of which nothing can be
    written is left out.
    """
    if message.role == "assistant":
        plain_answer = _write_plain_answer(message.parts) if _SCOPES.isdisjoint(message.extra) else None
        if plain_answer is not None:
            text, calls = plain_answer
            out.append({"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})})
            return
        written = write_assistant(message.parts, message.extra, path, losses)
        if written.get("content") is not None or not written.keys() <= {"role", "content"} or not message.parts:
            out.append(written)  # else nothing of it can be written, and an empty message is refused
        return
    plain = _write_plain_message(message) if _SCOPES.isdisjoint(message.extra) else None
    if plain is not None:
        out += plain
        return
    content_parts: list[Part] = []
    numbers: list[int] = []
    for number, part in enumerate(message.parts):
        if isinstance(part, ToolResult):
            out.append(write_result(part, losses, f"{path}/parts/{number}"))
        elif isinstance(part, (ToolCall, Reasoning)):
            concept = "call" if isinstance(part, ToolCall) else "reasoning"
            losses.add(f"{path}/parts/{number}", concept, "dropped", "only an assistant message can have one", "error")
        else:
            content_parts.append(part)
            numbers.append(number)
    if content_parts or not message.parts:
        form = message.extra.get(_FORM, {})
        content = write_content(content_parts, form, losses, path, numbers)
        out.append(write_extra({"role": message.role, **_content_field(content, form)}, message.extra, NAME))


def _content_field(content: JSON, form: Object) -> Object:
    """Return the field `content`, which every role except assistant has, unless the message came without it."""
    if content is not None:
        return {"content": content}
    written = {"null": {"content": None}, "absent": {}}
    return written.get(form.get(":content", ""), {"content": ""})


def write_result(result: ToolResult, losses: Losses, path: str) -> Object:
    """Write a result as a `tool` message, or as a legacy `function` message if it was read from one.

    The error flag has no field here and is reported.
    """
    form = result.extra.get(_FORM, {})
    if result.is_error:
        losses.add(f"{path}/is_error", "is_error", "dropped", "Chat results have no error flag", "error")
    content = write_content(result_parts(result, path, losses), form, losses, path)
    out: Object = {"role": "tool", "tool_call_id": result.call_id, **_content_field(content, form)}
    if ":result" in form:
        out = {"role": "function", **_content_field(content, form)}
    if ":id" in form and not result.call_id:
        del out["tool_call_id"]
    if ":name" in form:
        out["name"] = result.name
    return write_extra(out, result.extra, NAME)


def write_assistant(parts: tuple[Part, ...], extra: Extra, path: str, losses: Losses) -> Object:
    """Write an assistant message of a request; text after a call is moved before the calls, which is a loss.

    So are results in it and reasoning of other providers.
    """
    out: Object = {"role": "assistant"}
    content: list[Part] = []
    calls: list[Object] = []
    for number, part in enumerate(parts):
        if isinstance(part, ToolCall):
            if ":call" in part.extra.get(_FORM, {}):
                out["function_call"] = write_extra(write_function(part), part.extra, f"{NAME}/function")
            else:
                calls.append(write_call(part, losses, f"{path}/parts/{number}"))
        elif isinstance(part, Reasoning) and not is_in_content(part):
            _write_past_reasoning(part, out, losses, f"{path}/parts/{number}")
        elif isinstance(part, ToolResult):
            losses.add(f"{path}/parts/{number}", "result", "dropped", "an assistant message cannot have one", "error")
        else:
            if calls:
                detail = "on Chat all text is before all calls"
                losses.add(f"{path}/parts/{number}", "order of text and calls", "moved", detail)
            content.append(part)
    last = content[-1] if content else None
    if isinstance(last, Refusal) and not is_in_content(last):  # followed by text it is content
        out["refusal"] = last.text
        content.pop()
    form = extra.get(_FORM, {})
    if content or form.get(":content") != "absent":
        out["content"] = write_content(content, form, losses, path)
    if calls:
        out["tool_calls"] = calls
    return write_extra(out, extra, NAME)


def _write_past_reasoning(part: Reasoning, out: Object, losses: Losses, path: str) -> None:
    """Append reasoning to its field in `out`; a stream may have had content between two pieces of it.

    Reasoning that did not come from this wire is a loss.
    """
    form = part.extra.get(_FORM)
    if form is None:
        losses.add(path, "reasoning", "dropped", "Chat requests carry no reasoning")
    else:
        if field := form[":field"]:  # without one, only the details have the text
            out[field] = out.get(field, "") + part.text
        if ":details" in form:
            out[DETAILS] = [*out.get(DETAILS, ()), *form[":details"]]


def write_function(call: ToolCall) -> Object:
    """Return name and arguments of a call; the arguments are text, unless they were read as an object or absent."""
    raw_value = call.extra.get(_FORM, {}).get(":arguments")
    if raw_value == "object" and call.raw is None:
        return {"name": call.name, "arguments": call.arguments or {}}
    if raw_value == "absent" and not call.arguments:
        return {"name": call.name}  # a null is kept in the form of the function
    return {"name": call.name, "arguments": call.text}


def write_call(call: ToolCall, losses: Losses, path: str) -> Object:
    """Write a call; Google's signature goes into `extra_content`, as on Gemini's compatible endpoint.

    Other artefacts, a namespace and the kind of a search are losses.
    """
    if call.namespace is not None:
        losses.add(f"{path}/namespace", "namespace", "dropped", "Chat calls have no namespace")
    report_search_call(call, path, losses)
    if call.kind == "freeform":
        custom: Object = write_extra({"name": call.name, "input": call.raw or ""}, call.extra, f"{NAME}/function")
        return write_extra(_restore_fields({"id": call.id, "type": "custom", "custom": custom}, call), call.extra, NAME)
    out: Object = {"id": call.id, "type": "function", "function": write_function(call)}
    for artefact in call.artefacts:
        if artefact.provider == "google":
            out["extra_content"] = {"google": {"thought_signature": artefact.data}}
        else:
            losses.add(f"{path}/artefacts", "artefact", "dropped", "Chat has no field for it")
    if call.extra:
        out["function"] = write_extra(out["function"], call.extra, f"{NAME}/function")
        out = _restore_fields(out, call)
    return write_extra(out, call.extra, NAME)


def _restore_fields(out: Object, call: ToolCall) -> Object:
    """Restore in `out` the form of a call from this wire: remove the fields that it did not have, write its index."""
    form = call.extra.get(_FORM, {})
    if ":type" in form:
        del out["type"]
    if ":index" in form:
        out["index"] = form[":index"]
    if not call.id and call.extra:
        del out["id"]
    return out


def write_answer(parts: tuple[Part, ...], form: Object, losses: Losses, path: str, is_legacy: bool = False) -> Object:
    """Write the parts of an answer as one message.

    `form`: how the message was written, if it came from this wire. `is_legacy`: calls are a `function_call`. Parts
    that a message cannot hold are losses.
    """
    plain = None if form or is_legacy else _write_plain_answer(parts)
    if plain is None:
        return _write_any_answer(parts, form, losses, path, is_legacy)
    text, calls = plain
    out: Object = {"role": "assistant"}
    if text is not None:
        out["content"] = text
    if calls:
        out["tool_calls"] = calls
    return out


def _write_any_answer(parts: tuple[Part, ...], form: Object, losses: Losses, path: str, is_legacy: bool) -> Object:
    """Write an answer of any parts, as `write_answer`."""
    out: Object = {"role": "assistant"}
    as_array = form.get(":content") == "list" or any(_needs_array(part) for part in parts)
    content: list[Part] = []
    calls: list[Object] = []
    for number, part in enumerate(parts):
        where = f"{path}/parts/{number}"
        if isinstance(part, ToolCall):
            if is_legacy and "function_call" in out:
                losses.add(where, "call", "dropped", SECOND_FUNCTION_CALL, "error")
            elif is_legacy or ":call" in part.extra.get(_FORM, {}):
                out["function_call"] = write_extra(write_function(part), part.extra, f"{NAME}/function")
            else:
                calls.append(write_call(part, losses, where))
        elif isinstance(part, Text) or (as_array and is_own_part(part)):
            _report_artefacts(part, losses, where)
            if isinstance(part, Text) and not part.text and not as_array:
                losses.add(where, "text", "dropped", "it has no text", "info")
            content.append(part)
        elif isinstance(part, Reasoning):
            _write_reasoning(part, out, losses, where)
        elif isinstance(part, Refusal):
            out["refusal"] = out.get("refusal", "") + part.text
        else:
            losses.add(where, part_label(part), "dropped", "a Chat answer has no field for it", "error")
    _report_order(parts, as_array, losses, path)
    if as_array:
        out["content"] = [write_part(part, losses, path) for part in content]
    elif content:
        out["content"] = "".join([part.text for part in content if isinstance(part, Text)])
    if calls:
        out["tool_calls"] = calls
    return out


def _needs_array(part: Part) -> bool:
    return is_own_part(part) or (isinstance(part, Text) and NAME in part.extra)


def is_own_part(part: Part) -> bool:
    """Return whether a part came as an element of the content array and can only be written as one."""
    return is_in_content(part) or (isinstance(part, Opaque) and part.wire == NAME)


def _write_reasoning(part: Reasoning, out: Object, losses: Losses, path: str) -> None:
    """Append reasoning to the field of `out` from which it was read (form `:field`), by default `reasoning_content`.

    A summary, artefacts and an empty text are reported.
    """
    _report_artefacts(part, losses, path)
    if part.summary:
        losses.add(f"{path}/summary", "reasoning summary", "rewritten", "Chat reasoning is plain text", "info")
    text = part.joined_text
    if not text:
        losses.add(path, "reasoning", "dropped", "it has no text", "info")
        return
    field = part.extra.get(_FORM, {}).get(":field", "reasoning_content")
    if not field:  # the details, among the fields of the message, have the text
        return
    out[field] = out.get(field, "") + text


def _report_artefacts(part: Part, losses: Losses, path: str) -> None:
    if getattr(part, "artefacts", ()):
        losses.add(f"{path}/artefacts", "artefact", "dropped", "Chat has no field for it")


def _report_order(parts: Sequence[Part], as_array: bool, losses: Losses, path: str) -> None:
    """Report the structure that a message does not keep: the order of the parts, and parts joined into one string."""
    if len(parts) < 2:
        return
    numbered = [
        (number, part, 1 if as_array and is_own_part(part) else _RANKS[type(part)])
        for number, part in enumerate(parts)
        if type(part) in _RANKS or (as_array and is_own_part(part))
    ]
    ranks = [rank for _, _, rank in numbered]
    # array elements (1) stay separate in an array, calls (3) always
    joined = {rank for rank, count in Counter(ranks).items() if count > 1} - {1 if as_array else 3, 3}
    for (number, part, rank), highest in zip(numbered, accumulate(ranks, max), strict=True):
        where = f"{path}/parts/{number}"
        if highest > rank:
            detail = "a Chat message holds reasoning, text and calls in this order"
            losses.add(where, "order of text and calls", "moved", detail, "info")
        if rank in joined and type(part) in _RANKS:
            losses.add(where, part_label(part), "rewritten", "joined, because a message has one string", "info")
