"""An index of tools that is searched by words and by meaning.

index = ToolIndex(encoder=open_minilm())         # without an encoder: words only
index.add(github.tools, server="github")
for hit in index.search("close the issue about the login page", k=5):
    print(hit.tool.name, hit.score, hit.reasons)
index.save("tools.index")                        # ToolIndex.load("tools.index") maps it into memory
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..ir.errors import ConfigError
from ..ir.tools import Effect, Tool
from ..ir.value import Value
from ..run.tool_offer import strip_function
from .documents import ToolDocument, make_document
from .encoder import Encoder, Progress
from .ranking import rank_numbers
from .vector_table import VectorTable
from .word_index import WordIndex

if TYPE_CHECKING:
    from pathlib import Path

    from .retriever import IndexRetriever

__all__ = ["IndexChange", "IndexedTool", "SearchHit", "ToolIndex"]

_MAX_QUERY = 8_000  # characters


class IndexedTool(Value, frozen=True):
    """A tool in an index, with the server that offers it and its tags."""

    tool: Tool
    server: str = ""
    tags: tuple[str, ...] = ()


class SearchHit(Value, frozen=True):
    """A tool that was found. A higher `score` is better; scores of different queries are not comparable.

    `reasons` describe the match for a person: the words in common, and the similarity of meanings.
    """

    tool: Tool
    score: float
    reasons: tuple[str, ...] = ()
    server: str = ""


class IndexChange(Value, frozen=True):
    """The effect of a change of an index, as names of tools. Unchanged tools are not encoded again."""

    added: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: int = 0


class _Entry(NamedTuple):
    indexed: IndexedTool
    document: ToolDocument


class ToolIndex:
    """Tools that can be searched. An entry is identified by its server and name.

    Searches may run in several threads while another one changes the index.
    """

    def __init__(self, encoder: Encoder | None = None) -> None:
        self.encoder = encoder
        self._lock = threading.RLock()
        self._numbers: dict[tuple[str, str], int] = {}
        self._entries: dict[int, _Entry] = {}
        self._next_number = 0
        self._words = WordIndex()
        self._vectors = None if encoder is None else VectorTable(encoder.dimensions)

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[IndexedTool]:
        """Iterate over the tools in the order in which they were added."""
        with self._lock:
            return iter([entry.indexed for entry in self._entries.values()])

    def find(self, name: str, server: str | None = None) -> Tool | None:
        """Return the tool with this name, of any server by default."""
        with self._lock:
            if server is not None:
                number = self._numbers.get((server, name))
                return None if number is None else self._entries[number].indexed.tool
            return next(
                (entry.indexed.tool for entry in self._entries.values() if entry.indexed.tool.name == name), None
            )

    def add(
        self, tools: Iterable[Tool], *, server: str = "", tags: Sequence[str] = (), progress: Progress | None = None
    ) -> IndexChange:
        """Add tools, and replace those whose declaration or tags changed. Only these are encoded."""
        given = {tool.name: IndexedTool(strip_function(tool), server, tuple(tags)) for tool in tools}
        entries = {
            name: _Entry(indexed, make_document(indexed.tool, server=server, tags=indexed.tags))
            for name, indexed in given.items()
        }
        with self._lock:
            changed = {name: entry for name, entry in entries.items() if not self._has_document(server, name, entry)}
        vectors = None
        if self.encoder is not None and changed:
            vectors = self.encoder.encode([entry.document.text for entry in changed.values()], progress)
        with self._lock:
            updated = tuple(name for name in changed if (server, name) in self._numbers)
            for name in updated:
                self._remove_entry((server, name))
            first = self._next_number
            self._words.add(first, [entry.document for entry in changed.values()])
            if self._vectors is not None and vectors is not None:
                self._vectors.extend(vectors)
            for number, (name, entry) in enumerate(changed.items(), first):
                self._numbers[server, name] = number
                self._entries[number] = entry
            self._next_number += len(changed)
        added = tuple(name for name in changed if name not in frozenset(updated))
        return IndexChange(added, updated, unchanged=len(entries) - len(changed))

    def remove(self, names: Iterable[str], *, server: str = "") -> IndexChange:
        """Remove tools. Names that are not in the index are ignored."""
        with self._lock:
            removed = tuple(name for name in dict.fromkeys(names) if (server, name) in self._numbers)
            for name in removed:
                self._remove_entry((server, name))
        return IndexChange(removed=removed)

    def replace_server(
        self, tools: Iterable[Tool], *, server: str = "", tags: Sequence[str] = (), progress: Progress | None = None
    ) -> IndexChange:
        """Make the tools of a server equal to the given ones: add, update and remove."""
        tools = tuple(tools)
        change = self.add(tools, server=server, tags=tags, progress=progress)
        kept = {tool.name for tool in tools}
        with self._lock:
            stale = [name for owner, name in self._numbers if owner == server and name not in kept]
        return IndexChange(change.added, change.updated, self.remove(stale, server=server).removed, change.unchanged)

    def search(
        self,
        query: str,
        k: int = 10,
        *,
        effects: Collection[Effect] | None = None,
        servers: Collection[str] | None = None,
        tags: Collection[str] | None = None,
        allow: Callable[[IndexedTool], bool] | None = None,
    ) -> list[SearchHit]:
        """Return the `k` best tools for a query, the best first.

        Filters apply before the ranking: `effects`, `servers`, `tags` (any of them), and `allow`, such as a check of
        the caller's permissions.
        """
        if k < 1:
            raise ConfigError(f"k must be at least 1, not {k}")
        query = query[:_MAX_QUERY]
        encoder = self.encoder
        vector = None if encoder is None else encoder.encode([query])
        with self._lock:
            words = self._words.score(query)
            meanings = None
            if vector is not None and self._vectors is not None and len(self._vectors):
                meanings = np.maximum(self._vectors.score(vector)[0], 0)
                meanings[~self._words.is_present.values] = 0
            excluded = self._find_excluded(effects, servers, tags, allow)
            words[excluded] = 0
            if meanings is not None:
                meanings[excluded] = 0
            ranked = rank_numbers(words, meanings, k)
            return [self._make_hit(number, score, query, meanings) for number, score in ranked]

    def retriever(self, k: int = 5, always: Iterable[str] = ()) -> IndexRetriever:
        """Return a retriever for an agent: it offers the `k` best tools for the request, and those named in `always`."""
        from .retriever import IndexRetriever

        return IndexRetriever(self, k, always)

    def save(self, path: str | Path) -> None:
        """Write the index. A reader sees the old or the new index, never a part of one."""
        from .index_file import save_index

        save_index(self, path)

    @classmethod
    def load(cls, path: str | Path, encoder: Encoder | None = None) -> ToolIndex:
        """Read an index into a memory map."""
        from .index_file import load_index

        return load_index(path, encoder)

    def _has_document(self, server: str, name: str, entry: _Entry) -> bool:
        number = self._numbers.get((server, name))
        return number is not None and self._entries[number].document == entry.document

    def _remove_entry(self, key: tuple[str, str]) -> None:
        number = self._numbers.pop(key)
        self._words.remove(number, self._entries.pop(number).document)

    def _find_excluded(
        self,
        effects: Collection[Effect] | None,
        servers: Collection[str] | None,
        tags: Collection[str] | None,
        allow: Callable[[IndexedTool], bool] | None,
    ) -> NDArray[np.int64]:
        """Return the numbers that a filter excludes."""
        if effects is None and servers is None and tags is None and allow is None:
            return np.zeros(0, np.int64)
        excluded = [
            number
            for number, (indexed, _) in self._entries.items()
            if (effects is not None and indexed.tool.effect not in effects)
            or (servers is not None and indexed.server not in servers)
            or (tags is not None and not any(tag in indexed.tags for tag in tags))
            or (allow is not None and not allow(indexed))
        ]
        return np.array(excluded, np.int64)

    def _make_hit(self, number: int, score: float, query: str, meanings: NDArray[np.float32] | None) -> SearchHit:
        from .reasons import describe_match

        indexed, document = self._entries[number]
        similarity = None if meanings is None else float(meanings[number])
        return SearchHit(indexed.tool, score, describe_match(query, document, similarity), indexed.server)
