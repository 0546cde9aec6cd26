"""Signals of the gateway's processes, handled on the event loop. Separate because workers and their parent need it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

__all__ = ["handle_signals"]


@contextmanager
def handle_signals(
    handlers: Mapping[signal.Signals, Callable[[], None]], *, ignore_afterwards: bool = False
) -> Iterator[None]:
    """Handle signals on the event loop inside the block.

    `ignore_afterwards`: the process ends after the block, and a repeated signal must not interrupt its last steps.
    """
    loop = asyncio.get_running_loop()
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)
            if ignore_afterwards:
                signal.signal(number, signal.SIG_IGN)
