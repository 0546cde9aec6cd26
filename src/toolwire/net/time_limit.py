"""Time limits of coroutines and callbacks: deadlines with a shared timer, and a timeout in the current task."""

from __future__ import annotations

import asyncio
import logging
import time
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeAlias

from ..run.calls.context import CallContext, running
from ..run.calls.steps import Failed, Returned, TimedOut

# Time limits with one timer per limit. A timer per call would cost more than most calls do.


class DeadlineHandle:
    """A callback that is called at its deadline, unless it is cancelled before."""

    __slots__ = ("_deadlines", "expire")

    def __init__(self, deadlines: DeadlineQueue, expire: Callable[[], object]) -> None:
        self._deadlines = deadlines
        self.expire = expire

    def cancel(self) -> None:
        self._deadlines.remove(self)


class DeadlineQueue:
    """The deadlines of one event loop and one limit: they expire in the order in which they were added."""

    __slots__ = ("_armed", "_pending", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._pending: dict[DeadlineHandle, float] = {}  # deadlines, in the order of their times
        self._armed = False

    def add(self, expire: Callable[[], object], at: float) -> DeadlineHandle:
        """Call `expire` at this time of the loop."""
        handle = DeadlineHandle(self, expire)
        self._pending[handle] = at
        if not self._armed:
            self._arm(at)
        return handle

    def remove(self, handle: DeadlineHandle) -> None:
        self._pending.pop(handle, None)

    def _arm(self, at: float) -> None:
        self._armed = True
        self.loop.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        """Call the expired callbacks, and set the timer for the next deadline.

        They are in order, so the first later one ends the search.
        """
        self._armed = False
        now = self.loop.time()
        for handle, at in list(self._pending.items()):
            if at > now:
                self._arm(at)
                return
            del self._pending[handle]
            handle.expire()


class SharedTimers:
    """A `call_later` for a small set of recurring delays."""

    __slots__ = ("_by_limit",)

    def __init__(self) -> None:
        self._by_limit: dict[float, DeadlineQueue] = {}

    def queue_for(self, limit: float, loop: asyncio.AbstractEventLoop) -> DeadlineQueue:
        queue = self._by_limit.get(limit)
        if queue is None or queue.loop is not loop:
            queue = self._by_limit[limit] = DeadlineQueue(loop)
        return queue

    def call_later(self, seconds: float, expire: Callable[[], object]) -> DeadlineHandle:
        loop = asyncio.get_running_loop()
        return self.queue_for(seconds, loop).add(expire, loop.time() + seconds)


LimitedOutcome: TypeAlias = Returned | Failed | TimedOut

_GRACE = 2.0  # seconds to clean up after a cancellation, such as closing a connection; then the coroutine is abandoned
_log = logging.getLogger("toolwire.net")


_Driver: TypeAlias = Generator[Any, Any, None]


@types.coroutine
def _drive_coroutines() -> _Driver:
    """Run one coroutine after the other. Send a coroutine; receive the objects that it awaits, then `Returned`.

    `coroutine.send` raises StopIteration at the end, which costs more than the rest of a short call. `yield from` does
    not.
    """
    coroutine = yield
    while True:
        coroutine = yield Returned((yield from coroutine))


class TimeLimiter:
    """Runs coroutines with timeouts; equal timeouts share a timer."""

    def __init__(self) -> None:
        self._timers = SharedTimers()
        self._drivers: list[_Driver] = []  # idle ones

    def run(
        self, coroutine: Coroutine[Any, Any, Any], context: CallContext[Any], limit: float | None
    ) -> LimitedOutcome | TimeLimitedCall:
        """Run a coroutine to its first suspension. One that never suspends is done by then and needs no timer."""
        started_at = time.monotonic()
        try:
            driver = self._drivers.pop()
        except IndexError:
            driver = _drive_coroutines()
            driver.send(None)
        token = running.set(context)
        try:
            pending = driver.send(coroutine)
        except BaseException as error:  # noqa: BLE001
            running.reset(token)
            return _outcome_of_error(error)
        if type(pending) is Returned:
            running.reset(token)
            self._drivers.append(driver)
            return pending
        outer_context = None if token.old_value is token.MISSING else token.old_value
        work = TimeLimitedCall(driver, pending, limit, context, outer_context)
        if limit is not None:
            work.watch(self._timers.queue_for(limit, work.loop), time.monotonic() - started_at)
        return work


class TimeLimitedCall:
    """Awaits a coroutine that has begun, in the current task, up to a limit.

    At the limit the coroutine is cancelled and has a grace period to clean up. A coroutine that ignores the
    cancellation is abandoned. Therefore a call needs no task of its own, and cannot block the caller.
    """

    __slots__ = (
        "_cancelled",
        "_context",
        "_deadline_handle",
        "_driver",
        "_grace",
        "_limit",
        "_outer_context",
        "_pending",
        "_task",
        "loop",
    )

    def __init__(
        self,
        driver: _Driver,
        pending: Any,
        limit: float | None,
        context: CallContext[Any],
        outer_context: CallContext[Any] | None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._driver = driver
        self._pending = pending  # the object that the coroutine awaits
        self._limit = limit
        self._context = context
        self._outer_context = outer_context
        self._task = _current_task(self.loop)
        self._deadline_handle: DeadlineHandle | None = None
        self._grace: asyncio.TimerHandle | None = None  # the timer of the grace period
        self._cancelled = 0  # how often we cancelled the task

    def watch(self, deadlines: DeadlineQueue, elapsed: float) -> None:
        """Start the timer; `elapsed` seconds of the limit have already passed."""
        assert self._limit is not None
        self._deadline_handle = deadlines.add(self.expire, self.loop.time() + self._limit - elapsed)

    def expire(self) -> None:
        # Counted, so that `_clean_up` removes exactly these: a cancellation by the caller must stay (`Task.uncancel`).
        self._cancelled += 1
        self._task.cancel()
        self._grace = self.loop.call_later(_GRACE, self.expire)

    def __await__(self) -> Generator[Any, None, LimitedOutcome]:
        """Drive the coroutine: yield each object that it awaits, and send or throw the outcome into it.

        If the grace period expires too (`_cancelled` exceeds 1), the coroutine is abandoned.
        """
        try:
            while True:
                try:
                    yield self._pending
                    raised = None
                except BaseException as error:  # noqa: BLE001  # the awaited object failed, or this task was cancelled
                    raised = error
                    if isinstance(error, asyncio.CancelledError):
                        self._context.cancelled = True
                if self._cancelled > 1 and isinstance(raised, asyncio.CancelledError):
                    return self._abandon()
                try:
                    self._pending = self._driver.send(None) if raised is None else self._driver.throw(raised)
                except BaseException as error:  # noqa: BLE001
                    return _outcome_of_error(error, self._limit, self._cancelled)
                if type(self._pending) is Returned:
                    return self._pending
        finally:
            self._clean_up()

    def _abandon(self) -> TimedOut:
        try:
            self._driver.close()
        except BaseException:  # noqa: BLE001  # even closing the coroutine failed
            _log.warning("a tool ignored its cancellation")
        return TimedOut(self._limit or 0)

    def _clean_up(self) -> None:
        """Restore the context, stop the timers, and remove our own cancellations from the task."""
        running.set(self._outer_context)
        if self._deadline_handle is not None:
            self._deadline_handle.cancel()
        if self._grace is not None:
            self._grace.cancel()
        for _ in range(self._cancelled):
            self._task.uncancel()


def _outcome_of_error(error: BaseException, limit: float | None = None, cancelled: int = 0) -> LimitedOutcome:
    """Return the outcome of a coroutine that raised. Re-raise only the cancellation of the current task."""
    if isinstance(error, asyncio.CancelledError):
        if _current_task(asyncio.get_running_loop()).cancelling() > cancelled:
            raise error
        if cancelled:
            return TimedOut(limit or 0, stopped=True)
    return Failed(error)


def _current_task(loop: asyncio.AbstractEventLoop) -> asyncio.Task[Any]:
    task = asyncio.current_task(loop)
    assert task is not None
    return task
