"""The log of a server: written in a thread, and never a reason for the server to wait."""

import logging
import threading

from toolwire.cli.background_log import BackgroundHandler
from waiting import SAFETY


class _Blocked(logging.Handler):
    """A handler that waits until it may write, like a full pipe."""

    def __init__(self):
        super().__init__()
        self.may_write = threading.Event()
        self.written = []

    def emit(self, record):
        assert self.may_write.wait(SAFETY)
        self.written.append(record.getMessage())


def record(number):
    return logging.LogRecord("toolwire.mcp", logging.INFO, "x.py", 1, "record %d", (number,), None)


def test_full_log_drops_records_and_reports_their_number():
    target = _Blocked()
    handler = BackgroundHandler(target, max_waiting=5)
    for number in range(100):
        handler.handle(record(number))
    target.may_write.set()
    while handler._queue.qsize():
        threading.Event().wait(0.01)
    handler.handle(record(100))
    handler.close()
    assert target.written[0] == "record 0"
    assert target.written[-1] == "record 100"
    assert target.written[-2] in {
        f"{100 - kept} log records were dropped: standard error is not read fast enough" for kept in (5, 6)
    }
