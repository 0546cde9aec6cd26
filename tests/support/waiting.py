"""Wait for a condition instead of a number of seconds, so that a busy machine makes a test slower and not wrong."""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SAFETY = 300.0
"""Seconds until a test that hangs fails. No test passes or fails by how long something takes below that."""


def wait_until(true: Callable[[], object], pause: float = 0.01) -> None:
    end = time.monotonic() + SAFETY
    while not true():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(pause)


async def until(true: Callable[[], object], pause: float = 0.01) -> None:
    """Like `wait_until`, on an event loop."""
    end = time.monotonic() + SAFETY
    while not true():
        assert time.monotonic() < end, "the condition did not become true"
        await asyncio.sleep(pause)


@contextmanager
def cpu_guard(seconds: float = SAFETY) -> Iterator[None]:
    """Fail after so much CPU time of this process, where a cost that grows too fast would take minutes.

    It also interrupts a regular expression. Count steps (tests/support/work_counter.py) where the work is Python's.
    """

    error = AssertionError(f"still busy after {seconds} seconds of CPU time")
    raised = []

    def too_long(*_: object) -> None:
        raised.append(error)
        raise error

    before = signal.signal(signal.SIGVTALRM, too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    assert not raised, "still busy at the limit, and the error was caught"
