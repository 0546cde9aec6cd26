"""Errors of the Interactions API.

    {"error": {"code": "rate_limit_exceeded", "message"}}
    {"event_type": "error", "error": {"code", "message"}}                   in a stream

The codes are names (https://ai.google.dev/gemini-api/docs/api-errors). Google's front end, which checks keys, answers in
the form of its other APIs, with a number as the code and a `status`; that form is read, too.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.pointer import JSON, Object
from ...ir.response import Fault, StopReason
from ..faults import (
    CONTEXT_LENGTH,
    FaultTable,
    Signature,
    add_breach,
    add_headers,
    body_message,
    context_length_code,
    kind_of_status,
    overflow_message,
    status_of_kind,
)
from ..protocol import EncodedFault
from .content import NAME

FILTERS = frozenset({"safety", "blocked", "content_filter", "content_blocked", "recitation", "prohibited_content"})
"""Codes of an interaction that failed because a filter blocked it."""

_FAULTS = FaultTable(
    kinds={
        **dict.fromkeys(FILTERS, "invalid_request"),
        "invalid_request": "invalid_request",
        "failed_precondition": "invalid_request",
        "out_of_range": "invalid_request",
        "parameter_unknown": "invalid_request",
        "authentication": "authentication",
        "payment_required": "billing",
        "permission_denied": "permission",
        "not_found": "not_found",
        "model_not_found": "not_found",
        "conflict": "conflict",
        "rate_limit_exceeded": "rate_limit",
        "too_many_requests": "rate_limit",
        "quota_exceeded": "rate_limit",
        "resource_exhausted": "rate_limit",
        "overloaded": "overloaded",
        "service_unavailable": "overloaded",
        "unavailable": "overloaded",
        "timeout": "timeout",
        "deadline_exceeded": "timeout",
        "gateway_timeout": "timeout",
        "malformed_function_call": "malformed_call",
        "internal_error": "server",
        "api_error": "server",
        # of Google's other APIs, in `status`
        "INVALID_ARGUMENT": "invalid_request",
        "FAILED_PRECONDITION": "invalid_request",
        "UNAUTHENTICATED": "authentication",
        "PERMISSION_DENIED": "permission",
        "NOT_FOUND": "not_found",
        "RESOURCE_EXHAUSTED": "rate_limit",
        "UNAVAILABLE": "overloaded",
        "DEADLINE_EXCEEDED": "timeout",
        "INTERNAL": "server",
    },
    types={
        "invalid_request": "invalid_request",
        "authentication": "authentication",
        "billing": "payment_required",
        "permission": "permission_denied",
        "not_found": "not_found",
        "conflict": "conflict",
        "too_large": "invalid_request",
        "rate_limit": "rate_limit_exceeded",
        "overloaded": "service_unavailable",
        "timeout": "deadline_exceeded",
        "malformed_call": "malformed_function_call",
        "server": "internal_error",
    },
    statuses={
        "authentication": (401, 400),
        "billing": (402, 400),
        "permission": (403,),
        "not_found": (404,),
        "conflict": (409,),
        "too_large": (400, 413),
        "rate_limit": (429,),
        "overloaded": (503,),
        "timeout": (504,),
        "malformed_call": (502,),
    },
)


def read_fault(body: JSON, status: int | None = None, signatures: tuple[Signature, ...] = ()) -> Fault:
    """Read a fault from `body`, the whole envelope, in a list or not; a body without one gives a fault by `status`."""
    if type(body) is list and body:
        body = body[0]
    error = body.get("error") if type(body) is dict else None
    if type(error) is not dict:
        return Fault(kind_of_status(status or 500), body_message(body, status or 500), status or 500)
    code = error.get("code")
    if type(code) is int and 400 <= code < 600:
        status = status or code
    own_fields = {key: value for key, value in error.items() if key not in ("code", "message")}
    words = [word for word in (code, error.get("status")) if type(word) is str]
    kind = next((found for word in words if (found := _FAULTS.kind_of_type(word))), None)
    kind = kind or kind_of_status(status or 500)
    if code != _FAULTS.type_of_kind(kind):
        own_fields["code"] = code
    message = str(error.get("message") or body_message(None, status or 500))
    name = words[0] if words and words[0] != _FAULTS.type_of_kind(kind) else None
    fault = Fault(
        kind,
        message,
        status or status_of_kind(kind),
        context_length_code(message) or name,
        extra={NAME: own_fields} if own_fields else {},
    )
    return add_breach(fault, signatures)


# clients search Google's message for a prompt that is too long (google-gemini/gemini-cli#13006)
_INPUT_COUNT = "input token count"
_TOO_LONG = "The input token count ({tokens}) exceeds the maximum number of tokens allowed ({limit})."


def write_error(fault: Fault) -> Object:
    """Return the object under `error`."""
    message = overflow_message(fault, _INPUT_COUNT, _TOO_LONG)
    if fault.code == CONTEXT_LENGTH and _INPUT_COUNT not in message:
        message = f"The input token count exceeds the maximum number of tokens allowed: {message}"
    return {"code": _FAULTS.type_of_kind(fault.kind), "message": message, **fault.extra.get(NAME, {})}


def stop_reason_of(fault: Fault) -> StopReason:
    """Return the stop reason of an interaction that failed with this fault."""
    if fault.kind == "malformed_call":
        return "malformed_call"
    return "content_filter" if fault.code in FILTERS else "error"


def decode_error(
    status: int | None, body: JSON, headers: Mapping[str, str] | None, signatures: tuple[Signature, ...] = ()
) -> Fault:
    """Decode an error response; the retry time is taken from a header, else from the message."""
    return add_headers(read_fault(body, status, signatures), headers, reads_message=True)


def encode_error(fault: Fault) -> EncodedFault:
    return EncodedFault(_FAULTS.status_of(fault), {"error": write_error(fault)}, _FAULTS.headers_of(fault))
