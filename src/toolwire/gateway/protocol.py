"""HTTP/1.1 for clients: uvicorn's protocol, with limits that it leaves to a reverse proxy.

The head of a request is limited in size and time. A body that is no longer awaited, and a client that does not read its
answer, are limited in time. Pass it to uvicorn as `http`.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle, Transport
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from ..ir.text import to_bytes
from .settings import LimitsRow

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

__all__ = ["make_limited_protocol"]


def make_limited_protocol(limits: Callable[[], LimitsRow]) -> Callable[..., HttpToolsProtocol]:
    """Create protocols with the current limits, one for each connection of uvicorn."""
    return partial(_LimitedHttp, limits=limits)


class _TooLarge(Exception):
    """The head is too large. The parser converts this to an error of its own."""


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

    def __init__(self, *args: Any, limits: Callable[[], LimitsRow], **options: Any) -> None:
        super().__init__(*args, **options)
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
        super().data_received(data)
        if not (self._awaits_head and self._head_raw):
            return  # most heads arrive in one piece
        self._wait_for_head()
        if self._head_raw > self._head_limit + len(data) and not self.transport.is_closing():
            self._respond_error(431, "the head of the request is too large")

    def on_url(self, url: bytes) -> None:
        self._count_head_bytes(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head_bytes(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._awaits_head = False
        self._stop_reading()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
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
        if self._head_size > self._head_limit:
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
        body = to_bytes({"error": {"message": message, "type": "invalid_request_error", "param": None, "code": status}})
        headers = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
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
