"""Measure rankings against the tools that belong to a query, and compare the search of an index with its parts.

recall(["search", "read", "write"], {"read", "list"}, 2)    # 0.5: one of two is among the first two
bootstrap_difference(ours, baseline, seed=1)                # mean difference per query, and its interval
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np

from ..ir.errors import ConfigError
from ..ir.tools import Tool
from ..ir.value import Value
from ..run.executor import Executor, map_items
from .index import MAX_QUERY, ToolIndex
from .ranking import split_query
from .vectors import ProgressCallback, Vectors
from .word_index import Floats

_DRAWS = 1_000_000  # numbers that are drawn at once: bounds the memory
_TAIL = 2.5  # percent on each side of a 95 % interval


def recall(ranked: Sequence[Hashable], gold: Collection[Hashable], k: int) -> float:
    """Return the share of `gold` among the first `k` ranked items. A repeated item counts once."""
    wanted = frozenset(gold)
    _require_gold(wanted, k)
    return len(wanted.intersection(ranked[:k])) / len(wanted)


def ndcg(ranked: Sequence[Hashable], gold: Collection[Hashable], k: int) -> float:
    """Return the normalised discounted cumulative gain of the first `k` ranked items, each relevant or not.

    An item at rank r counts 1 / log2(r + 1). The sum is divided by the sum of the best order.
    """
    wanted = frozenset(gold)
    _require_gold(wanted, k)
    gain = sum(_discount(rank) for rank, item in _first_occurrences(ranked[:k]) if item in wanted)
    return gain / sum(map(_discount, range(1, min(len(wanted), k) + 1)))


def bootstrap_difference(
    one: Sequence[float], other: Sequence[float], seed: int = 0, rounds: int = 10_000
) -> tuple[float, float, float]:
    """Return the mean of `one - other` per query, and its 95 % interval by a paired bootstrap over the queries.

    Queries are drawn with replacement, the same queries for both sides. The seed fixes the draws. Raises `ConfigError`
    for sides of different length or without values, and for an invalid seed or number of rounds.
    """
    if len(one) != len(other) or not one:
        raise ConfigError(f"a paired comparison requires as many values on both sides, got {len(one)} and {len(other)}")
    if rounds < 1 or seed < 0:
        raise ConfigError(f"rounds must be at least 1 and the seed at least 0, got {rounds} and {seed}")
    differences = np.asarray(one, np.float64) - np.asarray(other, np.float64)
    generator = np.random.default_rng(seed)
    count = len(differences)
    step = max(_DRAWS // count, 1)
    means = np.concatenate(
        [
            differences[generator.integers(0, count, (min(step, rounds - start), count))].mean(axis=1)
            for start in range(0, rounds, step)
        ]
    )
    low, high = np.percentile(means, (_TAIL, 100 - _TAIL))
    return float(differences.mean()), float(low), float(high)


def _first_occurrences(ranked: Sequence[Hashable]) -> Iterator[tuple[int, Hashable]]:
    """Yield ranks from 1 with their items, without repeated items."""
    seen: set[Hashable] = set()
    for rank, item in enumerate(ranked, 1):
        if item not in seen:
            seen.add(item)
            yield rank, item


def _discount(rank: int) -> float:
    return 1 / math.log2(rank + 1)


def _require_gold(gold: Collection[Hashable], k: int) -> None:
    """Raise ConfigError for a query without gold tools, or a `k` below 1."""
    if not gold:
        raise ConfigError("a query has no gold tools", hint="leave out queries that no tool belongs to")
    if k < 1:
        raise ConfigError(f"k must be at least 1, got {k}")


# Compare the search of an index with its parts, for queries whose tools are known.
#
# words      the word index alone (BM25)
# meaning    the vectors alone
# ranks      plain fusion of both by reciprocal ranks
# search     the order that `ToolIndex.search` returns


Method: TypeAlias = Literal["words", "meaning", "ranks", "search"]
Key: TypeAlias = tuple[str, str, str]
"""Server, name and id of a tool. The id of an API specification, otherwise empty."""

MEASURES = ("R@1", "R@5", "R@10", "NDCG@10")
_FUSED = 1_000  # tools of each part that are fused
_RANK_OFFSET = 60  # of reciprocal rank fusion
_GROUP = 64  # queries of an item: some 0.1 s of work, far more than sending them to a worker takes
_DEEPEST = 10  # ranks of NDCG@10, the measure of the published benchmarks


class LabelledQuery(Value, frozen=True):
    """A query and the tools that belong to it, each as `name`, `server/name`, or the `id` of its API specification."""

    query: str
    gold: tuple[str, ...]
    group: str = ""


class MethodComparison(NamedTuple):
    """The value of every measure per query, by method."""

    groups: tuple[str, ...]  # of the queries, in their order
    values: dict[Method, dict[str, list[float]]]

    def select(self, method: Method, measure: str, group: str | None = None) -> list[float]:
        """Return the values of the queries of a group; of all queries without one."""
        values = self.values[method][measure]
        return [value for value, own in zip(values, self.groups, strict=True) if group is None or own == group]

    def mean(self, method: Method, measure: str, group: str | None = None) -> float:
        values = self.select(method, measure, group)
        return sum(values) / len(values)

    def difference(
        self, baseline: Method, measure: str, group: str | None = None, *, seed: int = 0, rounds: int = 10_000
    ) -> tuple[float, float, float]:
        """Return the mean of search minus a baseline, and its 95 % interval."""
        one, other = (self.select(method, measure, group) for method in ("search", baseline))
        return bootstrap_difference(one, other, seed, rounds)


def missing_gold(index: ToolIndex, queries: Iterable[LabelledQuery]) -> list[str]:
    """Return the gold tools that are not in the index. A search cannot find them."""
    known = {label for indexed in index for label in _list_labels(_make_key(indexed.server, indexed.tool))}
    return list(dict.fromkeys(name for query in queries for name in query.gold if name not in known))


def compare_methods(
    index: ToolIndex,
    queries: Sequence[LabelledQuery],
    progress: ProgressCallback | None = None,
    *,
    executor: Executor | None = None,
) -> MethodComparison:
    """Run every query with every method; an index without vectors has one method.

    `progress` counts the texts that are encoded, then the queries that are searched. All queries are encoded at once
    here; the workers of `executor` search copies of the index, with equal results. Raises `ConfigError` without
    queries.
    """
    if not queries:
        raise ConfigError("there are no queries to evaluate")
    vectors = None
    if index.encoder is not None:
        texts = dict.fromkeys(text for labelled in queries for text in _query_texts(labelled.query))
        vectors = dict(zip(texts, index.encoder.encode(list(texts), progress), strict=True))
    items = [_QueryGroup(queries[start : start + _GROUP], vectors) for start in range(0, len(queries), _GROUP)]

    def count_queries(done: int, _: int) -> None:
        if progress is not None:
            progress(min(done * _GROUP, len(queries)), len(queries))

    values: dict[Method, dict[str, list[float]]] = {}
    for found in map_items(_QueryMeasurer(index), items, executor=executor, progress=count_queries):
        for method, measured in msgspec.json.decode(found, type=dict[Method, dict[str, list[float]]]).items():
            known = values.setdefault(method, {measure: [] for measure in MEASURES})
            for measure, numbers in measured.items():
                known[measure] += numbers
    return MethodComparison(tuple(query.group for query in queries), values)


def _query_texts(query: str) -> list[str]:
    """Return the texts of a query that are encoded: `search` uses the beginning of a long one."""
    return list(dict.fromkeys([*split_query(query), *split_query(query[:MAX_QUERY])]))


class _QueryGroup:
    """Queries that are measured together, and the vectors of their texts; None without an encoder."""

    def __init__(self, queries: Sequence[LabelledQuery], vectors: Mapping[str, Vectors] | None) -> None:
        self.queries = queries
        texts = [text for labelled in queries for text in _query_texts(labelled.query)]
        self.vectors = None if vectors is None else {text: vectors[text] for text in texts}


class _QueryMeasurer:
    """Measures groups of queries. Another process gets the index as a file, with the name of its encoder only."""

    def __init__(self, index: ToolIndex) -> None:
        self._index = index
        self._methods: _RankingMethods | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the saved index. An index that was opened without its encoder is copied without vectors."""
        index = self._index
        if index.encoder is None:
            index = ToolIndex(reranker=self._index.reranker)
            for indexed in self._index:
                index.add([indexed.tool], server=indexed.server, tags=indexed.tags)
        with TemporaryDirectory(prefix="toolwire-") as folder:
            index.save(Path(folder, "tools.index"))
            content = Path(folder, "tools.index").read_bytes()
        encoder = None if index.encoder is None else (index.encoder.name, index.encoder.dimensions)
        return {"content": content, "encoder": encoder, "reranker": index.reranker}

    def __setstate__(self, state: dict[str, Any]) -> None:
        encoder = None if state["encoder"] is None else _QueryEncoder(*state["encoder"])
        with TemporaryDirectory(prefix="toolwire-", ignore_cleanup_errors=True) as folder:  # Windows keeps mapped files
            path = Path(folder, "tools.index")
            path.write_bytes(state["content"])
            self._index = ToolIndex.load(path, encoder=encoder)
        self._index.reranker = state["reranker"]
        self._methods = None

    def __call__(self, group: _QueryGroup) -> bytes:
        """Rank each query with every method, and return recall and NDCG per query."""
        methods = self._methods = self._methods or _RankingMethods(self._index)
        encoder = self._index.encoder
        if encoder is not None and group.vectors is not None:
            self._index.encoder = _QueryEncoder(encoder.name, encoder.dimensions, group.vectors)
        try:
            return msgspec.json.encode(_measure(methods, group.queries))
        finally:
            self._index.encoder = encoder


def _measure(methods: _RankingMethods, queries: Sequence[LabelledQuery]) -> dict[Method, dict[str, list[float]]]:
    values: dict[Method, dict[str, list[float]]] = {}
    for labelled in queries:
        for method, ranked in methods.rank(labelled.query).items():
            names = _label(ranked, frozenset(labelled.gold))
            measured = values.setdefault(method, {measure: [] for measure in MEASURES})
            for k in (1, 5, 10):
                measured[f"R@{k}"].append(recall(names, labelled.gold, k))
            measured["NDCG@10"].append(ndcg(names, labelled.gold, _DEEPEST))
    return values


class _QueryEncoder:
    """An encoder with the vectors of known texts: each is encoded once for all methods, in large batches."""

    def __init__(self, name: str, dimensions: int, vectors: Mapping[str, Vectors] | None = None) -> None:
        self.name = name
        self.dimensions = dimensions
        self._vectors = vectors or {}

    def encode(self, texts: Sequence[str], progress: ProgressCallback | None = None) -> Vectors:
        return np.stack([self._vectors[text] for text in texts])


class _RankingMethods:
    """The methods of an index, which does not change meanwhile."""

    def __init__(self, index: ToolIndex) -> None:
        self._index = index
        self._keys = [_make_key(indexed.server, indexed.tool) for indexed in index]
        found = index.vectors()
        self._vectors = None if found is None else found[1]

    def rank(self, query: str) -> dict[Method, list[Key]]:
        """Return the best tools for a query by method; without vectors only by `search`."""
        search = [_make_key(hit.server, hit.tool) for hit in self._index.search(query, _DEEPEST)]
        if self._index.encoder is None or self._vectors is None:
            return {"search": search}
        words = self._rank_scores(self._index.score_words(query))
        meanings = self._rank_scores(self._vectors @ self._index.encoder.encode([query])[0])
        return {
            "words": words[:_DEEPEST],
            "meaning": meanings[:_DEEPEST],
            "ranks": _fuse_ranks(words, meanings)[:_DEEPEST],
            "search": search,
        }

    def _rank_scores(self, scores: Floats) -> list[Key]:
        """Return the tools with the highest scores above 0; equal scores in the order of the index."""
        best = np.argsort(-scores, kind="stable")[:_FUSED]
        return [self._keys[number] for number in best if scores[number] > 0]


def _make_key(server: str, tool: Tool) -> Key:
    spec = tool.extra.get("api_spec")
    number = spec.get("id") if type(spec) is dict else None
    return server, tool.name, number if type(number) is str else ""


def _list_labels(key: Key) -> tuple[str, str, str]:
    """Return the names of a tool in gold, the most exact first."""
    server, name, spec_id = key
    return spec_id or name, f"{server}/{name}", name


def _fuse_ranks(*rankings: Sequence[Key]) -> list[Key]:
    """Order by the sum of 1 / (60 + rank); equal sums by first occurrence."""
    scores: dict[Key, float] = {}
    for ranked in rankings:
        for rank, key in enumerate(ranked, 1):
            scores[key] = scores.get(key, 0.0) + 1 / (_RANK_OFFSET + rank)
    return sorted(scores, key=lambda key: -scores[key])


def _label(ranked: Iterable[Key], gold: frozenset[str]) -> list[str]:
    """Return the tools in the form in which the gold names them, else by name."""
    return [next((label for label in _list_labels(key) if label in gold), key[1]) for key in ranked]
