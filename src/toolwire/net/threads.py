"""A bounded pool of daemon threads: a tool that never returns does not keep the program alive."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any
from weakref import WeakSet

from ..run.failures import NotExecuted

__all__ = ["ThreadPool"]

_Work = tuple["Future[Any]", Callable[[], Any]]


_open_pools: WeakSet[ThreadPool] = WeakSet()
_JOIN_TIMEOUT = 0.5


@atexit.register
def _join_all() -> None:
    """End idle threads first, because an interpreter that exits under an idle daemon thread may crash."""
    for pool in list(_open_pools):
        pool.join_idle(_JOIN_TIMEOUT)


class ThreadPool:
    """Like the standard executor, but its threads are daemons and a call that has not begun can be cancelled."""

    def __init__(self, max_threads: int) -> None:
        self._max_threads = max_threads
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)  # counts idle threads
        self._closed = threading.Event()
        _open_pools.add(self)

    def __del__(self) -> None:
        self.close()

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        """Return a future; it can be cancelled until its work begins. After `close` it fails with NotExecuted."""
        future: Future[Any] = Future()
        with self._lock:
            if self._closed.is_set():
                future.set_exception(_closed_error())
                return future
            self._queue.put((future, work))
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._max_threads:
                name, tools = f"toolwire_{len(self._threads)}", (self._queue, self._idle, self._closed)
                thread = threading.Thread(target=_run_worker, args=tools, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
        return future

    def close(self) -> None:
        """Start no more work; work that has begun continues."""
        with self._lock:
            self._closed.set()
            for _ in self._threads:
                self._queue.put(None)

    def join_idle(self, timeout: float) -> None:
        """End the idle threads; abandon the others."""
        self.close()
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))


def _closed_error() -> NotExecuted:
    return NotExecuted("the thread pool is closed")


def _run_worker(queue: SimpleQueue[_Work | None], idle: threading.Semaphore, closed: threading.Event) -> None:
    """Run one thread. It has no reference to its pool, so that an unreferenced pool can be collected and end it."""
    while True:
        item = queue.get()
        if item is None:
            return
        future, work = item
        if future.set_running_or_notify_cancel():
            try:
                if closed.is_set():
                    raise _closed_error()
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001  # the waiting caller receives it
                future.set_exception(error)
        del item, future, work
        idle.release()
