"""The canonical response, and provider errors as values."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from msgspec.structs import replace

from .errors import ConfigError, ToolwireError
from .notebook import html_table, table_of
from .parts import Extra, Part, Text, ToolCall
from .value import Value

StopReason: TypeAlias = Literal[
    "stop",
    "stop_sequence",
    "tool_calls",
    "length",
    "context_window",
    "content_filter",
    "refusal",
    "pause",
    "malformed_call",
    "error",
    "unknown",
]
FaultKind: TypeAlias = Literal[
    "invalid_request",
    "authentication",
    "billing",
    "permission",
    "not_found",
    "conflict",
    "too_large",
    "rate_limit",
    "overloaded",
    "timeout",
    "malformed_call",
    "server",
]


class Stop(Value, frozen=True):
    """The stop reason. Derived from the content if the provider's value is vague: calls mean `tool_calls`."""

    reason: StopReason
    sequence: str | None = None
    detail: str | None = None
    extra: Extra = {}


class Usage(Value, frozen=True):
    """Token counts. `input` includes cache reads and writes, `output` includes reasoning."""

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    tool_input: int | None = None
    extra: Extra = {}

    @property
    def total(self) -> int:
        return (self.input or 0) + (self.output or 0)


def add_usage(first: Usage | None, second: Usage | None) -> Usage | None:
    """Add token counts. A count that neither side reports stays None."""
    if first is None or second is None:
        return first or second
    counts = ("input", "output", "cached", "cache_write", "reasoning", "tool_input")
    return replace(first, **{name: _add_counts(getattr(first, name), getattr(second, name)) for name in counts})


def _add_counts(first: int | None, second: int | None) -> int | None:
    return None if first is None and second is None else (first or 0) + (second or 0)


class Breach(Value, frozen=True):
    """A provider limit that a request exceeded, as far as the provider's error reports it.

    `tool` is a name, or an index where the provider gives no name. `at` points at the declaration in the document that
    was sent. `pointer` continues from there in canonical terms (`/name`, `/input_schema/properties/a`); a property of
    which the provider reports only the position is `[3]`. `Exchange.restore_fault` converts all three to the terms of
    the request.

    >>> print(Breach("name", 3, "/tools/3", "/name", hint="rename it"))
    limit name, tool 3: rename it
    """

    limit: str
    tool: str | int | None = None
    at: str = ""
    pointer: str = ""
    rule: str | None = None
    hint: str = ""

    def __str__(self) -> str:
        tool_text = "" if self.tool is None else f", tool {self.tool!r}"
        return f"limit {self.limit}{tool_text}: {self.hint}"


_FAULT_KINDS = get_args(FaultKind)  # not a set, which cannot be searched for a kind of an unhashable type


class Fault(Value, frozen=True):
    """A provider's error as a value: its kind, message and status, and the delay before a retry.

    Raises ConfigError for an unknown kind, for which no wire has a status.
    """

    kind: FaultKind
    message: str
    status: int = 500
    code: str | None = None
    param: str | None = None
    retry_after: float | None = None
    retryable: bool | None = None
    request_id: str | None = None
    extra: Extra = {}
    breach: Breach | None = None

    def __post_init__(self) -> None:
        if self.kind not in _FAULT_KINDS:
            raise ConfigError(
                f"unknown kind of fault {self.kind!r}", hint=f"use one of {', '.join(sorted(_FAULT_KINDS))}"
            )


class UpstreamError(ToolwireError):
    """The provider answered with an error; `fault` describes it, `fault.breach` names the exceeded limit, if any."""

    default_status = 502

    def __init__(self, fault: Fault) -> None:
        breach = fault.breach
        pointer = fault.param or "" if breach is None else breach.at + breach.pointer
        hint = "" if breach is None else str(breach)
        super().__init__(fault.message, pointer=pointer, hint=hint, status=fault.status)
        self.fault = fault


_KIND_BY_STATUS: dict[int, FaultKind] = {
    401: "authentication",
    403: "permission",
    404: "not_found",
    409: "conflict",
    413: "too_large",
    429: "rate_limit",
    503: "overloaded",
}


def fault_from(error: ToolwireError) -> Fault:
    """Convert an error of ours to a fault, for a client in its own protocol."""
    if isinstance(error, UpstreamError):
        return error.fault
    kind = _KIND_BY_STATUS.get(error.status) or ("invalid_request" if error.status < 500 else "server")
    code: str | None = getattr(error, "code", None)
    retry_after: float | None = getattr(error, "retry_after", None)
    return Fault(kind, str(error), error.status, code, param=error.pointer or None, retry_after=retry_after)


class Alternative(Value, frozen=True):
    """Another answer to the same request (n > 1)."""

    parts: tuple[Part, ...] = ()
    stop: Stop | None = None
    extra: Extra = {}


class Response(Value, frozen=True):
    """A whole answer. `stop` is None while it is unfinished; `fault` is set if the provider failed inside a 200."""

    id: str = ""
    model: str = ""
    parts: tuple[Part, ...] = ()
    stop: Stop | None = None
    usage: Usage | None = None
    created: int | None = None
    alternatives: tuple[Alternative, ...] = ()
    fault: Fault | None = None
    extra: Extra = {}

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    def _repr_html_(self) -> str:
        return html_table(*table_of(self.calls), self.text)
