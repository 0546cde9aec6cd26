"""Calls that another model repaired: they are marked, and a repaired call with effects is never run.

The text of the repairing model is untrusted. Its arguments pass all gates, like those of any call. In addition, a tool
that changes something (`idempotent`, `write`) runs only with arguments of the model that the user talks to: the repaired
arguments are returned to that model as a suggestion, and it has to make the call itself.
"""

from __future__ import annotations

from msgspec.structs import replace

from ..ir.events import CallStart, Event
from ..ir.parts import Extra, ToolCall, ToolResult
from ..ir.pointer import Object
from ..ir.response import Response
from ..ir.text import dumps
from ..ir.tools import Effect
from .results import NOTES_KEY, annotate, refusal

__all__ = ["is_suggestion", "mark_repaired", "mark_repaired_event", "refuse_repaired_call", "repairing_model"]

_NOTE = "repaired_by"
_SUGGESTED = "suggested_arguments"
_MAX_SUGGESTION = 4000  # characters of arguments


def mark_repaired(response: Response, model: str) -> Response:
    """Mark all calls of a response as repaired by `model`."""
    parts = [_mark_call(part, model) if isinstance(part, ToolCall) else part for part in response.parts]
    return replace(response, parts=tuple(parts))


def mark_repaired_event(event: Event, model: str) -> Event:
    """Like `mark_repaired`, for the events of a stream."""
    return replace(event, extra=_with_note(event.extra, model)) if isinstance(event, CallStart) else event


def _mark_call(call: ToolCall, model: str) -> ToolCall:
    return replace(call, extra=_with_note(call.extra, model))


def _with_note(extra: Extra, model: str) -> Extra:
    return {**extra, NOTES_KEY: {**extra.get(NOTES_KEY, {}), _NOTE: model}}


def repairing_model(call: ToolCall) -> str | None:
    """Return the model that repaired a call; None for a call as its own model made it."""
    model: str | None = call.extra.get(NOTES_KEY, {}).get(_NOTE)
    return model


def refuse_repaired_call(call: ToolCall, arguments: Object, effect: Effect) -> ToolResult | None:
    """Return the refusal of a repaired call that may have effects, with `arguments` as a suggestion; else None."""
    if effect in ("pure", "read") or repairing_model(call) is None:
        return None
    message = (
        f"Your call of {call.name} could not be parsed, and nothing was run. If you meant these arguments, make the call "
        f"with them yourself: {dumps(arguments)[:_MAX_SUGGESTION]}"
    )
    return annotate(refusal(call, "invalid_arguments", message), **{_SUGGESTED: arguments})


def is_suggestion(result: ToolResult) -> bool:
    """Return whether a result is the refusal of a repaired call, with its arguments as a suggestion."""
    return _SUGGESTED in result.extra.get(NOTES_KEY, {})
