"""Calling a tool's function: natively, in a thread of a bounded pool, or in a process that can be killed."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import multiprocessing
import sys
from collections.abc import AsyncIterator, Awaitable, Coroutine, Generator
from functools import lru_cache, partial
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

from ..run.context import CallContext, running
from ..run.failures import NotExecuted
from ..run.requests import Failed, Invoke, Returned, TimedOut, Unfit
from ..run.results import spoken
from ..schema.infer import FunctionTool
from .arguments import as_declared
from .threads import Threads

__all__ = ["Invoker", "Outcome"]

Outcome: TypeAlias = Returned | Failed | TimedOut | Unfit

_GRACE = 2.0
_log = logging.getLogger("toolwire.net")


class Invoker:
    """Performs `Invoke`. Functions that do not come back are counted against the pool until they do."""

    def __init__(self, threads: int = 32) -> None:
        self._pool = Threads(threads)

    def close(self) -> None:
        self._pool.close()

    async def __call__(self, step: Invoke) -> Outcome:
        function, limit = step.entry.function, step.entry.options.timeout
        try:
            arguments = as_declared(function, step.arguments)
        except Exception as error:  # noqa: BLE001  # types of the author's own may refuse in any way
            return Unfit(spoken(error))
        if step.entry.options.isolation == "process":
            return await _in_process(function, arguments, step.context, limit)
        token = running.set(step.context)
        try:
            if _is_async(function):
                return await _Limited(function(**arguments), limit)
            return await self._in_thread(function, arguments, limit)
        finally:
            running.reset(token)

    async def _in_thread(self, function: Any, arguments: Any, limit: float | None) -> Returned | Failed | TimedOut:
        context = contextvars.copy_context()
        work = self._pool.submit(lambda: context.run(_guarded, function, arguments))
        done, _ = await asyncio.wait({asyncio.wrap_future(work)}, timeout=limit)
        if not done:
            busy = NotExecuted(f"all threads were busy for {limit:g} seconds")
            return Failed(busy) if work.cancel() else TimedOut(limit or 0)
        outcome: Returned | Failed = work.result()
        if isinstance(outcome, Returned) and inspect.isawaitable(outcome.value):
            return await _Limited(_awaited(outcome.value), limit)
        if isinstance(outcome, Returned) and inspect.isasyncgen(outcome.value):
            return await _Limited(_collected(outcome.value), limit)
        return outcome


@lru_cache(1024)
def _is_async(function: Any) -> bool:
    while isinstance(function, partial):
        function = function.func
    if not inspect.isroutine(function):
        function = getattr(function, "__call__", function)  # noqa: B004
    return inspect.iscoroutinefunction(function)


def _guarded(function: Any, arguments: Any) -> Returned | Failed:
    """Whatever a function raises, `SystemExit` and the like included, is its failure and not ours."""
    try:
        value = function(**arguments)
        return Returned(list(value) if inspect.isgenerator(value) else value)
    except BaseException as error:  # noqa: BLE001
        return Failed(error)


class _Limited:
    """Awaits a coroutine in the task at hand, up to a limit.

    At the limit it is cancelled and has a moment to clean up; what goes on all the same is left behind. So nothing costs a
    task of its own, and nothing can hold us up.
    """

    __slots__ = ("_cancelled", "_coroutine", "_limit", "_loop", "_task", "_timer")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], limit: float | None) -> None:
        self._coroutine = coroutine
        self._limit = limit
        self._cancelled = 0

    def __await__(self) -> Generator[Any, None, Returned | Failed | TimedOut]:
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._task = task
        self._timer = None if self._limit is None else self._loop.call_later(self._limit, self._expire)
        try:
            return (yield from self._drive())
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for _ in range(self._cancelled):
                task.uncancel()

    def _expire(self) -> None:
        self._cancelled += 1
        self._task.cancel()
        self._timer = self._loop.call_later(_GRACE, self._expire)

    def _drive(self) -> Generator[Any, None, Returned | Failed | TimedOut]:
        raised: BaseException | None = None
        while True:
            try:
                waits = self._coroutine.send(None) if raised is None else self._coroutine.throw(raised)
            except StopIteration as done:
                return Returned(done.value)
            except asyncio.CancelledError as error:
                if self._task.cancelling() > self._cancelled:
                    raise  # we are to stop
                return TimedOut(self._limit or 0, stopped=True) if self._cancelled else Failed(error)
            except BaseException as error:  # noqa: BLE001  # whatever a tool raises is its failure and not ours
                return Failed(error)
            try:
                yield waits
                raised = None
            except asyncio.CancelledError as cancelled:
                if self._cancelled > 1:
                    self._leave()
                    return TimedOut(self._limit or 0)
                raised = cancelled
            except BaseException as error:  # noqa: BLE001  # what the tool waited for has failed
                raised = error

    def _leave(self) -> None:
        try:
            self._coroutine.close()
        except BaseException:  # noqa: BLE001  # it does not even want to end
            _log.warning("a tool ignores that it was cancelled")


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


async def _collected(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


async def _in_process(
    function: Any, arguments: Any, context: CallContext, limit: float | None
) -> Returned | Failed | TimedOut:
    """In a process of its own, which a timeout kills."""
    methods = multiprocessing.get_context("spawn")
    ours, theirs = methods.Pipe(duplex=False)
    child = methods.Process(target=_child, args=(theirs, _sendable(function), arguments, context), daemon=True)
    try:
        await asyncio.to_thread(child.start)
    except Exception as error:  # noqa: BLE001  # a function that cannot be sent to another process
        return Failed(NotExecuted(f"it cannot be run in a process of its own: {error}"))
    theirs.close()
    try:
        came = await asyncio.to_thread(ours.poll, limit)
        if not came:
            return TimedOut(limit or 0, stopped=True)
        outcome = ours.recv()
        return Failed(_Elsewhere(outcome[1])) if outcome[0] == "error" else Returned(outcome[1])
    except EOFError:
        return Failed(_Elsewhere("the process died"))
    finally:
        child.kill()
        await asyncio.to_thread(child.join)
        ours.close()


class _Elsewhere(Exception):
    """A failure in another process, of which only the words came back."""


def _sendable(function: Any) -> Any:
    """A function that a tool has taken the name of goes as that name."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    named = getattr(sys.modules.get(module or ""), name, None)
    return (module, name) if isinstance(named, FunctionTool) and named.function is function else function


def _child(pipe: Connection, function: Any, arguments: Any, context: CallContext) -> None:
    running.set(context)
    try:
        if isinstance(function, tuple):
            function = getattr(import_module(function[0]), function[1]).function
        value = function(**arguments)
        pipe.send(("value", asyncio.run(value) if inspect.iscoroutine(value) else value))
    except BaseException as error:  # noqa: BLE001
        pipe.send(("error", f"{type(error).__name__}: {error}"))
