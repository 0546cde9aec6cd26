"""The tools that a conversation offers, as a function of the conversation alone.

A gateway keeps no conversation between two requests, and the prompt cache of a provider needs an unchanged beginning.
So the first tools are selected for the first user message that has matches (see `run.selection_queries`), and later
requests of the conversation select the same ones.
Tools that were called or found by a search follow in the order of the history, so new tools are always last.

A conversation that an upstream stores itself is not in the request. It offers the tools of its earlier responses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from ...bridge.fitting.tool_search import plan_search
from ...ir.parts import ToolCall, ToolResult
from ...ir.request import Message, Request, found_in_history
from ...ir.text import to_bytes
from ...ir.tools import SEARCH_TOOLS, Tool, search_tool
from ...run.tools.words import selection_queries
from ...wire.protocol import Wire
from ..settings import RetrieveRow

__all__ = ["RetrievalPlan", "is_stored_elsewhere", "plan_hosted_search", "plan_retrieval"]

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
        """Return the tools to offer: the search tool, those selected in the client's order, and later ones.

        With the search of a provider, the client has deferred the others itself, and translation adds found tools.
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
            if name not in names:
                added = [replace(tool, cache=None) if marks else tool for tool in by_name[name]]
                tools += [replace(tool, deferred=True) for tool in added] if name in self.found else added
        return tuple(tools)


def _mark_last(tools: Sequence[Tool], mark: str) -> list[Tool]:
    """Move the cache mark of a tool that is left out to the last of these: later requests begin with them, too."""
    last = max((index for index, tool in enumerate(tools) if tool.kind != "builtin"), default=None)
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
    """Return the plan for a request; None if all of its tools are offered.

    That is the case for a short list, for a client that defers the loading of tools itself, and for a conversation that
    an upstream stores, unless it is known which tools were offered `earlier`.
    """
    if earlier is None and is_stored_elsewhere(request):
        return None
    tools = _drop_duplicates(request.tools)
    pinned = frozenset([*retrieval.always, *[tool.name for tool in tools if tool.kind == "builtin"]])
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
    """Return the plan for a client that relies on the tool search of a provider, at a target without one."""
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
    """Return the names of called and found tools in the order of their occurrence."""
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
