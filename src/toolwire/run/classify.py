"""Classify the outcome of a function: the result that the model reads, and whether the call had an effect."""

from __future__ import annotations

from typing import Literal, TypeAlias

from ..ir.parts import ToolCall, ToolResult
from ..ir.tools import Effect
from .failures import NotExecuted, ToolError, Transient
from .requests import ArgumentMismatch, Failed, Returned, TimedOut
from .results import annotate, error_text, refusal, sized_result, unserialisable_result

__all__ = ["EffectState", "classify"]

EffectState: TypeAlias = Literal["done", "unknown", "nothing"]
"""`done`: the function finished. `unknown`: the call may or may not have had an effect. `nothing`: it had none."""


def classify(
    call: ToolCall, effect: Effect, outcome: Returned | Failed | TimedOut | ArgumentMismatch
) -> tuple[ToolResult, int | None, EffectState]:
    """Return the result, the upper bound of its length in characters (None if not known), and the ending."""
    if isinstance(outcome, Returned):
        try:
            return *sized_result(call, outcome.value), "done"
        except Exception as error:  # noqa: BLE001  # encoding a user-defined value may raise anything
            return unserialisable_result(call, error), None, "done"
    if isinstance(outcome, TimedOut):
        return _timed_out(call, effect, outcome.seconds)
    if isinstance(outcome, ArgumentMismatch):
        words = f"Nothing was run: {outcome.words}. Call it again."
        return refusal(call, "invalid_arguments", words), None, "nothing"
    return _failed(call, effect, outcome.error)


def _timed_out(call: ToolCall, effect: Effect, seconds: float) -> tuple[ToolResult, None, EffectState]:
    words = f"{call.name} did not finish within {seconds:g} seconds."
    if effect == "write":
        return refusal(call, "outcome_unknown", f"{words} It may have taken effect."), None, "unknown"
    after = " It changed nothing." if effect in ("pure", "read") else ""
    return refusal(call, "timeout", words + after), None, "nothing"


def _failed(call: ToolCall, effect: Effect, error: BaseException) -> tuple[ToolResult, None, EffectState]:
    if isinstance(error, ToolError):
        said = error_text(error, name=False) or "The tool refused."
        return annotate(call.result(said, is_error=True), code="failed"), None, "done"
    untouched = isinstance(error, NotExecuted) or (isinstance(error, Transient) and error.before_effect)
    if untouched or effect in ("pure", "read", "idempotent"):
        return refusal(call, "failed", f"{call.name} failed: {error_text(error)}"), None, "nothing"
    said = f"{call.name} failed and may have taken effect before that: {error_text(error)}"
    return refusal(call, "outcome_unknown", said), None, "unknown"
