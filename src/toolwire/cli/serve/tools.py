"""Open the tools that a gateway runs itself; reopen them if the settings, or files named there, change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack
from hashlib import sha256
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...ir.errors import ConfigError, ToolwireError
from ..sources.targets import load_tools
from ..terminal.output import print_note

if TYPE_CHECKING:
    from ...gateway.config.settings import HostedRow, OpenApiRow, Settings, ToolsRow
    from ...gateway.gateway_tools import ToolBindings
    from ...gateway.hosted_tools import HostedService
    from ...ir.hosted import HostedKind
    from ...mcp.server.server import Server
    from ...net.tools.runner import Runner
    from ...openapi.client import ApiToolbox
    from ...run.calls.observe import Observer
    from ...run.tools.toolbox import Source


class _OpenRow(NamedTuple):
    """A row of the settings with its open resources, which `stack` closes."""

    row: ToolsRow
    content: bytes  # hash of the files of the row, to detect changes
    runner: Runner
    stack: AsyncExitStack


class _OpenService(NamedTuple):
    """A row of `[hosted]` with its open server, which `stack` closes."""

    row: HostedRow
    service: HostedService
    stack: AsyncExitStack


class _LoadedTools(NamedTuple):
    """The open tools of one version of the settings."""

    rows: dict[str, _OpenRow] = {}  # by model pattern
    server: Server | None = None  # the MCP server of the published row
    hosted: dict[str, _OpenService] = {}  # by kind

    @property
    def bindings(self) -> ToolBindings:
        """The runners by model pattern, the MCP server, and the pattern of the published row, for the gateway."""
        from ...gateway.gateway_tools import ToolBindings

        published = next((pattern for pattern, open_row in self.rows.items() if open_row.row.publish), "*")
        return ToolBindings(
            {pattern: open_row.runner for pattern, open_row in self.rows.items()},
            self.server,
            published,
            {kind: found.service for kind, found in self.hosted.items()},
        )


def _open_parts(loaded: _LoadedTools) -> list[_OpenRow | _OpenService]:
    return [*loaded.rows.values(), *loaded.hosted.values()]


class ToolLoader:
    """The current tools. `prepare` opens the tools of new settings and may fail; then `activate` or `abandon` them."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers
        self._current = _LoadedTools()
        self._left: list[_OpenRow | _OpenService] = []  # replaced rows that requests may still use
        self._leaving: set[asyncio.Task[None]] = set()  # tasks that close replaced rows

    async def prepare(self, settings: Settings) -> _LoadedTools:
        """Open the tools of new settings together, reusing rows that are unchanged in settings and files.

        On an error, the newly opened rows are closed, the current tools stay, and the error is raised.
        """
        rows: dict[str, _OpenRow] = {}
        hosted: dict[str, _OpenService] = {}

        async def open_row(pattern: str, row: ToolsRow) -> None:
            before = self._current.rows.get(pattern)
            same = before is not None and (before.row, before.content) == (row, _content_hash(row))
            rows[pattern] = before if same and before is not None else await self._open_row(row)

        try:
            # Together: each row may wait for an MCP server that does not start.
            outcomes = await asyncio.gather(*starmap(open_row, settings.tools.items()), return_exceptions=True)
            for error in filter(None, outcomes):
                raise error
            rows = {pattern: rows[pattern] for pattern in settings.tools}
            for kind, hosted_row in settings.hosted.rows.items():
                before = self._current.hosted.get(kind)
                same = before is not None and before.row == hosted_row
                hosted[kind] = before if same and before is not None else await _open_service(kind, hosted_row)
            return _LoadedTools(rows, self._make_server(rows), hosted)
        except BaseException:
            await _close_rows(hosted.values(), self._current.hosted.values())
            await _close_rows(rows.values(), self._current.rows.values())
            raise

    def activate(self, opened: _LoadedTools, unused: Callable[[], Awaitable[None]] | None = None) -> None:
        """Make the prepared tools current; close the replaced tools after `unused` returns, or in `aclose` without it."""
        before, self._current = self._current, opened
        current = _open_parts(opened)
        left = [part for part in _open_parts(before) if not any(part is kept for kept in current)]
        self._left += left
        if unused is not None:
            task = asyncio.ensure_future(self._retire(left, unused))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def _retire(self, rows: list[_OpenRow | _OpenService], unused: Callable[[], Awaitable[None]]) -> None:
        await unused()
        await _close_rows(rows, ())
        self._left = [open_row for open_row in self._left if not any(open_row is gone for gone in rows)]

    async def abandon(self, opened: _LoadedTools) -> None:
        """Close prepared tools that are not used."""
        await _close_rows(opened.rows.values(), self._current.rows.values())
        await _close_rows(opened.hosted.values(), self._current.hosted.values())

    async def aclose(self) -> None:
        leaving = tuple(self._leaving)
        for task in leaving:
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
        await _close_rows([*self._left, *self._current.rows.values(), *self._current.hosted.values()], ())

    async def _open_row(self, row: ToolsRow) -> _OpenRow:
        """Open the tools of a row. If that fails, everything opened so far is closed."""
        content = _content_hash(row)
        async with AsyncExitStack() as stack:
            sources = await _load_sources(row, stack)
            runner = _make_runner(row, sources, self._observers, stack)
            stack.push_async_callback(runner.aclose)
            return _OpenRow(row, content, runner, stack.pop_all())

    def _make_server(self, rows: dict[str, _OpenRow]) -> Server | None:
        """Return the MCP server of the published row, the current server if its runner is unchanged, or None.

        Raises `ConfigError` for several published rows.
        """
        published = [open_row for open_row in rows.values() if open_row.row.publish]
        if not published:
            return None
        from ...mcp.server.server import Server

        if len(published) > 1:
            raise ConfigError("only one row of [tools] may be published", hint="move the published tools into one row")
        before = self._current.server
        is_same = before is not None and before.runner is published[0].runner
        return before if is_same else Server(runner=published[0].runner)


def _make_runner(row: ToolsRow, sources: list[Source], observers: Sequence[Observer], stack: AsyncExitStack) -> Runner:
    """Return the runner of a row. `stack` closes its store.

    Calls that need approval wait in its store, if another process can open the store. Raises `ConfigError` for
    `approve` with a store in memory, and for a missing folder.
    """
    from ...gateway.config.settings import require_store_folder
    from ...net.stores import open_store
    from ...net.tools.runner import Runner
    from ...net.tools.stored_approvals import StoredApprovals
    from ...run.calls.policy import Policy

    is_shared = row.store != "memory:"
    if row.approve and not is_shared:
        raise ConfigError("approve of [tools] needs a store", hint='add store = "runs.db", for `toolwire runs approve`')
    require_store_folder(row.store, "[tools] store")
    store = open_store(row.store)
    stack.callback(store.close)
    return Runner(
        *sources,
        store=store,
        policy=Policy(approve=row.approve) if row.approve else None,
        approve=StoredApprovals(store.runs) if is_shared else None,
        ttl=row.ttl,
        observers=observers,
    )


def _content_hash(row: ToolsRow) -> bytes:
    """Hash the contents of the files of a row."""
    whole = sha256()
    documents = [api.file for api in row.openapi]
    for file in (*row.files, *([row.mcp] if row.mcp is not None else []), *documents):
        path = Path(file)
        whole.update(sha256(path.read_bytes() if path.is_file() else b"").digest())
    return whole.digest()


async def _close_rows(rows: Collection[_OpenRow | _OpenService], but: Collection[_OpenRow | _OpenService]) -> None:
    """Close `rows`, except those in `but`, which the current settings still use."""
    for open_row in rows:
        if not any(open_row is kept for kept in but):
            await open_row.stack.aclose()


async def _open_service(kind: HostedKind, row: HostedRow) -> _OpenService:
    """Connect to the MCP server of a row, and find its tool. Raises `ConfigError` with the setting."""
    from ...gateway.hosted_tools import HostedService
    from ...mcp.client import McpServers
    from ...net.tools.runner import Runner

    setting, target = f"[hosted.{kind}]", row.mcp or row.command
    assert target is not None  # the settings have exactly one of them
    async with AsyncExitStack() as stack:
        try:
            servers = await stack.enter_async_context(McpServers.at(target))
        except ToolwireError as error:
            raise ConfigError(
                f"{setting} {'mcp' if row.mcp else 'command'}: {error.message}", hint=error.hint
            ) from None
        box = servers.toolbox()
        tools = {tool.name: tool for tool in box.tools}
        name = row.tool or (next(iter(tools)) if len(tools) == 1 else "")
        if name not in tools:
            names = ", ".join(tools) or "none"
            problem = f"the server has no tool {name!r}" if name else "the server has several tools"
            raise ConfigError(f"{setting} tool: {problem}", hint=f"set tool = one of {names}")
        runner = Runner(box, keeps_outputs=False)
        stack.push_async_callback(runner.aclose)
        service = HostedService(kind, runner, tools[name], row.max_calls, row.timeout, row.max_bytes)
        return _OpenService(row, service, stack.pop_all())


async def _load_sources(row: ToolsRow, stack: AsyncExitStack) -> list[Source]:
    """Return the tools of the files, MCP servers and OpenAPI documents of a row, and print the tools that were skipped.

    `stack` closes the connections.
    """
    sources: list[Source] = [load_tools(file) for file in row.files]
    if row.mcp is not None:
        from ...mcp.client import McpServers

        servers = await stack.enter_async_context(McpServers.from_config(Path(row.mcp)))
        for problem in servers.problems:
            print_note(f"toolwire: skipped: {problem}", None)
        sources.append(servers.toolbox())
    for api in row.openapi:
        sources.append(await stack.enter_async_context(_open_api(api)))
    return sources


def _open_api(row: OpenApiRow) -> ApiToolbox:
    """Return the tools of an OpenAPI document, and print the operations that are not offered.

    A credential without a scheme is used for all schemes.
    """
    from ...openapi import toolbox

    references = {scheme: f"${{{name}}}" for scheme, name in row.variables.items()}
    box = toolbox(
        row.file,
        base_url=row.base_url,
        auth=references.get("", references or None),
        tags=row.tags,
        operations=row.operations,
        headers=row.headers,
        timeout=row.timeout,
        insecure=row.insecure,
    )
    for problem in box.problems:
        print_note(f"toolwire: skipped: {problem}", None)
    return box
