"""An index of tools that is searched by words and by meaning.

index = ToolIndex(encoder=open_minilm())         # without an encoder: words only
index.add(github.tools, server="github")
for hit in index.search("close the issue about the login page", k=5):
    print(hit.tool.name, hit.score, hit.reasons)
index.save("tools.index")                        # ToolIndex.load("tools.index") maps it into memory
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from ..ir.errors import ConfigError
from ..ir.tools import Effect, Tool
from ..ir.value import Value
from ..run.tools.offer import strip_function
from .documents import ToolDocument, make_document
from .entry_table import (
    EntryTable,
    IndexedTool,
    SearchFilter,
    check_encoder,
    check_names,
    check_search,
    collect_tools,
    encode_entry,
    list_tools,
    make_filter,
)
from .ranking import (
    EXACT_LIMIT,
    RERANK_COUNT,
    SPREAD_COUNT,
    NearestTools,
    NearestVectors,
    Reranker,
    SearchHit,
    add_sentences,
    choose_candidates,
    describe_matches,
    find_best,
    rank_numbers,
    rerank_hits,
    score_rows,
    split_query,
    spread_similar,
)
from .vectors import Encoder, ProgressCallback, Vectors, VectorTable, encode_texts
from .word_index import Floats, WordIndex

if TYPE_CHECKING:
    from pathlib import Path

    from .retriever import IndexRetriever

MAX_QUERY = 8_000  # characters; the encoder reads the first 128 tokens, words are counted up to 200


class IndexChange(Value, frozen=True):
    """The effect of a change of an index, as names of tools. Unchanged tools are not encoded again.

    `refused` are tools that cannot be written as JSON, and those with the name of an earlier one in the same list, each
    with the reason. They are not in the index.
    """

    added: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: int = 0
    refused: tuple[tuple[str, str], ...] = ()


class ToolIndex:
    """Tools that can be searched. An entry is identified by its server and name.

    Searches may run in several threads while another one changes the index. Vectors of up to `exact_limit` tools are
    compared one by one; more are searched approximately, which needs the extra `usearch`.
    """

    def __init__(
        self, encoder: Encoder | None = None, *, reranker: Reranker | None = None, exact_limit: int = EXACT_LIMIT
    ) -> None:
        """Create an empty index; above `exact_limit` tools, the vector search is approximate.

        Raises `ConfigError` for an unsuitable encoder.
        """
        check_encoder(encoder)
        self.encoder = encoder
        self.reranker = reranker  # orders the best tools of each search again; it is not saved
        self._lock = threading.RLock()
        self._entries = EntryTable()
        self._words = WordIndex()
        self._vectors = None if encoder is None else VectorTable(encoder.dimensions)
        self._nearest: NearestVectors | None = None
        self._exact_limit = exact_limit
        self._unused_encoder: str | None = None  # of a saved index that was opened for words only

    def __len__(self) -> int:
        self._refresh_if_due()
        return len(self._entries)

    def __iter__(self) -> Iterator[IndexedTool]:
        """Iterate over the tools in the order in which they were added."""
        self._refresh_if_due()
        with self._lock:
            return iter([self._entries.indexed(number) for number in self._entries.numbers().tolist()])

    def find(self, name: str, server: str | None = None) -> Tool | None:
        """Return the tool with this name, of any server by default."""
        self._refresh_if_due()
        with self._lock:
            entries = self._entries
            number = entries.find_name(name) if server is None else entries.find(server, name)
            return None if number is None else entries.indexed(number).tool

    def add(
        self,
        tools: Iterable[Tool],
        *,
        server: str = "",
        tags: Sequence[str] = (),
        progress: ProgressCallback | None = None,
    ) -> IndexChange:
        """Add tools, replace tools whose declaration or tags changed, and return the changes.

        Only these are encoded. Tools that cannot be encoded are refused. Raises `ConfigError` for values that are not
        tools or tags.
        """

        def prepare(tool: Tool) -> tuple[IndexedTool, ToolDocument]:
            indexed = IndexedTool(strip_function(tool), server, tuple(tags))
            encode_entry(indexed)
            return indexed, make_document(indexed.tool, server=server, tags=indexed.tags)

        check_names("tags", tags)
        changed, refused = collect_tools(tools, prepare)
        with self._lock:
            unchanged = [name for name, entry in changed.items() if self._has_document(*entry)]
        for name in unchanged:
            del changed[name]
        vectors = None
        if self.encoder is not None and changed:
            vectors = encode_texts(self.encoder, [document.text for _, document in changed.values()], progress)
        updated = self._put_entries(list(changed.values()), vectors)
        added = tuple(name for name in changed if name not in frozenset(updated))
        return IndexChange(added, updated, unchanged=len(unchanged), refused=refused)

    def remove(self, names: Iterable[str], *, server: str = "") -> IndexChange:
        """Remove tools. Names that are not in the index are ignored."""
        check_names("names", names)
        with self._lock:
            removed = tuple(name for name in dict.fromkeys(names) if self._entries.find(server, name) is not None)
            self._remove_entries((server, name) for name in removed)
        return IndexChange(removed=removed)

    def replace_server(
        self,
        tools: Iterable[Tool],
        *,
        server: str = "",
        tags: Sequence[str] = (),
        progress: ProgressCallback | None = None,
    ) -> IndexChange:
        """Make the tools of a server equal to the given ones: add, update and remove."""
        tools = list_tools(tools)
        change = self.add(tools, server=server, tags=tags, progress=progress)
        kept = Counter(tool.name for tool in tools) - Counter(name for name, _ in change.refused)
        with self._lock:
            stale = [name for name in self._entries.names_of_server(server) if name not in kept]
        return replace(change, removed=self.remove(stale, server=server).removed)

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
        """Return the `k` best tools for a query, the best first; none for an empty query.

        Filters apply before the ranking: `effects`, `servers`, `tags` (any of them), and `allow`, such as a check of
        the caller's permissions. Raises `ConfigError` for an invalid query, `k` or filter.
        """
        check_search(query, k)
        self._refresh_if_due()
        given = make_filter(effects, servers, tags, allow)
        query = query[:MAX_QUERY]
        if not query.strip():
            return []
        encoder = self.encoder
        vectors = None if encoder is None else encode_texts(encoder, split_query(query))
        nearest = None if vectors is None else self._find_nearest(query, vectors, given)
        with self._lock:
            words, meanings = self._score(query, vectors, given, nearest)
            ranked = self._rank(words, meanings, k if self.reranker is None else max(k, RERANK_COUNT), nearest)
            reasons = describe_matches(query, self._words, [number for number, _ in ranked], meanings)
            found = [(self._entries.indexed(number), score) for number, score in ranked]
        hits = [
            SearchHit(indexed.tool, score, why, indexed.server)
            for (indexed, score), why in zip(found, reasons, strict=True)
        ]
        return hits if self.reranker is None else rerank_hits(self.reranker, query, hits)[:k]

    def score_words(self, query: str) -> Floats:
        """Return the BM25 score of every tool for a query, in the order of iteration."""
        with self._lock:
            scores: Floats = self._words.score(query)[self._entries.numbers()]
            return scores

    def vectors(self) -> tuple[list[IndexedTool], Vectors] | None:
        """Return the tools and a copy of their vectors, in the same order; None without an encoder."""
        with self._lock:
            if self._vectors is None:
                return None
            return list(self), self._vectors.take(self._entries.numbers())

    def retriever(self, k: int = 5, always: Iterable[str] = ()) -> IndexRetriever:
        """Return a retriever for an agent: it offers the `k` best tools for the request, and those named in `always`."""
        from .retriever import IndexRetriever

        return IndexRetriever(self, k, always)

    def save(self, path: str | Path) -> None:
        """Write the index.

        A reader sees the old or the new index, never a part of one. Raises `ConfigError` if the index was opened
        without its encoder or the file cannot be written, and `StoreError` if an earlier change failed halfway.
        """
        from .index_file import IndexParts, IndexSnapshot

        if self._unused_encoder is not None:
            raise ConfigError(
                f"the index was opened without its encoder {self._unused_encoder!r}, so that saving it loses the vectors",
                hint="open it with the encoder, or make a new index",
            )
        encoder = None if self.encoder is None else self.encoder.name
        with self._lock:
            snapshot = IndexSnapshot(IndexParts(self._entries, self._words, self._vectors), encoder)
        snapshot.write(path)

    @classmethod
    def load(cls, path: str | Path, encoder: Encoder | None = None, *, exact_limit: int = EXACT_LIMIT) -> ToolIndex:
        """Open a saved index in a memory map. Raise IndexFileError for a file that is not usable with this encoder.

        Without an encoder, or if the index was saved without one, it is searched by words only. An index with vectors
        that was opened without an encoder cannot be saved.
        """
        from .index_file import load_parts

        parts, unused_encoder = load_parts(path, encoder)
        index = cls(None if parts.vectors is None else encoder, exact_limit=exact_limit)
        index._entries, index._words, index._vectors = parts
        index._unused_encoder = unused_encoder
        return index

    def _put_entries(
        self, entries: Sequence[tuple[IndexedTool, ToolDocument]], vectors: Vectors | None
    ) -> tuple[str, ...]:
        """Add or replace entries. Return the names of those that were replaced.

        Everything that may fail, such as a missing extra, comes before the first change.
        """
        with self._lock:
            nearest = None
            if (
                self._vectors is not None
                and vectors is not None
                and len(self._vectors) + len(vectors) > self._exact_limit
            ):
                nearest = self._open_nearest(self._vectors)
            keys = [(indexed.server, indexed.tool.name) for indexed, _ in entries]
            replaced = [key for key in keys if self._entries.find(*key) is not None]
            self._remove_entries(replaced)
            self._words.add(self._entries.end, [document for _, document in entries])
            if self._vectors is not None and vectors is not None:
                self._vectors.extend(vectors)
            for indexed, document in entries:
                self._entries.add(indexed, document)
            if nearest is not None:
                nearest.grow()
        return tuple(name for _, name in replaced)

    def _remove_entries(self, keys: Iterable[tuple[str, str]]) -> None:
        for server, name in keys:
            self._words.remove(*self._entries.remove(server, name))

    def _refresh_if_due(self) -> None:
        """Read the changes of other processes; an index in memory has none."""

    def _find_nearest(self, query: str, vectors: Vectors, given: SearchFilter) -> NearestTools | None:
        """Return the tools near a query, if a server has the vectors."""
        return None

    def _score(
        self, query: str, vectors: Vectors | None, given: SearchFilter, nearest: NearestTools | None
    ) -> tuple[Floats, Floats | None]:
        """Return the scores of words and of meanings by number; 0 for tools that are removed or excluded."""
        words = self._words.score(query)
        excluded = self._entries.find_excluded(given)
        words[excluded] = 0
        if vectors is None:
            return words, None
        if nearest is not None:
            return words, self._score_found(nearest, len(vectors), words, excluded)
        return words, self._score_meanings(vectors, words, excluded)

    def _score_meanings(self, vectors: Vectors, words: Floats, excluded: NDArray[np.int64]) -> Floats | None:
        """Return the similarity of every number with a query, given as its vectors; None without stored vectors.

        The first vector is the whole query, the others are its sentences. Above `exact_limit` tools, the nearest are
        searched approximately.
        """
        table = self._vectors
        if table is None or not len(table):
            return None
        is_kept = self._words.is_present.values.copy()
        is_kept[excluded] = False
        meanings: Floats
        if len(table) <= self._exact_limit:
            meanings = np.maximum(table.score(vectors[:1])[0], 0)
            meanings[~is_kept] = 0
        elif np.count_nonzero(is_kept) <= self._exact_limit:
            meanings = score_rows(table, vectors[0], np.flatnonzero(is_kept))
        else:
            meanings = self._open_nearest(table).score(vectors[0], is_kept, find_best(words))
        if len(vectors) == 1:
            return meanings
        candidates = choose_candidates(words, meanings)
        return add_sentences(meanings, candidates, table.take(candidates) @ vectors[1:].T)

    def _score_found(self, nearest: NearestTools, rows: int, words: Floats, excluded: NDArray[np.int64]) -> Floats:
        """Return the similarities of the tools that a server found; 0 for all others.

        The first of `rows` is the whole query, the others are its sentences.
        """
        similarities = np.zeros((rows, self._entries.end), np.float32)
        found = [(self._entries.find(*key), column) for key, column in nearest.similarities.items()]
        known = {number: column for number, column in found if number is not None}
        if known:
            similarities[:, list(known)] = np.array(list(known.values()), np.float32).T
        meanings: Floats = np.maximum(similarities[0], 0)
        meanings[excluded] = 0
        if rows == 1:
            return meanings
        candidates = choose_candidates(words, meanings)
        return add_sentences(meanings, candidates, similarities[1:, candidates].T)

    def _open_nearest(self, vectors: VectorTable) -> NearestVectors:
        if self._nearest is None:
            self._nearest = NearestVectors(vectors)
        return self._nearest

    def _rank(
        self, words: Floats, meanings: Floats | None, count: int, nearest: NearestTools | None
    ) -> list[tuple[int, float]]:
        """Return the best numbers with their scores. Similar tools are spread."""
        ranked = rank_numbers(words, meanings, max(count, SPREAD_COUNT))
        if meanings is None or not ranked:
            return ranked[:count]
        best, others = ranked[:SPREAD_COUNT], ranked[SPREAD_COUNT:]
        vectors = self._take_vectors([number for number, _ in best], nearest)
        spread = best if vectors is None else spread_similar(best, vectors, count)
        return [*spread, *others][:count]

    def _take_vectors(self, numbers: Sequence[int], nearest: NearestTools | None) -> Vectors | None:
        if self._vectors is not None:
            return self._vectors.take(np.array(numbers, np.int64))
        if nearest is None or not nearest.vectors:
            return None
        unknown = [0.0] * len(next(iter(nearest.vectors.values())))  # a tool that was added meanwhile
        rows = [nearest.vectors.get(self._entries.key(number), unknown) for number in numbers]
        return np.array(rows, np.float32)

    def _has_document(self, indexed: IndexedTool, document: ToolDocument) -> bool:
        """Return whether the entry has this document, and replace its tool if only fields differ that are not searched."""
        number = self._entries.find(indexed.server, indexed.tool.name)
        if number is None:
            return False
        if self._entries.indexed(number) == indexed:
            return True
        if self._entries.document(number) != document:
            return False
        self._entries.replace(number, indexed)
        return True
