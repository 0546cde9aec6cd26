"""Interaction resources: status, steps, usage, and the request that they repeat.

The fields that repeat the request are form, not meaning: they are written back here and are no loss elsewhere. An
interaction with HTTP status 200 can have failed; then it has a `fault`. Thoughts and the input of Google's own tools are
not in the other counts of the usage (recorded: 22 + 590 + 198 + 1173 = 1983).

Before the revision 2026-05-20 of the API, an answer had `outputs`: steps, and contents without a step around them. They
are read and written back, because older servers and recordings have them.
"""

from __future__ import annotations

from itertools import filterfalse

from msgspec.structs import replace

from ...ir.errors import ProtocolError
from ...ir.losses import Losses
from ...ir.parts import Extra, Media, Part, Text, ToolCall
from ...ir.pointer import JSON, Object
from ...ir.request import Request
from ...ir.response import Fault, Response, Stop, StopReason, Usage
from ..codec import report_incomplete_call, stop_without_call
from ..fields import (
    decode_list,
    format_time,
    odd_values,
    parse_time,
    read_count,
    read_extra,
    read_label,
    remember_form,
    require_object,
    restore_form,
    write_extra,
)
from ..protocol import Encoded
from .content import FORM, LABEL, NAME, is_content_document, read_content
from .fault import FILTERS, read_fault, stop_reason_of, write_error
from .step_writer import write_model_steps
from .steps import read_model_step, read_output, require_steps

ONE_CHOICE = "an interaction has one answer"
_KNOWN = frozenset({"id", "object", "created", "model", "steps", "outputs", "status", "errors", "usage"})
_DEFAULT_HEADERS = ("id", "object", "model")
ENVELOPE_TYPES = {"id": (str,), "model": (str,), "created": (str,), "usage": (dict,)}
ECHO = frozenset(
    "agent agent_config cached_content environment environment_id generation_config input labels output_audio "
    "output_image output_text output_video previous_interaction_id response_format response_mime_type "
    "response_modalities role safety_settings service_tier system_instruction tools updated webhook_config".split()
)
ENVELOPE = _KNOWN | ECHO
_UNFINISHED = ("in_progress", "queued")
STOP_REASONS: dict[str, StopReason] = {
    "completed": "stop",
    "requires_action": "tool_calls",
    "incomplete": "length",
    "budget_exceeded": "length",
    "requires_continuation": "pause",
    "failed": "error",
    "cancelled": "error",
}
_STATUSES: dict[StopReason, str] = {
    "stop": "completed",
    "stop_sequence": "completed",
    "unknown": "completed",
    "tool_calls": "requires_action",
    "length": "incomplete",
    "context_window": "incomplete",
    "content_filter": "incomplete",
    "refusal": "incomplete",
    "pause": "incomplete",
    "malformed_call": "failed",
    "error": "failed",
}
_COUNTS = (
    "total_input_tokens",
    "total_tool_use_tokens",
    "total_output_tokens",
    "total_thought_tokens",
    "total_cached_tokens",
)
_USAGE = frozenset(_COUNTS) | {"total_tokens"}


def decode_response(body: Object) -> Response:
    """Decode an interaction or an error body; raise ProtocolError if it is neither.

    The last call of an interaction that a limit ended is truncated if it has no arguments: they may not have arrived.
    """
    if type(require_object(body).get("error")) is dict and "status" not in body:
        return Response(fault=read_fault(body))
    if "status" not in body and "steps" not in body and "outputs" not in body:
        raise ProtocolError("expected an interaction with a status", pointer="/status")
    extra = read_extra({key: body[key] for key in filterfalse(ECHO.__contains__, body)}, _KNOWN, NAME)
    echo = {key: body[key] for key in filter(ECHO.__contains__, body)}
    form = {**extra.get(FORM, {}), **echo}
    parts = _read_parts(body, form)
    stop = read_stop(body, has_calls=any(type(part) is ToolCall for part in parts))
    if parts and ended_early(stop):
        parts = (*parts[:-1], as_truncated(parts[-1]))
    if body.get("status") in (*_UNFINISHED, None):
        form[":status"] = body.get("status", "absent")
    created, created_form = _read_created(body)
    extra[FORM] = remember_form(body, _DEFAULT_HEADERS, {**form, **created_form})
    return Response(
        id=read_label(body, "id"),
        model=read_label(body, "model"),
        parts=parts,
        stop=stop,
        usage=read_usage(body.get("usage")),
        created=created,
        fault=read_response_fault(body),
        extra={**extra, **odd_values(body, ENVELOPE_TYPES, NAME)},
    )


def _read_parts(body: Object, form: Object) -> tuple[Part, ...]:
    """Read `steps`, or `outputs` of an earlier revision; none is recorded as form."""
    if "steps" in body or "outputs" not in body:
        if body.get("steps") is None:
            form[":steps"] = "absent"  # or null, which is in the form
            return ()
        require_steps(body)
        return read_output(body)
    form[":steps"] = "outputs"
    return tuple([part for parts in decode_list(body, "outputs", read_output_entry) for part in parts])


def read_output_entry(raw: JSON) -> list[Part]:
    """Read a step, or a content that has no step around it."""
    if is_content_document(raw):
        part = read_content(raw)
        if isinstance(part, Text | Media):
            part = replace(part, extra={**part.extra, FORM: {**part.extra.get(FORM, {}), ":step": "absent"}})
        return [part]
    return read_model_step(raw)


def _read_created(body: Object) -> tuple[int | None, Object]:
    """Return the time in seconds, and its original text as form if the seconds do not preserve it."""
    text = body.get("created")
    if type(text) is not str or not text:
        return None, {}
    seconds = parse_time(text)
    return seconds, {} if seconds is not None and format_time(seconds) == text else {":created": text}


def read_created(body: Object) -> int | None:
    return _read_created(body)[0]


def ended_early(stop: Stop | None) -> bool:
    """Return whether something else than the model ended the answer, perhaps in the middle of a call."""
    return stop is not None and stop.reason in ("length", "content_filter", "pause")


def as_truncated(part: Part) -> Part:
    if type(part) is ToolCall and not part.arguments:
        extra = {**part.extra, FORM: {**part.extra.get(FORM, {}), ":cut": True}}
        return replace(part, arguments=None, raw=part.raw or "", state="truncated", extra=extra)
    return part


def read_stop(body: Object, *, has_calls: bool) -> Stop | None:
    """Derive the stop from the status, or None while the interaction runs; with calls, `completed` means tool calls.

    The status is kept as form if it is not the usual one for the reason, and the errors of a filter as fields.
    """
    status = body.get("status")
    if status is None or status in _UNFINISHED:
        return None
    reason = STOP_REASONS.get(status, "unknown") if type(status) is str else "unknown"
    if has_calls and reason in ("stop", "unknown"):
        reason = "tool_calls"
    errors = body.get("errors")
    extra: Extra = {}
    detail: str | None = None
    if errors and reason != "error":
        extra[NAME] = {"errors": errors}
        first = _first_error(body)
        if first is not None and str(first.get("code")) in FILTERS:
            reason, detail = "content_filter", str(first.get("message") or "") or None
            if errors == [_filter_error(detail)]:
                del extra[NAME]
    form: Object = {}
    fault = read_response_fault(body)
    if fault is not None:
        reason = stop_reason_of(fault)
        form[":errors"] = errors if _first_error(body) is not None else "absent"
    if _STATUSES[reason] != status:
        form[":status"] = status
    if form:
        extra[FORM] = form
    return Stop(reason, detail=detail, extra=extra)


def _filter_error(detail: str | None) -> Object:
    return {"code": "content_filter", "message": detail or "the answer was blocked"}


def _first_error(body: Object) -> Object | None:
    errors = body.get("errors")
    first = errors[0] if type(errors) is list and errors else None
    return first if type(first) is dict else None


def read_response_fault(body: Object) -> Fault | None:
    """Return the fault of an interaction that failed or was cancelled; None for any other status.

    It is the first error of the interaction, else the error of its last output.
    """
    status = body.get("status")
    if status not in ("failed", "cancelled"):
        return None
    error = _first_error(body) or body.get("error") or _step_error(body)
    if type(error) is dict:
        return read_fault({"error": error})
    return Fault("server", f"the interaction was {status}" if status == "cancelled" else "the interaction failed", 502)


def _step_error(body: Object) -> JSON:
    steps = body.get("steps")
    last = steps[-1] if type(steps) is list and steps else None
    return last.get("error") if type(last) is dict else None


def read_usage(raw: JSON) -> Usage | None:
    """Read the counts; `Usage.output` includes thoughts, `Usage.input` the input of Google's own tools.

    Return None if there are none. Absent counts and a total that is not the sum are kept as form.
    """
    if type(raw) is not dict:
        return None
    extra = read_extra(raw, _USAGE, NAME)
    given, tools, made, thoughts, cached = [read_count(raw, key, NAME, extra) for key in _COUNTS]
    usage = Usage(
        None if given is None else given + (tools or 0),
        None if made is None and thoughts is None else (made or 0) + (thoughts or 0),
        cached,
        reasoning=thoughts,
        tool_input=tools,
        extra=extra,
    )
    form = remember_form(raw, [*_COUNTS, "total_tokens"], {**extra.get(FORM, {})})
    if raw.get("total_tokens") not in (None, usage.total):
        form[":total"] = raw["total_tokens"]
    if form:
        extra[FORM] = form
    return usage


def write_usage(usage: Usage, losses: Losses) -> Object:
    """Write the counts. Tokens written to a cache are a loss."""
    if usage.cache_write:
        losses.add("/usage/cache_write", "tokens written to a cache", "dropped", f"{LABEL} does not count them", "info")
    form = usage.extra.get(FORM, {})
    out: Object = {
        "total_tokens": form.get(":total", usage.total),
        "total_input_tokens": (usage.input or 0) - (usage.tool_input or 0),
        "total_cached_tokens": usage.cached or 0,
        "total_output_tokens": (usage.output or 0) - (usage.reasoning or 0),
        "total_tool_use_tokens": usage.tool_input or 0,
        "total_thought_tokens": usage.reasoning or 0,
    }
    derived = ("total_tokens",) if ":total" not in form else ()
    return write_extra(restore_form(out, form, derived), usage.extra, NAME)


def encode_response(response: Response, request: Request | None = None) -> Encoded:
    """Encode an interaction; other choices and incomplete calls, which a client would run, are losses."""
    del request  # no field of an answer depends on it
    losses = Losses()
    form = response.extra.get(FORM, {})
    parts, stop = without_incomplete(response.parts, response.stop, losses)
    out: Object = {"id": response.id, "object": "interaction", "model": response.model}
    out.update(write_status(stop, response.fault, response.extra, losses))
    if ":status" in form and response.stop is None:
        out["status"] = form[":status"]
        if out["status"] == "absent":
            del out["status"]
    if response.usage is not None:
        out["usage"] = write_usage(response.usage, losses)
    out.update(write_times(response.created, form, losses))
    steps = [*write_model_steps(parts, "", losses)]
    place = form.get(":steps", "steps")
    if steps or place != "absent":
        out["outputs" if place == "outputs" else "steps"] = steps
    if response.alternatives:
        losses.add("/alternatives", "alternatives", "dropped", ONE_CHOICE, "error")
    return Encoded(write_extra(restore_form(out, form, ("object",)), response.extra, NAME), losses)


def without_incomplete(
    parts: tuple[Part, ...], stop: Stop | None, losses: Losses
) -> tuple[tuple[Part, ...], Stop | None]:
    """Return the parts without incomplete calls, and the stop for them. A call that was read as `{}` is written so."""
    kept: list[Part] = []
    for number, part in enumerate(parts):
        if type(part) is ToolCall and part.state != "complete":
            if ":cut" in part.extra.get(FORM, {}) and number == len(parts) - 1:
                kept.append(replace(part, arguments={}, raw=None, state="complete"))
                continue
            report_incomplete_call(part, LABEL, losses, f"/parts/{number}")
            stop = stop_without_call(part, stop, losses)
        else:
            kept.append(part)
    return tuple(kept), stop


def write_times(created: int | None, form: Object, losses: Losses) -> Object:
    """Return `created`, and `updated` for an answer of another wire, which has only one time."""
    if ":created" in form and (created is None or parse_time(form[":created"]) == created):
        return {"created": form[":created"]}
    if created is None:
        return {}
    try:
        text = format_time(created)
    except OverflowError:
        losses.add("/created", "created", "dropped", "the time is out of range", "info")
        return {}
    return {"created": text} if form else {"created": text, "updated": text}


def write_status(stop: Stop | None, fault: Fault | None, extra: Extra, losses: Losses) -> Object:
    """Return the status and the errors. A stop that an interaction cannot express is reported."""
    if fault is not None:
        form = {} if stop is None else stop.extra.get(FORM, {})
        errors = form.get(":errors", [])
        if errors != "absent" and not (errors and errors[0].get("message") == fault.message):
            errors = [write_error(fault)]
        return {"status": form.get(":status", "failed"), **({} if errors == "absent" else {"errors": errors})}
    if stop is None:
        return {"status": "in_progress"}
    if stop.sequence is not None:
        losses.add("/stop/sequence", "stop sequence", "dropped", f"{LABEL} does not name the stop sequence", "info")
    form = stop.extra.get(FORM, {})
    status = form.get(":status", _STATUSES[stop.reason])
    if stop.reason == "pause" and "continuation_token" in extra.get(NAME, {}):
        status = "requires_continuation"
    elif stop.reason in ("context_window", "refusal", "pause", "unknown", "malformed_call") and not form:
        detail = f"{LABEL} has no equivalent; sent as {status}"
        losses.add("/stop", f"stop reason {stop.reason}", "weakened", detail, "info")
    out: Object = {"status": status}
    if stop.reason in ("content_filter", "refusal"):
        out["errors"] = [_filter_error(stop.detail)]
    return write_extra(out, stop.extra, NAME)
