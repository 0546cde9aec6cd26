"""Measures of a ranking against the tools that belong to a query, and of the difference of two rankings.

recall(["search", "read", "write"], {"read", "list"}, 2)    # 0.5: one of two is among the first two
bootstrap_difference(ours, baseline, seed=1)                # mean difference per query, and its interval
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterator, Sequence

import numpy as np

from ..ir.errors import ConfigError

__all__ = ["bootstrap_difference", "ndcg", "recall"]

_DRAWS = 1_000_000  # numbers that are drawn at once: bounds the memory
_TAIL = 2.5  # percent on each side of a 95 % interval


def recall(ranked: Sequence[Hashable], gold: Collection[Hashable], k: int) -> float:
    """Return the share of `gold` among the first `k` ranked items. A repeated item counts once."""
    wanted = frozenset(gold)
    _require_gold(wanted, k)
    return len(wanted.intersection(ranked[:k])) / len(wanted)


def ndcg(ranked: Sequence[Hashable], gold: Collection[Hashable], k: int) -> float:
    """Return the normalised discounted cumulative gain of the first `k` ranked items, each relevant or not.

    An item at rank r counts 1 / log2(r + 1). The sum is divided by that of the best order.
    """
    wanted = frozenset(gold)
    _require_gold(wanted, k)
    gain = sum(_discount(rank) for rank, item in _first_occurrences(ranked[:k]) if item in wanted)
    return gain / sum(map(_discount, range(1, min(len(wanted), k) + 1)))


def bootstrap_difference(
    one: Sequence[float], other: Sequence[float], seed: int = 0, rounds: int = 10_000
) -> tuple[float, float, float]:
    """Return the mean of `one - other` per query, and its 95 % interval by a paired bootstrap over the queries.

    Queries are drawn with replacement, the same ones for both sides. The seed fixes the draws.
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
    """Return ranks from 1 with their items, without repeated items."""
    seen: set[Hashable] = set()
    for rank, item in enumerate(ranked, 1):
        if item not in seen:
            seen.add(item)
            yield rank, item


def _discount(rank: int) -> float:
    return 1 / math.log2(rank + 1)


def _require_gold(gold: Collection[Hashable], k: int) -> None:
    if not gold:
        raise ConfigError("a query has no gold tools", hint="leave out queries that no tool belongs to")
    if k < 1:
        raise ConfigError(f"k must be at least 1, got {k}")
