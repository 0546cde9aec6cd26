"""Call async code from synchronous code: in a script, a notebook, or any thread.

All blocking calls of a process share one event loop in a background thread. Connections therefore stay open between
calls, and a call also works while the calling thread runs an event loop of its own, as in a notebook.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator
from concurrent.futures import Future
from contextlib import aclosing
from contextvars import Context, copy_context
from queue import SimpleQueue
from typing import Any, TypeVar

from ..ir.errors import ConfigError

__all__ = ["iterate_blocking", "run_blocking"]

T = TypeVar("T")

_MAX_AHEAD = 64  # items that a stream may produce before the caller has taken them
_JOIN_TIMEOUT = 0.5
_END = object()


class _BackgroundLoop:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[Any]] = set()  # the loop itself has only weak references
        self.thread = threading.Thread(target=self.loop.run_forever, name="toolwire-blocking", daemon=True)
        self.thread.start()

    def submit(self, work: Coroutine[Any, Any, T], context: Context) -> tuple[Future[T], list[asyncio.Task[T]]]:
        """Start `work` as a task with the context variables of the caller."""
        outcome: Future[T] = Future()
        started: list[asyncio.Task[T]] = []

        def start() -> None:
            task = self.loop.create_task(work, context=context)
            started.append(task)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda done: _copy_outcome(done, outcome))

        self.loop.call_soon_threadsafe(start)
        return outcome, started

    def stop(self) -> None:
        """Stop the loop. It is closed unless one of its callbacks still runs."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(_JOIN_TIMEOUT)
        if not self.thread.is_alive():
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()


_lock = threading.Lock()
_loops: list[_BackgroundLoop] = []


def _forget_loop() -> None:
    """Forget the loop in a forked process, and the lock, which another thread may have held."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()
    _loops.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_loop)


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and return its result. An interrupt (Ctrl-C) cancels it, and is raised once it has ended."""
    try:
        background = _background_loop()
    except ConfigError:
        work.close()
        raise
    outcome, started = background.submit(work, copy_context())
    try:
        return outcome.result()
    except KeyboardInterrupt:
        background.loop.call_soon_threadsafe(lambda: [task.cancel() for task in started])
        outcome.exception()  # waits: writes that have begun are recorded
        raise


def iterate_blocking(stream: AsyncGenerator[T, None]) -> Generator[T]:
    """Iterate over an async generator. Leaving the loop closes the generator."""
    background = _background_loop()
    items: SimpleQueue[Any] = SimpleQueue()
    permits = threading.Semaphore(_MAX_AHEAD)
    taken = asyncio.Event()

    async def produce() -> None:
        try:
            async with aclosing(stream) as values:
                async for value in values:
                    while not permits.acquire(blocking=False):
                        taken.clear()
                        await taken.wait()
                    items.put(value)
        finally:
            items.put(_END)

    outcome, started = background.submit(produce(), copy_context())
    try:
        while (item := items.get()) is not _END:
            permits.release()
            background.loop.call_soon_threadsafe(taken.set)
            yield item
        outcome.result()
    finally:
        background.loop.call_soon_threadsafe(lambda: [task.cancel() for task in started])
        if threading.current_thread() is not background.thread:  # it is if the garbage collector closes the iterator
            outcome.exception()


def _background_loop() -> _BackgroundLoop:
    """Return the loop of this process; it is started on first use."""
    with _lock:
        if not _loops:
            _loops.append(_BackgroundLoop())
        background = _loops[-1]
    if threading.current_thread() is background.thread:
        raise ConfigError(
            "a blocking call inside an async function that runs on the loop of another blocking call",
            hint="await the async method instead, such as `await agent.run(…)`",
        )
    return background


@atexit.register
def _stop_loop() -> None:
    for background in _loops:
        background.stop()


def _copy_outcome(done: asyncio.Task[T], outcome: Future[T]) -> None:
    if done.cancelled():
        outcome.set_exception(asyncio.CancelledError())
    elif (error := done.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(done.result())
