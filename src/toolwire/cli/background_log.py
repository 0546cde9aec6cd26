"""Write log records in a thread, so that a server does not stop when its standard error is not read.

A parent process that starts a server with a pipe and does not read it would otherwise block the event loop as soon as the
pipe is full. Records beyond the limit of the queue are dropped, and their number is logged when there is room again.

Separate because it knows nothing about MCP.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import queue
import threading
import time

__all__ = ["BackgroundHandler"]

_MAX_WAITING = 10_000
_EXIT_TIMEOUT = 1.0  # seconds to write the last records at exit


class BackgroundHandler(logging.Handler):
    """Passes records to `target` in a daemon thread."""

    def __init__(self, target: logging.Handler, max_waiting: int = _MAX_WAITING) -> None:
        super().__init__()
        self._target = target
        self._queue: queue.Queue[logging.LogRecord | None] = queue.Queue(max_waiting)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="toolwire-log", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._dropped:
                self._queue.put_nowait(_drop_record(self._dropped))
                self._dropped = 0
            self._queue.put_nowait(record)
        except queue.Full:
            self._dropped += 1

    def _write(self) -> None:
        while (record := self._queue.get()) is not None:
            self._target.handle(record)

    def close(self) -> None:
        """Write the waiting records, as far as they are read within a second."""
        atexit.unregister(self.close)
        end = time.monotonic() + _EXIT_TIMEOUT
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=_EXIT_TIMEOUT)
            self._thread.join(max(0.0, end - time.monotonic()))
        super().close()


def _drop_record(count: int) -> logging.LogRecord:
    text = "%d log records were dropped: standard error is not read fast enough"
    return logging.LogRecord("toolwire.mcp", logging.WARNING, __file__, 0, text, (count,), None)
