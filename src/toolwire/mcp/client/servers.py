"""Several servers as one toolbox.

    async with McpServers.at("https://wiki.example.com/mcp", "mcp-server-files .") as servers:
        agent = Agent("openai/gpt-5.6", servers.toolbox())

    McpServers.from_config("mcp.json")            the `mcpServers` file of other clients

A server that cannot be reached does not affect the others: it is listed in `problems`, and so is every tool that
cannot be used. A server that does not answer within its `start_timeout` connects in the background: the others can be
used meanwhile, and its tools appear in the toolbox when it is ready. With a lock (`toolwire audit --lock`, or `servers.lock()`) only unchanged tools are offered. A changed
tool is refused until a person has reviewed and locked it again.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from ...audit.lock import changes, lock
from ...ir.errors import ConfigError, ToolwireError
from ...ir.pointer import JSON, Object
from ...ir.tools import Tool
from ...net.http.client import HttpTransport
from ...run.tools.toolbox import Entry, Toolbox
from ...stream.strict import parse
from .client import McpClient
from .config import ServerSpec, read_config, target_spec
from .entries import assign_names, offered_tool, resource_entries, tool_entry
from .failures import ServerGone
from .http import Authorizer
from .listing import ServerProblem

_log = logging.getLogger("toolwire.mcp")


class McpServers:
    """`lock`: the reviewed state of the tools, as a file or its content. `strict`: a server that cannot be reached is
    an error. `logins`: authorization by server. `changed` is called when the offered tools have changed. Other
    options go to every `McpClient`: handlers, watch, trace, traffic.
    """

    def __init__(
        self,
        specs: Iterable[ServerSpec],
        *,
        lock: str | Path | Object | None = None,
        strict: bool = False,
        logins: Mapping[str, Authorizer] | None = None,
        changed: Callable[[], None] | None = None,
        **options: Any,
    ) -> None:
        """Make a client for each server, not yet connected. Raise ConfigError for a duplicate name or invalid lock."""
        self._strict = strict
        self.version = 0  # grows when the tools of a server, or their availability, have changed
        self._on_change = changed
        self._lock_document = _read_lock(lock)
        self._transport: HttpTransport | None = None
        self._connecting: set[asyncio.Task[None]] = set()  # servers that start in the background
        self.clients: dict[str, McpClient] = {}
        for spec in specs:
            if spec.name in self.clients:
                raise ConfigError(f"duplicate server name {spec.name!r}")
            if spec.url is not None and "sender" not in options:
                self._transport = options["sender"] = HttpTransport(resends=False)
            login = (logins or {}).get(spec.name)
            self.clients[spec.name] = McpClient(spec, login=login, changed=self._count_change, **options)

    @classmethod
    def at(cls, *targets: str, headers: Mapping[str, str] | None = None, **options: Any) -> McpServers:
        """Use servers by address: a URL, or a command line that starts a server.

        `headers` are sent to all URLs. The servers must be reachable, unless `strict=False` is given.
        """
        specs = [target_spec(f"server{number}", target, headers) for number, target in enumerate(targets, 1)]
        return cls(specs, **{"strict": True, **options})

    @classmethod
    def from_config(
        cls, config: str | Path | Object, *, environment: Mapping[str, str] | None = None, **options: Any
    ) -> McpServers:
        """Read an `mcpServers` configuration from a file or its content."""
        document: JSON = config
        if isinstance(config, (str, Path)):
            document = _read_json(config)
        return cls(read_config(document, os.environ if environment is None else environment), **options)

    async def __aenter__(self) -> Self:
        """Connect to all servers concurrently.

        An unreachable server is listed in `problems`, or closes all and raises if `strict`; other errors always do.
        """
        try:
            results = await asyncio.gather(*map(self._connect, self.clients.values()), return_exceptions=True)
        except BaseException:  # some of them are already open
            await self.close()
            raise
        errors = [error for error in results if isinstance(error, BaseException)]
        unexpected = [error for error in errors if self._strict or not isinstance(error, ToolwireError)]
        if unexpected:
            await self.close()
            raise unexpected[0]
        return self

    async def _connect(self, client: McpClient) -> None:
        """Connect to a server. After its `start_timeout`, continue in the background, unless it must be reachable."""
        spec = client.spec
        task = asyncio.create_task(client.connect())
        self._connecting.add(task)
        waits = self._strict or spec.connect_timeout <= spec.start_timeout  # the attempt ends by itself
        try:
            await asyncio.wait({task}, timeout=None if waits else spec.start_timeout)
        finally:
            if task.done():
                self._connecting.discard(task)
        if task.done():
            return task.result()
        reason = f"it did not start within {spec.start_timeout:g} seconds and is still connecting"
        _log.warning("MCP server %s: %s", spec.name, reason)
        client.withdraw(reason)
        task.add_done_callback(partial(self._end_connecting, client))
        return None

    def _end_connecting(self, client: McpClient, task: asyncio.Task[None]) -> None:
        """Report the outcome of a start in the background. A server that failed is tried again, like one that was lost."""
        self._connecting.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.warning("MCP server %s cannot be used: %s", client.spec.name, error)
        if isinstance(error, ServerGone):
            client.lost(error)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop connecting, close all clients, and close the shared transport."""
        for task in self._connecting:
            task.cancel()
        await asyncio.gather(*self._connecting, return_exceptions=True)
        await asyncio.gather(
            *(server_client.close() for server_client in self.clients.values()), return_exceptions=True
        )
        if self._transport is not None:
            await self._transport.aclose()

    async def restore(self, name: str) -> None:
        """Connect again to a server that was given up."""
        await self.clients[name].restore()

    @property
    def problems(self) -> list[ServerProblem]:
        """The unusable servers and tools with their reasons, including tools that differ from the lock."""
        found = [
            ServerProblem(name, "", server_client.unavailable_reason)
            for name, server_client in self.clients.items()
            if server_client.unavailable_reason is not None
        ]
        found += [problem for server_client in self.clients.values() for problem in server_client.problems]
        return found + [
            ServerProblem(server, tool.name, refusal)
            for server, tool, name in self.named_tools()
            if (refusal := self._lock_refusal(replace(tool, name=name))) is not None
        ]

    def _count_change(self) -> None:
        self.version += 1
        if self._on_change is not None:
            self._on_change()

    def toolbox(self, *servers: str) -> Toolbox:
        """Return the tools of all servers, or of the named ones. The tool names are the same either way.

        The toolbox is live: an agent offers tools that appear during its run from the next turn, and withdraws tools
        that disappear or change. Raise ConfigError for an unknown name.
        """
        unknown = [name for name in servers if name not in self.clients]
        if unknown:
            raise ConfigError(f"unknown server {unknown[0]!r}", hint=f"use one of {', '.join(self.clients)}")
        return Toolbox(_ServerTools(self, servers or tuple(self.clients)))

    def current_entries(self, servers: Sequence[str], known: Sequence[Entry]) -> list[Entry]:
        """Return the entries of the tools of these servers. Of `known` ones, those that still apply are reused."""
        reusable = {(entry.tool.name, entry.options.resource): entry for entry in known}
        entries: list[Entry] = []
        for server, tool, name in self.named_tools():
            if server in servers:
                before = reusable.get((name, server))
                is_same = before is not None and before.tool == offered_tool(tool, name)
                entries.append(
                    before if is_same and before is not None else self._make_entry(self.clients[server], tool, name)
                )
        for server in servers:
            client = self.clients[server]
            if client.spec.resources and client.unavailable_reason is None:
                made = resource_entries(client)
                entries += [reusable.get((entry.tool.name, entry.options.resource), entry) for entry in made]
        return entries

    def lock(self) -> Object:
        """Return the current state of the tools. Write it to a file, and pass it as `lock` next time."""
        return lock([replace(tool, name=name) for _, tool, name in self.named_tools()])

    def named_tools(self) -> list[tuple[str, Tool, str]]:
        """Return (server, its tool, the name for the model) of every tool."""
        names = assign_names({server: server_client.tools for server, server_client in self.clients.items()})
        return [
            (server, tool, names[server, tool.name])
            for server, server_client in self.clients.items()
            for tool in server_client.tools.values()
        ]

    def _make_entry(self, client: McpClient, tool: Tool, name: str) -> Entry:
        reason = self._lock_refusal(replace(tool, name=name))
        return tool_entry(client, name, tool, lambda: reason)

    def _lock_refusal(self, tool: Tool) -> str | None:
        """Return why the lock forbids the tool, or None."""
        if self._lock_document is None:
            return None
        known = self._lock_document.get("tools")
        if type(known) is not dict or tool.name not in known:
            return "it is not in the lock; review and lock it"
        differences = changes({"tools": {tool.name: known[tool.name]}}, [tool])
        if not differences:
            return None
        return f"it differs from the lock: {'; '.join(differences)}; review and lock it again"


class _ServerTools:
    """The tools of some servers as a live source of a toolbox."""

    def __init__(self, servers: McpServers, names: Sequence[str]) -> None:
        self._servers = servers
        self._names = names
        self._entries: list[Entry] = []

    @property
    def version(self) -> int:
        return self._servers.version

    def live_entries(self) -> Sequence[Entry]:
        self._entries = self._servers.current_entries(self._names, self._entries)
        return self._entries


def _read_lock(source: str | Path | Object | None) -> Object | None:
    """Load the lock and check its shape, because a lock without tools would refuse every tool."""
    if source is None:
        return None
    document = _read_json(source) if isinstance(source, (str, Path)) else source
    if type(document) is not dict or type(document.get("tools")) is not dict:
        raise ConfigError("not a lock of tools", hint="write one with: toolwire audit tools.json --lock FILE")
    return document


def _read_json(file: str | Path) -> JSON:
    """Read a file as JSON; ConfigError if it cannot be read or parsed."""
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    try:
        return parse(data)
    except ToolwireError as error:
        raise ConfigError(f"{file} is not valid JSON: {error}") from None
