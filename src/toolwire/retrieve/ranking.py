"""Rank the tools of an index for a query: nearest vectors, combined scores, reasons, and an optional reranker.

Above a number of tools, the nearest vectors are found with the HNSW graph of usearch (extra `usearch`). The scores of
words and of meanings are combined with the numbers that were chosen by measurement.
A reranker orders the best tools again, such as a cross-encoder or a service.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from .._extras import install_command
from ..ir.errors import ConfigError, MissingExtra
from ..ir.tools import Tool
from ..ir.value import Value
from ..run.tools.words import split_words
from .documents import FIELDS
from .vectors import Vectors, VectorTable
from .word_index import Floats, WordIndex


class SearchHit(Value, frozen=True):
    """A tool that was found. A higher `score` is better; scores of different queries are not comparable.

    `reasons` describe the match for a person: the words in common, and the similarity of meanings.
    """

    tool: Tool
    score: float
    reasons: tuple[str, ...] = ()
    server: str = ""


# Find the nearest vectors without comparing all of them: the HNSW graph of usearch (extra `usearch`). The graph finds
# candidates; their similarity is computed from the vectors themselves. Adding a vector takes about 1 ms of one core.
# The graph is not saved with an index, because a damaged graph would be read by native code: it is built again when
# an opened index is first searched by meaning.


# 384 numbers each: 300 MB are read per query, tens of milliseconds. A graph takes 1 ms per vector to build
EXACT_LIMIT = 200_000
"""Vectors that are compared one by one. More are searched with a graph."""

# by meaning, of the graph; more than SPREAD_COUNT and RERANK_COUNT need, so that good matches of words join them
CANDIDATES = 1_000
_BLOCK = 8_192  # vectors that are copied at once


class NearestTools(NamedTuple):
    """Tools that a server found near a query, by server and name.

    `similarities` has one number per vector of the query. `vectors` are the vectors of the best tools.
    """

    similarities: Mapping[tuple[str, str], Sequence[float]]
    vectors: Mapping[tuple[str, str], Sequence[float]]


class NearestVectors:
    """A graph of the rows of a table. It grows with the table."""

    def __init__(self, table: VectorTable) -> None:
        """Create an empty approximate index over `table`. Raises `MissingExtra` without usearch."""
        try:
            from usearch.index import Index
        except ImportError:
            raise MissingExtra(
                "the search among more tools than the exact_limit of an index requires usearch",
                hint=f"{install_command('usearch')}, or give ToolIndex a higher exact_limit",
            ) from None
        self._table = table
        self._index: Any = Index(ndim=table.dimensions, metric="ip", dtype="f16", expansion_search=256)
        self._length = 0

    def grow(self) -> None:
        """Add the rows that were appended to the table."""
        while self._length < len(self._table):
            numbers = np.arange(self._length, min(self._length + _BLOCK, len(self._table)))
            self._index.add(numbers, self._table.take(numbers))
            self._length = int(numbers[-1]) + 1

    def score(self, query: Floats, is_kept: NDArray[np.bool_], also: NDArray[np.int64]) -> Floats:
        """Return the similarity of the candidates with a query; 0 for all other rows.

        `also` are further candidates, such as the best ones of the text search.
        """
        self.grow()
        found = self._index.search(query, CANDIDATES).keys.astype(np.int64)
        candidates: NDArray[np.int64] = np.union1d(found, also)
        return score_rows(self._table, query, candidates[is_kept[candidates]])


def score_rows(table: VectorTable, query: Floats, numbers: NDArray[np.int64]) -> Floats:
    """Return the similarity of some rows with a query; 0 for all other rows."""
    scores: Floats = np.zeros(len(table), np.float32)
    for start in range(0, len(numbers), _BLOCK):
        block = numbers[start : start + _BLOCK]
        scores[block] = np.maximum(table.take(block) @ query, 0)
    return scores


def find_best(words: Floats, count: int = CANDIDATES) -> NDArray[np.int64]:
    """Return the numbers with the highest scores, without an order; fewer if the others are 0."""
    numbers = np.flatnonzero(words)
    if len(numbers) > count:
        numbers = numbers[np.argpartition(-words[numbers], count)[:count]]
    return numbers


# Combine the scores of words and of meanings for one query.
#
# The similarity of meanings is the base: of the whole query and, for a query of several sentences, of its best
# sentence, since a request often needs several tools. Sentences are compared with the best candidates only, because
# each comparison with all tools costs as much as the query itself. To it, the square of the BM25 score is added:
# words count little where they match weakly, as in vague requests, and decide where they match strongly, as in
# requests with names. So the weight of words is chosen per query and tool. All numbers were chosen on the development
# queries (bench/retrieval_quality.py).
#
# Large catalogues have many tools for one purpose, which would fill the first places. So a tool that is similar to a
# better one is moved down a little. Variants of one tool, which are nearly equal, stay together.


_WORDS_FACTOR = np.float32(1.5e-4)
_SENTENCE_WEIGHT = np.float32(0.3)
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|\n+")
_MIN_SENTENCE = 13  # characters; "Thank you." is no request
_MAX_SENTENCES = 8  # each costs a run of the encoder; a request with more is a document
_CANDIDATES = 1_024  # compared with each sentence instead of all tools; many times the places that are returned
_MAX_TEXT = 2_000  # characters that are split
SPREAD_COUNT = 60  # more than any k in use; each place costs a comparison with the remaining ones
"""The best tools, among which similar ones are spread."""
_SIMILAR, _EQUAL = 0.6, 0.8  # tools with a similarity between these are similar, above they are variants
_SIMILAR_WEIGHT = np.float32(0.2)


def split_query(query: str) -> list[str]:
    """Return the texts to encode: the query, and its sentences if there are several."""
    parts = (part.strip() for part in _SENTENCE_END.split(query[:_MAX_TEXT]))
    sentences = [part for part in parts if len(part) >= _MIN_SENTENCE][:_MAX_SENTENCES]
    return [query, *sentences] if len(sentences) > 1 else [query]


def choose_candidates(words: Floats, meanings: Floats) -> NDArray[np.int64]:
    """Return the numbers whose sentences are compared: the best for the whole query, in their order."""
    candidates: NDArray[np.int64] = np.flatnonzero(meanings)  # removed and excluded tools have 0
    if len(candidates) > _CANDIDATES:
        scores = _combine(words[candidates], meanings[candidates])
        candidates = candidates[np.sort(_find_best(scores, _CANDIDATES))]
    return candidates


def add_sentences(meanings: Floats, candidates: NDArray[np.int64], similarities: Vectors) -> Floats:
    """Return the similarities with the query, plus the similarities of the candidates with its best sentence."""
    combined: Floats = (1 - _SENTENCE_WEIGHT) * meanings
    combined[candidates] += _SENTENCE_WEIGHT * np.maximum(similarities.max(axis=1), 0)
    return combined


def rank_numbers(words: Floats, meanings: Floats | None, count: int) -> list[tuple[int, float]]:
    """Return the best numbers with their scores, the best first. Equal scores are ordered by number."""
    scores = words if meanings is None else _combine(words, meanings)
    best = _find_best(scores, count)
    best = best[np.lexsort((best, -scores[best]))]
    return [(int(number), float(scores[number])) for number in best if scores[number] > 0]


def spread_similar(
    ranked: list[tuple[int, float]], vectors: Vectors, count: int = SPREAD_COUNT
) -> list[tuple[int, float]]:
    """Move tools down that are similar to a better one. `vectors` has the vectors of the ranked tools, in their order.

    Only the first `count` are returned: each place costs a comparison with all tools that are not yet placed.
    """
    scores = np.array([score for _, score in ranked], np.float32)
    similarities = vectors @ vectors.T
    excess = np.where(similarities < _EQUAL, np.maximum(similarities - _SIMILAR, 0), 0)
    highest = np.zeros(len(ranked), np.float32)  # the excess similarity to any tool that is placed
    is_placed = np.zeros(len(ranked), np.bool_)
    spread: list[tuple[int, float]] = []
    for _ in ranked[:count]:
        lowered = np.where(is_placed, -np.inf, scores - _SIMILAR_WEIGHT * highest)
        best = int(lowered.argmax())
        is_placed[best] = True
        spread.append((ranked[best][0], float(lowered[best])))
        highest = np.maximum(highest, excess[best])
    return spread


def _find_best(scores: Floats, count: int) -> NDArray[np.int64]:
    """Return the numbers of the highest scores. Of those that are equal to the last one, the first numbers are taken."""
    if len(scores) <= count:
        return np.arange(len(scores))
    ordered = -scores
    ordered.partition(count - 1)
    last = -ordered[count - 1]
    better = np.flatnonzero(scores > last)
    return np.concatenate([better, np.flatnonzero(scores == last)[: count - len(better)]])


def _combine(words: Floats, meanings: Floats) -> Floats:
    scores: Floats = meanings + _WORDS_FACTOR * words * words
    return scores


_MAX_WORDS = 6  # shown per hit, as the reason of its rank
_MAX_QUERY_WORDS = 200  # as in word_index.py
_PUNCTUATION = ".,;:!?\"'()[]{}<>"


def describe_matches(
    query: str, index: WordIndex, numbers: Sequence[int], meanings: Floats | None
) -> list[tuple[str, ...]]:
    """Return for each number the words of the query in each field, and the similarity of meanings.

    The index of words already has the words of the fields, so that no text is split again.
    """
    spellings = _find_spellings(query)
    matches = index.match_fields(tuple(spellings), np.array(numbers, np.int32))
    shown = tuple(spellings.values())
    reasons: list[tuple[str, ...]] = []
    for number, by_word in zip(numbers, matches, strict=True):
        common = ([shown[word] for word in np.flatnonzero(column)[:_MAX_WORDS]] for column in by_word.T)
        parts = [f"{field}: {', '.join(found)}" for field, found in zip(FIELDS, common, strict=True) if found]
        if meanings is not None:
            parts.append(f"meaning: {meanings[number]:.2f}")
        reasons.append(tuple(parts))
    return reasons


def _find_spellings(query: str) -> dict[str, str]:
    """Return each stem of a query with its first spelling there."""
    spellings: dict[str, str] = {}
    for spelling in query.split():
        for stem in split_words(spelling):
            spellings.setdefault(stem, spelling.strip(_PUNCTUATION).lower())
        if len(spellings) >= _MAX_QUERY_WORDS:
            break
    return spellings


RERANK_COUNT = 20  # a cross-encoder reads each of them with the query; several times the usual k
"""The best tools, which a reranker orders."""


class Reranker(Protocol):
    """Returns one score per hit of a query; a higher score is better. It may be called from several threads."""

    def score(self, query: str, hits: Sequence[SearchHit], /) -> Sequence[float]: ...


def rerank_hits(reranker: Reranker, query: str, hits: Sequence[SearchHit]) -> list[SearchHit]:
    """Order hits by the scores of a reranker, which become their scores.

    Hits with equal scores keep their order. Raises `ConfigError` unless each hit has a finite score.
    """
    if not hits:
        return []
    scores = [float(score) for score in reranker.score(query, hits)]
    if len(scores) != len(hits) or not all(map(math.isfinite, scores)):
        raise ConfigError(
            f"the reranker returned {len(scores)} scores for {len(hits)} tools, or a score that is not a number",
            hint="return one finite number per tool",
        )
    scored = [
        replace(hit, score=score, reasons=(*hit.reasons, f"reranker: {score:.2f}"))
        for hit, score in zip(hits, scores, strict=True)
    ]
    return sorted(scored, key=lambda hit: -hit.score)
