"""`toolwire audit`: what breaks when these tools meet another provider."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..ir.errors import ConfigError
from .show import paint, printable, table

if TYPE_CHECKING:
    from ..audit.findings import Finding
    from ..ir.request import Request
    from ..ir.tools import Tool
    from ..wire.protocol import Wire

__all__ = ["add_to"]

_EXAMPLES = """\
examples:
  toolwire audit tools.json                       tools by providers, and what the rules find
  toolwire audit request.json --ignore TQ         a recorded request; without the rules on wording
  toolwire audit src/                             Python source: what holds on one provider only
  toolwire audit tools.json --format sarif > tools.sarif
  toolwire audit tools.json --write-baseline known.json && toolwire audit tools.json --baseline known.json
  toolwire audit tools.json --lock tools.lock     remember what the tools are
  toolwire audit tools.json --check-lock tools.lock
  toolwire audit --explain TW031

✓ taken as it is   ~ lowered, nothing lost   ! something is not enforced (how much)   ✗ does not fit
exit codes: 0 nothing at or above --fail-on   1 findings, or a lock that does not hold   2 wrong usage or unreadable input
"""
_LEVELS = ("error", "warning", "info")


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "audit",
        help="find what breaks when tools meet another provider",
        description="Find what breaks when tools meet another provider: names, schemas, limits, wording.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="tool lists, requests (JSON), Python source")
    parser.add_argument("--format", choices=("table", "json", "sarif", "markdown"), default="table")
    parser.add_argument("--select", action="append", default=[], metavar="ID", help="only rules that begin so")
    parser.add_argument("--ignore", action="append", default=[], metavar="ID", help="not the rules that begin so")
    parser.add_argument("--fail-on", choices=(*_LEVELS, "none"), default="error", help="exit 1 from this level on")
    parser.add_argument("--baseline", metavar="FILE", help="findings that are known already")
    parser.add_argument("--write-baseline", metavar="FILE", help="call everything that is found now known")
    parser.add_argument("--lock", metavar="FILE", help="write what the tools are")
    parser.add_argument("--check-lock", metavar="FILE", help="tell what has changed since")
    parser.add_argument("--explain", metavar="ID", help="tell about a rule")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from ..audit.code_rules import audit_code
    from ..audit.lock import lock
    from ..audit.request_rules import audit_request
    from ..audit.tools import audit_tools

    if arguments.explain:
        return _explain(arguments.explain)
    if not arguments.files:
        raise ConfigError("nothing to look at", hint="name a file with tools or a request")
    sources, lists = _sorted(arguments.files)
    documents = [_read(file) for file in lists]
    tools = [tool for found, _ in documents for tool in found]
    if arguments.lock:
        Path(arguments.lock).write_text(json.dumps(lock(tools), indent=2, sort_keys=True) + "\n", encoding="utf-8")
        print(f"{len(tools)} tools in {arguments.lock}", file=sys.stderr)
        return 0
    if arguments.check_lock:
        return _check_lock(arguments.check_lock, tools)
    findings = audit_tools(tools, select=arguments.select, ignore=arguments.ignore)
    for _, asked in documents:
        if asked is not None:
            findings += audit_request(*asked, select=arguments.select, ignore=arguments.ignore)
    for file in sources:
        text = _bytes(file).decode("utf-8", "replace")
        findings += audit_code(text, file, select=arguments.select, ignore=arguments.ignore)
    if arguments.write_baseline:
        known = sorted({finding.fingerprint for finding in findings})
        Path(arguments.write_baseline).write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
    if arguments.baseline:
        known_before = set(_load(arguments.baseline))
        findings = tuple(finding for finding in findings if finding.fingerprint not in known_before)
    _print(arguments, tools, findings)
    if arguments.fail_on == "none" or arguments.write_baseline:
        return 0
    counted = _LEVELS[: _LEVELS.index(arguments.fail_on) + 1]
    return 1 if any(finding.level in counted for finding in findings) else 0


def _sorted(files: Sequence[str]) -> tuple[list[str], list[str]]:
    """Python source, and everything else. A folder stands for the Python source in it."""
    sources: list[str] = []
    lists: list[str] = []
    for file in files:
        if Path(file).is_dir():
            sources += [str(found) for found in sorted(Path(file).rglob("*.py"))]
        else:
            (sources if file.endswith(".py") else lists).append(file)
    return sources, lists


def _read(file: str) -> tuple[tuple[Tool, ...], tuple[Request, Wire] | None]:
    """The tools of a list or of a request, whatever wire it is on, and the request itself."""
    from ..bridge.detect import detect
    from ..wire import get, mcp

    document = _load(file)
    if type(document) is dict and "mcpServers" in document:
        raise ConfigError(f"{file} names MCP servers", hint="give the reply of each server's tools/list")
    found = detect(document)
    if found.kind == "request":
        request = get(found.wire).decode_request(document)
        return request.tools, (request, get(found.wire))
    if found.kind != "tools":
        raise ConfigError(f"{file} is a {found.kind}", hint="give a list of tools or a request")
    if found.wire == mcp.NAME:
        return mcp.list_tools(document), None
    declared = document.get("tools", [document]) if type(document) is dict else document
    return get(found.wire).decode_tools(declared), None


def _load(file: str) -> Any:
    from ..stream.strict import parse

    return parse(_bytes(file))


def _bytes(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error


def _explain(rule_id: str) -> int:
    from ..audit import code_rules, request_rules, tools
    from ..audit.findings import RULES

    assert code_rules.CODE_CHECKS  # both have registered their rules
    assert request_rules.REQUEST_CHECKS
    assert tools.TARGETS
    rule = RULES.get(rule_id)
    if rule is None:
        raise ConfigError(f"no rule is called {rule_id!r}", hint=f"there are {', '.join(RULES)}")
    print(f"{rule.id} ({rule.level}): {rule.title}\nconcerns: {', '.join(rule.providers)}\nfix: {rule.fix}")
    return 0


def _check_lock(file: str, tools: Sequence[Tool]) -> int:
    from ..audit.lock import changes

    found = changes(_load(file), tools)
    for change in found:
        print(printable(change))
    print(f"{len(found)} changes" if found else "as it was", file=sys.stderr)
    return 1 if found else 0


def _print(arguments: argparse.Namespace, tools: Sequence[Tool], findings: Sequence[Finding]) -> None:
    from .. import __version__
    from ..audit.report import as_json, as_markdown, as_sarif

    if arguments.format == "json":
        print(json.dumps(as_json(tools, findings), indent=2, ensure_ascii=False))
    elif arguments.format == "sarif":
        print(json.dumps(as_sarif(findings, arguments.files[0], __version__), indent=2, ensure_ascii=False))
    elif arguments.format == "markdown":
        print(as_markdown(tools, findings))
    else:
        _print_table(tools, findings)


def _print_table(tools: Sequence[Tool], findings: Sequence[Finding]) -> None:
    from ..audit.findings import RULES
    from ..audit.report import matrix

    header, *rows = matrix(tools)
    for line in table(rows, header) if tools else ():
        print(line)
    if tools:
        print()
    order = {level: number for number, level in enumerate(_LEVELS)}
    ranked = sorted(findings, key=lambda finding: (order[finding.level], finding.rule))
    shown = [(f.level, f.rule, f.tool or "-", f.path or "/", f"{RULES[f.rule].title}: {f.message}") for f in ranked]
    for line in table(shown, ("level", "rule", "tool", "where", "what")) if shown else ():
        print(line)
    counts = ", ".join(f"{sum(f.level == level for f in findings)} {level}" for level in _LEVELS)
    print(paint(f"{f'{len(tools)} tools: ' if tools else ''}{counts}", "bold"), file=sys.stderr)
