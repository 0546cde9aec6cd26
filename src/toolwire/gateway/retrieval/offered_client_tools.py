"""The tools that one request offers, and the search for the others. The model's searches are answered here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from msgspec.structs import replace

from ...asgi.offload import ClientOffload
from ...ir.losses import Losses
from ...ir.parts import ToolCall, ToolResult
from ...ir.tools import MAX_FOUND, SEARCH_TOOLS, Tool
from ...run.calls.runtime_tools import EMPTY_QUERY, render_found_tools
from ...run.tools.suggestions import NameIndex, suggest_names
from .retrieval_plan import RetrievalPlan

__all__ = ["OfferedClientTools"]

_DEFAULT_COUNT = 5
_MAX_SEARCHES = 8  # for one answer
_MAX_QUERY = 2_000  # characters
_WORK_PER_NAME = 256  # bytes of text that take as long as a name in the index of names
_MAX_NAME = 100  # characters of an unknown name that are repeated


class OfferedClientTools:
    """The offer of one request. `tools` are those of its first turn; searches add to `names`."""

    def __init__(
        self,
        plan: RetrievalPlan,
        selected: Sequence[str],
        rank: Callable[[str, int], Awaitable[Sequence[Tool]]],
        offload: ClientOffload,
    ) -> None:
        self.tools = plan.offer(selected)
        self.all_tools = plan.tools
        self.is_hosted = plan.is_hosted
        self.searches = 0
        self._plan = plan
        self._rank = rank
        self._offload = offload
        self._known = {tool.name: tool for tool in plan.tools}
        offered = plan.pinned if plan.is_hosted else self._known
        self._offered = dict.fromkeys(tool.name for tool in self.tools if tool.name in offered)

    @property
    def offered(self) -> int:
        """The number of offered tools, without the search tool."""
        return len(self._offered)

    def list_names(self, called: Iterable[str]) -> tuple[str, ...]:
        """Return the names that the next request of the conversation offers: the offered, then the other `called` ones."""
        return tuple(dict.fromkeys([*self._offered, *[name for name in called if name in self._known]]))

    @property
    def declared(self) -> int:
        """The number of all tools."""
        return len(self._plan.tools)

    @property
    def has_no_search(self) -> bool:
        """True once the model has searched often enough for one answer. Further requests do not offer the search."""
        return self.searches >= _MAX_SEARCHES

    def is_search(self, name: str) -> bool:
        return self._plan.can_search and name == SEARCH_TOOLS

    def is_unknown(self, name: str) -> bool:
        """Return True for a name that the model has invented."""
        return name not in self._known and not self.is_search(name)

    async def search(self, call: ToolCall) -> tuple[ToolResult, list[Tool]]:
        """Answer a search. Return its result, and the tools that it adds to the offer."""
        if self.has_no_search:
            message = f"No more searches. Use the tools that are offered, or answer without {SEARCH_TOOLS}."
            return call.result(message, is_error=True), []
        self.searches += 1
        arguments = call.arguments or {}
        query, k = arguments.get("query"), arguments.get("k", _DEFAULT_COUNT)
        if not isinstance(query, str) or not query.strip():
            return call.result(EMPTY_QUERY, is_error=True), []
        count = max(1, min(k, MAX_FOUND)) if type(k) is int else _DEFAULT_COUNT
        tools = [tool for tool in await self._rank(query[:_MAX_QUERY], count) if tool.kind != "builtin"]
        result = render_found_tools(tools, tuple(self._offered))
        self._offered.update(dict.fromkeys(result.found))
        found = [] if self.is_hosted else [replace(self._known[name], deferred=True) for name in result.found]
        return replace(result, call_id=call.id, name=call.name, kind=call.kind, namespace=call.namespace), found

    def is_offered(self, name: str) -> bool:
        return name in self._offered

    def add(self, tools: Iterable[Tool]) -> None:
        """Add tools that the gateway offers from now on."""
        for tool in tools:
            self._known[tool.name] = tool
            self._offered[tool.name] = None

    async def refuse(self, call: ToolCall) -> ToolResult:
        """Return the result of a call of a tool that does not exist, or of the gateway's that is not offered."""
        if call.name in self._known:
            return call.result(f"{call.name!r} is not offered. Find it with {SEARCH_TOOLS}.", is_error=True)
        size = _WORK_PER_NAME * len(self._known)
        similar = suggest_names(await self._offload.run(size, _find_similar, call.name, self._known))
        more = f" Use {SEARCH_TOOLS} to find tools." if self._plan.can_search else ""
        return call.result(f"There is no tool {call.name[:_MAX_NAME]!r}.{similar}{more}", is_error=True)

    def report(self, losses: Losses) -> None:
        """Report the number of offered tools. The others are not lost while the model can search for them."""
        detail = f"{self.offered} of {self.declared} tools offered"
        if self._plan.can_search:
            losses.add("/tools", "tools", "moved", f"{detail}; {SEARCH_TOOLS} finds the others", "info")
        else:
            detail += f"; the client's own tool {SEARCH_TOOLS!r} replaces the search for the others"
            losses.add("/tools", "tools", "dropped", detail, "warning")


def _find_similar(name: str, names: Iterable[str]) -> list[str]:
    return NameIndex(names).similar(name)
