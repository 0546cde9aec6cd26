"""A recorded exchange: the client's request and answer, and those of the upstreams. One JSON file each.

    trace = load_recording(Path("traces/…json"))
    trace.ingress.body, trace.upstreams[0].answer, trace.outcome.losses

Times are milliseconds since the request arrived. `body` is JSON if it was JSON, else text; a stream is `pieces`, with
the original boundaries. Bytes that are not text (half a character, a picture) are in `base64`.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from pathlib import Path

import msgspec

from ...ir.errors import ConfigError
from ...ir.losses import Loss
from ...ir.pointer import JSON
from ...ir.response import Usage
from ...ir.text import to_bytes
from ...ir.value import Value

__all__ = [
    "VERSION",
    "RecordedAnswer",
    "RecordedChunk",
    "RecordedExchange",
    "RecordedOutcome",
    "Trace",
    "load_recording",
    "record_chunks",
]

VERSION = 1


class RecordedChunk(Value, frozen=True, omit_defaults=True):
    """A piece of a stream, as `text` if it is valid UTF-8, else as `base64`."""

    ms: float  # when it arrived
    text: str | None = None
    base64: str | None = None

    @property
    def data(self) -> bytes:
        return b64decode(self.base64) if self.base64 is not None else (self.text or "").encode()


class RecordedAnswer(Value, frozen=True, omit_defaults=True):
    """An answer. `error` is set if there was none, or if it was truncated."""

    status: int = 0
    ms: float = 0.0  # until its head arrived
    headers: dict[str, str] = {}
    body: JSON = None
    pieces: tuple[RecordedChunk, ...] = ()
    error: str | None = None

    @property
    def data(self) -> bytes:
        if self.pieces:
            return b"".join(piece.data for piece in self.pieces)
        return body_bytes(self.body)


class RecordedExchange(Value, frozen=True, omit_defaults=True):
    """A request and its answer. `upstream` is the name of an upstream, or empty for the client's side."""

    wire: str
    path: str
    method: str = "POST"
    upstream: str = ""
    ms: float = 0.0  # when it began
    query: dict[str, str] = {}
    headers: dict[str, str] = {}
    body: JSON = None
    answer: RecordedAnswer | None = None

    @property
    def data(self) -> bytes:
        return body_bytes(self.body)


class RecordedOutcome(Value, frozen=True, omit_defaults=True):
    """The gateway's record of a request."""

    model: str = ""
    upstream: str = ""
    upstream_model: str = ""
    status: int = 0
    error: str | None = None
    stream: bool = False
    passed: bool = False  # passed through, not translated
    attempts: int = 0
    ms: float = 0.0
    ttfc_ms: float | None = None  # time to the first chunk
    overhead_ms: float = 0.0  # time that the gateway itself needed
    stop: str | None = None
    usage: Usage | None = None
    calls: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()
    repairs: tuple[str, ...] = ()


class Trace(Value, frozen=True):
    """The content of a trace file. `toolwire_trace` is the version of the format, `ingress` the client's side."""

    toolwire_trace: int  # the version of the format
    id: str
    recorded: str  # time of the request, ISO 8601 in UTC
    ingress: RecordedExchange
    upstreams: tuple[RecordedExchange, ...] = ()
    outcome: RecordedOutcome = RecordedOutcome()


def load_recording(path: Path) -> Trace:
    """Load a recorded exchange; ConfigError if the file is not one."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    try:
        trace = msgspec.json.decode(data, type=Trace)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path.name} is not a recorded exchange: {error}", hint="use `toolwire trace record` to record one"
        ) from None
    if trace.toolwire_trace != VERSION:
        raise ConfigError(f"{path.name} has version {trace.toolwire_trace}; this toolwire reads version {VERSION}")
    return trace


def body_bytes(body: JSON) -> bytes:
    if body is None:
        return b""
    return body.encode() if isinstance(body, str) else to_bytes(body)


def record_chunks(pieces: list[tuple[float, bytes]]) -> tuple[RecordedChunk, ...]:
    """Convert seconds and bytes to the recorded form."""
    return tuple(_record_chunk(round(seconds * 1000, 3), data) for seconds, data in pieces)


def _record_chunk(ms: float, data: bytes) -> RecordedChunk:
    try:
        return RecordedChunk(ms, data.decode())
    except UnicodeDecodeError:
        return RecordedChunk(ms, base64=b64encode(data).decode())
