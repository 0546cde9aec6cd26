"""Print the events of a run as JSON Lines: one object per line, as they happen, the answer last.

The shapes are documented in docs/chat-and-run.md; fields are added, never renamed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..ir.pointer import Object
from ..ir.terminal import neutralise_json

if TYPE_CHECKING:
    from ..ir.events import UsageUpdate
    from ..ir.parts import ToolCall, ToolResult
    from ..net.agent.answers import Answer
    from ..run.calls.plan import CallPlan
    from ..run.calls.steps import Approve

__all__ = ["JsonEvents", "answer_document", "print_event"]


class JsonEvents:
    """Print the events of an agent. The answer is returned, not printed: the caller adds its own fields to it."""

    def __init__(self) -> None:
        self._calls: dict[int, str] = {}  # event key → call id

    def show(self, event: Any) -> Answer | None:
        """Print one event; return the Answer if the event is the final one, otherwise None."""
        from ..ir.events import CallDelta, CallStart, ReasoningDelta, TextDelta, UsageUpdate
        from ..ir.parts import ToolCall, ToolResult
        from ..net.agent.answers import Answer
        from ..run.session.partial_output import PartialOutput

        if isinstance(event, Answer):
            return event
        if isinstance(event, TextDelta):
            print_event({"type": "text", "text": event.text})
        elif isinstance(event, ReasoningDelta):
            print_event({"type": "reasoning", "text": event.text})
        elif isinstance(event, CallStart):
            self._calls[event.key] = event.id
            print_event({"type": "call_start", "id": event.id, "name": event.name})
        elif isinstance(event, CallDelta):
            print_event({"type": "call_delta", "id": self._calls[event.key], "text": event.text})
        elif isinstance(event, ToolCall):
            print_event(_call_document(event))
        elif isinstance(event, ToolResult):
            print_event(_result_document(event))
        elif isinstance(event, PartialOutput):
            print_event({"type": "partial_output", "value": event.value})
        elif isinstance(event, UsageUpdate):
            print_event(_usage_document(event))
        return None

    def show_question(self, step: Approve) -> None:
        """Print the question about a call that needs approval."""
        document = {"call_id": step.call_id, "tool": step.tool, "effect": step.effect, "arguments": step.arguments}
        print_event({"type": "approval", **document, "why": step.why})

    def close(self) -> None:
        """Do nothing: every event is a complete line."""


def print_event(document: Object) -> None:
    """Print one line. Lone surrogates, which UTF-8 cannot represent, are escaped."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    print(neutralise_json(text), flush=True)


def answer_document(answer: Answer[Any], plans: list[CallPlan] | None, *, is_priced: bool) -> Object:
    """Return the last event of a run. `plans`: the calls of a dry run. `is_priced`: the cost is known."""
    import msgspec

    document: Object = {
        "type": "answer",
        "text": answer.text,
        "finished": answer.finished,
        "reason": answer.reason,
        "run_id": answer.run_id,
        "usage": _counts(answer.usage) or None,
        "cost": answer.cost if is_priced else None,
        "pending": [msgspec.to_builtins(call) for call in answer.pending],
        "messages": msgspec.to_builtins(answer.messages),
    }
    if answer.finished and not isinstance(answer.value, str):
        document["output"] = answer.value
    if plans is not None:
        document["plan"] = [msgspec.structs.asdict(plan) for plan in plans]
    return document


def _call_document(call: ToolCall) -> Object:
    return {"type": "call", "id": call.id, "name": call.name, "arguments": call.arguments, "state": call.state}


def _result_document(result: ToolResult) -> Object:
    from ..run.values.results import result_code

    shown = {"call_id": result.call_id, "name": result.name, "text": result.text, "is_error": result.is_error}
    return {"type": "result", **shown, "code": result_code(result)}


def _usage_document(event: UsageUpdate) -> Object:
    return {"type": "usage", **_counts(event.usage)}


def _counts(usage: Any) -> Object:
    names = ("input", "output", "cached", "reasoning")
    return {name: value for name in names if (value := getattr(usage, name)) is not None}
