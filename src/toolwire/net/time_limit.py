"""Time limits of coroutines, in the current task."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Generator
from typing import Any, TypeAlias

from ..run.calls.context import CallContext, running
from ..run.calls.steps import Failed, Returned, TimedOut

LimitedOutcome: TypeAlias = Returned | Failed | TimedOut

_GRACE = 2.0  # seconds to clean up after a cancellation, such as closing a connection; then the coroutine is abandoned
_log = logging.getLogger("toolwire.net")


def run_limited(
    coroutine: Coroutine[Any, Any, Any], context: CallContext[Any], limit: float | None
) -> LimitedOutcome | TimeLimitedCall:
    """Run a coroutine to its first suspension. Return its outcome if it is done by then, which needs no timer.

    Otherwise return an awaitable for the rest. Meanwhile `context` is the running call.
    """
    started_at = time.monotonic()
    token = running.set(context)
    try:
        pending = coroutine.send(None)
    except StopIteration as done:
        running.reset(token)
        return Returned(done.value)
    except BaseException as error:  # noqa: BLE001
        running.reset(token)
        return _outcome_of_error(error)
    outer_context = None if token.old_value is token.MISSING else token.old_value
    remaining = None if limit is None else limit - (time.monotonic() - started_at)
    return TimeLimitedCall(coroutine, pending, limit, remaining, context, outer_context)


class TimeLimitedCall:
    """Awaits a coroutine that has begun, in the current task, up to a limit.

    At the limit the coroutine is cancelled and has a grace period to clean up. A coroutine that ignores the
    cancellation is abandoned. Therefore a call needs no task of its own, and cannot block the caller.
    """

    __slots__ = (
        "_cancelled",
        "_context",
        "_coroutine",
        "_limit",
        "_loop",
        "_outer_context",
        "_pending",
        "_task",
        "_timer",
    )

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        pending: Any,
        limit: float | None,
        remaining: float | None,
        context: CallContext[Any],
        outer_context: CallContext[Any] | None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._coroutine = coroutine
        self._pending = pending  # the object that the coroutine awaits
        self._limit = limit
        self._context = context
        self._outer_context = outer_context
        self._task = _current_task(self._loop)
        self._cancelled = 0  # how often we cancelled the task
        # for the rest of the limit, then for the grace period
        self._timer = None if remaining is None else self._loop.call_later(remaining, self._expire)

    def _expire(self) -> None:
        # Counted, so that `_clean_up` removes exactly these: a cancellation by the caller must stay (`Task.uncancel`).
        self._cancelled += 1
        self._task.cancel()
        self._timer = self._loop.call_later(_GRACE, self._expire)

    def __await__(self) -> Generator[Any, None, LimitedOutcome]:
        """Drive the coroutine to its outcome: yield each object that it awaits, and send or throw the result into it.

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
                    self._pending = self._coroutine.send(None) if raised is None else self._coroutine.throw(raised)
                except StopIteration as done:
                    return Returned(done.value)
                except BaseException as error:  # noqa: BLE001
                    return _outcome_of_error(error, self._limit, self._cancelled)
        finally:
            self._clean_up()

    def _abandon(self) -> TimedOut:
        try:
            self._coroutine.close()
        except BaseException:  # noqa: BLE001  # even closing the coroutine failed
            _log.warning("a tool ignored its cancellation")
        return TimedOut(self._limit or 0)

    def _clean_up(self) -> None:
        """Restore the context, stop the timer, and remove our own cancellations from the task."""
        running.set(self._outer_context)
        if self._timer is not None:
            self._timer.cancel()
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
