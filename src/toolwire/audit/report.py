"""Findings for machines and pages: JSON, SARIF 2.1.0, markdown."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.pointer import Object
from ..ir.tools import Tool
from .findings import RULES, Finding, Level
from .tools import TARGETS, fares, tokens

__all__ = ["as_json", "as_markdown", "as_sarif", "matrix"]

_SARIF_LEVELS: dict[Level, str] = {"error": "error", "warning": "warning", "info": "note"}


def matrix(tools: Sequence[Tool]) -> list[tuple[str, ...]]:
    """Rows of tools × providers, with about how many tokens each costs."""
    rows: list[tuple[str, ...]] = [("tool", *TARGETS, "tokens")]
    for tool in tools:
        marks = fares(tool)
        cells = [f"{marks[name].mark}{marks[name].losses or ''}" for name in TARGETS]
        rows.append((tool.name, *cells, str(tokens(tool))))
    return rows


def as_json(tools: Sequence[Tool], findings: Sequence[Finding]) -> Object:
    import msgspec

    header, *rows = matrix(tools)
    return {
        "tools": [dict(zip(header, row, strict=True)) for row in rows],
        "findings": [msgspec.to_builtins(finding) for finding in findings],
        "counts": {level: sum(f.level == level for f in findings) for level in ("error", "warning", "info")},
    }


def as_markdown(tools: Sequence[Tool], findings: Sequence[Finding]) -> str:
    header, *rows = matrix(tools)
    lines = [_row(header), _row(["---"] * len(header)), *map(_row, rows), ""]
    lines += [_row(["rule", "level", "tool", "where", "what", "fix"]), _row(["---"] * 6)]
    lines += [_row([f.rule, f.level, f.tool, f"`{f.path or '/'}`", f.message, f.fix]) for f in findings]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|').replace(chr(10), ' ') for cell in cells)} |"


def as_sarif(findings: Sequence[Finding], file: str, version: str) -> Object:
    used = sorted({finding.rule for finding in findings})
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {"name": "toolwire", "version": version, "rules": [_sarif_rule(one) for one in used]}
                },
                "results": [_sarif_result(finding, file) for finding in findings],
            }
        ],
    }


def _sarif_rule(rule_id: str) -> Object:
    rule = RULES[rule_id]
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "help": {"text": rule.fix},
        "defaultConfiguration": {"level": _SARIF_LEVELS[rule.level]},
        "properties": {"providers": list(rule.providers)},
    }


def _sarif_result(finding: Finding, file: str) -> Object:
    return {
        "ruleId": finding.rule,
        "level": _SARIF_LEVELS[finding.level],
        "message": {
            "text": f"{finding.tool or 'all tools'}{finding.path if finding.path[:1] == ':' else ''}: {RULES[finding.rule].title}: {finding.message}"
        },
        "locations": [
            {
                "physicalLocation": {"artifactLocation": {"uri": file}},
                "logicalLocations": [{"fullyQualifiedName": f"{finding.tool}{finding.path}"}],
            }
        ],
        "partialFingerprints": {"toolwire/v1": finding.fingerprint},
    }
