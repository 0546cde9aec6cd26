"""Test the tools of a Python file. Every tool has a process and a temporary folder of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

from msgspec.structs import replace

from ...ir.errors import ConfigError
from .checks import CallFault, FindingList, ToolFinding, reproduction_command, require_checks
from .landlock import landlock_version
from .properties import ToolProperties
from .report import Protection, ToolTestReport, ToolTestResult
from .sandbox import ToolSandbox, require_protection, safe_arguments
from .settings import AuditEvent, LoadedFile, TestedTool, ToolTestSettings
from .single_calls import CallTarget, SingleCallTest
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
    run = TestRun((file,), settings or ToolTestSettings(), "landlock" if landlock_version() else "hook", on_progress)
    if not Path(file).is_file():
        raise ConfigError(f"cannot read {file}: not a file", hint="give a Python file with your functions")
    servers = ForkServers()
    pool = ThreadPoolExecutor(max(1, jobs), thread_name_prefix="toolwire-test")
    try:
        # In a thread, like the tests: a signal raises SystemExit in the main thread, and between a request to a fork
        # server and its reply it would leave the socket out of step for the cleanup.
        loaded = pool.submit(_load, file, run.settings, servers).result()
        findings = _import_findings(file, loaded, run.settings)
        if loaded.error and not findings:
            raise ConfigError(f"cannot load {file}: {loaded.error}")
        selected = run.select({tool.name: tool for tool in loaded.tools}, "file")
        results = pool.map(lambda tool: _test_tool(file, tool, run, servers), selected)
        return ToolTestReport(file, "functions", run.settings.seed, tuple(results), findings, run.protection)
    except BaseException:
        servers.abort()  # an interrupt ends all tests
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        servers.close()


def _load(file: str, settings: ToolTestSettings, servers: ForkServers) -> LoadedFile:
    """Import the file once, only to list its tools."""
    with ToolWorker(file, settings, servers, allow_writes=False) as worker:
        loaded, abbreviate = worker.start(), worker.sandbox.abbreviate
        events = tuple(AuditEvent(event.kind, abbreviate(event.target)) for event in loaded.events)
        return replace(loaded, events=events, error=abbreviate(loaded.error))


def _import_findings(file: str, loaded: LoadedFile, settings: ToolTestSettings) -> tuple[ToolFinding, ...]:
    found = FindingList("", settings)
    for event in loaded.events:
        message = _IMPORT_TEXTS[event.kind].format(event.target)
        found.add(CallFault("import-effect", message, f"{message}; {loaded.error}" if loaded.error else message), None)
    return found.finish(lambda _: f"toolwire test {file}")


def _test_tool(file: str, tool: TestedTool, run: TestRun, servers: ForkServers) -> ToolTestResult:
    """Test a tool in processes of its own. A tool whose effect must not happen is skipped."""
    if not run.settings.may_run(tool.effect):
        return ToolTestResult(tool.name, tool.effect, skipped=f"effect {tool.effect}; --include-writes tests it")
    has_effect = tool.effect in ("idempotent", "write")
    with ToolWorker(file, run.settings, servers, allow_writes=has_effect) as worker:
        sandbox, resolved = worker.sandbox, str(Path(file).resolve())
        return run.check(tool, worker, sandbox, lambda text: sandbox.abbreviate(text).replace(resolved, file))


ToolType = TypeVar("ToolType")


class TestRun:
    """A run of tests: its settings, and the tests of one tool, which are the same for functions and servers."""

    __test__ = False  # not a test class of pytest

    def __init__(
        self, source: Sequence[str], settings: ToolTestSettings, available: Protection, on_progress: TestProgress
    ) -> None:
        require_checks(settings.ignore)
        self.settings = settings
        self.protection = require_protection(settings, available)
        self._source, self._on_progress = source, on_progress

    def select(self, tools: Mapping[str, ToolType], source: str) -> list[ToolType]:
        """Return the tools to test. Raise ConfigError if no name matches."""
        selected = [tool for name, tool in tools.items() if self.settings.selects(name)]
        if tools and not selected:
            patterns = ", ".join(self.settings.tools)
            raise ConfigError(f"no tool matches {patterns}", hint=f"the {source} has {', '.join(tools)}")
        return selected

    def check(
        self, tool: TestedTool, target: CallTarget, sandbox: ToolSandbox, shorten: Callable[[str], str]
    ) -> ToolTestResult:
        """Test one tool with single calls, then check properties of several calls, and return the findings."""
        found = FindingList(tool.name, self.settings, shorten)
        is_safe = safe_arguments(tool.effect, self.protection, sandbox)
        progress = partial(self._on_progress, tool.name)
        test = SingleCallTest(tool, target, self.settings, found, progress, is_safe)
        test.run()
        properties = ToolProperties(tool, target, self.settings, found)
        properties.check(test.settled)
        if isinstance(target, ToolWorker) and target.ends_without_server():
            fault = CallFault("crash", "died", f"the process ended: {KILLED_SERVER}")
            found.add(fault, self.settings.arguments)  # no generated arguments: it is not known which call did it
        findings = found.finish(lambda finding: reproduction_command(self._source, finding, self.settings))
        calls = test.calls + properties.calls
        note = test.note or test.slow
        return ToolTestResult(tool.name, tool.effect, calls, findings, test.skipped, note, test.is_incomplete)
