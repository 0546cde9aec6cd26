"""Calling a tool's function: natively, in a thread of a bounded pool, or in a process that can be killed."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

from ..run.context import CallContext, running
from ..run.requests import Failed, Invoke, Returned, TimedOut
from .arguments import as_declared

__all__ = ["Invoker"]

_GRACE = 2.0


class Invoker:
    """Performs `Invoke`. Functions that do not come back are counted against the pool until they do."""

    def __init__(self, threads: int = 32) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="toolwire")

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, step: Invoke) -> Returned | Failed | TimedOut:
        function, limit = step.entry.function, step.entry.options.timeout
        try:
            arguments = as_declared(function, step.arguments)
        except Exception as error:  # noqa: BLE001  # types of the author's own may refuse in any way
            from ..run.failures import ToolError

            return Failed(ToolError(f"The arguments do not fit: {error}"))
        if step.entry.options.isolation == "process":
            return await _in_process(function, arguments, step.context, limit)
        token = running.set(step.context)
        try:
            if inspect.iscoroutinefunction(_inner(function)):
                return await _with_grace(function(**arguments), limit)
            return await self._in_thread(function, arguments, limit)
        finally:
            running.reset(token)

    async def _in_thread(self, function: Any, arguments: Any, limit: float | None) -> Returned | Failed | TimedOut:
        context = contextvars.copy_context()
        work = asyncio.get_running_loop().run_in_executor(
            self._pool, lambda: context.run(_guarded, function, arguments)
        )
        done, _ = await asyncio.wait({work}, timeout=limit)
        if not done:
            return TimedOut(limit or 0)
        outcome = work.result()
        if isinstance(outcome, Returned) and inspect.isawaitable(outcome.value):
            return await _with_grace(outcome.value, limit)
        return outcome


def _inner(function: Any) -> Any:
    while hasattr(function, "func"):
        function = function.func
    return function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004


def _guarded(function: Any, arguments: Any) -> Returned | Failed:
    """Whatever a function raises, `SystemExit` and the like included, is its failure and not ours."""
    try:
        return Returned(function(**arguments))
    except BaseException as error:  # noqa: BLE001
        return Failed(error)


async def _with_grace(work: Any, limit: float | None) -> Returned | Failed | TimedOut:
    """A coroutine that is cancelled at its limit has a moment to clean up, and no longer."""
    if limit is None:
        return await _awaited(work)
    task = asyncio.ensure_future(_awaited(work))
    try:
        done, _ = await asyncio.wait({task}, timeout=limit)
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task}, timeout=_GRACE)
        raise
    if done:
        return task.result()
    task.cancel()
    stopped, _ = await asyncio.wait({task}, timeout=_GRACE)
    return TimedOut(limit or 0, stopped=bool(stopped))


async def _awaited(work: Any) -> Returned | Failed:
    try:
        return Returned(await work)
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001
        return Failed(error)


async def _in_process(
    function: Any, arguments: Any, context: CallContext, limit: float | None
) -> Returned | Failed | TimedOut:
    """In a process of its own, which a timeout kills."""
    methods = multiprocessing.get_context("spawn")
    ours, theirs = methods.Pipe(duplex=False)
    child = methods.Process(target=_child, args=(theirs, function, arguments, context), daemon=True)
    try:
        await asyncio.to_thread(child.start)
    except Exception as error:  # noqa: BLE001  # a function that cannot be sent to another process
        from ..run.failures import NotExecuted

        return Failed(NotExecuted(f"cannot be run in a process of its own: {error}"))
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


def _child(pipe: Connection, function: Any, arguments: Any, context: CallContext) -> None:
    running.set(context)
    try:
        value = function(**arguments)
        pipe.send(("value", asyncio.run(value) if inspect.iscoroutine(value) else value))
    except BaseException as error:  # noqa: BLE001
        pipe.send(("error", f"{type(error).__name__}: {error}"))
