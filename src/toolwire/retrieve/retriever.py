"""Offer the tools that fit the user's request, found in an index.

    agent = Agent("openai/gpt-5.6", toolbox, retriever=index.retriever(k=5, always=["current_user"]))

The selection is made once per conversation, for the first user message that has matches. Later turns offer the same
tools, so that the prompt cache of the provider stays valid; `search_tools` and calls in the history add others at the
end. The same messages give the same selection, so it is stable for a caller without state, too.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from ..ir.errors import ConfigError
from ..ir.parts import ToolResult
from ..ir.request import Message, Request, found_in_history
from ..ir.tools import Tool
from ..run.tools.suggestions import NameIndex, suggest_names
from ..run.tools.words import selection_queries
from ..run.values.keys import definition_hash, has_same_definition, list_calls

_MAX_QUERY = 8_000  # characters in which names are recognised
_NAME = re.compile(r"\w[\w.:/-]*")
_MAX_ADDED = 10_000  # tools that a retriever adds to its index; above it, the oldest that are not in use are removed


class ToolHit(Protocol):
    """A found tool, such as a `SearchHit`."""

    @property
    def tool(self) -> Tool: ...


class ToolEntry(Protocol):
    """A tool in an index, such as an `IndexedTool`."""

    @property
    def tool(self) -> Tool: ...
    @property
    def server(self) -> str: ...


class SearchableTools(Protocol):
    """The methods of `ToolIndex` that a retriever uses."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[ToolEntry]: ...
    def find(self, name: str, server: str | None = None) -> Tool | None: ...
    def add(self, tools: Iterable[Tool], *, server: str = "") -> Any: ...
    def remove(self, names: Iterable[str], *, server: str = "") -> Any: ...
    def search(self, query: str, k: int = 10, *, allow: Callable[[Any], bool] | None = None) -> Sequence[ToolHit]: ...


class _KnownTool(NamedTuple):
    """A tool of an agent, and its entry in the index."""

    tool: Tool
    server: str
    indexed: Tool | None


class IndexRetriever:
    """Chooses the `k` best tools of an agent for a request, and those named in `always`.

    Only tools that the agent has are offered: the index may have others, older ones, or tools of other servers. A tool
    that is not in the index, or has changed, is added to it.
    """

    def __init__(self, index: SearchableTools, k: int = 5, always: Iterable[str] = ()) -> None:
        """Raise `ConfigError` for a `k` below 1, and for a text as `always`."""
        if type(k) is not int or k < 1:
            raise ConfigError(f"k must be an integer of at least 1, got {k!r}")
        if isinstance(always, str):
            raise ConfigError(f"always must be a list of names, got the text {always!r}", hint=f"use [{always!r}]")
        self.index = index
        self.k = k
        self.always = tuple(dict.fromkeys(always))
        self._lock = threading.Lock()
        self._entries: dict[str, _KnownTool] = {}  # by name
        self._added: OrderedDict[str, str] = OrderedDict()  # by name: the server of a tool that this retriever added

    def choose(self, request: Request, tools: Sequence[Tool], offered: Sequence[str]) -> tuple[Tool, ...]:
        """Return the offered tools, then new ones: those that a search found, and those that the history has used.

        A conversation that offers nothing yet gets the tools in `always`, then the best ones for its first user message
        that has matches. An agent with few tools offers all of them.
        """
        known = {tool.name: tool for tool in tools}
        names = dict.fromkeys(offered)
        if frozenset(names).issubset(self.always):
            best = self._select(request, tools)
            names.update(dict.fromkeys([*self.always, *[name for name in known if name in best]]))
        names.update(dict.fromkeys(found_in_history(request.messages)))
        names.update(dict.fromkeys(_called_names(request.messages)))
        return tuple([known[name] for name in names if name in known])

    def search(self, query: str, tools: Sequence[Tool], k: int) -> tuple[Tool, ...]:
        """Return the `k` best of these tools for a query; tools that it names exactly come first.

        A name of letters only may be an ordinary noun, and does not count as a name. Tools that the index does not have
        are added to it.
        """
        known = {tool.name: tool for tool in tools}
        if not known or not query.strip():
            return ()
        allow = self._index_tools(known)
        words = [word.rstrip(".:/-") for word in _NAME.findall(query[:_MAX_QUERY])]
        named = [word for word in words if word in known and not word.isalpha()]
        found = [hit.tool.name for hit in self.index.search(query, k, allow=allow)]  # others may change the index
        return tuple([known[name] for name in dict.fromkeys([*named, *found]) if name in known][:k])

    def check_tools(self, tools: Sequence[Tool]) -> None:
        """Raise ConfigError if `always` names a tool that is not among these."""
        names = [tool.name for tool in tools]
        for name in self.always:
            if name not in names:
                similar = suggest_names(NameIndex(names).similar(name)).strip()
                raise ConfigError(
                    f"always names the unknown tool {name!r}", hint=similar or "use the name of a tool of the agent"
                )

    def _select(self, request: Request, tools: Sequence[Tool]) -> frozenset[str]:
        """Return the names of the best tools for the first text of the user that has matches."""
        others = [tool for tool in tools if tool.name not in self.always]
        if len(others) <= self.k:
            return frozenset(tool.name for tool in others)
        found = (self.search(query, tools, self.k) for query in selection_queries(request.messages))
        return frozenset(tool.name for tool in next(filter(None, found), ()))

    def _index_tools(self, known: dict[str, Tool]) -> Callable[[ToolEntry], bool] | None:
        """Add the tools that the index does not have. Return the filter for these tools; None if it has no others."""
        with self._lock:
            new = {name: tool for name, tool in known.items() if not self._is_indexed(tool)}
            if new:
                self._find_in_index(new)
                self._add_missing({name: tool for name, tool in new.items() if name not in self._entries})
                self._remove_oldest(known)
            servers = {name: self._entries[name].server for name in known}
            if len(servers) == len(self.index):
                return None
        return lambda indexed: servers.get(indexed.tool.name) == indexed.server

    def _is_indexed(self, tool: Tool) -> bool:
        """Return True if the index has the tool, as far as is known. The index may have been changed by others."""
        entry = self._entries.get(tool.name)
        if entry is None or entry.tool is not tool or entry.indexed is None:
            return False
        return self.index.find(tool.name, entry.server) is entry.indexed

    def _find_in_index(self, new: dict[str, Tool]) -> None:
        """Find the tools that the index has with the same definition."""
        for name in new:
            self._entries.pop(name, None)
        for indexed in self.index:
            tool = new.get(indexed.tool.name)
            if tool is not None and tool.name not in self._entries and has_same_definition(indexed.tool, tool):
                self._entries[tool.name] = _KnownTool(tool, indexed.server, indexed.tool)

    def _add_missing(self, missing: dict[str, Tool]) -> None:
        """Add tools to the index and to the known entries.

        A tool of the same name that this retriever added is replaced. One that it did not add is kept, because another
        agent may use it: the new tool gets a server of its own.
        """
        if not missing:
            return
        taken = {indexed.tool.name for indexed in self.index if not indexed.server}
        by_server: dict[str, list[Tool]] = {}
        for name, tool in missing.items():
            server = self._added.pop(name, definition_hash(tool)[:8] if name in taken else "")
            self._added[name] = server  # again at the end: the order is the age, for `_remove_oldest`
            by_server.setdefault(server, []).append(tool)
        for server, tools in by_server.items():
            self.index.add(tools, server=server)
            for tool in tools:
                self._entries[tool.name] = _KnownTool(tool, server, self.index.find(tool.name, server))

    def _remove_oldest(self, used: dict[str, Tool]) -> None:
        """Remove tools that this retriever added long ago and that are not used now."""
        surplus = max(0, len(self._added) - _MAX_ADDED)
        for name in [name for name in self._added if name not in used][:surplus]:
            self._entries.pop(name, None)
            self.index.remove([name], server=self._added.pop(name))


def _called_names(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the names of calls that succeeded. A refused call must not cause its tool to be offered."""
    names = {call.id: call.name for call in list_calls(messages)}
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolResult) and not part.is_error and part.call_id in names:
                yield names[part.call_id]
