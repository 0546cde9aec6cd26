"""`toolwire serve check`: read the settings of a gateway, and list all problems with their lines."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..ir.errors import ConfigError
from .serve_keys import CONFIG
from .show import count_of, json_text, paint, table

if TYPE_CHECKING:
    from ..gateway.probe import ProbeResult
    from ..gateway.settings import Settings
    from ..gateway.settings_shape import SettingsProblem

__all__ = ["add_to", "check_settings"]

_EXAMPLES = """\
examples:
  toolwire serve check                           toolwire.toml: names, types, references, files and keys
  toolwire serve check other.toml --json
  toolwire serve check --probe --timeout 3       also ask each upstream for its list of models
  toolwire serve check config.yaml               LiteLLM's file: skipped models, and settings without an equivalent

Variables with keys are checked, but never shown.
exit codes: 0 no problems   1 problems were found   2 wrong usage, or the file cannot be read
"""
_MAX_TIMEOUT = 60.0  # seconds
_MAX_LOCATION = 60  # characters in the table; JSON has the whole text


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "check",
        help="check the settings and list all problems",
        description="Check the settings of a gateway without starting it.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help=f"the settings ({CONFIG})")
    parser.add_argument("--probe", action="store_true", help="ask each upstream whether it is reachable")
    parser.add_argument("--timeout", type=float, default=5.0, metavar="SECONDS", help="for each probe (5)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
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
    from ..gateway.settings_file import is_litellm

    return _check_litellm(path) if is_litellm(path) else _check_toml(path)


def _check_toml(path: Path) -> tuple[Settings | None, list[dict[str, Any]]]:
    import tomllib

    from ..gateway.settings_check import find_environment_problems
    from ..gateway.settings_file import read_settings_text
    from ..gateway.settings_location import TomlLines
    from ..gateway.settings_parse import parse_valid_part

    text = read_settings_text(path)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return None, [_syntax_row(str(error))]
    parsed = parse_valid_part(document)
    invalid = {problem.path[:2] for problem in parsed.problems}
    problems = [
        *parsed.problems,
        *(
            problem
            for problem in find_environment_problems(parsed.settings, os.environ)
            if not problem.path or problem.path[:2] not in invalid
        ),
    ]
    lines = TomlLines(text)
    rows = [_problem_row(problem, lines.find(problem.path)) for problem in problems]
    return parsed.settings, sorted(rows, key=lambda row: row["line"] or 0)


def _check_litellm(path: Path) -> tuple[Settings | None, list[dict[str, Any]]]:
    """Return the usable settings of a LiteLLM file, and one row per skipped model or ignored setting."""
    from ..gateway.litellm.import_report import group_notes
    from ..gateway.litellm.litellm_file import keep_usable, parse_litellm_file

    imported = parse_litellm_file(path, os.environ)
    rows: list[dict[str, Any]] = []
    try:
        imported = keep_usable(imported, os.environ)
    except ConfigError as error:
        rows.append(_make_row(None, path.name, error.message, error.hint))
    rows += [
        _make_row(None, row.where, f"{row.kind}: {row.meaning}", row.instead, is_error=row.kind != "changed")
        for row in group_notes(imported.notes)
    ]
    os.environ.update({**imported.variables, **imported.secrets})  # for the probes
    return imported.settings, rows


def _syntax_row(message: str) -> dict[str, Any]:
    line = re.search(r"at line (\d+)", message)
    return _make_row(int(line[1]) if line else None, "", f"not valid TOML: {message}", "")


def _problem_row(problem: SettingsProblem, line: int | None) -> dict[str, Any]:
    return _make_row(line, problem.location, problem.message, problem.hint)


def _make_row(line: int | None, location: str, problem: str, fix: str, *, is_error: bool = True) -> dict[str, Any]:
    severity = "error" if is_error else "info"
    return {"severity": severity, "line": line, "location": location, "problem": problem, "fix": fix}


def _count_errors(rows: list[dict[str, Any]]) -> int:
    return sum(row["severity"] == "error" for row in rows)


async def _probe(settings: Settings, seconds: float) -> list[ProbeResult]:
    from ..gateway.probe import probe_upstreams
    from ..gateway.settings_check import configure_upstreams

    upstreams, _ = configure_upstreams(settings, os.environ)
    return await probe_upstreams(upstreams, os.environ, seconds)


def _as_document(
    path: Path, settings: Settings | None, rows: list[dict[str, Any]], probes: list[ProbeResult]
) -> dict[str, Any]:
    from msgspec import to_builtins

    document: dict[str, Any] = {"file": str(path), "ok": not _count_errors(rows), "problems": rows}
    if settings is not None:
        document |= {name: list(getattr(settings, name)) for name in ("upstreams", "models", "keys")}
    return document | ({"probes": to_builtins(probes)} if probes else {})


def _print_report(path: Path, settings: Settings | None, rows: list[dict[str, Any]], probes: list[ProbeResult]) -> None:
    if rows:
        cells = [(str(row["line"] or ""), _shorten(row["location"]), _sentence(row)) for row in rows]
        print("\n".join(table(cells, ("line", "where", "problem"))), end="\n\n")
    if probes:
        probed = [
            (probe.upstream, probe.status, f"{probe.ms}" if probe.ms else "", _probe_detail(probe)) for probe in probes
        ]
        print("\n".join(table(probed, ("upstream", "status", "ms", "answer"))), end="\n\n")
    errors = _count_errors(rows)
    verdict = paint(count_of(errors, "problem"), "red") if errors else paint("no problems", "green")
    counts = "" if settings is None else f": {_counts(settings)}"
    print(f"{path}{counts}; {verdict}")


def _shorten(location: str) -> str:
    return location if len(location) <= _MAX_LOCATION else f"{location[: _MAX_LOCATION - 1]}…"


def _sentence(row: dict[str, Any]) -> str:
    return f"{row['problem']} ({row['fix']})" if row["fix"] else row["problem"]


def _probe_detail(probe: ProbeResult) -> str:
    models = "" if probe.models is None else count_of(probe.models, "model")
    return ", ".join(filter(None, (probe.address, models, probe.detail)))


def _counts(settings: Settings) -> str:
    counts = {"upstream": len(settings.upstreams), "model": len(settings.models), "key": len(settings.keys)}
    return ", ".join(count_of(count, noun) for noun, count in counts.items())
