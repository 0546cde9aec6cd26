"""`toolwire run --list` and `--resolve`: the recorded calls of a store.

Separate because it only reads and changes the store; `run` starts an agent.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from ..ir.errors import ConfigError
from .answer_output import format_time
from .show import table

if TYPE_CHECKING:
    from ..run.values.records import Store

__all__ = ["list_records", "resolve_record"]


def list_records(store: Store, *, as_json: bool) -> int:
    """Print the recorded calls of the store."""
    import msgspec

    records = store.records()
    if as_json:
        print(json.dumps([msgspec.to_builtins(record) for record in records], indent=2))
        return 0
    if not records:
        print("no recorded calls")
        return 0
    rows = [(record.key, record.state, format_time(record.created_at), record.tool) for record in records]
    print("\n".join(table(rows, ("key", "state", "since", "tool"))))
    return 0


def resolve_record(store: Store, arguments: argparse.Namespace) -> int:
    """Record the outcome of a call whose outcome is unknown: `--result`, or None if it may run again (`--forget`)."""
    from ..ir.parts import ToolCall
    from ..run.values.results import to_record
    from ..stream.strict import parse

    if arguments.forget == (arguments.result is not None):
        raise ConfigError("--resolve requires an outcome", hint="add --result JSON or --forget")
    record = store.get(arguments.resolve)
    result = None
    if arguments.result is not None and record is not None:
        result = to_record(ToolCall("", record.tool).result(parse(arguments.result)))
    if record is None or not store.resolve(arguments.resolve, result):
        print("toolwire: no call of unknown outcome has this key", file=sys.stderr)
        return 1
    return 0
