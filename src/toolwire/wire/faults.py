"""HTTP's side of provider errors: statuses, and when to try again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir.pointer import JSON
from ..ir.response import FaultKind
from ..ir.text import dumps

__all__ = ["kind_of_status", "request_id", "retry_after", "should_retry", "status_of_kind", "words_of"]

_KINDS: dict[int, FaultKind] = {
    400: "invalid_request",
    401: "authentication",
    402: "billing",
    403: "permission",
    404: "not_found",
    408: "timeout",
    409: "conflict",
    413: "too_large",
    422: "invalid_request",
    429: "rate_limit",
    500: "server",
    502: "server",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}
_STATUSES: dict[FaultKind, int] = {
    "invalid_request": 400,
    "authentication": 401,
    "billing": 402,
    "permission": 403,
    "not_found": 404,
    "conflict": 409,
    "too_large": 413,
    "rate_limit": 429,
    "overloaded": 503,
    "timeout": 504,
    "malformed_call": 502,
    "server": 500,
}


def kind_of_status(status: int) -> FaultKind:
    """What a status means where the body does not say more."""
    return _KINDS.get(status) or ("invalid_request" if 400 <= status < 500 else "server")


def status_of_kind(kind: FaultKind) -> int:
    return _STATUSES[kind]


def retry_after(headers: Mapping[str, str] | None) -> float | None:
    """Seconds, from `retry-after-ms` or `retry-after`. A date there needs a clock, so it is left to the caller."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = _header(headers, name)
        try:
            if value is not None:
                return max(float(value) * unit, 0.0)
        except ValueError:
            continue
    return None


def should_retry(headers: Mapping[str, str] | None) -> bool | None:
    """What the provider says about trying again, if it says anything."""
    return {"true": True, "false": False}.get((_header(headers, "x-should-retry") or "").lower())


def request_id(headers: Mapping[str, str] | None) -> str | None:
    return _header(headers, "request-id") or _header(headers, "x-request-id")


def words_of(body: JSON, status: int) -> str:
    """A message for a body that is not the provider's JSON: an HTML page from the edge, plain text, nothing."""
    if isinstance(body, (bytes, bytearray)):
        body = bytes(body).decode("utf-8", "replace")
    if isinstance(body, str) and body.strip() and not body.lstrip().startswith("<"):
        return body.strip()[:500]
    if isinstance(body, list) and body:
        return dumps(body)[:500]
    return f"HTTP {status}"


def _header(headers: Mapping[str, Any] | None, name: str) -> str | None:
    if not headers:
        return None
    return next((str(value) for key, value in headers.items() if key.lower() == name), None)
