"""A connection of a client: HTTP/1.1 on `asyncio.Protocol`, with httptools as its parser.

The two directions have states of their own, because a client may send requests before it has read the answers (RFC
9112, 9.3.2), and an application may answer before it has read the body. `_INPUT` and `_OUTPUT` have all transitions: an
event that a state does not have is a mistake in this module, and raises KeyError.

    input    new          nothing was received yet
             head         of a request, from its first byte to the empty line
             body         of the newest request, whether it has its answer or not
             start        between two requests
             upgrade      a head asks for another protocol: the hook takes the connection, or the head is read again
             switched     the bytes belong to the protocol of the hook
             last         the last request is complete, and nothing more is expected
             discard      the rest cannot be framed, or has no reader: it is received and dropped
             ended        the client has closed its side, or the connection is lost

    output   idle         every request has its answer
             answering    `_current`, the oldest request; those after it are in `_queue`
             switched     as the input
             closing      nothing more is written

The client's time is limited in these pairs. In all others, the application limits its own time, and an `UnreadTimer`
the time in which the client has to read:

    new, head + idle     slow client: closed, or 408
    body + idle          slow client: aborted; this body was answered ahead
    start + idle         keep-alive timeout: closed
    discard + closing    lingering close (RFC 9112, 9.6): the end was sent, and the client has to close its side

Rules: 1. Answers keep the order of the requests: a refusal is the last answer, after those to the requests before it.
2. Input is received in every state, within limits. Only a connection that is read reports a disconnect, and one that
is closed with unread data is reset, which can destroy an answer that the client has not read (RFC 9112, 9.6). So a
close lingers where more may arrive: in `head`, `body` and `discard`, and in `start` after an answer that is the last by
our decision. In `last` the client knew that, and after the keep-alive timeout there is no answer to lose.
3. Every state has a time limit or a bound, so no client keeps a descriptor for nothing.
4. A request that two servers could frame differently is refused, and the connection closed. httptools refuses two
lengths, a length beside a transfer coding, a bare LF, folded lines, white space before a colon and control characters;
`RequestHead` refuses codings other than chunked, codings in HTTP/1.0 (RFC 9112, 6.1 and 6.3), and other versions.
5. A request after one with `connection: close` is never processed (RFC 9112, 9.6).

An upgrade that the hook does not take is ignored (RFC 9110, 7.8), and trailers are not headers. With an `AdmissionGate`,
a request above its bounds gets 503 before its body is read. The rest of the body is discarded, and the connection stays
open: a new one would cost the server more than the answer. Connections beyond the number of descriptors may send a
health check.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from logging import getLogger
from typing import TYPE_CHECKING, Literal, TypeAlias

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade

from ..ir.text import to_bytes
from ..net.deadlines import Deadlines
from .accepting import has_unread_data
from .request_head import HEAD_TOO_LARGE, PROBE_PATHS, Refused, RequestHead
from .server_context import ServerContext, SwitchedProtocol
from .server_exchange import ServerExchange, encode_answer
from .unread_timer import UnreadTimer

if TYPE_CHECKING:
    from .http_exchange import HeaderPairs

_Input: TypeAlias = Literal["new", "head", "body", "start", "upgrade", "switched", "last", "discard", "ended"]
_Output: TypeAlias = Literal["idle", "answering", "switched", "closing"]
_INPUT: dict[_Input, dict[str, _Input]] = {
    "new": {"begin": "head", "discard": "discard", "eof": "ended"},
    "head": {"request": "body", "upgrade": "upgrade", "discard": "discard", "stop": "discard", "eof": "ended"},
    "body": {"complete": "start", "complete last": "last", "discard": "discard", "stop": "body", "eof": "ended"},
    "start": {"begin": "head", "discard": "discard", "stop": "last", "eof": "ended"},
    "upgrade": {"begin": "head", "switch": "switched", "discard": "discard"},
    "switched": {"eof": "ended"},
    "last": {"begin": "discard", "discard": "discard", "stop": "last", "eof": "ended"},
    "discard": {"complete last": "last", "discard": "discard", "stop": "discard", "eof": "ended"},
    "ended": {"stop": "ended", "eof": "ended"},
}
_OUTPUT: dict[_Output, dict[str, _Output]] = {
    "idle": {"request": "answering", "switch": "switched", "close": "closing"},
    "answering": {"answered": "idle", "close": "closing"},
    "switched": {"close": "closing"},
    "closing": {"close": "closing"},
}

_log = getLogger("toolwire.asgi")
_HIGH_WATER = 64 * 1024  # bytes in a buffer of a connection before its sender is paused; as asyncio's transports
_MAX_QUEUED = 1024 * 1024  # bytes of queued requests; one read may contain many of them
_LAST_REQUEST = 1.0  # seconds in which a request that a client has sent arrives, also from another continent
_UNREAD_DELAY = 0.01  # seconds in which the event loop reads data that the system has received
_LINGER = 5.0  # seconds until a client that still sends must have read the answer and closed its side; as nginx


class Connection(asyncio.Protocol):
    """A connection of a client. `transport` and `close` are also for the protocol that it is switched to."""

    __slots__ = (
        *(
            "_client_timeout",
            "_current",
            "_deadline",
            "_deadlines",
            "_head",
            "_head_limit",
            "_input",
            "_is_large",
            "_is_last",
            "_large",
        ),
        *("_loop", "_output", "_overhead", "_probes_only", "_queue", "_queued_size", "_receiving"),
        *("_refusal", "_slot", "_switched", "_timed", "_unread", "_writable"),
        *("context", "is_read_paused", "is_write_paused", "transport"),
    )

    def __init__(self, context: ServerContext) -> None:
        limits = context.limits()
        self.context = context
        self._loop = asyncio.get_running_loop()
        self._head_limit = limits.head
        self._client_timeout = limits.slow_client
        self._head = RequestHead(self, limits.head)
        self._input: _Input = "new"
        self._output: _Output = "idle"
        self._current: ServerExchange | None = None  # the oldest request without a complete answer
        self._receiving: ServerExchange | None = None  # the newest request, while its body arrives and is wanted
        self._queue: deque[ServerExchange] | None = None  # only for clients that send requests ahead
        self._queued_size = 0  # bytes of the requests in it
        self._refusal: tuple[int, str] | None = None  # status and message for the request after the queue
        self._is_last = False  # the connection is closed after the next answer
        self._probes_only = False  # there are too many connections
        self._switched: SwitchedProtocol | None = None
        # A head is measured only if it may be too large: a quarter of the limit was received, or was so at once, which may
        # be the end of a request and the beginning of the next head.
        self._large = limits.head // 4
        self._is_large = False
        self._overhead = 0  # bytes received since a head, a piece of a body or a request was complete, or fewer
        self._deadlines = Deadlines.of_running_loop()
        self._slot: int | None = None  # of `_deadline`, or of an earlier one
        self._deadline = 0.0  # in the time of the loop
        self._timed: _Input | None = None  # the input state whose time is limited by it
        self.is_read_paused = False
        self.is_write_paused = False
        self._writable: asyncio.Event | None = None  # for an application that waits until the client has read

    # The transport's events.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a head. Beyond the limit of connections, serve only health checks, or refuse."""
        self.transport = transport
        is_tls = transport.get_extra_info("sslcontext") is not None
        if is_tls:
            # The default is 512 KiB, and the event loop aborts a connection 30 seconds after `close` if the client has not
            # read all of it.
            transport.set_write_buffer_limits(_HIGH_WATER)
        self._head.describe_connection(transport, is_tls=is_tls)
        self._unread = UnreadTimer(transport, self._loop, self._client_timeout)
        counts, count = self.context.counts, self.context.add(self)
        if count > counts.limit:
            counts.report(count, _log)
            self._probes_only = self._is_last = True
            excess = count - counts.limit - counts.reserve
            if excess > 0:
                self._refuse(503, "too many connections")
                if excess > counts.reserve // 2:  # of the descriptors for files, which are more important
                    self._close_transport()
                return
        self._limit_time()

    def connection_lost(self, exc: Exception | None) -> None:
        self._input = _INPUT[self._input]["eof"]
        self._output = _OUTPUT[self._output]["close"]
        self._unread.stop()
        self._deadlines.drop(self, self._slot)
        if self._current is not None:
            self._current.disconnect()
        if self._writable is not None:
            self._writable.set()
        if self._switched is not None:
            self._switched.connection_lost(exc)
        self._queue = self._current = self._receiving = None
        del self._head  # its parser refers to this object
        self.context.remove(self)

    def eof_received(self) -> None:
        """Close the connection: a client that has closed its side counts as gone, as for most servers.

        The event loop would close its transport by itself, without a time limit.
        """
        self._input = _INPUT[self._input]["eof"]
        self._output = _OUTPUT[self._output]["close"]
        self._close_transport()
        self._unread.start()
        if self._current is not None:
            self._current.disconnect()
        if self._writable is not None:
            self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Parse data. Limit the size of what belongs to no body, and the time if an answer is not in progress."""
        if self._input in ("discard", "ended"):
            return
        if self._switched is not None:
            self._switched.data_received(data)
            return
        size = len(data)
        self._overhead += size
        if size > self._large:
            self._is_large = True
        elif self._is_large and self._input != "head":
            self._is_large = False
        end = 0
        try:
            self._head.parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            end = upgrade.args[0]  # later: an error of the parser would get this one as its context
        except HttpParserError as error:
            self._refuse_unparsable(error)
        if end:
            self._parse_after(end, data)
        if self._overhead > self._head_limit and self._input in ("head", "body"):
            self._refuse(*HEAD_TOO_LARGE)  # a field, a trailer or a chunk extension without an end
        if self._output == "idle" and self._input != self._timed:
            self._limit_time()

    def pause_writing(self) -> None:
        self.is_write_paused = True
        self._unread.start()

    def resume_writing(self) -> None:
        self.is_write_paused = False
        if self._writable is not None:
            self._writable.set()
            self._writable = None
        if self._output == "closing":
            self._unread.start()
        else:
            self._unread.stop()

    async def drain(self) -> None:
        """Wait until the client has read enough, or is gone."""
        while self.is_write_paused and self._input != "ended":
            self._writable = self._writable or asyncio.Event()
            await self._writable.wait()

    def resume_reading(self) -> None:
        """Receive more, unless too many requests are queued."""
        if self.is_read_paused and (self._queued_size <= _HIGH_WATER or self._input == "discard"):
            self.is_read_paused = False
            if not self.transport.is_closing():
                self.transport.resume_reading()

    def _pause_reading(self) -> None:
        if not self.is_read_paused:
            self.is_read_paused = True
            self.transport.pause_reading()

    # The parser's events.

    def on_message_begin(self) -> None:
        self._input = _INPUT[self._input]["begin"]
        if self._input == "discard":
            raise Refused  # without an answer: this request comes after the last one

    def on_headers_complete(self) -> None:
        """Start the request, queue it after an unanswered one, or answer 503. Raise Refused for a bad head."""
        head = self._head
        head.url = b"".join(head.pieces_of_url)
        if self._overhead > self._large or self._is_large:
            head.check_size()
        self._overhead = 0
        parser, fields = head.parser, dict(head.headers)
        http_version = parser.get_http_version()
        if http_version != "1.1" or b"transfer-encoding" in fields or b"te" in fields:
            head.check_framing(http_version)
        if head.url != head.parsed_url:
            head.parse_url()
        method = parser.get_method().decode("ascii")
        if parser.should_upgrade():
            if method == "CONNECT":
                raise Refused(400, "the method CONNECT is not supported")
            self._input = _INPUT[self._input]["upgrade"]
            return
        if self._probes_only and head.raw_path not in PROBE_PATHS:
            raise Refused(503, "too many connections")
        if self._queued_size > _MAX_QUEUED:
            self._close_after_queue()
        head.is_complete = True
        self._input = _INPUT[self._input]["request"]
        keep_alive = http_version == "1.1" and parser.should_keep_alive() and not self._is_last
        # RFC 9110, 10.1.1: a client of HTTP/1.0 takes 100 for its answer
        expects_continue = http_version == "1.1" and fields.get(b"expect", b"").lower() == b"100-continue"
        if self.context.gate is not None and self._output == "idle" and self._is_excess(head.raw_path):
            # A refusal needs no scope and no exchange, which take longer than all the rest of it.
            self._refuse_excess(method, head.path, head.headers, keep_alive=keep_alive and not expects_continue)
            return
        scope = head.make_scope(method, http_version, self.context.app_state)
        self._receiving = exchange = ServerExchange(self, scope, keep_alive, expects_continue)
        if self._output == "idle":
            self._output = _OUTPUT["idle"]["request"]
            self._start(exchange)
        else:
            self._enqueue(exchange)

    def on_body(self, body: bytes) -> None:
        """Add a piece to the newest request, unless it has its answer. Pause reading if too much of it is not taken."""
        self._overhead = 0
        exchange = self._receiving
        if exchange is None:
            return
        size = exchange.add_body(body)
        if exchange is not self._current:
            self._add_queued(len(body))
        elif size > _HIGH_WATER:
            self._pause_reading()

    def on_message_complete(self) -> None:
        """End the body, and expect the next head, unless this request is the last one."""
        if self._input == "upgrade":
            return
        exchange, self._receiving = self._receiving, None
        self._head.reset()
        self._overhead = 0
        if self._input == "discard":  # it was answered ahead, as the last request
            self._input = _INPUT["discard"]["complete last"]
            self._close_transport()
        elif exchange is None:
            self._input = _INPUT[self._input]["complete"]
        else:
            self._input = _INPUT[self._input]["complete" if exchange.keep_alive else "complete last"]
            exchange.end_body()

    def _parse_after(self, end: int, data: bytes) -> None:
        """Switch after the head of an upgrade, or parse the head again without it, and the data from `end` on.

        The data may have many such requests, so they are not copied for each.
        """
        rest = memoryview(data)[end:]
        while not self._switch(rest):
            head = self._head.remove_upgrade()
            try:
                self._head.parser.feed_data(head)
                self._head.parser.feed_data(rest)
                return
            except HttpParserUpgrade as upgrade:
                end = upgrade.args[0]
            except HttpParserError as error:
                self._refuse_unparsable(error)
                return
            rest = rest[end:]

    def _switch(self, rest: memoryview) -> bool:
        """Switch to the hook's protocol after a WebSocket handshake, unless an answer to a request is due before."""
        hook, head = self.context.upgrade, self._head
        if hook is None or self._output != "idle" or self._is_last or not head.is_websocket:
            return False
        method, version = head.parser.get_method().decode("ascii"), head.parser.get_http_version()
        switched = hook(self, head.make_scope(method, version, self.context.app_state))
        if switched is None:
            return False
        self._input = _INPUT[self._input]["switch"]
        self._output = _OUTPUT[self._output]["switch"]
        self._switched = switched
        if rest:
            switched.data_received(bytes(rest))
        return True

    # Requests and their answers.

    def _enqueue(self, exchange: ServerExchange) -> None:
        if self._queue is None:
            self._queue = deque()
        self._queue.append(exchange)
        self._add_queued(exchange.size_in_memory())

    def _start(self, exchange: ServerExchange) -> None:
        self._current = exchange
        self.context.exchanges.add(exchange)
        exchange.task = self._loop.create_task(exchange.run(self.context.app))

    def end_answer(self, exchange: ServerExchange) -> None:
        """Go on after a complete answer: close, start or refuse the next request, or become idle."""
        self._current = None
        if exchange is self._receiving:
            self._receiving = None  # the rest of its body has no reader
        if not exchange.keep_alive:
            self.close()
        elif self._queue:
            # Not at once: a refused request is answered when it starts, so hundreds of them would be nested calls. And the
            # request that has just been answered counts as one in flight until its task ends.
            self._loop.call_soon(self._go_on)
        elif self._refusal is not None:
            self._go_on()
        elif self._output == "answering":
            self._output = _OUTPUT["answering"]["answered"]
            if self.is_read_paused:
                self.resume_reading()
            self._limit_time()
            if self._is_last:  # the head of this answer did not announce the end
                self._loop.call_later(_LAST_REQUEST, self._close_unused)

    def _go_on(self) -> None:
        """Start or refuse the oldest queued request, or refuse the request after the queue."""
        if self._output == "closing":
            return
        if self._queue:
            exchange = self._queue.popleft()
            self._queued_size -= exchange.size_in_memory()
            self.resume_reading()
            scope = exchange.scope
            if self._is_excess(scope["raw_path"]):
                self._refuse_excess(
                    scope["method"], scope["path"], scope["headers"], keep_alive=exchange.can_keep_alive
                )
                self.end_answer(exchange)
            else:
                self._start(exchange)
        elif self._refusal is not None:
            self._send_refusal(*self._refusal)

    def _is_excess(self, raw_path: bytes) -> bool:
        """Count the next request, unless it is a health check, and return whether it exceeds a bound of the admission."""
        gate = self.context.gate
        return gate is not None and raw_path not in PROBE_PATHS and gate.admission.is_excess()

    def _refuse_excess(self, method: str, path: str, headers: HeaderPairs, *, keep_alive: bool) -> None:
        """Refuse a request at once, and close the connection without `keep_alive`, or if its answers are not read.

        Its body is discarded later. There is no `keep_alive` for a client that waits for `100 Continue`: it may send no body
        after this answer, or only a part of it (RFC 9110, 10.1.1).
        """
        assert self.context.gate is not None
        status, fields, body = self.context.gate.encode_refusal(method, path, headers)
        keep_alive = keep_alive and not self.is_write_paused
        date = self.context.date_line()
        self.transport.write(encode_answer(status, date, fields, body, keep_alive=keep_alive, is_head=method == "HEAD"))
        self._timed = None  # the limit of the next state begins again
        if not keep_alive:
            self.close()

    def _add_queued(self, size: int) -> None:
        """Count a part of a queued request. Pause reading if too much is queued.

        A few requests are read ahead, because only a connection that is read reports a disconnect.
        """
        self._queued_size += size
        if self._queued_size > _HIGH_WATER:
            self._pause_reading()

    def _close_after_queue(self) -> None:
        """Answer the requests that are queued, then close the connection. The client repeats the others elsewhere."""
        assert self._queue
        self._queue[-1].keep_alive = False
        self._discard_input()
        raise Refused

    # Refusals, and the end.

    def _refuse_unparsable(self, error: HttpParserError) -> None:
        """Refuse a request after an error of the parser, or of one of its callbacks."""
        cause = error.__context__ if isinstance(error, HttpParserCallbackError) else None
        if self._input in ("last", "discard"):
            self._discard_input()
        elif isinstance(cause, Refused):
            self._refuse(*cause.args)
        elif cause is None or isinstance(cause, HttpParserError):
            self._refuse(400, "Invalid HTTP request received.")
        else:
            _log.error("cannot read a request", exc_info=cause)
            self._refuse(500, "the server failed to read the request")

    def _refuse(self, status: int, message: str) -> None:
        """Discard further input, refuse the request that is received, after the answers to others, and close.

        If its own answer has begun or was sent ahead of the body, there is no other one.
        """
        exchange, self._receiving = self._receiving, None
        is_answered = self._input == "body" and exchange is None
        self._discard_input()
        if is_answered:
            self.close()
        elif exchange is None or exchange is not self._current:
            self._refusal = status, message
            if exchange is not None:  # the newest in the queue
                assert self._queue
                self._queue.pop()
                self._queued_size -= exchange.size_in_memory()
            if self._output == "idle":
                self._send_refusal(status, message)
        else:
            if exchange.is_started:
                self.close()
            else:
                self._send_refusal(status, message)
            exchange.disconnect()

    def _send_refusal(self, status: int, message: str) -> None:
        """Write an error in OpenAI's format, because the client's protocol is not known yet, and close the connection."""
        body = to_bytes({"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}})
        fields = [(b"content-type", b"application/json"), *([(b"retry-after", b"1")] if status == 503 else [])]
        self.transport.write(encode_answer(status, self.context.date_line(), fields, body, keep_alive=False))
        self.close()

    def _discard_input(self) -> None:
        """Discard the data that arrives from now on. It is received, for the reasons of rule 2."""
        self._input = _INPUT[self._input]["discard"]
        self.resume_reading()

    def close(self) -> None:
        """Write nothing more, and close the connection when the client has read all. While it may still send, linger.

        After an answer that is the last by our decision, the next request may be under way.
        The client's time to read is limited also without buffered data, because a TLS transport does not report all of it.
        """
        if self._output == "closing":
            return
        may_send = self._input in ("head", "body") or (self._input == "start" and self._output == "answering")
        self._output = _OUTPUT[self._output]["close"]
        if may_send:
            self._receiving = None
            self._discard_input()
        if self._input == "discard":
            if self.transport.can_write_eof():  # not for TLS
                with suppress(OSError):  # the client has reset the connection
                    self.transport.write_eof()
            self._limit_time()
        else:
            self._close_transport()
        self._unread.start()

    def _close_transport(self) -> None:
        """Close the transport, once: after a second `close`, asyncio's transport of TLS cannot be aborted any more."""
        if not self.transport.is_closing():
            self.transport.close()

    def shutdown(self) -> None:
        """Close the connection after the next answer, or after a second without a request, because the server stops.

        A request that is under way on an idle connection, or the first one of a new connection, would be lost otherwise;
        and so would the next request after a stream whose head, written before, did not announce the end.
        """
        self._is_last = True
        if self._switched is not None:
            self._switched.shutdown()
        elif self._output == "answering":
            newest = self._queue[-1] if self._queue else self._current
            if newest is not None and newest.is_started and newest.keep_alive:
                return  # `end_answer` waits for the next request
            if newest is not None:
                newest.keep_alive = False
            self._input = _INPUT[self._input]["stop"]
        else:
            self._loop.call_later(_LAST_REQUEST, self._close_unused)

    def _close_unused(self) -> None:
        """Close the connection if no request has arrived, not even in the buffer of the system."""
        if self._output != "idle" or self._input == "head":
            return
        if has_unread_data(self.transport):
            self._loop.call_later(_UNREAD_DELAY, self._close_unused)
        else:
            self.close()

    # The limits of time.

    def _limit_time(self) -> None:
        """Begin the time limit of the current states."""
        self._timed = self._input
        if self._input == "start":
            seconds = self.context.keep_alive
        elif self._output == "idle":
            seconds = self._client_timeout
        else:
            seconds = min(_LINGER, self._client_timeout)
        self._deadline = self._loop.time() + seconds
        self._slot = self._deadlines.set(self, self._slot, self._deadline)

    def check_time(self) -> None:
        """End the connection if the time limit of the current states is over."""
        self._slot = None
        if self._output in ("answering", "switched") or self._input in ("last", "ended"):
            return  # the next state with a limit sets a deadline
        if self._loop.time() < self._deadline:
            self._slot = self._deadlines.set(self, None, self._deadline)
        elif self._output == "closing":
            self._close_transport()
        elif self._input == "head":
            self._refuse(408, "the head of the request did not arrive in time")
        elif self._input == "body":
            self.transport.abort()
        else:
            self.close()
