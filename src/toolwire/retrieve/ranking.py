"""Combine the scores of words and of meanings for one query."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .word_index import Floats

__all__ = ["rank_numbers"]

_RANK_OFFSET = 60


def rank_numbers(words: Floats, meanings: Floats | None, count: int) -> list[tuple[int, float]]:
    """Return the best numbers with their scores, the best first. Equal scores are ordered by number."""
    scores = words if meanings is None else _rank_scores(words) + _rank_scores(meanings)
    count = min(count, len(scores))
    best: NDArray[np.int64] = np.argpartition(-scores, count - 1)[:count] if count else np.zeros(0, np.int64)
    best = best[np.lexsort((best, -scores[best]))]
    return [(int(number), float(scores[number])) for number in best if scores[number] > 0]


def _rank_scores(scores: Floats) -> Floats:
    ranks = np.empty(len(scores), np.float32)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1, dtype=np.float32)
    result: Floats = np.where(scores > 0, 1 / (_RANK_OFFSET + ranks), 0).astype(np.float32)
    return result
