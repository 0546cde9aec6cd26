"""Interfaces for plug-ins: observers (tracing, metrics, a live view), retrievers (tool selection among thousands)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from ..ir.parts import ToolCall, ToolResult
from ..ir.request import Request
from ..ir.response import Response
from ..ir.tools import Tool
from .context import CallContext, ProgressSink

__all__ = [
    "Observer",
    "ProgressObserver",
    "Retriever",
    "combine_sinks",
    "notify_call",
    "notify_response",
    "progress_sink",
]

_log = logging.getLogger("toolwire.run")


class Observer(Protocol):
    """Receives completed calls and model responses. An exception in an observer is logged and has no other effect."""

    def called(self, call: ToolCall, result: ToolResult, seconds: float) -> None: ...

    def asked(self, request: Request, response: Response, seconds: float) -> None: ...


@runtime_checkable
class ProgressObserver(Protocol):
    """An observer that also receives the progress that tools report. It may be called from any thread."""

    def progressed(self, context: CallContext[Any], message: str, fraction: float | None) -> None: ...


class Retriever(Protocol):
    """Selects the tools that a request offers."""

    def choose(self, request: Request, tools: Sequence[Tool]) -> Sequence[Tool]: ...


def notify_call(observers: Sequence[Observer], call: ToolCall, result: ToolResult, seconds: float) -> None:
    """Notify all observers of a completed call."""
    for observer in observers:
        _call_safely(lambda target=observer: target.called(call, result, seconds))  # type: ignore[misc]


def notify_response(observers: Sequence[Observer], request: Request, response: Response, seconds: float) -> None:
    """Notify all observers of a model response."""
    for observer in observers:
        _call_safely(lambda target=observer: target.asked(request, response, seconds))  # type: ignore[misc]


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
    """Return a sink that calls both sinks."""
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
