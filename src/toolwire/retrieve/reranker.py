"""The optional last step of a search: a reranker orders the best tools again, such as a cross-encoder or a service."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from msgspec.structs import replace

from ..ir.errors import ConfigError
from ..ir.tools import Tool
from .search_hit import SearchHit

__all__ = ["RERANK_COUNT", "Reranker", "rerank_hits"]

RERANK_COUNT = 30
"""The best tools, which a reranker orders."""


class Reranker(Protocol):
    """Returns one score per tool for a query; a higher score is better. It may be called from several threads."""

    def score(self, query: str, tools: Sequence[Tool], /) -> Sequence[float]: ...


def rerank_hits(reranker: Reranker, query: str, hits: Sequence[SearchHit]) -> list[SearchHit]:
    """Order hits by the scores of a reranker. Hits with equal scores keep their order."""
    if not hits:
        return []
    scores = [float(score) for score in reranker.score(query, [hit.tool for hit in hits])]
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
