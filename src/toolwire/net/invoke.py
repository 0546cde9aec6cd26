"""Calling a tool's function: natively, in a thread of a bounded pool, or in a process that can be killed."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Coroutine, Generator
from typing import Any, TypeAlias

from ..ir.pointer import Object
from ..ir.value import Value
from ..run.context import CallContext, running
from ..run.failures import NotExecuted
from ..run.requests import Failed, Invoke, Returned, TimedOut, Unfit
from ..run.results import spoken
from .deadlines import Deadlines
from .process import in_process
from .rate import Rates
from .signature import Signature, signature
from .threads import Threads

__all__ = ["Invoker", "Outcome"]

Outcome: TypeAlias = Returned | Failed | TimedOut | Unfit
_Ran: TypeAlias = Returned | Failed | TimedOut

_GRACE = 2.0
_log = logging.getLogger("toolwire.net")


class Invoker:
    """Performs `Invoke`. Functions that do not come back are counted against the pool until they do."""

    def __init__(self, threads: int = 32) -> None:
        self._pool = Threads(threads)
        self._rates = Rates()
        self._deadlines: dict[float, Deadlines] = {}

    def close(self) -> None:
        self._pool.close()

    def begin(self, step: Invoke) -> Outcome | Awaitable[Outcome]:
        """What came of it, where it waited for nothing; else what to await, in the task at hand."""
        entry = step.entry
        declared = signature(entry.function)
        try:
            arguments = declared.fit(step.arguments)
        except Exception as error:  # noqa: BLE001  # types of the author's own may refuse in any way
            return Unfit(spoken(error))
        if not declared.is_async or entry.options.rate is not None or entry.options.isolation == "process":
            return self._waiting(step, arguments, declared)
        return self._begun(step, arguments)

    def _begun(self, step: Invoke, arguments: Object) -> Outcome | _Limited:
        try:
            coroutine = step.entry.function(**arguments)
        except TypeError as error:  # something that it needs is not there; nothing of it has run
            return Unfit(spoken(error))
        return self._limited(step, coroutine)

    async def _waiting(self, step: Invoke, arguments: Object, declared: Signature) -> Outcome:
        """What waits in any case: for its turn, for a process, for a thread."""
        entry = step.entry
        if entry.options.rate is not None:
            await self._rates.take(entry.name, entry.options.rate)
        if entry.options.isolation == "process":
            return await in_process(step, arguments)
        if not declared.is_async:
            return await self._in_thread(step, arguments)
        ran = self._begun(step, arguments)
        return ran if isinstance(ran, Value) else await ran

    def _limited(self, step: Invoke, coroutine: Coroutine[Any, Any, Any]) -> _Ran | _Limited:
        """Runs it until it waits for something: what waits for nothing is done by then, and nobody has to watch it."""
        began = time.monotonic()
        outside = running.get()
        running.set(step.context)
        try:
            waits = coroutine.send(None)
        except StopIteration as done:
            running.set(outside)
            return Returned(done.value)
        except BaseException as error:  # noqa: BLE001
            running.set(outside)
            return _ended(error)
        limit = step.entry.options.timeout
        work = _Limited(coroutine, waits, limit, outside)
        if limit is not None:
            work.watch(self._deadlines_of(limit, work.loop), time.monotonic() - began)
        return work

    def _deadlines_of(self, limit: float, loop: asyncio.AbstractEventLoop) -> Deadlines:
        found = self._deadlines.get(limit)
        if found is None or found.loop is not loop:
            found = self._deadlines[limit] = Deadlines(loop)
        return found

    async def _in_thread(self, step: Invoke, arguments: Object) -> _Ran:
        limit, context = step.entry.options.timeout, contextvars.copy_context()
        context.run(running.set, step.context)
        work = self._pool.submit(lambda: context.run(_guarded, step.entry.function, arguments))
        try:
            done, _ = await asyncio.wait({asyncio.wrap_future(work)}, timeout=limit)
        except asyncio.CancelledError:
            work.cancel()  # if no thread was free yet
            raise
        if not done:
            busy = NotExecuted(f"all threads were busy for {limit:g} seconds")
            return Failed(busy) if work.cancel() else TimedOut(limit or 0)
        not_begun = work.exception()
        if not_begun is not None:
            return Failed(not_begun)
        outcome: Returned | Failed = work.result()
        rest = _rest(outcome.value) if isinstance(outcome, Returned) else None
        if rest is None:
            return outcome
        ran = self._limited(step, rest)
        return ran if isinstance(ran, Value) else await ran


def _rest(value: object) -> Coroutine[Any, Any, Any] | None:
    """What is still to be done where a plain function gave something to await."""
    if inspect.isawaitable(value):
        return _awaited(value)
    return _collected(value) if inspect.isasyncgen(value) else None


def _guarded(function: Any, arguments: Any) -> Returned | Failed:
    """Whatever a function raises, `SystemExit` and the like included, is its failure and not ours."""
    try:
        value = function(**arguments)
        return Returned(list(value) if inspect.isgenerator(value) else value)
    except BaseException as error:  # noqa: BLE001
        return Failed(error)


class _Limited:
    """Awaits a coroutine that has begun, in the task at hand, up to a limit.

    At the limit it is cancelled and has a moment to clean up; what goes on all the same is left behind. So nothing costs a
    task of its own, and nothing can hold us up.
    """

    __slots__ = ("_cancelled", "_coroutine", "_deadlines", "_grace", "_limit", "_outside", "_task", "_waits", "loop")

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], waits: Any, limit: float | None, outside: CallContext | None
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._coroutine = coroutine
        self._waits = waits
        self._limit = limit
        self._outside = outside
        self._task = _current_task(self.loop)
        self._deadlines: Deadlines | None = None
        self._grace: asyncio.TimerHandle | None = None
        self._cancelled = 0

    def watch(self, deadlines: Deadlines, spent: float) -> None:
        """From now on the limit holds, of which so many seconds are gone."""
        assert self._limit is not None
        self._deadlines = deadlines
        deadlines.add(self, self.loop.time() + self._limit - spent)

    def expire(self) -> None:
        self._cancelled += 1
        self._task.cancel()
        self._grace = self.loop.call_later(_GRACE, self.expire)

    def __await__(self) -> Generator[Any, None, _Ran]:
        try:
            while True:
                try:
                    yield self._waits
                    raised = None
                except BaseException as error:  # noqa: BLE001  # what the tool waited for has failed, or we are to stop
                    raised = error
                if self._cancelled > 1 and isinstance(raised, asyncio.CancelledError):
                    return self._leave()
                try:
                    self._waits = self._coroutine.send(None) if raised is None else self._coroutine.throw(raised)
                except BaseException as error:  # noqa: BLE001
                    return _ended(error, self._limit, self._cancelled)
        finally:
            self._forget()

    def _leave(self) -> TimedOut:
        try:
            self._coroutine.close()
        except BaseException:  # noqa: BLE001  # it does not even want to end
            _log.warning("a tool ignores that it was cancelled")
        return TimedOut(self._limit or 0)

    def _forget(self) -> None:
        running.set(self._outside)
        if self._deadlines is not None:
            self._deadlines.discard(self)
        if self._grace is not None:
            self._grace.cancel()
        for _ in range(self._cancelled):
            self._task.uncancel()


def _ended(error: BaseException, limit: float | None = None, cancelled: int = 0) -> _Ran:
    """What a coroutine came to, by what it raised: that is the tool's own affair, unless we are to stop."""
    if isinstance(error, StopIteration):
        return Returned(error.value)
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


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


async def _collected(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]
