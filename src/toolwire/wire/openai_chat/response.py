"""Chat Completions responses: choices, finish reasons, usage.

The finish reason is derived from the content where they disagree: calls mean `tool_calls`, whatever the server sends.
"""

from __future__ import annotations

from msgspec.structs import replace

from ...ir.errors import ProtocolError
from ...ir.losses import Losses
from ...ir.parts import Extra, Part, Reasoning, Refusal, ToolCall
from ...ir.pointer import JSON, Object
from ...ir.request import Request
from ...ir.response import Alternative, Fault, Response, Stop, StopReason, Usage
from ..fields import (
    UsualFields,
    decode_list,
    odd_values,
    read_counts,
    read_details,
    read_extra,
    read_index,
    read_label,
    read_stop_reason,
    read_timestamp,
    remember_form,
    require_object,
    restore_form,
    wrap_object,
    write_extra,
)
from ..openai_fault import find_error, read_fault
from ..protocol import Encoded
from .content import NAME
from .message_writer import write_answer
from .messages import DETAILS, find_reasoning, read_assistant
from .tools import declares_functions


def keep_chunk_fields(fields: Object, news: Object) -> None:
    """Keep fields of a chunk. A later value replaces an earlier one; objects are joined (Groq's `x_groq`)."""
    for key, value in news.items():
        previous = fields.get(key)
        if type(previous) is dict and type(value) is dict:
            previous.update(value)
        else:
            fields[key] = dict(value) if type(value) is dict else value


_FORM = "openai_chat~"  # the key of `extra` for the source's spelling; names with a colon are notes of ours
_MESSAGE = "openai_chat/message"
_MESSAGE_FORM = "openai_chat/message~"
_CHOICE_SCOPE = "openai_chat/choice"
_SCOPES = frozenset({NAME, _FORM, f"{NAME}?"})  # of the `extra` of a response
_MESSAGE_SCOPES = frozenset({_MESSAGE, _MESSAGE_FORM})
_KNOWN = frozenset({"id", "object", "created", "model", "choices", "usage"})
_NO_REASONS = ("", "null", "None")
_DEFAULT_HEADERS = ("id", "object", "created", "model")
_CHOICE = frozenset({"index", "message", "finish_reason"})
_USUAL = UsualFields({"id": str, "object": str, "created": int, "model": str, "choices": list, "usage": dict})
ENVELOPE_TYPES = {"id": (str,), "model": (str,), "created": (int, float), "usage": (dict,)}

STOP_REASONS: dict[str, StopReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "model_length": "context_window",
    "error": "error",
}
"""Finish reasons of OpenAI and Mistral; `read_stop_reason` has the names of other servers."""
_STOP_NAMES: dict[StopReason, str] = {
    "stop": "stop",
    "stop_sequence": "stop",
    "tool_calls": "tool_calls",
    "length": "length",
    "context_window": "length",
    "content_filter": "content_filter",
    "refusal": "stop",
    "pause": "stop",
    "malformed_call": "stop",
    "error": "stop",
    "unknown": "stop",
}


def decode_response(body: Object) -> Response:
    """Decode a response or an error body; the choice with the lowest index is the answer, the others are alternatives.

    Without choices, an error is the fault. Raise ProtocolError if the body has neither, or is invalid.
    """
    body = wrap_object(require_object(body), "choices")  # some servers send a single choice without its array
    if (type(body.get("choices")) is not list or not body["choices"]) and (error := find_error(body)) is not None:
        return Response(fault=read_fault(error, NAME))
    if type(body.get("choices")) is not list:
        raise ProtocolError("expected an array of choices", pointer="/choices")
    first, *alternatives = _sort_choices(body["choices"], decode_list(body, "choices", _read_choice)) or [Alternative()]
    extra = first.extra
    if not _USUAL.are_in(body):
        extra = {**_read_envelope(body), **extra, **odd_values(body, ENVELOPE_TYPES, NAME)}
    return Response(
        id=read_label(body, "id"),
        model=read_label(body, "model"),
        parts=first.parts,
        stop=first.stop,
        usage=read_usage(body.get("usage")),
        created=read_timestamp(body, "created"),
        alternatives=tuple(alternatives),
        fault=stop_fault(first.stop),
        extra=extra,
    )


def _read_envelope(body: Object) -> Extra:
    """Return the other fields of an answer, and the form of its document."""
    extra = read_extra(body, _KNOWN, NAME)
    form = remember_form(body, _DEFAULT_HEADERS, extra.get(_FORM, {}))
    if not body["choices"]:
        form[":choices"] = "empty"
    if form:
        extra[_FORM] = form
    return extra


def _sort_choices(raw: list[Object], choices: list[Alternative]) -> list[Alternative]:
    """Sort the choices by `index`; one without an index keeps its position."""
    if len(choices) < 2:
        return choices
    positions = [read_index(choice, "index") for choice in raw]
    order = sorted(range(len(raw)), key=lambda number: number if positions[number] is None else positions[number] or 0)
    return [choices[number] for number in order]


def stop_fault(stop: Stop | None) -> Fault | None:
    """Return the fault of a choice that ended in an error; OpenRouter puts an error object into the choice."""
    if stop is None or stop.reason != "error":
        return None
    error = stop.extra.get(_CHOICE_SCOPE, {}).get("error")
    if error:
        return read_fault(error, NAME)
    return Fault("server", "the model stopped with an error", 502)


def _read_choice(raw: JSON) -> Alternative:
    """Read a choice; fields of its message are kept under `openai_chat/message`.

    If a limit ended it, its last call may be marked as truncated. Raise ProtocolError if it is invalid.
    """
    raw_message = require_object(raw).get("message")
    field, message = _find_message(raw)
    try:
        answer = read_assistant(message)
    except ProtocolError as error:
        raise error.within(field) from None
    if field != "message":
        raw = {key: value for key, value in raw.items() if key != field}
    extra = {name.replace(NAME, _MESSAGE): fields for name, fields in answer.extra.items()} if answer.extra else {}
    form = extra.get(_MESSAGE_FORM, {})
    if type(message.get("content")) is list:
        form[":content"] = "list"
    if absent := [key for key in ("index", "finish_reason") if key not in raw]:
        form[":choice"] = absent
    if raw_message is None:
        form[":message"] = "null" if "message" in raw else "absent"
    if remember_form(message, ("role",), form):
        extra[_MESSAGE_FORM] = form
    parts = answer.parts
    if message.get(DETAILS) and Reasoning not in map(type, parts):
        thoughts = find_reasoning(message)
        if thoughts is not None:
            form_of_details = {":field": "", ":details": message[DETAILS]}
            parts = (Reasoning(thoughts[1], extra={_FORM: form_of_details}), *parts)
    if is_truncated(read_reason(raw.get("finish_reason"))):
        parts = _mark_last_truncated(parts)
    return Alternative(parts, _read_stop(raw, parts), extra)


def _find_message(choice: Object) -> tuple[str, Object]:
    """Return the field with the message and the message: some servers send a delta, or the text of a completion."""
    field, message = "message", choice.get("message")
    if not message and choice.get("delta"):
        field, message = "delta", choice["delta"]
    elif not message and type(choice.get("text")) is str:
        field, message = "text", {"content": choice["text"]}
    message = {} if message is None else require_object(message, field)
    return field, wrap_object(message, "tool_calls")


def is_truncated(word: str) -> bool:
    """Return whether a finish reason means that the answer is truncated."""
    return read_stop_reason(word, STOP_REASONS) in ("length", "context_window", "content_filter")


def read_reason(raw: JSON) -> str:
    """Return a finish reason; empty if there is none. SGLang's own API has an object with a `type`.

    DashScope sends the text "null" with every chunk but the last.
    """
    word = raw.get("type") if type(raw) is dict else raw
    return "" if word is None or word in _NO_REASONS else str(word)


def _mark_last_truncated(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Mark a last call without arguments, and a last freeform call, as truncated: their text may be incomplete."""
    last = parts[-1] if parts else None
    if type(last) is ToolCall and (last.kind == "freeform" or not (last.raw or last.arguments)):
        return (*parts[:-1], replace(last, arguments=None, raw=last.raw or "", state="truncated"))
    return parts


def _read_stop(choice: Object, parts: tuple[Part, ...]) -> Stop | None:
    """Read the finish reason of a choice, or None; its other fields are kept with the stop."""
    word = choice.get("finish_reason")
    if type(word) is str and len(choice) == 3:  # index, message and finish_reason only
        return make_stop(word, parts, {})
    extra = read_extra(choice, _CHOICE, _CHOICE_SCOPE)
    extra.get(f"{NAME}/choice~", {}).pop("finish_reason", None)
    if choice.get("error"):
        word = "error"
    if word is None:
        return Stop("unknown", extra={**extra, _FORM: {":finish_reason": None}}) if extra.get(_CHOICE_SCOPE) else None
    return make_stop(word, parts, {name: fields for name, fields in extra.items() if fields})


def make_stop(word: JSON, parts: tuple[Part, ...], extra: Extra) -> Stop:
    """Return the stop for a finish reason; `parts` decides between calls, a refusal and a plain stop.

    Another name of the reason is kept as form.
    """
    reason = read_stop_reason(read_reason(word), STOP_REASONS)
    kinds = {*map(type, parts)}
    if reason in ("stop", "tool_calls"):
        reason = "tool_calls" if ToolCall in kinds else "refusal" if Refusal in kinds else "stop"
    elif reason == "unknown" and ToolCall in kinds:
        reason = "tool_calls"
    if _STOP_NAMES[reason] != word:
        extra = {**extra, _FORM: {":finish_reason": word}}
    return Stop(reason, extra=extra)


_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")
_USAGE = frozenset(
    {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details"}
)

_OTHER_COUNTS = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}  # as Responses names them


def find_usage(chunk: Object) -> JSON:
    """Return the usage of a chunk. Groq may send it in `x_groq` and Moonshot in the choice, not at the top level."""
    usage = chunk.get("usage")
    if usage is not None:
        return usage
    match chunk:
        case {"x_groq": {"usage": {**usage}}}:
            return usage
        case {"choices": [{"usage": {**usage}}]}:
            return usage
    return None


def read_usage(raw: JSON) -> Usage | None:
    """Read the counts, or None if there are none; a total that is not the sum is kept as a field of this wire.

    The names of Responses are accepted, too.
    """
    if type(raw) is not dict:
        return None
    if len(raw) == 3:  # the usual three counts: a fast path
        input_tokens, output_tokens = raw.get("prompt_tokens"), raw.get("completion_tokens")
        if (
            type(input_tokens) is int
            and type(output_tokens) is int
            and raw.get("total_tokens") == input_tokens + output_tokens
            and input_tokens >= 0 <= output_tokens
        ):
            return Usage(input_tokens, output_tokens)
    if "prompt_tokens" not in raw and "completion_tokens" not in raw and not _OTHER_COUNTS.keys().isdisjoint(raw):
        raw = {_OTHER_COUNTS.get(key, key): value for key, value in raw.items()}
    extra = read_extra(raw, _USAGE, NAME)
    prompt = read_details(raw, "prompt_tokens_details", NAME, extra)
    completion = read_details(raw, "completion_tokens_details", NAME, extra)
    usage = read_counts(NAME, raw, ("prompt", prompt), ("completion", completion), extra)
    if form := remember_form(raw, _COUNTS, extra.get(_FORM, {})):
        extra[_FORM] = form
    return usage


def write_usage(usage: Usage) -> Object:
    """Write the counts; a missing count is 0, unless it was absent when it was read."""
    given, made = usage.input or 0, usage.output or 0
    out: Object = {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}
    if not usage.extra and usage.cached is None and usage.cache_write is None and usage.reasoning is None:
        return out
    prompt: Object = {}
    if usage.cached is not None:
        prompt["cached_tokens"] = usage.cached
    if usage.cache_write is not None:
        prompt["cache_write_tokens"] = usage.cache_write
    if prompt := write_extra(prompt, usage.extra, f"{NAME}/prompt"):
        out["prompt_tokens_details"] = prompt
    completion: Object = {} if usage.reasoning is None else {"reasoning_tokens": usage.reasoning}
    if completion := write_extra(completion, usage.extra, f"{NAME}/completion"):
        out["completion_tokens_details"] = completion
    restore_form(out, usage.extra.get(_FORM, {}), ("total_tokens",))
    return write_extra(out, usage.extra, NAME)


def encode_response(response: Response, request: Request | None = None) -> Encoded:
    """Encode a response; an answer that came without choices is written without them.

    If `request` declares the legacy `functions`, the call is a `function_call`.
    """
    losses = Losses()
    is_legacy = request is not None and declares_functions(request)
    choices = [_write_choice(0, response, losses, "", is_legacy)]
    if response.alternatives:
        for number, other in enumerate(response.alternatives):
            choices.append(_write_choice(number + 1, other, losses, f"/alternatives/{number}", is_legacy))
    out: Object = {
        "id": response.id,
        "object": "chat.completion",
        "created": response.created or 0,
        "model": response.model,
        "choices": choices,
    }
    if response.usage is not None:
        out["usage"] = write_usage(response.usage)
    if _SCOPES.isdisjoint(response.extra):
        return Encoded(out, losses)
    form = response.extra.get(_FORM, {})
    if ":choices" in form and not response.parts and response.stop is None:
        out["choices"] = []
    return Encoded(write_extra(restore_form(out, form, ("object",)), response.extra, NAME), losses)


def _write_choice(
    index: int, answer: Response | Alternative, losses: Losses, path: str, is_legacy: bool = False
) -> Object:
    """Write one choice; a message from this wire is restored to its original form."""
    if not _MESSAGE_SCOPES.isdisjoint(answer.extra):
        return _write_own_choice(index, answer, losses, path, is_legacy)
    message = write_answer(answer.parts, {}, losses, path, is_legacy=is_legacy)
    message.setdefault("content", None)
    stop = answer.stop
    word = write_stop(stop, losses, path, refused="refusal" in message, is_legacy=is_legacy)
    out: Object = {"index": index, "message": message, "finish_reason": word}
    return write_extra(out, stop.extra, _CHOICE_SCOPE) if stop is not None and stop.extra else out


def _write_own_choice(index: int, answer: Response | Alternative, losses: Losses, path: str, is_legacy: bool) -> Object:
    """Write a choice whose message came from this wire."""
    form = answer.extra.get(_MESSAGE_FORM, {})
    message = restore_form(write_answer(answer.parts, form, losses, path, is_legacy=is_legacy), form, ("role",))
    message = write_extra(message, answer.extra, _MESSAGE)
    if form.get(":content") != "absent":
        message.setdefault("content", None)
    word = write_stop(answer.stop, losses, path, refused="refusal" in message, is_legacy=is_legacy)
    out: Object = {"index": index, "message": message, "finish_reason": word}
    restore_form(out, {":absent": form[":choice"]} if ":choice" in form else {})
    if ":message" in form and not answer.parts:
        out["message"] = None
        if form[":message"] == "absent":
            del out["message"]
    return out if answer.stop is None else write_extra(out, answer.stop.extra, _CHOICE_SCOPE)


def write_stop(stop: Stop | None, losses: Losses, path: str, *, refused: bool, is_legacy: bool) -> str | None:
    """Return the finish reason, or None if the stop is not known; report details that it does not express.

    `refused`: the message has the refusal. `is_legacy`: the request declares `functions`.
    """
    if stop is None:
        return None
    if is_legacy and stop.reason == "tool_calls":
        return "function_call"
    if stop.extra and (form := stop.extra.get(_FORM)) is not None and ":finish_reason" in form:
        word = form[":finish_reason"]
        return None if word is None else str(word)
    if stop.sequence is not None or stop.reason == "stop_sequence":
        losses.add(
            f"{path}/stop/sequence", "stop sequence", "dropped", "Chat does not report the stop sequence", "info"
        )
    if stop.reason == "refusal" and not refused:
        losses.add(
            f"{path}/stop",
            "stop reason refusal",
            "weakened",
            "Chat has refusals only in messages; sent as 'content_filter'",
            "info",
        )
        return "content_filter"
    if stop.reason in ("pause", "context_window", "unknown"):
        detail = f"Chat has no equivalent; sent as {_STOP_NAMES[stop.reason]!r}"
        losses.add(f"{path}/stop", f"stop reason {stop.reason}", "weakened", detail)
    return _STOP_NAMES[stop.reason]
