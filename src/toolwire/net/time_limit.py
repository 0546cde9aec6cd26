"""Time limits of coroutines, in the current task.

Most calls end long before their limit. A timer of the event loop for each of them would cost more than the rest of a
short call: its heap grows with every timer, also with cancelled ones. So the limits are `Deadlines`, which share a timer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import CoroutineType
from typing import Any, TypeAlias

from ..ir.pointer import Object
from ..run.calls.context import CallContext, running
from ..run.calls.steps import ArgumentMismatch, Failed, Returned, TimedOut
from ..run.values.results import error_text
from .deadlines import Deadlines

LimitedOutcome: TypeAlias = Returned | Failed | TimedOut

_GRACE = 2.0  # seconds to clean up after a cancellation, such as closing a connection; then the coroutine is abandoned
_log = logging.getLogger("toolwire.net")


def call_limited(
    function: Callable[..., Any], arguments: Object, context: CallContext[Any], limit: float | None
) -> LimitedOutcome | ArgumentMismatch | TimeLimitedCall:
    """Run an async function to its first suspension. Return its outcome if it is done by then, which needs no timer.

    Otherwise return an awaitable for the rest. Meanwhile `context` is the running call. Arguments that do not fit the
    parameters of the function are an outcome, too.
    """
    started_at = time.monotonic()
    token = running.set(context)
    try:
        work = function(**arguments)
    except TypeError as error:  # a required argument is missing; none of its code has run
        running.reset(token)
        return ArgumentMismatch(error_text(error))
    if type(work) is not CoroutineType:  # a function that is only marked as async may return a Future
        work = await_value(work)
    try:
        pending = work.send(None)
    except StopIteration as done:
        running.reset(token)
        return Returned(done.value)
    except BaseException as error:  # noqa: BLE001
        running.reset(token)
        return _outcome_of_error(error)
    outer_context = None if token.old_value is token.MISSING else token.old_value
    remaining = None if limit is None else limit - (time.monotonic() - started_at)
    return TimeLimitedCall(work, pending, limit, remaining, context, outer_context)


async def await_value(work: Awaitable[Any]) -> Any:
    return await work


class TimeLimitedCall:
    """Awaits a coroutine that has begun, in the current task, up to a limit.

    At the limit the coroutine is cancelled and has a grace period to clean up. A coroutine that ignores the
    cancellation is abandoned. Therefore a call needs no task of its own, and cannot block the caller.
    """

    __slots__ = (
        "_cancelled",
        "_context",
        "_coroutine",
        "_deadlines",
        "_limit",
        "_loop",
        "_outer_context",
        "_pending",
        "_slot",
        "_task",
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
        self._deadlines: Deadlines | None = None
        self._slot: int | None = None  # for the limit, then for the grace period
        if remaining is not None:
            self._deadlines = Deadlines.of_running_loop()
            self._slot = self._deadlines.set(self, None, self._loop.time() + remaining)

    def check_time(self) -> None:
        """Cancel the coroutine: its limit, or the grace period after an earlier cancellation, is over."""
        # Counted, so that `_clean_up` removes exactly these: a cancellation by the caller must stay (`Task.uncancel`).
        self._cancelled += 1
        self._task.cancel()
        assert self._deadlines is not None, "only they call this method"
        self._slot = self._deadlines.set(self, None, self._loop.time() + _GRACE)

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
        """Restore the context, drop the deadline, and remove our own cancellations from the task."""
        running.set(self._outer_context)
        if self._deadlines is not None:
            self._deadlines.drop(self, self._slot)
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


_Steps: TypeAlias = Coroutine[Any, Any, Any] | Generator[Any, Any, Any]


def _call(function: Callable[..., Any], argument: Any) -> Any:
    return function(argument)


class ContinuedCoroutine:
    """Awaits a coroutine that has begun, in the context in which it began. `awaited`: the object that it awaits."""

    __slots__ = ("_awaited", "_run", "_work")

    def __init__(self, work: _Steps, awaited: Any, run: Callable[..., Any] = _call) -> None:
        """`run` calls a function in the context: `Context.run`. By default it is the current context."""
        self._work = work
        self._awaited = awaited
        self._run = run

    def __await__(self) -> Generator[Any, None, Any]:
        while True:
            error: BaseException | None = None
            try:
                yield self._awaited
            except BaseException as raised:  # noqa: BLE001  # the awaited object failed, or the task was cancelled
                error = raised
            try:
                if error is None:
                    self._awaited = self._run(self._work.send, None)
                else:
                    self._awaited = self._run(self._work.throw, error)
            except StopIteration as done:
                return done.value
