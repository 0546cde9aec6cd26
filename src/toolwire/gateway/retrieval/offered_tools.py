"""The tools that a conversation offers to the model, and the search for the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from ...asgi.offload import ClientOffload
from ...bridge.fitting.tool_search import plan_search
from ...ir.losses import Losses
from ...ir.parts import ToolCall, ToolResult
from ...ir.request import Message, Request, found_in_history
from ...ir.text import to_bytes
from ...ir.tools import MAX_FOUND, SEARCH_TOOLS, Tool, search_tool
from ...run.calls.runtime_tools import EMPTY_QUERY, render_found_tools
from ...run.tools.suggestions import NameIndex, suggest_names
from ...run.tools.words import selection_queries
from ...wire.protocol import Wire
from ..config.settings import RetrieveRow

# The tools that a conversation offers, as a function of the conversation alone.
#
# A gateway keeps no conversation between two requests, and the prompt cache of a provider needs an unchanged beginning.
# So the first tools are selected for the first user message that has matches (see `run.tools.words`), and later
# requests of the conversation select the same ones.
# Tools that were called or found by a search follow in the order of the history, so new tools are always last.
#
# A conversation that an upstream stores itself is not in the request. It offers the tools of its earlier responses.


_REFERENCES = {"openai_responses": ("previous_response_id", "conversation"), "anthropic": ("thread",)}
_NEW_THREAD = {"type": "create"}


class RetrievalPlan(Struct, frozen=True):
    """A request with more tools than are offered, and everything that its selection depends on."""

    tools: tuple[Tool, ...]  # all of them
    k: int
    pinned: frozenset[str]  # names that are offered in any case, from the first request on
    later: tuple[str, ...]  # names that follow the selection: of the history, then of the tool choice
    found: frozenset[str]  # names that a search in the history has loaded
    queries: tuple[str, ...]  # texts to search for, in order, until one has matches
    beginnings: tuple[bytes, ...]  # digests of the first query, of the first two, and so on
    user_beginnings: tuple[bytes, ...]  # the same without the system prompt, which may change during a conversation
    digest: bytes  # of the declarations
    size: int  # bytes of the declarations
    is_continued: bool  # the model has answered before
    can_search: bool  # the client has no tool with the name of ours
    is_hosted: bool = False  # the client has declared the search of a provider, which the gateway runs instead
    earlier: tuple[str, ...] = ()  # names of offered tools in a conversation that the upstream stores

    def offer(self, selected: Sequence[str]) -> tuple[Tool, ...]:
        """Return the tools to offer: the search tool, selected tools in the client's order, and tools of the history.

        A cache mark of a tool that is left out moves to the last selected tool. With the search of a provider, the client has deferred the others itself, and translation adds found tools.
        """
        if self.is_hosted:
            return self.tools
        by_name: dict[str, list[Tool]] = {}
        for tool in self.tools:
            by_name.setdefault(tool.name, []).append(tool)
        first = self.pinned.union(selected)
        names = dict.fromkeys([*self.earlier, *[tool.name for tool in self.tools if tool.name in first]])
        tools = [search_tool()] if self.can_search else []
        tools += [tool for name in names for tool in by_name.get(name, ())]
        marks = [tool.cache for tool in self.tools if tool.cache is not None and tool.name not in names]
        tools = _mark_last(tools, marks[-1]) if marks else tools
        for name in self.later:
            if name not in names:  # not selected before
                added = [replace(tool, cache=None) if marks else tool for tool in by_name[name]]
                tools += [replace(tool, deferred=True) for tool in added] if name in self.found else added
        return tuple(tools)


_PROVIDER_KINDS = frozenset({"builtin", "typed"})  # their declarations are sent as they are, so all are offered


def _mark_last(tools: Sequence[Tool], mark: str) -> list[Tool]:
    """Move the cache mark of a tool that is left out to the last of these: later requests begin with them, too."""
    last = max((index for index, tool in enumerate(tools) if tool.kind not in _PROVIDER_KINDS), default=None)
    return [replace(tool, cache=tool.cache or mark) if index == last else tool for index, tool in enumerate(tools)]


def is_stored_elsewhere(request: Request) -> bool:
    """Return True if an upstream stores the beginning of the conversation, so that only its end is known here."""
    for wire, names in _REFERENCES.items():
        fields = request.extra.get(wire, {})
        if any(fields.get(name) not in (None, _NEW_THREAD) for name in names):
            return True
    return False


def plan_retrieval(
    request: Request, retrieval: RetrieveRow, earlier: Sequence[str] | None = None
) -> RetrievalPlan | None:
    """Return the plan for a request, or None if all of its tools are offered.

    That is the case for a short list, for a client that defers the loading of tools itself, and for a conversation that
    an upstream stores, unless it is known which tools were offered `earlier`.
    """
    if earlier is None and is_stored_elsewhere(request):
        return None
    tools = _drop_duplicates(request.tools)
    pinned = frozenset([*retrieval.always, *[tool.name for tool in tools if tool.kind in _PROVIDER_KINDS]])
    if sum(tool.name not in pinned for tool in tools) <= retrieval.k:
        return None
    if any(tool.deferred or tool.kind == "search" for tool in tools):
        return None
    names = {tool.name for tool in tools}
    if SEARCH_TOOLS in names:
        pinned |= {SEARCH_TOOLS}
    chosen = () if request.choice is None else request.choice.names
    later = dict.fromkeys([*_names_in_history(request.messages), *chosen])
    queries = selection_queries(request.messages)
    user_queries = selection_queries([message for message in request.messages if message.role == "user"])
    return RetrievalPlan(
        tools,
        retrieval.k,
        pinned,
        tuple(name for name in later if name in names),
        frozenset(found_in_history(request.messages)),
        tuple(queries),
        _digest_beginnings("queries", queries),
        _digest_beginnings("user", user_queries),
        *_digest_tools(tools),
        any(message.role == "assistant" for message in request.messages),
        SEARCH_TOOLS not in names,
        earlier=() if earlier is None else tuple(earlier),
    )


def plan_hosted_search(request: Request, wire: Wire) -> RetrievalPlan | None:
    """Return the plan for a client that relies on the tool search of a provider, at a target without one.

    Return None if running the search here would change nothing, or if a tool of the client has the name of ours.
    """
    search = plan_search(request, wire, runs_search=True)
    if search == plan_search(request, wire, runs_search=False) or SEARCH_TOOLS in {tool.name for tool in request.tools}:
        return None
    found = frozenset(search.found)
    offered = frozenset(tool.name for tool in request.tools if not tool.deferred or tool.name in found)
    digest, size = _digest_tools(request.tools)
    return RetrievalPlan(
        request.tools,
        0,
        offered,
        (),
        found,
        (),
        (),
        (),
        digest,
        size,
        is_continued=True,
        can_search=True,
        is_hosted=True,
    )


def _drop_duplicates(tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """Return the tools without later ones of the same name, which would take the places of others."""
    unique: dict[tuple[str | None, str], Tool] = {}
    for tool in tools:
        unique.setdefault((tool.namespace, tool.name), tool)
    return tuple(unique.values())


def _names_in_history(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the names of called and found tools in the order of their occurrence."""
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                yield part.name
            elif isinstance(part, ToolResult):
                yield from part.found


def _digest_tools(tools: Sequence[Tool]) -> tuple[bytes, int]:
    """Return a digest of the searched fields of all declarations, and their size."""
    data = to_bytes([[tool.name, tool.namespace, tool.description, tool.input_schema] for tool in tools])
    return blake2b(data, digest_size=16).digest(), len(data)


def _digest_beginnings(label: str, texts: Sequence[str]) -> tuple[bytes, ...]:
    """Return a digest of the first text, of the first two, and so on."""
    digest, digests = blake2b(label.encode(), digest_size=16), []
    for text in texts:
        digest.update(blake2b(text.encode("utf-8", "replace")).digest())
        digests.append(digest.digest())
    return tuple(digests)


# The tools that one request offers, and the search for the others. The model's searches are answered here.


_DEFAULT_COUNT = 5  # tools found by a search without `k`; few, as each of them lengthens the prompt
_MAX_SEARCHES = 8  # for one answer; each is a turn of the model, which is billed
_MAX_QUERY = 2_000  # characters; a query of a model is a sentence or two
_WORK_PER_NAME = 256  # bytes of text that take as long as a name in the index of names
_MAX_NAME = 100  # characters of an unknown name that are repeated


class OfferedClientTools:
    """The offer of one request. `tools` are offered in its first turn; searches offer more."""

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
        """Answer a search, and offer the tools that it finds. Return its result, and the tools to add to the request.

        With the search of a provider, translation adds them itself. An empty query, and too many searches, are errors.
        """
        if self.has_no_search:
            message = f"No more searches. Use the tools that are offered, or answer without {SEARCH_TOOLS}."
            return call.result(message, is_error=True), []
        self.searches += 1
        arguments = call.arguments or {}
        query, k = arguments.get("query"), arguments.get("k", _DEFAULT_COUNT)
        if not isinstance(query, str) or not query.strip():
            return call.result(EMPTY_QUERY, is_error=True), []
        count = max(1, min(k, MAX_FOUND)) if type(k) is int else _DEFAULT_COUNT
        tools = [tool for tool in await self._rank(query[:_MAX_QUERY], count) if tool.kind not in _PROVIDER_KINDS]
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
        """Return the error for a call of a tool that does not exist, or of a gateway tool that is not offered."""
        if call.name in self._known:
            return call.result(f"{call.name!r} is not offered. Find it with {SEARCH_TOOLS}.", is_error=True)
        size = _WORK_PER_NAME * len(self._known)
        similar = suggest_names(await self._offload.run(size, _find_similar, call.name, self._known))
        more = f" Use {SEARCH_TOOLS} to find tools." if self._plan.can_search else ""
        return call.result(f"There is no tool {call.name[:_MAX_NAME]!r}.{similar}{more}", is_error=True)

    def report(self, losses: Losses) -> None:
        """Add a loss with the number of offered tools: a warning if the model cannot search for the others."""
        detail = f"{self.offered} of {self.declared} tools offered"
        if self._plan.can_search:
            losses.add("/tools", "tools", "moved", f"{detail}; {SEARCH_TOOLS} finds the others", "info")
        else:
            detail += f"; the client's own tool {SEARCH_TOOLS!r} replaces the search for the others"
            losses.add("/tools", "tools", "dropped", detail, "warning")


def _find_similar(name: str, names: Iterable[str]) -> list[str]:
    return NameIndex(names).similar(name)
