"""Cohere's errors: `{"id": "…", "message": "…"}`. The status gives the kind; within a stream there is no status.

Besides the usual statuses there are 498 for an invalid token and 499 for a request that the client closed (cohere 7.3.1,
errors/).
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.pointer import JSON, Object
from ...ir.response import Fault, FaultKind, Stop
from ..faults import (
    FaultTable,
    Signature,
    add_breach,
    add_headers,
    body_message,
    context_length_code,
    kind_of_status,
)
from ..protocol import EncodedFault
from .content import NAME

_INVALID_TOKEN = 498  # errors/invalid_token_error.py
_FAULTS = FaultTable(
    statuses={
        "authentication": (401, _INVALID_TOKEN),
        "overloaded": (503,),
        "malformed_call": (502,),
        "too_large": (413,),
    },
)
_MESSAGE = "the model stopped with an error"
TIMEOUT = "TIMEOUT"


def read_fault(body: JSON, status: int | None = None) -> Fault:
    """Read a fault from the body of an error; a body without a message gives a fault by `status`."""
    message = body.get("message") if type(body) is dict else None
    code = status or 500
    if type(message) is not str or not message:
        return Fault(_kind_of(code), body_message(body, code), code)
    kind, context = _kind_of(code), context_length_code(message)
    own_fields: Object = {key: value for key, value in body.items() if key != "message"}
    extra = {NAME: own_fields} if own_fields else {}
    return Fault("invalid_request" if context else kind, message, code, context, extra=extra)


def _kind_of(status: int) -> FaultKind:
    return "authentication" if status == _INVALID_TOKEN else kind_of_status(status)


def stop_fault(stop: Stop | None, word: JSON, message: JSON = None) -> Fault | None:
    """Return the fault of an answer that ended with ERROR or TIMEOUT, or with a message about an error."""
    if not message and (stop is None or stop.reason != "error"):
        return None
    text = message if type(message) is str and message else _MESSAGE
    return Fault("timeout", text, 504) if word == TIMEOUT else Fault("server", text, 502)


def write_fault(fault: Fault) -> Object:
    return {"message": fault.message, **fault.extra.get(NAME, {})}


def decode_error(
    status: int | None,
    body: JSON,
    headers: Mapping[str, str] | None,
    signatures: tuple[Signature, ...] = (),
) -> Fault:
    """Decode an error response; `signatures` is empty unless the limits of the codec have some."""
    return add_headers(add_breach(read_fault(body, status), signatures), headers)


def encode_error(fault: Fault) -> EncodedFault:
    return EncodedFault(_FAULTS.status_of(fault), write_fault(fault), _FAULTS.headers_of(fault))


def find_error(event: Object) -> Object | None:
    """Return the error in an event of an unknown type, or None. Proxies send it under `error`, as OpenAI does."""
    error = event.get("error")
    if error:
        return error if type(error) is dict else {"message": error}
    return event if type(event.get("message")) is str else None
