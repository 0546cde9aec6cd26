"""/v2/chat answers: the message, the finish reason, and the usage.

    {"id", "finish_reason": "COMPLETE", "message": {"role": "assistant", "content": […]},
     "usage": {"billed_units": {"input_tokens", "output_tokens"}, "tokens": {"input_tokens", "output_tokens"},
               "cached_tokens"}}

An answer does not name its model. `tokens` includes the tokens of Cohere's own prompt, which `billed_units` does not.
"""

from __future__ import annotations

from msgspec.structs import replace

from ...ir.errors import ProtocolError
from ...ir.losses import Losses
from ...ir.parts import Extra, Part, ToolCall
from ...ir.pointer import JSON, Object
from ...ir.request import Request
from ...ir.response import Response, Stop, StopReason, Usage
from ..fields import (
    is_empty,
    odd_values,
    read_count,
    read_details,
    read_extra,
    read_label,
    read_stop_reason,
    remember_form,
    require_object,
    restore_form,
    wrap_object,
    write_extra,
)
from ..protocol import Encoded
from .content import FORM, NAME
from .fault import read_fault, stop_fault
from .messages import read_assistant, write_assistant

MESSAGE = "cohere/message"
ONE_CHOICE = "a Cohere answer has only one choice"
KNOWN = frozenset({"id", "message", "finish_reason", "usage"})
ENVELOPE_TYPES = {"id": (str,), "finish_reason": (str,), "usage": (dict,)}
STOP_REASONS: dict[str, StopReason] = {
    "COMPLETE": "stop",
    "STOP_SEQUENCE": "stop_sequence",
    "MAX_TOKENS": "length",
    "TOOL_CALL": "tool_calls",
    "ERROR": "error",
    "TIMEOUT": "error",
    "ERROR_TOXIC": "content_filter",  # this and the next are the API's first version's, which proxies still send
    "ERROR_LIMIT": "context_window",
}
_STOP_NAMES: dict[StopReason, str] = {
    "stop": "COMPLETE",
    "stop_sequence": "STOP_SEQUENCE",
    "tool_calls": "TOOL_CALL",
    "length": "MAX_TOKENS",
    "context_window": "MAX_TOKENS",
    "content_filter": "ERROR",
    "refusal": "COMPLETE",
    "pause": "COMPLETE",
    "malformed_call": "ERROR",
    "error": "ERROR",
    "unknown": "COMPLETE",
}
_TRUNCATING = frozenset({"length", "context_window", "content_filter"})


def decode_response(body: Object) -> Response:
    """Decode a response or an error body; fields of the message are kept under `cohere/message`.

    Raise ProtocolError if it is invalid.
    """
    if type(require_object(body).get("message")) is str:
        return Response(fault=read_fault(body))
    raw = require_object(body.get("message"), "message")
    try:
        message = read_assistant(wrap_object(raw, "tool_calls"))
    except ProtocolError as error:
        raise error.within("message") from None
    stop = read_stop(body, message.parts)
    parts = mark_truncated(message.parts, stop)
    extra = {name.replace(NAME, MESSAGE, 1): fields for name, fields in message.extra.items()}
    inner = remember_form(raw, ("role",), {})
    if type(raw.get("tool_calls")) is dict:
        inner[":single"] = ["tool_calls"]
    if inner:
        extra[f"{MESSAGE}~"] = {**extra.get(f"{MESSAGE}~", {}), **inner}
    read_extra(body, KNOWN, NAME, extra)
    if form := remember_form(body, ("id",), {}):
        extra[FORM] = {**extra.get(FORM, {}), **form}
    return Response(
        id=read_label(body, "id"),
        parts=parts,
        stop=stop,
        usage=read_usage(body.get("usage")),
        fault=stop_fault(stop, body.get("finish_reason")),
        extra={**extra, **odd_values(body, ENVELOPE_TYPES, NAME)},
    )


def mark_truncated(parts: tuple[Part, ...], stop: Stop | None) -> tuple[Part, ...]:
    """Mark a last call without arguments as truncated if a limit ended the answer."""
    last = parts[-1] if parts else None
    if type(last) is ToolCall and not (last.raw or last.arguments) and is_truncated(stop):
        return (*parts[:-1], replace(last, arguments=None, raw="", state="truncated"))
    return parts


def is_truncated(stop: Stop | None) -> bool:
    return stop is not None and stop.reason in _TRUNCATING


def read_stop(body: Object, parts: tuple[Part, ...]) -> Stop | None:
    """Read the finish reason, or None if there is none. Calls mean that the model calls a tool."""
    value = body.get("finish_reason")
    if is_empty(value):
        return None
    word = read_label(body, "finish_reason")
    reason = read_stop_reason(word, STOP_REASONS)
    if reason in ("stop", "tool_calls", "unknown"):
        has_calls = any(type(part) is ToolCall for part in parts)
        reason = "tool_calls" if has_calls else "stop" if reason == "tool_calls" else reason
    return Stop(reason) if _STOP_NAMES[reason] == word else Stop(reason, extra={FORM: {":finish_reason": word}})


def write_stop(stop: Stop, losses: Losses) -> str:
    """Return the finish reason, and report the details that it cannot express."""
    word = stop.extra.get(FORM, {}).get(":finish_reason")
    if type(word) is str:
        return word
    if stop.sequence is not None:
        losses.add("/stop/sequence", "stop sequence", "dropped", "Cohere does not report the stop sequence", "info")
    if stop.detail is not None:
        losses.add("/stop/detail", "stop detail", "dropped", "Cohere has no field for it", "info")
    word = _STOP_NAMES[stop.reason]
    if STOP_REASONS[word] != stop.reason:
        losses.add("/stop", f"stop reason {stop.reason}", "weakened", f"Cohere has no equivalent; sent as {word!r}")
    return word


_USAGE = frozenset({"tokens", "cached_tokens"})
_TOKENS = frozenset({"input_tokens", "output_tokens"})


def read_usage(raw: JSON) -> Usage | None:
    """Read the counts, or None if there are none. Without `tokens`, the billed ones count."""
    if type(raw) is not dict:
        return None
    extra = read_extra(raw, _USAGE, NAME)
    tokens = read_details(raw, "tokens", NAME, extra)
    scope = f"{NAME}/tokens"
    read_extra(tokens, _TOKENS, scope, extra)
    form: Object = {} if raw.get("tokens") else {":tokens": "absent"}
    if not tokens:
        billed = raw.get("billed_units")
        tokens, scope = billed if type(billed) is dict else {}, f"{NAME}/billed"
    counts = [read_count(tokens, key, scope, extra) for key in ("input_tokens", "output_tokens")]
    extra.pop(f"{NAME}/billed?", None)  # the units are kept as they are
    if form:
        extra[FORM] = {**extra.get(FORM, {}), **form}
    return Usage(counts[0], counts[1], read_count(raw, "cached_tokens", NAME, extra), extra=extra)


def write_usage(usage: Usage, losses: Losses) -> Object:
    """Write the counts; counts that Cohere does not have are losses."""
    for concept in ("cache_write", "reasoning"):
        if getattr(usage, concept):
            losses.add(f"/usage/{concept}", f"{concept} tokens", "dropped", "Cohere does not count them", "info")
    counts = (("input_tokens", usage.input), ("output_tokens", usage.output))
    tokens: Object = {key: count for key, count in counts if count is not None}
    tokens = write_extra(_without_odd(tokens, usage.extra), usage.extra, f"{NAME}/tokens")
    out: Object = {} if ":tokens" in usage.extra.get(FORM, {}) or not tokens else {"tokens": tokens}
    if usage.cached is not None:
        out["cached_tokens"] = usage.cached
    return write_extra(out, usage.extra, NAME)


def _without_odd(tokens: Object, extra: Extra) -> Object:
    """Return the counts without an object that had another type when it was read."""
    return {} if "tokens" in extra.get(f"{NAME}?", {}) else tokens


def encode_response(response: Response, request: Request | None = None) -> Encoded:
    """Encode a response. The model, the time, other choices and details that Cohere lacks are losses."""
    del request  # no field of an answer depends on it
    losses = Losses()
    report_envelope(response.model, response.created, losses)
    if response.alternatives:
        losses.add("/alternatives", "alternatives", "dropped", ONE_CHOICE, "error")
    parts: list[tuple[str, Part]] = [(f"/parts/{number}", part) for number, part in enumerate(response.parts)]
    inner = {name.replace(MESSAGE, NAME, 1): fields for name, fields in response.extra.items() if MESSAGE in name}
    message = restore_form(write_assistant(parts, inner, losses, is_answer=True), inner.get(FORM, {}), ("role",))
    out: Object = {"id": response.id, "message": message}
    if response.stop is not None:
        out["finish_reason"] = write_stop(response.stop, losses)
    if response.usage is not None:
        out["usage"] = write_usage(response.usage, losses)
    restore_form(out, response.extra.get(FORM, {}))
    return Encoded(write_extra(out, response.extra, NAME), losses)


def report_envelope(model: str, created: int | None, losses: Losses) -> None:
    """Report the fields of an answer that Cohere's answers do not have."""
    if model:
        losses.add("/model", "model", "dropped", "Cohere answers do not name the model", "info")
    if created is not None:
        losses.add("/created", "created", "dropped", "Cohere answers have no timestamp", "info")
