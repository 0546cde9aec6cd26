"""Render a report as one HTML page without external resources or scripts. Text from tools is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ..ir.terminal import neutralise_line
from .findings import LEVELS, RULES, Finding
from .report import Report, compatibility_matrix, count_levels, sort_findings

__all__ = ["render_html"]

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --error: #b3261e; --warning: #8a5a00; --info: #3b5b92; --good: #1b6e3c }
@media (prefers-color-scheme: dark) {
  :root { --error: #ff8a80; --warning: #ffc46b; --info: #9db8f2; --good: #7fd49b }
}
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0 2rem; width: 100% }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .6rem; text-align: left; vertical-align: top }
td { overflow-wrap: anywhere }
code { font: 13px ui-monospace, monospace }
.error { color: var(--error) } .warning { color: var(--warning) } .info { color: var(--info) } .good { color: var(--good) }
.fix { opacity: .75 }
.wide { overflow-x: auto }
"""
_MARKS = {"✓": "good", "~": "good", "!": "warning", "✗": "error"}
_LEGEND = "✓ accepted unchanged, ~ translated without loss, ! not fully enforced (number of losses), ✗ not accepted"


def render_html(report: Report, version: str) -> str:
    found = count_levels(report.findings)
    total = ", ".join(f'<b class="{level}">{found[level]} {level}</b>' for level in LEVELS)
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
    yield f"<h2>Tools by providers</h2>\n<p>{_LEGEND}</p>"
    yield from _table(
        header, ([f"<code>{_escape_html(name)}</code>", *map(_mark_cell, cells)] for name, *cells in rows)
    )


def _mark_cell(cell: str) -> str:
    kind = _MARKS.get(cell[:1])
    return f'<span class="{kind}">{_escape_html(cell)}</span>' if kind else _escape_html(cell)


def _findings_table(findings: Sequence[Finding]) -> Iterable[str]:
    yield "<h2>Findings</h2>"
    yield from _table(("level", "rule", "tool", "location", "problem and fix"), map(_cells, sort_findings(findings)))


def _cells(finding: Finding) -> list[str]:
    """Render a finding as the cells of a table row. Everything that comes from a tool is escaped."""
    what = f"{_escape_html(RULES[finding.rule].title)}: {_escape_html(finding.message)}"
    return [
        f'<span class="{finding.level}">{finding.level}</span>',
        finding.rule,
        f"<code>{_escape_html(finding.tool)}</code>",
        f"<code>{_escape_html(finding.where)}</code>",
        f'{what}<br><span class="fix">{_escape_html(finding.fix)}</span>',
    ]


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    """Render a table whose cells are already HTML."""
    yield '<div class="wide"><table>'
    yield f"<thead><tr>{''.join(f'<th>{name}</th>' for name in header)}</tr></thead><tbody>"
    yield from (f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    yield "</tbody></table></div>"
