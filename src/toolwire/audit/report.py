"""Report findings as JSON, SARIF 2.1.0, markdown, or one HTML page."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from ..ir.pointer import Object
from ..ir.terminal import neutralise_line
from ..ir.tools import Tool
from .explain import explain, render_page
from .findings import DANGEROUS, LEVELS, REJECTED, RULES, TARGETS, Finding, Level
from .tools import Compatibility, estimate_tokens, rate_compatibility, single_message

MARKS = {
    "✓": "accepted unchanged",
    "~": "rejected as written, accepted as toolwire translates it",
    "!": "translated, but not fully enforced (number of losses)",
    "⚠": "accepted, but dangerous: misleads the model",
    "✗": "rejected, also as toolwire translates it",
}
"""The marks of the overview with their meanings."""
_SARIF_LEVELS: dict[Level, str] = {"error": "error", "warning": "warning", "info": "note"}


class Report(NamedTuple):
    """The audited tools, the findings, the targets of the overview, and notes on the input.

    `errors` decide the marks (`errors_by_target`); `findings` may be only those that the user selected.
    """

    tools: tuple[Tool, ...] = ()
    findings: tuple[Finding, ...] = ()
    targets: tuple[str, ...] = TARGETS
    notes: tuple[str, ...] = ()
    errors: Mapping[tuple[int, str], Collection[str]] = {}


def compatibility_matrix(report: Report) -> list[tuple[str, ...]]:
    """Return a header, and per tool a row with its mark for each provider and its estimated tokens."""
    rows: list[tuple[str, ...]] = [("tool", *report.targets, "tokens")]
    for tool in report.tools:
        marks = rate_compatibility(tool, report.targets)
        cells = [_mark(marks[name], report.errors.get((id(tool), name), ())) for name in report.targets]
        rows.append((tool.name, *cells, str(estimate_tokens(tool))))
    return rows


def _mark(rated: Compatibility, errors: Collection[str]) -> str:
    """Return the mark of a schema; a tool with an error for the target is never marked as accepted unchanged."""
    mark: str = rated.mark
    if not REJECTED.isdisjoint(errors):
        mark = "✗"
    elif mark != "✗" and not DANGEROUS.isdisjoint(errors):
        mark = "⚠" if DANGEROUS.issuperset(errors) else "⚠~"  # also rejected as written
    elif mark == "✓" and errors:
        mark = "~"
    return f"{mark}{rated.losses or ''}"


def marks_legend(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the meanings of the marks in rows of the overview; empty if every tool is accepted unchanged."""
    used = {character for row in rows for cell in row[1:-1] for character in cell}
    return [f"{mark} {text}" for mark, text in MARKS.items() if mark in used] if used - {"✓"} else []


def sort_findings(findings: Sequence[Finding]) -> list[Finding]:
    """Sort findings by level, errors first."""
    return sorted(findings, key=lambda finding: (LEVELS.index(finding.level), finding.rule))


def locations(findings: Sequence[Finding]) -> Iterator[tuple[Finding, str]]:
    """Yield each finding with its location for people: with its file if the findings are about several files."""
    several = len({finding.file for finding in findings}) > 1
    for finding in findings:
        in_file = several and finding.file and not finding.line
        yield finding, f"{finding.file} {finding.where}" if in_file else finding.where


class FindingGroup(NamedTuple):
    """The findings of a rule that differ only in their place: a tool and a property, or a place in a file."""

    level: Level
    rule: str
    message: str
    places: list[str]


def group_findings(findings: Sequence[Finding]) -> list[FindingGroup]:
    """Group findings by rule and message, errors first. `paths` of merged findings become places again."""
    several = len({finding.file for finding in findings}) > 1
    groups: dict[tuple[str, str], FindingGroup] = {}
    for finding in sort_findings(findings):
        message = single_message(finding)
        group = groups.setdefault((finding.rule, message), FindingGroup(finding.level, finding.rule, message, []))
        file = f"{finding.file}:{finding.line} " if finding.line else f"{finding.file} " if several else ""
        for path in finding.paths or (finding.path,):
            place = f"{file}{_place(finding.tool, path)}"
            group.places.append(place.strip() or "/")
    return list(groups.values())


def _place(tool: str, path: str) -> str:
    """Return a short form of a pointer into a tool: `find_orders.limit`. The JSON report has the pointer itself."""
    if not tool:
        return path
    return tool + path.replace("/input_schema/", "/", 1).replace("/properties/", ".")


def count_levels(findings: Sequence[Finding]) -> dict[str, int]:
    return {level: sum(finding.level == level for finding in findings) for level in LEVELS}


def as_json(report: Report) -> Object:
    """Return the report as JSON, with the compatibility of each tool."""
    import msgspec

    header, *rows = compatibility_matrix(report)
    return {
        "tools": [dict(zip(header, row, strict=True)) for row in rows],
        "findings": [msgspec.to_builtins(finding) for finding in report.findings],
        "counts": count_levels(report.findings),
        "notes": list(report.notes),
    }


def as_markdown(report: Report) -> str:
    """Return the compatibility table, the findings and the notes as Markdown."""
    header, *rows = compatibility_matrix(report)
    lines = [_markdown_row(header), _markdown_row(["---"] * len(header)), *map(_markdown_row, rows), ""] if rows else []
    lines += ["   ".join(legend), ""] if (legend := marks_legend(rows)) else []
    lines += [_markdown_row(["rule", "level", "tool", "location", "problem", "fix"]), _markdown_row(["---"] * 6)]
    lines += [
        _markdown_row([f.rule, f.level, f.tool, f"`{where}`", f.message, f.fix])
        for f, where in locations(sort_findings(report.findings))
    ]
    return "\n".join([*lines, *(f"\n{neutralise_line(note)}" for note in report.notes)])


def _markdown_row(cells: Sequence[str]) -> str:
    """Render a table row; escape characters that markdown would read as columns, lines or HTML."""
    plain = (neutralise_line(cell.replace("\n", " ")).replace("|", r"\|").replace("<", "&lt;") for cell in cells)
    return f"| {' | '.join(plain)} |"


def as_sarif(report: Report, version: str) -> Object:
    """Return the findings as SARIF 2.1.0, with the rules that they use."""
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
    """Return a rule as a SARIF reportingDescriptor."""
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


# Render a report as one HTML page without external resources or scripts. Text from tools is escaped.


_STYLE = """
:root { color-scheme: light dark; --line: #8884; --error: #b3261e; --warning: #8a5a00; --info: #3b5b92; --good: #1b6e3c }
@media (prefers-color-scheme: dark) {
  :root { --error: #ff8a80; --warning: #ffc46b; --info: #9db8f2; --good: #7fd49b }
}
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0 2rem; width: 100% }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .6rem; text-align: left; vertical-align: top }
td { overflow-wrap: anywhere }
.rule { white-space: nowrap }
code { font: 13px ui-monospace, monospace }
.error { color: var(--error) } .warning { color: var(--warning) } .info { color: var(--info) } .good { color: var(--good) }
.danger { color: var(--error); font-weight: bold }
.fix { opacity: .75 }
.wide { overflow-x: auto }
"""
_MARK_CLASSES = {"✓": "good", "~": "good", "!": "warning", "⚠": "danger", "✗": "error"}


def render_html(report: Report, version: str) -> str:
    """Return the report as an HTML page that needs no other file and runs no script."""
    counts = count_levels(report.findings)
    total = ", ".join(f'<b class="{level}">{counts[level]} {level}</b>' for level in LEVELS)
    body = [
        "<h1>Tool audit</h1>",
        f"<p>{len(report.tools)} {'tool' if len(report.tools) == 1 else 'tools'}: {total}</p>",
        *(f"<p>{_escape_html(note)}</p>" for note in report.notes),
        *(_compatibility_table(report) if report.tools else ()),
        *(_findings_table(report.findings) if report.findings else ("<p>No findings.</p>",)),
        f"<footer>toolwire {_escape_html(version)}</footer>",
    ]
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width">',
            """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">""",
            f"<title>Tool audit</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
            *body,
            "</body>\n</html>",
        ]
    )


def _escape_html(text: str) -> str:
    return escape(neutralise_line(text.replace("\n", " ")))


def _compatibility_table(report: Report) -> Iterable[str]:
    header, *rows = compatibility_matrix(report)
    legend = ", ".join(f"{_mark_cell(mark)} {text}" for mark, text in MARKS.items())
    yield f"<h2>Tools by providers</h2>\n<p>{legend}</p>"
    yield from _table(
        header, ([f"<code>{_escape_html(name)}</code>", *map(_mark_cell, cells)] for name, *cells in rows)
    )


def _mark_cell(cell: str) -> str:
    kind = _MARK_CLASSES.get(cell[:1])
    return f'<span class="{kind}">{_escape_html(cell)}</span>' if kind else _escape_html(cell)


def _findings_table(findings: Sequence[Finding]) -> Iterable[str]:
    yield "<h2>Findings</h2>"
    rows = (_cells(finding, where) for finding, where in locations(sort_findings(findings)))
    yield from _table(("level", "rule", "tool", "location", "problem and fix"), rows)


def _cells(finding: Finding, where: str) -> list[str]:
    """Render a finding as the cells of a table row. Everything that comes from a tool is escaped."""
    what = f"{_escape_html(RULES[finding.rule].title)}: {_escape_html(finding.message)}"
    return [
        f'<span class="{finding.level}">{finding.level}</span>',
        f'<span class="rule">{finding.rule}</span>',
        f"<code>{_escape_html(finding.tool)}</code>",
        f"<code>{_escape_html(where)}</code>",
        f'{what}<br><span class="fix">{_escape_html(finding.fix)}</span>',
    ]


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    """Render a table whose cells are already HTML."""
    yield '<div class="wide"><table>'
    yield f"<thead><tr>{''.join(f'<th>{name}</th>' for name in header)}</tr></thead><tbody>"
    yield from (f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    yield "</tbody></table></div>"
