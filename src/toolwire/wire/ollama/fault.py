"""Ollama's errors: `{"error": "message"}`. The status gives the kind; within a stream there is no status."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec.structs import replace

from ...ir.pointer import JSON, Object
from ...ir.response import Fault
from ..faults import (
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
from .messages import NAME

OUT_OF_MEMORY = "out_of_memory"
"""The code of a model that does not fit into memory with its context. The server has no code for it."""
# Servers before 0.30 write "model requires more system memory (5.6 GiB) than is available (5.2 GiB)". Newer ones pass
# on the messages of llama.cpp's backends; llm/status.go lists them.
_OUT_OF_MEMORY = re.compile(
    r"requires more system memory|out of (?:device )?memory|(?:cuda|hip)Malloc failed|failed to allocate"
    r"|allocation failed|(?:not enough|insufficient) memory",
    re.IGNORECASE,
).search

_FAULTS = FaultTable(
    # messages of the server, for errors without a status
    messages=(
        (r"\Aunauthorized", "authentication"),
        (r"\bnot found\b", "not_found"),
        (r"\Aserver busy", "overloaded"),
        (r"\bdoes not support\b|\bis required\b|\Amissing request body", "invalid_request"),
    ),
    statuses={"billing": (402,), "overloaded": (503,), "malformed_call": (502,)},
)


def read_fault(body: JSON, status: int | None = None) -> Fault:
    """Read a fault from `body`, the whole envelope; a body without an error gives a fault by `status`.

    Without a status, as in a stream, the message determines the kind.
    """
    error = body.get("error") if type(body) is dict else None
    if not error:
        return Fault(kind_of_status(status or 500), body_message(body, status or 500), status or 500)
    own_fields: Object = {key: value for key, value in body.items() if key != "error"}
    message = error
    if type(error) is not str:  # a proxy with an envelope of its own
        own_fields["error"] = error
        message = error.get("message") if type(error) is dict else None
    error_text = message if type(message) is str and message else body_message(None, status or 500)
    kind = kind_of_status(status) if status else _FAULTS.kind_of_message(error_text) or "server"
    code = context_length_code(error_text)
    if code is not None:
        kind = "invalid_request"  # also in a stream, where there is no status
    elif kind == "server" and _OUT_OF_MEMORY(error_text[:2000]):
        code = OUT_OF_MEMORY
    return Fault(kind, error_text, status or status_of_kind(kind), code, extra={NAME: own_fields} if own_fields else {})


def write_fault(fault: Fault) -> Object:
    # the message of llama.cpp, which the server passes on
    form = "request ({tokens} tokens) exceeds the available context size ({limit} tokens), try increasing it"
    message = overflow_message(fault, "tokens) exceeds the", form)
    return {"error": message, **fault.extra.get(NAME, {})}


def decode_error(
    status: int | None,
    body: JSON,
    headers: Mapping[str, str] | None,
    signatures: tuple[Signature, ...] = (),
) -> Fault:
    """Decode an error response; `signatures` is empty unless the limits of the codec have some."""
    fault = add_headers(add_breach(read_fault(body, status), signatures), headers)
    return replace(fault, retryable=False) if fault.code == OUT_OF_MEMORY else fault


def encode_error(fault: Fault) -> EncodedFault:
    return EncodedFault(_FAULTS.status_of(fault), write_fault(fault), _FAULTS.headers_of(fault))
