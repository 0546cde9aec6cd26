"""The tools of one server, and the rules for listing them again.

A server announces a change with `notifications/tools/list_changed`. The announcement can arrive at any time: before the
first listing, between two of its pages, right after it, or without end. Rules:

1. The listing that started last wins. A result is discarded only if the result of a later listing has been applied
   already. A later listing that is still in progress discards nothing: it may wait for this one, or fail.
2. At most one listing that follows an announcement is in flight. Announcements that arrive meanwhile are coalesced
   into one further listing.
3. The first announcement is followed at once. After each listing there is a pause, and it doubles as long as the server
   keeps announcing changes, so a server that never stops cannot keep the client busy.
4. A listing that fails leaves the last list in place.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ...ir.errors import ToolwireError
from ...ir.pointer import JSON
from ...ir.tools import Tool
from ..protocol.errors import RpcError
from ..protocol.headers import HeaderArguments, find_header_arguments
from .config import ServerSpec
from .failures import ServerGone
from .link import Link
from .listing import ServerProblem, read_tools

__all__ = ["ToolList"]

_log = logging.getLogger("toolwire.mcp")
_MIN_PAUSE = 0.5
_MAX_PAUSE = 60.0


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
        """List the tools again if a change was announced since the last listing began; on failure keep the list."""
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
        """List the tools, and apply the result unless a later listing was applied meanwhile (rule 1)."""
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
