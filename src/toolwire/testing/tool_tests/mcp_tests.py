"""Test the tools of an MCP server that is started in a temporary folder.

The process is not ours, so that no audit hook observes it: the checks compare answers, and look for the canary.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from ...ir.errors import ConfigError
from ...ir.tools import Tool
from ...mcp.client.config import ServerSpec
from ...mcp.client.http import Authorizer
from .checks import require_checks
from .judge import FindingList, reproduction_command
from .landlock import landlock_version
from .protection import require_protection, safe_arguments
from .python_tests import TestProgress
from .report import Protection, ToolTestReport, ToolTestResult
from .sandbox import ToolSandbox
from .server_properties import ServerProperties
from .server_target import ServerTarget, restricted_spec, sandboxed_spec
from .settings import TestedTool, ToolTestSettings
from .single_calls import SingleCallTest

__all__ = ["check_server_tools"]

_QUOTED = re.compile(r"""[`'"]([\w./:-]{1,40})[`'"]""")


def check_server_tools(
    source: Sequence[str],
    spec: ServerSpec,
    settings: ToolTestSettings | None = None,
    *,
    login: Authorizer | None = None,
    on_progress: TestProgress = lambda *_: None,
) -> ToolTestReport:
    """Test the tools of a server with generated calls: those with a `readOnlyHint`, or all with `include_writes`.

    `source`: the arguments of `toolwire test` that select the server, for the reproductions. `login` authorizes requests. Raise ToolwireError for a server that cannot
    be started.
    """
    settings = settings or ToolTestSettings()
    require_checks(settings.ignore)
    protection = require_protection(settings, "landlock" if spec.command and landlock_version() else "none")
    sandbox = ToolSandbox(settings.files)
    started = sandboxed_spec(spec, sandbox, settings, os.environ)
    if protection == "landlock":
        started = restricted_spec(started, sandbox)
    target = ServerTarget(started, sandbox, settings, login)
    try:
        target.start()
        tools = [tool for name, tool in target.tools.items() if settings.selects(name)]
        if target.tools and not tools:
            known = ", ".join(target.tools)
            raise ConfigError(f"no tool matches {', '.join(settings.tools)}", hint=f"the server has {known}")
        results = [_test_tool(source, tool, target, sandbox, settings, protection, on_progress) for tool in tools]
        return ToolTestReport(" ".join(source), "server", settings.seed, tuple(results), protection=protection)
    finally:
        target.close()
        sandbox.remove()


def _test_tool(
    source: Sequence[str],
    tool: Tool,
    target: ServerTarget,
    sandbox: ToolSandbox,
    settings: ToolTestSettings,
    protection: Protection,
    on_progress: TestProgress,
) -> ToolTestResult:
    if not settings.may_run(tool.effect):
        return ToolTestResult(tool.name, tool.effect, skipped="no readOnlyHint; --include-writes tests it")
    found = FindingList(tool.name, settings, sandbox.abbreviate)
    tested = TestedTool(
        tool.name,
        tool.effect,
        tool.input_schema or {"type": "object"},
        tool.examples,
        words=tuple(dict.fromkeys(_QUOTED.findall(f"{tool.description} {tool.input_schema}")))[:10],
    )
    is_safe = safe_arguments(tool.effect, protection, sandbox)
    test = SingleCallTest(
        tested, target, settings, found, lambda done, total: on_progress(tool.name, done, total), is_safe
    )
    test.run()
    calls = test.calls
    if not test.skipped:
        returned = [case.arguments for case in test.settled if test.outcomes[repr(case.arguments)].status == "returned"]
        properties = ServerProperties(tool, target, sandbox, settings, found)
        properties.check(returned)
        calls += properties.calls
    findings = found.finish(lambda finding: reproduction_command(source, finding, settings))
    note = test.note or test.slow
    return ToolTestResult(tool.name, tool.effect, calls, findings, test.skipped, note, test.is_incomplete)
