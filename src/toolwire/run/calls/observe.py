"""Interfaces for plug-ins: observers (tracing, metrics, a live view), retrievers (tool selection among thousands).

An observer is notified of the start and the end of each operation:

    class Timer:
        def start(self, operation):
            started_at = time.perf_counter()
            return lambda outcome: print(type(operation).__name__, time.perf_counter() - started_at)

Operations nest: an agent run contains model requests and tool calls, and a tool may run another agent. `start` and the
end function are called in the context (`contextvars`) of the operation. A context variable that `start` sets, such as
OpenTelemetry's current span, is therefore visible to everything inside the operation, including the tool's function.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec.structs import replace

from ...ir.losses import Loss, Losses
from ...ir.parts import ToolCall, ToolResult
from ...ir.pointer import Object
from ...ir.request import Request
from ...ir.response import Response, Usage
from ...ir.tools import Effect, Tool
from ...ir.value import Value
from .context import CallContext, ProgressSink

_log = logging.getLogger("toolwire.run")


class AgentOperation(Value, frozen=True):
    """A run of an agent. `parent` is the id of the call whose tool runs this agent; empty for an outermost run."""

    run_id: str
    request: Request
    agent: str = ""
    parent: str = ""


class ModelOperation(Value, frozen=True):
    """A request to a model. `purpose` is empty for a turn of the run, "auxiliary" for other work, such as summaries.

    `model` and `provider` are names; `provider` is empty if it is not known.
    """

    request: Request
    run_id: str = ""
    stream: bool = False
    purpose: Literal["", "auxiliary"] = ""
    model: str = ""
    provider: str = ""


class ToolOperation(Value, frozen=True):
    """A tool call. `effect` is None for an unknown tool.

    `speculative`: the call was started on its first argument. It ends as cancelled if more arguments arrive.
    """

    call: ToolCall
    effect: Effect | None = None
    run_id: str = ""
    speculative: bool = False


class ApprovalOperation(Value, frozen=True):
    """A request for the approval of a tool call."""

    tool: str
    arguments: Object
    reason: str


ObservedOperation: TypeAlias = AgentOperation | ModelOperation | ToolOperation | ApprovalOperation


class OperationOutcome(Value, frozen=True):
    """The end of an operation. Fields of other kinds of operations keep their defaults.

    `error` is the exception that ended the operation, including a cancellation. `reason` is why an agent gave up, or why
    a person denied a call. `decision` of an approval is "approved", with `arguments` if a person edited them, "denied" or
    "suspended"; an agent whose run waits for approval has the decision "suspended". `usage` and `cost` of an agent are
    totals. `losses` are from the request, as far as the model reports them.
    """

    response: Response | None = None
    result: ToolResult | None = None
    error: BaseException | None = None
    reason: str = ""
    decision: str = ""
    arguments: Object | None = None
    usage: Usage | None = None
    cost: float | None = None
    losses: tuple[Loss, ...] = ()
    first_event_seconds: float | None = None


EndOperation: TypeAlias = Callable[[OperationOutcome], None]


class Observer(Protocol):
    """Receives the start and the end of operations. An exception in an observer is logged and has no other effect."""

    def start(self, operation: ObservedOperation, /) -> EndOperation | None:
        """Start observing an operation. Return the function to call at its end, or None."""


@runtime_checkable
class ProgressObserver(Protocol):
    """An observer that also receives the progress that tools report. It may be called from any thread."""

    def progressed(self, context: CallContext[Any], message: str, fraction: float | None) -> None: ...


class Retriever(Protocol):
    """Selects the tools that a conversation offers. `choose` may be called in any thread."""

    def choose(self, request: Request, tools: Sequence[Tool], offered: Sequence[str]) -> Sequence[Tool]:
        """Return the tools to offer: those in `offered` first, in this order, then new ones.

        `offered`: the names of the tools that the conversation offered before. The set of an agent only grows: a tool
        that is left out here stays offered, because the prompt cache of the provider depends on an unchanged beginning.
        """
        ...


@runtime_checkable
class ToolSearcher(Protocol):
    """A retriever that also finds tools for a query of the model. With it, an agent offers the tool `search_tools`."""

    def search(self, query: str, tools: Sequence[Tool], k: int) -> Sequence[Tool]:
        """Return up to `k` of these tools, the best first."""
        ...


_run_observers: ContextVar[tuple[Observer, ...]] = ContextVar("toolwire_run_observers", default=())


def active_observers(own: Sequence[Observer]) -> Sequence[Observer]:
    """Return the observers of an operation: from the runs around it, then its own. Of equal ones, its own is used.

    So the runs of subagents, and the operations after a transfer to another agent, are a part of an observed run.
    """
    outer = _run_observers.get()
    return (*(observer for observer in outer if observer not in own), *own) if outer else own


observed_losses: ContextVar[Losses | None] = ContextVar("toolwire_losses", default=None)
"""Collects the losses of the current model request; None if it is not observed. A model client adds to it."""


run_losses: ContextVar[Losses | None] = ContextVar("toolwire_run_losses", default=None)
"""Collects the losses of the current model request for the answer of its run. A model client logs these as well."""


class Observation:
    """An operation in progress, as a context manager. Set `outcome` before the end; an exception is an outcome, too.

    The observers of the runs around it are notified as well. Observers end in the reverse order of their start, so that each restores the context that it found.
    """

    __slots__ = ("_ends", "_losses", "_observers", "_operation", "_outer", "_outer_losses", "outcome")

    def __init__(self, observers: Sequence[Observer], operation: ObservedOperation) -> None:
        self._observers = active_observers(observers)
        self._outer = _run_observers.get()
        self._operation = operation
        self._ends: list[EndOperation] = []
        self._losses: Losses | None = None
        self._outer_losses: Losses | None = None
        self.outcome = _NOTHING

    def __enter__(self) -> Observation:
        """Start the observers. A run makes them the observers of everything inside it; a request collects losses."""
        if self._observers and isinstance(self._operation, AgentOperation):
            _run_observers.set(tuple(self._observers))
        for observer in self._observers:
            try:
                end = observer.start(self._operation)
            except Exception:  # noqa: BLE001  # a failing observer must not fail the operation
                _log.exception("an observer raised an exception")
            else:
                if end is not None:
                    self._ends.append(end)
        if self._ends and isinstance(self._operation, ModelOperation):
            self._losses, self._outer_losses = Losses(), observed_losses.get()
            observed_losses.set(self._losses)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Restore the outer observers and losses, and report the outcome to the observers, the last one first."""
        outcome = self.outcome if error is None else OperationOutcome(error=error)
        if self._losses is not None:
            outcome = replace(outcome, losses=tuple(self._losses))
            observed_losses.set(self._outer_losses)
            if (collected_losses := run_losses.get()) is not None:
                collected_losses.extend(self._losses)
        if self._observers and isinstance(self._operation, AgentOperation):
            _run_observers.set(self._outer)
        for end in reversed(self._ends):
            try:
                end(outcome)
            except Exception:  # noqa: BLE001
                _log.exception("an observer raised an exception")


_NOTHING = OperationOutcome()


def progress_sink(observers: Sequence[Observer]) -> ProgressSink | None:
    """Return the function that passes progress to the observers with a method `progressed`; None without one."""
    sinks = [observer.progressed for observer in observers if isinstance(observer, ProgressObserver)]
    if not sinks:
        return None

    def report(context: CallContext[Any], message: str, fraction: float | None) -> None:
        for sink in sinks:
            _call_safely(lambda target=sink: target(context, message, fraction))  # type: ignore[misc]

    return report


def combine_sinks(first: ProgressSink | None, second: ProgressSink | None) -> ProgressSink | None:
    """Return a sink that calls both sinks, or the only one that is not None."""
    if first is None or second is None:
        return first or second

    def report(context: CallContext[Any], message: str, fraction: float | None) -> None:
        first(context, message, fraction)
        second(context, message, fraction)

    return report


def _call_safely(notify: Callable[[], None]) -> None:
    try:
        notify()
    except Exception:  # noqa: BLE001  # a failing observer must not fail the call
        _log.exception("an observer raised an exception")
