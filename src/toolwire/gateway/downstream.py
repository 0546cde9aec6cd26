"""The client's side of a stream: started by the first output or the first ping, and kept alive in between."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import inf
from typing import Protocol

from ..stream.sse import SSEDecoder
from .asgi import Call

__all__ = ["ArrayFrames", "Downstream", "Frames"]

_SECOND_LOOK = 0.05  # seconds


class Frames(Protocol):
    """The framing of a stream's events."""

    def feed(self, data: bytes) -> bytes: ...

    def close(self) -> bytes: ...


class ArrayFrames:
    """Server-sent events as the items of one JSON array."""

    def __init__(self) -> None:
        self._decoder = SSEDecoder()
        self._before = b"["

    def feed(self, data: bytes) -> bytes:
        out = []
        for _, item in self._decoder.feed(data):
            out += [self._before, item]
            self._before = b",\r\n"
        return b"".join(out)

    def close(self) -> bytes:
        return b"[]" if self._before == b"[" else b"]"


class Downstream:
    """A stream to a client. `spoke` is set by the first output; after it, no other target can be tried.

    `ping` is sent after `every` seconds without output. After `silence` seconds without data from the upstream, the
    task that waits for it is cancelled.
    """

    def __init__(
        self,
        call: Call,
        headers: Mapping[str, str],
        ping: bytes,
        *,
        every: float,
        silence: float,
        frames: Frames | None = None,
    ) -> None:
        self.spoke = False
        self.gave_up = False
        self.first_after: float | None = None  # seconds
        self._call = call
        self.headers = dict(headers)
        self._ping = ping
        self._every = every
        self._silence = silence
        self._frames = frames
        self._is_writing = False
        self._is_late = False
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._began = self._heard = self._written = self._loop.time()
        self._pinging: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(min(every, silence), self._wake)

    def heard(self) -> None:
        """Note a sign of life from the upstream."""
        self._heard = self._loop.time()
        self._is_late = False

    def wait_again(self) -> None:
        """Restart the timers for another target, after one that was silent for too long."""
        self.gave_up = False
        self.heard()
        self._timer = self._loop.call_later(min(self._every, self._silence), self._wake)

    @contextmanager
    def patient(self) -> Iterator[None]:
        """Ignore the upstream's silence while it cannot send anything."""
        self._heard = inf
        try:
            yield
        finally:
            self.heard()

    async def write(self, data: bytes) -> None:
        if not self.spoke:
            self.spoke = True
            self.first_after = self._loop.time() - self._began
        if self._frames is not None:
            data = self._frames.feed(data)
        await self._put(data)

    async def end(self) -> None:
        self._timer.cancel()
        if self._frames is not None:
            await self._put(self._frames.close())
        await self._until_quiet()
        if not self._call.started:
            await self._call.start(200, self.headers)
        await self._call.end()

    def close(self) -> None:
        self._timer.cancel()
        if self._pinging is not None:
            self._pinging.cancel()

    async def _until_quiet(self) -> None:
        """Wait until a ping in progress has been sent."""
        if self._pinging is not None:
            await asyncio.wait({self._pinging})  # a cancellation here must not cancel the ping, which may be half sent
            self._pinging = None

    async def _put(self, data: bytes) -> None:
        self._is_writing = True  # no ping starts from here on
        try:
            if self._pinging is not None:
                await self._until_quiet()
            if not self._call.started:
                await self._call.start(200, self.headers)
            await self._call.write(data)
        finally:
            self._is_writing = self._is_late = False
            self._written = self._heard = self._loop.time()

    def _wake(self) -> None:
        now = self._loop.time()
        if self._is_writing:
            self.heard()  # data has arrived and waits for the client
        if now - self._heard >= self._silence:
            self._lose_patience()
            return
        can_ping = self._ping and not self._is_writing and (self._pinging is None or self._pinging.done())
        if can_ping and now - self._written >= self._every:
            self._pinging = asyncio.ensure_future(self._say_something())
            self._written = now
        next_ping = self._written + self._every if can_ping else now + self._every
        next_silence = self._heard + self._silence
        self._timer = self._loop.call_later(max(min(next_ping, next_silence) - now, 0.01), self._wake)

    def _lose_patience(self) -> None:
        """Give up at the second check: after this process was suspended, data that has arrived is not yet read."""
        if not self._is_late:
            self._is_late = True
            self._timer = self._loop.call_later(_SECOND_LOOK, self._wake)
            return
        self.gave_up = True
        self._is_late = False
        if self._task is not None:
            self._task.cancel()

    async def _say_something(self) -> None:
        if not self._call.started:
            await self._call.start(200, self.headers)
        await self._call.write(self._ping)
