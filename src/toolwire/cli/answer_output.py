"""Print the end of a run: as JSON, or the reason why there is no answer and the waiting calls."""

from __future__ import annotations

import argparse
import sys
from datetime import datetime
from shlex import quote
from typing import TYPE_CHECKING, Any

from ..ir.terminal import neutralise_line, reveal_line
from ..ir.text import dumps
from .agent_options import place_options, resume_command
from .run_events import answer_document, print_event
from .show import json_text, paint

if TYPE_CHECKING:
    from ..net.agent.answers import Answer
    from ..run.calls.plan import CallPlan
    from ..run.values.waiting import WaitingCall

__all__ = ["describe_waiting", "format_time", "print_no_answer", "print_outcome", "report_incomplete_answer"]


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
    print(paint(f"no answer: {neutralise_line(reason)}", "red", sys.stderr), file=sys.stderr)


def report_incomplete_answer(answer: Answer[Any]) -> None:
    """Report an empty answer, and one that ended at a token limit: its text may stop in the middle of a sentence."""
    if not answer.text.strip():
        print(paint("the answer is empty", "yellow", sys.stderr), file=sys.stderr)
    stop = None if answer.response is None else answer.response.stop
    if stop is not None and stop.reason == "length":
        print(paint("the answer ended at the token limit of the model", "yellow", sys.stderr), file=sys.stderr)


def _print_waiting(answer: Answer[Any], arguments: argparse.Namespace) -> None:
    """Print the waiting calls, and the commands that decide about them and continue the run."""
    option = place_options(arguments)
    for call in answer.pending:
        verb = "approve" if call.needs == "approval" else "supply"
        end = "" if verb == "approve" else " --result JSON"
        print(describe_waiting(call), file=sys.stderr)
        command = f"toolwire runs {verb} {answer.run_id} {quote(call.call_id)}{end}{option}"
        print(paint(f"  {neutralise_line(command)}", "yellow", sys.stderr), file=sys.stderr)
    command = resume_command(arguments, answer.run_id)
    print(f"then continue with: {neutralise_line(command)}", file=sys.stderr)


def describe_waiting(call: WaitingCall) -> str:
    """Return the lines that a person reads before deciding."""
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


def format_time(seconds: float) -> str:
    """Format a time of a store in the local time zone; "never" for an infinite one."""
    try:
        return datetime.fromtimestamp(seconds).astimezone().isoformat(" ", "seconds")
    except (OverflowError, ValueError):
        return "never"
