"""`toolwire test`: test tools with calls generated from their schemas."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..ir.errors import ConfigError
from ..ir.terminal import count_of, neutralise_line, reveal_line
from ..stream.strict import parse, parse_object
from ..testing.tool_tests.settings import ToolTestSettings
from .sources.documents import replace_file
from .sources.targets import add_server_options, parse_spec
from .sources.tool_source import source_kind
from .terminal.options import add_command, add_flag, add_list, settings_from
from .terminal.output import ProgressBar, command_lines, json_text, paint, paragraph, print_note, table

if TYPE_CHECKING:
    from ..mcp.client.config import ServerSpec
    from ..testing.tool_tests.checks import ToolFinding
    from ..testing.tool_tests.report import ToolTestReport, ToolTestResult

_HELP = """\
Test tools with valid, boundary, adversarial and invalid calls generated from their schemas.

examples:
  toolwire test tools.py                          pure and read tools of a file
  toolwire test tools.py --include-writes         all tools; writes go to a temporary folder
  toolwire test tools.py --tool get_weather --arguments '{"city": ""}'      one call, with all checks
  toolwire test tools.py --seed 7 --cases 200     other calls, and more of them
  toolwire test tools.py --ignore crash --junit report.xml
  toolwire test "npx -y @modelcontextprotocol/server-everything"            the tools of an MCP server
  toolwire test mcp.json --server files           one server of an mcpServers file
  toolwire test --list                            the checks

The tools run in a child process with a temporary working folder and HOME, without your environment variables. Writes,
connections and processes are denied and reported. Tools with effects are only called with --include-writes.
exit codes: 0 no finding   1 findings   2 wrong usage, unreadable source, or no tool was tested
"""

_PROTECTION_NOTES = {
    "hook": "note: this system has no Landlock; the tools ran with the audit hook only",
    "none": "note: the server ran without protection; its tools can change files, connect and start processes",
}


def add_to(commands: Any) -> None:
    """Register `toolwire test` with its options."""
    parser = add_command(commands, "test", "test your tools with generated calls", _HELP, run)
    parser.add_argument(
        "source",
        nargs="?",
        metavar="TOOLS",
        help="a Python file of functions, or an MCP server: a URL, a command in quotes, or an mcpServers file",
    )
    add_list(parser, "-k", "--tool", metavar="NAME", help="only these tools; * and ? are wildcards")
    parser.add_argument("--arguments", metavar="JSON", help="call with these arguments instead of generated ones")
    parser.add_argument("--cases", type=int, default=60, metavar="N", help="generated calls per tool (60)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the same seed gives the same calls (0)")
    add_flag(parser, "--include-writes", "also call idempotent and write tools")
    add_flag(parser, "--unprotected", "allow --include-writes where writes cannot be confined")
    add_list(parser, "--ignore", metavar="CHECK", help="leave out a check (--list)")
    add_flag(parser, "--list", "list the checks")
    add_flag(parser, "--json", "print the report as JSON")
    parser.add_argument("--junit", metavar="FILE", help="also write a JUnit report")
    limits = parser.add_argument_group("limits")
    limits.add_argument("--time-limit", type=float, default=20.0, metavar="SECONDS", help="per tool (20)")
    limits.add_argument("--max-output", type=int, default=1_000_000, metavar="N", help="characters (1000000)")
    limits.add_argument("--memory", type=int, default=1024, metavar="MB", help="memory of a call (1024)")
    limits.add_argument("--concurrency", type=int, default=8, metavar="N", help="calls at the same time (8)")
    limits.add_argument("--jobs", type=int, metavar="N", help="tools at the same time (the number of cores, 4 at most)")
    _add_environment_options(parser.add_argument_group("environment of the tools"))
    servers = parser.add_argument_group("calls and MCP servers")
    servers.add_argument("--server", metavar="NAME", help="the server of an mcpServers file")
    add_server_options(servers, timeout=5.0)


def _add_environment_options(group: Any) -> None:
    add_list(group, "--pass-env", metavar="NAME", help="pass on an environment variable")
    add_list(group, "--allow-net", metavar="HOST", help="allow connections to this host")
    add_list(group, "--files", metavar="PATH", help="copy into the temporary working folder")
    group.add_argument("--deps", metavar="NAME", help="a function of the file that returns the value of context.deps")


def run(arguments: argparse.Namespace) -> int:
    """Test the tools, print the report, write it for --junit, and return the exit code.

    Raises `ConfigError` without tools, and for a JUnit file that cannot be written.
    """
    if arguments.list:
        return _list_checks()
    if arguments.source is None:
        raise ConfigError("no tools given", hint="give a Python file of functions or an MCP server")
    if arguments.junit:
        _require_writable(Path(arguments.junit))
    with _clean_termination():
        report = _test_source(arguments, _read_settings(arguments))
    if arguments.json:
        from ..testing.tool_tests.report import report_as_json

        print(json_text(report_as_json(report)))
    else:
        _print_report(report)
    if report.protection != "landlock":
        print_note(_PROTECTION_NOTES[report.protection], None)
    if arguments.junit:
        from ..testing.tool_tests.report import report_as_junit

        replace_file(arguments.junit, report_as_junit(report), mode=0o666)
    return _exit_code(report)


def _exit_code(report: ToolTestReport) -> int:
    """Return 1 for findings, and 2 if no tool was tested, because a run in CI must not pass by accident."""
    if report.all_findings:
        return 1
    if all(result.skipped for result in report.results):
        print_note("no tool was tested: declare effects, or use --include-writes", None)
        return 2
    return 0


def _require_writable(file: Path) -> None:
    """Raise ConfigError before the tests if the report cannot be written after them."""
    needed = [file] if file.exists() else []
    if not file.exists() or file.is_file():  # a file is replaced, a device or pipe is written
        needed.append(Path(os.path.realpath(file)).parent)
    if file.is_dir() or not all(os.access(path, os.W_OK) for path in needed):
        raise ConfigError(f"cannot write {file}", hint="give --junit a file in an existing folder")


@contextmanager
def _clean_termination() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit, so that the temporary folders are removed."""

    def stop(number: int, _: object) -> None:
        sys.exit(128 + number)

    numbers = [signal.SIGTERM, *([signal.SIGHUP] if sys.platform != "win32" else [])]
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _list_checks() -> int:
    from ..testing.tool_tests.checks import TOOL_CHECKS

    for line in table([(check.id, check.about) for check in TOOL_CHECKS], ("check", "reports")):
        print(line)
    return 0


def _read_settings(arguments: argparse.Namespace) -> ToolTestSettings:
    if arguments.arguments is not None and len(arguments.tool) != 1:
        raise ConfigError("--arguments needs one --tool", hint="name the tool that has these parameters")
    given = None if arguments.arguments is None else parse_object(arguments.arguments)
    tools, hosts = tuple(arguments.tool), tuple(arguments.allow_net)
    return settings_from(ToolTestSettings, arguments, tools=tools, allow_hosts=hosts, arguments=given)


def _test_source(arguments: argparse.Namespace, settings: ToolTestSettings) -> ToolTestReport:
    """Test the tools of a Python file or an MCP server with a progress bar. Raises `ConfigError` for other sources."""
    kind = source_kind(arguments.source)
    with ProgressBar("") as bar:

        def show_progress(tool: str, done: int, total: int) -> None:
            bar.label = neutralise_line(tool)
            bar(done, total)

        if kind == "functions":
            from ..testing.tool_tests.python_tests import check_python_tools

            jobs = arguments.jobs or min(os.cpu_count() or 1, 4)
            return check_python_tools(arguments.source, settings, jobs=jobs, on_progress=show_progress)
        if kind == "mcp":
            from ..mcp.client.login import Browser, Login
            from ..testing.tool_tests.mcp_tests import check_server_tools

            words, spec = _select_server(arguments)
            words += [word for name in spec.env for word in ("--env", f"{name}=…")]  # the values may be secret
            login = Login(Browser()) if arguments.login else None
            return check_server_tools(words, spec, settings, login=login, on_progress=show_progress)
    raise ConfigError(
        f"toolwire test cannot call the tools of {arguments.source}", hint="give a Python file or a server"
    )


def _select_server(arguments: argparse.Namespace) -> tuple[list[str], ServerSpec]:
    """Return the arguments that select the server on the command line, and the server.

    Raises `ConfigError` if --server is needed or unknown.
    """
    if not (arguments.source.endswith(".json") and Path(arguments.source).is_file()):
        return [arguments.source], parse_spec(arguments.source, arguments)
    from ..mcp.client.config import read_config

    specs = {spec.name: spec for spec in read_config(parse(Path(arguments.source).read_bytes()), os.environ)}
    if arguments.server is None and len(specs) == 1:
        (name,) = specs
    elif arguments.server in specs:
        name = arguments.server
    else:
        raise ConfigError(f"{arguments.source} has {len(specs)} servers", hint=f"use --server {' or '.join(specs)}")
    return [arguments.source, "--server", name], specs[name]


def _print_report(report: ToolTestReport) -> None:
    """Print a table of the tools, then each finding with its reproduction. Totals go to standard error."""
    rows = [_row(result) for result in report.results]
    if rows:
        lines = table(rows, ("", "tool", "effect", "calls", "result"), bold=True)
        print("\n".join(map(_paint_mark, lines)))
    for finding in report.all_findings:
        _print_finding(finding)
    found = len(report.all_findings)
    tested = sum(not result.skipped for result in report.results)
    total = f"{count_of(tested, 'tool')} tested, {count_of(found, 'finding')}, seed {report.seed}"
    print_note(total, "red" if found else "green")


def _row(result: ToolTestResult) -> tuple[str, str, str, str, str]:
    if result.skipped:
        return "-", result.tool, result.effect, "", f"skipped: {result.skipped}"
    checks = ", ".join(dict.fromkeys(finding.check for finding in result.findings))
    text = checks or "no finding"
    mark = "✗" if result.findings else "!" if result.is_incomplete else "✓"
    return mark, result.tool, result.effect, str(result.calls), f"{text} ({result.note})" if result.note else text


def _paint_mark(line: str) -> str:
    colour = {"✓": "green", "✗": "red", "!": "yellow"}.get(line[:1])
    return line if colour is None else paint(line[:1], colour) + line[1:]


def _print_finding(finding: ToolFinding) -> None:
    """Print a finding: everything in it that comes from the tool is untrusted text."""
    title = f"{finding.tool}: {finding.check}" if finding.tool else finding.check
    times = f" ({finding.count} calls)" if finding.count > 1 else ""
    print(f"\n{paint('✗', 'red')} {paint(neutralise_line(title), 'bold')}{times}")
    print("\n".join(paragraph(reveal_line(finding.message), "  ")))
    if finding.location:
        print("\n".join(paragraph(f"at {finding.location}", "  ")))
    print("\n".join(paint(line, "dim") for line in command_lines(reveal_line(finding.reproduction), "  ")))
