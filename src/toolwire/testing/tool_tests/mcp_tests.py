"""Test the tools of an MCP server: start it in a temporary folder, call it, and check properties of several calls."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from ...ir.errors import ToolwireError
from ...ir.parts import ToolCall, ToolResult
from ...ir.pointer import Object
from ...ir.tools import Tool
from ...mcp.client.client import McpClient
from ...mcp.client.config import ServerSpec
from ...mcp.client.failures import ServerGone
from ...mcp.client.http import Authorizer
from ...mcp.protocol.rpc import RpcError
from ...schema.validation.validator import validator
from . import landlock
from .child_calls import CallBatch, RepeatedCall
from .landlock import landlock_version
from .python_tests import TestProgress, TestRun
from .recorder import digest_result
from .report import Protection, ToolTestReport, ToolTestResult
from .sandbox import ToolSandbox
from .settings import CallOutcome, RaisedError, TestedTool, ToolTestSettings
from .state import files_state
from .worker import WorkerStopped

# An MCP server under test: started in a temporary folder, called, and started again after it failed.
#
# The event loop runs only while a call is made, so that the tests of servers and of functions share one synchronous
# form.


_START_TIMEOUT = 60.0  # seconds; npx or uvx may install the server first
_FOLDER = "{cwd}"  # in arguments and environment variables: the temporary working folder
_MAX_TEXT = 2000  # characters of an answer in an outcome; the digest covers all of it
_MAX_LINE = 200  # characters of the line with an unhandled exception
_CACHES = {"npm_config_cache": ".npm", "UV_CACHE_DIR": ".cache/uv", "UV_TOOL_DIR": ".local/share/uv/tools"}
"""Caches of package runners, which would install a server again with another HOME."""
_UNHANDLED = re.compile(
    r"Traceback \(most recent call last\)|\n[^\S\n]++at \S.*:\d++:\d"
    r"|(?:list|string|tuple) index out of range|'NoneType' object|object has no attribute|unhashable type"
    r"|object is not (?:subscriptable|iterable|callable)|codec can't (?:en|de)code|maximum recursion depth exceeded"
    r"|Cannot (?:read|set) propert(?:y|ies) of (?:undefined|null)|is not a function|Maximum call stack"
)
"""Texts of exceptions that a program did not expect. A server reports them as errors of the tool."""

AnswerType = TypeVar("AnswerType")


def sandboxed_spec(
    spec: ServerSpec, sandbox: ToolSandbox, settings: ToolTestSettings, environment: Mapping[str, str]
) -> ServerSpec:
    """Return the configuration with a temporary working folder and HOME. Hints of the server are believed."""
    home = Path(environment.get("HOME") or "/nonexistent")
    caches = {name: str(home / folder) for name, folder in _CACHES.items() if (home / folder).is_dir()}
    passed = {name: environment[name] for name in settings.pass_env if name in environment}
    own = {"HOME": str(sandbox.home), "TMPDIR": str(sandbox.temp)}
    # a script is named relative to the folder of the user
    args = tuple(str(Path(argument).resolve()) if Path(argument).is_file() else argument for argument in spec.args)
    args = tuple(argument.replace(_FOLDER, str(sandbox.work)) for argument in args)
    command = spec.command
    if command is not None and os.sep in command and Path(command).is_file():
        command = str(Path(command).absolute())
    given = {name: value.replace(_FOLDER, str(sandbox.work)) for name, value in spec.env.items()}
    env = {**caches, **passed, **own, **given}
    cwd = spec.cwd or str(sandbox.work)
    return replace(spec, command=command, args=args, env=env, cwd=cwd, trusted=True, reconnects=0)


def restricted_spec(spec: ServerSpec, sandbox: ToolSandbox) -> ServerSpec:
    """Return the configuration with a command that lets the server write below the temporary folder and caches only."""
    writable = [*map(str, sandbox.folders), *(spec.env[name] for name in _CACHES if name in spec.env)]
    command = (str(spec.command), *spec.args)
    return replace(spec, command=sys.executable, args=("-I", landlock.__file__, *writable, "--", *command))


class ServerTarget:
    """One server. `tools` is its last listing."""

    def __init__(
        self, spec: ServerSpec, sandbox: ToolSandbox, settings: ToolTestSettings, login: Authorizer | None = None
    ) -> None:
        self.tools: dict[str, Tool] = {}
        self._spec, self._sandbox, self._settings = spec, sandbox, settings
        self._login = login
        self._loop = asyncio.new_event_loop()
        self._client: McpClient | None = None

    @property
    def is_running(self) -> bool:
        return self._client is not None

    def start(self, *, hash_seed: int = 0) -> None:
        """Start the server in a fresh folder and list its tools; a running server is stopped first.

        Raises `ToolwireError` if it cannot be started.
        """
        self.stop()
        self._sandbox.reset()
        client = McpClient(replace(self._spec, timeout=_START_TIMEOUT), login=self._login)
        try:
            self._run(client.connect())
        except BaseException:
            self._run(client.close())
            raise
        self._client, self.tools = client, dict(client.tools)

    def call(self, tool: str, arguments: Object, patience: float = 1.0) -> CallOutcome:
        return self._run(self._call(tool, arguments, patience))

    def call_serially(self, tool: str, calls: list[Object]) -> CallBatch:
        return self._batch([self.call(tool, arguments) for arguments in calls])

    def call_concurrently(self, tool: str, calls: list[Object]) -> CallBatch:
        async def call_all() -> list[CallOutcome]:  # a sound server may make one call at a time
            return await asyncio.gather(*(self._call(tool, arguments, len(calls)) for arguments in calls))

        return self._batch(self._run(call_all()))

    def call_twice(self, tool: str, arguments: Object, key: str) -> RepeatedCall:  # MCP has no keys
        self.start()
        first, second = (self.call_serially(tool, [arguments]) for _ in range(2))
        failed = any(batch.outcomes[0].status != "returned" for batch in (first, second))
        return RepeatedCall(("", first.state, second.state), failed)

    def _batch(self, outcomes: list[CallOutcome]) -> CallBatch:
        if not self.is_running:
            timed_out = any(outcome.status == "timeout" for outcome in outcomes)
            reason = next((outcome.text for outcome in outcomes if outcome.status == "gone"), "")
            raise WorkerStopped(reason, timed_out=timed_out)
        return CallBatch(tuple(outcomes), str(sorted(files_state(map(str, self._sandbox.folders)).items())))

    def _run(self, work: Coroutine[Any, Any, AnswerType]) -> AnswerType:
        return self._loop.run_until_complete(work)

    async def _call(self, name: str, arguments: Object, patience: float = 1.0) -> CallOutcome:
        """Make one call and return its outcome; errors are outcomes, too.

        A server that does not answer or breaks the connection is stopped.
        """
        client = self._client
        if client is None:
            return CallOutcome("unavailable")
        call = ToolCall("test", name, self._sandbox.expand(arguments))
        started_at = time.monotonic()
        try:
            result = await asyncio.wait_for(client.call(call, limited=False), self._settings.timeout * patience)
        except TimeoutError:
            await self._drop(client)
            return CallOutcome("timeout", seconds=self._settings.timeout * patience)
        except RpcError as error:
            raised = RaisedError(f"JSON-RPC error {error.code}", error.message[:_MAX_TEXT])
            return CallOutcome("rpc_error", error.message[:_MAX_TEXT], error.message, error=raised)
        except ServerGone as gone:
            await self._drop(client)
            return CallOutcome("gone", f"{gone}"[:_MAX_TEXT])
        except ToolwireError as error:  # an answer that is not valid MCP
            raised = RaisedError("an invalid message", str(error)[:_MAX_TEXT])
            return CallOutcome("rpc_error", str(error)[:_MAX_TEXT], error=raised)
        return self._describe(self.tools[name], arguments, result, time.monotonic() - started_at)

    def _describe(self, tool: Tool, arguments: Object, result: ToolResult, seconds: float) -> CallOutcome:
        """Describe an answer: its text, its digest, and how it contradicts the output schema."""
        text, digest, size = digest_result(result)
        is_valid = validator(tool.input_schema or {"type": "object"}).accepts(arguments)
        unhandled = _UNHANDLED.search(text) if result.is_error else None
        error = None
        if unhandled is not None:
            line = text[: unhandled.end()].strip().splitlines()[-1]
            error = RaisedError("unhandled exception", line[-_MAX_LINE:])
        return CallOutcome(
            "raised" if unhandled is not None else "tool_error" if result.is_error else "returned",
            text[:_MAX_TEXT],
            digest,
            size,
            error,
            reached=True,
            reached_invalid=not is_valid and not result.is_error,
            schema_problem="" if result.is_error else _output_problem(tool, result),
            has_canary=self._sandbox.secret in text or self._sandbox.secret in str(result.structured),
            seconds=seconds,
        )

    async def _drop(self, client: McpClient) -> None:
        if self._client is client:
            self._client = None
            with suppress(ToolwireError, OSError):
                await client.close()

    def stop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            self._run(client.close())

    def close(self) -> None:
        """Stop the server and close the event loop."""
        self.stop()
        self._loop.close()


def _output_problem(tool: Tool, result: ToolResult) -> str:
    if tool.output_schema is None:
        return ""
    if result.structured is None:
        return "the result has no structuredContent, although the tool has an output schema"
    problems = validator(tool.output_schema).problems(result.structured)
    return str(problems[0]) if problems else ""


# Test the tools of an MCP server that is started in a temporary folder.
#
# The process is not ours, so that no audit hook observes it: the checks compare answers, and look for the canary.


_MAX_WORDS = 10  # as many as a call generator uses
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

    `source`: the arguments of `toolwire test` that select the server, for the reproductions. `login` authorizes
    requests. Raises `ToolwireError` for a server that cannot be started.
    """
    available: Protection = "landlock" if spec.command and landlock_version() else "none"
    run = TestRun(source, settings or ToolTestSettings(), available, on_progress)
    sandbox = ToolSandbox(run.settings.files)
    started = sandboxed_spec(spec, sandbox, run.settings, os.environ)
    if run.protection == "landlock":
        started = restricted_spec(started, sandbox)
    target = ServerTarget(started, sandbox, run.settings, login)
    try:
        target.start()
        results = [_test_tool(tool, target, sandbox, run) for tool in run.select(target.tools, "server")]
        return ToolTestReport(" ".join(source), "server", run.settings.seed, tuple(results), protection=run.protection)
    finally:
        target.close()
        sandbox.remove()


def _test_tool(tool: Tool, target: ServerTarget, sandbox: ToolSandbox, run: TestRun) -> ToolTestResult:
    if not run.settings.may_run(tool.effect):
        return ToolTestResult(tool.name, tool.effect, skipped="no readOnlyHint; --include-writes tests it")
    words = dict.fromkeys(_QUOTED.findall(f"{tool.description} {tool.input_schema}"))
    schema = tool.input_schema or {"type": "object"}
    tested = TestedTool(tool.name, tool.effect, schema, tool.examples, words=tuple(words)[:_MAX_WORDS])
    return run.check(tested, target, sandbox, sandbox.abbreviate)
