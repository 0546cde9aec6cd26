"""Call a function in a separate process, which is killed on timeout."""

from __future__ import annotations

import asyncio
import inspect
import multiprocessing
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

from ..ir.pointer import Object
from ..run.context import CallContext, running
from ..run.failures import NotExecuted
from ..run.function_tool import FunctionTool
from ..run.results import error_text
from ..run.steps import Failed, Invoke, Returned, TimedOut
from .collect import collect_async_items, collect_items

__all__ = ["run_in_process"]


async def run_in_process(step: Invoke, arguments: Object) -> Returned | Failed | TimedOut:
    """Call the function in a process. A new thread waits for it, so that no thread of the pool is occupied."""
    child = _Child(step, arguments)
    pending: Future[Returned | Failed | TimedOut] = Future()
    threading.Thread(target=_complete_future, args=(pending, child.run), daemon=True).start()
    try:
        return await asyncio.wrap_future(pending)
    except asyncio.CancelledError:
        child.stop()
        raise


def _complete_future(future: Future[Any], work: Callable[[], Any]) -> None:
    future.set_running_or_notify_cancel()
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001  # the waiting caller receives it
        future.set_exception(error)


class _Child:
    """A child process. One thread calls `run`; any other thread may call `stop` at any time."""

    def __init__(self, step: Invoke, arguments: Object) -> None:
        spawn_context = multiprocessing.get_context("spawn")
        self._limit = step.entry.options.timeout
        self._receiver, self._sender = spawn_context.Pipe(duplex=False)
        child_arguments = (self._sender, _picklable_function(step.entry.function), arguments, step.context)
        self._process = spawn_context.Process(target=_run_child, args=child_arguments, daemon=True)
        self._stopped = threading.Event()  # the caller was cancelled

    def run(self) -> Returned | Failed | TimedOut:
        """Run the process to its end. The child has the only open sender, so its death closes the pipe."""
        with self._receiver:
            try:
                with self._sender:
                    self._process.start()
            except Exception as error:  # noqa: BLE001  # a function that cannot be sent to another process
                return Failed(NotExecuted(f"it cannot be run in a separate process: {error}"))
            try:
                return self._receive_outcome()
            finally:
                self._process.kill()
                self._process.join()

    def _receive_outcome(self) -> Returned | Failed | TimedOut:
        """Wait for the outcome up to the limit; a process that dies before it sends one has failed."""
        try:
            if self._stopped.is_set() or not self._receiver.poll(self._limit):
                return TimedOut(self._limit or 0, stopped=True)
            kind, value = self._receiver.recv()
        except EOFError:
            return Failed(_RemoteFailure("the process died"))
        except Exception as error:  # noqa: BLE001  # unpickling a user-defined value may raise anything
            return Failed(_RemoteFailure(f"the return value cannot be unpickled: {error_text(error)}"))
        return Failed(_RemoteFailure(value)) if kind == "error" else Returned(value)

    def stop(self) -> None:
        self._stopped.set()
        if self._process.pid is not None:
            self._process.kill()


class _RemoteFailure(Exception):
    """A failure in another process, of which only the message is known."""


def _picklable_function(function: Any) -> Any:
    """Return the module and name of a function that its FunctionTool replaced in the module; else the function."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    module_value = getattr(sys.modules.get(module or ""), name, None)
    return (module, name) if isinstance(module_value, FunctionTool) and module_value.function is function else function


def _run_child(pipe: Connection, function: Any, arguments: Any, context: CallContext) -> None:
    """Run the function in the child, and send its value or its error. A tuple names a tool to import."""
    running.set(context)
    try:
        if isinstance(function, tuple):
            function = getattr(import_module(function[0]), function[1]).function
        pipe.send(("value", _collect_value(function(**arguments))))
    except BaseException as error:  # noqa: BLE001
        pipe.send(("error", f"{type(error).__name__}: {error}"))


def _collect_value(value: Any) -> Any:
    """Collect a generator or await a coroutine, so that the value can be pickled."""
    if inspect.isasyncgen(value):
        value = collect_async_items(value)
    elif inspect.isgenerator(value):
        return collect_items(value)
    return asyncio.run(value) if inspect.iscoroutine(value) else value
