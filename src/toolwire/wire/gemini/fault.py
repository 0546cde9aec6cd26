"""Google's errors: the envelope, and signatures of exceeded limits.

    {"error": {"code": 429, "message", "status": "RESOURCE_EXHAUSTED",
               "details": [{"@type": …RetryInfo, "retryDelay": "30s"}]}}

In a stream it may be a list of one. The retry delay is in the body, not in a header.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.pointer import JSON, Object
from ...ir.response import Fault
from ..faults import (
    CONTEXT_LENGTH,
    FEWER_TOOLS,
    FaultTable,
    Signature,
    add_breach,
    add_headers,
    body_message,
    context_length_code,
    kind_of_status,
    overflow_message,
    parse_seconds,
    status_of_kind,
)
from ..protocol import EncodedFault
from .field_names import NAME

# Signatures of the errors by which Gemini reports an exceeded limit.
#
# Gemini identifies a property by its name, or by its position among its siblings.


_TOOL = r"(?P<path>tools(?:\[\d{1,6}\])?\.function_declarations\[\d{1,6}\]"
_PATH = _TOOL + r"[^\s':]{0,1000}?"
_LOWER = "lower the schema with toolwire.schema.lower(schema, 'gemini'), or send it as parametersJsonSchema"
_SIMPLER = "flatten the schema, shorten names and enums, bound fewer lists; the limit is not documented"

SIGNATURES = (
    Signature(
        "tools",
        "TW010",
        r"At most \d{1,6} function declarations can be specified",
        FEWER_TOOLS,
    ),
    Signature(
        "name",
        "TW004",
        _TOOL + r"\.name): (?:\[\w{1,40}\] )?Invalid function name",
        "rename the tool, or let prepare() map it",
    ),
    Signature(
        "unique_names",
        "TW001",
        r"Duplicate function declaration found(?:: (?P<tool>[\w.:-]{1,128}))?",
        "rename one of the tools",
    ),
    Signature(
        "null", "TW024", r"Unknown name \"(?P<keyword>type)\" at '(?:request\.)?" + _PATH + r")': Proto field", _LOWER
    ),
    Signature(
        "keywords",
        "TW023",
        r"Unknown name \"(?P<keyword>[^\"\n]{1,64})\" at '(?:request\.)?" + _PATH + r")': Cannot find field",
        _LOWER,
    ),
    Signature(
        "enum", "TW024", r"Invalid value at '(?:request\.)?" + _PATH + r"\.enum\[\d{1,6}\])' \(TYPE_STRING\)", _LOWER
    ),
    Signature("type", "TW024", r"Invalid value at '(?:request\.)?" + _PATH + r"\.type)' ", _LOWER),
    Signature("enum", "TW024", _PATH + r"\.enum): only allowed for STRING type", _LOWER),
    Signature("formats", "TW024", _PATH + r"\.format): only ", _LOWER),
    Signature("items", "TW025", _PATH + r")\.items: missing field", "declare the schema of the items"),
    Signature(
        "declared_required",
        "TW026",
        _PATH + r"\.required\[\d{1,6}\]): property is not defined",
        "declare the required property",
    ),
    Signature("empty_objects", "TW031", _PATH + r")\.properties: should be non-empty", _LOWER),
    Signature(
        "likely_depth",
        "TW035",
        r"(?:FunctionDeclaration(?: '(?P<tool>[^'\n]{1,128})')?|schema in GenerationConfig) in the request exceeds the maximum",
        _SIMPLER,
    ),
    Signature("likely_states", "TW035", r"too many states for serving", _SIMPLER),
    Signature(
        "ref_siblings", "TW029", r"ref '[^'\n]{1,256}' was set alongside unsupported fields", "wrap the reference"
    ),
    Signature(
        "refs",
        "TW027",
        r"reference to undefined schema at (?P<path>[\w.$]{1,400})",
        "define the reference under $defs, or inline it",
    ),
)


_FAULTS = FaultTable(
    kinds={
        "INVALID_ARGUMENT": "invalid_request",
        "FAILED_PRECONDITION": "invalid_request",
        "OUT_OF_RANGE": "invalid_request",
        "UNAUTHENTICATED": "authentication",
        "PERMISSION_DENIED": "permission",
        "NOT_FOUND": "not_found",
        "ALREADY_EXISTS": "conflict",
        "ABORTED": "conflict",
        "RESOURCE_EXHAUSTED": "rate_limit",
        "UNAVAILABLE": "overloaded",
        "DEADLINE_EXCEEDED": "timeout",
        "INTERNAL": "server",
        "UNKNOWN": "server",
    },
    codes={"API_KEY_INVALID": "authentication"},  # under INVALID_ARGUMENT
    types={
        "invalid_request": "INVALID_ARGUMENT",
        "authentication": "UNAUTHENTICATED",
        "billing": "FAILED_PRECONDITION",
        "permission": "PERMISSION_DENIED",
        "not_found": "NOT_FOUND",
        "conflict": "ABORTED",
        "too_large": "INVALID_ARGUMENT",
        "rate_limit": "RESOURCE_EXHAUSTED",
        "overloaded": "UNAVAILABLE",
        "timeout": "DEADLINE_EXCEEDED",
        "malformed_call": "INTERNAL",
        "server": "INTERNAL",
    },
    statuses={
        "invalid_request": (400, 426),
        "authentication": (401, 400),
        "billing": (400,),
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
_RETRY = "type.googleapis.com/google.rpc.RetryInfo"


def read_fault(body: JSON, status: int | None = None, signatures: tuple[Signature, ...] = SIGNATURES) -> Fault:
    """Read a fault from `body`, the whole envelope, in a list or not; a body without one gives a fault by `status`.

    `signatures` recognise exceeded limits.
    """
    if type(body) is list and body:
        body = body[0]
    error = body.get("error") if type(body) is dict else None
    if type(error) is not dict:
        return Fault(kind_of_status(status or 500), body_message(body, status or 500), status or 500)
    code = error.get("code")
    status = status or (code if type(code) is int and 400 <= code < 600 else None)
    word, reason = str(error.get("status")), _reason(error.get("details"))
    kind = _FAULTS.kind_of_code(reason or "") or _FAULTS.kind_of_type(word) or kind_of_status(status or 500)
    own_fields = {key: value for key, value in error.items() if key not in ("code", "message", "status")}
    if word != _FAULTS.type_of_kind(kind):
        own_fields["status"] = error.get("status")
    fault = Fault(
        kind,
        str(error.get("message") or body_message(None, status or 500)),
        status or status_of_kind(kind),
        reason or context_length_code(str(error.get("message"))),
        retry_after=_retry_delay(error.get("details")),
        extra={NAME: own_fields} if own_fields else {},
    )
    return add_breach(fault, signatures)


def _reason(details: JSON) -> str | None:
    """Return the reason of google.rpc.ErrorInfo, which is more specific than the status."""
    for entry in details if type(details) is list else ():
        if type(entry) is dict and type(entry.get("reason")) is str:
            return str(entry["reason"])
    return None


def _retry_delay(details: JSON) -> float | None:
    for entry in details if type(details) is list else ():
        delay = entry.get("retryDelay") if type(entry) is dict else None
        if type(delay) is str and delay.endswith("s") and (found := parse_seconds(delay[:-1])) is not None:
            return found
    return None


# clients search Gemini's message for a prompt that is too long (google-gemini/gemini-cli#13006)
_INPUT_COUNT = "input token count"
_TOO_LONG = "The input token count ({tokens}) exceeds the maximum number of tokens allowed ({limit})."


def write_fault(fault: Fault) -> Object:
    status, message = _FAULTS.status_of(fault), overflow_message(fault, _INPUT_COUNT, _TOO_LONG)
    if fault.code == CONTEXT_LENGTH and _INPUT_COUNT not in message:
        message = f"The input token count exceeds the maximum number of tokens allowed: {message}"
    error: Object = {"code": status, "message": message, "status": _FAULTS.type_of_kind(fault.kind)}
    if fault.retry_after is not None:
        error["details"] = [{"@type": _RETRY, "retryDelay": f"{fault.retry_after:g}s"}]
    return {"error": {**error, **fault.extra.get(NAME, {})}}


def decode_error(
    status: int | None,
    body: JSON,
    headers: Mapping[str, str] | None,
    signatures: tuple[Signature, ...] = SIGNATURES,
) -> Fault:
    """Decode an error response; the retry time is taken from the body, else from a header, else from the message."""
    return add_headers(read_fault(body, status, signatures), headers, reads_message=True)


def encode_error(fault: Fault) -> EncodedFault:
    return EncodedFault(_FAULTS.status_of(fault), write_fault(fault), _FAULTS.headers_of(fault))
