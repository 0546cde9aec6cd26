"""Complete a history that contains calls without a result.

Separate because only a new run needs it: `history=` may end anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ..ir.parts import ToolCall, ToolResult
from ..ir.request import Message
from .results import refusal

__all__ = ["answer_open_calls"]

_NO_RESULT = (
    "No result: the call was not executed, or it was interrupted. Check whether it had an effect before you repeat it."
)


def answer_open_calls(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Add an error result for each call without a result, because providers require one result per call.

    Calls of the last message stay open: nothing follows them.
    """
    open_calls = _find_open_calls(messages[:-1], messages)
    if not open_calls:
        return messages
    completed: list[Message] = []
    missing: list[ToolResult] = []
    for index, message in enumerate(messages):
        if missing and message.role != "assistant":
            if any(isinstance(part, ToolResult) for part in message.parts):
                message = replace(message, parts=(*missing, *message.parts))
            else:
                completed.append(Message("user", tuple(missing)))
            missing = []
        completed.append(message)
        missing += [refusal(call, "cancelled", _NO_RESULT) for call in open_calls.get(index, ())]
    return tuple(completed)


def _find_open_calls(calling: Sequence[Message], messages: Sequence[Message]) -> dict[int, list[ToolCall]]:
    """Return the calls of `calling` that have no result in `messages`, by the index of their message.

    A result belongs to the first open call with its id: a model may repeat an id in a later turn.
    """
    by_id: dict[str, list[tuple[int, ToolCall]]] = {}
    for index, message in enumerate(messages):
        for part in message.parts:
            if isinstance(part, ToolCall) and part.id and index < len(calling):
                by_id.setdefault(part.id, []).append((index, part))
            elif isinstance(part, ToolResult) and by_id.get(part.call_id):
                by_id[part.call_id].pop(0)
    open_calls: dict[int, list[ToolCall]] = {}
    for index, call in sorted((found for calls in by_id.values() for found in calls), key=lambda found: found[0]):
        open_calls.setdefault(index, []).append(call)
    return open_calls
