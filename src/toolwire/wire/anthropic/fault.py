"""Anthropic's error envelope.

    {"type": "error", "error": {"type", "message", "details": {"error_code"}}, "request_id"}

Match the code, never the message text. A 413 may come from the edge as HTML.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...ir.pointer import JSON, Object
from ...ir.response import Fault, FaultKind
from ..faults import (
    CONTEXT_LENGTH,
    FaultTable,
    body_message,
    context_length_code,
    kind_of_status,
    overflow_message,
    read_request_id,
    read_retry_after,
    read_should_retry,
)
from ..protocol import EncodedFault
from ..signatures import Signature, add_breach
from .blocks import NAME
from .limits import SIGNATURES

__all__ = ["decode_error", "encode_error", "read_fault", "write_fault"]

_KINDS: dict[str, FaultKind] = {
    "invalid_request_error": "invalid_request",
    "authentication_error": "authentication",
    "billing_error": "billing",
    "permission_error": "permission",
    "not_found_error": "not_found",
    "conflict_error": "conflict",
    "request_too_large": "too_large",
    "rate_limit_error": "rate_limit",
    "timeout_error": "timeout",
    "overloaded_error": "overloaded",
    "api_error": "server",
}
_FAULTS = FaultTable(
    kinds=_KINDS,
    types={kind: word for word, kind in _KINDS.items()} | {"malformed_call": "api_error"},
    statuses={
        "invalid_request": (400, 426),
        "authentication": (401,),
        "billing": (402,),
        "permission": (403,),
        "not_found": (404,),
        "conflict": (409,),
        "too_large": (413,),
        "rate_limit": (429,),
        "overloaded": (529,),
        "timeout": (504,),
        "malformed_call": (502,),
    },
    request_id_header="request-id",
)


def read_fault(body: JSON, status: int | None = None, signatures: tuple[Signature, ...] = SIGNATURES) -> Fault:
    """Read a fault from `body`, the whole envelope. Vertex AI's own errors may be in a list."""
    if type(body) is list and body:
        body = body[0]
    error = body.get("error") if type(body) is dict else None
    if type(error) is not dict:
        return Fault(kind_of_status(status or 500), body_message(body, status or 500), status or 500)
    kind = _FAULTS.kind_of_type(str(error.get("type"))) or kind_of_status(status or 500)
    details = error.get("details")
    code = details.get("error_code") if type(details) is dict else context_length_code(str(error.get("message")))
    own = {key: value for key, value in error.items() if key not in ("type", "message")}
    if type(error.get("type")) is str and error["type"] != _FAULTS.type_of_kind(kind):
        own["type"] = error["type"]
    fault = Fault(
        kind,
        str(error.get("message") or body_message(None, status or 500)),
        status or _FAULTS.status_of_kind(kind),
        None if code is None else str(code),
        request_id=body.get("request_id") if type(body.get("request_id")) is str else None,
        extra={NAME: own} if own else {},
    )
    return add_breach(fault, signatures)


_TOO_LONG = "prompt is too long"


def write_fault(fault: Fault) -> Object:
    """Return the whole error envelope; the fields that only this wire has are written last."""
    error: Object = {"type": _FAULTS.type_of_kind(fault.kind), "message": fault.message}
    if fault.code == CONTEXT_LENGTH:  # Anthropic has no code for it: clients search the message
        message = overflow_message(fault, _TOO_LONG, _TOO_LONG + ": {tokens} tokens > {limit} maximum")
        error["message"] = message if _TOO_LONG in message else f"{_TOO_LONG}: {message}"
    elif fault.code is not None:
        error["details"] = {"error_code": fault.code}
    out: Object = {"type": "error", "error": {**error, **fault.extra.get(NAME, {})}}
    if fault.request_id is not None:
        out["request_id"] = fault.request_id
    return out


def decode_error(
    status: int | None,
    body: JSON,
    headers: Mapping[str, str] | None,
    signatures: tuple[Signature, ...] = SIGNATURES,
) -> Fault:
    """Decode an error response; the request id is taken from the body, else from a header."""
    fault = read_fault(body, status, signatures)
    return replace(
        fault,
        retry_after=read_retry_after(headers),
        retryable=read_should_retry(headers),
        request_id=fault.request_id or read_request_id(headers),
    )


def encode_error(fault: Fault) -> EncodedFault:
    return EncodedFault(_FAULTS.status_of(fault), write_fault(fault), _FAULTS.headers_of(fault))
