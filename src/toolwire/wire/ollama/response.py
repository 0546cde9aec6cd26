"""/api/chat answers: one object with the message, the stop reason, counts and timings.

`stop` also means "the model calls a tool". There is no id, and the time is an RFC 3339 string.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ...ir.errors import ProtocolError
from ...ir.losses import Losses
from ...ir.parts import Extra, Part, ToolCall
from ...ir.pointer import Object
from ...ir.request import Message, Request
from ...ir.response import Response, Stop, StopReason, Usage
from ..codec import report_incomplete_call, stop_without_call
from ..fields import (
    odd_values,
    read_count,
    read_extra,
    read_label,
    read_stop_reason,
    read_timestamp,
    remember_form,
    require_object,
    restore_form,
    wrap_object,
    write_extra,
)
from ..protocol import Encoded
from .fault import read_fault
from .messages import FORM, NAME, LocatedPart, read_assistant, write_assistant

MESSAGE = "ollama/message"
ONE_CHOICE = "an Ollama answer has only one choice"
KNOWN = frozenset({"model", "created_at", "message", "done", "done_reason", "prompt_eval_count", "eval_count"})
_ENVELOPE_TYPES = {"model": (str,), "created_at": (str,), "done": (bool,), "done_reason": (str,)}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
STOP_REASONS: dict[str, StopReason] = {
    "stop": "stop",
    "length": "length",
    "load": "stop",  # an empty prompt only loads the model into memory or unloads it
    "unload": "stop",
}
_UNNAMED_REASONS = frozenset({"content_filter", "refusal", "pause", "malformed_call", "error", "unknown"})


def decode_response(body: Object) -> Response:
    """Decode a response or an error body; fields of the message are kept under `ollama/message`.

    Raise ProtocolError if it is invalid.
    """
    if require_object(body).get("error"):
        return Response(fault=read_fault({key: body[key] for key in body if key not in KNOWN}))
    message = _read_message(require_object(body.get("message"), "message"))
    extra = read_extra(body, KNOWN, NAME)
    created, form = read_created(body)
    if "done" not in body:
        form[":done"] = "absent"
    remember_form(body, ("model",), form)
    if form:
        extra[FORM] = {**extra.get(FORM, {}), **form}
    return Response(
        model=read_label(body, "model"),
        parts=message.parts,
        stop=read_stop(body, message.parts),
        usage=read_usage(body),
        created=created,
        extra={
            **extra,
            **{name.replace(NAME, MESSAGE): fields for name, fields in message.extra.items()},
            **odd_envelope(body),
        },
    )


def odd_envelope(body: Object) -> Extra:
    """Return the values of an answer, or of a line, that have another type than the protocol defines."""
    odd = odd_values(body, _ENVELOPE_TYPES, NAME)
    created = body.get("created_at")
    if type(created) is str and created and _parse_time(created) is None:
        odd.setdefault(f"{NAME}?", {})["created_at"] = created
    return odd


def _read_message(raw: Object) -> Message:
    """Read the message of an answer; another role, or one call in place of a list, is recorded as form.

    Raise ProtocolError if it is invalid.
    """
    role = raw.get("role", "absent")
    form: Object = {} if role == "assistant" else {":role": role}
    if type(raw.get("tool_calls")) is dict:
        form[":single"] = ["tool_calls"]
    try:
        return read_assistant(wrap_object(raw, "tool_calls"), form)
    except ProtocolError as error:
        raise error.within("message") from None


def read_created(body: Object) -> tuple[int | None, Object]:
    """Return the time in seconds, and its original text as form if the seconds do not preserve it."""
    text = body.get("created_at")
    if type(text) is not str:
        return read_timestamp(body, "created_at"), {} if "created_at" in body else {":created_at": None}
    seconds = _parse_time(text)
    if seconds is None:
        return None, {":created_at": text}
    return seconds, {} if _format_time(seconds) == text else {":created_at": text}


def _parse_time(text: str) -> int | None:
    """Return the seconds of a time such as 2026-11-15T09:00:00Z; None for any other text."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return ((time if time.tzinfo is not None else time.replace(tzinfo=UTC)) - _EPOCH) // timedelta(seconds=1)


def _format_time(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def write_created(created: int | None, form: Object, losses: Losses) -> Object:
    """Return the field `created_at`. Clients require one, so an answer without a time gets the Unix epoch.

    `form` remembers the spelling of a document that was read from this wire: `:created_at` is the original text of
    the time, or None if the document had no such field. Such an answer is written back without one. A time out of
    range is a loss.
    """
    text = form.get(":created_at", "")
    if created is None:
        return {} if text is None or "created_at" in form else {"created_at": _format_time(0)}
    if text and _parse_time(text) == created:
        return {"created_at": text}
    try:
        return {"created_at": _format_time(created)}
    except OverflowError:
        losses.add("/created", "created", "dropped", "the time is out of range", "info")
        return {"created_at": _format_time(0)}


def is_done(body: Object) -> bool:
    """Return whether an answer is marked as complete; text and numbers are accepted."""
    done = body.get("done")
    return done is True or done == 1 or (type(done) is str and done.lower() == "true")


def read_stop(body: Object, parts: tuple[Part, ...]) -> Stop | None:
    """Read the stop reason, or None while the answer is not done. `stop` with calls means that the model calls a tool."""
    word = read_label(body, "done_reason")
    if not is_done(body) and not word:
        return None
    reason = read_stop_reason(word or "stop", STOP_REASONS)
    if reason in ("stop", "tool_calls", "unknown"):
        has_calls = any(type(part) is ToolCall for part in parts)
        reason = "tool_calls" if has_calls else "stop" if reason == "tool_calls" else reason
    return Stop(reason) if word == _stop_name(reason) else Stop(reason, extra={FORM: {":done_reason": word or None}})


def _stop_name(reason: StopReason) -> str:
    return "length" if reason in ("length", "context_window") else "stop"


def write_stop(stop: Stop, losses: Losses) -> Object:
    """Return the field `done_reason`, and report the details that it cannot express.

    A reason that was read from this wire is written back as it was (form `:done_reason`).
    """
    word = stop.extra.get(FORM, {}).get(":done_reason", "")
    if word is None:
        return {}
    if word:
        return {"done_reason": word}
    word = _stop_name(stop.reason)
    if stop.sequence is not None or stop.reason == "stop_sequence":
        losses.add("/stop/sequence", "stop sequence", "dropped", "Ollama does not report the stop sequence", "info")
    if stop.detail is not None:
        losses.add("/stop/detail", "stop detail", "dropped", "Ollama has no field for it", "info")
    if stop.reason in _UNNAMED_REASONS or stop.reason == "context_window":
        detail = f"Ollama has no equivalent; sent as {word!r}"
        losses.add("/stop", f"stop reason {stop.reason}", "weakened", detail)
    return {"done_reason": word}


def read_usage(body: Object) -> Usage | None:
    extra: Extra = {}
    input_tokens = read_count(body, "prompt_eval_count", NAME, extra)
    output_tokens = read_count(body, "eval_count", NAME, extra)
    if input_tokens is None and output_tokens is None and not extra:
        return None
    return Usage(input_tokens, output_tokens, extra=extra)


def write_usage(usage: Usage, losses: Losses) -> Object:
    """Return the token counts; counts that Ollama does not have are losses."""
    for concept in ("cached", "cache_write", "reasoning"):
        if getattr(usage, concept):
            losses.add(f"/usage/{concept}", f"{concept} tokens", "dropped", "Ollama does not count them", "info")
    counts = (("prompt_eval_count", usage.input), ("eval_count", usage.output))
    return write_extra({key: count for key, count in counts if count is not None}, usage.extra, NAME)


def encode_response(response: Response, request: Request | None = None) -> Encoded:
    """Encode a response; incomplete calls are left out with losses, because a client would execute them.

    The id, other choices and details that Ollama lacks are losses.
    """
    del request  # no field of an answer depends on it
    losses = Losses()
    if response.id:
        losses.add("/id", "id", "dropped", "Ollama answers have no id", "info")
    if response.alternatives:
        losses.add("/alternatives", "alternatives", "dropped", ONE_CHOICE, "error")
    form = response.extra.get(FORM, {})
    stop = response.stop
    parts: list[LocatedPart] = []
    for number, part in enumerate(response.parts):
        if type(part) is ToolCall and part.state != "complete":
            report_incomplete_call(part, "Ollama", losses, f"/parts/{number}")
            stop = stop_without_call(part, stop, losses)
        else:
            parts.append((f"/parts/{number}", part))
    inner = {name.replace(MESSAGE, NAME): fields for name, fields in response.extra.items() if MESSAGE in name}
    message = write_assistant(parts, inner, losses, separator="", numbered=True)
    if ":single" in inner.get(FORM, {}):
        restore_form(message, {":single": inner[FORM][":single"]})
    if message["role"] == "absent":
        del message["role"]
    out: Object = {"model": response.model, **write_created(response.created, form, losses), "message": message}
    restore_form(out, form)
    if stop is not None:
        out.update(write_stop(stop, losses))
    if ":done" not in form:
        out["done"] = stop is not None
    if response.usage is not None:
        out.update(write_usage(response.usage, losses))
    return Encoded(write_extra(out, response.extra, NAME), losses)
