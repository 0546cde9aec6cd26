"""The complete lists of one server: reading, the check of each tool, and the rules for listing tools again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from ...ir.errors import ProtocolError, ToolwireError
from ...ir.pointer import JSON, Object
from ...ir.tools import Tool
from ...ir.value import Value
from ...schema.validation.validator import Validator, validator
from ...wire.mcp import decode_tools
from ..protocol.discovery import read_page
from ..protocol.headers import HeaderArguments, find_header_arguments
from ..protocol.rpc import RpcError
from .config import ServerSpec
from .failures import ServerGone
from .link import Link

# Read the complete lists of a server, and check each tool on its own.
#
# A tool that cannot be used is reported and left out; the others remain. Pages are followed until the last one,
# within limits.


_log = logging.getLogger("toolwire.mcp")
_MAX_PAGES = 1000  # servers send hundreds of tools a page; a server may invent cursors without end
_MAX_ITEMS = 100_000  # tools or resources; a toolbox is tested with as many


class ServerProblem(Value, frozen=True):
    """A tool or server that cannot be used, and the reason. `tool` is empty if the server is unusable."""

    server: str
    tool: str
    reason: str

    def __str__(self) -> str:
        return f"{self.server}{'.' if self.tool else ''}{self.tool}: {self.reason}"


async def fetch_all_pages(fetch_page: Callable[[str | None], Awaitable[Object]], key: str) -> list[JSON]:
    """Return the items of all pages; ProtocolError for a repeated cursor, or too many pages or items."""
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
    """Return the usable tools by the server's names, and the problems of the others.

    The effect that a server declares counts only if it is `trusted`; otherwise each tool is a write.
    """
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


# The tools of one server, and the rules for listing them again.
#
# A server announces a change with `notifications/tools/list_changed`. The announcement can arrive at any time: before
# the first listing, between two of its pages, right after it, or without end. Rules:
#
# 1. The listing that started last wins. A result is discarded only if the result of a later listing has been applied
#    already. A later listing that is still in progress discards nothing: it may wait for this one, or fail.
# 2. At most one listing that follows an announcement is in flight. Announcements that arrive meanwhile are coalesced
#    into one further listing.
# 3. The first announcement is followed at once. After each listing there is a pause, and it doubles as long as the server
#    keeps announcing changes, so a server that never stops cannot keep the client busy.
# 4. A listing that fails leaves the last list in place.


_MIN_PAUSE = 0.5  # seconds; announcements in quick succession, as while a server loads its plugins, become one listing
_MAX_PAUSE = 60.0  # seconds; a server that announces without end costs one listing a minute


class ToolList:
    """The last list of a server's tools, by the server's own names.

    `fetch` requests all pages of the list. `wait_ready` waits until a connection that is being opened is open, and
    returns it. `on_change` is called after a listing that follows an announcement, if the list differs.
    """

    def __init__(
        self,
        spec: ServerSpec,
        fetch: Callable[[], Awaitable[list[JSON]]],
        *,
        wait_ready: Callable[[], Awaitable[Link | None]],
        on_change: Callable[[], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.tools: dict[str, Tool] = {}
        self.problems: list[ServerProblem] = []
        self.header_arguments: dict[str, HeaderArguments] = {}
        self.is_stale = False  # a change was announced after the last listing began
        self._spec = spec
        self._fetch = fetch
        self._wait_ready = wait_ready
        self._on_change = on_change
        self._sleep = sleep
        self._started = 0  # number of the listing that started last
        self._applied = 0  # number of the listing whose result is in place
        self._refresh_lock = asyncio.Lock()

    async def load(self) -> None:
        """List the tools of a connection that is being opened; raise if that fails."""
        try:
            await self._fetch_list()
        except RpcError:
            if not self.is_stale:
                raise
            await self._fetch_list()  # the cursor of a list that changes between two pages can become invalid

    async def refresh(self) -> None:
        """List the tools again if a change was announced since the last listing began.

        On failure, log it and keep the list. `on_change` is called if the tools or problems differ.
        """
        if self._refresh_lock.locked():
            async with self._refresh_lock:
                return  # a listing was in flight: waiting for it is enough
        async with self._refresh_lock:
            if not self.is_stale:
                return
            previous = self.tools, self.problems
            try:
                await self._fetch_list()
            except (ToolwireError, OSError) as error:
                _log.warning("cannot list the tools of %s again, keeping the last list: %s", self._spec.name, error)
            if (self.tools, self.problems) != previous:
                self._on_change()

    async def follow_changes(self) -> None:
        """Refresh until no change is announced any more."""
        pause = _MIN_PAUSE
        while await self._wait_ready() is not None and self.is_stale:
            await self.refresh()
            await self._sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE)

    async def _fetch_list(self) -> None:
        """List the tools, and apply the result unless a later listing was applied meanwhile (rule 1).

        ServerGone if the server does not answer in time.
        """
        self.is_stale = False
        self._started = number = self._started + 1
        try:
            async with asyncio.timeout(self._spec.timeout):
                raw = await self._fetch()
        except TimeoutError:
            message = f"{self._spec.name} did not list its tools within {self._spec.timeout:g} seconds"
            raise ServerGone(message) from None
        if number < self._applied:
            return
        self._applied = number
        self._apply(raw)

    def _apply(self, raw: list[JSON]) -> None:
        """Replace the list. `spec.tools` restricts the tools; names in it that the server lacks become problems."""
        name, allowed = self._spec.name, self._spec.tools
        tools, problems = read_tools(raw, name, trusted=self._spec.trusted)
        if allowed is not None:
            problems += [ServerProblem(name, missing, "no such tool") for missing in allowed if missing not in tools]
            tools = {tool: tools[tool] for tool in tools if tool in allowed}
        self.tools, self.problems = tools, problems
        self.header_arguments = {tool: find_header_arguments(tools[tool].input_schema) for tool in tools}
