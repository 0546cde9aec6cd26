"""The trace format: a recorded agent run, or a recorded exchange of the gateway, as JSON Lines.

The first line is a header, every other line is an event, or the header of the next trace:

    {"toolwire_trace":2,"id":"3f9a","kind":"run","recorded":"2026-11-16T10:00:00.000Z"}
    {"event":"run","ms":0.0,"span":1,"run_id":"3f9a","request":{…}}
    {"event":"request","ms":0.2,"span":2,"parent":1,"model":"openai/gpt-5.6","body":{…}}
    {"event":"response","ms":412.6,"span":2,"body":{…}}

`ms` is the time since the start. Events with the same `span` belong to one operation; `parent` is the span that contains
it. The length of a line is bounded: long strings are cut and end with a marker that gives their length. Secrets are
removed by the writer before a value gets here. Files are read and written in `toolwire.net.trace.file`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import msgspec

from ...ir.errors import ConfigError
from ...ir.losses import Loss
from ...ir.pointer import JSON, Object
from ...ir.response import Usage
from ...ir.text import dumps
from ...ir.value import Value

VERSION = 2  # 2: runs and exchanges have one format; 1: exchanges only
MAX_LINE = 1024 * 1024  # bytes; a line can be read and shown by any tool for JSON lines
_ALLOWANCES = (256 * 1024, 16 * 1024, 1024, 64)  # characters of a string, tried in this order
_MAX_SHRUNK = 1024  # characters of the JSON text of one field, if no allowance was small enough
_PAYLOADS = frozenset({"arguments", "body", "call", "request", "result"})  # fields that may have any type
_CUT = re.compile(r"…\[cut: \d+ characters\]\Z")

TraceKind: TypeAlias = Literal["run", "exchange"]


class TraceHeader(Value, frozen=True):
    """The first line of a trace."""

    toolwire_trace: int  # the version of the format
    id: str
    kind: TraceKind
    recorded: str  # time of the start, ISO 8601 in UTC


class _SpanEvent(Value, frozen=True, kw_only=True, tag_field="event"):
    ms: float  # since the start
    span: int
    parent: int = 0


class RunStarted(_SpanEvent, frozen=True, kw_only=True, tag="run"):
    """An agent run. `request` is its first request with all tools; `call` the id of the call whose tool runs it."""

    run_id: str = ""
    agent: str = ""
    call: str = ""
    request: JSON = None


class RequestSent(_SpanEvent, frozen=True, kw_only=True, tag="request"):
    """A request to a model.

    The first `kept` messages are equal to the request of span `base`, an earlier request or the run, and so are the
    tools if `body` has no member `tools`. `purpose` is empty for a turn of the run, `auxiliary` for other work.
    """

    model: str = ""
    body: JSON = None
    base: int = 0
    kept: int = 0
    stream: bool = False
    purpose: str = ""


class ResponseReceived(_SpanEvent, frozen=True, kw_only=True, tag="response"):
    """The response to a request. `first_ms` is the time to the first event of a stream."""

    body: JSON = None
    first_ms: float | None = None
    cost: float | None = None


class CallStarted(_SpanEvent, frozen=True, kw_only=True, tag="call"):
    """A tool call."""

    call: JSON = None
    effect: str | None = None


class ResultReturned(_SpanEvent, frozen=True, kw_only=True, tag="result"):
    """The result of a call. `code` is the code of the runtime: ok, failed, timeout, denied …"""

    result: JSON = None
    code: str = "ok"


class ApprovalAsked(_SpanEvent, frozen=True, kw_only=True, tag="approval"):
    """A question for approval inside a call."""

    tool: str = ""
    arguments: JSON = None
    reason: str = ""


class ApprovalDecided(_SpanEvent, frozen=True, kw_only=True, tag="decision"):
    """The answer to a question for approval. `arguments`: as a person edited them."""

    decision: str = ""
    reason: str = ""
    arguments: JSON = None


class LossReported(_SpanEvent, frozen=True, kw_only=True, tag="loss"):
    """A loss in the translation of a request."""

    loss: Loss


class OperationFailed(_SpanEvent, frozen=True, kw_only=True, tag="error"):
    """The end of an operation by an exception, such as a cancellation."""

    type: str = ""
    message: str = ""


class RunEnded(_SpanEvent, frozen=True, kw_only=True, tag="end"):
    """The end of an agent run. `reason` is why there is no answer; empty if there is one."""

    reason: str = ""
    usage: Usage | None = None
    cost: float | None = None


class ExchangeStarted(_SpanEvent, frozen=True, kw_only=True, tag="http_request"):
    """An HTTP request: of the client (`upstream` is empty), or to an upstream. A body is JSON if it was JSON, else text."""

    wire: str = ""
    path: str = ""
    method: str = "POST"
    upstream: str = ""
    query: dict[str, str] = {}
    headers: dict[str, str] = {}
    body: JSON = None


class AnswerHead(_SpanEvent, frozen=True, kw_only=True, tag="http_response"):
    """An HTTP response. `error` is set if there was none, or if it was truncated; a stream follows as pieces."""

    status: int = 0
    headers: dict[str, str] = {}
    body: JSON = None
    error: str | None = None


class AnswerPiece(_SpanEvent, frozen=True, kw_only=True, tag="piece"):
    """A piece of a stream, with its original boundaries: `text` if it is valid UTF-8, else `base64`."""

    text: str | None = None
    base64: str | None = None


class ExchangeEnded(_SpanEvent, frozen=True, kw_only=True, tag="outcome"):
    """The gateway's record of a request. Times are in milliseconds."""

    model: str = ""
    upstream: str = ""
    upstream_model: str = ""
    status: int = 0
    error: str | None = None
    stream: bool = False
    passed: bool = False  # passed through, not translated
    attempts: int = 0
    ttfc_ms: float | None = None  # time to the first chunk
    overhead_ms: float = 0.0  # time that the gateway itself needed
    stop: str | None = None
    usage: Usage | None = None
    calls: tuple[str, ...] = ()
    repairs: tuple[str, ...] = ()


class RecordingCut(_SpanEvent, frozen=True, kw_only=True, tag="cut"):
    """The last event of a trace that reached the size limit."""

    message: str = ""


TraceEvent: TypeAlias = (
    RunStarted
    | RequestSent
    | ResponseReceived
    | CallStarted
    | ResultReturned
    | ApprovalAsked
    | ApprovalDecided
    | LossReported
    | OperationFailed
    | RunEnded
    | ExchangeStarted
    | AnswerHead
    | AnswerPiece
    | ExchangeEnded
    | RecordingCut
)


def encode_header(header: TraceHeader) -> bytes:
    return msgspec.json.encode(header) + b"\n"


def encode_event(event: TraceEvent, max_line: int = MAX_LINE) -> bytes:
    """Encode an event as a line of at most `max_line` bytes. Only as much as necessary is cut."""
    line = msgspec.json.encode(event)
    if len(line) < max_line:
        return line + b"\n"
    document = msgspec.to_builtins(event)
    for allowance in _ALLOWANCES:
        line = msgspec.json.encode(_cut_strings(document, allowance))
        if len(line) < max_line:
            return line + b"\n"
    return msgspec.json.encode(_shrink(document)) + b"\n"


def _cut_strings(value: Any, allowance: int) -> Any:
    if isinstance(value, str):
        return _cut_text(value, allowance)
    if isinstance(value, dict):
        return {name: _cut_strings(item, allowance) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cut_strings(item, allowance) for item in value]
    return value


def _cut_text(text: str, allowance: int) -> str:
    return text if len(text) <= allowance else f"{text[:allowance]}…[cut: {len(text)} characters]"


def _shrink(document: Object) -> Object:
    """Replace the large values of an event that has very many small ones: payloads by the start of their text."""
    shrunk: Object = {}
    for name, value in document.items():
        text = dumps(value)
        if len(text) <= _MAX_SHRUNK:
            shrunk[name] = value
        elif name in _PAYLOADS:
            shrunk[name] = _cut_text(text, _MAX_SHRUNK)
    return shrunk


def is_cut(value: JSON) -> bool:
    """Check whether a string, or any string inside a value, was cut."""
    if isinstance(value, str):
        return _CUT.search(value) is not None
    if isinstance(value, dict):
        return any(map(is_cut, value.values()))
    return isinstance(value, list) and any(map(is_cut, value))


_decode_header = msgspec.json.Decoder(TraceHeader).decode
_decode_event = msgspec.json.Decoder(TraceEvent).decode
_HEADER_START = b'{"toolwire_trace":'  # an event begins with its tag


def decode_trace(lines: Iterable[bytes], name: str) -> tuple[TraceHeader, tuple[TraceEvent, ...]]:
    """Decode a file with one trace; ConfigError with the number of a wrong line, and for several traces."""
    first, *others = decode_traces(lines, name)
    if others:
        raise ConfigError(f"{name} has {len(others) + 1} traces", hint="use toolwire trace show --exchange N")
    return first


def decode_traces(lines: Iterable[bytes], name: str) -> list[tuple[TraceHeader, tuple[TraceEvent, ...]]]:
    """Decode a file of at least one trace, as `toolwire with --record` writes it; ConfigError for a wrong line.

    A last line without an end is dropped: its writer was interrupted.
    """
    traces: list[tuple[TraceHeader, list[TraceEvent]]] = []
    for number, line in enumerate(lines, 1):
        try:
            if not traces or line.startswith(_HEADER_START):
                traces.append((_check_version(_decode_header(line), name), []))
            else:
                traces[-1][1].append(_decode_event(line))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            if traces and not line.endswith(b"\n"):
                break
            raise ConfigError(
                f"{name} is not a trace: line {number}: {error}",
                hint="record one with `toolwire run --trace FILE` or `toolwire trace record`",
            ) from None
    if not traces:
        raise ConfigError(f"{name} is not a trace: it is empty")
    return [(header, tuple(events)) for header, events in traces]


def _check_version(header: TraceHeader, name: str) -> TraceHeader:
    if header.toolwire_trace != VERSION:
        raise ConfigError(f"{name} has version {header.toolwire_trace}; this toolwire reads version {VERSION}")
    return header
