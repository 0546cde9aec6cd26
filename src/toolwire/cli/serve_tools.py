"""The tools that a gateway runs itself, opened by its settings."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..ir.errors import ConfigError
from .tools_file import load_tools

if TYPE_CHECKING:
    from ..gateway.settings import Settings, ToolsRow
    from ..mcp.server import Server
    from ..net.runner import Runner
    from ..run.observe import Observer
    from ..run.toolbox import Source

__all__ = ["opened_tools"]


@asynccontextmanager
async def opened_tools(
    settings: Settings, observers: Sequence[Observer]
) -> AsyncIterator[tuple[dict[str, Runner], Server | None, str]]:
    """The runners by pattern of models, what is published over MCP, and the pattern that this is of; servers of others live as
    long as the context."""
    from ..net.runner import Runner
    from ..net.stores import open_store

    async with AsyncExitStack() as stack:
        runners: dict[str, Runner] = {}
        for pattern, row in settings.tools.items():
            sources = await _sources(row, stack)
            runners[pattern] = Runner(*sources, store=open_store(row.store), observers=observers)
            stack.callback(runners[pattern].close)
        published = [pattern for pattern, row in settings.tools.items() if row.publish]
        yield runners, _published([runners[pattern] for pattern in published]), next(iter(published), "*")


async def _sources(row: ToolsRow, stack: AsyncExitStack) -> list[Source]:
    sources: list[Source] = [load_tools(file) for file in row.files]
    if row.mcp is not None:
        from ..mcp.client import McpServers

        servers = await stack.enter_async_context(McpServers.from_config(Path(row.mcp)))
        for problem in servers.problems:
            print(f"toolwire: left out: {problem}", file=sys.stderr)
        sources.append(servers.toolbox())
    return sources


def _published(runners: list[Runner]) -> Server | None:
    if not runners:
        return None
    from ..mcp.server import Server

    if len(runners) > 1:
        raise ConfigError("two rows of [tools] are published", hint="put what is published into one row")
    return Server(runner=runners[0])
