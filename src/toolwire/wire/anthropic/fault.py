"""Anthropic's errors: the envelope, and signatures of exceeded limits.

    {"type": "error", "error": {"type", "message", "details": {"error_code"}}, "request_id"}

Match the code, never the message text. A 413 may come from the edge as HTML.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.pointer import JSON, Object
from ...ir.response import Fault, FaultKind
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
)
from ..protocol import EncodedFault
from .tools import NAME

_TOOL = r"(?P<path>tools\.\d{1,6}(?:\.\w{1,64})?"
_FEWER = "let prepare() remove `strict` from as few tools as possible, or send fewer strict tools"
_LOWER = "lower the schema with toolwire.schema.lower(schema, 'anthropic_strict'), or declare the tool without strict"

SIGNATURES = (
    Signature("name", "TW003", _TOOL + r"\.name): String should", "rename the tool, or let prepare() map it"),
    Signature("unique_names", "TW001", r"tools: Tool names must be unique", "rename one of the tools"),
    Signature(
        "cache_marks",
        None,
        r"A maximum of \d{1,3} blocks with cache_control",
        "mark fewer blocks, or let prepare() keep the last ones",
    ),
    Signature("tools", "TW010", r"\navailable_tools_limit_exceeded\Z", "send fewer tools, or defer them"),
    Signature(
        "property_name",
        "TW022",
        _TOOL + r"\.input_schema\.properties): Property keys should match pattern",
        "rename the properties, or let prepare() map them",
    ),
    Signature(
        "root_union",
        "TW021",
        _TOOL + r"\.input_schema): input_schema does not support oneOf, allOf, or anyOf",
        "put the union under one property, or let prepare() rewrite it",
    ),
    Signature("root", "TW020", _TOOL + r"\.input_schema)\.type: ", "set 'type': 'object' at the root"),
    Signature(
        "schema",
        "TW040",
        _TOOL + r"\.input_schema): JSON schema is invalid",
        "write JSON Schema 2020-12, or let prepare() rewrite it",
    ),
    Signature("strict_tools", "TW012", r"Too many strict tools", _FEWER),
    Signature("optional_parameters", "TW012", r"too many optional parameters", _FEWER),
    Signature("union_parameters", "TW012", r"too many parameters with union types", _FEWER),
    Signature(
        "grammar",
        "TW012",
        r"compiled grammar is too large|Schema is too complex for compilation",
        "send fewer or simpler strict tools: the limit applies to all of them together",
    ),
    Signature(
        "strict",
        None,
        r"does not support strict tools",
        "declare the tools without strict: this model does not support it",
    ),
    Signature(
        "strict",
        None,
        _TOOL + r"\.strict): Extra inputs",
        "declare the tools without strict: this model does not support it",
    ),
    Signature(
        "closed",
        None,
        r"(?:" + _TOOL + r")|output_\w{1,20}[\w.]{0,40}): For 'object' type, 'additionalProperties' must be",
        _LOWER,
    ),
    Signature("keywords", "TW032", _TOOL + r"): For '\w{1,20}' type, propert", _LOWER),
)


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
    """Read a fault from `body`, the whole envelope; a body without one gives a fault by `status`.

    Vertex AI's own errors may be in a list. `signatures` recognise exceeded limits.
    """
    if type(body) is list and body:
        body = body[0]
    error = body.get("error") if type(body) is dict else None
    if type(error) is not dict:
        return Fault(kind_of_status(status or 500), body_message(body, status or 500), status or 500)
    kind = _FAULTS.kind_of_type(str(error.get("type"))) or kind_of_status(status or 500)
    details = error.get("details")
    code = details.get("error_code") if type(details) is dict else context_length_code(str(error.get("message")))
    own_fields = {key: value for key, value in error.items() if key not in ("type", "message")}
    if type(error.get("type")) is str and error["type"] != _FAULTS.type_of_kind(kind):
        own_fields["type"] = error["type"]
    fault = Fault(
        kind,
        str(error.get("message") or body_message(None, status or 500)),
        status or _FAULTS.status_of_kind(kind),
        None if code is None else str(code),
        request_id=body.get("request_id") if type(body.get("request_id")) is str else None,
        extra={NAME: own_fields} if own_fields else {},
    )
    return add_breach(fault, signatures)


_TOO_LONG = "prompt is too long"


def write_fault(fault: Fault) -> Object:
    """Return the whole error envelope; the fields that only this wire has are written last.

    An exceeded context length gets the wording by which clients recognise it.
    """
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
    return add_headers(read_fault(body, status, signatures), headers)


def encode_error(fault: Fault) -> EncodedFault:
    return EncodedFault(_FAULTS.status_of(fault), write_fault(fault), _FAULTS.headers_of(fault))
