"""Threads between synchronous and asynchronous code, in both directions.

Async code calls blocking functions in a bounded pool of daemon threads. Synchronous code calls async functions on a
background event loop.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import os
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import aclosing
from contextvars import Context, copy_context
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar
from weakref import WeakSet

from ..ir.errors import ConfigError
from ..run.calls.context import NotExecuted

# A bounded pool of daemon threads: a tool that never returns does not keep the program alive, or all threads busy.
#
# Work with a share (the name of its tool) may take a thread only while more threads are free than the share occupies.
# So a tool whose calls are stuck occupies at most half of the threads, a second such tool half of the rest, and so
# on.


class _Work(NamedTuple):
    future: Future[Any]
    function: Callable[[], Any]
    share: str | None


_open_pools: WeakSet[ThreadPool] = WeakSet()
# Seconds; an idle thread ends within milliseconds, and a busy one must not delay the exit of the program.
_JOIN_TIMEOUT = 0.5


@atexit.register
def _join_all() -> None:
    """End idle threads first, because an interpreter that exits under an idle daemon thread may crash."""
    for pool in list(_open_pools):
        pool.join_idle(_JOIN_TIMEOUT)


def _replace_workers() -> None:
    """Give every pool new threads in a forked process: threads do not survive a fork."""
    for pool in list(_open_pools):
        pool.start_again()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replace_workers)


class ThreadPool:
    """Like the standard executor, but its threads are daemons and a call that has not begun can be cancelled."""

    def __init__(self, max_threads: int) -> None:
        self._max_threads = max_threads
        self._workers = _Workers(max_threads)
        _open_pools.add(self)

    def start_again(self) -> None:
        """Use new threads and drop all work. Work of the process before a fork is done there."""
        self._workers = _Workers(self._max_threads)

    def __del__(self) -> None:
        self.close()

    def submit(self, work: Callable[[], Any], *, share: str | None = None) -> Future[Any]:
        """Return a future; it can be cancelled until its work begins. After `close` it fails with NotExecuted.

        Work of one `share` waits while the share occupies as many threads as are free; None: no such limit.
        """
        future: Future[Any] = Future()
        self._workers.add(_Work(future, work, share))
        return future

    def close(self) -> None:
        """Start no more work; work that has begun continues."""
        self._workers.close()

    def join_idle(self, timeout: float) -> None:
        """End the idle threads; abandon the others."""
        self.close()
        deadline = time.monotonic() + timeout
        for thread in self._workers.threads:
            thread.join(max(0.0, deadline - time.monotonic()))


async def call_in_thread(
    pool: ThreadPool, function: Callable[..., Any], *arguments: Any, share: str | None = None
) -> Any:
    """Call a plain function of the user in a thread, in a copy of the context, and await an awaitable that it returns.

    On cancellation, a call without a thread is dropped; one that has begun continues in its thread, without effect on
    the caller. An exception that would end the event loop, such as SystemExit, is raised as RuntimeError.
    """
    context = copy_context()

    def call() -> tuple[Any, BaseException | None]:
        try:
            return context.run(function, *arguments), None
        except BaseException as error:  # noqa: BLE001  # passed as a value: a future does not take every exception
            return None, error

    value, error = await asyncio.wrap_future(pool.submit(call, share=share))
    if error is None:
        return await value if inspect.isawaitable(value) else value
    if isinstance(error, Exception):
        raise error
    raise RuntimeError(f"{type(error).__name__}: {error}") from error


class _Workers:
    """The threads of a pool and their work.

    The threads refer to this object and not to the pool, so that an unreferenced pool can be collected and closes it.
    The lock is reentrant, because that may happen in one of the threads, while it holds the lock.
    """

    def __init__(self, max_threads: int) -> None:
        self.threads: list[threading.Thread] = []
        self._max_threads = max_threads
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()  # work that has a thread
        self._waiting: dict[str | None, deque[_Work]] = {}  # by share
        self._usage: Counter[str | None] = Counter()  # threads by share
        self._busy = 0
        self._lock = threading.RLock()
        self._closed = False

    def add(self, work: _Work) -> None:
        """Start work if its share may, else let it wait. After `close`, its future fails with NotExecuted."""
        with self._lock:
            if not self._closed:
                waiting = self._waiting.get(work.share)
                if waiting is None and self._may_start(work.share):
                    self._start(work)
                else:
                    self._enqueue(work)
                return
        work.future.set_exception(_closed_error())

    def close(self) -> None:
        """End the threads after their current work. The futures of waiting work fail with NotExecuted."""
        with self._lock:
            self._closed = True
            abandoned = [work for waiting in self._waiting.values() for work in waiting]
            self._waiting.clear()
            for _ in self.threads:
                self._queue.put(None)
        for work in abandoned:
            if work.future.set_running_or_notify_cancel():
                work.future.set_exception(_closed_error())

    def run(self) -> None:
        """Do the work of the queue until None: this is the body of a thread. Errors are set in the futures."""
        while (work := self._queue.get()) is not None:
            share = work.share
            if work.future.set_running_or_notify_cancel():
                try:
                    if self._closed:
                        raise _closed_error()
                    work.future.set_result(work.function())
                except BaseException as error:  # noqa: BLE001  # the waiting caller receives it
                    work.future.set_exception(error)
            del work
            self._release(share)

    def _may_start(self, share: str | None) -> bool:
        free = self._max_threads - self._busy
        return free > 0 if share is None else self._usage[share] < free

    def _start(self, work: _Work) -> None:
        """Pass work to an idle thread, or to a new one."""
        self._busy += 1
        self._usage[work.share] += 1
        self._queue.put(work)
        if len(self.threads) < self._busy:
            thread = threading.Thread(target=self.run, name=f"toolwire_{len(self.threads)}", daemon=True)
            self.threads.append(thread)
            thread.start()

    def _enqueue(self, work: _Work) -> None:
        """Let work wait. Work that was cancelled meanwhile is removed, because a stuck share may never free a thread."""
        waiting = self._waiting.setdefault(work.share, deque())
        while waiting and waiting[0].future.cancelled():
            waiting.popleft()
        waiting.append(work)

    def _release(self, share: str | None) -> None:
        """Free a thread, and start the work that may start now, of each share in turn."""
        with self._lock:
            self._busy -= 1
            self._usage[share] -= 1
            if not self._usage[share]:
                del self._usage[share]
            for waiting_share in list(self._waiting):
                if not self._may_start(waiting_share):
                    continue
                waiting = self._waiting.pop(waiting_share)
                self._start(waiting.popleft())
                if waiting:
                    self._waiting[waiting_share] = waiting  # now the last one


def _closed_error() -> NotExecuted:
    return NotExecuted("the thread pool is closed")


# Call async code from synchronous code: in a script, a notebook, or any thread.
#
# All blocking calls of a process share one event loop in a background thread. Connections therefore stay open between
# calls, and a call also works while the calling thread runs an event loop of its own, as in a notebook.


T = TypeVar("T")

_MAX_AHEAD = 64  # items that a stream may produce before the caller has taken them: about a second of a fast model
_END = object()


class _BackgroundLoop:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[Any]] = set()  # the loop itself has only weak references
        self.thread = threading.Thread(target=self.loop.run_forever, name="toolwire-blocking", daemon=True)
        self.thread.start()

    def submit(self, work: Coroutine[Any, Any, T], context: Context) -> tuple[Future[T], list[asyncio.Task[T]]]:
        """Start `work` as a task in the caller's context. Return its outcome, and a list for the task once it starts."""
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
    """Run a coroutine on the background loop and return its result.

    An interrupt (Ctrl-C) cancels it, and is raised once it has ended. Raise ConfigError if this is that loop's thread.
    """
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
    """Iterate over an async generator, which runs on the background loop up to 64 items ahead.

    Leaving the loop closes the generator. Raise ConfigError if this is the thread of the background loop.
    """
    background = _background_loop()
    items: SimpleQueue[Any] = SimpleQueue()
    permits = threading.Semaphore(_MAX_AHEAD)
    taken = asyncio.Event()

    async def produce() -> None:
        """Put the items into the queue, waiting while too many are not taken, and then the end."""
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
    """Return the loop of this process, which is started on first use. Raise ConfigError in its own thread."""
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
