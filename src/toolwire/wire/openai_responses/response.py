"""Responses objects: status, usage, and the request that they echo.

The fields that repeat the request (`tools`, `temperature`, …) are form, not meaning: they are written back here and are
no loss elsewhere. A response with HTTP status 200 can have failed; then it has a `fault`.
"""

from __future__ import annotations

from itertools import filterfalse

from msgspec.structs import replace

from ...ir.errors import ProtocolError
from ...ir.losses import Losses
from ...ir.parts import Extra, Part, Refusal, ToolCall
from ...ir.pointer import JSON, Object
from ...ir.request import Request
from ...ir.response import Fault, Response, Stop, StopReason, Usage
from ..fields import (
    INPUT_DETAILS,
    OUTPUT_DETAILS,
    odd_values,
    read_counts,
    read_details,
    read_extra,
    read_label,
    read_timestamp,
    remember_form,
    require_object,
    restore_form,
    write_extra,
)
from ..openai_fault import fault_code, read_fault
from ..protocol import Encoded
from .content import NAME
from .item_writer import write_output
from .items import may_be_cut, read_output
from .request import encode_request

ONE_CHOICE = "a Responses answer has one choice"
_FORM = "openai_responses~"  # the key of `extra` for the source's spelling; names with a colon are notes of ours
_KNOWN = frozenset({"id", "object", "created_at", "model", "output", "status", "incomplete_details", "error", "usage"})
_DEFAULT_HEADERS = ("id", "object", "created_at", "model")
ENVELOPE_TYPES = {"id": (str,), "model": (str,), "created_at": (int, float), "usage": (dict,)}
_UNFINISHED = ("queued", "in_progress", None)
ECHO = frozenset(
    "access_programs background conversation image instructions max_output_tokens max_tool_calls metadata "
    "parallel_tool_calls previous_response_id prompt prompt_cache_key prompt_cache_options prompt_cache_retention "
    "reasoning safety_identifier store temperature text tool_choice tools top_logprobs top_p truncation user "
    "completed_at frequency_penalty presence_penalty".split()
)
INCOMPLETE_REASONS: dict[str, StopReason] = {
    "max_output_tokens": "length",
    "content_filter": "content_filter",
    "steered": "pause",
    "max_messages": "pause",
}
_INCOMPLETE_NAMES: dict[StopReason, str] = {
    "length": "max_output_tokens",
    "context_window": "max_output_tokens",
    "content_filter": "content_filter",
    "pause": "max_messages",
}


def decode_response(body: Object) -> Response:
    """Decode a response or an error body; form `:envelope` marks a response that came from this wire.

    The last call of an incomplete response may be truncated. Raise ProtocolError if there is no output.
    """
    body = read_output_text(require_object(body))
    if type(body.get("output")) is not list:
        if type(body.get("error")) is dict and "object" not in body:
            return Response(fault=read_fault(body["error"], NAME))
        raise ProtocolError("expected an array of output items", pointer="/output")
    parts = read_output(body)
    last = parts[-1] if parts and body.get("status") == "incomplete" else None
    if isinstance(last, ToolCall) and may_be_cut(last):
        raw = last.raw if last.kind == "freeform" else ""
        parts = (*parts[:-1], replace(last, arguments=None, raw=raw, state="truncated"))
    extra = read_extra({key: body[key] for key in filterfalse(ECHO.__contains__, body)}, _KNOWN, NAME)
    echo = {key: body[key] for key in filter(ECHO.__contains__, body)}
    form = {**extra.get(_FORM, {}), **echo, ":envelope": "its own"}
    if body.get("status") in _UNFINISHED:
        form[":status"] = body.get("status", "absent")
    extra[_FORM] = remember_form(body, _DEFAULT_HEADERS, form)
    return Response(
        id=read_label(body, "id"),
        model=read_label(body, "model"),
        parts=parts,
        stop=read_stop(body, parts),
        usage=read_usage(body.get("usage")),
        created=read_timestamp(body, "created_at"),
        fault=read_response_fault(body),
        extra={**extra, **odd_values(body, ENVELOPE_TYPES, NAME)},
    )


def read_output_text(body: Object) -> Object:
    """Return a response with its text in an item: some servers send only `output_text`, which SDKs compute."""
    text = body.get("output_text")
    if body.get("output") or not text or type(text) is not str:
        return body
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return {**{key: value for key, value in body.items() if key != "output_text"}, "output": [message]}


def read_response_fault(body: Object) -> Fault | None:
    """Return the fault of a failed or cancelled response; None for any other status."""
    if body.get("status") not in ("failed", "cancelled"):
        return None
    error = body.get("error")
    if type(error) is dict:
        return read_fault(error, NAME)
    return Fault("server", f"the response was {body['status']}", 502)


def read_stop(body: Object, parts: tuple[Part, ...]) -> Stop | None:
    """Derive the stop from the status and its details; `parts` decides between calls, a refusal and a plain stop."""
    status = body.get("status")
    if status == "incomplete":
        details = body.get("incomplete_details", "absent")
        stop_name = details.get("reason") if type(details) is dict else None
        reason: StopReason = INCOMPLETE_REASONS.get(str(stop_name), "unknown")
        is_plain = reason in _INCOMPLETE_NAMES and details == {"reason": _INCOMPLETE_NAMES[reason]}
        extra: Extra = {} if is_plain else {_FORM: {":incomplete": details}}
        if type(details) is dict and len(details) > 1:
            extra[NAME] = {"incomplete_details": details}
        return Stop(reason, extra=extra)
    if status == "completed" or (status is None and parts):
        form = {} if status == "completed" else {_FORM: {":status": "absent"}}
        kinds = {*map(type, parts)}
        return Stop("tool_calls" if ToolCall in kinds else "refusal" if Refusal in kinds else "stop", extra=form)
    if status in ("failed", "cancelled"):
        return Stop("error", extra={} if status == "failed" else {_FORM: {":status": status}})
    return None if status in _UNFINISHED else Stop("unknown", extra={_FORM: {":status": status}})


_COUNTS = ("input_tokens", "output_tokens", "total_tokens")
_USAGE = frozenset({"input_tokens", "output_tokens", "total_tokens", "input_tokens_details", "output_tokens_details"})


def read_usage(raw: JSON) -> Usage | None:
    """Read the counts, or None if there are none; absent counts are recorded as form."""
    if type(raw) is not dict:
        return None
    extra = read_extra(raw, _USAGE, NAME)
    input_details = read_details(raw, "input_tokens_details", NAME, extra)
    output_details = read_details(raw, "output_tokens_details", NAME, extra)
    usage = read_counts(NAME, raw, ("input", input_details), ("output", output_details), extra)
    absent = [
        key
        for counts, keys in ((input_details, INPUT_DETAILS), (output_details, OUTPUT_DETAILS), (raw, _COUNTS))
        for key in keys
        if key not in counts
    ]
    if absent:
        extra[_FORM] = {**extra.get(_FORM, {}), ":absent": absent}
    return usage


def write_usage(usage: Usage) -> Object:
    """Write the counts and their details; counts that were absent when they were read are left out again."""
    input_details: Object = {"cached_tokens": usage.cached or 0, "cache_write_tokens": usage.cache_write or 0}
    output_details: Object = {"reasoning_tokens": usage.reasoning or 0}
    out: Object = {"input_tokens": usage.input or 0, "output_tokens": usage.output or 0, "total_tokens": usage.total}
    absent = {":absent": usage.extra.get(_FORM, {}).get(":absent", ())}
    for counts, scope in ((input_details, "/input"), (output_details, "/output"), (out, "")):
        restore_form(counts, {**usage.extra.get(f"{NAME}{scope}~", {}), **absent}, ("total_tokens",))
    if input_details := write_extra(input_details, usage.extra, f"{NAME}/input"):
        out["input_tokens_details"] = input_details
    if output_details := write_extra(output_details, usage.extra, f"{NAME}/output"):
        out["output_tokens_details"] = output_details
    return write_extra(out, usage.extra, NAME)


def echo_request(request: Request) -> Object:
    """Return the fields of a request that its response repeats."""
    leading = request.messages[:1] if request.messages and request.messages[0].role == "system" else ()
    body = encode_request(replace(request, messages=leading)).body
    return {key: value for key, value in body.items() if key in ECHO}


def make_envelope(
    response_id: str, model: str, created: int | None, usage: Usage | None, request: Request | None = None
) -> Object:
    """Return every field that a client may rely on, as far as it is known; `request` is the client's request."""
    envelope = {
        "id": response_id,
        "object": "response",
        "created_at": created or 0,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": model,
        "output": [],
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": None if usage is None else write_usage(usage),
    }
    return envelope if request is None else {**envelope, **echo_request(request)}


def encode_response(response: Response, request: Request | None = None) -> Encoded:
    """Encode a response; one from another wire gets all the fields that clients of this wire may rely on.

    `request` is the client's request, which they repeat. Other choices are a loss.
    """
    losses = Losses()
    form = response.extra.get(_FORM, {})
    repeated = None if ":envelope" in form else request
    base = make_envelope(response.id, response.model, response.created, response.usage, repeated)
    if ":envelope" in form:  # it came from this wire: write only the fields that it had
        base = {key: value for key, value in base.items() if key in _KNOWN and (value is not None or key in form)}
    base["output"] = write_output(response.parts, response.id, losses)
    refused = any(isinstance(part, Refusal) for part in response.parts)
    base.update(write_status(response.stop, response.fault, losses, refused=refused))
    stop_form = {} if response.stop is None else response.stop.extra.get(_FORM, {})
    if ":status" in form and (response.stop is None or stop_form.get(":status") == "absent"):
        base["status"] = form[":status"]
    if base.get("status") == "absent":
        del base["status"]
    if response.alternatives:
        losses.add("/alternatives", "alternatives", "dropped", ONE_CHOICE, "error")
    return Encoded(write_extra(restore_form(base, form, ("object",)), response.extra, NAME), losses)


def write_status(stop: Stop | None, fault: Fault | None, losses: Losses, *, refused: bool) -> Object:
    """Return the status and its details, or the error of a fault. `refused`: an output item has the refusal.

    A stop that Responses cannot express is reported.
    """
    if fault is not None:
        status = "failed" if stop is None else stop.extra.get(_FORM, {}).get(":status", "failed")
        error = {"code": fault_code(fault), "message": fault.message}
        return {"status": status, "error": {**error, **fault.extra.get(NAME, {})}}
    if stop is None:
        return {"status": "in_progress"}
    form = stop.extra.get(_FORM, {})
    if stop.sequence is not None or stop.reason == "stop_sequence":
        losses.add("/stop/sequence", "stop sequence", "dropped", "Responses has no stop sequences", "info")
    if ":incomplete" in form:
        details = form[":incomplete"]
        return {"status": "incomplete", **({} if details == "absent" else {"incomplete_details": details})}
    stop_name = _INCOMPLETE_NAMES.get(stop.reason)
    if stop.reason == "refusal" and not refused:
        stop_name = "content_filter"
        losses.add(
            "/stop",
            "stop reason refusal",
            "weakened",
            "Responses has refusals only in items; sent as content_filter",
            "info",
        )
    if stop_name is None:
        if stop.reason == "unknown" and ":status" not in form:
            losses.add("/stop", "stop reason unknown", "weakened", "Responses has no equivalent; sent as 'completed'")
        return {} if form.get(":status") == "absent" else {"status": form.get(":status", "completed")}
    if stop.reason == "context_window":
        losses.add(
            "/stop", "stop reason context_window", "weakened", "Responses has no equivalent; sent as max_output_tokens"
        )
    return {"status": "incomplete", "incomplete_details": {"reason": stop_name}}


ENVELOPE = ECHO.union("id object created_at model output status incomplete_details error usage".split())
