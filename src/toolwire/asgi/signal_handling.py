"""Signals of a server's process, handled on its event loop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class SignalHandling(Protocol):
    """Installs the handlers of signals inside a block, as `handle_signals` does."""

    def __call__(
        self, handlers: Mapping[signal.Signals, Callable[[], None]], /, *, ignore_afterwards: bool = False
    ) -> AbstractContextManager[None]: ...


@contextmanager
def handle_signals(
    handlers: Mapping[signal.Signals, Callable[[], None]], *, ignore_afterwards: bool = False
) -> Iterator[None]:
    """Handle signals on the event loop inside the block, and as before afterwards.

    `ignore_afterwards`: the process ends after the block, and a repeated signal must not interrupt its last steps.
    """
    loop = asyncio.get_running_loop()
    previous = {number: signal.getsignal(number) for number in handlers}
    for number, handler in handlers.items():
        try:
            loop.add_signal_handler(number, handler)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_, handler=handler: loop.call_soon_threadsafe(handler))
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN if ignore_afterwards else previous[number] or signal.SIG_DFL)
