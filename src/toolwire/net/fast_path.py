"""The fast path for calls of an async function without side effects, with valid arguments that need no conversion.

Most calls are of this kind. Instead of the steps of `CallRun`, the function is called directly, and its return value
is the result. Any other outcome, a failure or a timeout, continues as the outcome of the `Invoke` step of `CallRun`.
"""

from __future__ import annotations

from typing import Any

from ..ir.errors import SchemaError
from ..ir.parts import ToolCall, ToolResult
from ..run.call_run import RunSettings
from ..run.context import CallContext
from ..run.gates import GATES
from ..run.keys import KEY_ARGUMENT
from ..run.output import cap_result
from ..run.results import error_text, sized_result, unserialisable_result
from ..run.signature import function_signature
from ..run.steps import ArgumentMismatch, Returned
from ..run.toolbox import Entry
from .time_limit import LimitedOutcome, TimeLimitedCall, TimeLimiter

__all__ = ["FastPath", "make_fast_path"]


class FastPath:
    """A tool whose calls may take the fast path."""

    __slots__ = (
        "_accept",
        "_context_names",
        "_function",
        "_is_plain",
        "_limits",
        "_output_limit",
        "_timeout",
        "_truncated_outputs",
    )

    def __init__(self, entry: Entry, settings: RunSettings, limits: TimeLimiter) -> None:
        self._function = entry.function
        self._accept = settings.box.parameters[entry.name].accept  # checks arguments against the schema
        signature = function_signature(entry.function)
        self._context_names = signature.context_names
        self._is_plain = signature.is_plain  # checks that no argument needs conversion
        self._timeout = entry.options.timeout
        self._output_limit = entry.options.output_limit or settings.output_limit
        self._truncated_outputs = settings.truncated_outputs
        self._limits = limits

    def begin(
        self, call: ToolCall, settings: RunSettings
    ) -> LimitedOutcome | ArgumentMismatch | TimeLimitedCall | None:
        """Call the function. Return its outcome or an awaitable; None for a call that needs the steps of `CallRun`."""
        arguments = call.arguments
        if arguments is None or call.state == "truncated" or KEY_ARGUMENT in arguments:
            return None
        if not (self._accept(arguments) and self._is_plain(arguments)):
            return None
        context: CallContext[Any] = CallContext(
            call.id,
            call.name,
            settings.run_id,
            settings.caller,
            None,
            settings.deps,
            settings.session,
            False,
            settings.on_progress,
        )
        if self._context_names:
            arguments = {**arguments, **dict.fromkeys(self._context_names, context)}
        try:
            coroutine = self._function(**arguments)
        except TypeError as error:  # a required argument is missing; none of its code has run
            return ArgumentMismatch(error_text(error))
        return self._limits.run(coroutine, context, self._timeout)

    def result(self, call: ToolCall, returned: Returned) -> ToolResult:
        """Build the result of a returned value; one that is too large is truncated."""
        try:
            result, size = sized_result(call, returned.value)
        except Exception as error:  # noqa: BLE001  # encoding a user-defined value may raise anything
            return unserialisable_result(call, error)
        if size is None or size > self._output_limit:
            return cap_result(result, self._output_limit, self._truncated_outputs)
        return result


def make_fast_path(entry: Entry, settings: RunSettings, limits: TimeLimiter) -> FastPath | None:
    """Return the fast path of a tool.

    None if a policy, user-defined gates, a cache, a rate limit, a thread or a process applies to it.
    """
    options = entry.options
    if settings.policy is not None or settings.gates is not GATES or entry.tool.effect not in ("pure", "read"):
        return None
    if options.withdrawn or options.cache or options.rate or options.isolation != "thread":
        return None
    signature = function_signature(entry.function)
    try:
        asked = settings.box.parameters[entry.name].names
    except SchemaError:  # every call of the tool reports it
        return None
    takes_all = signature.names is None or (asked is not None and asked <= signature.names)
    return FastPath(entry, settings, limits) if signature.is_async and takes_all else None
