"""HTTP/1.1 for clients: uvicorn's protocol, with limits that it leaves to a reverse proxy.

The head of a request is limited in size and time. A body that is no longer awaited, and a client that does not read its
answer, are limited in time. The number of connections stays below the number of descriptors. An upgrade is ignored,
trailers are not headers, and a transfer coding that cannot be decoded is refused. Pass it to uvicorn as `http`.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle, Transport
from collections.abc import Callable
from functools import partial
from logging import getLogger
from typing import TYPE_CHECKING, Any, Protocol

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from ..ir.text import to_bytes
from .descriptors import ConnectionCounts

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

__all__ = ["ConnectionLimits", "DefaultLimits", "make_limited_protocol"]

_log = getLogger("toolwire.asgi")
_PROBE_PATHS = (b"/health", b"/healthz", b"/livez", b"/ready", b"/readyz")


class ConnectionLimits(Protocol):
    """The limits of a connection."""

    @property
    def head(self) -> int:
        """Bytes of a request before its body."""
        ...

    @property
    def slow_client(self) -> float:
        """Seconds for a request's head, for its body, and for reading part of the answer."""
        ...


class DefaultLimits(Struct, frozen=True):
    """The limits of a server without settings for them."""

    head: int = 64 * 1024
    slow_client: float = 30.0


def make_limited_protocol(
    limits: Callable[[], ConnectionLimits] = DefaultLimits, counts: ConnectionCounts | None = None
) -> Callable[..., HttpToolsProtocol]:
    """Create protocols with the current limits, one for each connection of uvicorn."""
    return partial(_LimitedHttp, limits=limits, counts=counts or ConnectionCounts.from_descriptors())


class _TooLarge(Exception):
    """The head is too large. The parser converts this to an error of its own."""


class _HeadRefused(Exception):
    """The head cannot be accepted. The parser converts this to an error of its own."""


class _BufferingTransport:
    """A transport that combines the writes of one loop iteration.

    uvicorn writes the head of an answer and its body separately; they need not be two system calls.
    """

    __slots__ = ("_loop", "_pending", "_transport")

    def __init__(self, transport: Transport, loop: AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pending: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._pending:
            self._loop.call_soon(self._flush)
        self._pending.append(data)

    def _flush(self) -> None:
        if self._pending:
            data = b"".join(self._pending)
            self._pending = []
            self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + sum(map(len, self._pending))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _LimitedHttp(HttpToolsProtocol):
    """uvicorn's protocol with limits on the size and time of a head, and on slow clients."""

    def __init__(
        self, *args: Any, limits: Callable[[], ConnectionLimits], counts: ConnectionCounts, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._counts = counts
        self._serves_probes_only = False  # there are too many connections
        self._refusal: tuple[int, str] | None = None  # status and message for an unacceptable head
        current_limits = limits()
        self._head_limit = current_limits.head
        self._client_timeout = current_limits.slow_client
        self._awaits_head = True  # the head of the next request is not complete
        self._head_raw = 0  # bytes received while waiting for the head
        self._head_size = 0  # bytes of it that were parsed
        self._read_timer: TimerHandle | None = None  # for a head, or for a body that is no longer awaited
        self._write_timer: TimerHandle | None = None  # for a client that does not read its answer
        self._current_cycle: RequestResponseCycle | None = None  # `cycle` is the newest, and may be queued

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._current_cycle = cycle
        super()._start_asgi_task(cycle, app)

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(_BufferingTransport(transport, self.loop))  # type: ignore[arg-type]
        count = len(self.connections)
        if count > self._counts.limit:
            self._counts.report(count, _log)
            self._serves_probes_only = True
            if count > self._counts.limit + self._counts.reserve:
                self._respond_error(503, "too many connections")
                return
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers, and notify the request in progress.

        uvicorn notifies only the newest request of the connection, which may still be queued.
        """
        self._stop_reading()
        self._stop_write_timer()
        super().connection_lost(exc)
        if self._current_cycle is not None and not self._current_cycle.response_complete:
            self._current_cycle.disconnected = True
            self._current_cycle.message_event.set()

    def data_received(self, data: bytes) -> None:
        """Count the bytes of an incomplete head, also those that the parser holds back, and limit its time."""
        if self._awaits_head:
            self._head_raw += len(data)
        self._unset_keepalive_if_required()
        self._parse(data)
        if not (self._awaits_head and self._head_raw):
            return  # most heads arrive in one piece
        self._wait_for_head()
        if self._head_raw > self._head_limit + len(data) and not self.transport.is_closing():
            self._respond_error(431, "the head of the request is too large")

    def _parse(self, data: bytes) -> None:
        """Parse data. The parser stops after the head of a request for an upgrade, which begins again without it."""
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            self._restart_without_upgrade(data[upgrade.args[0] :])
        except HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    @property
    def _is_upgrade_ignored(self) -> bool:
        """True for a request with `Upgrade`, such as h2c or websocket: a server may ignore it (RFC 9110, 7.8)."""
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def _restart_without_upgrade(self, rest: bytes) -> None:
        """Parse the head again without the headers of the upgrade, so that the body after it is read."""
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                tokens = [token.strip() for token in value.split(b",")]
                value = b", ".join(token for token in tokens if token.lower() not in (b"upgrade", b"http2-settings"))
            if name not in (b"upgrade", b"http2-settings"):
                lines.append(name + b": " + value)
        self.parser = HttpRequestParser(self)
        self._head_size = 0
        self._parse(b"\r\n".join([*lines, b"", b""]) + rest)

    def on_url(self, url: bytes) -> None:
        self._count_head_bytes(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header. A trailer, after the body, is ignored: the request has been checked without it."""
        self._count_head_bytes(len(name) + len(value) + 4)
        if self._awaits_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._is_upgrade_ignored:
            return  # the head will be parsed again
        self._check_head()
        self._awaits_head = False
        self._stop_reading()
        super().on_headers_complete()
        if self._serves_probes_only:
            self.cycle.keep_alive = False

    def _check_head(self) -> None:
        """Refuse a body that cannot be decoded, and all but health checks if there are too many connections."""
        for name, value in self.headers:
            codings = [token.strip() for token in value.lower().split(b",")]
            if name == b"transfer-encoding" and codings != [b"chunked"]:  # RFC 9112, 6.1 and 6.3
                status = 501 if codings[-1] == b"chunked" else 400
                self._refuse_head(status, "the only supported transfer coding is chunked")
            elif name == b"te" and any(coding.partition(b";")[0].strip() == b"chunked" for coding in codings):
                self._refuse_head(400, "chunked is not allowed in the header TE")
        if self._serves_probes_only and self.url.partition(b"?")[0] not in _PROBE_PATHS:
            self._refuse_head(503, "too many connections")

    def _refuse_head(self, status: int, message: str) -> None:
        self._refusal = (status, message)
        raise _HeadRefused

    def on_message_complete(self) -> None:
        if self._is_upgrade_ignored:
            return
        self._awaits_head = True
        self._head_raw = self._head_size = 0
        self._stop_reading()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._awaits_head and self._head_raw:
            self._wait_for_head()
        if not self._awaits_head and self._read_timer is None:  # answered before the body arrived
            self._read_timer = self.loop.call_later(self._client_timeout, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        if self._refusal is not None:
            self._respond_error(*self._refusal)
        elif self._head_size > self._head_limit:
            self._respond_error(431, "the head of the request is too large")
        else:
            self._respond_error(400, msg)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader(None)

    def resume_writing(self) -> None:
        self._stop_write_timer()
        super().resume_writing()

    def _watch_reader(self, previous_size: int | None) -> None:
        """Close the connection if the client has read nothing of the answer in this time."""
        buffered_size = self.transport.get_write_buffer_size()
        if previous_size is not None and buffered_size >= previous_size:
            self.transport.abort()
        else:
            self._write_timer = self.loop.call_later(self._client_timeout, self._watch_reader, buffered_size)

    def _count_head_bytes(self, size: int) -> None:
        self._head_size += size
        if self._head_size > self._head_limit:
            raise _TooLarge

    def _wait_for_head(self) -> None:
        if self._read_timer is None and not self._is_answering:
            self._read_timer = self.loop.call_later(self._client_timeout, self._on_head_timeout)

    @property
    def _is_answering(self) -> bool:
        return self._current_cycle is not None and not self._current_cycle.response_complete

    def _on_head_timeout(self) -> None:
        self._read_timer = None
        if self._head_raw == 0:
            self.transport.close()
        else:
            self._respond_error(408, "the head of the request did not arrive in time")

    def _respond_error(self, status: int, message: str) -> None:
        """Refuse a request in the error format that most fronts share, because the client's protocol is not known yet.

        If an answer has begun, only close the connection.
        """
        if self._current_cycle is not None and self._is_answering and self._current_cycle.response_started:
            self.transport.close()
            return
        more = b"retry-after: 1\r\n" if status == 503 else b""
        body = to_bytes({"error": {"message": message, "type": "invalid_request_error", "param": None, "code": status}})
        headers = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n%b\r\n" % (
            len(body),
            more,
        )
        self.transport.write(STATUS_LINE[status] + headers + body)
        self.transport.close()

    def _stop_reading(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
