"""Meet a provider's limits on all strict tools of a request together, with as few non-strict tools as possible.

Each tool costs optional parameters and unions, and the request has a maximum of each. The choice of tools is a knapsack
with small numbers: exact, over all reachable sums.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

__all__ = ["ParameterCounts", "affordable"]

ParameterCounts: TypeAlias = tuple[int, int]


@lru_cache(256)
def affordable(costs: tuple[ParameterCounts, ...], most: ParameterCounts, count: int | None) -> tuple[int, ...]:
    """Return the indices of as many tools as fit `most` and `count`; among equal choices, the first ones.

    >>> affordable(((5, 0), (20, 0), (10, 0)), (24, 16), 20)
    (0, 2)
    """
    wanted = len(costs) if count is None else min(count, len(costs))
    if wanted == len(costs) and _sum(costs, 0) <= most[0] and _sum(costs, 1) <= most[1]:
        return tuple(range(wanted))
    kept: dict[ParameterCounts, tuple[int, ...]] = {(0, 0): ()}
    best: tuple[int, ...] = ()
    for number, (optional, unions) in enumerate(costs):
        if len(best) == wanted:
            break
        for (spent, joined), chosen in list(kept.items()):
            after = spent + optional, joined + unions
            if after[0] <= most[0] and after[1] <= most[1] and len(chosen) >= len(kept.get(after, ())):
                kept[after] = (*chosen, number)
                best = max(best, kept[after], key=len)
    return best


def _sum(costs: tuple[ParameterCounts, ...], part: int) -> int:
    return sum(cost[part] for cost in costs)
