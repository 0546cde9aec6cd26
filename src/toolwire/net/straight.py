"""Calls with nothing in their way: of an async function that changes nothing, with arguments that fit as they are.

They are most calls. What `CallRun` does step by step is done for them in one go: the function is called, and what it returns
is the result. Whatever else comes of it, a failure or a timeout, goes on as the answer to `CallRun`'s own `Invoke`.
"""

from __future__ import annotations

from ..ir.errors import SchemaError
from ..ir.parts import ToolCall, ToolResult
from ..run.call_run import Settings
from ..run.context import CallContext
from ..run.gates import GATES
from ..run.keys import ARGUMENT
from ..run.output import cap
from ..run.requests import Returned, Unfit
from ..run.results import sized_result, spoken, untold
from ..run.signature import signature
from ..run.toolbox import Entry
from .limited import Limited, Limits, Ran

__all__ = ["Straight", "straight"]


class Straight:
    """A tool whose calls may go this way."""

    __slots__ = ("_accept", "_function", "_is_plain", "_limits", "_output_limit", "_shelf", "_timeout")

    def __init__(self, entry: Entry, settings: Settings, limits: Limits) -> None:
        self._function = entry.function
        self._accept = settings.box.parameters[entry.name].accept
        self._is_plain = signature(entry.function).is_plain
        self._timeout = entry.options.timeout
        self._output_limit = entry.options.output_limit or settings.output_limit
        self._shelf = settings.shelf
        self._limits = limits

    def begin(self, call: ToolCall, settings: Settings) -> Ran | Unfit | Limited | None:
        """What came of the function, or what to await; None for a call that has to go step by step."""
        arguments = call.arguments
        if arguments is None or call.state == "truncated" or ARGUMENT in arguments:
            return None
        if not (self._accept(arguments) and self._is_plain(arguments)):
            return None
        try:
            coroutine = self._function(**arguments)
        except TypeError as error:  # something that it needs is not there; nothing of it has run
            return Unfit(spoken(error))
        context = CallContext(call.id, call.name, settings.run_id, settings.caller)
        return self._limits.run(coroutine, context, self._timeout)

    def result(self, call: ToolCall, returned: Returned) -> ToolResult:
        try:
            result, size = sized_result(call, returned.value)
        except Exception as error:  # noqa: BLE001  # values may refuse to be written in any way
            return untold(call, error)
        if size is None or size > self._output_limit:
            return cap(result, self._output_limit, self._shelf)
        return result


def straight(entry: Entry, settings: Settings, limits: Limits) -> Straight | None:
    """None for a tool that a policy, a gate of somebody's own, a cache, a rate, a thread or a process stands before."""
    options = entry.options
    if settings.policy is not None or settings.gates is not GATES or entry.tool.effect not in ("pure", "read"):
        return None
    if options.withdrawn or options.cache or options.rate or options.isolation != "thread":
        return None
    declared = signature(entry.function)
    try:
        asked = settings.box.parameters[entry.name].names
    except SchemaError:  # every call of it will say so
        return None
    takes_all = declared.names is None or (asked is not None and asked <= declared.names)
    return Straight(entry, settings, limits) if declared.is_async and takes_all else None
