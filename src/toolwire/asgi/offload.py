"""Run large work in threads, so that the event loop serves other clients meanwhile.

    offload = Offload()
    document = await offload.run("alice", len(body), parse_object, body)

Small work runs at once, because it takes less time than a switch of threads. The interpreter lets the threads alternate
with the event loop. They are few, because each of them delays the loop by one switch interval.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

from msgspec import Struct

from ..net.threads import ThreadPool

__all__ = ["LARGE", "ClientOffload", "Offload"]

LARGE = 32 * 1024
"""Bytes; the work for a larger document leaves the event loop."""
_THREADS = 4

WorkParameters = ParamSpec("WorkParameters")
WorkResult = TypeVar("WorkResult")


class Offload:
    """A few threads for large work.

    Clients take turns: one with many requests does not delay those of another. One client has at most half of the
    threads, so that work which takes long leaves threads for others.
    """

    def __init__(self, threads: int = _THREADS) -> None:
        self._pool = ThreadPool(threads)
        self._free = threads
        self._max_of_client = max(1, threads // 2)
        self._running: Counter[str] = Counter()  # threads in use, by client
        # by client, the next one first, with the times at which they began to wait
        self._waiting: OrderedDict[str, deque[tuple[asyncio.Future[None], float]]] = OrderedDict()

    def oldest_wait(self) -> float:
        """Return the seconds that the oldest call has waited; 0 if a thread is free, as for a client with its full share."""
        if self._free or not self._waiting:
            return 0.0
        return time.monotonic() - min([turns[0][1] for turns in self._waiting.values()])

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
        try:
            return await self._run_in_thread(partial(copy_context().run, function, *args, **options))
        finally:
            self._release(client)

    async def _run_in_thread(self, work: Callable[[], WorkResult]) -> WorkResult:
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
        """Wait for a thread that this client may use. Check and count share no `await`, so no lock is needed."""
        if self._may_start(client):
            self._start(client)
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append((turn, time.monotonic()))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(client)  # the thread was given to this call in the same moment
            raise

    def _may_start(self, client: str) -> bool:
        return self._free > 0 and self._running[client] < self._max_of_client

    def _start(self, client: str) -> None:
        self._free -= 1
        self._running[client] += 1

    def _release(self, client: str) -> None:
        """Give the thread to the next client in turn; clients with more work go to the end of the queue.

        It stays free if all waiting clients have their share. These are few, because they fill the threads.
        """
        self._free += 1
        self._running[client] -= 1
        if not self._running[client]:
            del self._running[client]
        while (waiting := next(filter(self._may_start, self._waiting), None)) is not None:
            turns = self._waiting.pop(waiting)
            turn, _ = turns.popleft()
            if turns:
                self._waiting[waiting] = turns
            if not turn.cancelled():
                self._start(waiting)
                turn.set_result(None)


class ClientOffload(Struct, eq=False):
    """The threads for large work, as one client uses them."""

    _offload: Offload
    _client: str

    async def run(
        self,
        size: int,
        function: Callable[WorkParameters, WorkResult],
        *args: WorkParameters.args,
        **options: WorkParameters.kwargs,
    ) -> WorkResult:
        """Call a function, in a thread if `size` is large."""
        if size <= LARGE:
            return function(*args, **options)
        return await self._offload.run(self._client, size, function, *args, **options)
