"""Print the outcome of a run: its events as JSON Lines, the calls of a dry run, and the end.

The end is an answer, or the reason why there is none and the waiting calls.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import datetime
from shlex import quote
from typing import TYPE_CHECKING, Any

import msgspec

from ...ir.events import CallDelta, CallStart, ReasoningDelta, TextDelta, UsageUpdate
from ...ir.parts import ToolCall, ToolResult
from ...ir.pointer import Object
from ...ir.terminal import neutralise_json, neutralise_line, reveal_line
from ...ir.text import dumps, shorten
from ..terminal.output import command_lines, json_text, paint, print_note, table, text_lines
from .options import place_options, resume_command

if TYPE_CHECKING:
    from ...net.agent.answers import Answer
    from ...run.calls.plan import CallPlan
    from ...run.calls.steps import Approve
    from ...run.values.waiting import WaitingCall


# Print the events of a run as JSON Lines: one object per line, as they happen, the answer last.
#
# The shapes are documented in docs/chat-and-run.md; fields are added, never renamed.


class JsonEvents:
    """Print the events of an agent. The answer is returned, not printed: the caller adds its own fields to it."""

    def __init__(self) -> None:
        self._calls: dict[int, str] = {}  # event key → call id

    def show(self, event: Any) -> Answer | None:
        """Print one event; return the Answer if the event is the final one, otherwise None."""
        from ...net.agent.answers import Answer
        from ...run.session.partial_output import PartialOutput

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
            print_event({"type": "usage", **_counts(event.usage)})
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
    """Return the last event of a run.

    `plans` are the calls of a dry run, None otherwise; the cost is null unless `is_priced`.
    """
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
    from ...run.values.results import result_code

    shown = {"call_id": result.call_id, "name": result.name, "text": result.text, "is_error": result.is_error}
    return {"type": "result", **shown, "code": result_code(result)}


def _counts(usage: Any) -> Object:
    names = ("input", "output", "cached", "reasoning")
    return {name: value for name in names if (value := getattr(usage, name)) is not None}


_MAX_DETAILS = 120  # characters of the last column; the width of a wide terminal


def plans_of(event: object) -> list[CallPlan]:
    from ...run.calls.plan import plan_of

    plan = plan_of(event) if isinstance(event, ToolResult) else None
    return [] if plan is None else [plan]


def print_plans(plans: list[CallPlan]) -> None:
    """Print the calls of a dry run as a table, in the order in which the model made them."""
    if not plans:
        print("dry run: the model made no calls")
        return
    print("\ndry run: nothing was executed")
    rows = [
        (plan.tool, plan.verdict.replace("_", " "), plan.effect or "-", plan.resource or "-", _plan_details(plan))
        for plan in plans
    ]
    print("\n".join(table(rows, ("tool", "verdict", "effect", "resource", "details"), hide=("resource",))))


def _plan_details(plan: CallPlan) -> str:
    """Describe a plan in one line of limited length: its preview or its arguments, and the reason of its verdict."""
    preview = plan.preview if isinstance(plan.preview, str) else dumps(plan.preview)
    details = [dumps(plan.arguments) if plan.preview is None else preview, plan.why, plan.preview_error]
    return shorten(neutralise_line("; ".join(detail for detail in details if detail)), _MAX_DETAILS)


def print_outcome(
    answer: Answer[Any],
    arguments: argparse.Namespace,
    plans: list[CallPlan] | None = None,
    *,
    is_structured: bool = False,
) -> int:
    """Print the outcome of a run whose text was printed already. Return the exit code: 1 without an answer.

    `plans`: the calls of a dry run. `is_structured`: the answer is a JSON value, which was not printed.
    """
    if arguments.json:
        print_event(answer_document(answer, plans, is_priced=arguments.price is not None))
    elif answer.suspended:
        _print_waiting(answer, arguments)
    elif not answer.finished:
        print_no_answer(answer.reason)
    elif is_structured:
        print(json_text(answer.output))
    else:
        report_incomplete_answer(answer)
    return 0 if answer.finished else 1


def print_no_answer(reason: str) -> None:
    print_note(f"no answer: {neutralise_line(reason)}", "red")


def report_incomplete_answer(answer: Answer[Any]) -> None:
    """Report an empty answer, and one that ended at a token limit: its text may stop in the middle of a sentence."""
    if not answer.text.strip():
        print_note("the answer is empty")
    stop = None if answer.response is None else answer.response.stop
    if stop is not None and stop.reason == "length":
        print_note("the answer ended at the token limit of the model")


def _print_waiting(answer: Answer[Any], arguments: argparse.Namespace) -> None:
    """Print the waiting calls, and the commands that decide about them and continue the run."""
    option = place_options(arguments)
    for call in answer.pending:
        verb = "approve" if call.needs == "approval" else "supply"
        end = "" if verb == "approve" else " --result JSON"
        print("\n".join(text_lines(describe_waiting(call), stream=sys.stderr)), file=sys.stderr)
        command = f"toolwire runs {verb} {answer.run_id} {quote(call.call_id)}{end}{option}"
        for line in command_lines(command, "  ", sys.stderr):
            print(paint(line, "yellow", sys.stderr), file=sys.stderr)
    command = f"then continue with: {resume_command(arguments, answer.run_id)}"
    print("\n".join(command_lines(command, stream=sys.stderr)), file=sys.stderr)


def describe_waiting(call: WaitingCall) -> str:
    """Return the lines that a person reads before deciding: the call, reason, state, expiry and nested calls.

    Invisible characters are made visible.
    """
    question = f"{call.tool}({dumps(call.arguments)})"
    needs = "approval" if call.needs == "approval" else "a result"
    lines = [f"waits for {needs}: {reveal_line(call.call_id)}", f"  {reveal_line(question)}"]
    if call.why:
        lines.append(f"  reason: {reveal_line(call.why)}")
    if call.state is not None:
        lines.append(f"  state: {reveal_line(dumps(call.state))}")
    if call.expires_at:
        lines.append(f"  expires: {format_time(call.expires_at)}")
    lines += [f"  nested: {reveal_line(inner.tool)}({reveal_line(dumps(inner.arguments))})" for inner in call.calls]
    return "\n".join(lines)


def format_age(seconds: float) -> str:
    """Format a past time of a store, relative to now: "3 min ago"."""
    age = max(time.time() - seconds, 0)
    if age < 60:
        return "just now"
    size, unit = (60, "min") if age < 3600 else (3600, "h") if age < 86400 else (86400, "d")
    return f"{age // size:.0f} {unit} ago"


def format_time(seconds: float) -> str:
    """Format a time of a store in the local time zone; "never" for an infinite one."""
    try:
        return datetime.fromtimestamp(seconds).astimezone().isoformat(" ", "seconds")
    except (OverflowError, ValueError):
        return "never"
