"""The tools that a conversation offers, as a function of the conversation alone.

A gateway keeps no conversation between two requests, and the prompt cache of a provider needs an unchanged beginning.
So the first tools are selected for the first user message that has matches, and later requests select the same ones.
Tools that were called or found by a search follow in the order of the history, so new tools are always last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from ...bridge.search_plan import plan_search
from ...ir.parts import ToolCall, ToolResult
from ...ir.request import Message, Request
from ...ir.text import to_bytes
from ...ir.tool_search import SEARCH_TOOLS, found_in_history, search_tool
from ...ir.tools import Tool
from ...run.selection_queries import opening_texts, selection_queries
from ...wire.protocol import Wire
from ..settings import RetrieveRow

__all__ = ["RetrievalPlan", "plan_hosted_search", "plan_retrieval"]


class RetrievalPlan(Struct, frozen=True):
    """A request with more tools than are offered, and everything that its selection depends on."""

    tools: tuple[Tool, ...]  # all of them
    k: int
    pinned: frozenset[str]  # names that are offered in any case, from the first request on
    later: tuple[str, ...]  # names that follow the selection: of the history, then of the tool choice
    found: frozenset[str]  # names that a search in the history has loaded
    queries: tuple[str, ...]  # tools are selected for the first one that has matches
    openings: tuple[bytes, ...]  # digests of the beginning of the conversation: with its system prompt, and without
    digest: bytes  # of the declarations
    size: int  # bytes of the declarations
    is_continued: bool  # the model has answered before
    can_search: bool  # the client has no tool with the name of ours
    is_hosted: bool = False  # the client has declared the search of a provider, which the gateway runs instead

    def offer(self, selected: Sequence[str]) -> tuple[Tool, ...]:
        """Return the tools to offer: the search tool, those selected in the client's order, and later ones.

        With the search of a provider, the client has deferred the others itself, and translation adds found tools.
        """
        if self.is_hosted:
            return self.tools
        first = self.pinned.union(selected)
        tools = [search_tool()] if self.can_search else []
        tools += [tool for tool in self.tools if tool.name in first]
        tools = self._keep_cache_mark(tools)
        by_name: dict[str, list[Tool]] = {}
        for tool in self.tools:
            by_name.setdefault(tool.name, []).append(tool)
        for name in self.later:
            if name not in first:
                tools += [replace(tool, deferred=True) if name in self.found else tool for tool in by_name[name]]
        return tuple(tools)

    def _keep_cache_mark(self, tools: list[Tool]) -> list[Tool]:
        """Move the cache mark of a tool that is not offered to the last one: clients mark the end of their list."""
        marks = [tool.cache for tool in self.tools if tool.cache]
        if not marks or not tools or any(tool.cache for tool in tools):
            return tools
        return [*tools[:-1], replace(tools[-1], cache=marks[-1])]

    def continue_offer(self, offered: Sequence[str]) -> RetrievalPlan:
        """Return the plan that offers these tools again, in their order, before new ones."""
        names = dict.fromkeys(tool.name for tool in self.tools)
        later = dict.fromkeys([*offered, *[name for name in names if name in self.pinned], *self.later])
        return replace(self, pinned=frozenset(), later=tuple([name for name in later if name in names]))


def plan_retrieval(request: Request, retrieval: RetrieveRow) -> RetrievalPlan | None:
    """Return the plan for a request; None if all of its tools are offered.

    That is the case for a short list, and for a client that defers the loading of tools itself.
    """
    tools = request.tools
    pinned = frozenset([*retrieval.always, *[tool.name for tool in tools if tool.kind == "builtin"]])
    if len({tool.name for tool in tools} - pinned) <= retrieval.k:
        return None
    if any(tool.deferred or tool.kind == "search" for tool in tools):
        return None
    names = {tool.name for tool in tools}
    if SEARCH_TOOLS in names:
        pinned |= {SEARCH_TOOLS}
    chosen = () if request.choice is None else request.choice.names
    later = dict.fromkeys([*_names_in_history(request.messages), *chosen])
    system, user = opening_texts(request.messages)
    return RetrievalPlan(
        tools,
        retrieval.k,
        pinned,
        tuple(name for name in later if name in names),
        frozenset(found_in_history(request.messages)),
        tuple(selection_queries(request.messages)),
        (_digest_texts([system, user]), _digest_texts([user])),
        *_digest_tools(tools),
        any(message.role == "assistant" for message in request.messages),
        SEARCH_TOOLS not in names,
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
        request.tools, 0, offered, (), found, (), (), digest, size, is_continued=True, can_search=True, is_hosted=True
    )


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


def _digest_texts(texts: Sequence[str]) -> bytes:
    return blake2b(to_bytes(list(texts)), digest_size=16).digest()
