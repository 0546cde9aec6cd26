"""`toolwire trace show`: show a recorded run or exchange.

Separate because the two kinds of traces have modules of their own.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from .show import json_text
from .trace_exchange import exchange_as_json, print_exchange
from .trace_run import print_run, run_as_json

if TYPE_CHECKING:
    from ..run.traces.recordings import RunTrace

__all__ = ["load_stored_run", "show"]


def show(arguments: argparse.Namespace) -> int:
    """Print a trace. A file of any other kind is an error."""
    from ..net.trace.file import read_trace
    from ..run.traces.recordings import exchange_of, run_of

    if arguments.store is not None:
        return _show_run(load_stored_run(arguments), arguments)
    path = Path(arguments.file)
    header, events = read_trace(path)
    if header.kind == "run":
        return _show_run(run_of(header, events, path.name), arguments)
    exchange = exchange_of(header, events, path.name)
    if arguments.json:
        print(json_text(exchange_as_json(exchange)))
    else:
        print_exchange(exchange, bodies=arguments.bodies)
    return 0


def _show_run(run: RunTrace, arguments: argparse.Namespace) -> int:
    if arguments.json:
        print(json_text(run_as_json(run)))
    else:
        print_run(run, bodies=arguments.bodies)
    return 0


def load_stored_run(arguments: argparse.Namespace) -> RunTrace:
    """Read a run of a store as a trace. The argument `file` is its id, or the unambiguous beginning of it."""
    import os

    from ..run.traces.redact import Redactor, environment_secrets
    from ..run.traces.sanitise import Sanitiser
    from ..run.traces.stored_run import trace_of_log
    from ..run.values.records import read_rows
    from .runs import find_run_id
    from .tools_file import open_store_at

    store = open_store_at(arguments.store)
    stored = store.runs.get(find_run_id(store, arguments.file, arguments.tenant))
    assert stored is not None
    sanitiser = Sanitiser(Redactor(environment_secrets(os.environ)))
    return trace_of_log(stored.run_id, read_rows(store.runs, stored), sanitiser)
