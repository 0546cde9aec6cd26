"""Call a tool's function: on the event loop, in a thread of a bounded pool, or in a process that can be killed."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

from ..ir.pointer import Object
from ..ir.value import Value
from ..run.context import running
from ..run.failures import NotExecuted
from ..run.results import error_text
from ..run.signature import FunctionSignature, function_signature
from ..run.steps import ArgumentMismatch, Failed, Invoke, Reconcile, Returned, TimedOut
from .collect import collect_async_items, collect_items
from .process import run_in_process
from .threads import ThreadPool, call_in_thread
from .time_limit import LimitedOutcome, TimeLimitedCall, TimeLimiter

__all__ = ["InvokeOutcome", "Invoker"]

InvokeOutcome: TypeAlias = Returned | Failed | TimedOut | ArgumentMismatch


class Rates:
    """Limit the calls per second of each tool: a call that is too early waits."""

    def __init__(self) -> None:
        self._next_start: dict[str, float] = {}

    async def acquire(self, name: str, rate: float) -> None:
        now = asyncio.get_running_loop().time()
        start_at = max(self._next_start.get(name, now), now)
        self._next_start[name] = start_at + 1 / rate
        if start_at > now:
            await asyncio.sleep(start_at - now)


class Invoker:
    """Performs `Invoke`. A function that does not return occupies its thread until it does; see `ThreadPool`."""

    def __init__(self, threads: int = 64) -> None:
        self._pool = ThreadPool(threads)
        self._rates = Rates()
        self.limits = TimeLimiter()

    def close(self) -> None:
        self._pool.close()

    async def reconcile(self, step: Reconcile) -> Returned | Failed:
        """Ask the tool's `reconcile` function about the outcome of an earlier call; an error is returned as a failure."""
        function = step.entry.options.reconcile
        assert function is not None
        try:
            if inspect.iscoroutinefunction(function):
                return Returned(await function(step.key, step.arguments))
            return Returned(await call_in_thread(self._pool, function, step.key, step.arguments, share=step.entry.name))
        except Exception as error:  # noqa: BLE001  # a user-defined function
            return Failed(error)

    def begin(self, step: Invoke) -> InvokeOutcome | Awaitable[InvokeOutcome]:
        """Return the outcome if the function did not wait for anything; else an awaitable for the current task."""
        entry, options = step.entry, step.entry.options
        signature = step.signature or function_signature(entry.function)
        if not signature.is_async or options.rate is not None or options.isolation == "process":
            return self._run_waiting(step, step.arguments, signature)
        return self._begin_async(step)

    def _begin_async(self, step: Invoke) -> InvokeOutcome | TimeLimitedCall:
        """Start an async function on the event loop, unless the call was stopped before it began."""
        if not step.start.begin():
            return _stopped_failure()
        entry = step.entry
        try:
            coroutine = entry.function(**step.arguments)
        except TypeError as error:  # a required argument is missing; none of its code has run
            return ArgumentMismatch(error_text(error))
        return self.limits.run(coroutine, step.context, entry.options.timeout)

    async def _run_waiting(self, step: Invoke, arguments: Object, signature: FunctionSignature) -> InvokeOutcome:
        """Run a call that has to wait for its rate limit, a process or a thread."""
        entry = step.entry
        if entry.options.rate is not None:
            await self._rates.acquire(entry.name, entry.options.rate)
        if entry.options.isolation == "process":
            return await run_in_process(step, arguments) if step.start.begin() else _stopped_failure()
        if not signature.is_async:
            return await self._run_in_thread(step, arguments)
        ran = self._begin_async(step)
        return ran if isinstance(ran, Value) else await ran

    async def _run_in_thread(self, step: Invoke, arguments: Object) -> LimitedOutcome:
        """Run a function in the pool.

        On timeout, a call that has no thread yet was not executed, and is reported as such. An awaitable that the
        function returned is awaited on the event loop.
        """
        limit, context = step.entry.options.timeout, contextvars.copy_context()
        context.run(running.set, step.context)
        abandoned = threading.Event()
        work = self._pool.submit(
            lambda: context.run(_call_guarded, step, arguments, abandoned.is_set), share=step.entry.name
        )
        try:
            done, _ = await asyncio.wait({asyncio.wrap_future(work)}, timeout=limit)
        except asyncio.CancelledError:
            step.context.cancelled = True
            abandoned.set()
            work.cancel()  # if it has no thread yet
            raise
        if not done:
            step.context.cancelled = True
            abandoned.set()
            busy = NotExecuted(f"no thread was free for it for {limit:g} seconds")
            return Failed(busy) if work.cancel() else TimedOut(limit or 0)
        not_begun = work.exception()
        if not_begun is not None:
            return Failed(not_begun)
        outcome: Returned | Failed = work.result()
        remaining = _remaining_work(outcome.value) if isinstance(outcome, Returned) else None
        if remaining is None:
            return outcome
        ran = self.limits.run(remaining, step.context, limit)
        return ran if isinstance(ran, Value) else await ran


def _remaining_work(value: object) -> Coroutine[Any, Any, Any] | None:
    """Return the coroutine that finishes the work if a plain function returned an awaitable; else None."""
    if inspect.isawaitable(value):
        return _await_value(value)
    return collect_async_items(value) if inspect.isasyncgen(value) else None


def _stopped_failure() -> Failed:
    return Failed(NotExecuted("stopped before it began"))


def _call_guarded(step: Invoke, arguments: Any, is_abandoned: Callable[[], bool]) -> Returned | Failed:
    """Call the function; anything that it raises, even `SystemExit`, is a failure of the call."""
    if not step.start.begin():
        return _stopped_failure()
    try:
        value = step.entry.function(**arguments)
        return Returned(collect_items(value, is_abandoned) if inspect.isgenerator(value) else value)
    except BaseException as error:  # noqa: BLE001
        return Failed(error)


async def _await_value(work: Awaitable[Any]) -> Any:
    return await work
