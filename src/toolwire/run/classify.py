"""Classify the outcome of a function: the result that the model reads, and whether the call had an effect."""

from __future__ import annotations

from typing import Literal, TypeAlias

from ..ir.parts import ToolCall, ToolResult
from ..ir.tools import Effect
from .failures import NotExecuted, ToolError, Transient
from .results import annotate, error_text, exception_result, refusal, sized_result, unserialisable_result
from .steps import ArgumentMismatch, Failed, Returned, TimedOut
from .waiting import Suspended, suspend_call

__all__ = ["EffectState", "classify"]

EffectState: TypeAlias = Literal["done", "unknown", "nothing"]
"""`done`: the function finished. `unknown`: the call may or may not have had an effect. `nothing`: it had none."""


def classify(
    call: ToolCall, effect: Effect, outcome: Returned | Failed | TimedOut | ArgumentMismatch
) -> tuple[ToolResult, int | None, EffectState]:
    """Return the result, the upper bound of its length in characters (None if not known), and the effect state."""
    if isinstance(outcome, Returned):
        value = outcome.value
        if isinstance(value, Suspended):
            arguments = {} if call.arguments is None else call.arguments
            return suspend_call(call, arguments, value), None, "done"  # it ran, and does not run again
        try:
            result, size = sized_result(call, value)
            return result, size, "done"
        except Exception as error:  # noqa: BLE001  # encoding a user-defined value may raise anything
            return unserialisable_result(call, error), None, "done"
    if isinstance(outcome, TimedOut):
        return _timeout_result(call, effect, outcome.seconds)
    if isinstance(outcome, ArgumentMismatch):
        message = f"Nothing was run: {outcome.message}. Call it again."
        return refusal(call, "invalid_arguments", message), None, "nothing"
    return _failure_result(call, effect, outcome.error)


def _timeout_result(call: ToolCall, effect: Effect, seconds: float) -> tuple[ToolResult, None, EffectState]:
    message = f"{call.name} did not finish within {seconds:g} seconds."
    if effect == "write":
        return refusal(call, "outcome_unknown", f"{message} It may have taken effect."), None, "unknown"
    suffix = " It changed nothing." if effect in ("pure", "read") else ""
    return refusal(call, "timeout", message + suffix), None, "nothing"


def _failure_result(call: ToolCall, effect: Effect, error: BaseException) -> tuple[ToolResult, None, EffectState]:
    """Classify an exception. A write that failed is unknown, unless the error guarantees that it had no effect."""
    if isinstance(error, ToolError):
        text = error_text(error, name=False) or "The tool refused."
        return annotate(call.result(text, is_error=True), code="failed"), None, "done"
    had_no_effect = isinstance(error, NotExecuted) or (isinstance(error, Transient) and error.before_effect)
    if had_no_effect or effect in ("pure", "read", "idempotent"):
        return exception_result(call, "failed", f"{call.name} failed", error), None, "nothing"
    message = f"{call.name} failed and may have taken effect before that"
    return exception_result(call, "outcome_unknown", message, error), None, "unknown"
