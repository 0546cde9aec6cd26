"""Interfaces for plug-ins: observers (tracing, metrics, a live view), retrievers (tool selection among thousands)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from ..ir.parts import ToolCall, ToolResult
from ..ir.request import Request
from ..ir.response import Response
from ..ir.tools import Tool

__all__ = ["Observer", "Retriever", "notify_call", "notify_response"]

_log = logging.getLogger("toolwire.run")


class Observer(Protocol):
    """Receives completed calls and model responses. An exception in an observer is logged and has no other effect."""

    def called(self, call: ToolCall, result: ToolResult, seconds: float) -> None: ...

    def asked(self, request: Request, response: Response, seconds: float) -> None: ...


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


def _call_safely(notify: Callable[[], None]) -> None:
    try:
        notify()
    except Exception:  # noqa: BLE001  # a failing observer must not fail the call
        _log.exception("an observer raised an exception")
