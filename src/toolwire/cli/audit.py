"""`toolwire audit`: find portability problems of tools, requests, code and MCP configurations."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..ir.errors import ConfigError
from ..ir.terminal import count_of, neutralise_line, reveal_line
from ..ir.text import shorten
from .sources.audit_input import AuditInput
from .sources.documents import parse_file, read_bytes, replace_file
from .sources.tool_source import SOURCE_HELP, add_source_options
from .terminal.options import add_command, add_list, add_model
from .terminal.output import (
    SEVERITIES,
    json_text,
    paint,
    paragraph,
    print_command,
    print_note,
    print_text,
    table,
    terminal_width,
)

if TYPE_CHECKING:
    from ..audit.findings import Finding
    from ..audit.report import Report
    from ..ir.tools import Tool


def read_all(sources: Sequence[str], arguments: argparse.Namespace) -> AuditInput:
    """Read all sources. Raises `ConfigError` for an unreadable source, and for a folder with nothing to audit."""
    given = AuditInput()
    for source in sources:
        if Path(source).is_dir():
            given.add_folder(source)
        else:
            given.add(source, arguments)
    return given


def load(file: str) -> Any:
    return parse_file(file, read_bytes(file))


_HELP = """\
Find problems of tools with other providers: names, schemas, limits, wording.

examples:
  toolwire audit tools.py                         your functions, and the code around them
  toolwire audit tools.json                       tools by providers, and the findings of the rules
  toolwire audit "npx -y @modelcontextprotocol/server-everything"      the tools of a running MCP server
  toolwire audit pets.yaml                        the operations of an OpenAPI document
  toolwire audit requests.jsonl --ignore TQ       recorded requests, without the rules on wording
  toolwire audit mcp.json                         an MCP server list; the servers are not started
  toolwire audit src/                             Python source, lists of tools and MCP server lists; nothing is run
  toolwire audit tools.json --target portable     everything that at least one provider does not accept unchanged
  toolwire audit tools.json --format html > audit.html
  toolwire audit tools.json --write-baseline known.json && toolwire audit tools.json --baseline known.json
  toolwire audit tools.json --lock tools.lock     record the current tools
  toolwire audit tools.json --check-lock tools.lock
  toolwire audit --body request.json --provider anthropic --model claude-opus-5-5
  toolwire audit --explain TW031

✓ accepted unchanged   ~ rejected as written, accepted as toolwire translates it
! translated, but not fully enforced (number of losses)   ✗ rejected, also as toolwire translates it
⚠ accepted, but dangerous: hidden characters, instructions, or an example that violates the schema
The marks follow from all rules, also from those that are not shown.
targets vllm and sglang are xgrammar, llamacpp is gbnf: the engines that these servers use
exit codes: 0 no finding at or above --fail-on   1 findings, or changed tools   2 wrong usage or unreadable input
"""
_LEVELS = ("error", "warning", "info")


def add_to(commands: Any) -> None:
    """Register `toolwire audit` with its options."""
    parser = add_command(commands, "audit", "find problems of tools with other providers", _HELP, run)
    parser.add_argument("files", nargs="*", metavar="SOURCE", help=f"{SOURCE_HELP}; a folder")
    add_list(parser, "--body", metavar="FILE", help="check a request body for --provider")
    parser.add_argument("--provider", metavar="NAME", help="the provider that the --body is meant for")
    add_model(parser, "the model that the --body is meant for (the model of the body)")
    parser.add_argument("--api-version", metavar="DATE", help="the API version that the --body is meant for")
    parser.add_argument("--format", choices=("table", "json", "sarif", "markdown", "html"), default="table")
    parser.add_argument("--json", action="store_const", const="json", dest="format", help="the same as --format json")
    add_list(parser, "--target", metavar="NAME", help="only rules for this provider; portable: for every provider")
    add_list(parser, "--select", metavar="ID", help="only rules whose id starts with ID")
    add_list(parser, "--ignore", metavar="ID", help="skip rules whose id starts with ID")
    parser.add_argument(
        "--fail-on",
        choices=(*_LEVELS, "none"),
        default="error",
        help="exit 1 for findings at or above this level (error)",
    )
    parser.add_argument("--baseline", metavar="FILE", help="ignore the findings recorded in FILE")
    parser.add_argument("--write-baseline", metavar="FILE", help="record the current findings as known")
    parser.add_argument("--lock", metavar="FILE", help="record the current tools")
    parser.add_argument("--check-lock", metavar="FILE", help="list changes since the lock was written")
    parser.add_argument("--explain", metavar="ID", help="explain a rule")
    add_source_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Explain a rule, write or check a lock, or report findings; return the exit code.

    Findings of --baseline are left out, and --write-baseline records all. The exit code is 1 for findings of at least
    `--fail-on`. Raises `ConfigError` without input and for unknown rules or targets.
    """
    from ..audit.findings import TARGETS, parse_targets
    from ..audit.lock import lock
    from ..audit.report import Report
    from ..audit.tools import errors_by_target

    if arguments.explain:
        return _explain(arguments.explain.upper())
    if not arguments.files and not arguments.body:
        raise ConfigError("no files given", hint="name a source of tools, such as tools.py")
    targets = parse_targets(arguments.target)
    select, ignore = _parse_prefixes(arguments.select), _parse_prefixes(arguments.ignore)
    inputs = read_all(arguments.files, arguments)
    tools = inputs.tools()
    if arguments.lock:
        _refuse_equal_names(inputs)
        replace_file(arguments.lock, json.dumps(lock(tools), indent=2, sort_keys=True) + "\n", mode=0o666)
        print_note(f"tools recorded in {arguments.lock}: {len(tools)}", None)
        return 0
    if arguments.check_lock:
        return _check_lock(arguments.check_lock, tools)
    findings = _collect_findings(inputs, {"select": select, "ignore": ignore, "targets": targets})
    findings += _check_bodies(arguments, select, ignore)
    if arguments.write_baseline:
        known = sorted({fingerprint for finding in findings for fingerprint in finding.fingerprints})
        replace_file(arguments.write_baseline, json.dumps(known, indent=2) + "\n", mode=0o666)
    if arguments.baseline:
        known_before = set(load(arguments.baseline))
        findings = tuple(finding for finding in findings if not known_before.issuperset(finding.fingerprints))
    errors = errors_by_target(inputs.tool_lists(), targets or TARGETS)
    _print_report(arguments.format, Report(tools, findings, targets or TARGETS, inputs.all_notes(), errors))
    if arguments.fail_on == "none" or arguments.write_baseline:
        return 0
    counted = _LEVELS[: _LEVELS.index(arguments.fail_on) + 1]
    return 1 if any(finding.level in counted for finding in findings) else 0


def _parse_prefixes(given: Sequence[str]) -> list[str]:
    """Return prefixes of rule ids in upper case.

    Raises `ConfigError` for a prefix that matches no rule, because a misspelled `--ignore` would have no effect.
    """
    from ..audit.explain import list_rules

    known = [rule.id for rule in list_rules()]
    prefixes = [prefix.upper() for prefix in given]
    for prefix in prefixes:
        if not any(name.startswith(prefix) for name in known):
            raise ConfigError(f"no rule id starts with {prefix!r}", hint=f"use {_describe_ids(known)}")
    return prefixes


def _collect_findings(inputs: AuditInput, rules: dict[str, Any]) -> tuple[Finding, ...]:
    """Audit each kind of input with its rules. `rules` are the options that select rules and targets."""
    from ..audit.code_rules import UNREADABLE_TOOL, audit_code
    from ..audit.config_rules import audit_config
    from ..audit.findings import is_selected, make_finding
    from ..audit.request_rules import audit_log
    from ..audit.tools import audit_tools

    findings = audit_tools(inputs.listed, locations=inputs.locations, **rules) + audit_log(inputs.requests, **rules)
    for tools, locations in inputs.groups:
        findings += audit_tools(tools, locations=locations, **rules)
    if is_selected(UNREADABLE_TOOL, **rules):
        findings += tuple(make_finding(at, UNREADABLE_TOOL, name, "", text) for at, name, text in inputs.unreadable)
    for file, servers in inputs.configs:
        findings += audit_config(servers, file, **rules)
    for file, source in inputs.sources:
        findings += audit_code(source, file, **rules)
    return findings


def _check_bodies(arguments: argparse.Namespace, select: Sequence[str], ignore: Sequence[str]) -> tuple[Finding, ...]:
    """Return the findings of the files of `--body` under the constraints of `--provider`.

    Raises `ConfigError` without a provider and for a file that is not a JSON object.
    """
    from ..audit.request_rules import audit_body

    if arguments.body and not arguments.provider:
        raise ConfigError("--body needs --provider", hint="name the provider that the body is sent to")
    findings: list[Finding] = []
    for file in arguments.body:
        body = load(file)
        if type(body) is not dict:
            raise ConfigError(f"{file} is not a JSON object", hint="give the body of one request")
        findings += audit_body(
            body,
            arguments.provider,
            arguments.model,
            version=arguments.api_version,
            file=file,
            select=select,
            ignore=ignore,
        )
    return tuple(findings)


def _explain(rule_id: str) -> int:
    """Print the explanation of a rule. Raises `ConfigError`, with similar ids, for an unknown rule."""
    from ..audit.explain import explain, list_rules

    known = [rule.id for rule in list_rules()]
    if rule_id not in known:
        close_matches = get_close_matches(rule_id, known, 2, 0.5)
        hint = (
            f"did you mean {' or '.join(map(repr, close_matches))}?" if close_matches else f"use {_describe_ids(known)}"
        )
        raise ConfigError(f"unknown rule {rule_id!r}", hint=hint)
    head, gap, example = explain(rule_id).partition("\n\n")
    for line in head.splitlines():  # links stay whole, to be opened
        print("\n".join(paragraph(line)))
    print_text(gap[1:] + example)
    return 0


def _describe_ids(known: Sequence[str]) -> str:
    """Return the first and last id of each series, such as `TW001 to TW139`."""
    series = [sorted(rule_id for rule_id in known if rule_id[:2] == start) for start in sorted({i[:2] for i in known})]
    return " or ".join(f"{ids[0]} to {ids[-1]}" for ids in series)


def _refuse_equal_names(inputs: AuditInput) -> None:
    """Raise `ConfigError` if two tools have the same name: a lock has one entry per name."""
    tools = inputs.tools()
    name = next((name for name, number in Counter(tool.name for tool in tools).items() if number > 1), None)
    if name is None:
        return
    listed = [(inputs.listed, inputs.locations), *inputs.groups]
    files = {
        place.file for group, places in listed for tool, place in zip(group, places, strict=True) if tool.name == name
    }
    files |= {one.location.file for one in inputs.requests if any(tool.name == name for tool in one.request.tools)}
    raise ConfigError(
        f"several tools have the name {name!r} (in {', '.join(sorted(files))}), so that a lock cannot distinguish them",
        hint="write a lock for each list of tools",
    )


def _check_lock(file: str, tools: Sequence[Tool]) -> int:
    """Print the changes since the lock was written. Return 1 if there are any."""
    from ..audit.lock import changes

    found = changes(load(file), tools)
    for change in found:
        print(neutralise_line(change))
    print_note(count_of(len(found), "change") if found else "no changes", None)
    return 1 if found else 0


def _print_report(form: str, report: Report) -> None:
    """Print the report; notes and totals go to standard error, so that a pipe gets only the report."""
    from ..audit.report import as_json, as_markdown, as_sarif, count_levels, render_html

    if form == "json":
        print(json_text(as_json(report)))
    elif form == "sarif":
        print(json_text(as_sarif(report, __version__)))
    elif form == "markdown":
        print(as_markdown(report))
    elif form == "html":
        print(render_html(report, __version__))
    else:
        print_table(report)
    for note in report.notes:
        print_note(note, None)
    if form == "table":
        prefix = f"{count_of(len(report.tools), 'tool')}: " if report.tools else ""
        print_note(prefix + format_levels(count_levels(report.findings)), "bold")
        print_explain_hint(report)


def format_levels(levels: Mapping[str, int]) -> str:
    """Return the numbers of findings: "1 error, 2 warnings, 3 info"."""
    return ", ".join(
        f"{number} info" if level == "info" else count_of(number, level) for level, number in levels.items()
    )


_NARROW = 76  # characters; the problem would have less than half of them
_MAX_PLACES = 3  # of a row; enough to see a pattern, and --json lists all of them


def print_table(report: Report, *, max_rows: int = sys.maxsize, max_message: int = sys.maxsize) -> None:
    """Print the matrix of tools by providers, then the findings. Either is left out if it is empty.

    Findings of a rule that differ only in their place are one row.
    """
    from ..audit.findings import RULES
    from ..audit.report import compatibility_matrix, group_findings, marks_legend

    header, *rows = compatibility_matrix(report)
    legend = marks_legend(rows)
    names = max((len(row[0]) for row in rows), default=0)
    if len("  ".join(("x" * names, *header[1:]))) > terminal_width():
        header, rows = ("tool", "tokens", "providers"), [_as_sentence(header, row) for row in rows]
    if rows:
        print("\n".join([*table(rows, header), "", *(line for text in legend for line in paragraph(text)), ""]))
    groups = group_findings(report.findings)
    shown = [
        (
            g.level,
            g.rule,
            _list_places(g.places),
            _describe_problem(RULES[g.rule].title, shorten(g.message, max_message)),
        )
        for g in groups[:max_rows]
    ]
    if rows and shown:
        print("problems of the tools as written:")
    for line in _finding_lines(shown):
        print(line)
    if len(groups) > max_rows:
        print(f"the first {max_rows} of {len(groups):,} rows; --all shows them")


def _finding_lines(rows: Sequence[tuple[str, str, str, str]]) -> Iterator[str]:
    """Yield a table of findings. Four columns need width: a narrower terminal has the problem below its location."""
    if terminal_width() >= _NARROW or not rows:
        yield from table(rows, ("level", "rule", "location", "problem")) if rows else ()
        return
    for level, rule, places, problem in rows:
        first, *others = paragraph(f"{level} {rule} {places}", "  ")
        yield first[2:].replace(level, paint(level, SEVERITIES[level]), 1)
        yield from (*others, *paragraph(problem, "    "))


def _list_places(places: Sequence[str]) -> str:
    """Join the first places. Each is revealed by itself, because names of tools may have invisible characters."""
    rest = len(places) - _MAX_PLACES
    return ", ".join([*map(reveal_line, places[:_MAX_PLACES]), *([f"+{rest:,} more"] if rest > 0 else [])])


def print_explain_hint(report: Report) -> None:
    """Print the command that explains the worst rule of the report, to standard error."""
    from ..audit.report import sort_findings

    for finding in sort_findings(report.findings)[:1]:
        print_command(f"toolwire audit --explain {finding.rule}", "the meaning of the rule, and its fix")


def _describe_problem(title: str, message: str) -> str:
    """Join the title of a rule and the message of a finding, unless its beginning only repeats the title."""
    first, _, rest = message.partition(", ")
    if not set(re.findall(r"\w+", first)) <= {*re.findall(r"\w+", title), "no"}:
        return f"{title}: {message}"
    return f"{title} ({rest})" if rest else title


def _as_sentence(header: Sequence[str], row: Sequence[str]) -> tuple[str, str, str]:
    """Return a row of the matrix for a terminal that is too narrow for a column per provider."""
    tool, *marks, tokens = row
    by_mark: dict[str, list[str]] = {}
    for mark, name in zip(marks, header[1:-1], strict=True):
        by_mark.setdefault(mark, []).append(name)
    accepting = by_mark.pop("✓", [])
    parts = [f"{mark} {', '.join(names)}" for mark, names in by_mark.items()]
    return tool, tokens, "; ".join([*parts, *(["✓ others" if parts else "✓ all"] if accepting else [])])
