"""An event loop with its own clock, so that tests of timeouts neither wait nor depend on the speed of the machine.

The clock stands still while anything is ready to run. When nothing is, it jumps to the next timer. Sockets whose two
ends are in the loop work, because their data is ready as soon as it is written. Other threads and processes do not
share the clock: use the loop only where none takes part, or through `run_in_executor` or a `ThreadPool`, which hold the
clock until their work is done.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from toolwire.net import threads

_SETTLING = 0.005  # real seconds for data that the kernel has not delivered to the other end of a socket yet


class _Selector(selectors.DefaultSelector):
    """A selector that advances the clock of its loop instead of waiting."""

    loop: VirtualTimeLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None or timeout <= 0 or self.loop.waits_for_threads:
            return super().select(timeout if timeout is None or timeout <= 0 else _SETTLING)
        found = super().select(_SETTLING)
        if not found:
            self.loop.advance(timeout)
        return found


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        selector = _Selector()
        selector.loop = self
        self._now = 1_000_000.0
        self._pending_jobs = 0
        self._other_pools = _busy_pools()  # a thread of an earlier test may hang
        super().__init__(selector)

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds

    @property
    def waits_for_threads(self) -> bool:
        return self._pending_jobs > 0 or not _busy_pools() <= self._other_pools

    def run_in_executor(self, executor: Any, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        future = super().run_in_executor(executor, function, *args)
        self._pending_jobs += 1
        future.add_done_callback(self._job_done)
        return future

    def _job_done(self, _: object) -> None:
        self._pending_jobs -= 1


def _busy_pools() -> set[threads.ThreadPool]:
    return {pool for pool in list(threads._open_pools) if pool._workers._busy}


def run_virtual(work: Coroutine[Any, Any, Any]) -> Any:
    """Like `asyncio.run`, on a clock of its own."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., None]:
    """Run an async test on a clock of its own."""

    @wraps(test)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        run_virtual(test(*args, **kwargs))

    return wrapper
