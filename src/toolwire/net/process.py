"""Calling a function in a process of its own, which a timeout kills."""

from __future__ import annotations

import asyncio
import inspect
import multiprocessing
import sys
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

from ..ir.pointer import Object
from ..run.context import CallContext, running
from ..run.failures import NotExecuted
from ..run.requests import Failed, Invoke, Returned, TimedOut
from ..schema.infer import FunctionTool

__all__ = ["in_process"]


async def in_process(step: Invoke, arguments: Object) -> Returned | Failed | TimedOut:
    function, limit = step.entry.function, step.entry.options.timeout
    methods = multiprocessing.get_context("spawn")
    ours, theirs = methods.Pipe(duplex=False)
    child = methods.Process(target=_child, args=(theirs, _sendable(function), arguments, step.context), daemon=True)
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
