"""The report of a test run, and its JSON and JUnit forms."""

from __future__ import annotations

from typing import Literal, TypeAlias
from xml.etree import ElementTree as ET

import msgspec

from ...ir.pointer import Object
from ...ir.terminal import reveal_line
from ...ir.tools import Effect
from ...ir.value import Value
from .checks import ToolFinding

Protection: TypeAlias = Literal["landlock", "hook", "none"]


class ToolTestResult(Value, frozen=True):
    """The result of one tool. `skipped`: the reason why it was not tested. `note`: why fewer calls were made.

    `is_incomplete`: more than half of the calls were left out.
    """

    tool: str
    effect: Effect
    calls: int = 0
    findings: tuple[ToolFinding, ...] = ()
    skipped: str = ""
    note: str = ""
    is_incomplete: bool = False


class ToolTestReport(Value, frozen=True):
    """The results of all tools of a source. `findings`: faults of the source itself, such as effects of its import.

    `protection`: "landlock" if the kernel confined the tools to a temporary folder, "hook" if only the audit hook of
    Python did, "none" for a server that ran without either.
    """

    source: str
    kind: Literal["functions", "server"]
    seed: int
    results: tuple[ToolTestResult, ...] = ()
    findings: tuple[ToolFinding, ...] = ()
    protection: Protection = "landlock"

    @property
    def all_findings(self) -> tuple[ToolFinding, ...]:
        return (*self.findings, *(finding for result in self.results for finding in result.findings))


def report_as_json(report: ToolTestReport) -> Object:
    """Return the report as a JSON object."""
    document: Object = msgspec.to_builtins(report)
    results = [
        {"calls": 0, "findings": [], **result, "passed": not result.get("findings") and not result.get("skipped")}
        for result in document.get("results", ())
    ]
    return {
        **document,
        "results": results,
        "findings": document.get("findings", []),
        "protection": report.protection,
        "total": len(report.all_findings),
    }


def report_as_junit(report: ToolTestReport) -> bytes:
    """Return the report as JUnit XML: one test case per tool."""
    tested = [result for result in report.results if not result.skipped]
    suite = ET.Element(
        "testsuite",
        name="toolwire test",
        tests=str(len(report.results)),
        failures=str(sum(bool(result.findings) for result in tested)),
        skipped=str(len(report.results) - len(tested)),
    )
    if report.findings:
        _add_failures(ET.SubElement(suite, "testcase", name="import", classname=report.source), report.findings)
    for result in report.results:
        case = ET.SubElement(suite, "testcase", name=result.tool, classname=report.source)
        if result.skipped:
            ET.SubElement(case, "skipped", message=reveal_line(result.skipped))
        _add_failures(case, result.findings)
    data: bytes = ET.tostring(suite, encoding="utf-8", xml_declaration=True)
    return data


def _add_failures(case: ET.Element, findings: tuple[ToolFinding, ...]) -> None:
    for finding in findings:
        failure = ET.SubElement(case, "failure", type=finding.check, message=reveal_line(finding.message))
        failure.text = reveal_line(finding.reproduction)
