"""`toolwire serve check`: list the problems of a settings file with their lines, and ask each upstream."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from ...gateway.litellm.equivalents import MASTER_KEY, group_notes
from ...ir.errors import ConfigError
from ...ir.terminal import count_of
from ...ir.text import shorten
from ..terminal.options import CONFIG, add_command, add_config, add_flag
from ..terminal.output import json_text, paint, table

if TYPE_CHECKING:
    from ...gateway.config.settings import Settings
    from ...gateway.routing.health import ProbeResult


_CHECK_HELP = """\
Check the settings of a gateway without starting it.

examples:
  toolwire serve check                           toolwire.toml: names, types, references, files and keys
  toolwire serve check other.toml --json
  toolwire serve check --probe --timeout 3       also ask each upstream for its list of models
  toolwire serve check config.yaml               LiteLLM's file: skipped models, and settings without an equivalent

Variables with keys are checked, but never shown.
exit codes: 0 no problems, or only notes   1 problems or an unusable upstream   2 wrong usage, or the file cannot be read
"""
_MAX_TIMEOUT = 60.0  # seconds; a model that takes longer for a short answer is of no use, and the user waits
_MAX_LOCATION = 60  # characters in the table; JSON has the whole text


def add_check(commands: Any) -> None:
    parser = add_command(commands, "check", "check the settings and list all problems", _CHECK_HELP, run_check)
    parser.add_argument("file", nargs="?", metavar="FILE", help=f"the same as --config ({CONFIG})")
    add_config(parser, is_nested=True)
    add_flag(parser, "--probe", "ask each upstream whether it is reachable")
    parser.add_argument("--timeout", type=float, default=5.0, metavar="SECONDS", help="for each probe (5)")
    add_flag(parser, "--json", "print JSON")


def run_check(arguments: argparse.Namespace) -> int:
    """Print the problems of a settings file and, with --probe, the state of its upstreams.

    Returns 1 for an error or an unusable upstream. Raises `ConfigError` for a --timeout out of range.
    """
    if not 0 < arguments.timeout <= _MAX_TIMEOUT:
        raise ConfigError(f"--timeout must be above 0 and at most {_MAX_TIMEOUT:g}, got {arguments.timeout:g}")
    path = Path(arguments.file or arguments.config or CONFIG)
    settings, rows = check_settings(path)
    probes = asyncio.run(_probe(settings, arguments.timeout)) if arguments.probe and settings is not None else []
    if arguments.json:
        print(json_text(_as_document(path, settings, rows, probes)))
    else:
        _print_report(path, settings, rows, probes)
    return 1 if _count_errors(rows) or not all(probe.is_usable for probe in probes) else 0


def check_settings(path: Path) -> tuple[Settings | None, list[dict[str, Any]]]:
    """Return the valid part of the settings, and one row per problem: severity, line, location, problem and fix."""
    from ...gateway.settings_file import is_litellm

    return _check_litellm(path) if is_litellm(path) else _check_toml(path)


def _check_toml(path: Path) -> tuple[Settings | None, list[dict[str, Any]]]:
    """Return the valid part of the settings, or None for a syntax error, and a row per problem, by line.

    Problems of the environment are left out for tables that are invalid already.
    """
    from ...gateway.config.notation import TomlLines
    from ...gateway.config.parsing import parse_valid_part
    from ...gateway.settings_file import find_environment_problems, read_settings_text

    text = read_settings_text(path)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return None, [_syntax_row(str(error))]
    parsed = parse_valid_part(document)
    invalid = {problem.path[:2] for problem in parsed.problems}
    problems = list(parsed.problems)
    for problem in find_environment_problems(parsed.settings, os.environ):
        if not problem.path or problem.path[:2] not in invalid:
            problems.append(problem)
    lines = TomlLines(text)
    rows = [_make_row(lines.find(found.path), found.location, found.message, found.hint) for found in problems]
    return parsed.settings, sorted(rows, key=lambda row: row["line"] or 0)


def _check_litellm(path: Path) -> tuple[Settings | None, list[dict[str, Any]]]:
    """Return the usable settings of a LiteLLM file, and a row per skipped model or ignored setting.

    Sets the environment variables of the file in this process, for the probes.
    """
    from ...gateway.settings_file import keep_usable, parse_litellm_file

    imported = parse_litellm_file(path, os.environ)
    rows: list[dict[str, Any]] = []
    notes = imported.notes
    try:
        imported = keep_usable(imported, os.environ)
        notes = imported.notes
    except ConfigError as error:
        rows.append(_make_row(None, path.name, error.message, error.hint))
        if imported.missing_key:  # the error above
            notes = tuple(note for note in notes if note.location != MASTER_KEY)
    rows += [
        _make_row(None, row.where, f"{row.kind}: {row.meaning}", row.instead, is_error=row.kind == "skipped")
        for row in group_notes(notes)
    ]
    os.environ.update({**imported.variables, **imported.secrets})  # for the probes
    return imported.settings, rows


def _syntax_row(message: str) -> dict[str, Any]:
    line = re.search(r"at line (\d+)", message)
    return _make_row(int(line[1]) if line else None, "", f"not valid TOML: {message}", "")


def _make_row(line: int | None, location: str, problem: str, fix: str, *, is_error: bool = True) -> dict[str, Any]:
    severity = "error" if is_error else "info"
    return {"severity": severity, "line": line, "location": location, "problem": problem, "fix": fix}


def _count_errors(rows: list[dict[str, Any]]) -> int:
    return sum(row["severity"] == "error" for row in rows)


async def _probe(settings: Settings, seconds: float) -> list[ProbeResult]:
    from ...gateway.routing.health import probe_upstreams
    from ...gateway.settings_file import configure_upstreams

    upstreams, _ = configure_upstreams(settings, os.environ)
    return await probe_upstreams(upstreams, os.environ, seconds)


def _as_document(
    path: Path, settings: Settings | None, rows: list[dict[str, Any]], probes: list[ProbeResult]
) -> dict[str, Any]:
    document: dict[str, Any] = {"file": str(path), "ok": not _count_errors(rows), "problems": rows}
    if settings is not None:
        document |= {name: list(getattr(settings, name)) for name in ("upstreams", "models", "keys")}
    return document | ({"probes": to_builtins(probes)} if probes else {})


def _print_report(path: Path, settings: Settings | None, rows: list[dict[str, Any]], probes: list[ProbeResult]) -> None:
    """Print tables of the problems and probes, and a last line with the verdict."""
    if rows:
        cells = [(str(row["line"] or ""), shorten(row["location"], _MAX_LOCATION), _sentence(row)) for row in rows]
        print("\n".join(table(cells, ("line", "where", "problem"))), end="\n\n")
    if probes:
        probed = [
            (probe.upstream, probe.status, f"{probe.ms}" if probe.ms else "", _probe_detail(probe)) for probe in probes
        ]
        print("\n".join(table(probed, ("upstream", "status", "ms", "answer"))), end="\n\n")
    unusable = sum(not probe.is_usable for probe in probes)
    errors, notes = _count_errors(rows), len(rows) - _count_errors(rows)
    verdict = paint(count_of(errors, "problem"), "red") if errors else "" if unusable else paint("no problems", "green")
    failed = paint(f"{count_of(unusable, 'upstream')} cannot be used", "red") if unusable else ""
    counts = "" if settings is None else f": {_counts(settings)}"
    print(f"{path}{counts}; {', '.join(filter(None, (verdict, failed, count_of(notes, 'note') if notes else '')))}")


def _sentence(row: dict[str, Any]) -> str:
    return f"{row['problem']} ({row['fix']})" if row["fix"] else row["problem"]


def _probe_detail(probe: ProbeResult) -> str:
    models = "" if probe.models is None else count_of(probe.models, "model")
    return ", ".join(filter(None, (probe.address, models, probe.detail)))


def _counts(settings: Settings) -> str:
    counts = {"upstream": len(settings.upstreams), "model": len(settings.models), "key": len(settings.keys)}
    return ", ".join(count_of(count, noun) for noun, count in counts.items())
