"""Order the best tools of a search by a more expensive function, such as a cross-encoder or a model.

Separate because an index works without one, and most have none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import TypeAlias

from msgspec.structs import replace

from ..ir.errors import ConfigError
from .search_hit import SearchHit

__all__ = ["RERANK_COUNT", "Reranker", "rerank_hits"]

RERANK_COUNT = 50
"""The best tools that a reranker gets, if fewer are requested."""

Reranker: TypeAlias = Callable[[str, Sequence[SearchHit]], Sequence[float]]
"""Returns a score for each tool that was found for a query; a higher one is better."""


def rerank_hits(rerank: Reranker, query: str, hits: Sequence[SearchHit], k: int) -> list[SearchHit]:
    """Return the `k` tools with the highest new scores. Equal scores keep their order."""
    if not hits:
        return []
    scores = [float(score) for score in rerank(query, hits)]
    if len(scores) != len(hits) or not all(map(isfinite, scores)):
        raise ConfigError(
            f"the reranker must return a finite score for each of {len(hits)} tools, got {len(scores)} scores",
            hint="return a list of numbers in the order of the tools",
        )
    order = sorted(range(len(hits)), key=lambda number: -scores[number])
    return [replace(hits[number], score=scores[number]) for number in order[:k]]
