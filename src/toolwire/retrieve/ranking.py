"""Combine the scores of words and of meanings for one query. Separate because it has the numbers that were chosen.

The similarity of meanings is the base: that of the whole query and, for a query of several sentences, of its best
sentence, since a request often needs several tools. Sentences are compared with the best candidates only, because each
comparison with all tools costs as much as the query itself. To it, the square of the BM25 score is added: words count little
where they match weakly, as in vague requests, and decide where they match strongly, as in requests with names. So
the weight of words is chosen per query and tool. All numbers were chosen on the development queries
(bench/retrieval_quality.py).

Large catalogues have many tools for one purpose, which would fill the first places. So a tool that is similar to a
better one is moved down a little. Variants of one tool, which are nearly equal, stay together.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from .encoder import Vectors
from .word_index import Floats

__all__ = ["SPREAD_COUNT", "add_sentences", "choose_candidates", "rank_numbers", "split_query", "spread_similar"]

_WORDS_FACTOR = np.float32(1.5e-4)
_SENTENCE_WEIGHT = np.float32(0.3)
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|\n+")
_MIN_SENTENCE = 13  # characters; "Thank you." is no request
_MAX_SENTENCES = 8
_CANDIDATES = 1_024
_MAX_TEXT = 2_000  # characters that are split
SPREAD_COUNT = 60
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
    """Return the similarities with the query, to which those of the candidates with its best sentence are added."""
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
    """Move tools down that are similar to a better one. `vectors` are those of the ranked tools, in their order.

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
