"""Provider errors: the table of error types and statuses of a wire, usual HTTP statuses, and retry times."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite
from typing import Any

from ..ir.pointer import JSON
from ..ir.response import Fault, FaultKind
from ..ir.text import dumps
from ..ir.value import Value

__all__ = [
    "CONTEXT_LENGTH",
    "FaultTable",
    "body_message",
    "context_length_code",
    "kind_of_status",
    "overflow_counts",
    "overflow_message",
    "parse_retry_text",
    "parse_seconds",
    "read_request_id",
    "read_retry_after",
    "read_should_retry",
    "status_of_kind",
]

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


CONTEXT_LENGTH = "context_length_exceeded"
"""The code of a prompt that is too long for the model, on every wire. Clients compact the conversation on it."""

_CONTEXT_LENGTH = re.compile(
    r"prompt is too long"  # Anthropic
    # Anthropic, llama.cpp, Ollama
    r"|exceed(?:s)? (?:the )?(?:model's )?(?:maximum |available )?context (?:limit|length|window|size)"
    r"|prompt is longer than the context length"  # Ollama since 0.30.9
    r"|input token count .{0,40}exceeds the maximum number of tokens"  # Gemini
    r"|maximum context length is \d",  # OpenAI, vLLM
    re.IGNORECASE,
).search


def context_length_code(message: str) -> str | None:
    """Return CONTEXT_LENGTH for the message of a provider that has no code for a prompt that is too long."""
    return CONTEXT_LENGTH if _CONTEXT_LENGTH(message[:2000]) else None


# Providers write a count as "9000 tokens", "8192 maximum" or "(9000)".
_TOKEN_COUNT = re.compile(r"(\d{1,12})(?: tokens| maximum|\))").findall


def overflow_counts(message: str) -> tuple[int, int] | None:
    """Return the tokens of a prompt that is too long and the limit, if a provider's message has exactly these counts.

    >>> overflow_counts("request (5110 tokens) exceeds the available context size (4096 tokens), try increasing it")
    (5110, 4096)
    """
    counts = sorted({int(count) for count in _TOKEN_COUNT(message[:2000].replace(",", ""))})
    return (counts[1], counts[0]) if len(counts) == 2 else None


def overflow_message(fault: Fault, own: str, form: str) -> str:
    """Return the message of a fault; for a prompt that is too long, in a wire's `form` if both counts are known.

    Agents read the counts from the message, to compact the conversation by the difference. A message that contains
    `own` is the wire's already.
    """
    if fault.code != CONTEXT_LENGTH or own in fault.message:
        return fault.message
    counts = overflow_counts(fault.message)
    return fault.message if counts is None else form.format(tokens=counts[0], limit=counts[1])


def kind_of_status(status: int) -> FaultKind:
    """Map a status to a fault kind, for a body that gives no more detail."""
    return _KINDS.get(status) or ("invalid_request" if 400 <= status < 500 else "server")


def status_of_kind(kind: FaultKind) -> int:
    return _STATUSES[kind]


_SAFE_VALUE = re.compile(r"[\x21-\x7e]{1,200}").fullmatch


class FaultTable(Value, frozen=True):
    """The error vocabulary of one wire: types, codes and messages to fault kinds, and faults to types and statuses."""

    kinds: Mapping[str, FaultKind] = {}  # by the type of an error
    codes: Mapping[str, FaultKind] = {}  # by its code, which is more specific than the type
    messages: tuple[tuple[str, FaultKind], ...] = ()  # by a regular expression for the message; the first match wins
    types: Mapping[FaultKind, str] = {}  # the type that is written for a kind
    statuses: Mapping[FaultKind, tuple[int, ...]] = {}  # all statuses that the wire uses for a kind, its default first
    request_id_header: str | None = None

    def kind_of_type(self, error_type: str) -> FaultKind | None:
        return self.kinds.get(error_type)

    def kind_of_code(self, code: str) -> FaultKind | None:
        return self.codes.get(code)

    def kind_of_message(self, message: str) -> FaultKind | None:
        start = message[:500]
        return next((kind for pattern, kind in self.messages if re.search(pattern, start)), None)

    def type_of_kind(self, kind: FaultKind) -> str:
        return self.types[kind]

    def status_of_kind(self, kind: FaultKind) -> int:
        """Return the default status of a kind on this wire, or the usual HTTP status if the table has none."""
        kind_statuses = self.statuses.get(kind)
        return status_of_kind(kind) if kind_statuses is None else kind_statuses[0]

    def status_of(self, fault: Fault) -> int:
        """Return the status of a fault on this wire: its own if the wire uses it for this kind, else the default."""
        kind_statuses = self.statuses.get(fault.kind)
        return fault.status if kind_statuses is None or fault.status in kind_statuses else kind_statuses[0]

    def headers_of(self, fault: Fault) -> dict[str, str]:
        """Return the headers for the retry time and the request id, without values that a header cannot hold."""
        headers: dict[str, str] = {}
        if fault.retry_after is not None and isfinite(fault.retry_after):
            headers["retry-after"] = f"{fault.retry_after:g}"
        if fault.retryable is not None:
            headers["x-should-retry"] = "true" if fault.retryable else "false"
        if self.request_id_header is not None and fault.request_id and _SAFE_VALUE(fault.request_id):
            headers[self.request_id_header] = fault.request_id
        return headers


def parse_seconds(text: str, unit: float = 1.0) -> float | None:
    """Parse a finite duration; None if `text` is not one. A negative one becomes 0."""
    try:
        value = float(text) * unit
    except ValueError:
        return None
    return max(value, 0.0) if isfinite(value) else None


def read_retry_after(headers: Mapping[str, str] | None) -> float | None:
    """Read seconds from `retry-after-ms` or `retry-after`. A date there needs a clock, so it is left to the caller."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = _header(headers, name)
        found = None if value is None else parse_seconds(value, unit)
        if found is not None:
            return found
    return None


_RETRY_IN = re.compile(
    r"\b(?:try again|retry) in (?:(?P<h>\d{1,4})h)?(?:(?P<m>\d{1,4})m(?!s))?"
    r"(?:(?P<number>\d{1,6}(?:\.\d{1,12})?) ?(?P<unit>ms|s)\w{0,12})?",
    re.IGNORECASE,
).search


def parse_retry_text(message: str, kind: FaultKind) -> float | None:
    """Read seconds from a message such as "Please try again in 1m30.5s": some providers give the time nowhere else.

    >>> parse_retry_text("Rate limit reached. Please try again in 450ms.", "rate_limit")
    0.45
    """
    found = _RETRY_IN(message[:2000]) if kind in ("rate_limit", "overloaded") else None
    if found is None or not any(found.groups()):
        return None
    hours, minutes = int(found["h"] or 0), int(found["m"] or 0)
    rest = float(found["number"] or 0) * (0.001 if found["unit"] == "ms" else 1.0)
    return hours * 3600 + minutes * 60 + rest


def read_should_retry(headers: Mapping[str, str] | None) -> bool | None:
    """Read the header `x-should-retry`; None if the provider did not send it."""
    return {"true": True, "false": False}.get((_header(headers, "x-should-retry") or "").lower())


def read_request_id(headers: Mapping[str, str] | None) -> str | None:
    return _header(headers, "request-id") or _header(headers, "x-request-id")


def body_message(body: JSON, status: int) -> str:
    """Return a message for a body that is not the provider's JSON: an HTML page from the edge, plain text, nothing."""
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
