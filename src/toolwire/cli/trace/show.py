"""`toolwire trace show`: show a recorded run or exchange.

An agent run is a timeline of its requests, calls and approvals, then calls, results and losses.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...ir.errors import ConfigError
from ...ir.response import Usage
from ...ir.terminal import count_of, neutralise_line
from ...ir.text import dumps
from ...run.traces.format import (
    ApprovalDecided,
    CallStarted,
    OperationFailed,
    RequestSent,
    ResponseReceived,
    ResultReturned,
    RunEnded,
    RunStarted,
)
from ..terminal.output import json_text, losses_table, paint, print_note, table
from .exchange import (
    CONTENT_HEADERS,
    MAX_CONTENT,
    MAX_LISTED,
    TimelineRow,
    draw_timeline,
    exchange_as_json,
    format_ms,
    print_exchange,
    print_title,
    short_line,
)

if TYPE_CHECKING:
    from ...run.traces.recordings import ExchangeTrace, RecordedSpan, RunTrace


_COLOURS = {"run": "green", "request": "blue", "call": "yellow", "approval": "dim"}


def print_run(trace: RunTrace, *, bodies: bool, most: int) -> None:
    """Print the timeline, calls, results and losses, and with `bodies` all documents. `most`: characters of a result."""
    print_title(_title_fields(trace))
    print()
    print("\n".join(draw_timeline([_row(span) for span in trace.spans], trace.duration_ms)))
    rows = _detail_rows(trace, most)
    if rows:
        print()
        print("\n".join(table(rows, CONTENT_HEADERS, bold=True)))
    if trace.losses:
        print(f"\n{paint('losses', 'bold')}")
        print("\n".join(losses_table(trace.losses, sys.stdout)))
    if bodies:
        _print_bodies(trace)


def _title_fields(trace: RunTrace) -> list[str]:
    """Summarise the run: agent, model, numbers of requests and calls, tokens, cost, and the end."""
    start, end = trace.root.start, trace.root.end
    requests = [span.start for span in trace.spans if isinstance(span.start, RequestSent)]
    calls = [span for span in trace.spans if isinstance(span.start, CallStarted)]
    name = start.agent if isinstance(start, RunStarted) else ""
    fields = [" ".join(filter(None, ("run", name or trace.header.id)))]
    fields += list(dict.fromkeys(request.model for request in requests if request.model))[:3]
    fields += [count_of(len(requests), "request"), count_of(len(calls), "call")]
    fields.append(format_ms(trace.duration_ms))
    if isinstance(end, RunEnded):
        tokens = _format_usage(end.usage)
        fields += [f"tokens {tokens}" if tokens else "", _format_cost(end.cost), end.reason]
    elif isinstance(end, OperationFailed):
        fields.append(end.type)
    else:
        fields.append("interrupted")
    return fields


def _format_usage(usage: Usage | None) -> str:
    if usage is None or (usage.input is None and usage.output is None):
        return ""
    return f"{usage.input or 0} in, {usage.output or 0} out"


def _format_cost(cost: float | None) -> str:
    return "" if not cost else f"cost {cost:.6g}"


def _row(span: RecordedSpan) -> TimelineRow:
    kind, label = _kind_and_label(span)
    note, failed = _note(span)
    colour = "red" if failed else _COLOURS[kind]
    return TimelineRow(label, span.start.ms, None if span.end is None else span.end.ms, note, colour, span.depth)


def _kind_and_label(span: RecordedSpan) -> tuple[str, str]:
    """Return the kind and the label of a span for the timeline."""
    start = span.start
    if isinstance(start, RunStarted):
        return "run", f"agent {start.agent}".rstrip()
    if isinstance(start, RequestSent):
        return "request", " ".join(filter(None, (start.model or "model", start.purpose)))
    if isinstance(start, CallStarted):
        name = start.call.get("name", "") if isinstance(start.call, dict) else ""
        return "call", f"{name} ({start.effect or 'unknown tool'})"
    return "approval", "approval"


def _note(span: RecordedSpan) -> tuple[str, bool]:
    """Return a note about the end of a span, and whether it failed; a span without an end has failed."""
    end = span.end
    if isinstance(end, OperationFailed):
        return end.type, True
    if isinstance(end, RunEnded):
        return end.reason, bool(end.reason)
    if isinstance(end, ResponseReceived):
        return _response_note(end.body, end.cost)
    if isinstance(end, ResultReturned):
        failed = isinstance(end.result, dict) and bool(end.result.get("is_error"))
        return ("error" if failed and end.code == "ok" else end.code), failed
    if isinstance(end, ApprovalDecided):
        return end.decision, end.decision == "denied"
    return "", True


def _response_note(body: Any, cost: float | None) -> tuple[str, bool]:
    document = body if isinstance(body, dict) else {}
    usage = document.get("usage") or {}
    fault = document.get("fault") or {}
    tokens = _format_usage(Usage(usage.get("input"), usage.get("output")))
    return ", ".join(filter(None, (fault.get("kind"), tokens, _format_cost(cost)))), bool(fault)


def _detail_rows(trace: RunTrace, most: int) -> list[tuple[str, str, str]]:
    """Return the calls with arguments and results, and the text of the last response."""
    rows: list[tuple[str, str, str]] = []
    text = ""
    for span in trace.spans:
        start, end = span.start, span.end
        if isinstance(start, CallStarted) and isinstance(start.call, dict):
            name = str(start.call.get("name", ""))
            rows.append(("call", name, short_line(_arguments_text(start.call), most)))
            if isinstance(end, ResultReturned):
                rows.append(("result", name, short_line(_result_text(end.result), most)))
        elif isinstance(end, ResponseReceived) and span.depth <= 1 and isinstance(end.body, dict):
            text = "".join(part.get("text", "") for part in end.body.get("parts", []) if part.get("part") == "text")
    return [*rows, ("text", "", short_line(text, most))] if text else rows


def _arguments_text(call: dict[str, Any]) -> str:
    return dumps(call["arguments"]) if call.get("arguments") is not None else str(call.get("raw") or "{}")


def _result_text(result: Any) -> str:
    if not isinstance(result, dict):
        return str(result or "")
    text = "".join(part.get("text", "") for part in result.get("parts", []) if part.get("part") == "text")
    return text if text or result.get("structured") is None else dumps(result["structured"])


def _print_bodies(trace: RunTrace) -> None:
    for span in trace.spans:
        _, label = _kind_and_label(span)
        for event in filter(None, (span.start, span.end)):
            document = msgspec.to_builtins(event)
            print(paint(neutralise_line(f"\n── {document['event']} {label} ──".lstrip()), "bold"))
            print(json_text(document))


def run_as_json(trace: RunTrace) -> dict[str, Any]:
    """Return a recorded run as JSON, with its spans and the timeline."""
    return {
        "kind": "run",
        "id": trace.header.id,
        "recorded": trace.header.recorded,
        "ms": trace.duration_ms,
        "spans": msgspec.to_builtins(trace.spans),
        "losses": msgspec.to_builtins(trace.losses),
        "timeline": [_row(span)._asdict() for span in trace.spans],
    }


def show(arguments: argparse.Namespace) -> int:
    """Print the traces of a file. A file of any other kind is an error."""
    from ...run.traces.recordings import RunTrace

    traces = _load_traces(arguments)
    if arguments.json:
        documents = [run_as_json(trace) if isinstance(trace, RunTrace) else exchange_as_json(trace) for trace in traces]
        print(json_text(documents[0] if len(documents) == 1 else documents))
        return 0
    most = MAX_CONTENT if len(traces) == 1 else MAX_LISTED
    for number, trace in enumerate(traces, 1):
        if len(traces) > 1:
            print(paint(f"{'' if number == 1 else chr(10)}── {number} of {len(traces)} ──", "dim"))
        if isinstance(trace, RunTrace):
            print_run(trace, bodies=arguments.bodies, most=most)
        else:
            print_exchange(trace, bodies=arguments.bodies, most=most)
    if not arguments.bodies:
        chosen = " --exchange N" if len(traces) > 1 else ""
        print_note(f"toolwire trace show {arguments.file}{chosen} --bodies shows the bodies", None)
    return 0


def load_trace(arguments: argparse.Namespace) -> RunTrace | ExchangeTrace:
    """Return the run or exchange in a file, or with `--store` a stored run.

    Raises `ToolwireError` for a file of another kind, and for a file of several traces without `--exchange`.
    """
    traces = _load_traces(arguments)
    if len(traces) > 1:
        raise ConfigError(f"{arguments.file} has {len(traces)} traces", hint="choose one with --exchange N")
    return traces[0]


def _load_traces(arguments: argparse.Namespace) -> list[RunTrace | ExchangeTrace]:
    """Return the traces of a file, or the one that --exchange names. Raises `ConfigError` if there is none."""
    from ...net.trace.file import read_traces
    from ...run.traces.recordings import exchange_of, run_of

    if arguments.store is not None:
        return [_load_stored_run(arguments)]
    path = Path(arguments.file)
    found = read_traces(path)
    number = arguments.exchange
    if number is not None and number > len(found):
        raise ConfigError(f"{path.name} has {count_of(len(found), 'exchange')}, and no number {number}")
    chosen = found if number is None else [found[number - 1]]
    return [(run_of if header.kind == "run" else exchange_of)(header, events, path.name) for header, events in chosen]


def _load_stored_run(arguments: argparse.Namespace) -> RunTrace:
    """Read a run of a store as a trace. The argument `file` is its id, or the unambiguous beginning of it."""
    from ...run.traces.redact import Redactor, environment_secrets
    from ...run.traces.sanitise import Sanitiser
    from ...run.traces.stored_run import trace_of_log
    from ...run.values.records import read_rows
    from ..agent.runs import find_run_id
    from ..sources.targets import open_store_at

    with closing(open_store_at(arguments.store, must_exist=True)) as store:
        stored = store.runs.get(find_run_id(store, arguments.file, arguments.tenant))
        assert stored is not None
        sanitiser = Sanitiser(Redactor(environment_secrets(os.environ)))
        return trace_of_log(stored.run_id, read_rows(store.runs, stored), sanitiser)
