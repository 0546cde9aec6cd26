"""HTTP/1.1 for clients: uvicorn's protocol, with limits that it leaves to a reverse proxy. It is uvicorn's `http`.

The two directions of a connection have states of their own, because a client may send requests before it has read the
answers (RFC 9112, 9.3.2), and an application may answer before it has read the body:

    input    head       `_awaits_head`: limited in size, and in time unless an answer is in progress
             body       for `cycle`, the newest request; limited in time once it is answered; before, by the application
             ignored    `_ignores_input`: a request was refused, and the rest cannot be framed; it is read and discarded
    output   idle       closed after the keep-alive timeout
             answering  `_current_cycle`, the oldest request; the others are in `pipeline`, limited in bytes
             closing    limited in time by the data that the client acknowledges (`client_transport`)

Rules: 1. Answers keep the order of the requests: a refusal waits for those before it, then the connection is closed.
2. Input is read in every state, within limits: only a connection that is read reports a disconnect, and one that is
closed with unread data is reset, which can destroy the answer (RFC 9112, 9.6). 3. Every state has a timer or a bound,
so no client keeps a descriptor for nothing. 4. Connections beyond the number of descriptors may send a health check.

An upgrade is ignored, trailers are not headers, and a transfer coding that cannot be decoded is refused. With an
`Admission`, a request above its bounds gets 503 before its body is read. The rest of the body is discarded, and the
connection stays open: a new one would cost the server more than the answer.
"""

from __future__ import annotations

from asyncio import TimerHandle, Transport
from collections.abc import Callable
from functools import partial
from logging import getLogger
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, parse_url

from .admission import AdmissionGate, ConnectionCounts, ConnectionLimits, DefaultLimits
from .client_transport import ClientTransport
from .request_cycle import BoundedFlow, RequestCycle, encode_early_refusal, encode_fields, size_in_memory
from .uvicorn_internals import HIGH_WATER_LIMIT, STATUS_LINE, HttpToolsProtocol

if TYPE_CHECKING:
    from uvicorn._types import ASGIVersions, HTTPScope

    from .http_exchange import HeaderPairs


_log = getLogger("toolwire.asgi")
_HEAD_TOO_LARGE = (431, "the head of the request is too large")
_CODING_HEADERS = (b"transfer-encoding", b"te")
_PROBE_PATHS = (b"/", b"/health", b"/healthz", b"/livez", b"/ready", b"/readyz", b"/metrics")
_MAX_QUEUED = 1024 * 1024  # bytes of queued requests; one read may contain many of them
_LAST_REQUEST = 1.0  # seconds in which a request that a client has sent arrives, also from another continent


def make_limited_protocol(
    limits: Callable[[], ConnectionLimits] = DefaultLimits,
    counts: ConnectionCounts | None = None,
    gate: AdmissionGate | None = None,
) -> Callable[..., HttpToolsProtocol]:
    """Create protocols with the current limits, one for each connection of uvicorn."""
    return partial(_LimitedHttp, limits=limits, counts=counts or ConnectionCounts.from_descriptors(), gate=gate)


class _TooLarge(Exception):
    """The head is too large. The parser converts this to an error of its own."""


class _HeadRefused(Exception):
    """The head cannot be accepted. The parser converts this to an error of its own."""


class _LimitedHttp(HttpToolsProtocol):
    """uvicorn's protocol with limits on the size and time of a head, and on slow clients.

    The parser's callbacks replace uvicorn's instead of extending them, which saves a call for each event.
    """

    cycle: RequestCycle
    flow: BoundedFlow
    transport: ClientTransport  # type: ignore[assignment]  # it has the methods of a transport

    def __init__(
        self,
        *args: Any,
        limits: Callable[[], ConnectionLimits],
        counts: ConnectionCounts,
        gate: AdmissionGate | None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._counts = counts
        self._gate = gate
        self._admission = None if gate is None else gate.admission
        self._serves_probes_only = False  # there are too many connections
        self._serves_last_request = False  # the connection is closed after the next answer
        self._refusal: tuple[int, str] | None = None  # status and message for the last request
        current_limits = limits()
        self._head_limit = current_limits.head
        self._client_timeout = current_limits.slow_client
        self._awaits_head = True  # the head of the next request is not complete
        self._received_size = 0  # bytes received since the last request was complete
        self._reset_head()
        self._is_head_counted = True  # False while too few bytes have arrived to exceed the limit
        self._read_timer: TimerHandle | None = None  # for a head, or for a body that is no longer awaited
        self._is_idle = False  # nothing was received since the last answer
        self._idle_since = 0.0  # in the time of the loop
        self._idle_timer: TimerHandle | None = None  # one for many requests: it checks `_idle_since`
        self._current_cycle: RequestCycle | None = None  # `cycle` is the newest, and may be queued
        self._queued_size = 0  # bytes of the requests in `pipeline`
        self._ignores_input = False  # the connection is closed after the answers to the requests so far
        self._default_headers: list[tuple[bytes, bytes]] = []  # those that `_default_lines` encode
        self._default_lines: bytes | None = b""
        self._parsed_url = b""  # the URL of the last request, and its parts
        self._path, self._raw_path, self._query = "", b"", b""
        self._asgi_versions: ASGIVersions = {"version": self.config.asgi_version, "spec_version": "2.3"}

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Limit the transport and wait for a head. Beyond the limit of connections, serve only health checks, or refuse."""
        if transport.get_extra_info("sslcontext") is not None:
            # The default is 512 KiB, and the event loop aborts a connection 30 seconds after `close` if the client has not
            # read all of it.
            transport.set_write_buffer_limits(HIGH_WATER_LIMIT)
        transport = ClientTransport(transport, self.loop, self._client_timeout, self._discard_input)  # type: ignore[assignment]
        super().connection_made(transport)
        self.flow = BoundedFlow(transport)
        count = len(self.connections)
        if count > self._counts.limit:
            self._counts.report(count, _log)
            self._serves_probes_only = self._serves_last_request = True
            excess = count - self._counts.limit - self._counts.reserve
            if excess > 0:
                self._refuse(503, "too many connections")
                if excess > self._counts.reserve // 2:  # of the descriptors for files, which are more important
                    self.transport.close_now()
                return
        self._wait_for_head()

    def eof_received(self) -> None:
        """Close the connection here, because the event loop would close its own transport, without a time limit."""
        self.transport.close_now()
        self._report_disconnect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers, and notify the request in progress.

        uvicorn notifies only the newest request of the connection, which may still be queued.
        """
        self._stop_read_timer()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        self._report_disconnect()
        super().connection_lost(exc)
        self.transport.stop_timer()
        self.transport.stop_lingering()
        self.pipeline.clear()

    def _report_disconnect(self) -> None:
        """Notify the request in progress, once: nothing can be sent any more, even before the connection has ended."""
        current = self._current_cycle
        if current is not None and not current.response_complete and not current.disconnected:
            current.disconnect()

    def data_received(self, data: bytes) -> None:
        """Parse data. Limit an incomplete head in time and size, and the body of an answered request in time."""
        if self._ignores_input:
            return
        self._is_idle = False
        self._received_size += len(data)
        # A counted field has less than twice its bytes. Part of a pipelined head may have arrived in data before.
        if self._received_size > self._head_limit // 4:
            if not self._is_head_counted:
                self._start_counting()
        elif not self._head_size:
            self._is_head_counted = False
        self._parse(data)
        if not self._awaits_head and self.cycle.response_complete:
            self._wait_for_body()
        if not (self._awaits_head and self._received_size) or self._ignores_input:
            return  # most heads arrive in one piece
        self._wait_for_head()
        if self._received_size > self._head_limit + len(data):
            self._refuse(*_HEAD_TOO_LARGE)

    def _start_counting(self) -> None:
        """Count the size of a head from here on, and the part of it that has been parsed."""
        self._is_head_counted = True
        self._head_size += len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _parse(self, data: bytes) -> None:
        """Parse data. The parser stops after the head of a request for an upgrade, which begins again without it."""
        while data:
            try:
                self.parser.feed_data(data)
                return
            except HttpParserUpgrade as upgrade:
                data = self._remove_upgrade() + data[upgrade.args[0] :]
            except HttpParserError:
                self._refuse_unparsable()
                return

    def _remove_upgrade(self) -> bytes:
        """Return the head without its request for an upgrade, for a new parser, so that the body after it is read.

        A server may ignore an upgrade, such as h2c or websocket (RFC 9110, 7.8). The header `upgrade` alone requests
        nothing, so it stays for the application.
        """
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                tokens = [token.strip() for token in value.split(b",")]
                value = b", ".join(token for token in tokens if token.lower() not in (b"upgrade", b"http2-settings"))
            if name != b"http2-settings":
                lines.append(name + b": " + value)
        self.parser = HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn
        self._reset_head()
        return b"\r\n".join([*lines, b"", b""])

    def on_message_begin(self) -> None:
        """Do nothing: `on_message_complete` has reset the head, and a part of this one may be counted already."""

    def _reset_head(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self._head_size = 0  # bytes of the head and the trailers that were parsed and counted

    def on_url(self, url: bytes) -> None:
        self.url += url
        if self._is_head_counted:
            self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header. A trailer, after the body, is ignored: the request has been checked without it."""
        if self._awaits_head:
            self.headers.append((name.lower(), value))
            if not self._is_head_counted:
                return
        self._count_head(len(name) + len(value) + 4)

    def _count_head(self, size: int) -> None:
        self._head_size += size
        if self._head_size > self._head_limit:
            raise _TooLarge

    def on_headers_complete(self) -> None:
        """Start the request, queue it after an unanswered one, or answer 503. Raise _HeadRefused for a bad head."""
        if self._ignores_input:
            raise _HeadRefused  # the connection ends with the request before, which was in the same data
        self._is_idle = False  # the request before may have ended in the same data
        parser = self.parser
        method = parser.get_method()
        if parser.should_upgrade():
            if method == b"CONNECT":
                self._refuse_head(400, "the method CONNECT is not supported")
            return  # the head will be parsed again
        fields = dict(self.headers)
        if self._serves_probes_only or b"transfer-encoding" in fields or b"te" in fields:
            self._check_head()
        if self._queued_size > _MAX_QUEUED:
            self._close_after_queue()
        http_version = parser.get_http_version()
        if self.url != self._parsed_url:
            self._parse_url()  # this refuses a URL that cannot be parsed
        self._awaits_head = False
        if self._read_timer is not None:
            self._stop_read_timer()
        default_headers = self.server_state.default_headers
        if default_headers is not self._default_headers:  # uvicorn replaces them every second
            self._default_headers, self._default_lines = default_headers, encode_fields(default_headers)
        keep_alive = http_version != "1.0" and parser.should_keep_alive() and not self._serves_last_request
        # RFC 9110, 10.1.1
        expects_continue = b"expect" in fields and http_version != "1.0" and self._expects_continue()
        current = self._current_cycle
        is_next = current is None or (current.response_complete and not self.pipeline)
        if is_next and self._is_excess(self._raw_path):
            # A refusal needs no scope and no cycle, which take longer than all the rest of it.
            self._current_cycle = self.cycle = _REFUSED
            self._refuse_overload(method.decode("ascii"), self._path, self.headers, keep_alive and not expects_continue)
            self.server_state.total_requests += 1
            return
        self.cycle = cycle = RequestCycle(
            self._make_scope(method, http_version),
            self.transport,  # type: ignore[arg-type]  # as above
            self.flow,
            default_headers,
            self._default_lines,
            self.on_response_complete,
            keep_alive,
            expects_continue,
        )
        if is_next:
            self._current_cycle = cycle
            self._start_asgi_task(cycle, self.app)
        else:
            self.pipeline.appendleft((cycle, self.app))
            self._add_queued(size_in_memory(cycle))

    def _is_excess(self, raw_path: bytes) -> bool:
        """Count the next request, and return whether it exceeds a bound of the admission. Health checks never do."""
        admission = self._admission
        if admission is None:
            return False
        if not admission.is_measuring:
            admission.start_measuring()
        admission.remaining -= 1
        return (
            (admission.remaining < 0 or admission.in_flight >= admission.limit)
            and raw_path not in _PROBE_PATHS
            and admission.find_refusal() is not None
        )

    def _refuse_overload(self, method: str, path: str, headers: HeaderPairs, keep_alive: bool) -> None:
        """Refuse a request at once, and close the connection without `keep_alive`, or if its answers are not read.

        Its body is discarded later. The callers pass no `keep_alive` for a client that waits for `100 Continue`: it may
        send no body after this answer, or only a part of it (RFC 9110, 10.1.1).
        """
        assert self._gate is not None
        status, fields, body = self._gate.encode_refusal(method, path, headers)
        keep_alive = keep_alive and not self.flow.write_paused
        self.transport.write(
            b"%b%b%bcontent-length: %d\r\n%b\r\n%b"
            % (
                STATUS_LINE[status],
                self._default_lines or b"",
                encode_fields(fields) or b"",  # None: fields that uvicorn refuses, so the answer has none
                len(body),
                b"" if keep_alive else b"connection: close\r\n",
                b"" if method == "HEAD" else body,
            )
        )
        if not keep_alive:
            self.transport.close()

    def _add_queued(self, size: int) -> None:
        """Count a part of a queued request.

        A few requests are read ahead, because only a connection that is read reports a disconnect.
        """
        self._queued_size += size
        if self._queued_size > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
            self.flow.is_full = True

    def _close_after_queue(self) -> None:
        """Answer the requests that are queued, then close the connection. The client repeats the others elsewhere."""
        newest, _ = self.pipeline[0]
        newest.keep_alive = False
        self._ignore_input()
        raise _HeadRefused

    def _ignore_input(self) -> None:
        """Discard the data that arrives from now on.

        It is read, because only a connection that is read reports a disconnect, and because one that is closed with unread
        data is reset, which can destroy answers that the client has not read yet (RFC 9112, 9.6).
        """
        self._ignores_input = True
        self.flow.is_full = False
        self.flow.resume_reading()

    def _parse_url(self) -> None:
        """Find the path and the query. Most clients send all requests of a connection to the same URL."""
        parsed_url = parse_url(self.url)
        raw_path = parsed_url.path or b"/"  # of a URL with a host only
        path = raw_path.decode("ascii")
        self._path = unquote(path) if "%" in path else path
        self._raw_path, self._query, self._parsed_url = raw_path, parsed_url.query or b"", self.url

    def _discard_input(self) -> bool:
        """Discard the rest of a request at the end of the connection. Return whether some of it is still expected."""
        is_expected = self._ignores_input or not self._awaits_head
        if is_expected:
            self._ignore_input()
        return is_expected

    def _make_scope(self, method: bytes, http_version: str) -> HTTPScope:
        """Return the ASGI scope of the request whose head was parsed last."""
        return {
            "type": "http",
            "asgi": self._asgi_versions,
            "http_version": http_version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,  # type: ignore[typeddict-item]  # set when the connection was made
            "method": method.decode("ascii"),
            "root_path": "",
            "path": self._path,
            "raw_path": self._raw_path,
            "query_string": self._query,
            "headers": self.headers,
            "state": self.app_state.copy(),
        }

    def _expects_continue(self) -> bool:
        return any(name == b"expect" and value.lower() == b"100-continue" for name, value in self.headers)

    def _check_head(self) -> None:
        """Raise _HeadRefused for a body that cannot be decoded, and for all but health checks beyond the limit."""
        for name, value in self.headers:
            if name not in _CODING_HEADERS:
                continue
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

    def on_body(self, body: bytes) -> None:
        """Add a piece to the newest request, unless it has its answer. Stop reading if too much of it is not read."""
        cycle = self.cycle
        if cycle.response_complete:
            return
        cycle.add_body(body)
        if cycle is not self._current_cycle:
            self._add_queued(len(body))
        elif len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()

    def on_message_complete(self) -> None:
        """End the body, and expect the next head. A refused connection is closed; an answered one becomes idle."""
        if self.parser.should_upgrade():
            return  # the head will be parsed again
        self._awaits_head = True
        self._received_size = 0
        self._reset_head()
        if self._read_timer is not None:
            self._stop_read_timer()
        if self._ignores_input:
            self.transport.close_now()  # it was refused, and the client sends nothing more
        elif self.cycle.response_complete:  # before its body arrived
            self._become_idle()
        else:
            self.cycle.end_body()

    def on_response_complete(self) -> None:
        """Start the next queued request, refuse the request after the queue, or wait for the next head or the body."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.pipeline:
            # Not at once: a refused request is answered when it starts, so hundreds of them would be nested calls. And the
            # request that has just been answered counts as one in flight until its task ends.
            self.loop.call_soon(self._start_queued)
            return
        if self._refusal is not None:
            self._send_refusal(*self._refusal)
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        # as `_become_idle`, without a call for each request
        self._is_idle, self._idle_since = True, self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._check_idle)
        if self._awaits_head:
            if self._received_size:
                self._wait_for_head()
        elif self.cycle.response_complete:
            self._wait_for_body()

    def _become_idle(self) -> None:
        self._is_idle, self._idle_since = True, self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._check_idle)

    def _start_queued(self) -> None:
        """Start the oldest queued request, or refuse it in an overload, unless the connection has ended since."""
        if self.transport.is_closing() or not self.pipeline:
            return
        queued, _ = self.pipeline.pop()
        self._current_cycle = cycle = cast("RequestCycle", queued)  # only `on_headers_complete` adds to it
        self._subtract_queued(cycle)
        scope = cycle.scope
        if self._is_excess(scope["raw_path"]):
            cycle.response_started = cycle.response_complete = True
            keep_alive = cycle.keep_alive and not cycle.waiting_for_100_continue
            self._refuse_overload(scope["method"], scope["path"], cast("HeaderPairs", scope["headers"]), keep_alive)
            self.on_response_complete()
        else:
            self._start_asgi_task(cycle, self.app)

    def _subtract_queued(self, cycle: RequestCycle) -> None:
        """Count a request that is not queued any more, and read on if the others are few."""
        self._queued_size -= size_in_memory(cycle)
        self.flow.is_full = not self._ignores_input and self._queued_size > HIGH_WATER_LIMIT
        self.flow.resume_reading()

    def _check_idle(self) -> None:
        """Close the connection if it was idle for the keep-alive timeout."""
        self._idle_timer = None
        if not self._is_idle:
            return  # the next answer sets the timer
        closes_at = self._idle_since + self.timeout_keep_alive
        if self.loop.time() < closes_at:
            self._idle_timer = self.loop.call_at(closes_at, self._check_idle)
        else:
            self.timeout_keep_alive_handler()

    def shutdown(self) -> None:
        """Close the connection after the next answer, or after a second without a request, because the server stops.

        uvicorn closes idle connections at once. A request that is under way on such a connection, or the first request
        of a new connection, would be lost.
        """
        self._serves_last_request = True
        if self._is_answering:
            self.cycle.keep_alive = False  # of the newest request
        else:
            self.loop.call_later(_LAST_REQUEST, self._close_unused)

    def _close_unused(self) -> None:
        has_begun = self._awaits_head and self._received_size  # else the bytes belong to a request that has its answer
        if not self._is_answering and not has_begun:
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.transport.start_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.transport.is_closing():
            self.transport.start_timer()
        else:
            self.transport.stop_timer()

    def _wait_for_body(self) -> None:
        """Limit the time for the body of a request that has been answered."""
        if self._read_timer is None:
            self._read_timer = self.loop.call_later(self._client_timeout, self.transport.abort)

    def _wait_for_head(self) -> None:
        if self._read_timer is None and not self._is_answering:
            self._read_timer = self.loop.call_later(self._client_timeout, self._on_head_timeout)

    @property
    def _is_answering(self) -> bool:
        current = self._current_cycle
        return current is not None and (not current.response_complete or bool(self.pipeline))

    def _on_head_timeout(self) -> None:
        self._read_timer = None
        if self._received_size == 0:
            self.transport.close()
        else:
            self._refuse(408, "the head of the request did not arrive in time")

    def _refuse_unparsable(self) -> None:
        """Refuse a request after an error of the parser, or of one of its callbacks."""
        if self._refusal is not None:
            self._refuse(*self._refusal)
        elif self._head_size > self._head_limit:
            self._refuse(*_HEAD_TOO_LARGE)
        else:
            self._refuse(400, "Invalid HTTP request received.")

    def _refuse(self, status: int, message: str) -> None:
        """Ignore further input, and refuse this request, after the answers to others (`on_response_complete`)."""
        if self._ignores_input:
            return  # this request is ignored, too
        self._refusal = (status, message)
        self._ignore_input()
        if not self._awaits_head and self.cycle is not self._current_cycle:
            self._drop_newest()
        if not (self._awaits_head and self._is_answering):
            self._send_refusal(status, message)

    def _drop_newest(self) -> None:
        """Remove the newest request from the queue, because its body is invalid."""
        self.pipeline.popleft()
        self._subtract_queued(self.cycle)
        self._awaits_head = True

    def _send_refusal(self, status: int, message: str) -> None:
        """Answer the refused request, unless its answer has begun, and close the connection."""
        if self.transport.is_closing():
            return
        if self._awaits_head or not self.cycle.response_started:
            self.transport.write(encode_early_refusal(status, message))
        self.transport.close()
        self._report_disconnect()

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None


_REFUSED = RequestCycle.__new__(RequestCycle)  # in place of a refused request's cycle: its answer is complete
_REFUSED.response_started = _REFUSED.response_complete = True
