"""A bounded pool of threads that nobody has to wait for: a tool that never returns does not keep the program alive."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

__all__ = ["Threads"]

_Work = tuple["Future[Any]", Callable[[], Any]]


class Threads:
    """Like the standard executor, but its threads are daemons and a call that has not begun can be taken back."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = threading.Semaphore(0)
        self._closed = False

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self._queue.put((future, work))
        with self._lock:
            if not self._idle.acquire(blocking=False) and self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._run, name=f"toolwire_{self._threads}", daemon=True).start()
        return future

    def close(self) -> None:
        """What has begun goes on; nothing new begins."""
        self._closed = True
        for _ in range(self._threads):
            self._queue.put(None)

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            if item is None:
                return
            future, work = item
            if not self._closed and future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:  # noqa: BLE001  # whoever asked for it gets it
                    future.set_exception(error)
            del item, future, work
            self._idle.release()
