"""Run large work in threads, so that the event loop serves other clients meanwhile.

    offload = Offload()
    document = await offload.run("alice", len(body), parse_object, body)

Small work runs at once, because it takes less time than a switch of threads. The interpreter lets the threads alternate
with the event loop. They are few, because each of them delays the loop by one switch interval.

Requests that wait for threads do not make the event loop late, so they need a bound of their own: `is_late`. It is a bound on
the wait of one client, because a client with too many requests must not cause the refusal of others.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import NoReturn, ParamSpec, TypeVar

from msgspec import Struct

from ..net.threads import ThreadPool

LARGE = 32 * 1024
"""Bytes; the work for a larger document leaves the event loop."""
# More of them only compete for the interpreter lock, and each delays the event loop by one switch interval.
_THREADS = 4
# Calls of average length that a call may wait for. With half of the threads, 16 requests of a client at a time need no more. At
# 80 % of the capacity a call waits for three or four at most, so the latency under overload is a few times as long.
_MAX_CALLS = 8
_INTERVAL = 0.2  # seconds; a burst is over after this time, as for the event loop (`admission`)
# Of the last call, in the mean of durations: it follows a change of the load within some 16 calls.
_MEAN_WEIGHT = 1 / 16

WorkParameters = ParamSpec("WorkParameters")
WorkResult = TypeVar("WorkResult")


class _ClientQueue(Struct, eq=False):
    """The waiting calls of a client. All times are by the clock."""

    turns: deque[tuple[asyncio.Future[None], float]]  # with the times at which they began to wait
    queued_at: float  # as the last client in turn
    calm_at: float  # the queue began, or a call started that had not waited too long

    def drop_cancelled(self) -> None:
        """Drop cancelled calls at the front, which do not wait any more."""
        while self.turns and self.turns[0][0].cancelled():
            self.turns.popleft()


class Offload:
    """A few threads for large work.

    Clients take turns, so a client with many requests does not delay others. One client has at most half of the
    threads, so that work which takes long leaves threads for others. `max_delay`: seconds that a call may wait in any
    case, also if others take less time.
    """

    def __init__(
        self, threads: int = _THREADS, max_delay: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pool = ThreadPool(threads)
        self._free = threads
        self._max_of_client = max(1, threads // 2)
        self._running: Counter[str] = Counter()  # threads in use, by client
        self.waiting: OrderedDict[str, _ClientQueue] = OrderedDict()  # by client, the next one first
        self.max_delay = max_delay
        self._mean_seconds = 0.0  # of calls in threads
        self._clock = clock

    def is_late(self, client: str, size: int) -> bool:
        """Return whether a call of this size would wait too long, as calls of this client before it did for a while.

        Without such calls, the client is the last in turn, after the other clients.
        """
        if size <= LARGE or not self.waiting:
            return False
        now, bound, queue = self._clock(), self._max_wait(), self.waiting.get(client)
        if queue is not None:
            return now - queue.turns[0][1] > bound and now - queue.calm_at > _INTERVAL
        if self._free:
            return False
        others = [queue.queued_at for other, queue in self.waiting.items() if self._has_share(other)]
        return bool(others) and now - others[0] > max(bound, _INTERVAL)

    def _max_wait(self) -> float:
        return max(self.max_delay, _MAX_CALLS * self._mean_seconds)

    async def run(
        self,
        client: str,
        size: int,
        function: Callable[WorkParameters, WorkResult],
        *args: WorkParameters.args,
        **options: WorkParameters.kwargs,
    ) -> WorkResult:
        """Call a function, in a thread if `size` is large. `client` is the name by which clients take turns.

        A cancelled call ends only with its thread, so that no other code uses its arguments at the same time.
        """
        if size <= LARGE:
            return function(*args, **options)
        await self._acquire(client)
        started_at = self._clock()
        try:
            return await self._run_in_thread(partial(copy_context().run, function, *args, **options))
        finally:
            self._mean_seconds += _MEAN_WEIGHT * (self._clock() - started_at - self._mean_seconds)
            self._release(client)

    async def _run_in_thread(self, work: Callable[[], WorkResult]) -> WorkResult:
        """Return the result of the work. A cancellation waits for its end, if it has started, and is then raised."""
        started = self._pool.submit(work)
        waiting = asyncio.wrap_future(started)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            if not started.cancel():
                await asyncio.wait({waiting})
                if not waiting.cancelled():
                    waiting.exception()  # it is of no interest any more
            raise

    async def _acquire(self, client: str) -> None:
        """Wait for a thread that this client may use, and count it as used, unless the wait is cancelled.

        Check and count share no `await`, so no lock is needed.
        """
        if self._may_start(client):
            self._start(client)
            return
        turn = asyncio.get_running_loop().create_future()
        now = self._clock()
        if client not in self.waiting:
            self.waiting[client] = _ClientQueue(deque(), now, now)
        self.waiting[client].turns.append((turn, now))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(client)  # the thread was given to this call in the same moment
            elif (queue := self.waiting.get(client)) is not None:
                queue.drop_cancelled()
                if not queue.turns:
                    del self.waiting[client]
            raise

    def _may_start(self, client: str) -> bool:
        return self._free > 0 and self._has_share(client)

    def _has_share(self, client: str) -> bool:
        """Return whether a client has fewer threads than it may have."""
        return self._running[client] < self._max_of_client

    def _start(self, client: str) -> None:
        self._free -= 1
        self._running[client] += 1

    def _release(self, client: str) -> None:
        """Give the client's thread to the next client in turn; clients with more work go to the end of the queue.

        It stays free if all waiting clients have their share. These are few, because they fill the threads.
        """
        self._free += 1
        self._running[client] -= 1
        if not self._running[client]:
            del self._running[client]
        while (waiting := next(filter(self._may_start, self.waiting), None)) is not None:
            queue, now = self.waiting.pop(waiting), self._clock()
            turn, since = queue.turns.popleft()
            queue.drop_cancelled()
            if now - since <= self._max_wait():
                queue.calm_at = now
            if queue.turns:
                queue.queued_at = now
                self.waiting[waiting] = queue
            if not turn.cancelled():
                self._start(waiting)
                turn.set_result(None)


class ClientOffload(Struct, eq=False):
    """The threads for large work, as one client uses them.

    `refuse` raises the error for a request that would wait too long for its first thread; without it, every call waits.
    It is removed when the request is sent to an upstream, which may charge for its answer.
    """

    _offload: Offload
    _client: str
    refuse: Callable[[], NoReturn] | None = None

    async def run(
        self,
        size: int,
        function: Callable[WorkParameters, WorkResult],
        *args: WorkParameters.args,
        **options: WorkParameters.kwargs,
    ) -> WorkResult:
        """Call a function, in a thread if `size` is large. Call `refuse` instead if the first thread would be late."""
        if size <= LARGE:
            return function(*args, **options)
        if self.refuse is not None:
            if self._offload.is_late(self._client, size):
                self.refuse()
            self.refuse = None
        return await self._offload.run(self._client, size, function, *args, **options)
