"""Read the complete lists of a server, and check each tool on its own.

A tool that cannot be used is reported and left out; the others remain. Pages are followed until the last one, within
limits.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from ...ir.errors import ProtocolError, ToolwireError
from ...ir.pointer import JSON, Object
from ...ir.tools import Tool
from ...ir.value import Value
from ...schema.validation.validator import Validator, validator
from ...wire.mcp import decode_tools
from ..protocol.headers import find_header_arguments
from ..protocol.lists import read_page

__all__ = ["ServerProblem", "fetch_all_pages", "read_tools"]

_log = logging.getLogger("toolwire.mcp")
_MAX_PAGES = 1000
_MAX_ITEMS = 100_000


class ServerProblem(Value, frozen=True):
    """A tool or server that cannot be used, and the reason. `tool` is empty if the server is unusable."""

    server: str
    tool: str
    reason: str

    def __str__(self) -> str:
        return f"{self.server}{'.' if self.tool else ''}{self.tool}: {self.reason}"


async def fetch_all_pages(fetch_page: Callable[[str | None], Awaitable[Object]], key: str) -> list[JSON]:
    """Return the items of all pages. A repeated cursor, or too many pages, is an error of the server."""
    items: list[JSON] = []
    seen: set[str | None] = set()
    cursor: str | None = None
    while True:
        page = read_page(await fetch_page(cursor), key)
        items += page.items
        cursor = page.cursor
        if cursor is None:
            return items
        if cursor in seen or len(seen) >= _MAX_PAGES or len(items) > _MAX_ITEMS:
            raise ProtocolError(f"the list of {key} does not end", pointer="/nextCursor", status=502)
        seen.add(cursor)


def read_tools(raw: Sequence[JSON], server: str, *, trusted: bool) -> tuple[dict[str, Tool], list[ServerProblem]]:
    """Return the usable tools by the server's names, and the problems of the others."""
    tools: dict[str, Tool] = {}
    problems: list[ServerProblem] = []
    for index, item in enumerate(raw):
        name = item.get("name") if type(item) is dict else None
        label = name if type(name) is str else f"#{index}"
        try:
            tool = _read_tool(item)
        except ToolwireError as error:
            problems.append(ServerProblem(server, label, str(error)))
            continue
        if tool.name in tools:
            problems.append(ServerProblem(server, label, "declared twice; the first declaration is used"))
            continue
        tools[tool.name] = tool if trusted else replace(tool, effect="write")
    return tools, problems


def _read_tool(raw: JSON) -> Tool:
    """Decode one tool. Raise if its name, schemas or header marks are invalid, so that it is not offered to a model."""
    try:
        (tool,) = decode_tools([raw])
    except ToolwireError as error:
        error.pointer = error.pointer.removeprefix("/tools/0")
        raise
    if not tool.name:
        raise ProtocolError("the tool has no name", pointer="/name")
    schema = tool.input_schema
    if schema is not None:
        if schema.get("type", "object") != "object":
            raise ProtocolError(f"arguments must be an object, got {schema['type']!r}", pointer="/inputSchema/type")
        _warn_unchecked(tool.name, validator(schema))
        find_header_arguments(schema)
    if tool.output_schema is not None:
        validator(tool.output_schema)
    return tool


def _warn_unchecked(name: str, check: Validator) -> None:
    """Log that the tool is usable although some of its constraints are not checked before it is called."""
    if check.findings:
        _log.warning(
            "tool %s: %d patterns are not checked; the first: %s",
            name,
            len(check.findings),
            check.findings[0],
        )
