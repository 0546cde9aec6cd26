"""Mark untrusted tool output, and find it in a conversation that a run continues."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..ir.parts import ToolCall, ToolResult
from ..ir.request import Message
from .results import annotate, result_note

__all__ = ["has_untrusted_output", "is_untrusted", "mark_untrusted"]


def is_untrusted(result: ToolResult) -> bool:
    """Return True for a result that was marked as untrusted output when its call ran."""
    return result_note(result, "untrusted") is True


def mark_untrusted(
    calls: Iterable[ToolCall], results: Iterable[ToolResult], untrusted: Collection[str]
) -> tuple[ToolResult, ...]:
    """Mark the results of untrusted tools. The mark stays in the history, which other agents may read."""
    return tuple(
        annotate(result, untrusted=True) if call.name in untrusted else result
        for call, result in zip(calls, results, strict=True)
    )


def has_untrusted_output(messages: Iterable[Message], untrusted: Collection[str]) -> bool:
    """Return True if a conversation contains a marked result, or a result of a tool in `untrusted`."""
    call_ids: set[str] = set()
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                if part.name in untrusted:
                    call_ids.add(part.id)
            elif isinstance(part, ToolResult):
                if is_untrusted(part) or part.name in untrusted or part.call_id in call_ids:
                    return True
    return False
