"""Stop a server of tools on a signal, within a bounded time.

first SIGINT, SIGTERM   the server stops: no new calls. The calls in progress are logged, and have 30 seconds to end.
                        Over HTTP, requests are cancelled after 3 seconds, which ends all calls but writes
a second SIGINT         the process ends at once, with exit code 130
after 30 seconds        the process ends with exit code 1

A write that has begun is not cancelled, because its record would then be wrong. If the process ends before the write,
its lease expires and its outcome is unknown, as after a kill (`toolwire.run`).
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...ir.terminal import count_of
from ...run.calls.observe import ToolOperation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

    from ...run.calls.observe import EndOperation, ObservedOperation, OperationOutcome

_log = logging.getLogger("toolwire.mcp")
_MAX_WAIT = 30.0  # seconds; as Kubernetes waits before it kills, and less than the lease of a record
_MAX_NAMED = 5  # names of tools in a log line


class CallsInFlight:
    """An observer that keeps the names of the tools that run."""

    def __init__(self) -> None:
        self._names: dict[object, str] = {}

    def start(self, operation: ObservedOperation, /) -> EndOperation | None:
        if not isinstance(operation, ToolOperation):
            return None
        number = object()
        self._names[number] = operation.call.name

        def end(_: OperationOutcome) -> None:
            del self._names[number]

        return end

    def describe(self) -> str:
        """Return the number of calls and the names of some, or "" without calls. May be called in any thread."""
        names = list(self._names.values())
        if not names:
            return ""
        return f"{count_of(len(names), 'call')} ({', '.join(sorted(set(names))[:_MAX_NAMED])})"


@contextmanager
def stop_on_signals(
    calls: CallsInFlight, stops: Mapping[signal.Signals, Callable[[], object] | None]
) -> Iterator[None]:
    """Call the function of the first of these signals in the block, and bound the time until the end of the process.

    Instead of None, the earlier handler is called, such as asyncio's of SIGINT, which cancels the main task. Outside of
    the main thread, which alone can handle signals, do nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_stopping = False

    def receive(number: int, frame: FrameType | None) -> None:
        nonlocal is_stopping
        if not is_stopping:
            is_stopping = True
            # A thread logs, because the signal may have interrupted the logging of this thread, which holds its locks.
            threading.Thread(target=_end_late, args=(calls,), name="toolwire-stop", daemon=True).start()
            earlier, stop = before[signal.Signals(number)], stops[signal.Signals(number)]
            if stop is not None:
                stop()
            elif callable(earlier):
                earlier(number, frame)
        elif number == signal.SIGINT:
            os._exit(130)

    # A process in the background of a shell script ignores SIGINT.
    before = {number: handler for number in stops if (handler := signal.getsignal(number)) is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, receive)
    try:
        yield
    finally:
        if not is_stopping:  # else a second signal still ends the process, whatever its end waits for
            for number, handler in before.items():
                signal.signal(number, handler)


def _end_late(calls: CallsInFlight) -> None:
    """End the process if it still runs after the time limit."""
    if waiting := calls.describe():
        _log.warning("stopping: waiting up to %g s for %s; a second Ctrl-C ends at once", _MAX_WAIT, waiting)
    time.sleep(_MAX_WAIT)
    _log.error("stopped without waiting any longer for %s", calls.describe() or "the end of the process")
    logging.shutdown()  # writes the waiting records, for a second at most
    os._exit(1)
