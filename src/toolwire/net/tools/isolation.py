"""Isolation of tool functions: a killable process, a limit for generators, a directory for paths.

A function in a separate process is killed on timeout. A generator is collected into a list of at most 100,000 items,
because a tool may yield forever. `disk_jail` keeps the paths of a call below a directory, symbolic links included.
"""

from __future__ import annotations

import asyncio
import inspect
import multiprocessing
import os
import pickle
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import Future
from contextvars import copy_context
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ...ir.pointer import Object
from ...run.calls.context import CallContext, NotExecuted, ToolError, Transient, running
from ...run.calls.outcomes import find_transient
from ...run.calls.pending import PolicyCheck, format_value
from ...run.calls.policy import Outside, PathJail
from ...run.calls.signature import function_signature
from ...run.calls.steps import Failed, Invoke, Returned, TimedOut
from ...run.tools.function_tool import FunctionTool
from ...run.values.results import error_text

_MAX_ITEMS = 100_000  # more than a model can read; not measured
_MAX_CHARACTERS = 64 * 1024 * 1024  # a quarter of the texts that `StoredOutputs` keeps for `read_output`


class TooManyItems(Exception):
    """The generator exceeded a limit, or its call was given up."""


class _Collector:
    """The items so far, limited in number and in characters of text."""

    __slots__ = ("_remaining_characters", "items")

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._remaining_characters = _MAX_CHARACTERS

    def add(self, item: Any) -> None:
        """Add an item. Raise TooManyItems beyond a limit."""
        self.items.append(item)
        if isinstance(item, (str, bytes)):
            self._remaining_characters -= len(item)
        if len(self.items) > _MAX_ITEMS:
            raise TooManyItems(f"stopped after more than {_MAX_ITEMS:,} items")
        if self._remaining_characters < 0:
            raise TooManyItems(f"stopped after more than {_MAX_CHARACTERS:,} characters")


def collect_items(items: Generator[Any, Any, Any], is_abandoned: Callable[[], bool] = lambda: False) -> list[Any]:
    """Collect all items and close the generator. Raise TooManyItems if there are too many, or the call is given up."""
    collector = _Collector()
    try:
        for item in items:
            collector.add(item)
            if is_abandoned():
                raise TooManyItems("stopped because the call was given up")
    finally:
        items.close()
    return collector.items


async def collect_async_items(items: AsyncGenerator[Any, Any]) -> list[Any]:
    """Collect all items of an asynchronous generator, like `collect_items`."""
    collector = _Collector()
    try:
        async for item in items:
            collector.add(item)
    finally:
        await items.aclose()
    return collector.items


async def run_in_process(step: Invoke, arguments: Object) -> Returned | Failed | TimedOut:
    """Call the function in a process, and return its outcome. A cancellation kills the process.

    A new thread waits for it, so that no thread of the pool is occupied.
    """
    try:
        child = _Child(step, arguments)
    except NotExecuted as error:
        return Failed(error)
    pending: Future[Returned | Failed | TimedOut] = Future()
    threading.Thread(target=_complete_future, args=(pending, child.run), daemon=True).start()
    try:
        return await asyncio.wrap_future(pending)
    except asyncio.CancelledError:
        child.stop()
        raise


def _complete_future(future: Future[Any], work: Callable[[], Any]) -> None:
    """Do the work, unless its caller was cancelled before this thread ran."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001  # the waiting caller receives it
        future.set_exception(error)


class _Child:
    """A child process. One thread calls `run`; any other thread may call `stop` at any time."""

    def __init__(self, step: Invoke, arguments: Object) -> None:
        """Prepare the process. Raise NotExecuted if the dependencies cannot be sent to it."""
        spawn_context = multiprocessing.get_context("spawn")
        self._limit = step.entry.options.timeout
        self._receiver, self._sender = spawn_context.Pipe(duplex=False)
        self._context, self._variables = step.context, copy_context()
        context = _picklable_context(step)
        values = function_signature(step.entry.function).add_context(arguments, context)
        child_arguments = (self._sender, _picklable_function(step.entry.function), values, context)
        self._process = spawn_context.Process(target=_run_child, args=child_arguments, daemon=True)
        self._stopped = threading.Event()  # the caller was cancelled

    def run(self) -> Returned | Failed | TimedOut:
        """Run the process, kill it at the limit, and return its outcome.

        The child has the only open sender, so its death closes the pipe.
        """
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
            kind, value = self._receive_message()
        except EOFError:
            return Failed(_RemoteFailure("the process died"))
        except Exception as error:  # noqa: BLE001  # unpickling a user-defined value may raise anything
            return Failed(_RemoteFailure(f"the return value cannot be unpickled: {error_text(error)}"))
        if kind == "timeout":
            return TimedOut(self._limit or 0, stopped=True)
        return Failed(_remote_error(*value)) if kind == "error" else Returned(value)

    def _receive_message(self) -> tuple[str, Any]:
        """Return the first message with an outcome, or "timeout" if there is none within the limit, or after `stop`.

        Progress, and the note that the output is untrusted, are passed to the context.
        """
        deadline = None if self._limit is None else time.monotonic() + self._limit
        while not self._stopped.is_set():
            if not self._receiver.poll(None if deadline is None else max(0.0, deadline - time.monotonic())):
                break
            kind, value = self._receiver.recv()
            if kind == "untrusted":
                self._context.untrusted = True
            elif kind == "progress":
                self._variables.run(self._context.report_progress, *value)
            else:
                return kind, value
        return "timeout", None

    def stop(self) -> None:
        self._stopped.set()
        if self._process.pid is not None:
            self._process.kill()


class _RemoteFailure(Exception):
    """A failure in another process, of which only the message is known."""


def _describe_error(error: BaseException) -> tuple[str, str, float | None]:
    """Return the kind, the message and the retry delay of an exception, which may not be picklable itself."""
    text = error_text(error)
    if isinstance(error, ToolError):
        return "refused", error_text(error, name=False), None
    if isinstance(error, NotExecuted):
        return "not_executed", error_text(error, name=False), None
    if isinstance(error, Transient):
        return "before_effect" if error.before_effect else "transient", text, error.retry_after
    advice = find_transient(error, time.time)
    return ("failed", text, None) if advice is None else ("transient", text, advice.after)


def _remote_error(kind: str, text: str, retry_after: float | None) -> Exception:
    """Rebuild the exception of the child, so that it is classified and retried like one of a thread."""
    if kind == "refused":
        return ToolError(text)
    if kind == "not_executed":
        return NotExecuted(text)
    if kind in ("transient", "before_effect"):
        return Transient(text, retry_after=retry_after, before_effect=kind == "before_effect")
    return _RemoteFailure(text)


def _picklable_function(function: Any) -> Any:
    """Return the module and name of a function that its FunctionTool replaced in the module; else the function."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    module_value = getattr(sys.modules.get(module or ""), name, None)
    return (module, name) if isinstance(module_value, FunctionTool) and module_value.function is function else function


def _picklable_context(step: Invoke) -> CallContext[Any]:
    """Return the context for the child. Only a function that takes it receives `deps`, which must be picklable then.

    The child has no `session`: usage that it added there would be lost. Raise NotExecuted if `deps` cannot be pickled.
    """
    takes_context, deps = bool(function_signature(step.entry.function).context_names), step.context.deps
    if takes_context and deps is not None:
        try:
            pickle.dumps(deps)
        except Exception as error:
            message = f"its dependencies cannot be sent to a separate process: {error_text(error)}"
            raise NotExecuted(message, retryable=False) from error
    return replace(step.context, deps=deps if takes_context else None, session=None, _sink=None)


def _run_child(pipe: Connection, function: Any, arguments: Any, context: CallContext[Any]) -> None:
    """Run the function in the child, and send its progress, and its value or its error.

    `function` is a tuple of module and name if the tool has to be imported.
    """
    lock = threading.Lock()  # the function may report progress from its own threads

    def send_progress(_: CallContext[Any], message: str, fraction: float | None) -> None:
        with lock:
            pipe.send(("progress", (message, fraction)))

    def send_outcome(kind: str, value: Any) -> None:
        with lock:
            if context.untrusted:
                pipe.send(("untrusted", None))
            pipe.send((kind, value))

    context._sink = send_progress
    running.set(context)
    try:
        if isinstance(function, tuple):
            function = getattr(import_module(function[0]), function[1]).function
        send_outcome("value", _collect_value(function(**arguments)))
    except BaseException as error:  # noqa: BLE001
        send_outcome("error", _describe_error(error))


def _collect_value(value: Any) -> Any:
    """Collect a generator or await a coroutine, so that the value can be pickled."""
    if inspect.isasyncgen(value):
        value = collect_async_items(value)
    elif inspect.isgenerator(value):
        return collect_items(value)
    return asyncio.run(value) if inspect.iscoroutine(value) else value


def disk_jail(argument: str, root: str) -> PolicyCheck:
    """Keep an argument below `root` like `path_jail`, but follow symbolic links: the tool receives the real path.

    The links are followed when the call is checked, before each attempt to run it. A process that changes directories
    below `root` between the check and the use can still escape: preventing that takes `openat2` or a sandbox around
    the tool.
    """
    return _DiskJail(argument, root)


class _DiskJail(PathJail):
    """A `PathJail` that resolves paths on the disk of this machine."""

    def _absolute_root(self, root: str) -> str:
        return os.path.realpath(root)

    def _resolve(self, path: str) -> str:
        """Return the real path. Raise Outside if it is not below the root."""
        try:
            real = os.path.realpath(Path(self.root, path))
        except ValueError as error:  # characters that are invalid in a file name
            raise Outside(f"{format_value(path)} is not a plain path") from error
        if not _is_below(real, self.root):
            raise Outside(f"{format_value(path)} resolves to a path outside the directory")
        return real

    def _is_absolute(self, path: str) -> bool:
        return Path(path).is_absolute()

    def _is_foreign(self, path: str) -> bool:
        return os.sep == "/" and super()._is_foreign(path)


def _is_below(path: str, root: str) -> bool:
    try:
        return os.path.commonpath((root, path)) == root
    except ValueError:  # another drive
        return False
