"""`toolwire serve usage`: sum the usage of a gateway by key, model or day."""

from __future__ import annotations

import argparse
import os
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..ir.errors import ConfigError
from .serve_keys import CONFIG, SUPPRESS
from .show import json_text, table

if TYPE_CHECKING:
    from ..gateway.observe.usage import UsageSum

__all__ = ["add_to"]

_EXAMPLES = """\
examples:
  toolwire serve usage                            every key, since the first request
  toolwire serve usage --by model --since 7d      the last seven days
  toolwire serve usage --by day --since 2026-11-01 --json | jq

Days are UTC. Input tokens include cached tokens, output tokens include reasoning.
"""
_SPAN = re.compile(r"(\d{1,6})([mhdw])").fullmatch
_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_HEADERS = ("requests", "errors", "tokens in", "out", "cached", "reasoning", "calls", "seconds")


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "usage",
        help="show usage",
        description="Show the usage of a gateway. Its settings must record usage (state.usage).",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--by", choices=("key", "model", "day"), default="key", help="group by this (key)")
    parser.add_argument("--since", metavar="WHEN", help="a day (2026-11-01), a time, or a span (90m, 24h, 7d, 4w)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--config", default=SUPPRESS, metavar="FILE", help=f"the settings ({CONFIG})")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    sums = _load_sums(arguments.config or CONFIG, arguments.by, _parse_since(arguments.since))
    if arguments.json:
        from msgspec.structs import asdict

        print(json_text([_row_as_json(asdict(usage_sum), arguments.by) for usage_sum in sums]))
        return 0
    if not sums:
        print("no usage recorded")
        return 0
    rows = [_row_cells(usage_sum) for usage_sum in sums]
    if len(sums) > 1:
        rows.append(_row_cells(_sum_total(sums)))
    print("\n".join(table(rows, (arguments.by, *_HEADERS))))
    return 0


def _load_sums(config: str, by: str, since: float) -> list[UsageSum]:
    """Return the sums of the usage store that the settings name."""
    from ..gateway.observe.usage_stores import open_usage
    from ..gateway.settings_file import load_settings
    from ..gateway.shared.state import usage_address

    address = usage_address(load_settings(Path(config)), os.environ)
    if address is None:
        raise ConfigError(f"{config} does not record usage", hint='add [state] usage = "usage.db"')
    store = open_usage(address)
    try:
        return store.sums(by, since)
    finally:
        store.close()


def _parse_since(text: str | None) -> float:
    """Return a time in seconds since the epoch; without a time zone it is UTC."""
    if text is None:
        return 0.0
    span = _SPAN(text)
    if span is not None:
        return time.time() - int(span[1]) * _SECONDS[span[2]]
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"invalid time {text!r}", hint="use 2026-11-01, 2026-11-01T12:00, 90m, 24h, 7d or 4w"
        ) from None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def _row_as_json(row: dict[str, Any], by: str) -> dict[str, Any]:
    return {by: row.pop("what"), **row}


def _row_cells(usage_sum: UsageSum) -> tuple[str, ...]:
    counts = (
        usage_sum.requests,
        usage_sum.errors,
        usage_sum.input,
        usage_sum.output,
        usage_sum.cached,
        usage_sum.reasoning,
        usage_sum.calls,
    )
    return (usage_sum.what or "(no key)", *(f"{count:,}" for count in counts), f"{usage_sum.seconds:,.1f}")


def _sum_total(sums: list[UsageSum]) -> UsageSum:
    from msgspec import convert
    from msgspec.structs import astuple

    columns = zip(*(astuple(usage_sum)[1:] for usage_sum in sums), strict=True)
    return convert(("total", *map(sum, columns)), type(sums[0]))
