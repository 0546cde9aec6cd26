"""Run large work in threads, so that the event loop serves other clients meanwhile.

    offload = Offload()
    document = await offload.run("alice", len(body), parse_object, body)

Small work runs at once, because it takes less time than a switch of threads. The interpreter lets the threads alternate
with the event loop. They are few, because each of them delays the loop by one switch interval.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

from ..net.threads import ThreadPool

__all__ = ["LARGE", "ClientOffload", "Offload"]

LARGE = 32 * 1024
"""Bytes; the work for a larger document leaves the event loop."""
_THREADS = 4

WorkParameters = ParamSpec("WorkParameters")
WorkResult = TypeVar("WorkResult")


class Offload:
    """A few threads for large work. Clients take turns: one with many requests does not delay those of another."""

    def __init__(self, threads: int = _THREADS) -> None:
        self._pool = ThreadPool(threads)
        self._free = threads
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()  # by client, next one first

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
            self._release()

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
        """Wait for a free thread. Check and decrement share no `await`, so no lock is needed."""
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release()  # the thread was given to this call in the same moment
            raise

    def _release(self) -> None:
        """Give the thread to the next client in turn; clients with more work go to the end of the queue."""
        while self._waiting:
            client, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[client] = turns
            if not turn.cancelled():
                turn.set_result(None)
                return
        self._free += 1


class ClientOffload:
    """The threads for large work, as one client uses them."""

    __slots__ = ("_client", "_offload")

    def __init__(self, offload: Offload, client: str) -> None:
        self._offload = offload
        self._client = client

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
