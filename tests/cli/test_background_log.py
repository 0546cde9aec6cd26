"""The log of a server: written in a thread, and never a reason for the server to wait."""

import logging
import threading

from toolwire.cli.mcp import http as background_log
from toolwire.cli.mcp.http import BackgroundHandler
from waiting import SAFETY


class _Blocked(logging.Handler):
    """A handler that waits until it may write, like a full pipe."""

    def __init__(self):
        super().__init__()
        self.has_record = threading.Event()
        self.may_write = threading.Event()
        self.written = []

    def emit(self, record):
        self.has_record.set()
        assert self.may_write.wait(SAFETY)
        self.written.append(record.getMessage())


def record(number):
    return logging.LogRecord("toolwire.mcp", logging.INFO, "x.py", 1, "record %d", (number,), None)


def test_full_log_drops_records_and_reports_their_number(monkeypatch):
    monkeypatch.setattr(background_log, "_EXIT_TIMEOUT", SAFETY)
    target = _Blocked()
    handler = BackgroundHandler(target, max_waiting=5)
    handler.handle(record(0))
    assert target.has_record.wait(SAFETY)
    for number in range(1, 100):
        handler.handle(record(number))
    target.may_write.set()
    while handler._queue.qsize():
        threading.Event().wait(0.01)
    handler.handle(record(100))
    handler.close()
    assert target.written == [
        *(f"record {number}" for number in range(6)),
        "94 log records were dropped: standard error is not read fast enough",
        "record 100",
    ]


def test_close_writes_a_full_queue(monkeypatch):
    monkeypatch.setattr(background_log, "_EXIT_TIMEOUT", SAFETY)
    target = _Blocked()
    handler = BackgroundHandler(target, max_waiting=2)
    handler.handle(record(0))
    assert target.has_record.wait(SAFETY)
    handler.handle(record(1))
    handler.handle(record(2))
    allow_later = threading.Timer(0.05, target.may_write.set)
    allow_later.start()
    handler.close()
    allow_later.join()
    assert target.written == ["record 0", "record 1", "record 2"]
