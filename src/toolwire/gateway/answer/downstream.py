"""The client's side of a stream: started by the first output or the first ping, and kept alive in between."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import inf
from typing import Protocol

from ...asgi.http_exchange import HttpExchange
from ...stream.sse import SSEDecoder

__all__ = ["ArrayFrames", "Downstream", "Frames"]

_IDLE_RECHECK = 0.05  # seconds


class Frames(Protocol):
    """The framing of a stream's events."""

    def feed(self, data: bytes) -> bytes: ...

    def close(self) -> bytes: ...


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


class Downstream:
    """A stream to a client. `has_written` is set by the first output; after it, no other target can be tried.

    `ping` is sent after `ping_interval` seconds without output. After `idle_timeout` seconds without data from the
    upstream, the task that waits for it is cancelled. `frames` converts the events to another framing.
    """

    def __init__(
        self,
        http_exchange: HttpExchange,
        headers: Mapping[str, str],
        ping: bytes,
        *,
        ping_interval: float,
        idle_timeout: float,
        frames: Frames | None = None,
    ) -> None:
        self.has_written = False  # output of the model, not only a ping
        self.idle_timed_out = False
        self.time_to_first_chunk: float | None = None  # seconds
        self._http_exchange = http_exchange
        self.headers = dict(headers)
        self._ping = ping
        self._ping_interval = ping_interval
        self._idle_timeout = idle_timeout
        self._frames = frames
        self._is_writing = False  # a write to the client is in progress
        self._idle_suspected = False  # the first idle check has failed
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()  # the task to cancel when the upstream is idle
        self._started_at = self._last_received = self._last_sent = self._loop.time()
        self._pinging: asyncio.Task[None] | None = None  # a ping in progress
        self._timer = self._loop.call_later(min(ping_interval, idle_timeout), self._on_timer)

    def note_activity(self) -> None:
        """Note a sign of life from the upstream."""
        self._last_received = self._loop.time()
        self._idle_suspected = False

    def restart_idle_timer(self) -> None:
        """Restart the timers for another target, after one that was silent for too long."""
        self.idle_timed_out = False
        self.note_activity()
        self._timer = self._loop.call_later(min(self._ping_interval, self._idle_timeout), self._on_timer)

    @contextmanager
    def suspend_idle_timeout(self) -> Iterator[None]:
        """Ignore the upstream's silence while it cannot send anything."""
        self._last_received = inf
        try:
            yield
        finally:
            self.note_activity()

    async def write(self, data: bytes) -> None:
        """Write output of the model, in the framing of the client's stream."""
        if not self.has_written:
            self.has_written = True
            self.time_to_first_chunk = self._loop.time() - self._started_at
        if self._frames is not None:
            data = self._frames.feed(data)
        await self._write_frame(data)

    async def end(self) -> None:
        """Close the framing and end the answer; an answer without any output gets its head here."""
        self._timer.cancel()
        if self._frames is not None:
            await self._write_frame(self._frames.close())
        await self._wait_for_ping()
        if not self._http_exchange.started:
            await self._http_exchange.start(200, self.headers)
        await self._http_exchange.end()

    def close(self) -> None:
        self._timer.cancel()
        if self._pinging is not None:
            self._pinging.cancel()

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
            if not self._http_exchange.started:
                await self._http_exchange.start(200, self.headers)
            await self._http_exchange.write(data)
        finally:
            self._is_writing = self._idle_suspected = False
            self._last_sent = self._last_received = self._loop.time()

    def _on_timer(self) -> None:
        """Check for idleness, send a ping if one is due, and set the timer for the next of the two."""
        now = self._loop.time()
        if self._is_writing:
            self.note_activity()  # data has arrived and waits for the client
        if now - self._last_received >= self._idle_timeout:
            self._on_idle()
            return
        can_ping = self._ping and not self._is_writing and (self._pinging is None or self._pinging.done())
        if can_ping and now - self._last_sent >= self._ping_interval:
            self._pinging = asyncio.ensure_future(self._send_ping())
            self._last_sent = now
        next_ping = self._last_sent + self._ping_interval if can_ping else now + self._ping_interval
        next_idle_check = self._last_received + self._idle_timeout
        self._timer = self._loop.call_later(max(min(next_ping, next_idle_check) - now, 0.01), self._on_timer)

    def _on_idle(self) -> None:
        """Give up at the second check: after this process was suspended, data that has arrived is not yet read."""
        if not self._idle_suspected:
            self._idle_suspected = True
            self._timer = self._loop.call_later(_IDLE_RECHECK, self._on_timer)
            return
        self.idle_timed_out = True
        self._idle_suspected = False
        if self._task is not None:
            self._task.cancel()

    async def _send_ping(self) -> None:
        if not self._http_exchange.started:
            await self._http_exchange.start(200, self.headers)
        await self._http_exchange.write(self._ping)
