"""`toolwire serve keys` and `usage`: manage the keys of clients, and sum their usage by key, model or day.

The settings file has only the hashes of keys; keys are not stored.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import convert
from msgspec.structs import asdict, astuple

from ...ir.errors import ConfigError
from ..sources.documents import replace_file
from ..terminal.options import CONFIG, CommandHelp, add_command, add_config, add_flag
from ..terminal.output import json_text, print_note, table

if TYPE_CHECKING:
    from ...gateway.state.usage import UsageSum


_LIMITS = ("requests_per_minute", "tokens_per_minute", "tokens_per_day")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}").fullmatch
_is_bare_name = re.compile(r"[A-Za-z0-9_-]+").fullmatch
_KEYS_HELP = """\
Manage the keys of a gateway's clients.

examples:
  toolwire serve keys new ann
  toolwire serve keys new ci --models 'gpt-*' small --requests-per-minute 60 --tokens-per-day 1000000
  toolwire serve keys list
  toolwire serve keys revoke ann

The key is shown once; the file contains its hash. A running gateway reloads its file on SIGHUP.
"""


def add_keys(commands: Any) -> None:
    """Register `toolwire serve keys` with its actions: new, list, revoke."""
    parser = add_command(commands, "keys", "create, list and revoke keys for clients", _KEYS_HELP)
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    new = actions.add_parser("new", help="create a key and show it once", formatter_class=CommandHelp)
    new.add_argument("name", metavar="NAME", help="name of the client, for logs, limits and usage")
    new.add_argument("--models", nargs="+", metavar="PATTERN", help="models that it may use; * is every model (*)")
    for limit in _LIMITS:
        new.add_argument(
            f"--{limit.replace('_', '-')}", type=int, metavar="N", help=f"{limit.replace('_', ' ')} (no limit)"
        )
    new.set_defaults(run=_create_key)
    listing = actions.add_parser("list", help="list the keys")
    add_flag(listing, "--json", "print JSON")
    listing.set_defaults(run=_list_keys)
    revoke = actions.add_parser("revoke", help="remove a key")
    revoke.add_argument("name", metavar="NAME")
    revoke.set_defaults(run=_revoke_key)
    for action in (new, listing, revoke):
        add_config(action, is_nested=True)


def _create_key(arguments: argparse.Namespace) -> int:
    """Create a key, add the row with its hash to the settings file, and print the key.

    Raises `ConfigError` for an invalid or existing name.
    """
    from ...gateway.keys import hash_key, new_key

    name, path = arguments.name, _settings_path(arguments.config or CONFIG)
    if not _NAME(name):
        raise ConfigError(
            f"invalid key name {name!r}",
            hint="use letters, digits and . _ @ -, at most 64, starting with a letter or digit",
        )
    text, document = _read(path, missing="")
    if name in document.get("keys", {}):
        raise ConfigError(f"a key named {name!r} already exists", hint="revoke it first, or use another name")
    key = new_key()
    row: dict[str, Any] = {"hash": hash_key(key)}
    if arguments.models:
        row["models"] = arguments.models
    row |= {limit: getattr(arguments, limit) for limit in _LIMITS if getattr(arguments, limit) is not None}
    _write(path, _append_key(text, name, row), {**document, "keys": {**document.get("keys", {}), name: row}})
    print(key)
    print_note("the key is not shown again; a running gateway accepts it after SIGHUP", None)
    return 0


def _list_keys(arguments: argparse.Namespace) -> int:
    """Print the keys with their models and limits."""
    from ...gateway.settings_file import load_settings

    keys = load_settings(_settings_path(arguments.config or CONFIG)).keys
    if arguments.json:
        print(json.dumps({name: msgspec.to_builtins(row) for name, row in keys.items()}, indent=2))
        return 0
    rows = [
        (name, ", ".join(row.models), *("" if most is None else f"{most:,}" for most in map(row.__getattribute__, _LIMITS)))
        for name, row in keys.items()
    ]  # fmt: skip
    headers = ("key", "models", "requests per minute", "tokens per minute", "tokens per day")
    print("\n".join(table(rows, headers)) if rows else "no keys")
    return 0


def _revoke_key(arguments: argparse.Namespace) -> int:
    """Remove a key from the settings file, and print when that takes effect.

    Raises `ConfigError` for an unknown name.
    """
    name, path = arguments.name, _settings_path(arguments.config or CONFIG)
    text, document = _read(path)
    keys = document.get("keys", {})
    if name not in keys:
        raise ConfigError(f"no key named {name!r}", hint=f"existing keys: {', '.join(keys) or 'none'}")
    left = {other: row for other, row in keys.items() if other != name}
    _write(path, _remove_table(text, name), {**document, "keys": left})
    print_note(f"revoked {name}; a running gateway rejects the key after SIGHUP", None)
    if not left:
        print_note("it was the last key: after SIGHUP every client is rejected;", None)
        print_note("after a restart every client on this machine is accepted", None)
    return 0


def _settings_path(name: str) -> Path:
    """Return the path of the file that stores keys. Raise ConfigError for LiteLLM's file."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        raise ConfigError(f"keys cannot be stored in {name}", hint=f"use a {CONFIG} file")
    return path


def _read(path: Path, missing: str | None = None) -> tuple[str, dict[str, Any]]:
    """Return a settings file as text and as a document; `missing` is the text to use if it does not exist."""
    from ...gateway.settings_file import load_settings

    if not path.exists() and missing is not None:
        return missing, {}
    load_settings(path)  # report existing errors first, so that they are not attributed to the new key
    text = path.read_bytes().decode("utf-8")
    return text, tomllib.loads(text)


def _append_key(text: str, name: str, row: dict[str, Any]) -> str:
    """Append a table as text, so that the rest of the file, including comments, stays unchanged."""
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    header = name if _is_bare_name(name) else json.dumps(name)
    # JSON strings, numbers and arrays are valid TOML
    lines = [f"{field} = {json.dumps(value, ensure_ascii=False)}" for field, value in row.items()]
    return "\n".join([f"{text}{gap}[keys.{header}]", *lines, ""])


def _remove_table(text: str, name: str) -> str:
    """Return the text without the table of a key, from its header to its last value.

    Comments after that belong to the next table, and an empty line before the header is removed, too.
    """
    lines = text.splitlines(keepends=True)
    starts = [number for number, line in enumerate(lines) if line.lstrip().startswith("[")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=False):
        if _is_header(lines[start], name):
            while end > start + 1 and not lines[end - 1].partition("#")[0].strip():
                end -= 1
            before = start - 1 if start and not lines[start - 1].strip() else start
            return "".join([*lines[:before], *lines[end:]])
    return text


def _is_header(line: str, name: str) -> bool:
    try:
        return tomllib.loads(line) == {"keys": {name: {}}}
    except tomllib.TOMLDecodeError:
        return False


def _write(path: Path, text: str, expected: dict[str, Any]) -> None:
    """Replace the file, but only if the new text parses to exactly the wanted document.

    Raises `ConfigError` if it does not, or if the settings are invalid.
    """
    from ...gateway.config.parsing import parse_settings

    try:
        parsed: dict[str, Any] | None = {"keys": {}, **tomllib.loads(text)}
    except tomllib.TOMLDecodeError:
        parsed = None
    if parsed != expected:
        raise ConfigError(
            f"cannot edit the keys in {path.name}",
            hint="write each key as a separate table: [keys.NAME]",
        )
    parse_settings(parsed)
    replace_file(path, text)


_USAGE_HELP = """\
Show the usage of a gateway. Its settings must record usage (state.usage).

examples:
  toolwire serve usage                            every key, since the first request
  toolwire serve usage --by model --since 7d      the last seven days
  toolwire serve usage --by day --since 2026-11-01 --json | jq

Days are UTC. Input tokens include cached tokens, output tokens include reasoning.
"""
_SPAN = re.compile(r"(\d{1,6})([mhdw])").fullmatch
_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_HEADERS = ("requests", "errors", "tokens in", "out", "cached", "reasoning", "calls", "seconds")


def add_usage(commands: Any) -> None:
    parser = add_command(commands, "usage", "show usage", _USAGE_HELP, run_usage)
    parser.add_argument("--by", choices=("key", "model", "day"), default="key", help="group by this (key)")
    parser.add_argument("--since", metavar="WHEN", help="a day (2026-11-01), a time, or a span (90m, 24h, 7d, 4w)")
    add_flag(parser, "--json", "print JSON")
    add_config(parser, is_nested=True)


def run_usage(arguments: argparse.Namespace) -> int:
    """Print the recorded usage per key, model or day (--by), with a total."""
    sums = _load_sums(arguments.config or CONFIG, arguments.by, _parse_since(arguments.since))
    if arguments.json:
        print(json_text([{arguments.by: row.pop("what"), **row} for row in map(asdict, sums)]))
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
    """Return the sums of the usage store that the settings name. Raises `ConfigError` if they name none."""
    from ...gateway.settings_file import load_settings
    from ...gateway.state.opening import usage_address
    from ...gateway.state.usage import open_usage

    address = usage_address(load_settings(Path(config)), os.environ)
    if address is None:
        raise ConfigError(f"{config} does not record usage", hint='add [state] usage = "usage.db"')
    store = open_usage(address)
    try:
        return store.sums(by, since)
    finally:
        store.close()


def _parse_since(text: str | None) -> float:
    """Return a time in seconds since the epoch; without a time zone it is UTC, and without a text 0.

    Raises `ConfigError` unless it is a date, a time or a span before now.
    """
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


def _row_cells(usage_sum: UsageSum) -> tuple[str, ...]:
    what, *counts, seconds = astuple(usage_sum)
    return (what or "(no key)", *(f"{count:,}" for count in counts), f"{seconds:,.1f}")


def _sum_total(sums: list[UsageSum]) -> UsageSum:
    columns = zip(*(astuple(usage_sum)[1:] for usage_sum in sums), strict=True)
    return convert(("total", *map(sum, columns)), type(sums[0]))
