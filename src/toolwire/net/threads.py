"""A bounded pool of threads that nobody has to wait for: a tool that never returns does not keep the program alive."""

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

__all__ = ["Threads"]

_Work = tuple["Future[Any]", Callable[[], Any]]


_open: WeakSet[Threads] = WeakSet()
_PATIENCE = 0.5


@atexit.register
def _leave_all() -> None:
    """An interpreter that ends under an idle daemon thread may crash; so they end first."""
    for threads in list(_open):
        threads.leave(_PATIENCE)


class Threads:
    """Like the standard executor, but its threads are daemons and a call that has not begun can be taken back."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)
        self._closed = threading.Event()
        _open.add(self)

    def __del__(self) -> None:
        self.close()

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        """A future whose work may still be taken back. NotExecuted is what comes of it once the pool is closed."""
        future: Future[Any] = Future()
        with self._lock:
            if self._closed.is_set():
                future.set_exception(_closed())
                return future
            self._queue.put((future, work))
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
                name, tools = f"toolwire_{len(self._threads)}", (self._queue, self._idle, self._closed)
                thread = threading.Thread(target=_work, args=tools, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
        return future

    def close(self) -> None:
        """What has begun goes on; nothing new begins."""
        with self._lock:
            self._closed.set()
            for _ in self._threads:
                self._queue.put(None)

    def leave(self, patience: float) -> None:
        """Ends the threads that have nothing to do; the others are left behind."""
        self.close()
        until = time.monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))


def _closed() -> NotExecuted:
    return NotExecuted("its threads are closed")


def _work(queue: SimpleQueue[_Work | None], idle: threading.Semaphore, closed: threading.Event) -> None:
    """One thread. It does not know its pool, so that a pool that nobody uses any more can end it."""
    while True:
        item = queue.get()
        if item is None:
            return
        future, work = item
        if future.set_running_or_notify_cancel():
            try:
                if closed.is_set():
                    raise _closed()
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001  # whoever asked for it gets it
                future.set_exception(error)
        del item, future, work
        idle.release()
