"""OpenAI's error envelope and error texts, which both OpenAI wires and most compatible servers use.

    {"error": {"message", "type", "param", "code"}}

Mistral's flat variant ({"message", "type", "param", "code"}), FastAPI's {"detail": …} and bare strings are read too.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.errors import ProtocolError
from ..ir.pointer import JSON, Object, split
from ..ir.response import Fault, FaultKind
from ..stream.strict import parse_object
from .faults import (
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
    status_of_kind,
)
from .protocol import EncodedFault

# Error texts of OpenAI and compatible servers for broken limits. Both OpenAI wires use them.


SAMPLING_RANGES = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "frequency_penalty": (-2, 2),
    "presence_penalty": (-2, 2),
    "top_logprobs": (0, 20),
}
"""The bounds of parameters: openai/openai-openapi f85dbe22 (2026-08-21)."""

_TOOL = r"Invalid schema for function '(?P<tool>[^'\n]{1,256})': "
_ANY = r"Invalid schema for (?:function '(?P<tool>[^'\n]{1,256})'|response_format '[^'\n]{1,256}'): "
_LOCATION = r"Invalid '(?P<path>tools\[\d{1,6}\](?:\.function|\.custom)?\."
_CONTEXT = r"In context=(?P<context>\([^\n]{0,1000}?\)), "  # a bound keeps the cost of repeated beginnings linear
_LOWER = "use toolwire.schema.lower(schema, 'openai_strict'), or declare the tool without strict"
_SMALLER = "declare the tool without strict (prepare() does this), or split it"

SIGNATURES = (
    Signature("tools", "TW010", r"Invalid 'tools': array too long", FEWER_TOOLS),
    Signature("tools", "TW010", r"may not include more than \d{1,6} tools", FEWER_TOOLS),
    Signature(
        "name",
        "TW002",
        _LOCATION + r"name)': string does not match pattern",
        "rename the tool, or let prepare() map it",
    ),
    Signature(
        "name_length", "TW002", _LOCATION + r"name)': string too long", "shorten the name, or let prepare() map it"
    ),
    Signature(
        "name_length", "TW002", r"length of the tool name cannot exceed", "shorten the name, or let prepare() map it"
    ),
    Signature("description", "TW013", _LOCATION + r"description)': string too long", "shorten the description"),
    Signature(
        "id_length",
        "TW060",
        r"Invalid '(?P<path>(?:messages|input)\[\d{1,6}\][\w.\[\]]{0,60}\b(?:id|call_id|tool_call_id))': string too long",
        "let prepare() map the ids",
    ),
    Signature(
        "min_output",
        None,
        r"Invalid '(?P<path>max_(?:output|completion)_tokens)': integer below minimum value",
        "raise the limit, or let prepare() raise it",
    ),
    Signature("stops", None, r"Invalid '(?P<path>stop)': array too long", "send fewer stop sequences"),
    Signature(
        "root_union",
        "TW021",
        _TOOL + r"schema must have type 'object' and not have",
        "put the union under one property, or let prepare() rewrite it",
    ),
    Signature("root", "TW020", _TOOL + r"schema must be a JSON Schema of 'type: ", "add 'type': 'object' at the root"),
    Signature("items", "TW025", _TOOL + _CONTEXT + r"array schema missing items", "add a schema for the items"),
    Signature("closed", None, _ANY + _CONTEXT + r"'additionalProperties' is required to be supplied", _LOWER),
    Signature("optional", "TW030", _ANY + _CONTEXT + r"'required' is required to be supplied", _LOWER),
    Signature("ref_siblings", "TW029", _ANY + _CONTEXT + r"\$ref cannot have keywords", _LOWER),
    Signature("empty_objects", None, _ANY + _CONTEXT + r"object schema missing properties", "add 'properties': {}"),
    Signature("keywords", None, _ANY + _CONTEXT + r"'(?P<keyword>[\w$]{1,64})' is not permitted", _LOWER),
    Signature("properties", "TW034", _ANY + r"\d{1,9} parameters exceed the limit of", _SMALLER),
    Signature("depth", "TW034", _ANY + r"\d{1,9} levels of nesting exceeds limit of", _SMALLER),
    Signature("depth", "TW034", r"schema depth exceeds maximum limit of \d{1,9}", "flatten the schema"),
    Signature("enum_values", "TW034", _ANY + r"Expected at most \d{1,9} enum values in total", _SMALLER),
    # the provider gives no more detail
    Signature("schema", None, _TOOL, "`toolwire audit` finds what is wrong with it"),
    Signature("schema", None, r"\ninvalid_function_parameters\Z", "`toolwire audit` finds what is wrong with it"),
)


_INSUFFICIENT_QUOTA = "insufficient_quota"
_FAULTS = FaultTable(
    kinds={
        "invalid_request_error": "invalid_request",
        "authentication_error": "authentication",
        "permission_error": "permission",
        "not_found_error": "not_found",
        "rate_limit_error": "rate_limit",
        _INSUFFICIENT_QUOTA: "billing",
        "server_error": "server",
        "overloaded_error": "overloaded",
        "timeout_error": "timeout",
    },
    codes={
        "rate_limit_exceeded": "rate_limit",
        _INSUFFICIENT_QUOTA: "billing",
        "invalid_api_key": "authentication",
        "model_not_found": "not_found",
        "server_error": "server",
        "invalid_prompt": "invalid_request",
        "malformed_function_call": "malformed_call",
        "tool_use_failed": "malformed_call",  # Groq: the model's call does not fit the declared tools
    },
    types={
        "invalid_request": "invalid_request_error",
        "authentication": "authentication_error",
        "billing": _INSUFFICIENT_QUOTA,
        "permission": "permission_error",
        "not_found": "not_found_error",
        "conflict": "conflict_error",
        "too_large": "invalid_request_error",
        "rate_limit": "rate_limit_error",
        "overloaded": "server_error",
        "timeout": "server_error",
        "malformed_call": "server_error",
        "server": "server_error",
    },
    statuses={
        "billing": (429,),
        "overloaded": (503,),
        "timeout": (504, 408),
    },
    request_id_header="x-request-id",
)
_FIELDS = frozenset({"message", "type", "param", "code"})
# Codes of MiniMax (MiniMax-AI/MiniMax-M2#62); all others are server errors.
_MINIMAX_TYPES = {
    "1002": "rate_limit_error",
    "1004": "authentication_error",
    "1008": _INSUFFICIENT_QUOTA,
    "2013": "invalid_request_error",
}


def fault_code(fault: Fault) -> str:
    """Return the code of a failed response. The list of codes is closed, and clients check it."""
    if fault.code is not None and "image" in fault.code:
        return fault.code
    if fault.kind in ("rate_limit", "billing"):
        return "rate_limit_exceeded"
    return "invalid_prompt" if 400 <= status_of_kind(fault.kind) < 500 else "server_error"


def _kind_of_code(code: str) -> FaultKind | None:
    """Map a code to a fault kind. Codes about a prompt or an image are errors of the request."""
    return _FAULTS.kind_of_code(code) or ("invalid_request" if code.startswith("invalid_") or "image" in code else None)


def read_fault(
    error: JSON, wire: str, status: int | None = None, signatures: tuple[Signature, ...] = SIGNATURES
) -> Fault:
    """Read a fault; `error` is the object inside the envelope, or any other body.

    The code, the status and the type determine its kind; `signatures` recognise exceeded limits.
    """
    if type(error) is not dict:
        return Fault(kind_of_status(status or 500), body_message(error, status or 500), status or 500)
    code, kind_name = error.get("code"), error.get("type")
    kind = _FAULTS.kind_of_code(str(code)) or ("billing" if kind_name == _INSUFFICIENT_QUOTA else None)
    if status == 413:
        kind = "too_large"  # Groq sends rate_limit_exceeded, but waiting does not make the request smaller
    kind = kind or (None if status is None else kind_of_status(status))
    if kind is None:
        kind = (
            _kind_of_code(str(code)) or _FAULTS.kind_of_type(str(kind_name)) or kind_of_status(_as_status(code) or 500)
        )
    own_fields = {key: value for key, value in error.items() if key not in _FIELDS}
    if kind_name is not None and kind_name != _FAULTS.type_of_kind(kind):
        own_fields["type"] = kind_name
    if kind in ("billing", "not_found") and code is None:
        own_fields["code"] = None
    if type(code) is not str and context_length_code(str(error.get("message"))):  # vLLM sends null or the status
        own_fields["code"], code = code, CONTEXT_LENGTH
    fault = Fault(
        kind,
        str(error.get("message") or body_message(None, status or status_of_kind(kind))),
        status or _as_status(code) or status_of_kind(kind),
        None if code is None else str(code),
        error.get("param") if type(error.get("param")) is str else None,
        extra={wire: own_fields} if own_fields else {},
    )
    return add_breach(fault, signatures)


def find_error(body: Object) -> JSON:
    """Return the error in a document that should be an answer, or None if there is none.

    Besides OpenAI's envelope: vLLM's object without one, FastAPI's `detail`, Mistral's flat variant, and MiniMax's
    `base_resp`, which comes with status 200 (adrianlyjak/obsidian-aloud-tts#114). An error with code 0 is a success.
    """
    if error := body.get("error") or body.get("errors"):
        error = error[0] if type(error) is list else error
        if not _is_success(error):
            return error
    if type(status := body.get("base_resp")) is dict and str(status.get("status_code") or 0) != "0":
        code = status["status_code"]
        return {"message": status.get("status_msg"), "code": code, "type": _MINIMAX_TYPES.get(str(code))}
    if body.get("object") == "error":
        return {key: value for key, value in body.items() if key != "object"}
    if body.get("choices") or body.get("usage"):
        return None
    if body.get("detail"):
        return body["detail"]
    return body if body.get("message") and any(body.get(key) for key in ("code", "type", "status")) else None


def _is_success(error: JSON) -> bool:
    if type(error) is not dict or str(error.get("code")) != "0":
        return False
    return str(error.get("message") or "").lower() in ("", "ok", "success")


def read_error_text(payload: bytes) -> JSON:
    """Return the error in the data of an event that is named `error`; data that is not JSON is its message."""
    try:
        body = parse_object(payload)
    except ProtocolError:
        return payload.decode("utf-8", "replace")
    return find_error(body) or body


def _as_status(code: JSON) -> int | None:
    return code if type(code) is int and 400 <= code < 600 else None


def _as_openai_path(param: str | None) -> str | None:
    """Write a JSON pointer as OpenAI does: `/messages/0/content` as `messages[0].content`."""
    if param is None or not param.startswith("/"):
        return param
    written = [f"[{key}]" if key.isdecimal() else f".{key}" for key in split(param)]
    return "".join(written).removeprefix(".")


_TOO_LONG = (
    "This model's maximum context length is {limit} tokens. However, your messages resulted in {tokens} tokens."
    " Please reduce the length of the messages."
)


def write_fault(fault: Fault, wire: str) -> Object:
    # By this code clients distinguish a billing error from a rate limit; both are 429.
    code = _INSUFFICIENT_QUOTA if fault.kind == "billing" and fault.code is None else fault.code
    if fault.kind == "not_found" and code is None and "model" in fault.message[:100].lower():
        code = "model_not_found"  # other providers have no code for it; clients of this wire check it
    param = _as_openai_path(fault.param)
    message = overflow_message(fault, "maximum context length is", _TOO_LONG)
    out = {"message": message, "type": _FAULTS.type_of_kind(fault.kind), "param": param, "code": code}
    return {**out, **fault.extra.get(wire, {})}


def decode_error(
    wire: str,
    status: int | None,
    body: JSON,
    headers: Mapping[str, str] | None,
    signatures: tuple[Signature, ...] = SIGNATURES,
) -> Fault:
    """Decode an error response; a retry time in a header takes precedence over one in the message."""
    inner = (body.get("error") or body.get("detail") or body) if type(body) is dict else body
    return add_headers(read_fault(inner, wire, status, signatures), headers, reads_message=True)


def encode_error(wire: str, fault: Fault) -> EncodedFault:
    body = {"error": write_fault(fault, wire)}
    return EncodedFault(_FAULTS.status_of(fault), body, _FAULTS.headers_of(fault))
