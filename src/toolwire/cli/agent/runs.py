"""`toolwire runs`: list, show, resume and delete stored runs, and decide about their waiting calls."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ...ir.errors import ConfigError
from ...ir.pointer import Object
from ...ir.terminal import count_of, neutralise_line
from ...run.values.records import RunConflict, RunStatus, Store, StoredRun, read_rows
from ...stream.strict import parse
from ..sources.targets import add_store_option, open_store_at
from ..terminal.options import add_command, add_flag
from ..terminal.output import command_lines, json_text, print_note, print_text, table, text_lines
from .durable import change_run, existing_queues, find_report, merge_runs, report_rows, show_report
from .options import (
    add_agent_options,
    add_model_options,
    add_tool_options,
    place_options,
)
from .output import describe_waiting, format_age, format_time

if TYPE_CHECKING:
    from ...run.session.loop import Session


_STATUSES = ("queued", "delayed", "waiting", "ready", "running", "interrupted", "done", "failed", "cancelled")
_MAX_LISTED = 1000  # latest runs, which are filtered here: a store cannot search by prefix or displayed status

_EXAMPLES = """\
examples:
  toolwire run "Pay the invoice" -t tools.py -m openai/gpt-5.6 --suspend     calls with side effects wait
  toolwire runs list                                  all stored runs
  toolwire runs list --status ready                   runs whose calls are decided: resume them
  toolwire runs list --status waiting --store postgresql://me@db/runs
  toolwire runs show 3f2a                             the waiting calls of a run, with their arguments
  toolwire runs approve 3f2a call_1
  toolwire runs approve 3f2a call_1 --arguments '{"amount": 3}'     approve it with other arguments
  toolwire runs deny 3f2a call_1 --reason "too expensive"
  toolwire runs supply 3f2a call_2 --result '{"arrives": "Monday"}'       for a tool that suspended itself
  toolwire runs resume 3f2a -t tools.py -m openai/gpt-5.6      run the approved calls and continue
  toolwire runs cancel 3f2a                           stop a durable run, on whatever machine it is
  toolwire runs retry 3f2a                            continue a durable run that failed, or start it again
  toolwire runs delete 3f2a 77b0 --yes                delete runs with their events, without a question
  toolwire runs sweep --store runs.db --json          delete expired runs and records: {"runs": 12, "records": 340}
  toolwire runs rebuild 3f2a                          read all events of a run, and correct its status and summary

status: waiting for a decision, ready to be resumed, running in a process, interrupted (its process ended), done, failed.
A run is named by the beginning of its id, if that is unambiguous. An approval is valid for the tool, its definition and
the arguments that `show` prints, until it expires; the call runs once, when the run is continued.
Agents and servers sweep their store now and then; `sweep` is for stores that no process uses any more.
exit codes: 0 done   1 the run gave no answer, still waits, or was not deleted   2 wrong usage, an unknown or expired call, or the store or
the model is unreachable
"""


def add_to(commands: Any) -> None:
    """Register `toolwire runs` with its actions: list, show, approve, deny, supply, resume, delete, sweep, rebuild."""
    about = "list, approve, resume or delete stored runs"
    text = "List, show and delete stored runs, decide about the calls that wait for approval, and continue runs."
    parser = add_command(commands, "runs", about, f"{text}\n\n{_EXAMPLES}")
    verbs = parser.add_subparsers(metavar="ACTION", required=True)
    listing = _add_verb(verbs, "list", "list stored runs, the newest first", _list)
    listing.add_argument("--status", choices=_STATUSES, help="only runs with this status")
    listing.add_argument("--limit", type=int, default=100, metavar="N", help="maximum number of runs (100)")
    _add_run(_add_verb(verbs, "show", "show a run and its waiting calls", _show))
    approve = _add_decision(verbs, "approve", "approve a waiting call", _approve)
    approve.add_argument("--arguments", metavar="JSON", help="run it with these arguments; they pass all gates again")
    deny = _add_decision(verbs, "deny", "deny a waiting call", _deny)
    deny.add_argument("--reason", default="", metavar="TEXT", help="the reason, for the model")
    supply = _add_decision(verbs, "supply", "set the result of a call whose tool suspended itself", _supply)
    supply.add_argument("--result", required=True, metavar="JSON", help="the result of the call")
    _add_resume(verbs)
    _add_run(_add_verb(verbs, "cancel", "stop a durable run; resume continues it", _cancel))
    _add_run(_add_verb(verbs, "retry", "continue a durable run that failed, or start it again as a new run", _retry))
    delete = _add_verb(verbs, "delete", "delete runs", _delete)
    delete.add_argument("run_ids", nargs="+", metavar="RUN", help="id of a run, or its unambiguous beginning")
    add_flag(delete, "--yes", "do not ask before deleting")
    sweep = _add_verb(verbs, "sweep", "delete expired runs and records of all tenants", _sweep)
    add_flag(sweep, "--vacuum", "rewrite a SQLite file afterwards; files of earlier versions do not shrink")
    _add_run(_add_verb(verbs, "rebuild", "fold the events of a run, and correct its status and summary", _rebuild))


def _add_verb(verbs: Any, name: str, about: str, run: Callable[..., int]) -> argparse.ArgumentParser:
    """Add an action with the options that nearly all actions have (--store, --tenant, --json), and return its parser.

    `run` is called with the store, which is closed afterwards.
    """

    def run_with_store(arguments: argparse.Namespace) -> int:
        with closing(open_store_at(arguments.store, must_exist=True)) as store:
            return run(store, arguments)

    parser = add_command(verbs, name, about, f"{about.capitalize()}.\n\n{_EXAMPLES}", run_with_store)
    if name != "resume":  # has all options of an agent
        add_store_option(parser, "the store: a file, redis://… or postgresql://…")
    if name != "sweep":  # expired runs of every tenant are deleted
        parser.add_argument(
            "--tenant", default="", metavar="NAME", help="the tenant of the runs, if their runner has one"
        )
    add_flag(parser, "--json", "print JSON")
    return parser


def _add_decision(verbs: Any, name: str, about: str, run: Any) -> argparse.ArgumentParser:
    parser = _add_verb(verbs, name, about, run)
    _add_run(parser)
    parser.add_argument("call_id", metavar="CALL", help="id of the waiting call, see `toolwire runs show`")
    return parser


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_id", metavar="RUN", help="id of the run, or its unambiguous beginning")


def _add_resume(verbs: Any) -> None:
    parser = _add_verb(verbs, "resume", "run the approved calls and continue the run", _resume_stored)
    _add_run(parser)
    parser.add_argument("--version", metavar="NAME", help="continue a durable run with this version of its agent")
    add_model_options(parser, default=None)
    add_flag(parser, "--yes", "run further calls with side effects without approval (default: they wait)")
    add_agent_options(parser, iterations=None)
    add_tool_options(parser)


def _list(store: Store, arguments: argparse.Namespace) -> int:
    """Print the stored runs as a table or as JSON."""
    limit = max(arguments.limit, _MAX_LISTED)  # before the runs of queues, which have other statuses, are merged
    stored = store.runs.list(None, limit, tenant=arguments.tenant)
    runs = merge_runs([_run_document(run) for run in stored], arguments)
    if arguments.json:
        print(json_text(runs))
    elif not runs:
        print("no stored runs" if arguments.status is None else f"no runs with the status {arguments.status}")
    else:
        changed = format_age if sys.stdout.isatty() else format_time
        rows = [(run["run_id"], run["status"], changed(run["updated_at"]), run["summary"]) for run in runs]
        print("\n".join(table(rows, ("run", "status", "changed", "summary"), hide=("changed",))))
        print_note("toolwire runs show RUN shows a run and its waiting calls", None)
    return 0


def _show(store: Store, arguments: argparse.Namespace) -> int:
    """Print a run with its times, its numbers of requests and calls, and its waiting calls; with --json also its state."""
    report = find_report(arguments, arguments.run_id)
    if report is not None and store.runs.get(report.run_id) is None:
        return show_report(report, arguments)  # no worker has taken it yet
    stored, session = _load(store, arguments.run_id, arguments.tenant)
    if arguments.json:
        waiting = [msgspec.to_builtins(call) for call in session.waiting]
        durable = None if report is None else msgspec.to_builtins(report)
        document = {**_run_document(stored), "waiting": waiting, "state": msgspec.to_builtins(session.state)}
        print(json_text(document if durable is None else {**document, "durable": durable}))
        return 0
    state = session.state
    print("\n".join(table([
        ("run", stored.run_id),
        ("status", _display_status(stored) if report is None else report.status),
        ("started", format_time(stored.created_at)),
        ("changed", format_time(stored.updated_at)),
        ("expires", format_time(stored.expires_at)),
        ("summary", stored.summary),
        ("requests", f"{count_of(state.iterations, 'model request')}, {count_of(state.calls, 'call')}"),
        *([] if report is None else report_rows(report)),
    ])))  # fmt: skip
    for call in session.waiting:
        print("\n".join(text_lines(describe_waiting(call))))
    return 0


def _approve(store: Store, arguments: argparse.Namespace) -> int:
    from ...net.agent.checkpoints import approve_call

    edited = None if arguments.arguments is None else _parse_object(arguments.arguments)
    return _decide(store, approve_call, edited, arguments)


def _deny(store: Store, arguments: argparse.Namespace) -> int:
    from ...net.agent.checkpoints import deny_call

    return _decide(store, deny_call, arguments.reason, arguments)


def _supply(store: Store, arguments: argparse.Namespace) -> int:
    from ...net.agent.checkpoints import supply_result

    return _decide(store, supply_result, parse(arguments.result), arguments)


def _resume_stored(store: Store, arguments: argparse.Namespace) -> int:
    if not arguments.tools and find_report(arguments, arguments.run_id) is not None:
        return change_run(arguments, lambda runs, run_id: runs.resume(run_id, version=arguments.version))
    if not arguments.tools or arguments.model is None:
        raise ConfigError(
            "the tools or the model of the run are missing", hint="toolwire runs resume RUN -t TOOLS -m PROVIDER/MODEL"
        )
    from .resume import resume

    return resume(store, _load(store, arguments.run_id, arguments.tenant)[1], arguments)


def _cancel(_: Store, arguments: argparse.Namespace) -> int:
    return change_run(arguments, lambda runs, run_id: runs.cancel(run_id))


def _retry(_: Store, arguments: argparse.Namespace) -> int:
    return change_run(arguments, lambda runs, run_id: runs.retry(run_id))


def _delete(store: Store, arguments: argparse.Namespace) -> int:
    """Delete runs after a confirmation, and print the result.

    A run that a process continues is kept, and reported with exit code 1.
    """
    run_ids = list(dict.fromkeys(find_run_id(store, prefix, arguments.tenant) for prefix in arguments.run_ids))
    if not arguments.yes and not _confirm_deletion(run_ids):
        return 1
    deleted = [run_id for run_id in run_ids if store.runs.delete(run_id)]
    kept = [run_id for run_id in run_ids if run_id not in deleted]
    if arguments.json:
        print(json_text({"deleted": deleted, "kept": kept}))
    else:
        print(f"deleted {count_of(len(deleted), 'run')}")
    for run_id in kept:
        print_note(f"toolwire: not deleted: a process continues run {neutralise_line(run_id)}", None)
    return 1 if kept else 0


def _confirm_deletion(run_ids: list[str]) -> bool:
    """Print the runs, and return whether a person confirms their deletion. Raise ConfigError without a terminal."""
    from ..terminal.input import has_terminal, is_confirmed

    if not has_terminal():
        raise ConfigError("there is no terminal to confirm the deletion on", hint="add --yes")
    print("\n".join(map(neutralise_line, run_ids)), file=sys.stderr)
    return is_confirmed(f"Delete {count_of(len(run_ids), 'run')}?")


def _sweep(store: Store, arguments: argparse.Namespace) -> int:
    """Delete expired runs and records, vacuum the file with --vacuum, and print the numbers.

    Raises `ConfigError` for --vacuum with a store that is not a SQLite file.
    """
    vacuum = getattr(store, "vacuum", None)
    if arguments.vacuum and vacuum is None:
        raise ConfigError("--vacuum is for SQLite files", hint="other stores reuse the space by themselves")
    runs = store.runs.sweep()
    records = store.sweep()
    with existing_queues(arguments) as queues:
        segments = None if queues is None else queues.sweep()
    if arguments.vacuum and vacuum is not None:
        vacuum()
    if arguments.json:
        durable = {} if segments is None else {"segments": segments}
        print(json_text({"runs": runs, "records": records, **durable}))
    else:
        queued = f", and {count_of(segments, 'segment')} of durable runs" if segments else ""
        print_text(f"deleted {count_of(runs, 'expired run')} and {count_of(records, 'expired record')}{queued}")
    return 0


def _rebuild(store: Store, arguments: argparse.Namespace) -> int:
    """Read every event of a run, store the status and the summary that follow from them, and print both.

    Raises `RunConflict` if another process continues the run.
    """

    from ...net.agent.checkpoints import run_status, run_summary
    from ...run.session.events import decode_events

    stored, session = _load(store, arguments.run_id, arguments.tenant)
    kinds = Counter(event.kind for event in decode_events(read_rows(store.runs, stored)))
    size = sum(map(len, read_rows(store.runs, stored)))
    statuses: dict[str, RunStatus] = {"done": "done", "gave_up": "failed"}
    phase = session.state.phase
    status = run_status(session) if phase == "wait" else statuses.get(phase, "running")
    rebuilt = replace(stored, status=status, summary=run_summary(session))
    is_changed = rebuilt != stored
    if is_changed and store.runs.append(replace(rebuilt, token=""), (), stored.version) is None:
        raise RunConflict(f"another process continues run {stored.run_id}", hint="try again when it has ended")
    if arguments.json:
        found = {"run_id": stored.run_id, "status": status, "events": kinds, "bytes": size, "corrected": is_changed}
        print(json_text(found))
        return 0
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    correction = f"corrected: {stored.status} is now {status}" if is_changed else f"{status}, as stored"
    print("\n".join(table([
        ("run", stored.run_id),
        ("events", f"{sum(kinds.values())} ({counts}) in {count_of(stored.rows, 'row')}, {size:,} bytes"),
        ("messages", str(len(session.state.request.messages))),
        ("status", correction),
    ])))  # fmt: skip
    return 0


def _load(store: Store, prefix: str, tenant: str) -> tuple[StoredRun, Session]:
    """Load a run by the beginning of its id."""
    from ...net.agent.checkpoints import load_run

    return load_run(store, find_run_id(store, prefix, tenant), tenant)


def find_run_id(store: Store, prefix: str, tenant: str) -> str:
    """Return the id of a tenant's run by its beginning. Raises ConfigError if no run or several runs have it."""
    if not prefix:
        raise ConfigError("the id of a run is empty", hint="toolwire runs list")
    stored = store.runs.get(prefix)
    if stored is not None and stored.tenant == tenant:
        return prefix
    runs = [run.run_id for run in store.runs.list(limit=_MAX_LISTED, tenant=tenant) if run.run_id.startswith(prefix)]
    if len(runs) > 1:
        raise ConfigError(f"several runs begin with {prefix!r}: {', '.join(runs[:5])}", hint="give the whole id")
    if not runs:
        raise ConfigError(f"there is no run {prefix!r} in the store", hint="toolwire runs list")
    return runs[0]


def _decide(store: Store, decide: Callable[..., StoredRun], value: Any, arguments: argparse.Namespace) -> int:
    """Decide about a waiting call with `decide` and `value`; print the calls that still wait and the next command.

    A run named `call-…` is a single call of an MCP server, which its client continues.
    """
    run_id = find_run_id(store, arguments.run_id, arguments.tenant)
    stored = decide(store, run_id, arguments.call_id, value, tenant=arguments.tenant)
    _, session = _load(store, stored.run_id, stored.tenant)
    if arguments.json:
        print(json_text(_run_document(stored) | {"waiting": [call.call_id for call in session.waiting]}))
        return 0
    for call in session.waiting:
        print(f"still waiting: {neutralise_line(call.call_id)} {neutralise_line(call.tool)}")
    if stored.run_id.startswith("call-"):
        print("the client of the server repeats the call")
        return 0
    if find_report(arguments, stored.run_id.partition(".")[0]) is not None:
        print("a worker continues the run")
        return 0
    option = place_options(arguments)
    print("\n".join(command_lines(f"continue with: toolwire runs resume {stored.run_id} -t TOOLS -m MODEL{option}")))
    return 0


def _parse_object(text: str) -> Object:
    """Parse the JSON object of `--arguments`. Raise ConfigError for another value, ProtocolError for no JSON."""
    value = parse(text)
    if not isinstance(value, dict):
        raise ConfigError(f"--arguments must be a JSON object, got {type(value).__name__}")
    return value


def _run_document(run: StoredRun) -> dict[str, Any]:
    """Return the fields of a run for `--json`, without its token.

    The digest is omitted too; the status is the displayed one.
    """
    document: dict[str, Any] = msgspec.to_builtins(run)
    hidden = ("token", "digest")
    return {
        "summary": "",
        **{name: value for name, value in document.items() if name not in hidden},
        "status": _display_status(run),
    }


def _display_status(run: StoredRun) -> str:
    """Return the status. A running run that no process continues is ready; if its process died, it was interrupted."""
    if run.status != "running":
        return run.status
    if not run.token:
        return "ready"
    return "running" if run.lease_until > time.time() else "interrupted"
