"""Bedrock's errors: a message in the body, and the type in a header.

    x-amzn-errortype: ThrottlingException:http://internal.amazon.com/coral/com.amazon.bedrock/
    {"message": "Too many requests, please wait before trying again."}

In a stream, the type is the header `:exception-type` of a message, with a small first letter.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...ir.pointer import JSON, Object
from ...ir.response import Fault
from ..faults import (
    CONTEXT_LENGTH,
    FaultTable,
    Signature,
    add_breach,
    add_headers,
    body_message,
    context_length_code,
    kind_of_status,
)
from ..fields import is_empty
from ..protocol import EncodedFault
from .media import NAME

ERROR_TYPE = "x-amzn-errortype"
SIGNATURES = (
    Signature(
        "declared_history",
        "TW014",
        r"toolConfig field must be defined when using toolUse and toolResult",
        "declare the tools of the calls in the history, or let prepare() do it",
    ),
    Signature(
        "name",
        "TW002",
        r"at 'toolConfig\.(?P<path>tools\.\d{1,6}\.member\.toolSpec\.name)' failed to satisfy",
        "rename the tool, or let prepare() map it",
    ),
)
_FAULTS = FaultTable(
    kinds={
        "ValidationException": "invalid_request",
        "AccessDeniedException": "permission",
        "UnrecognizedClientException": "authentication",
        "ExpiredTokenException": "authentication",
        "InvalidSignatureException": "authentication",
        "IncompleteSignatureException": "authentication",
        "MissingAuthenticationTokenException": "authentication",
        "ResourceNotFoundException": "not_found",
        "ConflictException": "conflict",
        "ThrottlingException": "rate_limit",
        "ServiceQuotaExceededException": "rate_limit",
        "ModelNotReadyException": "overloaded",
        "ServiceUnavailableException": "overloaded",
        "ModelTimeoutException": "timeout",
        "ModelErrorException": "server",
        "ModelStreamErrorException": "server",
        "InternalServerException": "server",
    },
    messages=((r"(?i)^authentication failed|bearer token|api key", "authentication"),),
    types={
        "invalid_request": "ValidationException",
        "authentication": "UnrecognizedClientException",
        "billing": "AccessDeniedException",
        "permission": "AccessDeniedException",
        "not_found": "ResourceNotFoundException",
        "conflict": "ConflictException",
        "too_large": "ValidationException",
        "rate_limit": "ThrottlingException",
        "overloaded": "ServiceUnavailableException",
        "timeout": "ModelTimeoutException",
        "malformed_call": "ModelErrorException",
        "server": "InternalServerException",
    },
    statuses={
        "invalid_request": (400,),
        "authentication": (403, 401),
        "billing": (403,),
        "permission": (403,),
        "not_found": (404,),
        "conflict": (409, 400),
        "too_large": (400, 413),
        "rate_limit": (429, 400),
        "overloaded": (503, 429),
        "timeout": (408,),
        "malformed_call": (424,),
        "server": (500, 424),
    },
    request_id_header="x-amzn-requestid",
)
_MODEL_ERROR = 424  # ModelErrorException: "the request failed due to an error while processing the model"
_TOO_LONG = "Input is too long for requested model."
_MESSAGES = frozenset({"message", "Message"})


def read_fault(
    body: JSON, status: int | None = None, error_type: str = "", signatures: tuple[Signature, ...] = SIGNATURES
) -> Fault:
    """Read a fault from the body of an error; `error_type` is the type that its headers name."""
    fields: Object = body if type(body) is dict else {}
    message = next((fields[name] for name in ("message", "Message") if type(fields.get(name)) is str), None)
    named = error_type or (fields["__type"] if type(fields.get("__type")) is str else "")
    kind_name = named.partition(":")[0].rpartition("#")[2]
    kind_name = kind_name[:1].upper() + kind_name[1:]
    kind = _FAULTS.kind_of_message(message or "") if kind_name in ("", "AccessDeniedException") else None
    kind = kind or _FAULTS.kind_of_type(kind_name) or ("server" if status == _MODEL_ERROR else None)
    kind = kind or kind_of_status(status or 500)
    own = {name: value for name, value in fields.items() if name not in _MESSAGES and not is_empty(value)}
    if kind_name and kind_name != _FAULTS.type_of_kind(kind):
        own[":type"] = kind_name
    if "Message" in fields and "message" not in fields:
        own[":message"] = "Message"
    fault = Fault(
        kind,
        message or body_message(None if fields else body, status or 500),
        status or _FAULTS.status_of_kind(kind),
        context_length_code(message or ""),
        extra={NAME: own} if own else {},
    )
    fault = add_breach(fault, signatures)
    if fault.breach is not None and fault.breach.at.startswith("/tools/"):
        fault = replace(fault, breach=replace(fault.breach, at="/toolConfig" + fault.breach.at))
    return fault


def error_type_of(fault: Fault) -> str:
    return str(fault.extra.get(NAME, {}).get(":type", _FAULTS.type_of_kind(fault.kind)))


def write_fault(fault: Fault) -> Object:
    """Return the body of an error. A prompt that is too long gets the text by which clients recognise it."""
    own = fault.extra.get(NAME, {})
    message = fault.message
    if fault.code == CONTEXT_LENGTH and context_length_code(message) is None:
        message = f"{_TOO_LONG} {message}"
    return {own.get(":message", "message"): message, **{key: own[key] for key in own if key[:1] != ":"}}


def decode_error(
    status: int | None,
    body: JSON,
    headers: Mapping[str, str] | None,
    signatures: tuple[Signature, ...] = SIGNATURES,
) -> Fault:
    """Decode an error response."""
    named = next((value for name, value in (headers or {}).items() if name.lower() == ERROR_TYPE), "")
    return add_headers(read_fault(body, status, str(named), signatures), headers)


def encode_error(fault: Fault) -> EncodedFault:
    headers = {ERROR_TYPE: error_type_of(fault), **_FAULTS.headers_of(fault)}
    return EncodedFault(_FAULTS.status_of(fault), write_fault(fault), headers)
