"""Test the tools of a Python file. Every tool has a process and a temporary folder of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from ...ir.errors import ConfigError
from ...ir.pointer import Object
from .checks import CallFault, FindingList, ToolFinding, reproduction_command, require_checks
from .landlock import landlock_version
from .properties import BatchTarget, ToolProperties
from .report import Protection, ToolTestReport, ToolTestResult
from .sandbox import ToolSandbox, require_protection, safe_arguments
from .settings import AuditEvent, LoadedFile, TestedTool, ToolTestSettings
from .single_calls import SingleCallTest
from .worker import KILLED_SERVER, ForkServers, ToolWorker

TestProgress: TypeAlias = Callable[[str, int, int], None]
"""Called with the name of a tool, the number of calls made, and the number of planned calls."""

_IMPORT_TEXTS = {
    "write": "importing the file writes {}",
    "network": "importing the file connects to {}",
    "process": "importing the file {}",
    "escape": "importing the file opens {}",
}


def check_python_tools(
    file: str,
    settings: ToolTestSettings | None = None,
    *,
    jobs: int = 2,
    on_progress: TestProgress = lambda *_: None,
) -> ToolTestReport:
    """Test the tools of a Python file with generated calls, and return the findings.

    `jobs`: tools that are tested at the same time. Raise ConfigError for a file that cannot be imported.
    """
    settings = settings or ToolTestSettings()
    require_checks(settings.ignore)
    protection = require_protection(settings, "landlock" if landlock_version() else "hook")
    if not Path(file).is_file():
        raise ConfigError(f"cannot read {file}: not a file", hint="give a Python file with your functions")
    servers = ForkServers()
    try:
        return _check_file(file, settings, protection, servers, jobs, on_progress)
    finally:
        servers.close()


def _check_file(
    file: str,
    settings: ToolTestSettings,
    protection: Protection,
    servers: ForkServers,
    jobs: int,
    on_progress: TestProgress,
) -> ToolTestReport:
    loaded = _load(file, settings, servers)
    findings = _import_findings(file, loaded, settings)
    if loaded.error and not findings:
        raise ConfigError(f"cannot load {file}: {loaded.error}")
    selected = [tool for tool in loaded.tools if settings.selects(tool.name)]
    if loaded.tools and not selected:
        known = ", ".join(tool.name for tool in loaded.tools)
        raise ConfigError(f"no tool matches {', '.join(settings.tools)}", hint=f"the file has {known}")

    def test(tool: TestedTool) -> ToolTestResult:
        return _test_tool(file, tool, settings, protection, servers, on_progress)

    results = _run_all(test, selected, jobs, servers)
    return ToolTestReport(file, "functions", settings.seed, tuple(results), findings, protection)


def _run_all(
    test: Callable[[TestedTool], ToolTestResult], tools: Sequence[TestedTool], jobs: int, servers: ForkServers
) -> list[ToolTestResult]:
    """Test several tools at the same time. An interrupt ends all of them."""
    pool = ThreadPoolExecutor(max(1, jobs), thread_name_prefix="toolwire-test")
    try:
        return list(pool.map(test, tools))
    except BaseException:
        servers.abort()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _load(file: str, settings: ToolTestSettings, servers: ForkServers) -> LoadedFile:
    """Import the file once, only to list its tools."""
    sandbox = ToolSandbox(settings.files)
    worker = ToolWorker(file, sandbox, settings, servers, allow_writes=False)
    try:
        loaded = worker.start()
        events = tuple(AuditEvent(event.kind, sandbox.abbreviate(event.target)) for event in loaded.events)
        return replace(loaded, events=events, error=sandbox.abbreviate(loaded.error))
    finally:
        worker.stop()
        sandbox.remove()


def _import_findings(file: str, loaded: LoadedFile, settings: ToolTestSettings) -> tuple[ToolFinding, ...]:
    found = FindingList("", settings)
    for event in loaded.events:
        message = _IMPORT_TEXTS[event.kind].format(event.target)
        found.add(CallFault("import-effect", message, f"{message}; {loaded.error}" if loaded.error else message), None)
    return found.finish(lambda _: f"toolwire test {file}")


def _test_tool(
    file: str,
    tool: TestedTool,
    settings: ToolTestSettings,
    protection: Protection,
    servers: ForkServers,
    on_progress: TestProgress,
) -> ToolTestResult:
    if not settings.may_run(tool.effect):
        return ToolTestResult(tool.name, tool.effect, skipped=f"effect {tool.effect}; --include-writes tests it")
    sandbox = ToolSandbox(settings.files)
    worker = ToolWorker(file, sandbox, settings, servers, allow_writes=tool.effect in ("idempotent", "write"))
    try:
        resolved = str(Path(file).resolve())
        found = FindingList(tool.name, settings, lambda text: sandbox.abbreviate(text).replace(resolved, file))
        is_safe = safe_arguments(tool.effect, protection, sandbox)
        return check_tool([file], tool, worker, settings, found, is_safe, on_progress)
    finally:
        worker.stop()
        sandbox.remove()


def check_tool(
    source: Sequence[str],
    tool: TestedTool,
    target: BatchTarget,
    settings: ToolTestSettings,
    found: FindingList,
    is_safe: Callable[[Object], bool],
    on_progress: TestProgress,
) -> ToolTestResult:
    """Test one tool with single calls, then check properties of several calls."""
    test = SingleCallTest(
        tool, target, settings, found, lambda done, total: on_progress(tool.name, done, total), is_safe
    )
    test.run()
    properties = ToolProperties(tool, target, settings, found)
    properties.check(test.settled, test.outcomes)
    target.stop()
    if isinstance(target, ToolWorker) and target.has_lost_server:  # by the last call
        arguments = test.settled[0].arguments if test.settled else None
        found.add(CallFault("crash", "died", f"the process ended: {KILLED_SERVER}"), arguments)
    findings = found.finish(lambda finding: reproduction_command(source, finding, settings))
    calls = test.calls + properties.calls
    note = test.note or test.slow
    return ToolTestResult(tool.name, tool.effect, calls, findings, test.skipped, note, test.is_incomplete)
