"""Provider errors: error types and statuses by table, retry times, and signatures of exceeded limits.

Patterns of provider errors for a request that broke a limit.

A signature is data: the limit (where one exists, the name of the field of `Limits`, `Capabilities` or `Dialect` that
holds it), the audit rule that finds the same problem beforehand, the error text, and the remedy. Each wire has a list
of them beside its limits. The error text is a regular expression over the message and, on a line of its own, the code,
with groups that locate the cause:

    path       the location as the provider writes it: tools.3.custom.name, tools[0].function_declarations[2].parameters
    tool       the tool's name
    context    the location in its schema, as a Python tuple: ('properties', 'paths')
    keyword    the last step of the location

They are compiled when the first error arrives.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, NamedTuple

from msgspec.structs import replace

from ..ir.pointer import JSON, join
from ..ir.response import Breach, Fault, FaultKind
from ..ir.text import dumps
from ..ir.value import Value

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
    r"|input is too long for requested model"  # Bedrock
    r"|input token count .{0,40}exceeds the maximum number of tokens"  # Gemini
    r"|maximum context length is \d"  # OpenAI, vLLM
    r"|\Atoo many tokens: ",  # Cohere (cohere-ai/sandbox-topically#4)
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
        """Return the headers for a retry and the request id, without values that a header cannot hold."""
        headers: dict[str, str] = {}
        if fault.retry_after is not None and isfinite(fault.retry_after):
            headers["retry-after"] = f"{fault.retry_after:g}"
        if fault.retryable is not None:
            headers["x-should-retry"] = "true" if fault.retryable else "false"
        if self.request_id_header is not None and fault.request_id and _SAFE_VALUE(fault.request_id):
            headers[self.request_id_header] = fault.request_id
        return headers


def parse_seconds(text: str, unit: float = 1.0) -> float | None:
    """Parse a finite duration, or return None if `text` is not one. A negative one becomes 0."""
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


def add_headers(fault: Fault, headers: Mapping[str, str] | None, *, reads_message: bool = False) -> Fault:
    """Add the request id and the hints for a retry: of the body, else of a header, else of the message."""
    after = read_retry_after(headers) if fault.retry_after is None else fault.retry_after
    if after is None and reads_message:
        after = parse_retry_text(fault.message, fault.kind)
    request_id = fault.request_id or read_request_id(headers)
    return replace(fault, retry_after=after, retryable=read_should_retry(headers), request_id=request_id)


def read_should_retry(headers: Mapping[str, str] | None) -> bool | None:
    """Read the header `x-should-retry`; None if the provider did not send it."""
    return {"true": True, "false": False}.get((_header(headers, "x-should-retry") or "").lower())


_REQUEST_ID = ("request-id", "x-request-id", "x-amzn-requestid")


def read_request_id(headers: Mapping[str, str] | None) -> str | None:
    return next(filter(None, (_header(headers, name) for name in _REQUEST_ID)), None)


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


FEWER_TOOLS = "send fewer tools, retrieve the tools that matter, or pass choose=choose_by_words to prepare()"
"""The remedy for more tools than a provider accepts."""

_MAX_MESSAGE = 4000  # characters of a message that are searched: an error names its limit early
_STEP = re.compile(r"\[([^\[\]]*+)\]|([^.\[\]]+)")
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"|(\d+)")
_SCHEMAS = ("parameters", "parametersJsonSchema", "parameters_json_schema", "input_schema")
_DECLARATIONS = ("function_declarations", "functionDeclarations")
_FIELDS = (*_SCHEMAS, "name", "description", "strict")
_IN_SCHEMA = ("properties", "items", "$defs", "anyOf")
_CAMEL = {"any_of": "anyOf", "additional_properties": "additionalProperties", "prefix_items": "prefixItems"}


class Signature(NamedTuple):
    """The pattern of one provider error: the broken `limit`, the audit `rule`, the `pattern` and the `remedy`."""

    limit: str
    rule: str | None
    pattern: str
    remedy: str


def add_breach(fault: Fault, signatures: Iterable[Signature]) -> Fault:
    breach = find_breach(fault, signatures)
    return fault if breach is None else replace(fault, breach=breach)


def find_breach(fault: Fault, signatures: Iterable[Signature]) -> Breach | None:
    """Return the breach that the first matching signature describes, or None if the error has another cause."""
    if fault.kind != "invalid_request":
        return None
    searched_text = f"{fault.message[:_MAX_MESSAGE]}\n{(fault.code or '')[:_MAX_MESSAGE]}"
    for signature in signatures:
        match = re.search(signature.pattern, searched_text)
        if match is not None:
            return _make_breach(signature, match.groupdict(), (fault.param or "")[:_MAX_MESSAGE])
    return None


def _make_breach(signature: Signature, groups: dict[str, str | None], param: str) -> Breach:
    """Build the breach from the groups of the match; `param` locates it if the message has no path."""
    at, index, pointer = parse_limit_path(groups.get("path") or param)
    if (context := groups.get("context")) is not None:
        pointer = "/input_schema" + join(*("".join(found) for found in _QUOTED.findall(context)))
    if keyword := groups.get("keyword"):
        pointer += join(keyword)
    advice = "" if signature.rule is None else f"; `toolwire audit --select {signature.rule}` finds every such place"
    tool = groups.get("tool") or index
    return Breach(signature.limit, tool, at, pointer, signature.rule, signature.remedy + advice)


def parse_limit_path(path: str) -> tuple[str, int | None, str]:
    """Return (pointer to the declaration in the document, its index, canonical pointer from there).

    >>> parse_limit_path("tools.14.custom.input_schema.properties")
    ('/tools/14', 14, '/input_schema/properties')
    >>> parse_limit_path("tools[0].function_declarations[6].parameters.properties[3].value.any_of[0]")
    ('/tools/0/functionDeclarations/6', 6, '/input_schema/properties/[3]/anyOf/0')
    """
    steps = [(bracketed or plain, bool(bracketed)) for bracketed, plain in _STEP.findall(path)]
    words = [word for word, _ in steps]
    match words:
        case ["tools", entry, list_name, number, *_] if list_name in _DECLARATIONS and _is_index(entry, number):
            return join("tools", entry, "functionDeclarations", number), int(number), _schema_pointer(steps[4:])
        case ["tools", list_name, number, *_] if list_name in _DECLARATIONS and _is_index(number):
            return join("tools", 0, "functionDeclarations", number), int(number), _schema_pointer(steps[3:])
        case ["tools", number, *_] if _is_index(number):
            return join("tools", number), int(number), _schema_pointer(steps[2:])
        case [first, *_] if first in _IN_SCHEMA:
            return "", None, "/input_schema" + _schema_pointer(steps)
    return join(*words), None, ""


def _is_index(*words: str) -> bool:
    return all(word.isdecimal() and len(word) < 7 for word in words)


def _schema_pointer(steps: list[tuple[str, bool]]) -> str:
    """Return the pointer inside a declaration, without wrappers around its fields (`function`, `custom`, …).

    The schema becomes `input_schema`. A property that Gemini names by its position (`properties[3].value`) is `[3]`.
    """
    while steps and steps[0][0] not in (*_FIELDS, *_IN_SCHEMA):
        steps = steps[1:]
    segments: list[str] = []
    for number, (word, bracketed) in enumerate(steps):
        before = segments[-1] if segments else ""
        if before.startswith("[") and word == "value":
            continue
        if before == "properties":
            by_position = bracketed and word.isdecimal() and steps[number + 1 : number + 2] == [("value", False)]
            segments.append(f"[{word}]" if by_position else word)
        else:
            segments.append("input_schema" if not segments and word in _SCHEMAS else _CAMEL.get(word, word))
    return join(*segments)
