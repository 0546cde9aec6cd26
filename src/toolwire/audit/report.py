"""Report findings as JSON, SARIF 2.1.0 or markdown. The HTML page is in page.py."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from ..ir.pointer import Object
from ..ir.terminal import neutralise_line
from ..ir.tools import Tool
from .explain import explain, render_page
from .findings import LEVELS, RULES, Finding, Level
from .targets import TARGETS, applies_to
from .tools import Compatibility, estimate_tokens, rate_compatibility

__all__ = ["Report", "as_json", "as_markdown", "as_sarif", "compatibility_matrix", "count_levels", "sort_findings"]

_NOT_REPAIRED = frozenset(
    {"TW001", "TW016", "TW017", "TW027", "TW037", "TQ20"}
)  # errors that no translation of the tool repairs
_SARIF_LEVELS: dict[Level, str] = {"error": "error", "warning": "warning", "info": "note"}


class Report(NamedTuple):
    """The audited tools, the findings, the targets of the overview, and notes on the input."""

    tools: tuple[Tool, ...] = ()
    findings: tuple[Finding, ...] = ()
    targets: tuple[str, ...] = TARGETS
    notes: tuple[str, ...] = ()


def compatibility_matrix(report: Report) -> list[tuple[str, ...]]:
    """Return rows of tools × providers, with the estimated tokens of each tool."""
    rows: list[tuple[str, ...]] = [("tool", *report.targets, "tokens")]
    errors: dict[str, set[str]] = {}
    for finding in report.findings:
        if finding.level == "error" and finding.tool:
            errors.setdefault(finding.tool, set()).add(finding.rule)
    for tool in report.tools:
        marks = rate_compatibility(tool, report.targets)
        cells = [_mark(marks[name], name, errors.get(tool.name, set())) for name in report.targets]
        rows.append((tool.name, *cells, str(estimate_tokens(tool))))
    return rows


def _mark(rated: Compatibility, target: str, errors: Collection[str]) -> str:
    """Return the mark of a schema; a tool with an error for the target is never marked as accepted unchanged."""
    mark = rated.mark
    if any(rule in _NOT_REPAIRED and applies_to(rule, RULES[rule].providers, (target,)) for rule in errors):
        mark = "✗"
    elif mark == "✓" and any(applies_to(rule, RULES[rule].providers, (target,)) for rule in errors):
        mark = "~"
    return f"{mark}{rated.losses or ''}"


def sort_findings(findings: Sequence[Finding]) -> list[Finding]:
    """Sort findings by level, errors first."""
    return sorted(findings, key=lambda finding: (LEVELS.index(finding.level), finding.rule))


def count_levels(findings: Sequence[Finding]) -> dict[str, int]:
    return {level: sum(finding.level == level for finding in findings) for level in LEVELS}


def as_json(report: Report) -> Object:
    import msgspec

    header, *rows = compatibility_matrix(report)
    return {
        "tools": [dict(zip(header, row, strict=True)) for row in rows],
        "findings": [msgspec.to_builtins(finding) for finding in report.findings],
        "counts": count_levels(report.findings),
        "notes": list(report.notes),
    }


def as_markdown(report: Report) -> str:
    header, *rows = compatibility_matrix(report)
    lines = [_markdown_row(header), _markdown_row(["---"] * len(header)), *map(_markdown_row, rows), ""] if rows else []
    lines += [_markdown_row(["rule", "level", "tool", "location", "problem", "fix"]), _markdown_row(["---"] * 6)]
    lines += [
        _markdown_row([f.rule, f.level, f.tool, f"`{f.where}`", f.message, f.fix])
        for f in sort_findings(report.findings)
    ]
    return "\n".join([*lines, *(f"\n{neutralise_line(note)}" for note in report.notes)])


def _markdown_row(cells: Sequence[str]) -> str:
    """Render a table row; escape characters that markdown would read as columns, lines or HTML."""
    plain = (neutralise_line(cell.replace("\n", " ")).replace("|", r"\|").replace("<", "&lt;") for cell in cells)
    return f"| {' | '.join(plain)} |"


def as_sarif(report: Report, version: str) -> Object:
    used = sorted({finding.rule for finding in report.findings})
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {"name": "toolwire", "version": version, "rules": [_sarif_rule(one) for one in used]}
                },
                "results": [_sarif_result(finding) for finding in report.findings],
            }
        ],
    }


def _sarif_rule(rule_id: str) -> Object:
    rule = RULES[rule_id]
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "help": {"text": explain(rule_id), "markdown": render_page(rule_id)},
        "defaultConfiguration": {"level": _SARIF_LEVELS[rule.level]},
        "properties": {"providers": list(rule.providers)},
    }


def _sarif_result(finding: Finding) -> Object:
    """Convert a finding to a SARIF result; the fingerprint lets viewers recognise it in a later report."""
    region = {"region": {"startLine": finding.line}} if finding.line else {}
    about = f"{finding.tool}: " if finding.tool else ""
    return {
        "ruleId": finding.rule,
        "level": _SARIF_LEVELS[finding.level],
        "message": {"text": f"{about}{RULES[finding.rule].title}: {finding.message}"},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": {"uri": finding.file}, **region},
                "logicalLocations": [{"fullyQualifiedName": f"{finding.tool}{finding.path}"}],
            }
        ],
        "partialFingerprints": {"toolwire/v1": finding.fingerprint},
    }
