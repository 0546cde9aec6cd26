"""Answers of a fine-tuning service: JSON objects and their fields, and the errors in the forms of four services.

A field of another type than documented is like a missing one, because a service may be a server with the same API.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ...ir.errors import ProtocolError
from ...ir.pointer import JSON, Object
from ...ir.response import Fault, FaultKind
from ...ir.terminal import neutralise_line
from ...net.model.upstream_exchange import resolve_retry_after
from ...stream.strict import parse_object

MAX_ANSWER = 64 * 1024 * 1024  # bytes; OpenAI lists up to 10,000 files in one answer of a few MB
NOTE = "submit"
"""The key in `Fault.extra` for notes about a failed request."""
_MAX_SHOWN = 500  # characters of a service's error; it may quote the rejected line
_MAX_DIGITS = 19  # of an integer with 64 bits
_KINDS: dict[int, FaultKind] = {
    401: "authentication",
    402: "billing",
    403: "permission",
    404: "not_found",
    408: "timeout",
    409: "conflict",
    413: "too_large",
    429: "rate_limit",
    503: "overloaded",
    504: "timeout",
}


def parse_answer(data: bytes) -> Object:
    """Parse the answer of a service; an empty one is an empty object."""
    if not data.strip():
        return {}
    try:
        return parse_object(data, limit=MAX_ANSWER)
    except ProtocolError as error:
        raise ProtocolError(f"the service answered with invalid JSON: {error.message}", status=502) from None


def read_fault(status: int, headers: Mapping[str, str], data: bytes) -> Fault:
    """Read the error of a service: an object under `error` or `detail`, a list of problems, or any text."""
    kind = _KINDS.get(status, "server" if status >= 500 else "invalid_request")
    try:
        body: JSON = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        body = data.decode("utf-8", "replace")
    message = neutralise_line(_message_of(body).strip())[:_MAX_SHOWN] or f"HTTP {status}"
    inner = body.get("error") if type(body) is dict else None
    fields: Object = inner if type(inner) is dict else body if type(body) is dict else {}
    code, param = fields.get("code") or fields.get("type"), fields.get("param")
    fault = Fault(
        kind,
        message,
        status,
        code if type(code) is str else None,
        param if type(param) is str else None,
        retry_after=_read_seconds(headers.get("retry-after")),
        extra={NOTE: {"file_id": fields["file_id"]}}
        if "file_id" in fields
        else {},  # Together: the file exists already
    )
    return resolve_retry_after(fault, headers)


def _message_of(body: JSON) -> str:
    """Return the text of an error, in the forms of OpenAI, Together, Google (`error`) and Mistral (`detail`)."""
    if type(body) is str:
        return body
    if type(body) is list:
        return "; ".join(_message_of(item) for item in body)
    if type(body) is not dict:
        return ""
    for key in ("error", "detail", "message", "msg"):
        if body.get(key):
            text = _message_of(body[key])
            place: JSON = body.get("loc") or body.get("line_number")
            return f"{text} at {place}" if place is not None and key == "msg" else text
    return ""


def _read_seconds(value: str | None) -> float | None:
    return float(value) if value is not None and value.isascii() and value.isdigit() and len(value) < 10 else None


def require_text(body: Object, key: str) -> str:
    """Return a text of an answer; ProtocolError if it is missing."""
    value = read_text(body, key)
    if value is None:
        raise ProtocolError(f"the service's answer has no {key}", status=502)
    return value


def read_list(body: Object, key: str = "data") -> list[Object]:
    """Return the objects of a list in an answer; an absent or null list is empty."""
    value = body.get(key)
    return [item for item in value if type(item) is dict] if type(value) is list else []


def read_object(body: Object, key: str) -> Object:
    """Return an object of an answer; an empty one if it is missing or another value."""
    value = body.get(key)
    return value if type(value) is dict else {}


def read_text(body: Object, key: str) -> str | None:
    """Return a text of an answer; None if it is missing, empty or another value."""
    value = body.get(key)
    return value if type(value) is str and value else None


def read_number(body: Object, key: str) -> float | None:
    """Return a number of an answer, which may be a text of digits (int64 in JSON of Google); None for another value."""
    value = body.get(key)
    if type(value) is str and value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS:
        return int(value)
    return value if type(value) in (int, float) else None


def read_count(body: Object, key: str) -> int | None:
    """Return a whole number of an answer, as `read_number`."""
    value = read_number(body, key)
    return None if value is None else int(value)
