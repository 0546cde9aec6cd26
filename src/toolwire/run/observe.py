"""Who wants to know: tracing, metrics, a live view. And who chooses tools among thousands. Both plug in from above."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from ..ir.parts import ToolCall, ToolResult
from ..ir.request import Request
from ..ir.response import Response
from ..ir.tools import Tool

__all__ = ["Observer", "Retriever", "observed", "told"]

_log = logging.getLogger("toolwire.run")


class Observer(Protocol):
    """Told of what happened. What an observer raises is logged and changes nothing."""

    def called(self, call: ToolCall, result: ToolResult, seconds: float) -> None: ...

    def asked(self, request: Request, response: Response, seconds: float) -> None: ...


class Retriever(Protocol):
    """Chooses the tools that a request offers."""

    def choose(self, request: Request, tools: Sequence[Tool]) -> Sequence[Tool]: ...


def observed(observers: Sequence[Observer], call: ToolCall, result: ToolResult, seconds: float) -> None:
    """Tells all of a call."""
    for observer in observers:
        _safely(lambda one=observer: one.called(call, result, seconds))  # type: ignore[misc]


def told(observers: Sequence[Observer], request: Request, response: Response, seconds: float) -> None:
    """Tells all of an answer."""
    for observer in observers:
        _safely(lambda one=observer: one.asked(request, response, seconds))  # type: ignore[misc]


def _safely(tell: Callable[[], None]) -> None:
    try:
        tell()
    except Exception:  # noqa: BLE001  # an observer is a guest
        _log.exception("an observer failed")
