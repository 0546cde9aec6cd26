"""Deliver one answer to a client: as a whole, or as a stream that is kept alive until it ends.

A delivery has one of four states. `TRANSITIONS` lists every step that is allowed in each of them, and the state after it;
any other step is a bug.

    silent      nothing was sent: another target can be tried, and an error still has its status
    alive       the head and pings were sent: another target can be tried, but an error is an event
    streaming   output of the model was sent: an error is an event, and ends the stream
    ended       nothing may follow

The state is advanced before the bytes are written, because a write may be cancelled in the middle: bytes that may have
been sent count as sent. `alive` is a state of its own, because a ping needs the head, and so the status 200, but shows
nothing about the answer.

One deadline per stream serves pings and the limits on silence. A ping is written by a task of its own, because the task of
the request waits for the upstream at that time; output waits until a ping in progress is written, so that neither is
inside the other. Silence interrupts the request's task (`asgi.interruption`) instead of ending the stream here: only
that task knows whether another target can answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import Literal, TypeAlias

from msgspec import Struct

from ...asgi.http_exchange import HeaderPairs, HttpExchange
from ...asgi.offload import ClientOffload
from ...net.deadlines import Deadlines
from ...stream.framing import SSEDecoder
from ...wire.models.chunks import ChunkFrames
from ..memory import MemoryReservation
from ..observe.request_log import RequestLogWriter
from ..request.client_request import ClientRequest
from ..request.dependencies import Dependencies
from .preparation import RequestPreparation, Stream
from .work import AnswerWork

DeliveryState: TypeAlias = Literal["silent", "alive", "streaming", "ended"]
DeliveryStep: TypeAlias = Literal["respond", "ping", "write", "end", "abandon"]

TRANSITIONS: Mapping[tuple[DeliveryState, DeliveryStep], DeliveryState] = {
    ("silent", "respond"): "ended",
    ("silent", "ping"): "alive",
    ("silent", "write"): "streaming",
    ("silent", "end"): "ended",
    ("silent", "abandon"): "ended",
    ("alive", "ping"): "alive",
    ("alive", "write"): "streaming",
    ("alive", "end"): "ended",
    ("alive", "abandon"): "ended",
    ("streaming", "ping"): "streaming",
    ("streaming", "write"): "streaming",
    ("streaming", "end"): "ended",
    ("streaming", "abandon"): "ended",
    ("ended", "abandon"): "ended",
}
"""The state after each allowed step."""

_IDLE_RECHECK = 0.05  # seconds: several turns of a busy event loop, which reads waiting data in its first


class IllegalStep(RuntimeError):
    """A step that the state of a delivery does not allow: an error in the gateway."""


class Delivery:
    """The answer to one request. This class delivers a whole answer; errors before it are raised."""

    __slots__ = ("_http_exchange", "state")

    def __init__(self, http_exchange: HttpExchange) -> None:
        self.state: DeliveryState = "silent"
        self._http_exchange = http_exchange

    def advance(self, step: DeliveryStep) -> None:
        """Change the state before a step. Raise IllegalStep if the state does not allow it."""
        following = TRANSITIONS.get((self.state, step))
        if following is None:
            raise IllegalStep(f"a delivery that is {self.state} does not allow {step!r}")
        self.state = following

    @property
    def has_output(self) -> bool:
        """True if output of the model was sent: no other target can be tried."""
        return self.state == "streaming" or self.state == "ended"

    def respond(self, headers: HeaderPairs, body: bytes) -> Awaitable[None]:
        """Deliver a whole answer."""
        self.advance("respond")
        return self._http_exchange.respond(200, headers, body)

    def abandon(self) -> None:
        """Deliver nothing more: the client is gone."""
        self.advance("abandon")


class ArrayFrames:
    """Server-sent events as the items of one JSON array."""

    def __init__(self) -> None:
        self._decoder = SSEDecoder()
        self._separator = b"["  # written before the next item

    def feed(self, data: bytes) -> bytes:
        out = []
        for _, item in self._decoder.feed(data):
            out += [self._separator, item]
            self._separator = b",\r\n"
        return b"".join(out)

    def close(self) -> bytes:
        return b"[]" if self._separator == b"[" else b"]"


class StreamDelivery(Delivery):
    """A stream to a client.

    `ping` is sent after `ping_interval` seconds without output. After `idle_timeout` seconds without data from the
    upstream, or the time for the first event, the task that waits for it is interrupted. `frames` converts the events to
    another framing.
    """

    __slots__ = (
        "__weakref__",
        "_deadlines",
        "_frames",
        "_idle_suspected",
        "_idle_timeout",
        "_is_paused",
        "_is_writing",
        "_last_received",
        "_last_sent",
        "_loop",
        "_max_silence",
        "_ping",
        "_ping_interval",
        "_pinging",
        "_slot",
        "_started_at",
        "headers",
        "time_to_first_chunk",
    )

    def __init__(
        self,
        http_exchange: HttpExchange,
        headers: HeaderPairs,
        ping: bytes,
        *,
        ping_interval: float,
        idle_timeout: float,
        frames: ArrayFrames | ChunkFrames | None = None,
    ) -> None:
        super().__init__(http_exchange)
        self.headers = headers
        self.time_to_first_chunk: float | None = None  # seconds
        self._ping = ping
        self._ping_interval = ping_interval
        self._idle_timeout = idle_timeout
        self._max_silence = idle_timeout  # or the time for the first event
        self._is_paused = False  # between two attempts, so that an error keeps its status
        self._frames = frames
        self._is_writing = False  # a write to the client is in progress
        self._idle_suspected = False  # the first idle check has failed
        self._loop = asyncio.get_running_loop()
        self._started_at = self._last_received = self._last_sent = self._loop.time()
        self._pinging: asyncio.Task[None] | None = None  # a ping in progress
        self._deadlines = Deadlines.of_running_loop()
        self._slot: int | None = None  # of the next check
        http_exchange.interruption.attach()
        self.start_timer()

    def note_activity(self) -> None:
        """Note a sign of life from the upstream."""
        self._last_received = self._loop.time()
        self._max_silence = self._idle_timeout
        self._idle_suspected = False

    def expect_first_event(self, seconds: float) -> None:
        """Limit the silence until the next sign of life to `seconds`, if that is less than the idle timeout."""
        if seconds < self._idle_timeout:
            self._max_silence = seconds
            self._set_timer(min(self._ping_interval, seconds))

    async def pause(self, seconds: float) -> None:
        """Wait between two attempts: this is no silence of the upstream, and no ping fixes the status."""
        self._is_paused = True
        self.suspend_idle_timeout()
        await asyncio.sleep(seconds)
        self._is_paused = False
        self._last_sent = self._loop.time()
        self.note_activity()

    def start_timer(self) -> None:
        """Start the timer for pings and silence; again for another target, after one that was silent for too long."""
        self.note_activity()
        self._set_timer(min(self._ping_interval, self._idle_timeout))

    def _set_timer(self, seconds: float) -> None:
        self._slot = self._deadlines.set(self, self._slot, self._loop.time() + seconds)

    def suspend_idle_timeout(self) -> None:
        """Ignore the upstream's silence until `note_activity`: it cannot send anything now."""
        self._last_received = inf

    async def write(self, data: bytes) -> None:
        """Write output of the model, in the framing of the client's stream."""
        self.advance("write")
        if self.time_to_first_chunk is None:
            self.time_to_first_chunk = self._loop.time() - self._started_at
        if self._frames is not None:
            data = self._frames.feed(data)
        await self._write_frame(data)

    def try_write(self, data: bytes) -> bool:
        """Write output after other output, as `write` does. Return False if `write` has to wait or to convert it."""
        if self.state != "streaming" or self._frames is not None or self._pinging is not None:
            return False
        if not self._http_exchange.try_write(data):
            return False
        self._idle_suspected = False
        self._last_sent = self._last_received = self._loop.time()
        return True

    async def end(self) -> None:
        """Close the framing and end the answer; an answer without any output gets its head here."""
        self.advance("end")
        self._stop_timer()
        if self._frames is not None:
            await self._write_frame(self._frames.close())
        await self._wait_for_ping()
        await self._start()
        await self._http_exchange.end()

    async def _start(self) -> None:
        if not self._http_exchange.started:
            await self._http_exchange.start(200, self.headers)

    def close(self) -> None:
        """Stop the timer and a ping in progress."""
        self._stop_timer()
        if self._pinging is not None:
            self._pinging.cancel()

    def _stop_timer(self) -> None:
        self._deadlines.drop(self, self._slot)
        self._slot = None

    async def _wait_for_ping(self) -> None:
        """Wait until a ping in progress has been sent."""
        if self._pinging is not None:
            await asyncio.wait({self._pinging})  # a cancellation here must not cancel the ping, which may be half sent
            self._pinging = None

    async def _write_frame(self, data: bytes) -> None:
        """Write bytes after any ping in progress. Time spent waiting for a slow client does not count as idle."""
        self._is_writing = True  # no ping starts from here on
        try:
            if self._pinging is not None:
                await self._wait_for_ping()
            await self._start()
            await self._http_exchange.write(data)
        finally:
            self._is_writing = self._idle_suspected = False
            self._max_silence = self._idle_timeout
            self._last_sent = self._last_received = self._loop.time()

    def check_time(self) -> None:
        """Check for idleness, send a ping if one is due, and set the timer for the next of the two."""
        self._slot, now = None, self._loop.time()
        if self._is_writing:
            self.note_activity()  # data has arrived and waits for the client
        if now - self._last_received >= self._max_silence:
            self._on_idle()
            return
        is_busy = self._is_writing or (self._is_paused and self.state == "silent")
        can_ping = self._ping and not is_busy and (self._pinging is None or self._pinging.done())
        if can_ping and now - self._last_sent >= self._ping_interval:
            self.advance("ping")
            self._pinging = asyncio.ensure_future(self._send_ping())
            self._last_sent = now
        next_ping = self._last_sent + self._ping_interval if can_ping else now + self._ping_interval
        next_idle_check = self._last_received + self._max_silence
        self._slot = self._deadlines.set(self, None, max(min(next_ping, next_idle_check), now + 0.01))

    def _on_idle(self) -> None:
        """Interrupt the request at the second check in a row, 50 ms after the first.

        After this process was suspended, data that has arrived is not yet read at the first.
        """
        if not self._idle_suspected:
            self._idle_suspected = True
            self._slot = self._deadlines.set(self, None, self._loop.time() + _IDLE_RECHECK)
            return
        self._idle_suspected = False
        self._http_exchange.interruption.interrupt("upstream_idle")

    async def _send_ping(self) -> None:
        await self._start()
        await self._http_exchange.write(self._ping)


CONTENT_TYPE = (b"content-type", b"application/json")


class AnswerContext(Struct, frozen=True, eq=False):
    """A request that is answered, with the objects that its attempts share. Everything that changes is in `AnswerState`."""

    dependencies: Dependencies
    http_exchange: HttpExchange
    client_request: ClientRequest
    log_writer: RequestLogWriter
    preparation: RequestPreparation
    work: AnswerWork

    @property
    def has_run_tools(self) -> bool:
        """True if tools of the gateway have run: a retry would run them again."""
        tools = self.preparation.gateway_tools
        return tools is not None and tools.has_run_tools

    def response_headers(self) -> HeaderPairs:
        return [CONTENT_TYPE, (b"x-request-id", self.log_writer.log.id.encode())]


class AnswerState(Struct, eq=False):
    """The delivery of one answer. Each attempt continues from the state in which the attempt before has left it."""

    delivery: Delivery
    stream_delivery: StreamDelivery | None = None  # the same, if the answer is a stream
    idle_timeout: float = 0.0  # seconds, of a stream
    stream: Stream | None = None  # the stream being relayed
    streamed_bytes: int = 0  # received in streams
    cache_answer: Callable[[bytes], None] | None = None  # of a request whose answer may be cached

    def open_stream(self, context: AnswerContext) -> None:
        """Open the client's stream. A JSON array (`as_array`) is kept alive by spaces, which JSON ignores."""
        ingress, as_array = context.client_request.ingress, context.client_request.as_array
        headers: HeaderPairs = [
            (b"content-type", b"application/json" if as_array else ingress.framing.media_type.encode()),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),
            (b"x-request-id", context.log_writer.log.id.encode()),
        ]
        self.delivery = self.stream_delivery = StreamDelivery(
            context.http_exchange,
            headers,
            b" " if as_array else ingress.ping,
            ping_interval=context.dependencies.limits.ping,
            idle_timeout=self.idle_timeout,
            frames=ArrayFrames() if as_array else ChunkFrames() if ingress.is_invoke else None,
        )


def open_context(
    dependencies: Dependencies,
    http_exchange: HttpExchange,
    client_request: ClientRequest,
    log_writer: RequestLogWriter,
    memory: MemoryReservation,
    offload: ClientOffload,
) -> AnswerContext:
    """Return the context of a request whose answer begins."""
    preparation = RequestPreparation(client_request, memory.client, dependencies)
    work = AnswerWork(client_request, preparation, dependencies, log_writer, memory, offload, memory.add)
    return AnswerContext(dependencies, http_exchange, client_request, log_writer, preparation, work)
