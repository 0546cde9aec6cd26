"""`toolwire trace show`: show a recorded run or exchange.

Separate because the two kinds of traces have modules of their own.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .show import json_text
from .trace_exchange import exchange_as_json, print_exchange
from .trace_run import print_run, run_as_json

__all__ = ["show"]


def show(arguments: argparse.Namespace) -> int:
    """Print a trace. A file of any other kind is an error."""
    from ..net.trace_file import read_trace
    from ..run.trace_exchange import exchange_of
    from ..run.trace_run import run_of

    path = Path(arguments.file)
    header, events = read_trace(path)
    if header.kind == "run":
        run = run_of(header, events, path.name)
        if arguments.json:
            print(json_text(run_as_json(run)))
        else:
            print_run(run, bodies=arguments.bodies)
        return 0
    exchange = exchange_of(header, events, path.name)
    if arguments.json:
        print(json_text(exchange_as_json(exchange)))
    else:
        print_exchange(exchange, bodies=arguments.bodies)
    return 0
