"""Durable runs on the command line: `run --durable`, and the runs of queues in `toolwire runs`.

The package dbos is imported only for a store that has queues.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec

from ...ir.errors import ConfigError
from ...ir.events import TextDelta, TextEnd
from ...ir.parts import Text, ToolCall, ToolResult
from ...ir.terminal import neutralise_line, neutralise_text
from ...ir.text import dumps
from ..sources.targets import store_url
from ..terminal.output import command_lines, json_text, print_note, table
from .live import LivePrinter
from .options import place_options
from .output import JsonEvents, describe_waiting, print_event, print_no_answer

if TYPE_CHECKING:
    from ...durable import DurableRuns, RunReport, RunUpdate
    from ...net.model.interface import PromptItem

DEFAULT_AGENT = "agent"
"""The name of the agent that `toolwire worker -t … -m …` makes from its options."""


def open_durable(arguments: argparse.Namespace) -> DurableRuns:
    """Open the queues of a store; they are created on first use."""
    from ...durable import DurableRuns

    return DurableRuns(store_url(arguments.store))


@contextmanager
def existing_queues(arguments: argparse.Namespace) -> Iterator[DurableRuns | None]:
    """Open the queues of a store, or yield None if it has none."""
    runs = None
    if find_spec("dbos") is not None:
        with suppress(ConfigError):  # a store that cannot have queues, such as Redis
            runs = open_durable(arguments)
    if runs is None:
        yield None
        return
    with runs:
        yield runs if runs.exists() else None


def find_report(arguments: argparse.Namespace, prefix: str) -> RunReport | None:
    """Return the report of a durable run by the beginning of its id. Raise ConfigError if several runs have it."""
    with existing_queues(arguments) as runs:
        found = [] if runs is None else runs.match(prefix)
        if len(found) > 1:
            raise ConfigError(f"several runs begin with {prefix!r}: {', '.join(found[:5])}", hint="give the whole id")
        return runs.report(found[0]) if runs is not None and found else None


def describe_status(report: RunReport, versions: set[str]) -> str:
    """Return the status, with the reason why a queued run does not start."""
    if report.status == "queued" and report.version is not None and report.version not in versions:
        return f"queued (no worker of version {report.version})"
    return report.status


def merge_runs(documents: list[dict[str, Any]], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the runs of a store and of its queues with the wanted status, the newest first."""
    merged = {document["run_id"]: document for document in documents}
    with existing_queues(arguments) as runs:
        reports, versions = ([], set()) if runs is None else (runs.list(arguments.limit), runs.live_versions())
    for report in reports:
        start = {"run_id": report.run_id, "summary": report.agent, "created_at": report.created_at}
        merged[report.run_id] = {
            "updated_at": report.changed_at,
            **start,
            **merged.get(report.run_id, {}),
            "status": describe_status(report, versions),
            "agent": report.agent,
            "queue": report.queue,
            "version": report.version,
        }
    wanted = arguments.status
    found = [run for run in merged.values() if wanted is None or run["status"].split(" ")[0] == wanted]
    return sorted(found, key=lambda run: -float(run["created_at"]))[: arguments.limit]


def show_report(report: RunReport, arguments: argparse.Namespace) -> int:
    """Print a durable run that is not in the store yet."""
    if arguments.json:
        print(json_text({"durable": msgspec.to_builtins(report)}))
    else:
        print("\n".join(table([("run", report.run_id), ("status", report.status), *report_rows(report)])))
    return 0


def report_rows(report: RunReport) -> list[tuple[str, str]]:
    """Return the lines of `runs show` about a durable run."""
    rows = [
        ("agent", report.agent),
        ("queue", report.queue + (f", tenant {report.tenant}" if report.tenant else "")),
        ("version", report.version or "-"),
        ("worker", report.executor or "-"),
        ("segment", str(report.segment)),
    ]
    if report.status == "done":
        rows.append(("output", _output_text(report)))
    return [*rows, ("reason", report.reason)] if report.reason else rows


def _output_text(report: RunReport) -> str:
    return report.output if isinstance(report.output, str) else dumps(report.output)


def run_durable(arguments: argparse.Namespace, prompt: list[PromptItem]) -> int:
    """Enqueue a run, print its events until it ends or waits, and return the exit code of `toolwire run`."""
    with closing(open_durable(arguments)) as runs:
        run_id = runs.enqueue(arguments.agent, prompt, queue=arguments.queue)
        if arguments.detach:
            print(json_text({"run_id": run_id}) if arguments.json else run_id)
            return 0
        if not arguments.quiet and not arguments.json:
            print_note(f"run {run_id} is in the queue {neutralise_line(arguments.queue)}", "dim")
        return follow_run(runs, run_id, arguments)


def follow_run(runs: DurableRuns, run_id: str, arguments: argparse.Namespace) -> int:
    """Print the events of a run until it ends or waits. Return 0 if it has an answer, else 1."""
    live: JsonEvents | LivePrinter = JsonEvents() if arguments.json else LivePrinter(shows_calls=not arguments.quiet)
    for update in runs.updates(run_id):
        _show_update(live, update)
    live.close()
    report = runs.report(run_id)
    if arguments.json:
        print_event({"type": "report", **msgspec.to_builtins(report)})
    elif report.status == "waiting":
        _print_pending(report, arguments)
    elif report.status == "done":
        if not isinstance(report.output, str):  # a text was printed as it arrived
            print(neutralise_text(_output_text(report)))
    else:
        print_no_answer(report.reason or report.status)
    return 0 if report.status == "done" else 1


def _show_update(live: JsonEvents | LivePrinter, update: RunUpdate) -> None:
    """Print the texts, calls and results that an event adds to the conversation, without the user's own messages."""
    for message in update.messages:
        for number, part in enumerate(message.parts):
            if isinstance(part, (ToolCall, ToolResult)):
                live.show(part)
            elif isinstance(part, Text) and message.role == "assistant":
                live.show(TextDelta.of(number, part.text))
                live.show(TextEnd(number))


def _print_pending(report: RunReport, arguments: argparse.Namespace) -> None:
    for call in report.pending:
        print(describe_waiting(call), file=sys.stderr)
        verb = "approve" if call.needs == "approval" else "supply"
        end = "" if verb == "approve" else " --result JSON"
        command = f"toolwire runs {verb} {report.run_id} {call.call_id}{end}{place_options(arguments)}"
        print("\n".join(command_lines(command, "  ", sys.stderr)), file=sys.stderr)
    print_note("the run continues after the decision, on a worker", None)


def change_run(arguments: argparse.Namespace, change: Callable[[DurableRuns, str], RunReport]) -> int:
    """Apply an operation to a durable run, and print its new status."""
    found = find_report(arguments, arguments.run_id)
    if found is None:
        raise ConfigError(f"there is no durable run {arguments.run_id!r}", hint="toolwire runs list")
    with closing(open_durable(arguments)) as runs:
        report = change(runs, found.run_id)
    if arguments.json:
        print(json_text(msgspec.to_builtins(report)))
    else:
        print(f"run {report.run_id} is {report.status}")
    return 0
